package dev_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const abusePlan = `{"name":"good","version":1,"steps":[{"name":"only","agent":"good.only","undoable":false,"complete_by_ms":60000,"backoff_ms":20}]}`

// hostile are names that are none: for ids and types.
var hostile = []string{
	".", "..", "../../etc/passwd", "*", ">", "a.*", "a.>", "a b", " ", "a\tb", "a\x00b", "a\nb", "a\r\nPUB duly.do.good.only 2\r\n{}\r\n", "\xff\xfe", "é", "日本", "%2e%2e",
	"$JS", "$SYS.REQ", "a/b", "';DROP TABLE tasks;--", strings.Repeat("x", 65), strings.Repeat("x", 4000), strings.Repeat("a.", 1000) + "a",
}

// raw is a connection to NATS that writes whatever bytes it is given: the client
// library refuses most of what is tried here.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialRaw(t *testing.T, w *world) *raw {
	t.Helper()
	u, err := url.Parse(w.sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	r := &raw{t, conn, bufio.NewReader(conn)}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if line, err := r.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
		t.Fatalf("greeting %q, %v", line, err)
	}
	r.write(`CONNECT {"verbose":false,"headers":true,"no_responders":true}` + "\r\n")
	return r
}

// write writes; a server that has closed the connection is fine.
func (r *raw) write(s string) { _, _ = r.conn.Write([]byte(s)) }

// settled waits until the server has read what was written, or hung up.
func (r *raw) settled() {
	r.t.Helper()
	r.write("PING\r\n")
	for {
		line, err := r.in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "PONG") {
			return
		}
	}
}

// good runs a task to its end: nothing that came before has hurt.
func (w *world) good(id string) {
	w.t.Helper()
	w.accepted("good", id, `{}`, nil)
	w.ends("good", id, "processed")
}

// TestHostileNames puts names that are none to every door, as bytes of the
// protocol. None becomes a task, none leads anywhere, and the system goes on.
//
// covers: E22
func TestHostileNames(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	asked := make(chan *nats.Msg, 1000)
	w.agent("good.only", func(m *nats.Msg) { asked <- m; answers(`{}`)(m) }, nil)
	for i, name := range hostile {
		for _, subject := range []string{"duly.submit.good." + name, "duly.submit." + name + ".x", "duly.in.good." + name, "duly.in." + name + ".x", "duly.ask." + name} {
			r := dialRaw(t, w)
			r.write(fmt.Sprintf("SUB _INBOX.raw%d 1\r\nPUB %s _INBOX.raw%d 2\r\n{}\r\n", i, subject, i))
			r.settled()
		}
		// The server's library cleans a path of dots with a redirect.
		if code, body := w.http("PUT", "/v1/tasks/good/"+url.PathEscape(name), "{}", nil); code < 300 || code > 499 {
			t.Errorf("PUT of id %.40q: %d %s", name, code, body)
		}
		if code, body := w.http("GET", "/v1/tasks?after="+url.QueryEscape(name), "", nil); code != 400 {
			t.Errorf("list after %.40q: %d %s", name, code, body)
		}
	}
	w.good("after")
	if n := len(asked); n != 1 {
		t.Errorf("the agent was asked %d times, want once", n)
	}
	_, body := w.http("GET", "/v1/tasks?type=good", "", nil)
	if strings.Count(body, `"id":`) != 1 {
		t.Errorf("some became tasks: %.2000s", body)
	}
}

