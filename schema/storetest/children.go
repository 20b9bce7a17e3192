package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// childOf is the birth of a child of a task.
func childOf(parent *core.Task, number int64, step, index, round int) core.TaskWrite {
	w := birth(parent.Partition, number, core.ChildID(parent.ID, fmt.Sprintf("s%d", step), index, round, true))
	w.Task.Parent, w.Task.ParentStep, w.Task.ChildIndex = parent.Number, step, index
	return w
}

// siblings are the children of a step, in a round.
func siblings(parent *core.Task, step, round int) core.Siblings {
	return core.Siblings{Parent: parent.Number, Step: step, First: core.ChildID(parent.ID, fmt.Sprintf("s%d", step), 0, round, true)}
}

func testChildren(r *rig) {
	all := births(1, 2)
	root, other := all[0].Task, all[1].Task
	writes := slices.Clone(all)
	states := []core.State{core.StateProcessed, core.StateUndone, core.StateError, core.StateProcessing, core.StateProcessed, core.StatePending}
	for i := range states {
		writes = append(writes, childOf(root, int64(10+i), 2, i, 0))
	}
	writes = append(writes, childOf(root, 20, 1, 0, 0), childOf(other, 21, 2, 0, 0), childOf(writes[2].Task, 22, 2, 0, 0))
	r.write(writes...)
	var moved []core.TaskWrite
	for i, state := range states {
		if state != core.StateProcessing {
			moved = append(moved, next(writes[2+i].Task, true, func(t *core.Task, _ *core.Record) {
				if t.State = state; state.Ended() {
					t.EndNumber, t.EndedAt = int64(i+1), t.UpdatedAt
				}
			}))
		}
	}
	r.write(moved...)
	row := func(i int) core.ChildRow {
		c := core.ChildRow{Number: int64(10 + i), Index: i, State: states[i]}
		if states[i].Ended() {
			c.Ended = start.Add(time.Duration(10+i+1) * time.Second)
		}
		return c
	}
	of := siblings(root, 2, 0)
	r.equal("first page", get(r.s.Children(r.ctx, core.AsOf{Partition: 1}, of, 0, 2))(r), []core.ChildRow{row(0), row(1)})
	r.equal("next page", get(r.s.Children(r.ctx, core.AsOf{Partition: 1}, of, 11, 10))(r), []core.ChildRow{row(2), row(3), row(4), row(5)})
	r.equal("newest first", get(r.s.Youngest(r.ctx, core.AsOf{Partition: 1}, of, math.MaxInt64, 2))(r), []core.ChildRow{row(5), row(4)})
	r.equal("and on", get(r.s.Youngest(r.ctx, core.AsOf{Partition: 1}, of, 14, 10))(r), []core.ChildRow{row(3), row(2), row(1), row(0)})
	r.equal("counts", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, of))(r), core.ChildCounts{Born: 6, Running: 2, Done: 2, Undone: 1, Error: 1})
	of.Since = start.Add(12*time.Second) + 1 // after the end of the undone one
	r.equal("counts of a later try", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, of))(r), core.ChildCounts{Born: 6, Running: 2, Done: 2, Left: 1, Error: 1})
	of.Since--
	r.equal("counts of a try that began before", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, of))(r), core.ChildCounts{Born: 6, Running: 2, Done: 2, Undone: 1, Error: 1})
	r.equal("of another step", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, siblings(root, 1, 0)))(r), core.ChildCounts{Born: 1, Running: 1})
	r.equal("of a task without any", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, siblings(other, 1, 0)))(r), core.ChildCounts{})
	r.equal("of another partition", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 2}, of))(r), core.ChildCounts{})
	// Another round of the parent has children of its own.
	r.equal("before the round", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, siblings(root, 2, 1)))(r), core.ChildCounts{})
	r.write(childOf(root, 30, 2, 0, 1), childOf(root, 31, 2, 1, 1))
	r.equal("the new round", get(r.s.ChildCounts(r.ctx, core.AsOf{Partition: 1}, siblings(root, 2, 1)))(r), core.ChildCounts{Born: 2, Running: 2})
	r.equal("its children", get(r.s.Youngest(r.ctx, core.AsOf{Partition: 1}, siblings(root, 2, 1), math.MaxInt64, 10))(r),
		[]core.ChildRow{{Number: 31, Index: 1, State: core.StateProcessing}, {Number: 30, State: core.StateProcessing}})
	// What a child is a part of comes back with it, and stays.
	r.comesBack(moved[0].Task, append(slices.Clone(writes[2].Records), moved[0].Records...))
}

// testLongID: the id of a child may be longer than a client's, and is found like any other.
func testLongID(r *rig) {
	w := birth(1, 1, "a~"+strings.Repeat("s", core.ChildIDBytesMax-2))
	w.Task.Parent = 7
	r.write(w)
	saved := get(r.s.LoadIDs(r.ctx, core.AsOf{Partition: 1}, []string{w.Task.ID}))(r)
	r.equal("tasks of that id", len(saved), 1)
	r.equal("the id", saved[0].Row.ID, w.Task.ID)
	again := birth(1, 2, w.Task.ID)
	r.result(r.batch(again), core.CommitResult{Duplicates: []core.Duplicate{{Partition: 1, Number: 2, Existing: core.Existing{
		Partition: 1, Number: 1, ID: w.Task.ID, Type: "order", InputHash: w.Task.InputHash, State: core.StateProcessing,
	}}}})
}

