package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// testList has tasks of two types and several states in all partitions, and
// reads them in pages: all of them once, newest first within a partition.
func testList(r *rig) {
	want := 0
	for p := range partitions {
		var writes []core.TaskWrite
		for n := range int64(10 + p) {
			w := birth(p, n+1, fmt.Sprintf("t%d-%d", p, n+1))
			if n%3 == 0 {
				w.Task.Type = "other"
			}
			if n%5 == 0 {
				w.Task.State, w.Task.EndedAt, w.Task.EndNumber = core.StateError, start, n+1
			}
			writes = append(writes, w)
			want++
		}
		r.write(writes...)
	}
	for _, limit := range []int{1, 3, 7, 1000} {
		r.equal(fmt.Sprintf("tasks in pages of %d", limit), r.listed(core.Filter{Limit: limit}), want)
	}
	r.equal("of one type", r.listed(core.Filter{Limit: 2, Type: "other"}), 4+4+4+5)
	r.equal("in one state", r.listed(core.Filter{Limit: 3, State: core.StateError}), 2+3+3+3)
	r.equal("of a type in a state", r.listed(core.Filter{Limit: 3, State: core.StateError, Type: "other"}), 4)
	r.equal("none", r.listed(core.Filter{Limit: 3, Type: "third"}), 0)
	for _, f := range []core.Filter{{}, {Limit: 1001}, {Limit: -1}, {Limit: 5, After: "nonsense"}, {Limit: 5, After: "1;DROP TABLE tasks"}} {
		if _, err := r.s.List(r.ctx, f); err == nil {
			r.Errorf("filter %+v was taken", f)
		}
	}
	first := get(r.s.List(r.ctx, core.Filter{Limit: 1}))(r).Tasks[0]
	if first.ID == "" || first.Number < 10 || first.State == "" || first.CompleteBy == 0 || first.CreatedAt == 0 {
		r.Errorf("newest: %+v", first)
	}
}

// listed reads all pages and returns how many tasks there were, after checking
// that none came twice, that they match, and that their order is right.
func (r *rig) listed(f core.Filter) int {
	r.Helper()
	seen := map[string]bool{}
	last := map[int]int64{}
	for {
		page := get(r.s.List(r.ctx, f))(r)
		if len(page.Tasks) > f.Limit || page.Partial != (page.Next != "" && len(page.Tasks) < f.Limit) {
			r.Fatalf("page of %d, limit %d, next %q, partial %v", len(page.Tasks), f.Limit, page.Next, page.Partial)
		}
		for i := range page.Tasks {
			v := &page.Tasks[i]
			if seen[v.ID] {
				r.Fatalf("%s came twice", v.ID)
			}
			seen[v.ID] = true
			if n, ok := last[v.Partition]; ok && v.Number >= n {
				r.Fatalf("partition %d: %d after %d", v.Partition, v.Number, n)
			}
			last[v.Partition] = v.Number
			if f.Type != "" && v.Type != f.Type || f.State != "" && v.State != f.State {
				r.Fatalf("%+v does not match %+v", v, f)
			}
		}
		if page.Next == "" {
			return len(seen)
		}
		f.After = page.Next
	}
}

func testCounts(r *rig) {
	r.equal("nothing yet", len(get(r.s.Counts(r.ctx))(r)), 0)
	all := births(1, 5)
	all[0].Task.Type = "other"
	r.write(append(all, births(2, 3)...)...)
	r.write(ended(all[1].Task, core.StateProcessed, 1))
	for _, counts := range [][]core.Count{get(r.s.Counts(r.ctx))(r), get(r.s.CountsUpTo(r.ctx, 1000))(r)} {
		got := map[core.Count]bool{}
		for _, c := range counts {
			got[c] = true
		}
		r.equal("counts", got, map[core.Count]bool{
			{Type: "order", State: core.StateProcessed, Tasks: 1}: true, {Type: "order", State: core.StateProcessing, Tasks: 6}: true,
			{Type: "other", State: core.StateProcessing, Tasks: 1}: true,
		})
	}
	// One more than as many are counted, of all partitions together.
	some, processing := get(r.s.CountsUpTo(r.ctx, partitions))(r), int64(0)
	for _, c := range some {
		r.equal("at least", c.AtLeast, c.State == core.StateProcessing)
		if c.State == core.StateProcessing {
			processing += c.Tasks
		}
	}
	r.equal("processing, at least", processing, int64(partitions+1))
}

