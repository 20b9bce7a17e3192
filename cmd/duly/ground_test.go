package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pgtestdb"
)

// failing is what readiness says of one condition.
type failing struct{ Name, What, Error, Since, For string }

// readiness asks a process whether it is ready, and why not.
func readiness(t *testing.T, at string) (code int, all map[string]failing) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(at + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer client.CloseIdleConnections()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Failing []failing }
	if err := json.Unmarshal(data, &body); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	all = map[string]failing{}
	for _, f := range body.Failing {
		all[f.Name] = f
	}
	return resp.StatusCode, all
}

// soon waits until ok and says how long that took.
func soon(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	until(t, what, ok)
	if took := time.Since(began); took > most {
		t.Errorf("%s: took %v, want %v at most", what, took, most)
	}
}

// alerts counts the lines about a condition in one phase.
func (c *child) alerts(name, phase string) int {
	return len(regexp.MustCompile(`(?m)^.*alert=`+phase+` name=`+name+` .*$`).FindAllString(c.log(), -1))
}

var messageOf = regexp.MustCompile(`time=(\S+) level=(?:INFO|WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)(?:.* key=(\S+))?`)

// calm fails the test if a process wrote a message twice within a second.
func (c *child) calm() {
	c.t.Helper()
	last := map[string]time.Time{}
	for line := range strings.Lines(c.log()) {
		m := messageOf.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			c.t.Fatal(err)
		}
		key := m[2] + m[3]
		if before, ok := last[key]; ok && at.Sub(before) < 990*time.Millisecond {
			c.t.Errorf("%v after the last one: %s", at.Sub(before), line)
		}
		last[key] = at
	}
}

// args are those of a node on the ground.
func (g *ground) args(name string, more ...string) []string {
	return append([]string{"serve", "--node-name", name, "--nats-url", g.nats.ClientURL(), "--database-url", g.db,
		"--http-addr", "127.0.0.1:0", "--partitions", "8", "--lease", "1s", "--scan-interval", "100ms", "--drain", "2s"}, more...)
}

// serve starts a node on the ground.
func (g *ground) serve(t *testing.T, name string, more ...string) *child {
	t.Helper()
	return start(t, g.args(name, more...)...)
}

// TestDatabaseAwayIsTold: with the database away a node is soon not ready, says so once and says so again when it is
// over; no try is a line.
//
// covers: B13
func TestDatabaseAwayIsTold(t *testing.T) {
	t.Parallel()
	g := newOwnGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	if err := g.pg.Crash(); err != nil {
		t.Fatal(err)
	}
	soon(t, 12*time.Second, "not ready", func() bool {
		code, all := readiness(t, at)
		f, ok := all["database"]
		return code == 503 && ok && f.What == "the database cannot be reached" && f.Error != "" && f.For != ""
	})
	until(t, "the database is told to be away", func() bool { return n.alerts("database", "begin") == 1 })
	if err := g.pg.Restart(); err != nil {
		t.Fatal(err)
	}
	soon(t, 20*time.Second, "ready again", func() bool { code, _ := readiness(t, at); return code == 200 })
	until(t, "the database is told to be back", func() bool { return n.alerts("database", "end") == 1 })
	if n.alerts("database", "begin") != 1 {
		t.Error("it was told twice")
	}
	n.calm()
}

