package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/dev"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
)

// The processes besides this one.
const (
	partSystem = "system" // NATS, the state store and all roles
	partAgents = "agents"
)

// What is done is forgotten after this, so that a run of minutes sees it all.
const (
	streamAge    = 30 * time.Second
	retainDetail = 20 * time.Second
	retainRow    = 40 * time.Second
	stopMax      = time.Minute
)

// order is the input of a task.
type order struct{ Drone int }

// The steps of a task, undone for some.
var (
	check = duly.NewCheck[order, string]("check", "soak.check")
	book  = duly.NewStep[order, string]("book", "soak.book")
	send  = duly.NewStep[order, string]("send", "soak.send")
	flow  = duly.NewPlan("soak", 1, check, book, send)
)

// part is a process of the run. It says one line when it is up and one with its
// goroutines for each line it reads, and ends with its input.
type part struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// startPart starts a process; hello is what it said when it was up.
func startPart(name, argument string) (p *part, hello string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	p = &part{name: name, cmd: exec.Command(self, name)}
	p.cmd.Stderr = os.Stderr
	// An interrupt at the terminal is the parent's to handle; and a parent that
	// was killed must not leave children behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	if hello, err = p.ask(argument); err != nil {
		return nil, "", errors.Join(err, p.stop())
	}
	return p, hello, nil
}

// ask writes a line and reads one.
func (p *part) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", fmt.Errorf("%s: %w", p.name, err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.name, err)
	}
	return strings.TrimSpace(answer), nil
}

// stop ends the process by its input, and kills one that does not end.
func (p *part) stop() error {
	late := time.AfterFunc(stopMax, func() { _ = p.cmd.Process.Kill() }) // it may have ended
	defer late.Stop()
	closed := p.in.Close()
	if err := errors.Join(closed, p.cmd.Wait()); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// runPart is the program as one of its parts.
func runPart(name string) error {
	node.TuneMemory(0)
	in := bufio.NewReader(os.Stdin)
	argument, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: no argument: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	serve := runSystem
	if name == partAgents {
		serve = runAgents
	}
	return serve(ctx, cancel, strings.TrimSpace(argument), func() { countGoroutines(in) })
}

// countGoroutines answers every line until the input ends.
func countGoroutines(in *bufio.Reader) {
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		fmt.Println(runtime.NumGoroutine())
	}
}

// runSystem runs everything in one process, with short memories.
func runSystem(ctx context.Context, cancel context.CancelFunc, dir string, answer func()) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	config := dev.Config("soak", 16)
	config.ScanInterval, config.Lease = 250*time.Millisecond, 2*time.Second
	config.StreamMaxAge, config.StreamMaxBytes = streamAge, 1<<30
	config.RetainDetail, config.RetainRow = retainDetail, retainRow
	s, err := dev.Start(ctx, dev.Options{Dir: filepath.Join(dir, "data"), Log: log, Config: config})
	if err != nil {
		return err
	}
	if err := forgetEvents(ctx, s.NATSURL); err != nil {
		return errors.Join(err, s.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	fmt.Println(s.NATSURL)
	answer()
	cancel()
	return errors.Join(<-ended, s.Close())
}

// forgetEvents makes the event stream as forgetful as the others.
func forgetEvents(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return fmt.Errorf("event stream: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("event stream: %w", err)
	}
	stream, err := js.Stream(ctx, wire.Names{}.StreamEvents())
	if err != nil {
		return fmt.Errorf("event stream: %w", err)
	}
	config := stream.CachedInfo().Config
	config.MaxAge, config.Duplicates = streamAge, min(config.Duplicates, streamAge)
	if _, err := js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("event stream: %w", err)
	}
	return nil
}

// runAgents stores the plan and serves its steps: one task in sixteen is refused
// at its last step and undone.
func runAgents(ctx context.Context, cancel context.CancelFunc, url string, answer func()) error {
	nc, err := nats.Connect(url, nats.Name("soak-agents"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("agents: %w", err)
	}
	defer nc.Close()
	agent, err := duly.NewAgent(nc)
	if err != nil {
		return err
	}
	done := func(_ context.Context, call duly.Call[order]) (string, error) { return "done " + call.Task, nil }
	undone := func(context.Context, duly.Undo[order, string]) error { return nil }
	err = errors.Join(check.Serve(agent, done), book.Serve(agent, done, undone),
		send.Serve(agent, func(ctx context.Context, call duly.Call[order]) (string, error) {
			if call.Input.Drone%16 == 0 {
				return "", duly.Refuse(errors.New("no drone"))
			}
			return done(ctx, call)
		}, undone))
	if err != nil {
		return err
	}
	client, err := duly.NewClient(nc)
	if err != nil {
		return err
	}
	starting, stop := context.WithTimeout(ctx, stopMax)
	defer stop()
	if err := flow.Apply(starting, client); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	fmt.Println("up")
	answer()
	cancel()
	return <-ended
}
