package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// agentProcess is one process that serves every step. Its ledger is the
// services' own and outlives it.
type agentProcess struct {
	w       *World
	name    string
	clock   *clock
	runtime *agents.Runtime
	calls   []*proc
	serves  map[[2]string]bool // by agent and step
	down    core.Instant       // until when it is not there
}

// hireAgents makes two of them.
func (w *World) hireAgents() {
	ledger := w.cfg.Ledger
	if ledger == nil {
		ledger = agents.NewMemoryLedger(func() core.Instant { return w.now }, min(time.Hour, w.books.keyMemory), 0)
	}
	for _, name := range []string{"a1", "a2"} {
		a := &agentProcess{w: w, name: name, clock: w.newClock(), serves: map[[2]string]bool{}}
		a.runtime = agents.New(agents.Config{
			Time: agentTime{a}, Log: w.cfg.Log, TriesMax: 2, Backoff: 5 * time.Millisecond, Ledger: ledger,
		})
		a.serve()
		w.agents = append(w.agents, a)
	}
}

func (a *agentProcess) serve() {
	served := map[string]bool{}
	for _, p := range a.w.plans {
		for _, s := range p.Steps {
			if served[s.Name] || s.Kind != core.CallStep {
				continue
			}
			served[s.Name] = true
			a.serveStep(s)
		}
	}
}

// serveStep begins to serve a step, if it is not served yet.
func (a *agentProcess) serveStep(s core.Step) {
	if a.serves[[2]string{s.Agent, s.Name}] {
		return
	}
	a.serves[[2]string{s.Agent, s.Name}] = true
	h := agents.Handlers{Do: a.do}
	if s.Undoable {
		h.Undo = a.undo
	}
	if err := a.runtime.Register(s.Agent, s.Name, h); err != nil {
		panic(err) // the world is built wrong
	}
	if h.Undo == nil {
		return // a check leaves nothing that a service could look for
	}
	if err := a.runtime.RegisterProbe(s.Agent, s.Name, a.probe); err != nil {
		panic(err)
	}
}

// work brings a command to one of the processes that are there, and reports
// whether there was one.
func (w *World) work(c core.Command) bool {
	if w.during(w.ails.away) {
		return false
	}
	if w.load != nil {
		w.load.work(c)
		return true
	}
	at := w.rand.IntN(len(w.agents))
	for i := range w.agents {
		if a := w.agents[(at+i)%len(w.agents)]; w.now >= a.down {
			a.handle(c)
			return true
		}
	}
	w.note(AgentsDown)
	return false
}

// handle works on one command; its answer leaves when the work is done.
func (a *agentProcess) handle(c core.Command) {
	w := a.w
	ctx := context.Background()
	if w.fault(AgentStops) {
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		ctx = stopped
	}
	now := a.clock.now()
	w.tell(c.Task, -1, "%s takes row %d, %s of %s", a.name, c.Seq, what(c.Undo), c.Key())
	p := w.start(func() {
		p := w.running
		reply, answered := a.runtime.Handle(ctx, now, &c)
		if p.dead {
			return
		}
		if !answered {
			w.tell(c.Task, -1, "%s says nothing about row %d", a.name, c.Seq)
			return
		}
		if at := a.clock.now(); at >= min(c.CompleteBy, now.Add(c.Left)) {
			w.wrong(c.Partition, c.Task, "an agent spoke after its complete-by: %+v", reply)
		}
		w.answer(&c, reply)
	})
	if !p.dead {
		a.calls = slices.DeleteFunc(a.calls, func(p *proc) bool { return p.dead })
		a.calls = append(a.calls, p)
	}
}

// crash ends whatever the process has in flight; it is back a little later. The
// call that runs it must end itself.
func (a *agentProcess) crash() {
	a.w.tell("", -1, "%s crashes", a.name)
	calls := a.calls
	a.calls = nil
	for _, p := range calls {
		a.w.kill(p)
	}
	a.down = a.w.now.Add(a.w.upTo(200 * time.Millisecond))
	a.w.running.dead = true
	panic(errKilled)
}

var (
	errHandler = errors.New("no luck")
	errBusy    = &agents.Error{Code: core.CodeTooMany, Err: errors.New("too much in flight")}
)

