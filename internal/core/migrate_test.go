package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// migrated is the plan of a rig in another version.
func migrated(r *rig, change func(*Plan)) *Plan {
	p := *r.plan
	p.Steps = append([]Step(nil), p.Steps...)
	p.Version++
	if change != nil {
		change(&p)
	}
	p = p.WithDefaults()
	return &p
}

// move moves the task of a rig, and checks that a replay by the new version alone equals it.
func (r *rig) move(to *Plan) {
	r.t.Helper()
	ev := Event{Kind: EventMigrate, At: r.now, Actor: person, Version: to.Version, Plan: to}
	before := r.task.clone()
	if err := Apply(r.plan, r.task, &ev, &r.out); err != nil {
		r.t.Fatalf("moved: %v", err)
	}
	r.plan = to
	r.commit(before)
	if r.row.PlanVersion != to.Version || r.task.PlanVersion != to.Version {
		r.t.Fatalf("the row is of version %d, the task of %d, want %d", r.row.PlanVersion, r.task.PlanVersion, to.Version)
	}
}

// A task in the middle of its steps goes on by the new version: a step that is new comes, one that is gone does not, and
// what has begun stays as it is.
func TestMigrate(t *testing.T) {
	r := newRig(t, stepsPlan(4))
	r.birth(0)
	r.answer(0) // a is done, b is out
	r.move(migrated(r, func(p *Plan) {
		p.Steps[1].CompleteBy, p.Steps[1].AttemptsMax = 2*time.Second, 1
		p.Steps[2] = Step{Name: "new", Agent: "agent.new", After: []int{1}}
		p.Steps[3].Agent = "elsewhere"
		p.Steps = append(p.Steps, Step{Name: "e", Agent: "agent.e", After: []int{3}})
	}))
	last := r.journal[len(r.journal)-1]
	if last.Kind != KindMigrated || string(last.Result) != "[[0,1],[]]" || last.Reason != "from version 3 to version 4 of its plan" || last.Next != -1 {
		t.Fatalf("row %+v", last)
	}
	r.crash() // a new owner knows the new version alone
	for _, want := range []string{"b", "new", "d", "e"} {
		if i := r.task.Out(); i < 0 || r.plan.Steps[i].Name != want {
			t.Fatalf("step %d is out, want %s", i, want)
		}
		r.answer(0)
	}
	if r.task.State != StateProcessed {
		t.Fatal(r.task.State)
	}
	r.must(Event{Kind: EventUndo, Reason: "all of it"})
	for r.task.State == StateUndoing {
		if r.task.Out() < 0 {
			r.wait()
			continue
		}
		r.answer(0)
	}
	if r.task.State != StateUndone {
		t.Fatal(r.task.State, r.task.Why)
	}
}

// A task in error is moved, stays in error with what was said of it, and is resubmitted by the new version. It may be moved
// more than once.
func TestMigrateInError(t *testing.T) {
	p := stepsPlan(3)
	p.Steps[1].OnExhausted = PolicyError
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.answer(422)
	ended, why := r.task.EndedAt, r.task.Why
	r.now = r.now.Add(time.Second)
	r.move(migrated(r, func(p *Plan) { p.Steps[2].Agent = "elsewhere" }))
	r.move(migrated(r, func(p *Plan) { p.Steps = append(p.Steps[:2:2], Step{Name: "x", Agent: "x", After: []int{1}}) }))
	if r.task.State != StateError || r.task.EndedAt != ended || r.task.Why != why || r.task.FailedStep != 2 {
		t.Fatalf("%s, %s", r.task, r.task.Why)
	}
	r.must(Event{Kind: EventResubmit, Reason: "again"})
	r.answer(0)
	if i := r.task.Out(); r.plan.Steps[i].Name != "x" {
		t.Fatalf("step %d is out", i)
	}
	r.answer(0)
	if r.task.State != StateProcessed {
		t.Fatal(r.task.State)
	}
}

// A task that is parked for an agent that the new version does not name is not parked any more.
func TestMigrateParked(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(1)
	if r.task.State != StatePending || r.task.WaitsFor != "agent.a" {
		t.Fatal(r.task.State, r.task.WaitsFor)
	}
	r.move(migrated(r, func(p *Plan) { p.Steps[0].Agent = "roomy" }))
	if i := r.task.Out(); i != 0 || r.task.State != StateProcessing || r.task.WaitsFor != "" {
		t.Fatal(r.task)
	}
}

