package dev_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// inputMax is what the test's plan allows, so that limits are cheap to pass.
const inputMax = 1000

var badPlan = fmt.Sprintf(`{"name":"good","version":1,"input_max":%d,"steps":[{"name":"only","agent":"good.only","undoable":false,"backoff_ms":20}]}`, inputMax)

// sized is JSON of exactly n bytes.
func sized(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }

// badCase is one submission that must be refused, at all doors alike.
type badCase struct {
	name, taskType, id, input string
	completeBy, replyTo       string
	startAt                   string
	version                   string
	code                      int      // as HTTP's
	want                      []string // parts of the text: field, value, limit
	notPlain                  bool     // it is none at that door
}

var badCases = []badCase{
	{name: "unknown type", taskType: "nosuch", id: "b1", input: `{}`, code: 404, want: []string{"type", "nosuch"}, notPlain: true},
	{name: "malformed", taskType: "good", id: "b2", input: `{"a":`, code: 400, want: []string{"input", "JSON"}},
	{name: "empty", taskType: "good", id: "b3", input: ``, code: 400, want: []string{"input", "JSON"}},
	{name: "id outside the alphabet", taskType: "good", id: "b%4", input: `{}`, code: 400, want: []string{"id", "b%4"}},
	{name: "id too long", taskType: "good", id: strings.Repeat("x", 65), input: `{}`, code: 400, want: []string{"id", "xxx", "64"}},
	{name: "type outside the alphabet", taskType: "go+od", id: "b6", input: `{}`, code: 400, want: []string{"type", "go+od"}},
	{name: "over the plan's limit", taskType: "good", id: "b7", input: sized(inputMax + 1), code: 413, want: []string{"input", "1001", "1000"}},
	{name: "over every limit", taskType: "good", id: "b8", input: sized(256<<10 + 1), code: 413, want: []string{"input", "262145"}},
	{name: "complete-by in the past", taskType: "good", id: "b9", input: `{}`, completeBy: "2001-02-03T04:05:06Z", code: 400, want: []string{"complete-by", "2001-02-03T04:05:06Z"}},
	{name: "complete-by below zero", taskType: "good", id: "b10", input: `{}`, completeBy: "-5s", code: 400, want: []string{"complete-by", "-5s"}},
	{name: "complete-by of no form", taskType: "good", id: "b11", input: `{}`, completeBy: "soon", code: 400, want: []string{"complete-by", "soon", "RFC 3339"}},
	{name: "complete-by beyond a year", taskType: "good", id: "b12", input: `{}`, completeBy: "90000h", code: 400, want: []string{"complete-by", "90000h", "8760h"}},
	{name: "start-at below zero", taskType: "good", id: "b22", input: `{}`, startAt: "-5s", code: 400, want: []string{"start-at", "-5s", "RFC 3339"}},
	{name: "start-at of no form", taskType: "good", id: "b23", input: `{}`, startAt: "5", code: 400, want: []string{"start-at", `"5"`, "RFC 3339"}},
	{name: "start-at beyond a year", taskType: "good", id: "b24", input: `{}`, startAt: "90000h", code: 400, want: []string{"start-at", "90000h", "8760h"}},
	{name: "start-at after complete-by", taskType: "good", id: "b25", input: `{}`, startAt: "2h", completeBy: "1h", code: 400, want: []string{"start-at", "2h", "complete-by"}},
	{name: "reply-to of ours", taskType: "good", id: "b13", input: `{}`, replyTo: "duly.do.good.only", code: 400, want: []string{"reply", "duly.do.good.only"}},
	{name: "reply-to of the server's", taskType: "good", id: "b14", input: `{}`, replyTo: "$JS.API.STREAM.PURGE.DULY_TASKS", code: 400, want: []string{"reply", "$JS.API"}},
	{name: "reply-to elsewhere", taskType: "good", id: "b15", input: `{}`, replyTo: "orders.new", code: 400, want: []string{"reply", "orders.new", "_INBOX."}},
	{name: "reply-to not configured", taskType: "good", id: "b18", input: `{}`, replyTo: "status.me", code: 400, want: []string{"reply", "status.me", "_INBOX."}},
	{name: "reply-to another inbox", taskType: "good", id: "b19", input: `{}`, replyTo: "_INBOX_other.me", code: 400, want: []string{"reply", "_INBOX_other.me", "_INBOX_shop."}},
	{name: "version not applied", taskType: "good", id: "b20", input: `{}`, version: "7", code: 404, want: []string{"good", "version 7"}},
	{name: "version of no form", taskType: "good", id: "b21", input: `{}`, version: "latest", code: 400, want: []string{"version", "latest"}},
	{name: "NUL escaped", taskType: "good", id: "b16", input: `{"a":"x\u0000y"}`, code: 400, want: []string{"input", "NUL", "byte 8"}},
	{name: "NUL as a byte", taskType: "good", id: "b17", input: "{\"a\":\"x\x00y\"}", code: 400, want: []string{"input"}},
}