// do is every service's do: it takes effect, fails with or without one, refuses,
// dies with its process, or hangs and takes effect later than anybody waits for.
func (a *agentProcess) do(ctx context.Context, c *core.Command) ([]byte, error) {
	w, key := a.w, c.Key()
	undoable := w.undoable(c)
	effect := func(loose bool) {
		if undoable {
			w.books.do(c, loose)
		}
	}
	if w.during(w.ails.full) {
		return nil, errBusy
	}
	if w.during(w.ails.failing) && c.Step == w.ails.step || w.load != nil && w.load.fails(c) {
		return nil, errHandler
	}
	if w.fault(AgentCrashBefore) {
		a.crash()
	}
	if w.books.refuses(key) {
		return nil, agents.Refuse(422, errors.New("not this one"))
	}
	left := min(c.CompleteBy.Sub(a.clock.now()), c.Left)
	switch {
	case w.fault(AgentCrashDuring):
		w.after(w.upTo(left+slow), func() { effect(true) })
		a.crash()
	case w.fault(AgentBusy):
		return nil, errBusy
	case w.fault(AgentError):
		return nil, errHandler
	case w.fault(AgentHangs): // gives up in time; the call it made does not
		w.hang(ctx, left)
		w.after(w.upTo(slow), func() { effect(true) })
		return nil, ctx.Err()
	case w.fault(AgentDeaf):
		w.wait(left + w.upTo(slow))
		effect(false)
		return []byte(`"late"`), nil
	}
	w.wait(w.upTo(20 * time.Millisecond))
	if a.clock.now() >= c.CompleteBy {
		return nil, context.DeadlineExceeded
	}
	effect(false)
	if w.fault(AgentCrashAfter) {
		a.crash()
	}
	switch unsure := w.fault(AgentUnsure); {
	case unsure && c.Number%2 == 0: // drawn with it, so that seeds stay what they were
		w.note(AgentFails)
		return nil, agents.Fail(errHandler)
	case unsure:
		return nil, errHandler
	}
	return []byte(`{"step":"` + c.Step + `"}`), nil
}

func (a *agentProcess) undo(ctx context.Context, c *core.Command) ([]byte, error) {
	w := a.w
	switch {
	case w.during(w.ails.full):
		return nil, errBusy
	case w.during(w.ails.broken) && c.Step == w.ails.step:
		return nil, errHandler
	case w.fault(AgentCrashBefore):
		a.crash()
	}
	left := min(c.CompleteBy.Sub(a.clock.now()), c.Left)
	switch {
	case w.fault(AgentCrashDuring):
		w.after(w.upTo(left), func() { w.books.undo(c) })
		a.crash()
	case w.fault(AgentError):
		return nil, errHandler
	case w.fault(AgentHangs):
		w.hang(ctx, left)
		return nil, ctx.Err()
	}
	w.wait(w.upTo(20 * time.Millisecond))
	w.books.undo(c)
	if w.fault(AgentCrashAfter) {
		a.crash()
	}
	return nil, nil
}

// hang waits until the context has ended, also when its clock was set back.
func (w *World) hang(ctx context.Context, left time.Duration) {
	for w.wait(left); ctx.Err() == nil; {
		w.wait(time.Millisecond)
	}
}

func (w *World) undoable(c *core.Command) bool {
	for _, p := range w.plans {
		if i := p.StepIndex(c.Step); p.Name == c.Type && i >= 0 {
			return p.Steps[i].Undoable
		}
	}
	return false
}

// ails is what is wrong with the agents for a long time.
type ails struct {
	away, full, broken, failing span
	step                        string // whose undo is broken, or whose do fails
}

// span is a time from and until.
type span struct{ from, until core.Instant }

func (w *World) during(s span) bool { return w.now >= s.from && w.now < s.until }

// troubleAgents draws long troubles of the agents. They end before the calm does.
func (w *World) troubleAgents() {
	for _, t := range []struct {
		fault Fault
		span  *span
	}{{AgentsAway, &w.ails.away}, {AgentsFull, &w.ails.full}, {UndoBroken, &w.ails.broken}, {AgentsFail, &w.ails.failing}} {
		if w.fault(t.fault) {
			t.span.from = w.now.Add(w.upTo(w.cfg.Storm))
			t.span.until = t.span.from.Add(w.upTo(w.cfg.Storm + 2*time.Second))
		}
	}
	p := w.plans[w.rand.IntN(len(w.plans))]
	w.ails.step = p.Steps[w.rand.IntN(len(p.Steps))].Name
}