// One that waits for a signal by the new version, before what it was parked for, is parked no more.
func TestMigrateParkedToASignal(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(1)
	r.move(migrated(r, func(p *Plan) {
		a := p.Steps[0]
		a.After = []int{0}
		p.Steps = []Step{{Name: "approve", Kind: SignalStep}, a}
	}))
	if r.task.State != StatePending || r.task.Steps[0].Out == 0 || r.task.WaitsFor != "" {
		t.Errorf("it waits for an answer, and for %q: %s", r.task.WaitsFor, r.task)
	}
}

// After an edit has voided an answer, what has rows and waits for that answer again keeps its place: without it no owner
// could load the task.
func TestMigrateKeepsThePlacesOfRowsAfterAnEdit(t *testing.T) {
	r := newRig(t, askPlan())
	r.birth(0)
	r.answer(0)
	r.must(approval(""))
	r.refuses(2)
	r.edited()
	to := migrated(r, func(p *Plan) { p.Steps = p.Steps[:2] })
	if err := Movable(r.plan, to, r.task); err == nil {
		r.move(to)
	}
	r.move(migrated(r, func(p *Plan) { p.Steps[3].Agent = "elsewhere" }))
	r.crash()
}

func TestMigrateRefuses(t *testing.T) {
	step := func(f func(*Plan)) func(*rig) *Plan { return func(r *rig) *Plan { return migrated(r, f) } }
	for want, c := range map[string]struct {
		life func(*rig)
		to   func(*rig) *Plan
	}{
		"version 9 of its plan is not known":                          {nil, func(*rig) *Plan { return nil }},
		"it is of version 3 already":                                  {nil, func(r *rig) *Plan { return r.plan }},
		"the version is of plan other":                                {nil, step(func(p *Plan) { p.Name = "other" })},
		"step a has begun, and version 4 has another agent for it":    {nil, step(func(p *Plan) { p.Steps[0].Agent = "x" })},
		"step a has begun, and version 4 has another undoable for it": {nil, step(func(p *Plan) { p.Steps[0].Undoable = false })},
		"step a has begun, and version 4 has another kind for it":     {nil, step(func(p *Plan) { p.Steps[0].Kind = WaitStep })},
		"step a has begun, and version 4 has none of that name":       {nil, step(func(p *Plan) { p.Steps[0].Name = "x" })},
		"its input has 2 bytes, the limit of version 4 is 1":          {nil, step(func(p *Plan) { p.InputMax = 1 })},
		"step b has begun, and version 4 has another after for it":    {func(r *rig) { r.answer(0) }, step(func(p *Plan) { p.Steps[1].After = nil })},
		"step a has begun as number 1 of the list, and is number 2":   {nil, step(func(p *Plan) { p.Steps[0], p.Steps[1] = Step{Name: "x", Agent: "x"}, p.Steps[0] })},
		"step b has begun, and version 4 has another on_exhausted for it": {func(r *rig) { // and failed by the policy of the old one
			r.answer(0)
			r.answer(422)
		}, step(func(p *Plan) { p.Steps[1].OnExhausted = PolicySkip })},
		"step c has begun, and version 4 has another on_exhausted for it": {func(r *rig) { // its undo ends with the task going on without it
			r.answer(0)
			r.answer(0)
			r.answer(500)
		}, step(func(p *Plan) { p.Steps[2].OnExhausted = PolicyUndo })},
		"has another result_max, less than its result has, for it": {func(r *rig) { r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`"long"`)}) }, step(func(p *Plan) { p.Steps[0].ResultMax = 2 })},
		"step a has begun, and version 4 has another schema for it": {func(r *rig) { r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`1`)}) },
			step(func(p *Plan) { p.Steps[0].Schema = `{"type":"integer"}` })},
		"only a task that is pending, processing or in error can be moved": {func(r *rig) { r.must(Event{Kind: EventCancel}) }, step(nil)},
		"the database went back since it began":                            {func(r *rig) { r.must(Event{Kind: EventWentBack, Until: r.now}) }, step(nil)},
		"step c may have begun, and version 4 has only 2 steps": {func(r *rig) {
			r.answer(0)
			r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out, Result: []byte("1")})
		}, nil},
	} {
		p := stepsPlan(3)
		p.Steps[1].OnExhausted = PolicyError
		p.Steps[2].AttemptsMax, p.Steps[2].OnExhausted = 1, PolicySkip
		r := newRig(t, p)
		r.birth(0)
		if c.life != nil {
			c.life(r)
		}
		if c.to == nil { // c is ready, and its agent has no room
			r = newRig(t, p)
			r.birth(0)
			r.answer(0)
			r.must(Event{Kind: EventReply, Seq: r.task.Steps[1].Out, Result: []byte("1"), Full: StepSetOf(2)})
			c.to = step(func(p *Plan) { p.Steps = p.Steps[:2] })
		}
		err := r.apply(Event{Kind: EventMigrate, Version: 9, Plan: c.to(r)})
		if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	r := newRig(t, stepsPlan(1)) // an earlier round is of the old version
	r.birth(0)
	r.answer(422)
	r.must(Event{Kind: EventResubmit})
	if err := r.apply(Event{Kind: EventMigrate, Plan: migrated(r, nil)}); err == nil || !strings.Contains(err.Error(), "its earlier rounds are of version 3") {
		t.Error(err)
	}
}

