package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

const (
	// weightLeast is how many observations a step must have for questions about it to be answered.
	weightLeast = 30
	// shapeFor is how long a question may be answered by what was known, of each shapeSteps steps that a plan has: to look at
	// all that is known of a thousand steps is work.
	shapeFor   = time.Second
	shapeSteps = 64
)

// defaultSeriesMax is how many steps and agents a book knows by default: about 2 KB each while they are in use.
const defaultSeriesMax = 4096

// Key names what durations belong to: a step of a plan version, or with an empty Type the agent Step.
type Key struct {
	Type    string
	Version int64
	Step    string
}

// series is what a book knows of a key.
type series struct {
	wait, run Histogram // of this node
	others    *series   // of the other nodes, as last read; nil: none
	changed   bool      // since it was last stored
}

// Book is what is known of durations.
type Book struct {
	max int

	mu      sync.RWMutex
	series  map[Key]*series
	shapes  map[Key]*shape // by plan version; Step is empty
	counted [Bins]Bin
}

// NewBook makes a book of so many steps and agents at most; 0: defaultSeriesMax. With more, those that have not been
// seen for longest are forgotten.
func NewBook(most int) *Book {
	return &Book{max: cmp.Or(most, defaultSeriesMax), series: map[Key]*series{}, shapes: map[Key]*shape{}}
}

// of is the series of a key, made if need be. The book is locked.
func (b *Book) of(k Key) *series {
	s := b.series[k]
	if s != nil {
		return s
	}
	if len(b.series) >= b.max {
		b.evict()
	}
	s = &series{}
	b.series[k] = s
	return s
}

// evict forgets the oldest part in sixteen. The book is locked.
func (b *Book) evict() {
	keys := make([]Key, 0, len(b.series))
	for k := range b.series {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y Key) int { return cmp.Compare(b.series[x].newest(), b.series[y].newest()) })
	for _, k := range keys[:max(1, len(keys)/16)] {
		delete(b.series, k)
	}
}

func (s *series) newest() core.Instant {
	at := max(s.wait.at, s.run.at)
	if s.others != nil {
		at = max(at, s.others.newest())
	}
	return at
}

// all is both histograms over all nodes.
func (s *series) all() (wait, run Histogram) {
	wait.Merge(&s.wait)
	run.Merge(&s.run)
	if s.others != nil {
		wait.Merge(&s.others.wait)
		run.Merge(&s.others.run)
	}
	return wait, run
}

// Waited notes for how long a step waited for room at its agent, from when it could begin.
func (b *Book) Waited(plan *core.Plan, step int, d time.Duration, at core.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(plan, step, at, func(s *series) { s.wait.Add(d, at) })
}

// Ran notes how long a step took, from its begin to its end, attempts included.
func (b *Book) Ran(plan *core.Plan, step int, d time.Duration, at core.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(plan, step, at, func(s *series) { s.run.Add(d, at) })
}

// Failed notes that a step came to no end.
func (b *Book) Failed(plan *core.Plan, step int, at core.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(plan, step, at, func(s *series) { s.run.AddNever(at) })
}

// note changes the series of a step, and of its agent. The book is locked.
func (b *Book) note(plan *core.Plan, step int, _ core.Instant, change func(*series)) {
	is := &plan.Steps[step]
	for _, k := range []Key{{plan.Name, plan.Version, is.Name}, {Step: is.Agent}} {
		if k.Step == "" {
			continue // a step without an agent
		}
		s := b.of(k)
		s.changed = true
		change(s)
	}
}

// shape is a plan with what is known of its steps, at most shapeFor old for each shapeSteps of them.
func (b *Book) shape(p *core.Plan, now core.Instant) *shape {
	k := Key{Type: p.Name, Version: p.Version}
	b.mu.RLock()
	s := b.shapes[k]
	b.mu.RUnlock()
	if s != nil && len(s.run) == len(p.Steps) && now.Sub(s.at) < shapeFor*time.Duration(1+(len(p.Steps)-1)/shapeSteps) && now >= s.at {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s = b.draw(p, now)
	if len(b.shapes) >= b.max { // of versions that no one asks about any more
		clear(b.shapes)
	}
	b.shapes[k] = s
	return s
}

// draw makes a shape. The book is locked.
func (b *Book) draw(p *core.Plan, now core.Instant) *shape {
	s := &shape{at: now, wait: make([]*table, len(p.Steps)), run: make([]*table, len(p.Steps))}
	var unknown core.StepBuilder
	middle := func(i int) float64 { return (float64(i) + 0.5) / samples }
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Kind == core.WaitStep && step.For > 0 {
			s.run[i] = constant(step.For)
			continue
		}
		var wait, run Histogram
		if own := b.series[Key{p.Name, p.Version, step.Name}]; own != nil {
			wait, run = own.all()
		}
		if run.Weight() < weightLeast && step.Agent != "" {
			if agent := b.series[Key{Step: step.Agent}]; agent != nil {
				wait, run = agent.all()
			}
		}
		if run.Weight() < weightLeast {
			unknown.Add(i)
			continue
		}
		s.newest = max(s.newest, run.at, wait.at)
		s.run[i] = new(table)
		run.table(s.run[i][:], middle, true)
		if wait.Weight() >= weightLeast {
			s.wait[i] = new(table)
			wait.table(s.wait[i][:], middle, true)
		}
	}
	s.unknown = unknown.Set()
	return s
}

