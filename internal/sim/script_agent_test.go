package sim_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// stageAgent is one agent process and the service it wraps. The process has a
// ledger in its memory; the service keeps books that outlive it.
type stageAgent struct {
	s       *stage
	name    string
	tries   int
	foreign bool // no runtime of ours: it answers whenever it is done
	up      bool
	life    int
	runtime *agents.Runtime
	at      map[*coroutine]bool
	calls   map[bool][]stageCall // by undo: what the next calls of the handler come to
	wire    map[string][]stageCall
	book    stageBook
}

// stageBook is what a service keeps: which keys have their effect, which were
// undone, and how often an effect was made.
type stageBook struct {
	on, tomb map[string]bool
	made     map[string]int
}

// stageCall is what one call, or one message, comes to.
type stageCall struct {
	outcome, text string
	code          int
	after         time.Duration
	effect        bool
}

// addAgent is needed only where an agent differs from the rest.
func (s *stage) addAgent(name string, a args) {
	_, foreign := a["foreign"]
	ag := s.agent(name)
	ag.tries, ag.foreign = s.number(a.or("tries", "1")), foreign
	ag.begin()
}

func (s *stage) agent(name string) *stageAgent {
	a := s.agents[name]
	if a == nil {
		a = &stageAgent{
			s: s, name: name, tries: 1, at: map[*coroutine]bool{}, calls: map[bool][]stageCall{}, wire: map[string][]stageCall{},
			book: stageBook{on: map[string]bool{}, tomb: map[string]bool{}, made: map[string]int{}},
		}
		s.agents[name] = a
		a.begin()
	}
	return a
}

// begin is a new life of the process: its ledger knows nothing.
func (a *stageAgent) begin() {
	a.up = true
	a.life++
	a.runtime = agents.New(agents.Config{
		Time: stageTime{a.s}, Log: a.s.logOf(a.name), TriesMax: a.tries, Backoff: 100 * time.Millisecond,
		Ledger: agents.NewMemoryLedger(func() core.Instant { return a.s.now }, time.Hour, 0),
	})
	for _, versions := range a.s.plans {
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			a.serve(versions[v])
		}
	}
}

// serve registers the steps of a plan; those that another version has brought
// already are served already.
func (a *stageAgent) serve(p *core.Plan) {
	for _, step := range p.Steps {
		if step.Agent == a.name {
			h := agents.Handlers{Do: a.do}
			if step.Undoable {
				h.Undo = a.undo
			}
			if err := a.runtime.Register(a.name, step.Name, h); err != nil && !strings.Contains(err.Error(), "served already") {
				a.s.t.Fatal(err)
			}
		}
	}
}

func (a *stageAgent) crash() {
	a.s.say(a.name, "crashes", "")
	a.up = false
	for co := range a.at {
		co.dead = true
	}
	clear(a.at)
}

// nextCall says what the next calls of an agent's handler come to:
//
//	next bank do=error code=503 text=busy effect=yes after=1s times=2
//	     do=ok|error|refuse|hang|deaf|die|panic|garbage; undo= likewise
func (s *stage) nextCall(name string, a args) {
	a1 := s.agent(name)
	outcome, undo := a["undo"]
	if !undo {
		outcome = a.or("do", "ok")
	}
	c := stageCall{
		outcome: outcome, text: a.or("text", "boom"), code: s.number(a.or("code", "500")),
		after: s.duration(a.or("after", "5ms")), effect: a["effect"] == "yes",
	}
	for range s.number(a.or("times", "1")) {
		a1.calls[undo] = append(a1.calls[undo], c)
	}
}

// nextMessage says what becomes of the next commands to an agent and of its next
// replies:
//
//	wire bank do=lost|unserved|late|twice after=3s times=2; undo=, reply= likewise
func (s *stage) nextMessage(name string, a args) {
	a1 := s.agent(name)
	for _, kind := range []string{"do", "undo", "reply"} {
		if outcome, ok := a[kind]; ok {
			for range s.number(a.or("times", "1")) {
				a1.wire[kind] = append(a1.wire[kind], stageCall{outcome: outcome, after: s.duration(a["after"])})
			}
		}
	}
}