// After an edit a step that begins again sees the new input, and one that goes on, or is done again as it was, its own: a version
// that a task is moved to has to take them all.
//
// covers: W12
func TestInputsThatAreSeen(t *testing.T) {
	possible := StepEffect{is: effectPossible}
	task := Task{Input: []byte("c"), Earlier: [][]byte{[]byte("a"), []byte("b")}, Steps: []StepState{
		{Status: StepRunning, Input: 1, Effect: possible}, {Status: StepWaiting, Input: 2, Effect: possible}, {Status: StepDone, Input: 1, Effect: possible},
		{Status: StepWaiting, Input: 2, Effect: possible, kind: kindEach}, {Status: StepWaiting, Input: 1, Effect: StepEffect{is: effectLost}}, {Status: StepWaiting},
	}}
	seen := ""
	for i := range task.Steps {
		seen += string(task.Seen(i))
	}
	var all []string
	for _, input := range task.Inputs() {
		all = append(all, string(input))
	}
	if got := strings.Join(all, ""); seen != "acabac" || got != "cacba" {
		t.Errorf("seen %s, all %s", seen, got)
	}
}

// Lives of random plans that are moved again and again: whatever Movable lets through, the replay by the newest version alone
// equals the live task after every event.
func TestMigrateAtRandom(t *testing.T) {
	moves := 0
	for seed := range uint64(3000) {
		draw := rand.New(rand.NewPCG(seed, 7))
		m := &mover{t: t, seed: seed, draw: draw, now: birthTime}
		p := drawnPlan(draw, 2+draw.IntN(4)).WithDefaults()
		m.plan = &p
		m.task = &Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: m.now, Input: []byte(`{}`)}
		if draw.IntN(4) == 0 {
			m.task.StartAt = m.now.Add(3 * time.Second)
		}
		Birth(m.plan, m.task, &Event{At: m.now, Actor: node, Full: StepSet{low: draw.Uint64N(4)}}, &m.out)
		m.keep()
		for range 40 {
			to := p
			to.Steps, to.Version = append([]Step(nil), m.plan.Steps...), m.plan.Version+1
			mutate(draw, &to)
			to = to.WithDefaults()
			if draw.IntN(3) > 0 || to.Validate(0) != nil || Movable(m.plan, &to, m.task) != nil {
				m.live()
				continue
			}
			moves++
			if err := Apply(m.plan, m.task, &Event{Kind: EventMigrate, At: m.now, Actor: person, Version: to.Version, Plan: &to}, &m.out); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			m.plan = &to
			m.keep()
		}
	}
	if moves < 3000 {
		t.Errorf("%d moves", moves)
	}
}

// mover is a task that lives and is moved.
type mover struct {
	t       *testing.T
	seed    uint64
	draw    *rand.Rand
	plan    *Plan
	task    *Task
	row     Task
	journal []Record
	now     Instant
	out     Outcome
}