func constant(d time.Duration) *table {
	t := new(table)
	for i := range t {
		t[i] = toMS(d)
	}
	return t
}

// Needs is how long a task takes that has not begun, in a part q of the cases: its plan's critical path at that quantile,
// without its reserve for undo. known is false where the history is too short. newest is when anything of it was last observed.
func (b *Book) Needs(p *core.Plan, q float64, now core.Instant) (d time.Duration, newest core.Instant, known bool) {
	s := b.shape(p, now)
	d, known = s.whole(p, q)
	return d, s.newest, known
}

func needs(s *shape, p *core.Plan, progress []Progress, limits bool, q float64) (time.Duration, bool) {
	var room [16]open
	steps, known := s.ask(p, progress, limits, room[:0])
	if !known {
		return 0, false
	}
	return quantile(steps, q)
}

// Left is how much time a parked task needs yet when it goes on now, in a part fresh of the cases if it has not begun, else
// in a part begun; 0 where that is not known.
func (b *Book) Left(p *core.Plan, t *core.Task, fresh, begun float64, now core.Instant) time.Duration {
	var ended core.StepBuilder
	q := fresh
	for i := range t.Steps {
		switch t.Steps[i].Status {
		case core.StepDone, core.StepSkipped:
			ended.Add(i)
		}
	}
	over := ended.Set()
	if !over.Empty() {
		q = begun
	}
	return b.shape(p, now).left(p, over, q)
}

// Chance is how likely a task makes its deadline that is so far, and has so much time left. known is false where the
// history of a step that is still open is too short.
func (b *Book) Chance(p *core.Plan, progress []Progress, left time.Duration, now core.Instant) (is float64, known bool) {
	var room [16]open
	steps, known := b.shape(p, now).ask(p, progress, true, room[:0])
	if !known {
		return 0, false
	}
	return chance(steps, left), true
}

// progressOf is how far the steps of a task in memory are. When a step began is known of its first attempt only.
func progressOf(p *core.Plan, t *core.Task, now core.Instant) []Progress {
	all := make([]Progress, len(p.Steps))
	for i := range t.Steps {
		s, is := &t.Steps[i], &all[i]
		switch s.Status {
		case core.StepDone, core.StepSkipped:
			is.Over = true
		case core.StepRunning:
			is.Begun = true
			switch {
			case s.Due == 0:
			case p.Steps[i].Kind == core.WaitStep:
				is.Known = max(s.Due.Sub(now), time.Microsecond)
			case s.Attempt <= 1:
				is.For = max(0, now.Sub(s.Due.Add(-p.Steps[i].CompleteBy)))
			}
		default:
			is.Begun = s.Attempt > 0 // between two attempts
		}
	}
	return all
}

// Bins is into how many parts the chances are divided that are compared with what became of the tasks.
const Bins = 10

// Bin is what became of the tasks whose chance was within a tenth.
type Bin struct {
	Said float64 // sum of their chances
	N    int64   // answers
	Made int64   // of tasks that made their deadline
}

// Check notes what was said of a task, and whether it made its deadline.
func (b *Book) Check(said float64, made bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bin := &b.counted[min(int(said*Bins), Bins-1)]
	bin.N++
	bin.Said += said
	if made {
		bin.Made++
	}
}

// Calibration is what was said compared with what became of it, since the process began.
func (b *Book) Calibration() [Bins]Bin {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.counted
}

// Row is what is stored of a key.
type Row struct {
	Key
	At   core.Instant // of the newest observation
	Data []byte
}

// Changed returns the rows of this node that have changed since it was last called, up to a number of them.
func (b *Book) Changed(most int) []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []Row
	for k, s := range b.series {
		if !s.changed || len(rows) == most {
			continue
		}
		s.changed = false
		data, _ := s.wait.AppendBinary(nil) // it does not fail
		data, _ = s.run.AppendBinary(data)
		rows = append(rows, Row{Key: k, At: max(s.wait.at, s.run.at), Data: data})
	}
	return rows
}

// Restore takes the rows of this node's earlier life, and keeps what it has observed since.
func (b *Book) Restore(rows []Row) error { return b.take(rows, true) }

// Others takes the rows of all other nodes, in place of those that were taken before. A row that cannot be read is left
// out, and is the error.
func (b *Book) Others(rows []Row) error { return b.take(rows, false) }

func (b *Book) take(rows []Row, own bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !own {
		for _, s := range b.series {
			s.others = nil
		}
	}
	var bad error
	for i := range rows {
		r := &rows[i]
		wait, rest, err := decodeHistogram(r.Data)
		var run Histogram
		if err == nil {
			run, _, err = decodeHistogram(rest)
		}
		if err != nil {
			bad = fmt.Errorf("forecast of %s version %d step %s: %w", r.Type, r.Version, r.Step, err)
			continue
		}
		s := b.of(r.Key)
		if !own {
			if s.others == nil {
				s.others = &series{}
			}
			s = s.others
		}
		s.wait.Merge(&wait)
		s.run.Merge(&run)
	}
	clear(b.shapes)
	return bad
}