func shift[K comparable](queues map[K][]stageCall, key K) (c stageCall) {
	if q := queues[key]; len(q) > 0 {
		c, queues[key] = q[0], q[1:]
	}
	return c
}

// carry brings a command to its agent, or does not.
func (s *stage) carry(b *stageBus, c core.Command) {
	a := s.agent(c.Agent)
	kind := "do"
	if c.Undo {
		kind = "undo"
	}
	fate := shift(a.wire, kind)
	if !a.up {
		fate.outcome = "unserved"
	}
	switch fate.outcome {
	case "lost":
		s.say("network", "loses", "%s", callOf(&c))
	case "unserved":
		s.say("network", "finds", "no agent on %s", c.Agent)
		s.after(0, func() { b.unserved(&c) })
	case "late":
		s.say("network", "holds", "%s for %s", callOf(&c), fate.after)
		s.after(fate.after, func() { a.take(c) })
	case "twice":
		s.say("network", "doubles", "%s, the copy comes %s later", callOf(&c), fate.after)
		s.after(0, func() { a.take(c) })
		s.after(fate.after, func() { a.take(c) })
	default:
		s.after(0, func() { a.take(c) })
	}
}

// take is one command at its agent. Time left counts from when it is read.
func (a *stageAgent) take(c core.Command) {
	if !a.up {
		a.s.say("network", "drops", "%s: no agent on %s", callOf(&c), a.name)
		return
	}
	if a.s.quiet && len(a.calls[c.Undo]) == 0 { // it takes no time
		a.work(&coroutine{}, &c)
		return
	}
	co := a.s.spawn(func(co *coroutine) { a.work(co, &c) })
	if co.dead {
		delete(a.at, co)
	}
}

func (a *stageAgent) work(co *coroutine, c *core.Command) {
	a.at[co] = true
	reply, answered := a.handle(c)
	if co.dead {
		return
	}
	delete(a.at, co)
	if !answered {
		a.s.say(a.name, "is silent", "about %s, try %d", callOf(c), c.Attempt)
		return
	}
	if !a.foreign && a.s.now >= c.CompleteBy {
		a.s.wrong("agent %s speaks after its complete-by", a.name)
	}
	a.answer(c, reply)
}

func (a *stageAgent) handle(c *core.Command) (core.Reply, bool) {
	if !a.foreign {
		return a.runtime.Handle(context.Background(), a.s.now, c)
	}
	work := a.do
	if c.Undo {
		work = a.undo
	}
	result, err := work(context.Background(), c)
	r := core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Result: result}
	if err != nil {
		r.Code, r.Error = core.CodeAgentError, err.Error()
		if coded, ok := errors.AsType[*agents.Error](err); ok {
			r.Code = coded.Code
		}
	}
	return r, true
}

// answer sends a reply to all that listen.
func (a *stageAgent) answer(c *core.Command, r core.Reply) {
	r.Token = core.TokenOf(c.Copy)
	said := "ok"
	if r.Code != 0 {
		said = a.s.codeText(r)
	}
	a.s.say(a.name, "answers", "%s as #%d: %s", callOf(c), r.Seq, said)
	switch fate := shift(a.wire, "reply"); fate.outcome {
	case "lost":
		a.s.say("network", "loses", "the answer")
	case "late":
		a.s.say("network", "holds", "the answer for %s", fate.after)
		a.s.after(fate.after, func() { a.s.hear(r) })
	case "twice":
		a.s.say("network", "doubles", "the answer, the copy comes %s later", fate.after)
		a.s.after(0, func() { a.s.hear(r) })
		a.s.after(fate.after, func() { a.s.hear(r) })
	default:
		a.s.after(0, func() { a.s.hear(r) })
	}
}

