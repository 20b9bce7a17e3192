package dev_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire/wiretest"
)

// script is a running system, and the golden messages that are played against it: nothing but NATS is used.
type script struct {
	*world
	files map[string]*wiretest.Message
}

// TestProtocolIsKept plays the golden messages of a submitter and of an agent against Duly. It is answered as the golden
// answers are, and what it says has the members that the golden messages have, no more and no less.
func TestProtocolIsKept(t *testing.T) {
	s := &script{world: start(t)}
	var err error
	if s.files, err = wiretest.Read("../testdata/protocol"); err != nil {
		t.Fatal(err)
	}
	t.Run("plans", func(t *testing.T) { s.of(t).plans() })
	said := s.agents()
	statuses := s.hear(s.files["submit-headers"].Headers["Duly-Reply-To"])
	t.Run("a task is done and undone", func(t *testing.T) { s.of(t).doneAndUndone(said) })
	t.Run("a task is refused", func(t *testing.T) { s.of(t).refused(said) })
	t.Run("statuses", func(t *testing.T) { s.of(t).statuses(statuses) })
	t.Run("what is wrong", func(t *testing.T) { s.of(t).wrong() })
	t.Run("reading", func(t *testing.T) { s.of(t).reading() })
}

// of is the script as a subtest sees it.
func (s *script) of(t *testing.T) *script { return &script{s.in(t), s.files} }

// send sends a golden message, changed by pairs of old and new, and returns the answer.
func (s *script) send(name string, changes ...string) []byte {
	s.t.Helper()
	m := s.files[name]
	data, err := m.Data()
	if err != nil {
		s.t.Fatal(err)
	}
	change := strings.NewReplacer(changes...)
	msg := &nats.Msg{Subject: change.Replace(m.Subject), Data: []byte(change.Replace(string(data))), Header: nats.Header{}}
	for header, value := range m.Headers {
		msg.Header.Set(header, value)
	}
	answer, err := s.nc.RequestMsg(msg, patience)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return answer.Data
}

// members are the names in a JSON object, and in the objects of its members error and events.
func (s *script) members(data []byte) []string {
	s.t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		s.t.Fatalf("%q: %v", data, err)
	}
	names := slices.Collect(maps.Keys(object))
	if inner := object["error"]; len(inner) > 0 && inner[0] == '{' {
		for _, name := range s.members(inner) {
			names = append(names, "error."+name)
		}
	}
	var events []json.RawMessage
	if err := json.Unmarshal(object["events"], &events); err == nil {
		for _, name := range s.members(events[0]) {
			names = append(names, "events."+name)
		}
	}
	slices.Sort(names)
	return names
}

// like wants a message to have the members of a golden one, but those in less.
func (s *script) like(name string, data []byte, less ...string) {
	s.t.Helper()
	want := slices.DeleteFunc(s.members(s.files[name].Payload), func(member string) bool { return slices.Contains(less, member) })
	if got := s.members(data); !slices.Equal(got, want) {
		s.t.Errorf("%s has the members\n%v\nwant\n%v\nin %s", name, got, want, data)
	}
}

