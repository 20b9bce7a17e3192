package core

import (
	"errors"
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var graphShow = flag.Int("graph.show", 3, "how many violations TestGraphs makes short and shows")

// TestGraphs puts tasks with random graphs of steps of all kinds through storms of events, then lets everything be
// answered. Commands, services and children are a model that knows nothing of the core's own view of them; a judge
// follows the journal by rules of its own. A life that breaks a rule is made as short as it can be.
//
//	go test ./internal/core -run TestGraphs -lives 200000 -lives.seed 1
func TestGraphs(t *testing.T) {
	seen := map[string]int{} // violations by what they say, without numbers
	w := newWitness(t, "graph")
	for i := range *lives {
		seed := *livesSeed + uint64(i)
		c := newTape(seed)
		what := liveGraph(c, nil, w)
		w.lived(seed)
		if what == "" {
			continue
		}
		t.Fail()
		rule := withoutNumbers(firstLine(what))
		if seen[rule]++; seen[rule] > 1 {
			continue
		}
		if len(seen) > *graphShow {
			t.Fatalf("seed %d: %s (and more)", seed, firstLine(what))
		}
		short, _ := shorten(c.choices, func(choices []uint16) string {
			if text := liveGraph(&tape{choices: choices}, nil, nil); withoutNumbers(firstLine(text)) == rule {
				return text
			}
			return ""
		})
		var story strings.Builder
		text := liveGraph(&tape{choices: short}, &story, nil)
		t.Logf("seed %d: %s\nshortest:\n%s%s\n", seed, firstLine(what), story.String(), text)
	}
	for rule, n := range seen {
		t.Logf("%5d × %s", n, rule)
	}
	w.judge(t)
}

// withoutNumbers is the same for violations of the same kind.
func withoutNumbers(text string) string {
	return numbers.ReplaceAllString(text, "#")
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// breach is a rule that a life broke.
type breach string

// liveGraph lives one life and says what it broke, empty: nothing. story, when not nil, is told what happens.
func liveGraph(c *tape, story *strings.Builder, w *witness) (what string) {
	return liveGraphOf(c, 0, story, w)
}

// liveGraphOf is liveGraph of a plan of so many steps; 0: of a few.
func liveGraphOf(c *tape, size int, story *strings.Builder, w *witness) (what string) {
	l := &graphLife{c: c, size: size, story: story, seen: w}
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case breach:
			what = string(cause)
		default:
			what = fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	l.begin()
	for range c.n(160) {
		l.step()
	}
	l.tell("calm")
	l.calm()
	l.drain()
	l.seen.moved(l.p, &l.row, l.journal)
	return ""
}

// graphLife is one task, the store that its owner keeps it in, and the world around it.
type graphLife struct {
	c       *tape
	size    int // steps of its plan; 0: a few, drawn
	story   *strings.Builder
	p       *Plan
	t       *Task
	now     Instant
	row     Task
	journal []Record
	out     Outcome
	ends    int64
	byHand  bool
	edits   int
	w       *graphWorld
	judge   graphJudge
	salt    int
	bad     []string // what an expression was asked that it should not have been
	owners  int      // takeovers
	again   bool     // an operator lets the task go on: what waited is asked again
	held    bool     // agents were full in the last event
	backs   bool     // the database goes back in this life
	late    func()   // judges what a reply that is too late has changed
	seen    *witness
}

func (l *graphLife) tell(format string, args ...any) {
	if l.story != nil {
		fmt.Fprintf(l.story, "%9s  %s\n", l.now.Sub(birthTime), fmt.Sprintf(format, args...))
	}
}

func (l *graphLife) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.t != nil {
		text += "\n" + l.t.String()
	}
	panic(breach(text))
}

// graphReady reports whether the core takes plans with steps that are no calls.
func graphReady() bool {
	p := Plan{Name: "x", Version: 1, Steps: []Step{{Name: "w", Kind: WaitStep, For: time.Second}}}.WithDefaults()
	return p.Validate(0) == nil
}

func (l *graphLife) drawPlan() Plan {
	c := l.c
	p := Plan{Name: "graph", Version: 1, CompleteBy: c.span(1200, 1400), Grace: c.span(1, 20)}
	if c.one(3) {
		p.CompleteBy = c.span(20, 600)
	}
	n, shape := 1+c.n(7), c.n(5)
	if shape == 2 && c.one(4) {
		n = 2 + c.n(16)
	}
	if l.size > 0 {
		n, shape = l.size, 5
	}
	all := graphReady()
	if all && c.one(8) {
		p.Result = "result"
	}
	if all && c.one(8) {
		p.UndoReserve = min(c.span(1, 50), p.CompleteBy/2)
	}
	for i := range n {
		s := Step{Name: string(rune('a' + i)), OnExhausted: choose(c, PolicyUndo, PolicyUndo, PolicyError, PolicyWait)}
		if l.size > 0 {
			s.Name = fmt.Sprintf("s%d", i)
		}
		if all && c.one(4) {
			s.OnExhausted = PolicySkip
		}
		kind := 0
		if all {
			kind = c.n(9)
		}
		s.Kind = []StepKind{CallStep, CallStep, CallStep, CallStep, CallStep, WaitStep, SignalStep, TaskStep, EachStep}[kind]
		l.drawKind(&s, &p)
		for a := range i {
			var after bool
			switch shape {
			case 0: // any
				after = c.one(2)
			case 1: // a chain
				after = a == i-1
			case 2: // a fan that is gathered
				after = a == 0 || i == n-1
			case 3: // diamonds
				after = a/2 == (i+1)/2-1
			case 4: // few
				after = c.one(4)
			}
			if after {
				s.After = append(s.After, a)
			}
		}
		if l.size > 0 {
			for range min(i, c.n(4)) {
				s.After = append(s.After, i-1-c.n(min(i, 20)))
			}
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

func (l *graphLife) drawKind(s *Step, p *Plan) {
	c := l.c
	s.CompleteBy = min(c.span(10, 200), p.CompleteBy)
	if graphReady() && c.one(4) {
		s.When = "when"
	}
	switch s.Kind {
	case CallStep:
		s.Agent, s.Undoable = "agent."+s.Name, !c.one(5)
		s.UndoCompleteBy = c.span(10, 100)
		s.AttemptsMax, s.UndoAttemptsMax = 1+c.n(3), choose(c, 0, 0, 1, 2)
		s.Backoff = c.span(1, 20)
		s.BackoffCap = max(s.Backoff, c.span(1, 40))
		s.Pause = c.span(5, 100)
		s.Probe = c.one(3)
		if c.one(4) {
			s.KeyLasts = c.span(5, 600)
		}
		if graphReady() && c.one(6) {
			s.Input = "input"
		}
		if graphReady() && c.one(6) {
			s.Least = min(c.span(1, 20), s.CompleteBy)
		}
	case WaitStep:
		s.CompleteBy = 0
		if s.For = min(c.span(1, 60), p.CompleteBy); c.one(3) {
			s.For, s.Until = 0, "until"
		}
	case TaskStep:
		s.Child, s.Undoable = "child", true
		if c.one(4) {
			s.Input = "input"
		}
	case EachStep:
		s.Undoable = true
		s.Child, s.Elements, s.ElementsMax, s.Parallel, s.FailuresMax = "child", "elements", 10, 1+c.n(4), c.n(3)
	}
}

// hash is what the expressions of a step come to: of the life and the step alone.
func (l *graphLife) hash(what, step int) int {
	h := uint32(2166136261)
	for _, v := range []int{l.salt, what, step} {
		h = (h ^ uint32(v)) * 16777619
		h ^= h >> 13
	}
	return int(h % 1000)
}

var errExpression = errors.New("no such key: gone")

// graphAsker answers the expressions, and notes those that must not be asked.
type graphAsker struct{ l *graphLife }

func (a graphAsker) asked(what string, t *Task, step int) {
	l := a.l
	for _, b := range l.p.Steps[step].After {
		if s := t.Steps[b].Status; s != StepDone && s != StepSkipped {
			l.bad = append(l.bad, fmt.Sprintf("G7: %s of step %d is asked before step %d is done or skipped", what, step, b))
		}
	}
	if s := t.Steps[step].Status; s != StepWaiting {
		l.bad = append(l.bad, fmt.Sprintf("G7: %s of step %d is asked when it is %s", what, step, s))
	}
	if s := &l.judge.steps[step]; s.begun && t.Round == l.judge.round && !l.again {
		l.bad = append(l.bad, fmt.Sprintf("G7: %s of step %d is asked again", what, step))
	}
}

func (a graphAsker) When(step int) (bool, error) {
	a.asked("when", a.l.t, step)
	if a.l.hash(0, step) < 40 {
		return false, errExpression
	}
	return a.l.when(step), nil
}

func (l *graphLife) when(step int) bool { return l.hash(0, step) < 700 }

func (a graphAsker) Input(step int) ([]byte, error) {
	a.asked("input", a.l.t, step)
	if a.l.hash(1, step) < 60 {
		return nil, errExpression
	}
	return fmt.Appendf(nil, `{"of":%d}`, step), nil
}

func (a graphAsker) Until(step int) (Instant, error) {
	a.asked("until", a.l.t, step)
	h := a.l.hash(2, step)
	if h < 60 {
		return 0, errExpression
	}
	return a.l.t.CreatedAt.Add(time.Duration(h) * 10 * time.Millisecond), nil
}

func (a graphAsker) Elements(step int) ([]byte, int, error) {
	a.asked("elements", a.l.t, step)
	h := a.l.hash(3, step)
	if h < 60 {
		return nil, 0, errExpression
	}
	n := h % 5
	return []byte("[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]"), n, nil
}

func (a graphAsker) Result() ([]byte, error) {
	for i := range a.l.t.Steps {
		if s := a.l.t.Steps[i].Status; s != StepDone && s != StepSkipped {
			a.l.bad = append(a.l.bad, fmt.Sprintf("the result is asked with step %d %s", i, s))
		}
	}
	if a.l.hash(4, 0) < 60 {
		return nil, errExpression
	}
	return []byte(`"all"`), nil
}

func (l *graphLife) begin() {
	plan := l.drawPlan().WithDefaults()
	if err := plan.Validate(0); err != nil {
		panic(fmt.Sprintf("the test's plan: %v", err))
	}
	l.p, l.now, l.salt = &plan, birthTime, l.c.n(1000)
	l.backs = l.c.one(4)
	if l.story != nil {
		for i := range plan.Steps {
			s := plan.Steps[i]
			kind := s.Kind
			if kind == CallStep {
				kind = "call"
			}
			l.tell("step %d %s after %v policy %s attempts %d complete-by %v for %v until %q when %q: %v, input %q, undoable %v", i, kind, s.After, s.OnExhausted, s.AttemptsMax, s.CompleteBy, s.For, s.Until, s.When, l.when(i), s.Input, s.Undoable)
		}
		l.tell("complete-by %v grace %v reserve %v result %q", plan.CompleteBy, plan.Grace, plan.UndoReserve, plan.Result)
	}
	l.w = newGraphWorld(l.p)
	l.judge = graphJudge{p: l.p, steps: make([]judged, len(l.p.Steps))}
	l.t = &Task{ID: "t1", Type: plan.Name, Number: 1, CreatedAt: l.now, Input: []byte(`{}`)}
	if l.c.one(6) {
		l.t.Deadline = l.now.Add(l.c.span(0, 200))
	}
	Birth(l.p, l.t, &Event{At: l.now, Actor: node, Full: l.full(), Ask: graphAsker{l}}, &l.out)
	l.commit(&Task{})
	l.seen.saw("birth", l.now, l.p, l.t, &l.out, l.journal, nil)
	l.leave(false)
}

func (l *graphLife) full() StepSet {
	if l.c.one(6) {
		full := StepSet{low: uint64(l.c.n(1 << 15))}
		for range l.size / 4 {
			full.Add(l.c.n(l.size))
		}
		return full
	}
	return StepSet{}
}

// step is one thing that happens.
func (l *graphLife) step() {
	if l.t.State.Ended() && !l.c.one(4) {
		l.people()
		return
	}
	switch what := l.c.n(53); {
	case what >= 50:
		l.asked()
	case what < 11:
		l.work()
	case what < 20:
		l.deliver()
	case what < 25:
		l.elapse()
	case what < 28:
		l.wakeUp()
	case what < 29:
		l.event(Event{Kind: EventServed})
	case what < 31:
		l.event(Event{Kind: EventOverdue, Actor: "supervisor", Node: node})
	case what < 33:
		l.event(Event{Kind: EventClaim})
	case what < 34:
		l.unserved()
	case what < 35:
		if l.c.one(3) {
			l.successor()
		} else {
			l.takeover()
		}
	case what < 36:
		l.zombie()
	case what < 40:
		l.signal()
	case what < 46:
		l.childrenEnd()
	case what < 47:
		if l.backs {
			l.event(Event{Kind: EventWentBack, Until: l.now})
		}
	default:
		l.people()
	}
}

func (l *graphLife) elapse() {
	due := l.t.NextDue(l.p)
	switch l.c.n(4) {
	case 0:
		l.now = max(l.now, due)
	case 1:
		l.now = max(l.now, due-1)
	default:
		l.now = l.now.Add(time.Duration(1+l.c.n(8000)) * time.Millisecond)
	}
}

func (l *graphLife) work() {
	open := l.w.open()
	if len(open) == 0 {
		return
	}
	h := open[l.c.n(len(open))]
	code := choose(l.c, 0, 0, 0, 0, 0, 0, CodeAgentError, CodeAgentError, CodeTooEarly, CodeRefused, CodeTooMany, CodeUnavailable)
	effect := code == 0 || code != CodeRefused && l.c.one(2)
	silent := l.c.one(5)
	l.tell("an agent works on row %d, step %d, undo %v: code %d, effect %v, silent %v", h.try.seq, h.try.key.step, h.try.undo, code, effect, silent)
	if what := l.w.work(h, l.now, code, effect, silent); what != "" {
		l.wrong("%s", what)
	}
}

// asked: an agent answers what became of a silent do, or its answer arrives.
func (l *graphLife) asked() {
	if n := len(l.w.asks); n > 0 && l.c.one(2) {
		i := l.c.n(n)
		l.tell("the agent of step %d answers about row %d", l.w.asks[i].key.step, l.w.asks[i].seq)
		l.w.askAgent(l.w.asks[i], l.now)
		l.w.asks = slices.Delete(l.w.asks, i, i+1)
	}
	if len(l.w.said) == 0 {
		return
	}
	i := l.c.n(len(l.w.said))
	a := l.w.said[i]
	if l.c.one(2) {
		l.w.said = slices.Delete(l.w.said, i, i+1)
	}
	if a.early(l.p, l.t) {
		l.w.asks = append(l.w.asks, ask{seq: a.seq, key: a.key})
		return
	}
	l.late = func() {
		if what := l.w.checkProbed(a, l.out.Records); what != "" {
			l.wrong("%s", what)
		}
	}
	l.event(Event{Kind: EventProbed, Seq: a.seq, Code: a.code, Result: []byte("2"), Actor: "agent"})
	l.late = nil
}

func (l *graphLife) deliver() {
	if len(l.w.replies) == 0 {
		return
	}
	i := l.c.n(len(l.w.replies))
	a := l.w.replies[i]
	if !l.c.one(2) {
		l.w.replies = slices.Delete(l.w.replies, i, i+1)
	}
	at := l.now
	if l.c.one(3) {
		at = a.at
	}
	l.reply(a, at)
}

// outAt is the step whose command is out under a number; -1: none.
func (l *graphLife) outAt(seq int64) int {
	for i := range l.t.Steps {
		if l.t.Steps[i].Out == seq && seq != 0 {
			return i
		}
	}
	return -1
}

func (l *graphLife) reply(a answer, at Instant) {
	i := l.outAt(a.try.seq)
	valid := i >= 0 && max(at, l.t.UpdatedAt) < l.t.Steps[i].Due && l.t.Steps[i].answers(&Event{Copy: a.copy}) && !l.t.State.Ended()
	valid = valid && !(a.code == CodeTooEarly && l.t.Steps[i].Effect.resent())
	before, owner := l.t.clone(), l.owners
	l.late = func() {
		if what := l.w.checkLate(a, l.out.Records); !valid && what != "" {
			l.wrong("%s", what)
		}
		a.end()
	}
	err := l.try(Event{Kind: EventReply, At: at, Seq: a.try.seq, Copy: a.copy, Code: a.code, Error: text(a.code), Result: []byte("1"), Actor: "agent"})
	l.late = nil
	if err == errLost || !valid {
		return
	}
	if err != nil {
		l.wrong("G3: the reply to row %d, code %d, is taken: %v, want %v (%v)", a.try.seq, a.code, err == nil, valid, err)
	}
	if err == nil && owner == l.owners {
		l.checkOthers(before, i)
	}
}

// checkOthers: an answer changes the step of its number, and lets others begin, be skipped or be undone: no other that is
// out changes.
func (l *graphLife) checkOthers(before *Task, step int) {
	for i := range l.t.Steps {
		was, is := before.Steps[i].Journalled(), l.t.Steps[i].Journalled()
		if i == step || before.Steps[i].Out == 0 || before.Steps[i].again() || l.t.Steps[i].Out != before.Steps[i].Out {
			continue
		}
		if was.Status != is.Status || was.Attempt != is.Attempt || was.Due != is.Due {
			l.wrong("G3: an answer of step %d changes step %d, whose row %d is out", step, i, was.Out)
		}
	}
	if l.t.State == StateProcessing && before.State == StateProcessing {
		for i := range l.t.Steps {
			if i != step && before.Steps[i].Out != 0 && l.t.Steps[i].Out == 0 && l.p.Steps[i].Kind == CallStep {
				l.wrong("G3: an answer of step %d ends row %d, which is out at step %d", step, before.Steps[i].Out, i)
			}
		}
	}
}

func (l *graphLife) unserved() {
	open := l.w.open()
	if len(open) == 0 {
		return
	}
	h := open[l.c.n(len(open))]
	h.done = true
	h.end()
	l.event(Event{Kind: EventUnserved, Seq: h.try.seq, Copy: h.copy})
}

func (l *graphLife) wakeUp() {
	if n := len(l.w.timers); n > 0 && !l.c.one(4) {
		i := l.c.n(n)
		l.w.timers = slices.Delete(l.w.timers, i, i+1)
	}
	l.event(Event{Kind: EventWake})
}

func (l *graphLife) zombie() {
	if n := len(l.w.zombies); n > 0 {
		l.w.copies = append(l.w.copies, l.w.zombies[n-1])
		l.w.zombies = l.w.zombies[:n-1]
	}
}

// signal is a person or a program that answers a signal step, whether it is asked or not.
func (l *graphLife) signal() {
	var steps []int
	for i := range l.p.Steps {
		if l.p.Steps[i].Kind == SignalStep {
			steps = append(steps, i)
		}
	}
	if len(steps) == 0 {
		return
	}
	step := steps[l.c.n(len(steps))]
	ev := Event{Kind: EventSignal, Step: l.p.Steps[step].Name, Result: fmt.Appendf(nil, `"signal %d"`, l.c.n(100)), Actor: person, Node: node}
	if l.c.one(6) {
		ev.Result, ev.Code, ev.Error = nil, CodeRefused, "no"
	}
	l.sendSignal(step, ev)
}

func (l *graphLife) sendSignal(step int, ev Event) {
	s, taken := l.t.Steps[step], l.judge.steps[step].signalled
	if ev.AskToken == "" {
		ev.AskToken = l.t.askToken(l.p, step)
	}
	inTime := s.Status == StepRunning && max(l.now, l.t.UpdatedAt) < s.Due
	err := l.try(ev)
	if inTime && err != nil && err != errLost {
		l.wrong("G8: a signal that step %d waits for is not taken: %v", step, err)
	}
	if err == nil && taken && s.Status != StepRunning {
		l.wrong("G8: a second signal of step %d is taken", step)
	}
	if err == nil && s.Status == StepRunning && ev.Code == 0 {
		if is := &l.t.Steps[step]; is.Status != StepDone || string(is.Result) != string(ev.Result) {
			l.wrong("G8: the signal of step %d is taken, and the step is %s with %s", step, is.Status, is.Result)
		}
	}
}

// childrenEnd lets the children of a step come to their end, and tells the parent.
func (l *graphLife) childrenEnd() {
	all := l.w.broods()
	if len(all) == 0 {
		return
	}
	l.endBrood(all[l.c.n(len(all))], l.c.n(8))
}

// endBrood ends the children: how below 5 well, 5 and 6 otherwise without an effect left, 7 with one.
func (l *graphLife) endBrood(b *brood, how int) {
	ev := Event{Kind: EventChild, Seq: b.seq, Result: []byte(`"child"`)}
	undo := b.undoSeq != 0
	if undo {
		ev.Seq, ev.Result = b.undoSeq, nil
	}
	was := *b
	switch b.open = false; {
	case undo && how < 7:
		b.live = false
	case undo:
		b.gaveUp = true
		ev.Code, ev.Error = CodeRefused, "a child's undo gave up"
	case how < 5:
	case how < 7:
		b.live, b.failed = false, true
		ev.Code, ev.Error, ev.Result = CodeRefused, "a child is undone", nil
	default:
		b.failed = true
		ev.Code, ev.Error, ev.Result = CodeAgentError, "a child is in error", nil
	}
	l.tell("the children of step %d end: undo %v, code %d", b.key.step, undo, ev.Code)
	if err := l.try(ev); err == errLost {
		*b = was // their end and what it means for the parent are one commit
	}
}

func (l *graphLife) people() {
	switch who := l.c.n(16); {
	case who < 3:
		l.event(Event{Kind: EventCancel, Actor: "client", Node: node})
	case who < 5:
		if l.t.State == StateUndone {
			l.undoOnceMore()
			return
		}
		ev := Event{Kind: EventUndo, Actor: person, Node: node}
		if l.c.one(2) {
			ev.Found = l.w.found(l.p, l.t, EventUndo)
		}
		l.event(ev)
	case who < 9:
		ev := Event{Kind: EventResubmit, Actor: person, Node: node}
		if l.c.one(2) {
			ev.Found = l.w.found(l.p, l.t, EventResubmit)
		}
		if l.c.one(2) {
			ev.Until = l.now.Add(l.c.span(1, 100))
		}
		l.event(ev)
	case who < 10:
		l.event(Event{Kind: EventExtend, Actor: person, Until: l.now.Add(time.Duration(l.c.n(100)) * time.Second)})
	case who < 11:
		l.event(Event{Kind: EventPoison, Error: "refused by the database"})
	case who < 13:
		l.accept()
	case who < 14:
		l.edits++
		l.event(Event{Kind: EventEdit, Actor: person, Node: node, Input: fmt.Appendf(nil, `{"edit":%d}`, l.edits)})
	default:
		round, was := l.t.Round, l.w.settled[l.t.Round]
		l.w.settled[round] = true
		if l.try(Event{Kind: EventResolve, Actor: person, As: choose(l.c, StateProcessed, StateUndone)}) != nil {
			l.w.settled[round] = was
		}
	}
}

// undoOnceMore: the service of a step still has an effect of an undone task, whatever the journal says.
func (l *graphLife) undoOnceMore() {
	i := l.c.n(len(l.p.Steps))
	if l.p.Steps[i].Kind == CallStep {
		l.late = func() { l.w.effect(effectKey{l.t.Round, i}).live, l.w.settled[l.t.Round] = true, false }
	}
	l.event(Event{Kind: EventUndo, Actor: person, Node: node, Step: l.p.Steps[i].Name})
	l.late = nil
}

// accept: a person does by hand what the failed step should have done, and says so.
func (l *graphLife) accept() {
	at := -1
	if l.t.State == StateError {
		at, _ = l.t.stoppedAt(l.p, "")
	}
	undo := func() {}
	if at >= 0 {
		k := effectKey{l.t.Round, at}
		was, e := *l.w.effect(k), l.w.effect(k)
		undo = func() { *e = was; delete(l.w.hand, k) }
		if l.w.hand[k] = true; l.p.Steps[at].Kind == CallStep {
			e.live = true
		}
	}
	if err := l.try(Event{Kind: EventAccept, Actor: person, Node: node, Result: []byte(`"by hand"`)}); err != nil {
		undo()
	} else if at < 0 {
		l.wrong("accepted, and no step had stopped")
	}
}

func (l *graphLife) event(ev Event) { _ = l.try(ev) }

// try applies ev, or loses it with a crash before the commit; its effects leave, or are lost with a crash after it.
func (l *graphLife) try(ev Event) error {
	ev.Rand = float64(l.c.n(1000)) / 1000
	ev.Full, ev.Ask = l.full(), graphAsker{l}
	if ev.Actor == "" {
		ev.Actor = node
	}
	if l.backs && l.t.State.Ended() && l.c.one(10) {
		ev.WentBack = l.now
	}
	if l.c.one(40) {
		lost := ev
		lost.At = max(lost.At, l.now)
		var out Outcome
		l.tell("event %s is lost with its owner", eventName(ev.Kind))
		_ = Apply(l.p, l.t, &lost, &out)
		l.takeover()
		return errLost
	}
	if err := l.apply(ev); err != nil {
		return err
	}
	if l.late != nil {
		l.late()
	}
	lost := l.c.one(25)
	l.leave(lost)
	if lost {
		l.takeover()
	}
	return nil
}

func eventName(k EventKind) string {
	for name, kind := range eventKinds {
		if kind == k {
			return name
		}
	}
	return map[EventKind]string{EventWentBack: "went-back", EventSignal: "signal", EventChild: "child"}[k]
}

func (l *graphLife) apply(ev Event) error {
	if ev.At == 0 {
		ev.At = l.now
	}
	before := l.t.clone()
	l.held = !ev.Full.Empty()
	l.bad = nil
	l.again = ev.Kind == EventResubmit || ev.Kind == EventEdit || ev.Kind == EventAccept
	err := Apply(l.p, l.t, &ev, &l.out)
	if len(l.bad) > 0 {
		l.wrong("%s (event %s)", l.bad[0], eventName(ev.Kind))
	}
	if err != nil {
		l.tell("event %s seq %d %s: %v", eventName(ev.Kind), ev.Seq, ev.Step, err)
		if !errors.Is(err, ErrStale) && !errors.Is(err, ErrNotAllowed) {
			l.wrong("event %s: %v", eventName(ev.Kind), err)
		}
		if diff := differ(before, l.t); diff != "" {
			l.wrong("refused (%v), but the task changed: %s", err, diff)
		}
		if len(l.out.Records) != 0 || len(l.out.Effects) != 0 || l.out.Row {
			l.wrong("refused (%v), but the outcome is not empty: %+v", err, l.out)
		}
		l.seen.saw(eventName(ev.Kind), ev.At, l.p, l.t, &l.out, l.journal, err)
		return err
	}
	l.tell("event %s seq %d code %d %s full %b", eventName(ev.Kind), ev.Seq, ev.Code, ev.Step, ev.Full.low)
	if ev.Kind == EventResolve {
		l.byHand = true
	} else if len(l.out.Records) > 0 && l.t.Round > before.Round {
		l.byHand = false
	}
	l.commit(before)
	l.seen.saw(eventName(ev.Kind), ev.At, l.p, l.t, &l.out, l.journal, nil)
	return nil
}

// commit stores the outcome as a store would, and judges it.
func (l *graphLife) commit(before *Task) {
	for _, e := range l.out.Effects {
		if e.Kind == EffectEnded {
			l.ends++
			l.t.EndNumber = l.ends
		}
	}
	for i := range l.out.Records {
		r := &l.out.Records[i]
		l.tell("  row %d: %s %s step %d %s.%d → %d.%d undo %v due %s quiet %d input %s %s%s", r.Seq, r.Kind, r.State, r.Step, r.StepStatus, r.Attempt, r.Next, r.NextAttempt, r.Undo, sinceBirth(r.Due), r.EffectsPossibleUntil, r.Input, r.Error, r.Reason)
		if what := l.judge.take(r, l.when); what != "" {
			l.wrong("%s", what)
		}
		l.journal = append(l.journal, *r)
	}
	for _, e := range l.out.Effects {
		l.tell("  effect %s step %d seq %d at %s again %v", effectName(e.Kind), e.Step, e.Seq, sinceBirth(e.At), e.Again)
	}
	if l.out.Row {
		input := l.row.Input
		l.row = *l.t.clone()
		l.row.Steps, l.row.Earlier = nil, nil
		if input != nil {
			l.row.Input = input
		}
	}
	l.check(before)
}

func sinceBirth(at Instant) string {
	if at == 0 {
		return "-"
	}
	return at.Sub(birthTime).String()
}

func effectName(k EffectKind) string {
	return []string{"", "do", "undo", "wake", "received", "ended", "alert", "children", "undo-children", "probe"}[k]
}

// check holds everything that must be true after any event.
func (l *graphLife) check(before *Task) {
	t := l.t
	if what := rowColumns(before, t); what != "" && !l.out.Row {
		l.wrong("%s changed, but the row is not written", what)
	}
	due := t.NextDue(l.p)
	if l.row.Bound > due {
		l.wrong("G4: the bound of the row is %s, above the true due %s", sinceBirth(l.row.Bound), sinceBirth(due))
	}
	if what := stands(l.p, t, l.row.Bound); what != "" {
		l.wrong("G4: %s", what)
	}
	if t.State.Ended() != (due == 0) {
		l.wrong("G4: an unended task has no due time, or an ended one has")
	}
	if e := t.State.Ended(); e != (t.EndedAt != 0) || e != (t.EndNumber != 0) {
		l.wrong("%s, ended at %d with end number %d", t.State, t.EndedAt, t.EndNumber)
	}
	replayed, err := Replay(l.p, &Saved{Row: l.row, Journal: l.journal})
	if err != nil {
		l.wrong("replay: %v", err)
	}
	if diff := differ(t, replayed); diff != "" {
		for i := range t.Steps {
			if live, is := t.Steps[i].Journalled(), replayed.Steps[i].Journalled(); !reflect.DeepEqual(live, is) {
				diff = fmt.Sprintf("step %d\n%+v\n%+v", i, is, live)
			}
		}
		l.wrong("the replayed task differs from the live one: %s", diff)
	}
	for i := range t.Steps {
		l.checkStep(i, due)
	}
	if t.WaitsFor != "" && t.Parked(l.p) < 0 {
		l.wrong("it waits for %s, and no step of it can begin there", t.WaitsFor)
	}
	if what := l.w.checkGraphEnd(l.p, t); what != "" && !l.byHand {
		l.wrong("%s", what)
	}
}

func (l *graphLife) checkStep(i int, due Instant) {
	t, s, kind := l.t, &l.t.Steps[i], l.p.Steps[i].Kind
	if s.Status == StepRunning && s.Out == 0 {
		if asks := s.probing() && l.p.Steps[i].Probe && t.State == StateProcessing; !asks {
			l.wrong("step %d runs with nothing out", i)
		}
		if due > s.Due {
			l.wrong("G4: the task is due at %s, and its agent is asked until %s", sinceBirth(due), sinceBirth(s.Due))
		}
	}
	if s.Out != 0 && !s.again() && due > s.Due && !(t.State == StateUndoing && kind.Parent()) { // they are undone
		l.wrong("G4: the task is due at %s, and step %d at %s", sinceBirth(due), i, sinceBirth(s.Due))
	}
	if s.Out == 0 {
		s = nil
	}
	switch {
	case s == nil:
	case t.State.Ended():
		l.wrong("row %d is out at step %d of a task that has ended", s.Out, i)
	case t.State == StatePending && (kind == CallStep || kind == EachStep):
		l.wrong("G10: row %d is out at step %d of a task that is not in memory", s.Out, i)
	case s.Status == StepUndoing:
	case t.State == StateUndoing && (kind == WaitStep || kind == SignalStep):
		l.wrong("step %d, a %s, is awaited in a task that is undone", i, kind)
	}
	if t.State == StateProcessed && !l.byHand && t.Steps[i].Status != StepDone && t.Steps[i].Status != StepSkipped {
		l.wrong("processed with step %d %s", i, t.Steps[i].Status)
	}
}

// leave hands the effects of the outcome to the world.
func (l *graphLife) leave(lost bool) {
	at := l.now
	if n := len(l.out.Records); n > 0 && !retryHeard(&l.out.Records[n-1]) { // as decided, which is never later than now
		at = l.out.Records[n-1].At
	}
	for _, e := range l.out.Effects {
		switch e.Kind {
		case EffectDo, EffectUndo:
			l.send(e, at, lost)
		case EffectProbe:
			l.w.asks = append(l.w.asks, ask{seq: e.Seq, key: effectKey{l.t.Round, e.Step}})
		case EffectWake:
			l.w.timers = append(l.w.timers, e.At)
		case EffectChildren:
			if kind := l.p.Steps[e.Step].Kind; !kind.Parent() {
				l.wrong("G5: step %d, a %s, has children", e.Step, kind)
			}
			if s := &l.t.Steps[e.Step]; s.Out != e.Seq && l.t.State != StateUndoing && !l.t.State.Ended() {
				l.wrong("G5: children of step %d are born by row %d, and out is row %d", e.Step, e.Seq, s.Out)
			}
			l.w.bear(e, l.t.Round)
		case EffectUndoChildren:
			if what := l.w.checkUndo(l.p, l.t, e.Step, at); what != "" {
				l.wrong("%s", what)
			}
			l.w.undoBrood(e, l.t.Round)
		}
	}
	for i := range l.t.Steps {
		if s := &l.t.Steps[i]; s.Out != 0 && s.Status == StepRunning && l.p.Steps[i].Kind.Parent() && l.w.children[effectKey{l.t.Round, i}] == nil {
			l.wrong("G5: step %d runs, and its children are not born", i)
		}
	}
	l.checkTimer()
}

func (l *graphLife) send(e Effect, at Instant, lost bool) {
	k := effectKey{l.t.Round, e.Step}
	if l.p.Steps[e.Step].Kind != CallStep {
		l.wrong("a command leaves for step %d, which is no call", e.Step)
	}
	what := ""
	if e.Kind == EffectUndo {
		what = l.w.checkUndo(l.p, l.t, e.Step, at)
	} else {
		switch {
		case l.w.hand[k]:
			what = fmt.Sprintf("a do of step %d leaves, which was done by hand", e.Step)
		case l.w.effect(k).tombstone && !l.w.settled[l.t.Round]:
			what = fmt.Sprintf("a do of step %d leaves after its undo", e.Step)
		case l.t.State != StateProcessing && l.journal[e.Seq-1].State != StateProcessing: // or a later row of the same event ended that
			what = fmt.Sprintf("G1: a do of step %d leaves in a task that is %s", e.Step, l.t.State)
		}
	}
	if what != "" {
		l.wrong("%s", what)
	}
	l.w.send(e, l.t.Round, lost)
}

// checkTimer: what is in memory and waits for nobody's answer is woken.
func (l *graphLife) checkTimer() {
	if !l.t.Active() {
		return
	}
	for i := range l.t.Steps {
		if s := &l.t.Steps[i]; s.Out != 0 && !s.again() {
			return
		}
	}
	if l.held { // a branch that waits for room: its owner lets it begin
		return
	}
	due := max(l.now, l.t.NextDue(l.p))
	for i := range l.t.Steps {
		if s := &l.t.Steps[i]; s.again() {
			due = max(due, s.Heard)
		}
	}
	// That the database went back may let another undo leave earlier: its owner resumes the task then, or the supervisor asks.
	if !l.w.hasTimer(due) && l.journal[len(l.journal)-1].Kind != KindWentBack {
		l.wrong("it waits and nothing will wake it until %s", sinceBirth(due))
	}
}

// takeover: a new owner knows only what was committed.
func (l *graphLife) takeover() {
	l.w.timers = nil
	l.owners++
	committed, err := Replay(l.p, &Saved{Row: l.row, Journal: l.journal})
	if err != nil {
		l.wrong("replay: %v", err)
	}
	l.lateRetry(committed)
	l.t = committed
	l.tell("takeover: %s", l.t)
	Resume(l.p, l.t, l.now, &l.out)
	for _, e := range l.out.Effects {
		l.tell("  effect %s step %d seq %d at %s again %v", effectName(e.Kind), e.Step, e.Seq, sinceBirth(e.At), e.Again)
	}
	if len(l.out.Records) != 0 || l.out.Row {
		l.wrong("Resume journals: %+v", l.out)
	}
	l.seen.saw("takeover", l.now, l.p, l.t, &l.out, l.journal, nil)
	l.leave(false)
}

// lateRetry: an owner that has lost the task may let a retry leave yet.
func (l *graphLife) lateRetry(committed *Task) {
	for i := range committed.Steps {
		if committed.Steps[i].Awaits != 0 && l.c.one(3) {
			l.w.lateRetry(l.p, committed, i, l.now)
		}
	}
}

// successor: see storm.successor.
func (l *graphLife) successor() {
	other, err := Replay(l.p, &Saved{Row: l.row, Journal: l.journal})
	if err != nil {
		l.wrong("replay: %v", err)
	}
	l.lateRetry(other)
	l.w.resumed(l.p, other, l.now)
	l.t.Doubt(l.p, l.now)
	l.tell("a successor of which nothing is stored: %s", l.t)
}

// calm: no more faults. Every agent answers, children end, time moves on, the supervisor asks; the task must end.
func (l *graphLife) calm() {
	idle := 0
	for range 600 {
		if l.t.State.Ended() {
			return
		}
		seq, now, open := l.t.Seq, l.now, len(l.w.broods())+len(l.w.open())
		if l.calmStep(); seq != l.t.Seq || now != l.now || open != len(l.w.broods())+len(l.w.open()) {
			idle = 0
		} else if idle++; idle > 4 {
			l.wrong("it does not go on")
		}
	}
	l.wrong("it does not end")
}

func (l *graphLife) settle(ev Event) error {
	ev.Rand, ev.Ask = 0.5, graphAsker{l}
	if ev.Actor == "" {
		ev.Actor = node
	}
	if err := l.apply(ev); err != nil {
		return err
	}
	if l.late != nil {
		l.late()
	}
	l.leave(false)
	return nil
}

func (l *graphLife) calmStep() {
	for _, h := range l.w.open() {
		i := l.outAt(h.try.seq)
		if i < 0 || l.now >= l.t.Steps[i].Due {
			continue
		}
		if what := l.w.work(h, l.now, 0, true, false); what != "" {
			l.wrong("%s", what)
		}
		a := l.w.replies[len(l.w.replies)-1]
		l.late = a.end
		_ = l.settle(Event{Kind: EventReply, Seq: a.try.seq, Copy: a.copy, Code: a.code})
		l.late = nil
		return
	}
	if broods := l.w.broods(); len(broods) > 0 {
		b := broods[0]
		b.open = false
		ev := Event{Kind: EventChild, Seq: b.seq, Result: []byte(`"child"`)}
		if b.undoSeq != 0 {
			b.live, ev.Seq, ev.Result = false, b.undoSeq, nil
		}
		l.tell("the children of step %d end", b.key.step)
		_ = l.settle(ev)
		return
	}
	next := l.t.NextDue(l.p)
	for _, at := range l.w.timers {
		next = min(next, at)
	}
	l.now = max(l.now, next)
	l.w.timers = slices.DeleteFunc(l.w.timers, func(at Instant) bool { return at <= l.now })
	woken := l.settle(Event{Kind: EventWake}) == nil
	if l.t.State == StatePending && l.t.WaitsFor != "" {
		woken = l.settle(Event{Kind: EventClaim}) == nil || woken
	}
	if !l.t.State.Ended() && l.now >= l.t.NextDue(l.p) || !woken {
		_ = l.settle(Event{Kind: EventOverdue})
	}
}

// drain lets everything that is still on its way arrive after the end.
func (l *graphLife) drain() {
	l.w.copies = append(l.w.copies, l.w.zombies...)
	for _, h := range l.w.open() {
		if what := l.w.work(h, l.now, 0, true, false); what != "" {
			l.wrong("%s", what)
		}
	}
	for _, a := range l.w.replies {
		if err := l.apply(Event{Kind: EventReply, Seq: a.try.seq, Copy: a.copy, Code: a.code, Actor: "agent"}); !errors.Is(err, ErrStale) {
			l.wrong("a reply after the end: %v", err)
		}
	}
	if what := l.w.checkGraphEnd(l.p, l.t); what != "" && !l.byHand {
		l.wrong("%s", what)
	}
}
