package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/pgtestdb"
)

// patience is how long a test waits for what must come: with -race, beside others, a node alone may take a minute to be ready.
const patience = 3 * time.Minute

// childEnv makes the test binary be the program: tests of real processes need no
// separate build.
const childEnv = "DULY_TEST_BE_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(apartEnv) != "" {
		beApart()
		return
	}
	if os.Getenv(childEnv) == "" {
		beside()
		goleak.VerifyTestMain(fewProcesses{pgtestdb.Stopping{M: m}})
	}
	// A child must not outlive its test, whatever ends that: the pipe tells.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	main()
}

// beside lets so many tests wait beside each other: most of most of them is waiting for a lease, a grace or a look that comes
// every few seconds. With -race they have work to do, and would lose leases to each other.
func beside() {
	if raceDetector {
		return
	}
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
}

// child is the program at work: in this process, or in one of its own.
type child struct {
	t       *testing.T
	addr    chan string // where it serves HTTP, once
	done    chan struct{}
	code    int          // after done
	process *os.Process  // nil: in this process
	stop    func() error // asks it to end
	die     func()       // ends it without a word to anybody; nil: it cannot
	mu      sync.Mutex
	all     bytes.Buffer // what it said
	read    int          // of that, for its address
}

var addrLine = regexp.MustCompile(`msg="http is up".* addr=(\S+)`)

// Write keeps what the program says.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Write(p)
	end := bytes.LastIndexByte(c.all.Bytes(), '\n') + 1
	if m := addrLine.FindSubmatch(c.all.Bytes()[c.read:max(c.read, end)]); m != nil {
		c.addr <- string(m[1])
	}
	c.read = max(c.read, end)
	return len(p), nil
}

func newChild(t *testing.T) *child {
	return &child{t: t, addr: make(chan string, 1), done: make(chan struct{})}
}

// start runs the program with arguments in this process; the test ends it if it still runs then.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	c := newChild(t)
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = func() error { cancel(); return nil }
	go func() {
		defer close(c.done)
		c.code = run(ctx, args, streams{strings.NewReader(""), io.Discard, c})
	}()
	t.Cleanup(func() { c.end(args, cancel) })
	return c
}

// mortal is start of a node that can die: NATS and the database are behind links, which are cut then. To both and to all
// others that is what kill -9 is to them.
func mortal(t *testing.T, args ...string) *child {
	t.Helper()
	args = slices.Clone(args)
	var links []*link
	for i, flag := range args[:len(args)-1] {
		if flag != "--nats-url" && flag != "--database-url" {
			continue
		}
		at, err := url.Parse(args[i+1])
		if err != nil {
			t.Fatal(err)
		}
		l := newLink(t, at.Host)
		links = append(links, l)
		at.Host = l.listener.Addr().String()
		args[i+1] = at.String()
	}
	c := start(t, append(args, "--drain", "100ms")...)
	c.die = func() {
		for _, l := range links {
			l.cut()
		}
		_ = c.stop() // which never fails in this process
	}
	return c
}

// spawn starts the program as a process, for what only a process shows; the test ends it if it still runs then.
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
	c := newChild(t)
	// Built with -race, a process sleeps a second before it exits, which is not its drain.
	cmd := selfCommand(t, append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), args...)
	cmd.Stderr = c
	change(cmd)
	in, err := cmd.StdinPipe() // its end ends the process
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		_ = in.Close()
		return nil, err
	}
	c.process = cmd.Process
	c.stop = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	c.die = func() { _ = cmd.Process.Kill() } // an error says that it is gone
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // the code says it
		c.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { c.end(args, c.die) })
	return c, nil
}

// end waits for the end of the program with its test.
func (c *child) end(args []string, how func()) {
	how()
	<-c.done
	if c.t.Failed() {
		c.t.Logf("%s:\n%s", strings.Join(args, " "), c.log())
	}
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// kill is kill -9, or for all others the same, and waits for the end.
func (c *child) kill() {
	c.t.Helper()
	if c.die == nil {
		c.t.Fatal("a node in this process that is to die is started by mortal")
	}
	c.die()
	<-c.done
}

// term asks the program to stop and returns its exit code.
func (c *child) term() int {
	c.t.Helper()
	if err := c.stop(); err != nil {
		c.t.Fatal(err)
	}
	select {
	case <-c.done:
		return c.code
	case <-time.After(patience):
		c.t.Fatal("it did not end")
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
