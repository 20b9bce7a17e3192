package core

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// More tries than rapid's own default, unless the command line says how many.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "400", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	m.Run()
}

// TestStormThenCalm puts a random task through a storm of events, then answers
// everything. What must hold after any event is checked after every event: see
// rig.check and storm.check.
//
// covers: S1, S39, S42, I24, inv5, inv7, inv8, inv11
func TestStormThenCalm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStorm(rt, newChance(rt), nil)
		for range s.n("events", 200) {
			s.step()
		}
		s.calm()
		s.drain()
	})
}

// chance is where a storm's choices come from. Half of the tries draw each choice
// from rapid, which prefers small values and shrinks what fails; the other half
// draw one seed, and are spread evenly over long lives.
type chance struct {
	rt  *rapid.T
	rng *rand.Rand
}

func newChance(rt *rapid.T) chance {
	c := chance{rt: rt}
	if rapid.Bool().Draw(rt, "even") {
		c.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
	}
	return c
}

// n is one of 0 … n-1.
func (c chance) n(name string, n int) int {
	if c.rng != nil {
		return c.rng.IntN(n)
	}
	return rapid.IntRange(0, n-1).Draw(c.rt, name)
}

// one is true once in n.
func (c chance) one(name string, n int) bool { return c.n(name, n) == n-1 }

// span is lo to hi tenths of a second.
func (c chance) span(name string, lo, hi int) time.Duration {
	return time.Duration(lo+c.n(name, hi-lo+1)) * 100 * time.Millisecond
}

func pick[T any](c chance, name string, of ...T) T { return of[c.n(name, len(of))] }

func (c chance) drawPlan() Plan {
	p := Plan{Name: "order", Version: 3, CompleteBy: c.span("task complete-by", 20, 1200), Grace: c.span("grace", 1, 40)}
	for i := range 1 + c.n("steps", 6) {
		st := Step{
			Name: string(rune('a' + i)), Agent: "agent." + string(rune('a'+i)),
			Undoable:        !c.one("check", 4),
			CompleteBy:      c.span("complete-by", 10, 200),
			UndoCompleteBy:  c.span("undo complete-by", 10, 200),
			AttemptsMax:     1 + c.n("attempts", 3),
			UndoAttemptsMax: 1 + c.n("undo attempts", 3),
			Backoff:         c.span("backoff", 1, 30),
			BackoffCap:      c.span("backoff cap", 1, 60),
			Pause:           c.span("pause", 5, 300),
			OnExhausted:     pick(c, "policy", PolicyUndo, PolicyUndo, PolicyWait, PolicyError),
			Probe:           c.one("probe", 3),
		}
		if c.one("a service that forgets", 2) {
			st.KeyLasts = c.span("key lasts", 5, 600)
		}
		st.CompleteBy, st.BackoffCap = min(st.CompleteBy, p.CompleteBy), max(st.Backoff, st.BackoffCap) // else it is refused
		for a := range i {
			if a == i-1 || c.one("after", 2) { // a chain; graphs have a test of their own
				st.After = append(st.After, a)
			}
		}
		p.Steps = append(p.Steps, st)
	}
	return p
}

// errLost says that the owner died before the event was committed.
var errLost = errors.New("lost with its owner")

// storm is a task in its rig inside the model's world.
type storm struct {
	*rig
	chance
	m     *model
	done  []func() // see guarded
	edits int
}

func newStorm(t failer, c chance, w *witness) *storm {
	s := &storm{rig: newRig(t, c.drawPlan()), chance: c}
	s.w = w
	s.m = newModel(s.plan)
	if s.one("own deadline", 4) {
		s.own = s.now.Add(s.span("within", 0, 600))
	}
	s.birth(s.full().low)
	s.leave(false)
	return s
}

// full draws which agents have no room; mostly all have.
func (s *storm) full() StepSet {
	if s.one("full", 5) {
		return StepSet{low: uint64(s.n("which are full", 64))}
	}
	return StepSet{}
}