// TestBadInput puts everything wrong to every door: each answer names what is
// wrong with what, nothing stops, and a good task runs afterwards.
//
// covers: E17, E21, I17, G7
func TestBadInput(t *testing.T) {
	w := start(t)
	w.plan(badPlan)
	w.agent("good.only", answers(`{}`), nil)
	refused := make(chan *nats.Msg, 1000)
	if _, err := w.nc.ChanSubscribe("duly.events.*.refused", refused); err != nil {
		t.Fatal(err)
	}
	for _, c := range badCases {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			c.fast(t, w)
			c.http(t, w)
			c.plain(t, w, refused)
		})
	}
	if code, body := w.http("GET", "/v1/tasks", "", nil); code != 200 || !strings.Contains(body, `"tasks":[]`) {
		t.Errorf("some became tasks all the same: %d %s", code, body)
	}
	t.Run("unknown type through the plain door", func(t *testing.T) { plainUnknown(t, w.in(t)) })
	t.Run("header that is not to be taken", func(t *testing.T) { badHeaders(t, w.in(t), refused) })
	t.Run("start-at in the past", func(t *testing.T) {
		w := w.in(t)
		w.accepted("good", "past", `{}`, nats.Header{"Duly-Start-At": {"2001-02-03T04:05:06Z"}})
		w.ends("good", "past", "processed")
	})
	t.Run("at the limit", func(t *testing.T) {
		w := w.in(t)
		w.accepted("good", "limit", sized(inputMax), nil)
		w.ends("good", "limit", "processed")
	})
	t.Run("same id, another input", func(t *testing.T) { otherInput(t, w.in(t), refused) })
	t.Run("reply-to as configured", func(t *testing.T) { replyToConfigured(t, w.in(t)) })
	t.Run("good", func(t *testing.T) {
		w := w.in(t)
		w.accepted("good", "last", `{}`, nil)
		w.ends("good", "last", "processed")
	})
}

// replyToConfigured has the status subjects that this world's configuration allows told,
// at each door.
func replyToConfigured(t *testing.T, w *world) {
	for i, subject := range []string{"shop.orders", "_INBOX_shop.me.1", "_INBOX.me.1"} {
		heard, err := w.nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		header := nats.Header{"Duly-Reply-To": {subject}}
		w.accepted("good", fmt.Sprintf("told-fast-%d", i), `{}`, header)
		plain := &nats.Msg{Subject: fmt.Sprintf("duly.in.good.told-plain-%d", i), Header: header, Data: []byte(`{}`)}
		if _, err := w.js.PublishMsg(plain); err != nil {
			t.Fatal(err)
		}
		ended := map[string]bool{}
		for len(ended) < 2 {
			m, err := heard.NextMsg(patience)
			if err != nil {
				t.Fatalf("%s: %v after %v", subject, err, ended)
			}
			var status struct{ Task, ID, Status string }
			if err := json.Unmarshal(m.Data, &status); err != nil {
				t.Fatal(err)
			}
			if status.Status == "processed" {
				ended[status.Task+status.ID] = true
			}
		}
	}
}

func (c *badCase) headers() map[string]string {
	h := map[string]string{}
	if c.completeBy != "" {
		h["Duly-Complete-By"] = c.completeBy
	}
	if c.startAt != "" {
		h["Duly-Start-At"] = c.startAt
	}
	if c.replyTo != "" {
		h["Duly-Reply-To"] = c.replyTo
	}
	if c.version != "" {
		h["Duly-Plan-Version"] = c.version
	}
	return h
}

func (c *badCase) message(door string) *nats.Msg {
	msg := nats.NewMsg("duly." + door + "." + c.taskType + "." + c.id)
	msg.Data = []byte(c.input)
	for k, v := range c.headers() {
		msg.Header.Set(k, v)
	}
	return msg
}

// says fails unless the text names all that it must.
func (c *badCase) says(t *testing.T, door, text string) {
	t.Helper()
	for _, want := range c.want {
		if !strings.Contains(text, want) {
			t.Errorf("%s door does not name %q: %.300s", door, want, text)
		}
	}
}

