package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/pgtestdb"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// childEnv makes the test binary be the program: tests of real processes need no
// separate build.
const childEnv = "DULY_TEST_BE_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		goleak.VerifyTestMain(pgtestdb.Stopping{M: m})
	}
	// A child must not outlive its test, whatever ends that: the pipe tells.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	main()
}

// child is a process of the program.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	addr chan string // where it serves HTTP, once
	done chan struct{}
	code int // after done

	mu  sync.Mutex
	all bytes.Buffer
}

var addrLine = regexp.MustCompile(`msg="http is up".* addr=(\S+)`)

// spawn starts the program with arguments; the test ends it if it still runs then.
func spawn(t *testing.T, args ...string) *child {
	t.Helper()
	c, err := spawnWith(t, func(*exec.Cmd) {}, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spawnWith is spawn of a command that was changed. Error: it does not start.
func spawnWith(t *testing.T, change func(*exec.Cmd), args ...string) (*child, error) {
	t.Helper()
	c := &child{t: t, addr: make(chan string, 1), done: make(chan struct{})}
	c.cmd = exec.Command(os.Args[0], args...)
	// Built with -race, a process sleeps a second before it exits, which is not its drain.
	c.cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	change(c.cmd)
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(stderr)
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), c.log())
		}
	})
	return c, nil
}

// read keeps what the process says until it ends.
func (c *child) read(stderr io.Reader) {
	defer close(c.done)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		c.mu.Lock()
		c.all.Write(lines.Bytes())
		c.all.WriteByte('\n')
		c.mu.Unlock()
		if m := addrLine.FindSubmatch(lines.Bytes()); m != nil {
			c.addr <- string(m[1])
		}
	}
	_ = c.cmd.Wait() // the code says it
	c.code = c.cmd.ProcessState.ExitCode()
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// kill is kill -9, and waits for the end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error says that it is gone
	<-c.done
}

// term asks the process to stop and returns its exit code.
func (c *child) term() int {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	select {
	case <-c.done:
		return c.code
	case <-time.After(patience):
		c.t.Fatal("it did not end after SIGTERM")
		return -1
	}
}

// ready waits until the process says that it is, and returns its URL.
func (c *child) ready() string {
	c.t.Helper()
	url := c.up()
	until(c.t, "ready", func() bool { code, _, _ := command(c.t, "", "health", "-s", url); return code == 0 })
	return url
}

// up waits until the process serves HTTP, ready or not, and returns its URL.
func (c *child) up() string {
	c.t.Helper()
	select {
	case addr := <-c.addr:
		return "http://" + addr
	case <-c.done:
		c.t.Fatalf("it ended with %d:\n%s", c.code, c.log())
	case <-time.After(patience):
		c.t.Fatal("http did not come up")
	}
	return ""
}

// command runs a command in this process.
func command(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, streams{strings.NewReader(in), &o, &e})
	return code, o.String(), e.String()
}

// until polls until ok; it fails the test when that takes too long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// background runs f until the test ends, and waits for it.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