// step is one thing that happens.
func (s *storm) step() {
	if s.task.State.Ended() && s.one("taken up", 3) {
		s.people()
		return
	}
	switch what := s.n("what", 44); {
	case what >= 41:
		s.asked()
	case what < 10:
		s.work()
	case what < 20:
		s.deliver()
	case what < 25:
		s.elapse()
	case what < 28:
		s.wakeUp()
	case what < 29:
		s.event(Event{Kind: EventServed, Full: s.full()})
	case what < 31:
		s.event(Event{Kind: EventOverdue, Actor: "supervisor", Node: node})
	case what < 34:
		s.event(Event{Kind: EventClaim, Full: s.full()})
	case what < 35:
		s.unservedSend()
	case what < 36 && s.one("forgotten", 2):
		s.successor()
	case what < 36:
		s.takeover()
	case what < 37:
		s.zombie()
	case what < 38:
		s.event(Event{Kind: EventWentBack, Until: s.now})
	default:
		s.people()
	}
}

// lateRetry: an owner that has lost the task, and made sure of it just before, lets a
// step that waits for its agent try once more.
func (s *storm) lateRetry() {
	committed := s.replayed()
	for i := range committed.Steps {
		st := &committed.Steps[i]
		if st.Awaits == 0 || !s.one("late retry", 3) {
			continue
		}
		s.m.lateRetry(s.plan, committed, i, s.now)
	}
}

// elapse moves time on: a little, to what is due, or well past it.
func (s *storm) elapse() {
	due := s.task.NextDue(s.plan)
	switch s.n("how long", 4) {
	case 0:
		s.now = max(s.now, due)
	case 1:
		s.now = max(s.now, due-1)
	default:
		s.now = s.now.Add(time.Duration(1+s.n("ms", 8000)) * time.Millisecond)
	}
}

func (s *storm) work() {
	open := s.m.open()
	if len(open) == 0 {
		return
	}
	h := open[s.n("copy", len(open))]
	code := pick(s.chance, "code", 0, 0, 0, 0, 0, 0, CodeAgentError, CodeAgentError, CodeTooEarly, CodeRefused, CodeTooMany, CodeUnavailable)
	// Success has taken effect, a refusal has not; any other error may have.
	effect := code == 0 || code != CodeRefused && s.one("effect", 2)
	s.breach(s.m.work(h, s.now, code, effect, s.one("silent", 5)))
}

func (s *storm) deliver() {
	if len(s.m.replies) == 0 {
		return
	}
	i := s.n("reply", len(s.m.replies))
	a := s.m.replies[i]
	if s.one("once", 2) { // else it stays and may come again
		s.m.replies = slices.Delete(s.m.replies, i, i+1)
	}
	at := s.now
	if s.one("read before", 3) {
		at = a.at
	}
	s.reply(a, at)
}

func (s *storm) reply(a answer, at Instant) {
	out := s.task.OutSeq(a.try.seq)
	valid := out >= 0 && s.task.Steps[out].Out == a.try.seq && max(at, s.task.UpdatedAt) < s.task.Steps[out].Due
	valid = valid && s.task.Steps[out].answers(&Event{Copy: a.copy})
	valid = valid && !(a.code == CodeTooEarly && s.task.Steps[out].Effect.resent()) // the copy at work will say
	before := s.task.Seq
	ev := Event{Kind: EventReply, At: at, Seq: a.try.seq, Copy: a.copy, Code: a.code, Error: text(a.code), Result: []byte("1"), Actor: "agent"}
	s.done = []func(){a.end}
	if !valid {
		s.done = []func(){func() { s.breach(s.m.checkLate(a, s.out.Records)) }, a.end}
	}
	err := s.try(ev)
	s.done = nil
	if valid && err != nil && err != errLost {
		s.t.Fatalf("reply to %d at %d (complete-by %d): %v", a.try.seq, at, a.try.due, err)
	}
	if err != nil && s.task.Seq != before {
		s.t.Fatalf("a stale reply wrote a journal row")
	}
}

// unservedSend: a copy finds no agent subscribed.
func (s *storm) unservedSend() {
	open := s.m.open()
	if len(open) == 0 {
		return
	}
	h := open[s.n("copy", len(open))]
	h.done = true
	h.end() // no agent is at work on it, whatever the owner makes of the news
	s.event(Event{Kind: EventUnserved, Seq: h.try.seq, Copy: h.copy})
}