// testCutCounts: what is counted of a state is exact up to the bound and the bound beyond it, in whichever partitions its
// tasks are and however many have ended otherwise since; and no type is left out that may have more.
func testCutCounts(r *rig) {
	const most = 6
	for _, name := range []string{"order", "late", "parcel"} {
		p := plan()
		p.Name = name
		r.must(r.s.PutPlan(r.ctx, p))
	}
	end := int64(0)
	finish := func(n int, name string, state core.State) {
		for range n {
			w := birth(1, end+1, fmt.Sprintf("%s-%d", name, end))
			w.Task.Type = name
			r.write(w)
			end++
			r.write(ended(w.Task, state, end))
		}
	}
	processed := func(what string, want ...core.Count) {
		r.Helper()
		got := slices.DeleteFunc(get(r.s.CountsUpTo(r.ctx, most))(r), func(c core.Count) bool { return c.State != core.StateProcessed })
		r.equal(what, got, want)
	}
	is := func(name string, n int64, more bool) core.Count {
		return core.Count{Type: name, State: core.StateProcessed, Tasks: n, AtLeast: more}
	}
	finish(3, "late", core.StateProcessed)
	finish(3, "parcel", core.StateProcessed)
	processed("as many as the bound, in one partition", is("late", 3, false), is("parcel", 3, false))
	finish(5, "parcel", core.StateProcessed)
	processed("beyond it", is("late", 0, true), is("order", 0, true), is("parcel", 6, true))
	finish(5, "late", core.StateUndone)
	finish(4, "parcel", core.StateError)
	processed("with others that have ended since", is("late", 0, true), is("order", 0, true), is("parcel", 6, true))
	finish(4, "late", core.StateUndone)
	processed("with others beyond the bound", is("late", 3, true), is("order", 0, true), is("parcel", 6, true))
}

// testVersion: migrated tables are of the version that is wanted.
func testVersion(r *rig) { r.must(r.s.CheckVersion(r.ctx)) }

func testPlans(r *rig) {
	p := plan()
	r.equal("none yet", len(get(r.s.Plans(r.ctx))(r)), 0)
	r.must(r.s.PutPlan(r.ctx, p))
	r.must(r.s.PutPlan(r.ctx, plan()))
	for name, change := range map[string]func(*core.Plan){
		"time":       func(p *core.Plan) { p.CompleteBy += time.Millisecond },
		"queue":      func(p *core.Plan) { p.QueueFor = time.Minute },
		"step":       func(p *core.Plan) { p.Steps[1].Agent = "other" },
		"steps":      func(p *core.Plan) { p.Steps = p.Steps[:2] },
		"exhaustion": func(p *core.Plan) { p.Steps[2].OnExhausted = core.PolicyError },
	} {
		other := plan()
		change(&other)
		if err := r.s.PutPlan(r.ctx, other); !errors.Is(err, core.ErrPlanConflict) {
			r.Errorf("another %s under the same version: %v", name, err)
		}
	}
	silent := plan() // the same, said in other words
	silent.Grace, silent.InputMax, silent.Steps[0].After, silent.Steps[2].After = 0, 0, []int{}, []int{1, 0, 1}
	r.must(r.s.PutPlan(r.ctx, silent))
	odd := plan()
	odd.Version, odd.CompleteBy = 7, time.Minute+time.Microsecond
	if err := r.s.PutPlan(r.ctx, odd); !errors.Is(err, core.ErrPlan) {
		r.Errorf("a time that the stored form cannot hold: %v", err)
	}
	second, another := plan(), plan()
	second.Version, another.Name = 2, "another"
	second.Steps[0].Agent = "other"
	r.must(r.s.PutPlan(r.ctx, second))
	r.must(r.s.PutPlan(r.ctx, another))
	r.equal("plans", get(r.s.Plans(r.ctx))(r), []core.Plan{another, p, second})
	r.putAtOnce()
}

