package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// aged are tasks that live, end and are forgotten, and what of each has to be there.
type aged struct {
	*rig
	t           *rapid.T
	now         core.Instant
	end         [partitions]int64 // the last end number of each partition
	tasks       []*agedTask
	detail, row time.Duration // how long both are kept; 0: for ever
}

type agedTask struct {
	*core.Task
	parent      *agedTask // nil: none
	noRow, bare bool      // its row, its journal is gone
}

// done reports whether a task has ended, as those do that may be forgotten.
func (a *agedTask) done() bool {
	return a.State == core.StateProcessed || a.State == core.StateUndone
}

// testPurgeOfAnything draws ages, tasks with children, ends and new beginnings in partitions beside each other, takeovers and
// purges of all sizes. Nothing goes that is younger than its age, has not ended, is not told, waits for a person or belongs to
// a parent that stays; a journal goes before its row; and in the end all goes that may.
func testPurgeOfAnything(r *rig) {
	tb := r.TB
	last := &aged{rig: r, now: start}
	base := int64(0)
	rapid.Check(tb, func(t *rapid.T) {
		r.TB = t
		a := &aged{rig: r, t: t, now: last.now, end: last.end}
		last = a
		base += 1000
		a.ages()
		for _, p := range []int{1, 2} {
			a.told(p)
		}
		for range rapid.IntRange(1, 12).Draw(t, "turns") {
			a.turn(base)
		}
		a.calm()
	})
	r.TB = tb
}

func (a *aged) ages() {
	if rapid.IntRange(0, 7).Draw(a.t, "for ever") > 0 {
		a.detail = time.Duration(rapid.IntRange(60, 120).Draw(a.t, "detail")) * time.Second
	}
	if rapid.Bool().Draw(a.t, "rows go") {
		a.row = max(a.detail, time.Minute) + time.Duration(rapid.IntRange(0, 60).Draw(a.t, "row"))*time.Second
	}
}

func (a *aged) turn(base int64) {
	a.now = a.now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(a.t, "ms")) * time.Millisecond)
	p := rapid.IntRange(1, 2).Draw(a.t, "partition")
	switch rapid.IntRange(0, 10).Draw(a.t, "what") {
	case 0, 1:
		a.births(p, base)
	case 2, 3, 4:
		a.ends(p)
	case 5:
		a.begins(p)
	case 6:
		a.takeOver(p)
	case 7:
		get(a.s.Purge(a.ctx, p, a.partition(p).Epoch-1, a.now.Add(time.Hour), a.now.Add(time.Hour), 3))(a.rig) // of an owner before
		a.look(p, 0, 0)
	default:
		a.purge(p, rapid.IntRange(1, 6).Draw(a.t, "most"))
	}
}

// births are new tasks, some of them children of one that has not ended.
func (a *aged) births(p int, base int64) {
	var writes []core.TaskWrite
	for range rapid.IntRange(1, 4).Draw(a.t, "births") {
		number := base + int64(len(a.tasks)) + 1
		is := &agedTask{}
		w := birth(p, number, fmt.Sprintf("a%d", number))
		parents := a.of(p, func(t *agedTask) bool { return t.State == core.StateProcessing && !t.noRow })
		if len(parents) > 0 && rapid.Bool().Draw(a.t, "child") {
			is.parent = rapid.SampledFrom(parents).Draw(a.t, "parent")
			w = childOf(is.parent.Task, number, 0, int(number), 0)
		}
		is.Task = w.Task
		a.tasks = append(a.tasks, is)
		writes = append(writes, w)
	}
	a.write(writes...)
}

// of are tasks of a partition.
func (a *aged) of(p int, is func(*agedTask) bool) (all []*agedTask) {
	for _, t := range a.tasks {
		if t.Partition == p && is(t) {
			all = append(all, t)
		}
	}
	return all
}

// ends ends some tasks, those after their children; one in error may be settled.
func (a *aged) ends(p int) {
	open := a.of(p, func(t *agedTask) bool {
		return t.State == core.StateProcessing || t.State == core.StateUndoing || t.State == core.StateError
	})
	if len(open) == 0 {
		return
	}
	for range rapid.IntRange(1, 3).Draw(a.t, "ends") {
		t := rapid.SampledFrom(open).Draw(a.t, "which")
		works := func(c *agedTask) bool { return c.parent == t && c.State == core.StateProcessing }
		if t.done() || len(a.of(p, works)) > 0 {
			continue
		}
		state := rapid.SampledFrom([]core.State{core.StateProcessed, core.StateProcessed, core.StateUndone, core.StateError}).Draw(a.t, "state")
		a.end[p]++
		w := ended(t.Task, state, a.end[p])
		w.Task.UpdatedAt, w.Task.EndedAt, w.Records[0].At = a.now, a.now, a.now
		t.Task = w.Task
		a.told(p, w)
	}
}