// asked: an agent answers what became of a silent do, or its answer arrives.
func (s *storm) asked() {
	if n := len(s.m.asks); n > 0 && s.one("answers", 2) {
		i := s.n("ask", n)
		s.m.askAgent(s.m.asks[i], s.now)
		s.m.asks = slices.Delete(s.m.asks, i, i+1)
	}
	if len(s.m.said) == 0 {
		return
	}
	i := s.n("said", len(s.m.said))
	a := s.m.said[i]
	if s.one("once", 2) {
		s.m.said = slices.Delete(s.m.said, i, i+1)
	}
	if a.early(s.plan, s.task) {
		s.m.asks = append(s.m.asks, ask{seq: a.seq, key: a.key})
		return
	}
	s.done = []func(){func() { s.breach(s.m.checkProbed(a, s.out.Records)) }}
	_ = s.try(Event{Kind: EventProbed, Seq: a.seq, Code: a.code, Result: []byte("2"), Actor: "agent"})
	s.done = nil
}

func (s *storm) wakeUp() {
	if len(s.m.timers) == 0 || s.one("spurious", 4) {
		s.event(Event{Kind: EventWake, Full: s.full()})
		return
	}
	i := s.n("timer", len(s.m.timers))
	s.m.timers = slices.Delete(s.m.timers, i, i+1)
	s.event(Event{Kind: EventWake, Full: s.full()})
}

// zombie lets an owner that lost the task send what it had committed.
func (s *storm) zombie() {
	if n := len(s.m.zombies); n > 0 {
		s.m.copies = append(s.m.copies, s.m.zombies[n-1])
		s.m.zombies = s.m.zombies[:n-1]
	}
}

func (s *storm) people() {
	switch who := s.n("who", 16); {
	case who < 1:
		s.event(Event{Kind: EventCancel, Actor: "client", Node: node})
	case who < 2:
		ev := Event{Kind: EventUndo, Actor: person, Node: node}
		if s.one("has looked", 2) {
			ev.Found = s.m.found(s.plan, s.task, EventUndo)
		}
		s.event(ev)
	case who < 3:
		s.undoOnceMore()
	case who < 8:
		ev := Event{Kind: EventResubmit, Actor: person, Node: node, Full: s.full()}
		if s.one("another deadline", 2) {
			ev.Until = s.now.Add(s.span("within", 1, 100))
		}
		if s.one("has looked", 2) {
			ev.Found = s.m.found(s.plan, s.task, EventResubmit)
		}
		s.event(ev)
	case who < 10:
		s.event(Event{Kind: EventExtend, Actor: person, Until: s.now.Add(time.Duration(s.n("until", 100)) * time.Second)})
	case who < 11:
		s.event(Event{Kind: EventPoison, Error: "refused by the database"})
	case who < 13:
		s.accept()
	case who < 15:
		s.edits++
		_ = s.guarded(Event{Kind: EventEdit, Actor: person, Node: node, Full: s.full(), Input: fmt.Appendf(nil, `{"edit":%d}`, s.edits)})
	default:
		as := pick(s.chance, "as", StateProcessed, StateUndone, StatePending)
		round, was := s.task.Round, s.m.settled[s.task.Round]
		s.m.settled[round] = true
		if s.try(Event{Kind: EventResolve, Actor: person, As: as}) != nil {
			s.m.settled[round] = was
		}
	}
}

// undoOnceMore: the service of a step still has an effect of an undone task, whatever the journal says.
func (s *storm) undoOnceMore() {
	i := s.n("which step", len(s.plan.Steps))
	ev := Event{Kind: EventUndo, Actor: person, Node: node, Step: s.plan.Steps[i].Name}
	undone, undoable := s.task.State == StateUndone && s.task.Steps != nil, s.plan.Steps[i].Undoable
	err := s.guarded(ev, func() {
		k := effectKey{s.task.Round, i}
		s.m.effect(k).live = true
		delete(s.m.inputs, k)
		s.m.settled[s.task.Round] = false
	})
	if err == nil && (!undone || !undoable) {
		s.t.Fatalf("step %d was undone once more, and it was not to be: %s", i, s.task)
	}
}

