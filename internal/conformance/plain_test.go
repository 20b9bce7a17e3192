package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/pause"
)

// plain is an agent as docs/guide/agents-in-any-language.md has it, of nats.go alone: a store with a ledger, and a
// goroutine for each message. With a fault it is wrong in one way.
type plain struct {
	t     *testing.T
	nc    *nats.Conn
	name  string
	fault fault
	store *store

	subs    []*nats.Subscription
	work    sync.WaitGroup
	context context.Context // ends the work
	cancel  context.CancelFunc
	mu      sync.Mutex
	turn    sync.Mutex // of one that works on one command after the other
	dead    bool       // it takes messages and does nothing
}

// fault is how an agent is wrong; empty: it is not.
type fault string

const (
	doubles           fault = "a do again has one more effect"
	forgetsRounds     fault = "what is known is of the task and its step, whatever the round"
	otherResult       fault = "a do again has another result"
	races             fault = "dos at a time do not see each other"
	refusesConcurrent fault = "a do while another is at work is refused for good"
	lateDoActs        fault = "a do after its undo takes effect"
	lateDoOtherCode   fault = "a do after its undo is answered with its old result"
	undoLeaves        fault = "an undo leaves the effect"
	undoOnce          fault = "an undo again fails"
	undoOnlyKnown     fault = "an undo of a key that was never done fails"
	undoOvertakes     fault = "an undo does not wait for its do"
	largeResult       fault = "a large input makes a result over the limit"
	sendsLarge        fault = "a result over the limit is sent"
	largeSilent       fault = "a large input is not answered"
	largeAgain        fault = "a result over the limit is answered as if it could succeed later"
	diesOfGarbage     fault = "garbage ends it"
	hangsOnGarbage    fault = "garbage makes it hang"
	takesGarbage      fault = "garbage is taken for a command"
	takesNameless     fault = "a command without names is taken"
	retriesGarbage    fault = "garbage is answered as if it could succeed later"
	answersLate       fault = "a command whose time is over is answered"
	answersSlowly     fault = "an answer is sent whenever the work is done"
	answersTwice      fault = "each message is answered twice"
	strict            fault = "members that it does not know are refused"
	noGroup           fault = "it is in no queue group"
	otherGroup        fault = "it is in another queue group"
	probeSaysDone     fault = "its probe says done of everything"
	probeSaysAbsent   fault = "its probe says absent of everything"
	probeActs         fault = "its probe has an effect"
	probeOverlooks    fault = "its probe says absent of a do at work"
	probeForgets      fault = "its probe says absent of a do at work, every other time"

	oneByOne    fault = "it works on one command after the other, which is no fault"
	refusesSome fault = "some keys are refused, which is no fault"
	probeWaits  fault = "its probe waits for a do at work, which is no fault"
)

// store is what a service has: its effects, and what became of keys.
type store struct {
	mu      sync.Mutex
	keys    map[string]*entry
	effects map[string]int
	made    int // effects, ever
}

const resultMax = 64 << 10

type entry struct {
	working, done, tomb bool
	result              []byte
	asked               int // how often, while it was at work
}

func newStore() *store { return &store{keys: map[string]*entry{}, effects: map[string]int{}} }

// entry is what is known of a key. s.mu is held.
func (s *store) entry(key string) *entry {
	if s.keys[key] == nil {
		s.keys[key] = &entry{}
	}
	return s.keys[key]
}

// known is what is known of a command's key. a.store.mu is held.
func (a *plain) known(c *command) *entry {
	if a.fault == forgetsRounds {
		return a.store.entry(c.Task + "/" + c.Step)
	}
	return a.store.entry(c.Key)
}

// count is how many effects stand.
func (s *store) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[key]
}

// left is how many effects stand of all keys.
func (s *store) left() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, effects := range s.effects {
		n += effects
	}
	return n
}

// act makes one more effect. s.mu is held.
func (s *store) act(key string) []byte {
	s.made++
	s.effects[key]++
	return fmt.Appendf(nil, `{"receipt":%d}`, s.made)
}

// start runs an agent until the end of the test.
func start(t *testing.T, url, name string, f fault, s *store) *plain {
	t.Helper()
	a := &plain{t: t, nc: dial(t, url), name: name, fault: f, store: s}
	a.context, a.cancel = context.WithCancel(context.Background())
	group := "q"
	switch f {
	case noGroup:
		group = ""
	case otherGroup:
		group = "workers"
	}
	a.serve("duly.do."+name, group, func(m *nats.Msg, came time.Time) { a.take(m, came, a.do) })
	a.serve("duly.undo."+name, group, func(m *nats.Msg, came time.Time) { a.take(m, came, a.undo) })
	a.serve("duly.probe."+name, "q", func(m *nats.Msg, came time.Time) { a.take(m, came, a.probe) })
	a.serve("effects."+name, "q", func(m *nats.Msg, _ time.Time) {
		var q struct{ Key string }
		if err := json.Unmarshal(m.Data, &q); err != nil {
			t.Error(err)
		}
		a.send(m, nil, fmt.Appendf(nil, `{"effects":%d}`, s.count(q.Key)))
	})
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.stop)
	return a
}

