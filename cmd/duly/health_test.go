package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/internal/pgfault"
)

// What follows makes conditions of docs/operations/health.md true with real servers: a database behind a proxy that refuses, streams
// that are not as they must be, names that are taken.

// troubled waits until a node says that a condition does not hold, with its reason and since when, and has told it once.
func (c *child) troubled(at, name, reason string, most time.Duration) {
	c.t.Helper()
	c.unready(at, name, reason, most)
	c.told(name, reason)
}

// unready is the first half of troubled.
func (c *child) unready(at, name, reason string, most time.Duration) {
	c.t.Helper()
	soon(c.t, most, "not ready because of "+name, func() bool {
		code, all := readiness(c.t, at)
		f, ok := all[name]
		return code == 503 && ok && strings.Contains(f.Error, reason) && f.What != "" && f.Since != "" && f.For != ""
	})
}

// told waits until a trouble is told, once and with its reason.
func (c *child) told(name, reason string) { c.t.Helper(); c.toldOf(name, reason, 1) }

// toldOf is told of so many resources of a condition.
func (c *child) toldOf(name, reason string, n int) {
	c.t.Helper()
	until(c.t, name+" is told", func() bool { return c.alerts(name, "begin") == n })
	for line := range strings.Lines(c.log()) {
		if strings.Contains(line, "alert=begin name="+name+" ") && !strings.Contains(line, reason) {
			c.t.Errorf("told without its reason %q: %s", reason, line)
		}
	}
}

// over waits until a node is ready again and has told once that each of the troubles is over.
func (c *child) over(at string, names ...string) {
	c.t.Helper()
	until(c.t, "ready again", func() bool { code, _ := readiness(c.t, at); return code == 200 })
	for _, name := range names {
		until(c.t, name+" is told to be over", func() bool { return c.alerts(name, "end") == 1 })
		if n := c.alerts(name, "begin"); n != 1 {
			c.t.Errorf("%s was told %d times, want once", name, n)
		}
	}
	c.calm()
}

// alive reports whether a node says that it lives.
func (c *child) alive(at string) bool {
	c.t.Helper()
	code, _ := ask(c.t, "GET", at+"/healthz", "")
	return code == 200
}