// accept: a person does by hand what the failed step should have done, and says so.
func (s *storm) accept() {
	ev := Event{Kind: EventAccept, Actor: person, Node: node, Full: s.full(), Result: []byte(`"by hand"`)}
	at := -1
	if s.task.State == StateError {
		at, _ = s.task.stoppedAt(s.plan, "")
	}
	if err := s.guarded(ev, func() {
		k := effectKey{s.task.Round, at}
		s.m.effect(k).live, s.m.hand[k] = true, true
		delete(s.m.inputs, k)
	}); err == nil && at < 0 {
		s.t.Fatalf("accepted, and no step had stopped: %s", s.task)
	}
}

// guarded is try with the number of the newest journal row, mostly the right one, and then comes a second time, as
// after a crash: that changes nothing. done is called between commit and effects.
func (s *storm) guarded(ev Event, done ...func()) error {
	ev.IfSeq = s.task.Seq
	wrong := s.one("another row", 5)
	if wrong {
		ev.IfSeq += pick(s.chance, "which row", int64(-1), 1)
	}
	s.done = done
	err := s.try(ev)
	s.done = nil
	if wrong && ev.IfSeq != 0 && err == nil {
		s.t.Fatalf("a request about row %d changed a task at another: %s", ev.IfSeq, s.task)
	}
	if err != nil || ev.IfSeq == 0 { // 0 is no condition
		return err
	}
	if again := s.apply(ev); !errors.Is(again, ErrNotAllowed) {
		s.t.Fatalf("a request about row %d came twice, and then: %v; %s", ev.IfSeq, again, s.task)
	}
	return nil
}

// event is try for an event that may as well be refused.
func (s *storm) event(ev Event) { _ = s.try(ev) }

// try applies ev, or loses it with a crash before the commit; its effects
// leave, or are lost with a crash after the commit.
func (s *storm) try(ev Event) error {
	ev.Rand = float64(s.n("jitter", 1000)) / 1000
	if ev.Full.Empty() {
		ev.Full = s.full()
	}
	if ev.Actor == "" {
		ev.Actor = node
	}
	if s.task.State.Ended() && s.one("went back", 10) { // and no request has taken it up since
		ev.WentBack = s.now
	}
	if s.one("crash before commit", 40) {
		var out Outcome
		lost := ev
		lost.At = max(lost.At, s.now)
		_ = Apply(s.plan, s.task, &lost, &out)
		s.takeover()
		return errLost
	}
	if s.rt != nil {
		s.rt.Logf("%d: event %d seq %d code %d: %s", s.now-birthTime, ev.Kind, ev.Seq, ev.Code, s.task)
	}
	if err := s.apply(ev); err != nil {
		return err
	}
	for _, done := range s.done {
		done()
	}
	lost := s.one("crash after commit", 25)
	s.leave(lost)
	if lost {
		s.takeover()
	}
	return nil
}

// leave hands the effects of the outcome to the world.
func (s *storm) leave(lost bool) {
	for _, e := range s.out.Effects {
		switch e.Kind {
		case EffectDo, EffectUndo:
			at := s.now
			if n := len(s.out.Records); n > 0 && !retryHeard(&s.out.Records[n-1]) { // as decided, which is never later than now
				at = s.out.Records[n-1].At
			}
			s.breach(s.m.checkSend(s.plan, s.task, e, at))
			s.breach(s.m.checkInput(s.task, e))
			s.m.send(e, s.task.Round, lost)
		case EffectProbe:
			s.m.asks = append(s.m.asks, ask{seq: e.Seq, key: effectKey{s.task.Round, e.Step}})
		case EffectWake:
			s.m.timers = append(s.m.timers, e.At)
		}
	}
	s.check()
}

// retryHeard reports whether a row says that an agent has heard a retry, which was some time ago.
func retryHeard(r *Record) bool { return r.Kind == KindStarted && r.Step >= 0 && r.Step == r.Next }