// keep stores the outcome and checks the replay.
func (m *mover) keep() {
	m.t.Helper()
	for _, e := range m.out.Effects {
		if e.Kind == EffectEnded {
			m.task.EndNumber++
		}
	}
	m.journal = append(m.journal, m.out.Records...)
	if m.out.Row {
		m.row = *m.task.clone()
		m.row.Steps, m.row.Earlier, m.row.Input = nil, nil, []byte(`{}`)
	}
	if m.row.PlanVersion != m.plan.Version {
		m.t.Fatalf("seed %d: the row is of version %d, want %d", m.seed, m.row.PlanVersion, m.plan.Version)
	}
	if due := m.task.NextDue(m.plan); m.row.Bound > due {
		m.t.Fatalf("seed %d: the bound of the row is %d, above the true due %d", m.seed, m.row.Bound, due)
	}
	if what := stands(m.plan, m.task, m.row.Bound); what != "" {
		m.t.Fatalf("seed %d: %s", m.seed, what)
	}
	if m.task.WaitsFor != "" && m.task.Parked(m.plan) < 0 {
		m.t.Fatalf("seed %d: it waits for %s, and no step of it can begin there", m.seed, m.task.WaitsFor)
	}
	replayed, err := Replay(m.plan, &Saved{Row: m.row, Journal: m.journal})
	if err != nil {
		m.t.Fatalf("seed %d: %v", m.seed, err)
	}
	if diff := differ(m.task, replayed); diff != "" {
		m.t.Fatalf("seed %d, after %s: the replayed task differs from the live one: %s", m.seed, m.journal[len(m.journal)-1].Kind, diff)
	}
}

// drawnPlan has steps that are calls, waits or signals, each after some before it.
func drawnPlan(draw *rand.Rand, n int) Plan {
	p := Plan{Name: "drawn", Version: 3, CompleteBy: time.Hour}
	for i := range n {
		p.Steps = append(p.Steps, drawnStep(draw, fmt.Sprint("s", i), i))
	}
	return p
}

func drawnStep(draw *rand.Rand, name string, i int) Step {
	s := Step{Name: name, Agent: "agent." + name, Undoable: true, OnExhausted: []Policy{PolicyUndo, PolicyError, PolicyWait}[draw.IntN(3)], AttemptsMax: 1 + draw.IntN(2)}
	switch draw.IntN(5) {
	case 0:
		s = Step{Name: name, Kind: WaitStep, For: time.Duration(1+draw.IntN(5)) * time.Second}
	case 1:
		s = Step{Name: name, Kind: SignalStep}
	}
	for a := range i {
		if draw.IntN(2) == 0 {
			s.After = append(s.After, a)
		}
	}
	return s
}

// mutate changes a plan in one or two ways.
func mutate(draw *rand.Rand, p *Plan) {
	for range 1 + draw.IntN(2) {
		i := draw.IntN(len(p.Steps))
		switch draw.IntN(5) {
		case 0:
			p.Steps[i] = drawnStep(draw, fmt.Sprint("n", draw.IntN(1000)), i)
		case 1:
			p.Steps = append(p.Steps, drawnStep(draw, fmt.Sprint("n", draw.IntN(1000)), len(p.Steps)))
		case 2:
			if len(p.Steps) > 1 {
				p.Steps = p.Steps[:len(p.Steps)-1]
			}
		case 3:
			p.Steps[i].AttemptsMax++
		case 4:
			if p.Steps[i].Kind == CallStep {
				p.Steps[i].Agent = "elsewhere"
			}
		}
	}
}

// live lets something happen to the task. What is refused changes nothing.
func (m *mover) live() {
	draw, t := m.draw, m.task
	m.now = m.now.Add(time.Duration(draw.IntN(2000)) * time.Millisecond)
	i := draw.IntN(len(t.Steps))
	var ev Event
	switch draw.IntN(9) {
	case 0, 1, 2:
		ev = Event{Kind: EventReply, Seq: t.Steps[i].Out, Result: []byte("1")}
	case 3:
		ev = Event{Kind: EventReply, Seq: t.Steps[i].Out, Code: []int{500, 422, 503}[draw.IntN(3)], Error: "no", Rand: draw.Float64()}
	case 4:
		ev = Event{Kind: EventUnserved, Seq: t.Steps[i].Out, Rand: draw.Float64()}
	case 5:
		m.now = max(m.now, t.nextWake(m.plan, t.UpdatedAt))
		ev = Event{Kind: EventWake}
	case 6:
		ev = Event{Kind: EventSignal, Step: m.plan.Steps[i].Name, Result: []byte("1"), AskToken: t.askToken(m.plan, i)}
	case 7:
		ev = Event{Kind: EventClaim}
	case 8:
		if ev.Kind = EventResubmit; draw.IntN(2) == 0 {
			ev.Kind, ev.Input = EventEdit, []byte(`{"x":1}`)
		}
		if t.State != StateError {
			m.now = max(m.now, t.NextDue(m.plan))
			ev = Event{Kind: EventOverdue}
		}
	}
	ev.At, ev.Actor = m.now, node
	if draw.IntN(4) == 0 {
		ev.Full = StepSet{low: draw.Uint64N(64)}
	}
	if Apply(m.plan, t, &ev, &m.out) == nil {
		m.keep()
	}
}