func ask(t *testing.T, method, url, body string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// proxied is a ground whose database is behind a proxy.
func proxied(t *testing.T) (*ground, *pgfault.Proxy) {
	t.Helper()
	g := newGround(t)
	p := g.proxy(t)
	g.db = p.URL()
	return g, p
}

func (g *ground) proxy(t *testing.T) *pgfault.Proxy {
	t.Helper()
	p, err := pgfault.Start(g.db, pgfault.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// jetStream is a connection of an operator.
func (g *ground) jetStream(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	return jetStreamAt(t, g.nats.ClientURL())
}

func jetStreamAt(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// idle stores a plan whose agent is not there.
func (g *ground) idle(t *testing.T) {
	t.Helper()
	idleAt(t, g.nats.ClientURL())
}

func idleAt(t *testing.T, url string) {
	t.Helper()
	nc, _ := jetStreamAt(t, url)
	c, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plan := duly.NewPlan("idle", 1, duly.NewCheck[string, int]("wait", "absent"))
	if err := plan.Apply(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// put submits a task of it.
func put(t *testing.T, at, id string) int {
	t.Helper()
	code, _ := ask(t, "PUT", at+"/v1/tasks/idle/"+id, `"x"`)
	return code
}

const noSpace = "could not extend file: No space left on device"

// TestRefusedCommitsAreTold: a database that answers and takes no commit makes a node not ready in time, with its words;
// what was accepted meanwhile runs when it is over.
//
// covers: B2
func TestRefusedCommitsAreTold(t *testing.T) {
	t.Parallel()
	g, p := proxied(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "53100", Message: noSpace})
	if code := put(t, at, "a"); code != 202 {
		t.Fatalf("submit: %d", code)
	}
	n.troubled(at, "commits", "the database's disk is full: SQLSTATE 53100", 13*time.Second)
	if _, all := readiness(t, at); len(all) != 1 {
		t.Errorf("more than commits: %v", all)
	}
	if !n.alive(at) {
		t.Error("not alive, but a restart would not help")
	}
	p.Refuse()
	n.over(at, "commits")
	until(t, "the task is there", func() bool { code, _ := ask(t, "GET", at+"/v1/tasks/idle/a", ""); return code == 200 })
}

// TestFrozenDatabaseIsTold: a database that no longer answers, with a commit under way.
//
// covers: B2
func TestFrozenDatabaseIsTold(t *testing.T) {
	t.Parallel()
	g, p := proxied(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	for i := range 32 { // in every partition, so that no committer has to read the plan any more
		id := fmt.Sprint("t", i)
		put(t, at, id)
		until(t, "it is a task", func() bool { code, _ := ask(t, "GET", at+"/v1/tasks/idle/"+id, ""); return code == 200 })
	}
	p.Refuse(pgfault.Refusal{Mute: true})
	if code := put(t, at, "a"); code != 202 { // a database that does not answer delays no submission
		t.Fatalf("submit: %d", code)
	}
	n.troubled(at, "database", "deadline exceeded", 13*time.Second)
	n.troubled(at, "commits", "", 16*time.Second) // first it does not answer, then there is no connection
	if !n.alive(at) {
		t.Error("not alive, but a restart would not help")
	}
	p.Refuse()
	n.over(at, "database", "commits")
}

// TestRefusedReadsAreTold: what else the database may refuse: to find what is overdue, to say whose the partitions are, to
// read the plans, and, to a second node, to take partitions over.
//
// covers: B13
func TestRefusedReadsAreTold(t *testing.T) {
	t.Parallel()
	g, p := proxied(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	p.Refuse(
		pgfault.Refusal{Holds: "FROM partitions p WHERE p.partition", Code: "53200", Message: "out of memory"},
		pgfault.Refusal{Holds: "WHERE partition IN (SELECT u.partition FROM", Code: "53200", Message: "out of memory"},
		pgfault.Refusal{Holds: "FROM plans ORDER BY name, version", Code: "53200", Message: "out of memory"},
	)
	nc, _ := g.jetStream(t)
	if err := nc.Publish("duly.plans.changed", nil); err != nil {
		t.Fatal(err)
	}
	n.troubled(at, "supervision", "out of memory", 13*time.Second)
	n.troubled(at, "owners", "out of memory", 13*time.Second)
	n.told("plans", "out of memory")
	p.Refuse()
	n.over(at, "supervision", "owners", "plans")

	before := n.alerts("partitions", "begin") // where its lease ran out while all was refused
	second := g.proxy(t)
	second.Refuse(pgfault.Refusal{Holds: "UPDATE partitions SET epoch", Code: "53100", Message: noSpace})
	g.db = second.URL()
	two := g.serve(t, "two", "--roles", "scheduler")
	addr := ""
	select {
	case addr = <-two.addr:
	case <-time.After(patience):
		t.Fatal("http did not come up")
	}
	two.troubled("http://"+addr, "takeover", "No space left", 20*time.Second)
	n.unready(at, "partitions", "has no owner", 15*time.Second)
	n.toldOf("partitions", "has no owner", before+1)
	second.Refuse()
	n.over(at)
	until(t, "partitions is told to be over", func() bool { return n.alerts("partitions", "end") == before+1 })
	two.over("http://"+addr, "takeover")
}

// intrude deletes a stream and makes one of a stranger that stands in the way of making it again.
func intrude(t *testing.T, js jetstream.JetStream, stream, subject string) (remove func()) {
	t.Helper()
	until(t, stream+" is replaced", func() bool {
		if err := js.DeleteStream(t.Context(), stream); err != nil && !strings.Contains(err.Error(), "not found") {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STRANGER_" + stream, Subjects: []string{subject}}); err != nil {
			return false // Duly was faster
		}
		if _, err := js.Stream(t.Context(), stream); errors.Is(err, jetstream.ErrStreamNotFound) {
			return true
		}
		// The server takes two streams of one subject that are made at the same moment.
		if err := js.DeleteStream(t.Context(), "STRANGER_"+stream); err != nil {
			t.Fatal(err)
		}
		return false
	})
	return func() {
		if err := js.DeleteStream(t.Context(), "STRANGER_"+stream); err != nil {
			t.Error(err)
		}
	}
}

// TestMissingStreamsAreTold: streams that are gone and cannot be made again, because a stranger has one of their subjects.
//
// covers: B3, A7
func TestMissingStreamsAreTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	_, js := g.jetStream(t)
	events := intrude(t, js, "DULY_EVENTS", "duly.events.stranger.never")
	control := intrude(t, js, "DULY_CONTROL", "duly.control.stranger")
	n.unready(at, "streams", "cannot be made again", 10*time.Second)
	n.toldOf("streams", "", 2)
	if code, text := ask(t, "DELETE", at+"/v1/tasks/idle/a?even_if_unknown=true", ""); code == 202 {
		t.Errorf("a cancellation is accepted without its stream: %s", text)
	}
	n.told("task-alerts", "stream not found")
	events()
	control()
	until(t, "ready again", func() bool { code, _ := readiness(t, at); return code == 200 })
	until(t, "both are told to be over", func() bool { return n.alerts("streams", "end") == 2 })
	n.calm()
}

// TestEndingsThatCannotBeToldAreTold: a task ended, and the event stream is not there to say so.
//
// covers: B12
func TestEndingsThatCannotBeToldAreTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	g.idle(t)
	_, js := g.jetStream(t)
	events := intrude(t, js, "DULY_EVENTS", "duly.events.stranger.never")
	if code, text := ask(t, "DELETE", at+"/v1/tasks/idle/a?even_if_unknown=true", ""); code != 202 {
		t.Fatalf("%d %s", code, text)
	}
	n.troubled(at, "event-stream", "", 15*time.Second)
	events()
	n.over(at, "event-stream", "streams")
}

// TestFullStreamIsTold: a task stream that is full of unfinished work refuses submissions with its flag's name, and makes
// room when the work goes on.
//
// covers: B4
func TestFullStreamIsTold(t *testing.T) {
	t.Parallel()
	g, p := proxied(t)
	n := g.serve(t, "n", "--stream-max-bytes", "1000000")
	at := n.ready()
	g.idle(t)
	p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "53100", Message: noSpace})
	large := `"` + strings.Repeat("x", 60_000) + `"`
	full := ""
	for i := 0; full == "" && i < 100; i++ {
		if code, text := ask(t, "POST", at+"/v1/tasks/idle", large); code == 429 && strings.Contains(text, "full") {
			full = text
		} else if code != 202 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if full == "" {
		t.Fatal("6 MB went into a stream of 1 MB")
	}
	n.troubled(at, "streams", "stream is full", 10*time.Second)
	if _, all := readiness(t, at); !strings.Contains(all["streams"].Error, "--stream-max-bytes") {
		t.Errorf("the flag is not named: %s", all["streams"].Error)
	}
	p.Refuse()
	n.over(at, "streams")
}

// TestOtherInstallationIsTold: a stream that turns out to be another installation's while a node runs.
//
// covers: A8
func TestOtherInstallationIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	_, js := g.jetStream(t)
	stream, err := js.Stream(t.Context(), "DULY_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	change := func(id string) (was string) {
		config := stream.CachedInfo().Config
		was = config.Metadata["duly_installation"]
		config.Metadata["duly_installation"] = id
		if stream, err = js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		return was
	}
	own := change("ANOTHERHOUSE")
	n.troubled(at, "installation", "ANOTHERHOUSE", 10*time.Second)
	if _, all := readiness(t, at); !strings.Contains(all["installation"].Error, own) {
		t.Errorf("its own installation is not named: %s", all["installation"].Error)
	}
	change(own)
	n.over(at, "installation")
}

// TestNoLeaderIsTold: supervisors that may not take the lead, because their user lacks the right.
//
// covers: B13
func TestNoLeaderIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	dir := t.TempDir()
	// The server is another one with other rights: one that reads its configuration again races with itself.
	serve := func(port int, denied string) (s *natsd.Server, stop func()) {
		file := filepath.Join(dir, "nats.conf")
		text := fmt.Sprintf("host: 127.0.0.1\nport: %d\njetstream { store_dir: %q }\nauthorization { users: [ {user: duly, password: x, permissions: {publish: {deny: %q}}} ] }\n", port, dir, denied)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		options, err := natsd.ProcessConfigFile(file)
		if err != nil {
			t.Fatal(err)
		}
		options.NoLog, options.NoSigs = true, true
		if s, err = natsd.NewServer(options); err != nil {
			t.Fatal(err)
		}
		s.Start()
		stop = sync.OnceFunc(func() { s.Shutdown(); s.WaitForShutdown() })
		t.Cleanup(stop)
		return s, stop
	}
	s, stop := serve(-1, "$KV.DULY_NODES.leader")
	n := g.serve(t, "n", "--nats-url", strings.Replace(s.ClientURL(), "nats://", "nats://duly:x@", 1))
	at := n.up() // which never was ready: the right is missed, too
	n.troubled(at, "leader", "no one holds the leader's lease", 16*time.Second)
	port := s.Addr().(*net.TCPAddr).Port
	stop()
	serve(port, "nothing")
	n.over(at, "leader")
}

// TestLeasesThatAreNotRenewedAreTold: a bucket of leases that takes no message: the node's own place is not renewed, nor
// the leader's.
//
// covers: B13
func TestLeasesThatAreNotRenewedAreTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	// Ready comes before it: without a lease there would be no one who does not renew it.
	until(t, "n leads", func() bool { return strings.Contains(n.log(), "leads=true") })
	_, js := g.jetStream(t)
	bucket, err := js.Stream(t.Context(), "KV_DULY_NODES")
	if err != nil {
		t.Fatal(err)
	}
	config := bucket.CachedInfo().Config
	size := func(most int32) {
		config.MaxMsgSize = most
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	size(8)
	n.troubled(at, "node-lease", "size", 15*time.Second)
	n.troubled(at, "leader", "n has the leader's lease and does not renew it", 18*time.Second)
	size(-1)
	n.over(at, "node-lease", "leader")
}

// TestNameTakenIsTold: a node that stood still for so long that another took its name says so when it wakes, and is not
// ready until the other is gone.
//
// covers: A9
func TestNameTakenIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	first := spawn(t, g.args("same")...)
	at := first.ready()
	if err := first.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := g.serve(t, "same")
	second.ready()
	if err := first.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first.troubled(at, "node-lease", "another live process has it", 15*time.Second)
	second.term()
	first.over(at, "node-lease")
}

// TestSecondOfANameIsToldByItsRenewals: the second of a name refuses as soon as it has seen the first one renew its lease,
// and not only when an earlier life's lease must have run out.
//
// covers: A9
func TestSecondOfANameIsToldByItsRenewals(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second // renewed every three
	g := newGround(t)
	first := g.serve(t, "same", "--lease", lease.String())
	first.ready()
	second := g.serve(t, "same", "--lease", lease.String())
	select {
	case <-second.done:
	case <-time.After(patience):
		t.Fatal("the second of the name goes on")
	}
	if second.code == 0 || !strings.Contains(second.log(), "another live process has it") {
		t.Errorf("exit %d: %s", second.code, second.log())
	}
}