// takeover: a new owner knows only what was committed.
func (s *storm) takeover() {
	s.m.timers = nil
	s.lateRetry()
	s.crash()
	s.leave(false)
}

// successor: another owner takes the task over and sends again what is out, and the database goes back to before it. This one
// was without its lease meanwhile, and that is all that it knows.
func (s *storm) successor() {
	s.lateRetry()
	other := s.replayed()
	s.m.resumed(s.plan, other, s.now)
	s.task.Doubt(s.plan, s.now)
	s.check()
}

func (s *storm) check() {
	s.breach(s.m.checkEnd(s.plan, s.task))
	due := max(s.now, s.task.NextDue(s.plan))
	retry := s.task.Out() >= 0 && s.task.Steps[s.task.Out()].again()
	if wake := s.task.nextWake(s.plan, s.now); wake != 0 {
		due = max(due, wake)
	}
	if s.task.Active() && (s.task.Out() < 0 || retry) && !s.m.hasTimer(due) && !s.waitsForRoom() {
		s.t.Fatalf("it waits and nothing will wake it: %s", s.task)
	}
	// After the database went back a step may be done again while a later one is at work: that one's failure waits for the answer.
	beside := s.task.WentBackAt != 0 && s.task.Out() >= 0 || slices.ContainsFunc(s.task.Steps, func(st StepState) bool { return st.probing() })
	for i := range s.task.Steps {
		if s.task.State == StateProcessing && s.task.Steps[i].Status == StepFailed && beside { // the database went back, and the key of an earlier step is too old
			continue
		}
		if slices.Contains(never[s.task.State], s.task.Steps[i].Status) {
			s.t.Fatalf("a state that should be impossible: %s", s.task)
		}
	}
}

// waitsForRoom: the owner claims the task when there is room.
func (s *storm) waitsForRoom() bool {
	for i, n := range s.task.ahead(s.plan) {
		if n.verb == verbBegin && s.task.Steps[i].Awaits == 0 && n.when <= s.now {
			return true
		}
	}
	return false
}

func (s *storm) breach(what string) {
	s.t.Helper()
	if what != "" {
		s.t.Fatalf("%s\n%s", what, s.task)
	}
}

// calm: no more faults. Every agent answers, time moves on, the supervisor asks;
// the task must end (invariant 11).
func (s *storm) calm() {
	for range 200 {
		if s.task.State.Ended() {
			return
		}
		s.calmStep()
	}
	s.t.Fatalf("it does not end: %s", s.task)
}

func (s *storm) calmStep() {
	out := s.task.Out()
	if out < 0 {
		s.now = max(s.now, s.nextWake())
		kind := EventWake
		if s.task.State == StatePending {
			kind = EventOverdue
		}
		if s.task.WaitsFor != "" {
			kind = EventClaim
		}
		s.settle(Event{Kind: kind})
		return
	}
	for _, h := range s.m.open() {
		if h.try.seq == s.task.Steps[out].Out && s.now < s.task.Steps[out].Due {
			s.breach(s.m.work(h, s.now, 0, true, false))
			a := s.m.replies[len(s.m.replies)-1]
			a.end()
			s.settle(Event{Kind: EventReply, Seq: a.try.seq, Copy: a.copy, Code: a.code})
			return
		}
	}
	if s.task.Steps[out].again() {
		s.now = max(s.now, s.nextWake())
		s.settle(Event{Kind: EventWake})
		return
	}
	s.now = max(s.now, s.task.NextDue(s.plan))
	s.settle(Event{Kind: EventOverdue, Rand: 0.5})
}

func (s *storm) settle(ev Event) {
	s.must(ev)
	s.leave(false)
}

// drain lets everything that is still on its way arrive after the end.
func (s *storm) drain() {
	s.m.copies = append(s.m.copies, s.m.zombies...)
	for _, h := range s.m.open() {
		s.breach(s.m.work(h, s.now, 0, true, false))
	}
	for _, a := range s.m.replies {
		if err := s.apply(Event{Kind: EventReply, Seq: a.try.seq, Copy: a.copy, Code: a.code}); !errors.Is(err, ErrStale) {
			s.t.Fatalf("a reply after the end: %v", err)
		}
	}
	s.check()
}