// putAtOnce stores one plan from several processes at once.
func (r *rig) putAtOnce() {
	r.Helper()
	p := plan()
	p.Name = "at-once"
	errs := make(chan error)
	for range 6 {
		go func() { errs <- r.s.PutPlan(r.ctx, p) }()
	}
	for range 6 {
		if err := <-errs; err != nil {
			r.Errorf("the same plan at once: %v", err)
		}
	}
}

// testPurge has ten tasks that ended one second after the other, one of them in
// error, one not told, and one that never ended.
func testPurge(r *rig) {
	all := births(1, 12)
	r.write(append(all, births(2, 1)...)...)
	var writes []core.TaskWrite
	for i := range 11 {
		state := core.StateProcessed
		switch i {
		case 2:
			state = core.StateError
		case 3:
			state = core.StateUndone
		}
		writes = append(writes, ended(all[i].Task, state, int64(i+1)))
	}
	st := r.own[1]
	st.Told = 10
	r.write(writes...)
	never := core.Instant(0)
	endOf := func(i int) core.Instant { return writes[i].Task.EndedAt }

	r.purged(never, endOf(5), 3, 3) // 1, 2 and 4: the task in error stays
	r.purged(never, endOf(5), 3, 1) // 5
	r.purged(never, endOf(5), 3, 0) // 6 has not ended before its own end
	for i := range 12 {
		got := r.load(1, int64(i+1))
		if gone := i < 5 && i != 2; gone != (got.Row.Input == nil) || gone != (len(got.Journal) == 0) {
			r.Errorf("task %d: input %q and %d journal rows", i+1, got.Row.Input, len(got.Journal))
		}
		if got.Row.State == "" || string(got.Row.InputHash) == "" {
			r.Errorf("task %d has lost what a tombstone keeps: %+v", i+1, got.Row)
		}
	}
	r.tombstone(all[0])
	r.purged(never, start.Add(time.Hour), 100, 5) // 6 to 10; 11 is not told, 12 has not ended
	if r.load(1, 11).Row.Input == nil || r.load(1, 12).Row.Input == nil {
		r.Error("a task was purged that is not told or has not ended")
	}
	r.purged(endOf(1), start.Add(time.Hour), 100, 1)
	if r.load(1, 1) != nil || r.load(1, 2) == nil {
		r.Error("the wrong tombstone went")
	}
	r.write(birth(1, 20, "t1-1")) // the id is free again
	r.purged(start.Add(time.Hour), start.Add(time.Hour), 100, 8)
	r.equal("what is left", numbers(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20}))(r)), []int64{3, 11, 12, 20})
	r.equal("the other partition", numbers(get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 2}, 0, 10))(r)), []int64{1})
	// What stayed for a person goes when it is settled, under its new end number.
	st.Told = 12
	r.write(ended(writes[2].Task, core.StateProcessed, 12))
	r.purged(never, start.Add(time.Hour), 100, 2) // 11 and 3
	if got := r.load(1, 3); got.Row.Input != nil || len(got.Journal) != 0 {
		r.Errorf("a settled task: input %q and %d journal rows", got.Row.Input, len(got.Journal))
	}
}

// purged purges once and checks how many tasks that touched.
func (r *rig) purged(row, detail core.Instant, limit, want int) {
	r.Helper()
	r.equal("tasks purged", get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, detail, row, limit))(r), want)
}

// tombstone checks that a purged task still answers for its id.
func (r *rig) tombstone(w core.TaskWrite) {
	r.Helper()
	want := existing(w)
	want.State = core.StateProcessed
	again := birth(1, 19, w.Task.ID)
	r.result(r.batch(again), core.CommitResult{Duplicates: []core.Duplicate{{Partition: 1, Number: 19, Existing: want}}})
	v := get(r.s.Get(r.ctx, 1, w.Task.ID))(r)
	if v.State != core.StateProcessed || v.EndedAt == 0 || v.Input != nil || len(v.Steps) != 0 {
		r.Errorf("view of a tombstone: %+v", v)
	}
}