func (c *badCase) fast(t *testing.T, w *world) {
	t.Helper()
	msg, err := w.nc.RequestMsg(c.message("submit"), patience)
	if err != nil {
		t.Errorf("fast door: %v", err)
		return
	}
	var answer struct {
		Error *struct {
			Code        int
			Description string
		}
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil || answer.Error == nil {
		t.Errorf("fast door: %s", msg.Data)
		return
	}
	if answer.Error.Code != c.code {
		t.Errorf("fast door: code %d, want %d", answer.Error.Code, c.code)
	}
	c.says(t, "fast", answer.Error.Description)
}

func (c *badCase) http(t *testing.T, w *world) {
	t.Helper()
	code, body := w.http("PUT", "/v1/tasks/"+url.PathEscape(c.taskType)+"/"+url.PathEscape(c.id), c.input, c.headers())
	var problem struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil || code != c.code || problem.Status != c.code {
		t.Errorf("http: %d, want %d: %s", code, c.code, body)
	}
	c.says(t, "http", problem.Detail)
}

// plain publishes to the stream, which takes everything; what is wrong is told
// as a refused event, by the task's owner.
func (c *badCase) plain(t *testing.T, w *world, refused chan *nats.Msg) {
	t.Helper()
	if c.notPlain {
		return
	}
	if _, err := w.js.PublishMsg(c.message("in")); err != nil {
		t.Errorf("plain door: %v", err)
		return
	}
	status := nextRefused(t, refused)
	if status.ID != c.id && !strings.HasPrefix(c.id, strings.TrimSuffix(status.ID, "…")) || status.Code != c.code {
		t.Errorf("plain door: refused %q with code %d, want %q with %d", status.ID, status.Code, c.id, c.code)
	}
	c.says(t, "plain", status.Error)
}

// refusedEvent is what the event stream tells.
type refusedEvent struct {
	ID, Type, Status, Error string
	Code                    int
}

func nextRefused(t *testing.T, refused chan *nats.Msg) (e refusedEvent) {
	t.Helper()
	select {
	case msg := <-refused:
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Status != "refused" {
			t.Errorf("event %s", msg.Data)
		}
	case <-time.After(patience):
		t.Fatal("no refused event came")
	}
	return e
}

// plainUnknown: the stream has said yes, so the task is kept, for a person.
func plainUnknown(t *testing.T, w *world) {
	if _, err := w.js.Publish("duly.in.nosuch.u1", []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	v := w.ends("nosuch", "u1", "error")
	if !strings.Contains(v.Reason, "nosuch") && !strings.Contains(v.Reason, "plan") {
		t.Errorf("nothing says why: %+v", v)
	}
}

// otherInput: the fast door and PUT refuse it at once, and the owner what came through the plain door.
func otherInput(t *testing.T, w *world, refused chan *nats.Msg) {
	w.accepted("good", "twice", `{"n":1}`, nil)
	w.ends("good", "twice", "processed")
	w.accepted("good", "twice", `{"n":1}`, nil) // the same again is fine
	if answer := w.submit("good", "twice", `{"n":2}`, nil); codeOf(answer) != 409 || !strings.Contains(answer, "another input") {
		t.Errorf("another input: %s", answer)
	}
	if _, err := w.js.Publish("duly.in.good.twice", []byte(`{"n":2}`)); err != nil {
		t.Fatal(err)
	}
	if e := nextRefused(t, refused); e.ID != "twice" || e.Code != 409 || !strings.Contains(e.Error, "input") {
		t.Errorf("event %+v", e)
	}
	if code, body := w.http("PUT", "/v1/tasks/good/twice", `{"n":3}`, nil); code != 409 || !strings.Contains(body, "another input") {
		t.Errorf("PUT with another input: %d %s", code, body)
	}
	if v, _ := w.task("good", "twice"); v.State != "processed" {
		t.Errorf("the first task is %s", v.State)
	}
}

// badHeaders puts headers to both doors on NATS that are cut, not known, or given twice, as no client library writes them.
func badHeaders(t *testing.T, w *world, refused chan *nats.Msg) {
	answers, err := w.nc.SubscribeSync("_INBOX.raw.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ header, want string }{
		"cut":     {"NATS/1.0\r\nDuly-Start-At: 2h\r\nDuly-Comp", "cannot be read"},
		"twice":   {"NATS/1.0\r\nDuly-Start-At: 1h\r\nDuly-Start-At: 2h\r\n\r\n", "given 2 times"},
		"unknown": {"NATS/1.0\r\nDuly-Startat: 1h\r\n\r\n", "Duly-Startat"},
	} {
		for _, door := range []string{"submit", "in"} {
			id := "header-" + name + "-" + door
			conn, err := net.Dial("tcp", strings.TrimPrefix(w.sys.NATSURL, "nats://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB duly.%s.good.%s _INBOX.raw.%s %d %d\r\n%s{}\r\nPING\r\n", door, id, id, len(c.header), len(c.header)+2, c.header)
			answer, err := answers.NextMsg(patience)
			conn.Close()
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			text := string(answer.Data)
			if door == "in" {
				e := nextRefused(t, refused)
				if text = e.Error; e.ID != id || e.Code != 400 {
					t.Errorf("%s: %+v", id, e)
				}
			} else if codeOf(text) != 400 {
				t.Errorf("%s: %s", id, text)
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("%s: %q does not name %q", id, text, c.want)
			}
		}
	}
}
