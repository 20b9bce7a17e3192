package forecast

import (
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// samples is how many ways each question is played through. A chance is known to one part in so many.
const samples = 256

// draws has, for each step of a plan, a permutation of the samples: which of its durations a step draws in each. They are
// made by a fixed generator, so that an answer never depends on the process that gives it.
var draws = sync.OnceValue(func() *[2 * core.StepsMax][samples]uint8 {
	all := new([2 * core.StepsMax][samples]uint8)
	state := uint64(0x9E3779B97F4A7C15)
	next := func(n int) int { // splitmix64
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return int((z ^ z>>31) % uint64(n))
	}
	for i := range all {
		for s := range all[i] {
			all[i][s] = uint8(s)
		}
		for s := samples - 1; s > 0; s-- {
			j := next(s + 1)
			all[i][s], all[i][j] = all[i][j], all[i][s]
		}
	}
	return all
})

// Progress is how far a step is.
type Progress struct {
	Over  bool          // done or skipped: nothing follows from it
	Begun bool          // it runs, or is between two attempts
	For   time.Duration // for how long: since it began, or since it could begin; 0: not known
	Known time.Duration // of a wait that has begun, when it is over, from now; 0: not known
	// NotBefore is how long from now a step that has not begun is kept back; 0: it is not.
	NotBefore time.Duration
}

// table is the durations of a step by quantile, in rising order, in milliseconds.
type table = [samples]float32

// shape is a plan with the durations of its steps, as of an instant. Nothing but lefts of it changes.
type shape struct {
	at        core.Instant
	wait, run []*table     // by step; nil: it does not wait; its runs are not known
	unknown   core.StepSet // steps whose durations are not known
	newest    core.Instant

	mu       sync.Mutex
	lefts    map[core.StepSetKey]time.Duration // answers of left, by which steps are over
	takes    time.Duration                     // the answer of whole
	isKnown  bool
	quantile float64 // of which that is; 0: whole was not asked yet
}

// open is one step of a question.
type open struct {
	step      int
	wait, run *table
	// What of the tables can still be: those durations that are longer than what has passed.
	waitFrom, runFrom int
	waited, ran       float32 // what has passed
	after             []int   // steps that it waits for, and that are open
	least             float32 // a call must begin so long before the deadline
	notBefore         float32 // it cannot begin before
}

// ask prepares a question about a task that is so far; progress nil: it has not begun. With limits it counts when calls
// must begin at the latest. It reports false where a step that is open is not known.
func (s *shape) ask(p *core.Plan, progress []Progress, limits bool, steps []open) (asked []open, known bool) {
	var ended core.StepBuilder
	for i := range progress {
		if progress[i].Over {
			ended.Add(i)
		}
	}
	over := ended.Set()
	if !s.unknown.AndNot(over).Empty() {
		return nil, false
	}
	for i := range p.Steps {
		if over.Has(i) {
			continue
		}
		o := open{step: i, wait: s.wait[i], run: s.run[i], after: p.Steps[i].After}
		if slices.ContainsFunc(o.after, over.Has) {
			o.after = slices.DeleteFunc(slices.Clone(o.after), over.Has)
		}
		if limits && p.Steps[i].Kind == core.CallStep {
			o.least = toMS(max(p.UndoReserve, p.Steps[i].Least))
		}
		if progress != nil {
			o.passed(&progress[i])
		}
		steps = append(steps, o)
	}
	return steps, true
}

// passed takes in what is known of a step that has begun, or could.
func (o *open) passed(at *Progress) {
	since := toMS(at.For)
	switch {
	case at.Begun && at.Known > 0:
		known := new(table)
		for i := range known {
			known[i] = toMS(at.Known)
		}
		o.wait, o.run, o.least = nil, known, 0
	case at.Begun:
		o.wait, o.ran, o.least = nil, since, 0
		o.runFrom = longer(o.run, since)
	case o.wait != nil && len(o.after) == 0 && at.NotBefore == 0:
		o.waited, o.waitFrom = since, longer(o.wait, since)
	}
	if !at.Begun {
		o.notBefore = toMS(at.NotBefore)
	}
}

// longer is from where on the durations of a table are longer than one that has passed; the last stays where none is.
func longer(t *table, passed float32) int {
	if passed <= 0 {
		return 0
	}
	n, _ := slices.BinarySearch(t[:], passed)
	return min(n, samples-1)
}

// add adds one of the durations of a table, from an index on and less what has passed, to each sample.
func add(to, t *table, from int, passed float32, which *[samples]uint8) {
	if from == 0 && passed == 0 {
		for s := range to {
			to[s] += t[which[s]]
		}
		return
	}
	for s := range to {
		to[s] += max(0, t[from+int(which[s])*(samples-from)/samples]-passed)
	}
}

// ends is where a question keeps when each step ends in each sample.
type ends []table

var scratch = sync.Pool{New: func() any { return new(ends) }}

// play fills needs with how much time each sample takes, in milliseconds from now on: to the end of its last step, and
// so that no call begins later than it may.
func play(steps []open, needs *table) {
	if len(steps) == 0 {
		return
	}
	kept := scratch.Get().(*ends)
	defer scratch.Put(kept)
	if n := steps[len(steps)-1].step + 1; len(*kept) < n {
		*kept = make(ends, n)
	}
	all, draws := *kept, draws()
	var before core.StepBuilder // steps that others come after
	for i := range steps {
		for _, a := range steps[i].after {
			before.Add(a)
		}
	}
	for i := range steps {
		o := &steps[i]
		end := &all[o.step]
		clear(end[:])
		for _, a := range o.after {
			for s, at := range &all[a] {
				if at > end[s] { // max of the language is slower: it minds NaN
					end[s] = at
				}
			}
		}
		if o.notBefore > 0 {
			for s := range end {
				end[s] = max(end[s], o.notBefore)
			}
		}
		if o.wait != nil {
			add(end, o.wait, o.waitFrom, o.waited, &draws[core.StepsMax+o.step])
		}
		if o.least > 0 {
			for s, start := range end {
				if start += o.least; start > needs[s] {
					needs[s] = start
				}
			}
		}
		add(end, o.run, o.runFrom, o.ran, &draws[o.step])
		if before.Has(o.step) {
			continue // something ends later
		}
		for s, at := range end {
			if at > needs[s] {
				needs[s] = at
			}
		}
	}
}

// chance is the part of the samples in which a task makes its deadline, which is so far away.
func chance(steps []open, left time.Duration) float64 {
	var needs table
	play(steps, &needs)
	made, limit := 0, toMS(left)
	for _, n := range needs {
		if n <= limit {
			made++
		}
	}
	return float64(made) / samples
}

// quantile is how much time a part q of the samples needs that come to an end at all; false where none does.
func quantile(steps []open, q float64) (time.Duration, bool) {
	var needs table
	play(steps, &needs)
	slices.Sort(needs[:])
	n, _ := slices.BinarySearch(needs[:], infinite)
	if n == 0 {
		return 0, false
	}
	return fromMS(needs[min(n-1, int(q*float64(n)))]), true
}

// whole is how much time a task needs that has not begun, in a part q of the cases. Doors and owners ask it of each submission
// while there is a queue.
func (s *shape) whole(p *core.Plan, q float64) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quantile != q {
		s.takes, s.isKnown = needs(s, p, nil, false, q)
		s.quantile = q
	}
	return s.takes, s.isKnown
}

// leftMax bounds the answers of Left that a shape keeps.
const leftMax = 256

// left is how much time a task needs in a part q of the cases whose steps are over in part, when its next ones begin now.
func (s *shape) left(p *core.Plan, over core.StepSet, q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := over.Key()
	if d, known := s.lefts[key]; known {
		return d
	}
	progress := make([]Progress, len(p.Steps))
	for i := range progress {
		progress[i].Over = over.Has(i)
	}
	d := time.Duration(0)
	if steps, known := s.ask(p, progress, true, nil); known {
		for i := range steps {
			if len(steps[i].after) == 0 {
				steps[i].wait = nil
			}
		}
		d, _ = quantile(steps, q)
	}
	if s.lefts == nil || len(s.lefts) >= leftMax {
		s.lefts = map[core.StepSetKey]time.Duration{}
	}
	s.lefts[key] = d
	return d
}
