package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/pgtestdb"
)

// TestDrainIsBounded: a node that is told to stop ends when its drain is over, whatever it stands on: the database gone
// or frozen, NATS gone or mute, agents that never answer.
//
// covers: B8
func TestDrainIsBounded(t *testing.T) {
	const drain = 3 * time.Second
	for _, tt := range []struct {
		name    string
		trouble func(t *testing.T, g *ground)
	}{
		{"agents silent", func(*testing.T, *ground) {}},
		{"database gone", func(t *testing.T, g *ground) {
			if err := g.pg.Crash(); err != nil {
				t.Fatal(err)
			}
		}},
		{"database frozen", func(t *testing.T, g *ground) { g.freeze(t) }},
		{"NATS gone", func(t *testing.T, g *ground) {
			if err := g.nats.Shutdown(); err != nil {
				t.Fatal(err)
			}
		}},
		{"NATS mute", func(_ *testing.T, g *ground) { g.link.mute() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			open := newGround
			if strings.HasPrefix(tt.name, "database") {
				open = newOwnGround
			}
			g := open(t)
			url := g.link.url()
			if tt.name == "NATS gone" {
				url = g.nats.ClientURL()
			}
			n := start(t, "serve", "--node-name", "n", "--nats-url", url, "--database-url", g.db,
				"--http-addr", "127.0.0.1:0", "--partitions", "8", "--lease", "1s", "--scan-interval", "100ms", "--drain", drain.String())
			n.ready()
			g.work(t)
			tt.trouble(t, g)
			// The node is in the middle of the trouble: it has noticed, and is trying again.
			wait := time.NewTimer(1500 * time.Millisecond)
			<-wait.C
			began := time.Now()
			code := n.term()
			took := time.Since(began)
			if took > drain+time.Second {
				t.Errorf("it ended after %v, want %v at most", took, drain+time.Second)
			}
			if code != 0 {
				t.Errorf("exit %d, want 0: a drain that is cut off loses nothing", code)
			}
			if tt.name == "agents silent" && took < drain/2 {
				t.Errorf("it ended after %v and did not wait for its agents", took)
			}
			t.Logf("%v", took)
		})
	}
}

// ground is what one node stands on.
type ground struct {
	pg   *localpg.Cluster // of newOwnGround
	nats *natsserver.Server
	link *link
	db   string
}

// newGround is a NATS server and a migrated database.
func newGround(t *testing.T) *ground {
	t.Helper()
	return groundOn(t, pgtestdb.Installation(t))
}

// newOwnGround has a PostgreSQL server of its own, for tests by which that comes to harm.
func newOwnGround(t *testing.T) *ground {
	t.Helper()
	pg, err := localpg.Start(localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	db, err := pg.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, "", "migrate", "--database-url", db); code != 0 {
		t.Fatalf("migrate: %d %s %s", code, out, errs)
	}
	g := groundOn(t, db)
	g.pg = pg
	return g
}

func groundOn(t *testing.T, db string) *ground {
	t.Helper()
	g := &ground{db: db}
	var err error
	if g.nats, err = natsserver.Start(natsserver.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.nats.Shutdown() }) // it may be gone already
	g.link = newLink(t, g.nats.ClientURL())
	return g
}

// work gives the node tasks whose agent is silent, so that commands are out.
func (g *ground) work(t *testing.T) {
	t.Helper()
	nc, err := nats.Connect(g.nats.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	heard := make(chan struct{}, 64)
	if _, err := nc.QueueSubscribe("duly.do.silent", "q", func(*nats.Msg) { heard <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	client, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	plan := duly.NewPlan("waits", 1, duly.NewCheck[int, int]("step", "silent", duly.CompleteBy(time.Minute)))
	if err := errors.Join(nc.Flush(), plan.Apply(t.Context(), client)); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		if _, err := plan.Submit(t.Context(), client, fmt.Sprint("t", i), i); err != nil {
			t.Fatal(err)
		}
	}
	for range 16 {
		select {
		case <-heard:
		case <-time.After(patience):
			t.Fatal("the agent was not called")
		}
	}
}

// freeze stops every process of the database as a hung disk does, until the test ends.
func (g *ground) freeze(t *testing.T) {
	t.Helper()
	master, err := g.pg.PID()
	if err != nil {
		t.Fatal(err)
	}
	all := append(children(t, master), master)
	send := func(sig syscall.Signal) {
		for _, pid := range all {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d: %v", pid, err)
			}
		}
	}
	send(syscall.SIGSTOP)
	t.Cleanup(func() { send(syscall.SIGCONT) })
}

// children are the processes that a process has started.
func children(t *testing.T, of int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …; the name may hold anything.
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(of) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// link passes a connection's bytes on until it is mute: then it holds all connections and takes new ones, and nothing
// passes any more.
type link struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	conns    []net.Conn
	silent   bool
	over     bool
	wg       sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: strings.TrimPrefix(to, "nats://")}
	l.wg.Go(l.accept)
	t.Cleanup(l.cut)
	return l
}

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// cut ends all connections, and takes no more.
func (l *link) cut() {
	_ = l.listener.Close() // it may be closed
	l.mu.Lock()
	l.over = true
	for _, c := range l.conns {
		_ = c.Close() // as above
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// keep has a connection end with the link, and reports whether bytes pass.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	if l.over {
		_ = c.Close()
	}
	return !l.silent
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.keep(client) {
			continue
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.keep(server)
		l.wg.Go(func() { l.pass(client, server) })
		l.wg.Go(func() { l.pass(server, client) })
	}
}

func (l *link) pass(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		silent := l.silent
		l.mu.Unlock()
		if silent {
			_, _ = io.Copy(io.Discard, from) // as a host that takes packets and loses them
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}