// testChildrenListed: lists have roots and children alike, and the children of one task; failure groups have what an
// operator has to see to.
func testChildrenListed(r *rig) {
	r.must(r.s.PutPlan(r.ctx, plan()))
	root := birth(1, 1, "root")
	writes := []core.TaskWrite{root}
	for i := range 5 {
		writes = append(writes, childOf(root.Task, int64(10+i), i%2, i, 0))
	}
	gold := core.Label{Key: "tier", Value: "gold"}
	writes[3] = labelled(writes[3], gold)
	writes = append(writes, labelled(birth(2, 1, "other"), gold))
	r.write(writes...)
	var moved []core.TaskWrite
	for i, state := range []core.State{core.StateUndone, core.StateUndone, core.StateError} {
		moved = append(moved, next(writes[1+i].Task, true, func(t *core.Task, rec *core.Record) {
			t.State, t.EndNumber, t.EndedAt, t.FailedStep, t.Why = state, int64(i+1), t.UpdatedAt, 1, "no money"
			rec.Error = "no money"
		}))
	}
	r.write(moved...)
	ids := func(f core.Filter) (all []string) {
		r.Helper()
		for f.Limit = 2; ; {
			page := get(r.s.List(r.ctx, f))(r)
			for i := range page.Tasks {
				v := &page.Tasks[i]
				all = append(all, v.ID+" "+v.Parent)
			}
			if f.After = page.Next; f.After == "" {
				return all
			}
		}
	}
	r.equal("all", len(ids(core.Filter{})), 7)
	child := func(i int) string { return writes[1+i].Task.ID + " root" }
	r.equal("children", ids(core.Filter{Parent: "root"}), []string{child(4), child(3), child(2), child(1), child(0)})
	r.equal("undone children", ids(core.Filter{Parent: "root", State: core.StateUndone}), []string{child(1), child(0)})
	r.equal("children of none", len(ids(core.Filter{Parent: "other"})), 0)
	r.equal("children of an unknown task", len(ids(core.Filter{Parent: "unknown"})), 0)
	r.equal("children of another type", len(ids(core.Filter{Parent: "root", Type: "other"})), 0)
	r.equal("children of a label", ids(core.Filter{Parent: "root", Label: "tier=gold"}), []string{child(2)})
	r.equal("children of another label", len(ids(core.Filter{Parent: "root", Label: "tier=silver"})), 0)
	for i, c := range []struct {
		f    core.Filter
		want int64
	}{
		{core.Filter{Parent: "root"}, 5}, {core.Filter{Parent: "root", State: core.StateUndone}, 2}, {core.Filter{Parent: "unknown"}, 0},
		{core.Filter{Parent: "root", Label: "tier=gold"}, 1}, {core.Filter{Parent: "root", Label: "tier=silver"}, 0},
	} {
		r.equal(fmt.Sprintf("members of %+v", c.f), get(r.s.Freeze(r.ctx, preview(fmt.Sprint("children", i)), operate.Selection{Filter: &c.f}))(r), c.want)
	}
	r.equal("parent in a view", get(r.s.Get(r.ctx, 1, writes[1].Task.ID))(r).Parent, "root")
	r.equal("type of a parent in a view", get(r.s.Get(r.ctx, 1, writes[1].Task.ID))(r).ParentType, root.Task.Type)
	below := childOf(writes[1].Task, 40, 0, 0, 0)
	r.write(below)
	r.equal("ancestors", get(r.s.Get(r.ctx, 1, below.Task.ID))(r).Ancestors, []core.TaskName{{Type: writes[1].Task.Type, ID: writes[1].Task.ID}, {Type: root.Task.Type, ID: "root"}})
	r.equal("ancestors of a root", get(r.s.Get(r.ctx, 1, "root"))(r).Ancestors, []core.TaskName(nil))
	r.equal("parent of a root", get(r.s.Get(r.ctx, 1, "root"))(r).Parent, "")
	groups := get(r.s.Groups(r.ctx, operate.GroupFilter{Limit: 10}))(r).Groups
	if len(groups) != 1 || groups[0].State != core.StateError || groups[0].Tasks.N != 1 {
		r.Errorf("groups: %+v", groups)
	}
	for i, want := range []bool{true, true, false} {
		v := get(r.s.Get(r.ctx, 1, writes[1+i].Task.ID))(r)
		if (v.Fingerprint == "") != want {
			r.Errorf("fingerprint of child %d: %q", i, v.Fingerprint)
		}
	}
}

