package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"
)

// The parts of a run that are processes of their own, so that the processor time
// of each can be measured. The program starts itself with one of these names.
const (
	partEngine    = "engine"
	partNATS      = "nats"
	partAgents    = "agents"
	partGenerator = "generator"
)

// niceness of the parts. Where agents share the engine's processors, the engine goes
// first: a finished sync that waits for a processor delays every submission behind it,
// a reply that waits delays one task.
var niceness = map[string]int{partAgents: 8, partVisitor: 8}

// stopMax is how long a child may take to end after it was told to.
const stopMax = 60 * time.Second

// child is a part of the run in a process of its own. It reads one JSON value a
// line and answers each with one; the first is its settings. It ends when its
// input does.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	enc  *json.Encoder
	out  *bufio.Reader
	held func() bool // ends the watch over the context
}

// startChild starts a part on so many processors with its settings and reads its first
// answer. The end of ctx kills it.
func startChild(ctx context.Context, part string, processors int, settings, answer any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	c := &child{name: part, cmd: exec.Command("nice", "-n", strconv.Itoa(niceness[part]), self, part)}
	c.cmd.Stderr = os.Stderr
	if os.Getenv("GOMAXPROCS") == "" {
		// The parts and the database share the machine's cores. A Go program spins on
		// every core it knows of, looking for work.
		c.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(processors))
	}
	// An interrupt at the terminal is the parent's to handle; and a parent that
	// was killed must not leave children behind.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	c.held = context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() }) // it may have ended by itself
	c.enc, c.out = json.NewEncoder(c.in), bufio.NewReaderSize(out, 1<<20)
	if err := c.ask(settings, answer); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ask sends one value and reads the answer to it.
func (c *child) ask(question, answer any) error {
	if err := c.enc.Encode(question); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended without an answer: %w", c.name, err)
	}
	var failed struct {
		Failed string `json:"failed"`
	}
	if err := json.Unmarshal(line, &failed); err == nil && failed.Failed != "" {
		return fmt.Errorf("%s: %s", c.name, failed.Failed)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("%s: answer: %w", c.name, err)
	}
	return nil
}

// stop ends the child and waits for it.
func (c *child) stop() error {
	c.held()
	_ = c.in.Close() // it may have ended by itself
	late := time.AfterFunc(stopMax, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// part is the child's side: it serves its parent until the input ends.
type part struct {
	in  *json.Decoder
	out *json.Encoder
}

// gcPercent is by part. The generator's heap is mostly notes without pointers, which
// cost nothing to collect, so a low value keeps its memory small.
var gcPercent = map[string]int{partEngine: 200, partNATS: 200, partAgents: 200, partGenerator: 25, partVisitor: 100}

// runPart runs one part of a run in this process.
func runPart(name string) error {
	signal.Ignore(os.Interrupt)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent[name])
	}
	p := &part{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	switch name {
	case partEngine:
		err = runEngine(ctx, p)
	case partNATS:
		err = runNATS(ctx, p)
	case partAgents:
		err = runAgents(ctx, p)
	case partGenerator:
		err = runGenerator(ctx, p)
	case partVisitor:
		err = runVisitor(ctx, p)
	}
	if err != nil {
		_ = p.out.Encode(map[string]string{"failed": err.Error()}) // the parent may be gone
	}
	return err
}

// read gets the next value; false: there is none, the part is to end.
func (p *part) read(v any) (bool, error) {
	err := p.in.Decode(v)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// profile writes processor, allocation and mutex profiles of this process
// to files that begin with path, until the function it returns is called. An
// empty path writes none.
func profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path + ".cpu.prof")
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	runtime.SetMutexProfileFraction(1000)
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		err := f.Close()
		for _, name := range []string{"allocs", "mutex"} {
			err = errors.Join(err, writeProfile(name, path+"."+name+".prof"))
		}
		return err
	}, nil
}

func writeProfile(name, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}