func (a *plain) serve(subject, group string, handle func(m *nats.Msg, came time.Time)) {
	a.t.Helper()
	sub, err := a.nc.QueueSubscribe(subject, group, func(m *nats.Msg) {
		came := time.Now()
		a.work.Go(func() { handle(m, came) })
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.subs = append(a.subs, sub)
}

// stop ends the agent and its work.
func (a *plain) stop() {
	a.cancel()
	for _, sub := range a.subs {
		if sub.Drain() == nil {
			eventually(a.t, "end of a subscription", func() bool { return !sub.IsValid() })
		}
	}
	a.work.Wait()
}

// command is what it reads of a command; a strict one knows all that there is today.
type command struct {
	V          int             `json:"v"`
	Task       string          `json:"task"`
	Type       string          `json:"type"`
	Step       string          `json:"step"`
	Attempt    int             `json:"attempt"`
	Key        string          `json:"key"`
	CompleteBy time.Time       `json:"complete_by"`
	LeftMS     int64           `json:"left_ms"`
	Input      json.RawMessage `json:"input"`
	Results    json.RawMessage `json:"results"`
	Result     json.RawMessage `json:"result"`
}

// named reports whether a command is of a task, and its key is of that task and step.
func (c *command) named() bool {
	round, ok := strings.CutPrefix(c.Key, c.Task+"/"+c.Step+"/")
	_, err := strconv.ParseUint(round, 10, 31)
	return c.Task != "" && ok && err == nil
}

// take reads a message and has it worked on.
func (a *plain) take(m *nats.Msg, came time.Time, work func(*nats.Msg, *command, time.Time)) {
	if a.isDead() {
		return
	}
	if a.fault == oneByOne {
		a.turn.Lock()
		defer a.turn.Unlock()
		_ = pause.For(a.context, 5*time.Millisecond) // the end of the test ends it, too
	}
	var c command
	d := json.NewDecoder(bytes.NewReader(m.Data))
	if a.fault == strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(&c); err != nil || c.V != 1 || c.Key == "" || !c.named() && a.fault != takesNameless {
		a.garbage(m)
		return
	}
	end := came.Add(time.Duration(c.LeftMS) * time.Millisecond)
	if c.CompleteBy.Before(end) {
		end = c.CompleteBy
	}
	if time.Now().After(end) && a.fault != answersLate {
		return
	}
	work(m, &c, end)
}

// garbage answers what is no command.
func (a *plain) garbage(m *nats.Msg) {
	switch a.fault {
	case diesOfGarbage:
		a.cancel()
		for _, sub := range a.subs {
			if err := sub.Unsubscribe(); err != nil && sub.IsValid() {
				a.t.Error(err)
			}
		}
		return
	case hangsOnGarbage:
		a.mu.Lock()
		a.dead = true
		a.mu.Unlock()
		return
	case takesGarbage:
		a.answer(m, nil, time.Time{})
		return
	case retriesGarbage:
		a.fail(m, 500, time.Time{})
		return
	}
	a.fail(m, 400, time.Time{})
}

func (a *plain) isDead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}

// do has the effect made, once a key.
func (a *plain) do(m *nats.Msg, c *command, end time.Time) {
	if len(c.Input) > 256<<10 {
		switch a.fault {
		case largeResult:
			a.answer(m, c.Input, end)
		case largeSilent:
		default:
			a.fail(m, 413, end)
		}
		return
	}
	a.store.mu.Lock()
	e := a.known(c)
	switch {
	case a.fault == refusesSome && !e.tomb && fourth(c.Task), wishOf(c).Refused:
		a.unlockFail(m, 422, end)
		return
	case e.tomb && a.fault == lateDoOtherCode && e.done:
		a.unlockAnswer(m, e.result, end)
		return
	case e.tomb && a.fault != lateDoActs:
		a.unlockFail(m, 410, end)
		return
	case e.working && a.fault != races:
		a.unlockFail(m, map[bool]int{true: 409, false: 425}[a.fault == refusesConcurrent], end)
		return
	case e.done && a.fault == doubles:
		a.store.act(c.Key)
		a.unlockAnswer(m, e.result, end)
		return
	case e.done && !e.tomb && a.fault == otherResult:
		a.store.made++
		a.unlockAnswer(m, fmt.Appendf(nil, `{"receipt":%d}`, a.store.made), end)
		return
	case e.done && !e.tomb:
		a.unlockAnswer(m, e.result, end)
		return
	}
	e.working = true
	a.store.mu.Unlock()
	stopped := a.labour(c)
	a.store.mu.Lock()
	e.working = false
	if stopped {
		a.store.mu.Unlock()
		return
	}
	e.done, e.result = true, a.store.act(c.Key)
	if n := wishOf(c).ResultBytes; n > 0 {
		e.result = []byte(`"` + strings.Repeat("r", n-2) + `"`)
	}
	a.unlockAnswer(m, e.result, end)
}

// fourth reports whether the number at the end of a task's id can be divided by 4.
func fourth(task string) bool {
	n, err := strconv.Atoi(task[strings.LastIndexByte(task, '-')+1:])
	return err == nil && n%4 == 0
}

// wish is what an input may ask of the agent.
type wish struct {
	SlowMS      int  `json:"slow_ms"`      // how long the work takes
	ResultBytes int  `json:"result_bytes"` // how large the result is
	Refused     bool `json:"refused"`
}

func wishOf(c *command) (w wish) {
	_ = json.Unmarshal(c.Input, &w) // any input will do
	return w
}

// labour takes as long as the input says.
func (a *plain) labour(c *command) (stopped bool) {
	ms := wishOf(c).SlowMS
	if a.fault == races {
		ms++ // so that they meet
	}
	return pause.For(a.context, time.Duration(ms)*time.Millisecond) != nil
}

// undo takes the effect back, once a key.
func (a *plain) undo(m *nats.Msg, c *command, end time.Time) {
	a.store.mu.Lock()
	e := a.known(c)
	switch {
	case e.working && a.fault != undoOvertakes:
		a.unlockFail(m, 425, end)
		return
	case e.tomb && a.fault == undoOnce, !e.done && a.fault == undoOnlyKnown:
		a.unlockFail(m, 404, end)
		return
	}
	e.tomb = true
	if a.fault != undoLeaves {
		a.store.effects[c.Key] = 0
	}
	a.unlockAnswer(m, nil, end)
}

// probe says what became of a key.
func (a *plain) probe(m *nats.Msg, c *command, end time.Time) {
	a.store.mu.Lock()
	e := a.known(c)
	for a.fault == probeWaits && e.working {
		a.store.mu.Unlock()
		if pause.For(a.context, time.Millisecond) != nil {
			return
		}
		a.store.mu.Lock()
	}
	said := `{"v":1,"outcome":"absent"}`
	switch {
	case a.fault == probeSaysAbsent:
	case a.fault == probeSaysDone:
		said = `{"v":1,"outcome":"done","result":{"receipt":1}}`
	case e.working && a.fault == probeOverlooks:
	case e.working:
		if e.asked++; a.fault == probeForgets && e.asked%2 == 0 {
			break
		}
		said = `{"v":1,"outcome":"in_progress"}`
	case e.done && !e.tomb, e.done && a.store.effects[c.Key] > 0:
		said = `{"v":1,"outcome":"done","result":` + string(e.result) + `}`
	case a.fault == probeActs:
		a.store.act(c.Key)
	}
	a.unlockAnswer(m, []byte(said), end)
}

func (a *plain) unlockAnswer(m *nats.Msg, result []byte, end time.Time) {
	a.store.mu.Unlock()
	a.answer(m, result, end)
}

func (a *plain) unlockFail(m *nats.Msg, code int, end time.Time) {
	a.store.mu.Unlock()
	a.fail(m, code, end)
}

// answer answers with success, unless it is too late; a zero end is never.
func (a *plain) answer(m *nats.Msg, result []byte, end time.Time) {
	if len(result) > resultMax && a.fault != largeResult && a.fault != sendsLarge {
		a.fail(m, map[bool]int{true: 502, false: 512}[a.fault == largeAgain], end)
		return
	}
	a.reply(m, nil, result, end)
}

func (a *plain) fail(m *nats.Msg, code int, end time.Time) {
	a.reply(m, nats.Header{"Nats-Service-Error": {"no"}, "Nats-Service-Error-Code": {strconv.Itoa(code)}}, nil, end)
}

func (a *plain) reply(m *nats.Msg, header nats.Header, data []byte, end time.Time) {
	if !end.IsZero() && time.Now().After(end) && a.fault != answersLate && a.fault != answersSlowly {
		return
	}
	a.send(m, header, data)
	if a.fault == answersTwice {
		a.send(m, header, data)
	}
}

// send answers where there is a reply subject.
func (a *plain) send(m *nats.Msg, header nats.Header, data []byte) {
	if m.Reply == "" {
		return
	}
	if err := a.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: header, Data: data}); err != nil && !a.nc.IsClosed() {
		a.t.Error(err)
	}
}
