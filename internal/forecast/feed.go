package forecast

import (
	"iter"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

const (
	// bornMost is how many tasks a second a node follows from their birth to their end; of one plan at most a quarter of
	// them. At the peak that is one in some hundreds: a look at the others costs a map's miss for each commit.
	bornMost = 64
	// followedMax is how many it follows at a time. With more, the one that was born first is let go.
	followedMax = 4096
	// saidMax is about how many chances are told of a task: of one with more steps, not after each.
	saidMax = 64
)

// Feed learns from what is committed: of some tasks it follows each step. It is safe for concurrent use, and one commit
// is told at a time.
type Feed struct {
	book *Book

	mu     sync.Mutex
	tasks  map[place]*followed
	order  []place // of birth; may name tasks that are followed no more
	second int64   // the one that is counted
	born   map[Key]int
	all    int
}

type place struct {
	partition int
	number    int64
}

// followed is what is kept of one task.
type followed struct {
	steps []stepTimes
	said  []float64    // the chances that were told of it
	over  core.StepSet // steps that are done or skipped
	next  int          // with so many of them the next chance is said
}

// stepTimes are 0 while they have not come.
type stepTimes struct{ ready, begun core.Instant }

// NewFeed makes a feed of a book.
func NewFeed(b *Book) *Feed {
	return &Feed{book: b, tasks: map[place]*followed{}, born: map[Key]int{}}
}

// Committed learns from one commit.
func (f *Feed) Committed(writes iter.Seq2[*core.Plan, *core.TaskWrite]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for plan, w := range writes {
		f.tell(plan, w)
	}
}

// tell takes what a commit wrote of one task. plan may be nil.
func (f *Feed) tell(plan *core.Plan, w *core.TaskWrite) {
	t := w.Task
	at := place{t.Partition, t.Number}
	is := f.tasks[at]
	switch {
	case plan == nil || len(t.Steps) != len(plan.Steps) || len(w.Records) == 0 || is != nil && len(is.steps) != len(t.Steps):
		delete(f.tasks, at)
		return
	case is == nil && (!w.Birth || !f.follows(plan, w.Records[0].At)):
		return
	case is == nil:
		is = f.follow(at, len(plan.Steps))
		is.say(f.book, plan, t)
	}
	if !f.look(is, plan, w) {
		delete(f.tasks, at)
	}
}

// follows reports whether a task that is born now is to be followed.
func (f *Feed) follows(plan *core.Plan, now core.Instant) bool {
	if second := int64(now) / int64(time.Second/time.Microsecond); second != f.second {
		f.second, f.all = second, 0
		clear(f.born)
	}
	k := Key{Type: plan.Name, Version: plan.Version}
	if f.all >= bornMost || f.born[k] >= bornMost/4 {
		return false
	}
	f.all++
	f.born[k]++
	return true
}

func (f *Feed) follow(at place, steps int) *followed {
	for len(f.tasks) >= followedMax || len(f.order) >= 2*followedMax {
		delete(f.tasks, f.order[0])
		f.order = f.order[1:]
	}
	is := &followed{steps: make([]stepTimes, steps)}
	f.tasks[at] = is
	f.order = append(f.order, at)
	return is
}

// say keeps what would be said now of a task.
func (is *followed) say(b *Book, plan *core.Plan, t *core.Task) {
	progress := progressOf(plan, t, t.UpdatedAt)
	for i := range progress {
		if since := is.steps[i].ready; since != 0 && !progress[i].Begun {
			progress[i].For = max(0, t.UpdatedAt.Sub(since)) // it may have a start-at to come
		}
	}
	if chance, known := b.Chance(plan, progress, t.Deadline.Sub(t.UpdatedAt), t.UpdatedAt); known {
		is.said = append(is.said, chance)
	}
}

// look notes what has changed since the last commit; false: the task is followed no longer.
func (f *Feed) look(is *followed, plan *core.Plan, w *core.TaskWrite) bool {
	t, now := w.Task, w.Task.UpdatedAt
	for i := range w.Records {
		if w.Records[i].Kind.Disturbs() {
			return false
		}
	}
	forward := t.State == core.StatePending || t.State == core.StateProcessing
	before := is.over
	for i := range t.Steps {
		s, times := &t.Steps[i], &is.steps[i]
		if is.over.Has(i) {
			continue
		}
		if times.ready == 0 { // a step comes after earlier ones only, so what ended in this commit is known by now
			if !ready(plan, i, is.over) {
				continue
			}
			times.ready = now // and not when it was submitted: doors know how long the queue is
			if len(plan.Steps[i].After) == 0 {
				times.ready = max(times.ready, t.StartAt)
			}
		}
		ended := s.Status == core.StepDone || s.Status == core.StepSkipped && forward
		if times.begun == 0 && (ended || s.Status == core.StepRunning || s.Status == core.StepFailed || s.Attempt > 0 && forward) {
			times.begun = now
			f.book.Waited(plan, i, now.Sub(times.ready), now)
		}
		if ended {
			f.book.Ran(plan, i, now.Sub(times.begun), now)
			is.over.Add(i)
		}
	}
	switch {
	case t.State == core.StateProcessed:
		is.check(f.book, true)
		return false
	case !forward:
		f.cut(is, plan, w)
		is.check(f.book, false)
		return false
	}
	if n := is.over.Len(); !is.over.Equal(before) && n >= is.next {
		is.say(f.book, plan, t)
		is.next = n + (len(plan.Steps)+saidMax-1)/saidMax
	}
	return true
}

func ready(plan *core.Plan, step int, over core.StepSet) bool {
	for _, a := range plan.Steps[step].After {
		if !over.Has(a) {
			return false
		}
	}
	return true
}

// cut notes what the steps of a task came to that is not to go on. One that was refused, or has had all its attempts, came to
// no end. Where time was the cause, those that ran or waited had taken at least as long as they had: else only what is
// quick would be seen.
func (f *Feed) cut(is *followed, plan *core.Plan, w *core.TaskWrite) {
	t, now := w.Task, w.Task.UpdatedAt
	final := func(i int) bool {
		return t.Steps[i].Status == core.StepFailed && (t.Steps[i].Attempt >= plan.Steps[i].AttemptsMax ||
			slices.ContainsFunc(w.Records, func(r core.Record) bool { return r.Step == i && r.Final() }))
	}
	late := now >= t.Deadline.Add(-plan.UndoReserve)
	for i := range t.Steps {
		late = late || t.Steps[i].Status == core.StepFailed && !final(i)
	}
	for i := range t.Steps {
		times := &is.steps[i]
		switch {
		case is.over.Has(i) || times.ready == 0:
		case times.begun == 0 && late:
			f.book.Waited(plan, i, now.Sub(times.ready), now)
		case times.begun == 0:
		case final(i) && now < t.Deadline:
			f.book.Failed(plan, i, now)
		case late:
			f.book.Ran(plan, i, now.Sub(times.begun), now)
		}
	}
}

func (is *followed) check(b *Book, made bool) {
	for _, said := range is.said {
		b.Check(said, made)
	}
}