// testPurgeFamily: a child is forgotten with its parent, however long ago it ended, and never while its parent can be
// undone: of a family that goes in parts, the root's journal goes in the first.
func testPurgeFamily(r *rig) {
	root := birth(1, 1, "root")
	writes := []core.TaskWrite{root}
	for i := range 5 {
		writes = append(writes, childOf(root.Task, int64(10+i), 0, i, 0))
	}
	writes = append(writes, childOf(writes[1].Task, 20, 0, 0, 0), childOf(writes[1].Task, 21, 0, 1, 0), birth(1, 30, "last"))
	r.write(writes...)
	r.own[1].Told = 100
	end := func(w *core.TaskWrite, state core.State, number int64) {
		t := *w.Task
		t.EndNumber = 0
		*w = ended(&t, state, number)
		r.write(*w)
	}
	end(&writes[6], core.StateProcessed, 1)
	end(&writes[7], core.StateUndone, 2)
	for i := range 5 {
		state := core.StateProcessed
		if i == 4 {
			state = core.StateError
		}
		end(&writes[1+i], state, int64(3+i))
	}
	end(&writes[8], core.StateProcessed, 8)
	later := start.Add(time.Hour)
	has := func(n int64) bool { got := r.load(1, n); return got != nil && len(got.Journal) > 0 }
	left := func(want ...int64) {
		r.Helper()
		var got []int64
		for _, w := range writes {
			if has(w.Task.Number) {
				got = append(got, w.Task.Number)
			}
		}
		r.equal("with a journal", got, want)
	}
	r.purged(0, later, 100, 1) // the last root alone: the others' parent lives
	left(1, 10, 11, 12, 13, 14, 20, 21)
	r.purged(later, later, 100, 1) // its row
	end(&writes[0], core.StateProcessed, 9)
	r.purged(0, later, 1, 2) // more than one child, the first of which has more than one itself
	left(10, 11, 12, 13, 14, 21)
	r.takeOver(1) // what has begun goes on, whoever begins again
	// More than 3 children: so many, with theirs. The root counts again with each page, which who counts journals that went
	// does not see: the stores behind faults do that after an outcome that is not known.
	page := func() { get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, later, 0, 3))(r) }
	page()
	left(13, 14)
	page() // and the last of them
	left(14)
	end(&writes[5], core.StateProcessed, 10) // an operator has seen to it
	r.purged(0, later, 3, 1)
	left()
	r.takeOver(1) // rows that were passed over are looked at again after a takeover
	r.purged(later, later, 100, 8)
	for _, w := range writes {
		if r.load(1, w.Task.Number) != nil {
			r.Errorf("the row of task %s is left", w.Task.ID)
		}
	}
}

// testPurgeAfterParent: a child that ended after its parent goes after it, with its own children.
func testPurgeAfterParent(r *rig) {
	root := birth(1, 1, "root")
	child := childOf(root.Task, 2, 0, 0, 0)
	grandchild := childOf(child.Task, 3, 0, 0, 0)
	r.write(root, child, grandchild)
	r.own[1].Told = 100
	failed := ended(child.Task, core.StateError, 2)
	r.write(ended(grandchild.Task, core.StateProcessed, 1), failed)
	r.write(ended(root.Task, core.StateProcessed, 3))
	r.write(ended(failed.Task, core.StateProcessed, 4))
	later := start.Add(time.Hour)
	r.purged(0, later, 100, 1) // the root; the child ended after it
	if got := r.load(1, 2); len(got.Journal) == 0 {
		r.Error("the child went before its turn")
	}
	r.purged(0, later, 100, 2)
	if got := r.load(1, 3); len(got.Journal) != 0 {
		r.Error("the child of the child is left")
	}
	r.purged(later, later, 100, 3)
}

// testFresh: the parked tasks that a commit made are found by it, those before a number and of other commits are not.
func testFresh(r *rig) {
	parked := func(number int64, id string) core.TaskWrite {
		w := birth(1, number, id)
		w.Task.State = core.StatePending
		return w
	}
	r.write(parked(1, "a"), birth(1, 2, "b"), parked(3, "c"))
	commit := r.commit
	r.write(parked(4, "d"))
	r.equal("of the commit", get(r.s.Fresh(r.ctx, core.AsOf{Partition: 1}, 1, commit-1, commit))(r), []core.Fresh{{Number: 1, Type: "order"}, {Number: 3, Type: "order"}})
	r.equal("from a number on", get(r.s.Fresh(r.ctx, core.AsOf{Partition: 1}, 2, commit-1, commit))(r), []core.Fresh{{Number: 3, Type: "order"}})
	r.equal("of the next", get(r.s.Fresh(r.ctx, core.AsOf{Partition: 1}, 1, commit, r.commit))(r), []core.Fresh{{Number: 4, Type: "order"}})
	r.equal("of both", len(get(r.s.Fresh(r.ctx, core.AsOf{Partition: 1}, 1, commit-1, r.commit))(r)), 3)
	r.equal("of another partition", len(get(r.s.Fresh(r.ctx, core.AsOf{Partition: 2}, 1, commit-1, commit))(r)), 0)
}