// fails wants an answer to be an error with these numbers.
func (s *script) fails(name string, answer []byte, code, errCode int) {
	s.t.Helper()
	var got struct {
		Error *struct {
			Code    int
			ErrCode int `json:"err_code"`
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Error == nil || got.Error.Code != code || got.Error.ErrCode != errCode {
		s.t.Errorf("%s is answered %s, want code %d and err_code %d: %v", name, answer, code, errCode, err)
	}
}

func (s *script) plans() {
	if answer := s.send("plan-apply"); string(answer) != string(s.files["plan-applied"].Payload) {
		s.t.Errorf("plan-apply is answered %s", answer)
	}
	if answer := s.send("plan-apply"); string(answer) != string(s.files["plan-applied"].Payload) {
		s.t.Errorf("plan-apply again is answered %s", answer)
	}
	s.like("plan-refused", s.send("plan-other"))
}

// said is what comes to the agents of the golden plan, by the name of the golden message that it is like.
type said map[string]chan *nats.Msg

var replySubject = regexp.MustCompile(`^duly\.reply\.\d+\.\d+\.\d+\.[0-9a-f]{24}$`)

// agents answer as the golden replies do: an order of 1 cent is refused.
func (s *script) agents() said {
	heard := said{"do": make(chan *nats.Msg, 16), "undo": make(chan *nats.Msg, 16)}
	respond := func(m *nats.Msg, name string) {
		reply := s.files[name]
		answer := nats.NewMsg(m.Reply)
		answer.Data = reply.Payload
		for header, value := range reply.Headers {
			answer.Header.Set(header, value)
		}
		if err := m.RespondMsg(answer); err != nil {
			s.t.Error(err)
		}
	}
	s.agent("credit.check", answers(`{"Points":700}`), nil)
	s.agent("payment.charge", func(m *nats.Msg) {
		heard["do"] <- m
		if strings.Contains(string(m.Data), `"input":{"Cents":1}`) {
			respond(m, "reply-refused")
			return
		}
		respond(m, "reply-instance")
	}, func(m *nats.Msg) {
		heard["undo"] <- m
		respond(m, "reply-undone")
	})
	return heard
}

// command takes the next message to an agent and holds it to the golden one.
func (s *script) command(heard said, name string) {
	s.t.Helper()
	m := next(s, heard[name])
	s.like(name, m.Data)
	if m.Subject != s.files[name].Subject || !replySubject.MatchString(m.Reply) || !replySubject.MatchString(s.files[name].Reply) {
		s.t.Errorf("%s comes on %s, to be answered at %s", name, m.Subject, m.Reply)
	}
}

// next takes what comes next.
func next[T any](s *script, from <-chan T) (v T) {
	s.t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		s.t.Fatal("nothing came")
	}
	return v
}

// hear subscribes to a subject.
func (s *script) hear(subject string) <-chan *nats.Msg {
	s.t.Helper()
	heard := make(chan *nats.Msg, 64)
	if _, err := s.nc.ChanSubscribe(subject, heard); err != nil {
		s.t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		s.t.Fatal(err)
	}
	return heard
}

func (s *script) doneAndUndone(heard said) {
	processed, undone := s.hear("duly.events.order.processed"), s.hear("duly.events.order.undone")
	s.like("submit-accepted", s.send("submit"))
	s.command(heard, "do")
	if v := s.ends("order", "order-17", "processed"); string(v.Steps[1].Result) != string(s.files["reply"].Payload) {
		s.t.Errorf("steps %+v", v.Steps)
	}
	s.like("events-processed", next(s, processed).Data)
	s.fails("ask-cancel", s.send("ask-cancel"), 409, 7047)
	s.fails("ask-undo", s.send("ask-undo", `"if_seq":12`, `"if_seq":99`), 409, 7047)
	s.like("ask-accepted", s.send("ask-undo", `,"if_seq":12`, ``))
	s.command(heard, "undo")
	s.like("event-undone", next(s, undone).Data, "labels", "step")
}

func (s *script) refused(heard said) {
	undone := s.hear("duly.events.order.undone")
	s.like("submit-accepted", s.send("submit", "order-17", "order-30", "1999", "1"))
	s.command(heard, "do")
	v := s.ends("order", "order-30", "undone")
	if v.Steps[1].Code != 422 || v.Steps[1].Error != s.files["reply-refused"].Headers["Nats-Service-Error"] {
		s.t.Errorf("steps %+v", v.Steps)
	}
	s.like("event-undone", next(s, undone).Data, "labels")
	if len(heard["undo"]) > 0 {
		s.t.Error("a step that was refused for good is undone")
	}
}

// statuses submits with every header: the task begins in an hour, and is cancelled.
func (s *script) statuses(heard <-chan *nats.Msg) {
	s.like("submit-accepted", s.send("submit-headers"))
	s.like("status-received", next(s, heard).Data)
	s.like("ask-accepted", s.send("ask-cancel", "order-17", "order-18"))
	s.like("status-undone", next(s, heard).Data)
	refused := s.hear("duly.events.order.refused")
	to := s.files["submit-headers"].Headers["Duly-Reply-To"]
	m := s.files["submit-stream"]
	stream := strings.Replace(m.Subject, "order-17", "order-18", 1)
	if _, err := s.js.PublishMsg(&nats.Msg{Subject: stream, Data: []byte(`{"Cents":5}`), Header: nats.Header{"Duly-Reply-To": {to}}}); err != nil {
		s.t.Fatal(err)
	}
	s.like("event-refused", next(s, refused).Data)
	s.like("status-refused", next(s, heard).Data)
	// What is refused for its form is told as an event alone (Q10): a status comes of what follows it.
	bad := &nats.Msg{Subject: stream, Data: []byte(`{"Cents":`), Header: nats.Header{"Duly-Reply-To": {to}}}
	if _, err := s.js.PublishMsg(bad); err != nil {
		s.t.Fatal(err)
	}
	s.like("event-refused", next(s, refused).Data)
	s.like("submit-accepted", s.send("submit-headers"))
	s.like("status-undone", next(s, heard).Data) // how its task has ended
}

// wrong sends every message of a submitter that is to be refused.
func (s *script) wrong() {
	for _, name := range wiretest.Names(s.files) {
		m := s.files[name]
		if m.From != "submitter" || m.Refused == nil {
			continue
		}
		answer := s.send(name)
		s.fails(name, answer, m.Refused.Code, m.Refused.ErrCode)
		if strings.HasPrefix(name, "submit-") {
			s.like("submit-refused", answer)
		}
	}
	s.fails("ask-cancel", s.send("ask-cancel", "order-17", "order-99"), 404, 7041)
	s.fails("get", s.send("get", "order-17", "order-99"), 404, 7041)
}

func (s *script) reading() {
	var task, page map[string]json.RawMessage
	if err := json.Unmarshal(s.send("get", "order-17", "order-30"), &task); err != nil {
		s.t.Fatal(err)
	}
	for name := range s.have("task") {
		if _, has := task[name]; !has {
			s.t.Errorf("a task has no %s", name)
		}
	}
	if err := json.Unmarshal(s.send("list", `"state":"error","label":"tenant=acme","limit":50,"after":"c-1"`, `"limit":1`), &page); err != nil {
		s.t.Fatal(err)
	}
	for name := range s.have("page") {
		if _, has := page[name]; !has {
			s.t.Errorf("a page has no %s", name)
		}
	}
}

// have are the members of a golden message.
func (s *script) have(name string) map[string]json.RawMessage {
	s.t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(s.files[name].Payload, &members); err != nil {
		s.t.Fatal(err)
	}
	return members
}