// TestReplySubjectsOfOthers: requests and reply-to headers that point at
// commands, controls and the server's own subjects bring nothing there.
//
// covers: E23, inv12
func TestReplySubjectsOfOthers(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	w.agent("good.only", answers(`{}`), nil)
	targets := []string{"duly.do.victim", "duly.undo.victim", "duly.batch.do.victim", "duly.control.0", "$JS.API.STREAM.PURGE.DULY_TASKS", "$KV.DULY_KEYS.replies"}
	other, err := nats.Connect(w.sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	heard := make(chan *nats.Msg, 100)
	for _, subject := range targets {
		if _, err := other.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, target := range targets {
		id := fmt.Sprintf("r%d", i)
		for _, x := range []struct{ subject, data string }{
			{"duly.submit.good." + id, `{}`}, {"duly.submit.nosuch." + id, `{}`}, {"duly.ask.cancel", `{"v":1,"kind":"cancel","type":"good","id":"` + id + `"}`},
			{"duly.ask.undo", "no"}, {"duly.plans.apply", "no"},
		} {
			if err := w.nc.PublishRequest(x.subject, target, []byte(x.data)); err != nil {
				t.Fatal(err)
			}
		}
		w.until(id+" is there", func() bool { v, ok := w.task("good", id); return ok && v.State != "processing" && v.State != "pending" })
		plain := nats.NewMsg("duly.in.good.p" + id)
		plain.Data = []byte(`{}`)
		plain.Header.Set("Duly-Reply-To", target)
		if _, err := w.js.PublishMsg(plain); err != nil {
			t.Fatal(err)
		}
	}
	w.good("after")
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	for len(heard) > 0 {
		m := <-heard
		if m.Subject == "duly.control.0" && strings.Contains(string(m.Data), `"kind":"cancel"`) {
			continue // what was asked for above, stored for its owner
		}
		t.Errorf("Duly published to %s: %.200s", m.Subject, m.Data)
	}
	if info, err := w.js.StreamInfo("DULY_TASKS"); err != nil || info.State.Msgs < uint64(2*len(targets)) {
		t.Errorf("the stream was touched: %+v, %v", info, err)
	}
}

// TestForgedReply: an agent answers for the step of another, with the numbers
// right and the mark of its own command. Only the one that was asked counts.
//
// covers: E24
func TestForgedReply(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	held := make(chan *nats.Msg, 2)
	w.agent("good.only", func(m *nats.Msg) { held <- m }, nil)
	for round, forge := range []func(own, victim string) string{
		func(_, victim string) string { return victim[:strings.LastIndexByte(victim, '.')] },
		func(own, victim string) string {
			return victim[:strings.LastIndexByte(victim, '.')] + own[strings.LastIndexByte(own, '.'):]
		},
		func(_, victim string) string {
			return victim[:strings.LastIndexByte(victim, '.')+1] + strings.Repeat("0", 16)
		},
	} {
		var pair [2]*nats.Msg
		for i := range pair {
			w.accepted("good", fmt.Sprintf("f%d-%d", round, i), `{}`, nil)
			select {
			case pair[i] = <-held:
			case <-time.After(patience):
				t.Fatal("no command came")
			}
		}
		own, victim := pair[0], pair[1]
		if n := strings.Count(victim.Reply, "."); n != 5 {
			t.Fatalf("reply subject %s has no mark", victim.Reply)
		}
		for _, m := range []*nats.Msg{{Data: []byte(`{"forged":true}`)}, {Header: nats.Header{"Status": {"503"}}}, {Header: nats.Header{"Nats-Service-Error-Code": {"422"}, "Nats-Service-Error": {"forged"}}}} {
			m.Subject = forge(own.Reply, victim.Reply)
			if err := w.nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		answers(`{"own":true}`)(own)
		v := w.ends("good", fmt.Sprintf("f%d-0", round), "processed") // what was sent before it has been read
		if string(v.Steps[0].Result) != `{"own":true}` {
			t.Errorf("result %s", v.Steps[0].Result)
		}
		if v, _ := w.task("good", fmt.Sprintf("f%d-1", round)); v.State != "processing" || v.Steps[0].Attempt != 1 {
			t.Errorf("round %d: after the forgery the task is %+v", round, v)
		}
		answers(`{"real":true}`)(victim)
		if v := w.ends("good", fmt.Sprintf("f%d-1", round), "processed"); string(v.Steps[0].Result) != `{"real":true}` {
			t.Errorf("round %d: result %s", round, v.Steps[0].Result)
		}
	}
}