// do is every service's do.
func (a *stageAgent) do(ctx context.Context, c *core.Command) ([]byte, error) {
	if !a.foreign && a.s.now >= c.CompleteBy {
		a.s.wrong("agent %s works after its complete-by", a.name)
	}
	result, err := a.call(ctx, c, shift(a.calls, false), func() error {
		key := c.Key()
		switch {
		case !a.s.undoable(c):
			a.s.say(a.name, "checks", "%s", key)
		case a.book.tomb[key]:
			a.s.say(a.name, "books not", "%s: it was cancelled", key)
			return agents.ErrGone
		case a.book.on[key]:
			a.s.say(a.name, "has", "%s already", key)
		default:
			a.book.on[key] = true
			a.book.made[key]++
			a.s.say(a.name, "books", "%s", key)
		}
		return nil
	})
	if err == nil && result == nil {
		result = []byte(`{"by":"` + a.name + `"}`)
	}
	return result, err
}

func (a *stageAgent) undo(ctx context.Context, c *core.Command) ([]byte, error) {
	return a.call(ctx, c, shift(a.calls, true), func() error {
		key := c.Key()
		if a.book.on[key] {
			a.s.say(a.name, "cancels", "%s", key)
		} else {
			a.s.say(a.name, "cancels", "%s, of which it has nothing", key)
		}
		delete(a.book.on, key)
		a.book.tomb[key] = true
		return nil
	})
}

// call is one call of a handler, with what the script says it comes to.
func (a *stageAgent) call(ctx context.Context, c *core.Command, x stageCall, effect func() error) ([]byte, error) {
	if x.outcome == "" {
		x = stageCall{outcome: "ok", after: 5 * time.Millisecond}
		if a.s.quiet {
			x.after = 0
		}
	}
	end, bound := ctx.Deadline()
	left := core.InstantOf(end).Sub(a.s.now)
	switch {
	case x.outcome == "die":
		a.crash()
		a.s.co.dead = true
		return nil, errCrash
	case x.outcome == "hang" && !bound:
		a.s.t.Fatalf("agent %s hangs without a deadline", a.name)
	case x.outcome == "hang", bound && x.outcome != "deaf" && x.after >= left:
		a.s.say(a.name, "hangs", "on %s", callOf(c))
		a.s.sleep(left)
		return nil, ctx.Err()
	}
	if x.after > 5*time.Millisecond {
		a.s.say(a.name, "begins", "%s, which takes %s", callOf(c), x.after)
	}
	if x.after > 0 && !a.s.sleep(x.after) {
		return nil, errCrash
	}
	return a.come(x, effect)
}

// come is how a call ends.
func (a *stageAgent) come(x stageCall, effect func() error) ([]byte, error) {
	var err error
	if x.effect || x.outcome == "ok" || x.outcome == "deaf" || x.outcome == "garbage" {
		err = effect()
	}
	switch {
	case err != nil:
		return nil, err
	case x.outcome == "error":
		return nil, &agents.Error{Code: x.code, Err: errors.New(x.text)}
	case x.outcome == "refuse":
		return nil, agents.Refuse(core.CodeRefused, errors.New(x.text))
	case x.outcome == "panic":
		panic(x.text)
	case x.outcome == "garbage":
		return []byte("<ok/>"), nil
	}
	return nil, nil
}

// stageTime is the clock of the handler at work.
type stageTime struct{ s *stage }

// Now implements agents.Time.
func (c stageTime) Now() core.Instant { return c.s.now }

// Float64 implements agents.Time.
func (c stageTime) Float64() float64 { return 0.5 }

// WithTimeout implements agents.Time.
func (c stageTime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return stageContext{ctx, c.s, c.s.now.Add(d)}, func() {}
}

// Sleep implements agents.Time.
func (c stageTime) Sleep(ctx context.Context, d time.Duration) error {
	if !c.s.sleep(d) {
		return errCrash
	}
	return ctx.Err()
}

// stageContext ends by the stage's clock.
type stageContext struct {
	context.Context
	s   *stage
	end core.Instant
}

// Deadline implements context.Context.
func (c stageContext) Deadline() (time.Time, bool) { return c.end.Time(), true }

// Err implements context.Context.
func (c stageContext) Err() error {
	if c.s.now >= c.end {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