// told commits writes; all ends of the partition are told with them, or later.
func (a *aged) told(p int, writes ...core.TaskWrite) {
	w := a.partition(p)
	if w.Told = a.end[p]; len(writes) > 0 && rapid.IntRange(0, 3).Draw(a.t, "told later") == 3 {
		w.Told = a.own[p].Told
	}
	a.own[p].Told = w.Told
	a.commit++
	a.taken(&core.Batch{ID: a.commit, Node: node, Writes: writes, Partitions: []core.PartitionWrite{w}})
}

// begins has a task that has ended, and whose journal is there, undone.
func (a *aged) begins(p int) {
	able := a.of(p, func(t *agedTask) bool { return t.State == core.StateProcessed && !t.bare && t.parent == nil })
	if len(able) == 0 {
		return
	}
	t := rapid.SampledFrom(able).Draw(a.t, "which")
	w := next(t.Task, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.EndNumber, t.UpdatedAt, rec.At = core.StateUndoing, 0, 0, a.now, a.now
		rec.Kind = core.KindUndoAsked
	})
	t.Task = w.Task
	a.write(w)
}

func (a *aged) before(keep time.Duration) core.Instant {
	if keep == 0 {
		return 0
	}
	return a.now.Add(-keep)
}

// purge purges once, and looks at what is left.
func (a *aged) purge(p, most int) (touched int) {
	a.Helper()
	detail, row := a.before(a.detail), a.before(a.row)
	touched = get(a.s.Purge(a.ctx, p, a.partition(p).Epoch, detail, row, most))(a.rig)
	a.look(p, detail, row)
	return touched
}

// look compares what is there with what may be.
func (a *aged) look(p int, detail, row core.Instant) {
	a.Helper()
	all := a.of(p, func(*agedTask) bool { return true })
	asked := make([]int64, len(all))
	for i, t := range all {
		asked[i] = t.Number
	}
	rows := map[int64]bool{}
	bare := map[int64]bool{}
	for _, saved := range get(a.s.LoadNumbers(a.ctx, core.AsOf{Partition: p}, asked))(a.rig) {
		rows[saved.Row.Number] = true
		bare[saved.Row.Number] = len(saved.Journal) == 0
	}
	for _, t := range all {
		noRow := !rows[t.Number]
		gone := noRow || bare[t.Number]
		told := t.done() && t.EndNumber <= a.own[p].Told
		switch {
		case gone && !t.bare && !(told && t.EndedAt < detail):
			a.Fatalf("task %d, %s at %v, told: %v, lost its journal to a purge of what ended before %v", t.Number, t.State, t.EndedAt, told, detail)
		case noRow && !t.noRow && !(t.bare && t.EndedAt < row):
			a.Fatalf("task %d, %s at %v, its journal gone: %v, lost its row to a purge of what ended before %v", t.Number, t.State, t.EndedAt, t.bare, row)
		case !gone && t.bare || !noRow && t.noRow:
			a.Fatalf("task %d is back", t.Number)
		}
		t.noRow, t.bare = noRow, gone
	}
	for _, t := range all {
		if t.bare && t.parent != nil && !t.parent.bare {
			a.Fatalf("child %d lost its journal before its parent %d, which can still be undone", t.Number, t.parent.Number)
		}
	}
}

// goes reports whether nothing but its age keeps a task.
func (a *agedTask) goes() bool { return a.done() && (a.parent == nil || a.parent.goes()) }

// calm tells all ends, lets all ages pass and purges until nothing more goes.
func (a *aged) calm() {
	a.Helper()
	for _, p := range []int{1, 2} {
		a.told(p)
	}
	a.now = a.now.Add(3 * time.Hour)
	for _, p := range []int{1, 2} {
		for quiet := 0; quiet < 2; {
			if quiet++; a.purge(p, 3) > 0 {
				quiet = 0
			}
		}
	}
	for _, t := range a.tasks {
		if want := a.detail > 0 && t.goes(); t.bare != want {
			a.Fatalf("task %d, %s at %v: its journal is gone: %v, want %v", t.Number, t.State, t.EndedAt, t.bare, want)
		}
		if want := a.detail > 0 && a.row > 0 && t.goes(); t.noRow != want {
			a.Fatalf("task %d, %s at %v: its row is gone: %v, want %v", t.Number, t.State, t.EndedAt, t.noRow, want)
		}
	}
}