// TestNATSAwayIsTold: the same with NATS, for a node that ingests at once.
//
// covers: B13
func TestNATSAwayIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	dir := t.TempDir()
	server, err := natsserver.Start(natsserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.nats.Shutdown() }) // one that runs no longer is fine
	if err := g.nats.Shutdown(); err != nil {
		t.Fatal(err)
	}
	g.nats = server
	u, err := url.Parse(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	n := g.serve(t, "n")
	at := n.ready()
	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	soon(t, 4*time.Second, "not ready", func() bool {
		code, all := readiness(t, at)
		_, ok := all["nats"]
		return code == 503 && ok
	})
	until(t, "NATS is told to be away", func() bool { return n.alerts("nats", "begin") == 1 })
	if g.nats, err = natsserver.Start(natsserver.Options{Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	soon(t, 20*time.Second, "ready again", func() bool { code, _ := readiness(t, at); return code == 200 })
	until(t, "NATS is told to be back", func() bool { return n.alerts("nats", "end") == 1 })
	n.calm()
}

// TestDeadNodeIsTold: after the death of a node the one that is left says that it is gone and which partitions it took
// over, each in one line; and a node without a scheduler beside it is not ready while partitions have no owner, and
// while no supervisor leads.
//
// covers: B13
func TestDeadNodeIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	doors := g.serve(t, "doors", "--roles", "ingest")
	one, two := mortal(t, g.args("one", "--roles", "scheduler,supervisor")...), mortal(t, g.args("two", "--roles", "scheduler,supervisor")...)
	at := doors.ready()
	one.ready()
	two.ready()
	// Both own some before one dies.
	until(t, "both have taken partitions over", func() bool {
		return strings.Contains(one.log(), `msg="partitions taken over"`) && strings.Contains(two.log(), `msg="partitions taken over"`)
	})
	two.kill()
	until(t, "the death is told", func() bool { return strings.Contains(one.log(), `msg="nodes are gone" node=one gone=two live=one`) })
	// What it had not taken yet has no former owner.
	told := regexp.MustCompile(`from=(none,)?two\b`)
	until(t, "the takeover is told", func() bool { return told.MatchString(one.log()) })
	if n := len(told.FindAllString(one.log(), -1)); n != 1 {
		t.Errorf("%d lines about the takeover, want one", n)
	}
	if code, all := readiness(t, at); code != 200 {
		t.Errorf("not ready though one node took all over: %v", all)
	}
	one.calm()
	one.kill()
	soon(t, 16*time.Second, "not ready without owners", func() bool {
		code, all := readiness(t, at)
		return code == 503 && strings.HasPrefix(all["partitions"].Error, "8 of 8 partitions: 0 has the owner one, which is not live")
	})
	until(t, "it is told", func() bool { return doors.alerts("partitions", "begin") == 1 })
	g.serve(t, "three", "--roles", "scheduler").ready()
	soon(t, 10*time.Second, "ready again", func() bool { code, _ := readiness(t, at); return code == 200 })
	until(t, "it is told to be over", func() bool { return doors.alerts("partitions", "end") == 1 })
	doors.calm()
}

// TestSecondOfANameDoesNotStart: while a node lives no other of its name starts; one that died gives its name to the
// next life after its lease.
//
// covers: A9
func TestSecondOfANameDoesNotStart(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	first := mortal(t, g.args("same")...)
	first.ready()
	until(t, "it takes its partitions over", func() bool { return strings.Contains(first.log(), "partitions taken over") })
	second := g.serve(t, "same")
	select {
	case <-second.done:
	case <-time.After(patience):
		t.Fatal("the second of the name goes on")
	}
	want := regexp.MustCompile(`node-name: another live process has it: "same", since 20\d\d-\d\d-\d\dT`)
	if second.code == 0 || !want.MatchString(second.log()) {
		t.Errorf("exit %d, want an error that matches %s:\n%s", second.code, want, second.log())
	}
	if strings.Contains(second.log(), "partitions taken over") {
		t.Error("it took partitions over before it refused")
	}
	if strings.Contains(first.log(), "from=same") {
		t.Error("the first had to take partitions over again")
	}
	first.kill()
	again := g.serve(t, "same")
	again.ready()
	until(t, "its next life takes the partitions over", func() bool { return strings.Contains(again.log(), "partitions taken over") })
	if code := again.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// copyOf is a database of the same installation, as a copy has it.
func (g *ground) copyOf(t *testing.T) string {
	t.Helper()
	to := pgtestdb.Migrated(t)
	var id string
	for _, c := range []struct {
		url string
		do  func(*pgx.Conn) error
	}{
		{g.db, func(conn *pgx.Conn) error {
			return conn.QueryRow(t.Context(), `SELECT id FROM installation`).Scan(&id)
		}},
		{to, func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), `UPDATE installation SET id = $1`, id)
			return err
		}},
	} {
		conn, err := pgx.Connect(t.Context(), c.url)
		if err != nil {
			t.Fatal(err)
		}
		err = c.do(conn)
		conn.Close(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestDatabaseAndNATSBelongTogether: a node that shares only one of the two with a live one does not start, a copy of the
// database included.
//
// covers: A8
func TestDatabaseAndNATSBelongTogether(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	copied := g.copyOf(t)
	other := natstest.Start(t, natsserver.Options{})
	first := g.serve(t, "first")
	at := first.ready()
	for _, c := range []struct{ nats, db, want string }{
		{other.ClientURL(), g.db, "the database is in use through another NATS, by node first (" + g.nats.ClientURL() + ")"},
		{g.nats.ClientURL(), copied, "this NATS is in use with another database, a copy of this one, by node first"},
	} {
		second := g.serve(t, "second", "--nats-url", c.nats, "--database-url", c.db)
		select {
		case <-second.done:
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
		if log := second.log(); second.code == 0 || !strings.Contains(log, c.want) || strings.Contains(log, "partitions taken over") {
			t.Errorf("exit %d, want an error with %q:\n%s", second.code, c.want, log)
		}
	}
	if code, _ := readiness(t, at); code != 200 {
		t.Error("the first is not ready any more")
	}
	if again := regexp.MustCompile(`msg="partitions taken over".* from=(none,)?(first|second)`).FindString(first.log()); again != "" {
		t.Errorf("the first took partitions over again: %s", again)
	}
}

// TestWebPagesAreKeptOut: a served node on a loopback address takes neither another host's name nor what a page may send
// unasked.
//
// covers: C10
func TestWebPagesAreKeptOut(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	n := g.serve(t, "n")
	at := n.ready()
	for _, tt := range []struct {
		method, path, host, contentType string
		want                            int
	}{
		{"GET", "/readyz", "", "", 200},
		{"GET", "/readyz", "evil.example", "", 421},
		{"GET", "/v1/counts", "evil.example:7310", "", 421},
		{"PUT", "/v1/tasks/a/b", "", "text/plain", 415},
		{"POST", "/v1/tasks/a", "", "", 415},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, at+tt.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if tt.host != "" {
			req.Host = tt.host
		}
		req.Header.Set("Content-Type", tt.contentType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%s: %d, want %d", fmt.Sprint(tt), resp.StatusCode, tt.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