func testPurgeFenced(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	r.own[1].Told = 1
	r.write(ended(w.Task, core.StateProcessed, 1))
	get(r.s.TakeOver(r.ctx, 1, core.Claim{Owner: "successor"}))(r)
	n, err := r.s.Purge(r.ctx, 1, r.own[1].Epoch, start.Add(time.Hour), start.Add(time.Hour), 10)
	if err == nil && n > 0 {
		r.Errorf("a stale owner purged %d tasks", n)
	}
	if got := r.load(1, 1); got == nil || got.Row.Input == nil || len(got.Journal) != 2 {
		r.Errorf("purged by a stale owner: %+v", got)
	}
}

// testPurgeAfterTakeover: how far rows are gone is not remembered over a takeover, because the
// database may have been restored meanwhile, and has rows again that were gone.
func testPurgeAfterTakeover(r *rig) {
	first := []core.TaskWrite{birth(1, 11, "a"), birth(1, 12, "b"), birth(1, 13, "c")}
	r.write(first...)
	r.own[1].Told = 3
	r.write(ended(first[0].Task, core.StateProcessed, 1), ended(first[1].Task, core.StateProcessed, 2), ended(first[2].Task, core.StateProcessed, 3))
	r.purged(0, start.Add(time.Hour), 100, 3)
	r.purged(start.Add(time.Hour), start.Add(time.Hour), 100, 3)
	r.equal("what is left", len(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{11, 12, 13}))(r)), 0)
	r.takeOver(1)
	again := births(1, 2)
	r.write(again...)
	r.own[1].Told = 5
	r.write(ended(again[0].Task, core.StateProcessed, 4), ended(again[1].Task, core.StateProcessed, 5))
	r.purged(0, start.Add(time.Hour), 100, 2)
	r.purged(start.Add(time.Hour), start.Add(time.Hour), 100, 2)
	r.equal("what is left", len(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{1, 2, 3}))(r)), 0)
}

// testPurgePassedOver: the row of a task that was in error when its turn came goes when an operator has settled it, without
// a takeover.
func testPurgePassedOver(r *rig) {
	failed, done := birth(1, 11, "a"), birth(1, 12, "b")
	r.write(failed, done)
	r.own[1].Told = 3
	failed = ended(failed.Task, core.StateError, 1)
	r.write(failed, ended(done.Task, core.StateProcessed, 2))
	later := start.Add(time.Hour)
	r.purged(0, later, 100, 1)
	r.purged(later, later, 100, 1)
	failed.Task.EndNumber = 0
	r.write(ended(failed.Task, core.StateProcessed, 3))
	r.purged(0, later, 100, 1)
	r.purged(later.Add(2*time.Hour), later, 100, 1)
	r.equal("what is left", len(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{11, 12}))(r)), 0)
}

func testAudit(r *rig) {
	r.must(r.s.PutPlan(r.ctx, plan()))
	all := births(1, 2)
	r.write(all...)
	end := ended(all[0].Task, core.StateProcessed, 1)
	r.write(end)
	a := get(r.s.Books(r.ctx))(r)
	r.equal("states", a.States, map[string]string{"t1-1": "processed", "t1-2": "processing"})
	if a.StepRows != 1 || len(a.DoneTwice) != 0 {
		r.Errorf("audit: %+v", a)
	}
	r.write(ended(end.Task, core.StateProcessed, 2)) // the same step done again
	a = get(r.s.Books(r.ctx))(r)
	if len(a.DoneTwice) != 1 || a.DoneTwice[0].Task != "t1-1" || a.DoneTwice[0].Step != "check" || a.DoneTwice[0].Rows != 2 {
		r.Errorf("a step done twice: %+v", a.DoneTwice)
	}
	// What was done before the database went back is done again, and is done once since.
	w := ended(all[1].Task, core.StateProcessing, 0)
	r.write(w)
	back := next(w.Task, true, func(_ *core.Task, rec *core.Record) { rec.Kind, rec.Actor = core.KindWentBack, node })
	r.write(back)
	w = ended(back.Task, core.StateProcessing, 0)
	r.write(w)
	if a = get(r.s.Books(r.ctx))(r); len(a.DoneTwice) != 1 {
		r.Errorf("a step done again because the database went back: %+v", a.DoneTwice)
	}
	r.write(ended(w.Task, core.StateProcessing, 0))
	if a = get(r.s.Books(r.ctx))(r); len(a.DoneTwice) != 2 {
		r.Errorf("a step done twice after the database went back: %+v", a.DoneTwice)
	}
}
