package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

func numbers(saved []core.Saved) []int64 {
	var all []int64
	for i := range saved {
		all = append(all, saved[i].Row.Number)
	}
	return all
}

func testLoadActive(r *rig) {
	all := births(1, 9)
	r.write(append(all, births(2, 2)...)...)
	r.write(
		ended(all[1].Task, core.StateProcessed, 1), ended(all[3].Task, core.StateUndone, 2), ended(all[4].Task, core.StateError, 3),
		next(all[5].Task, true, func(t *core.Task, _ *core.Record) { t.State = core.StateUndoing }),
		next(all[6].Task, true, func(t *core.Task, _ *core.Record) { t.State, t.WaitsFor = core.StatePending, "payment" }),
	)
	first := get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 1}, 0, 3))(r)
	r.equal("first page", numbers(first), []int64{1, 3, 6})
	if len(first[2].Journal) != 2 || first[2].Journal[1].State != core.StateUndoing {
		r.Errorf("journal of the task being undone: %+v", first[2].Journal)
	}
	r.equal("second page", numbers(get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 1}, 6, 3))(r)), []int64{8, 9})
	r.equal("after the last", numbers(get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 1}, 9, 3))(r)), []int64(nil))
	r.equal("other partition", numbers(get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 2}, 0, 100))(r)), []int64{1, 2})
}

func testLoadByKey(r *rig) {
	r.write(append(births(1, 5), births(2, 2)...)...)
	r.equal("by number", numbers(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{5, 2, 99}))(r)), []int64{2, 5})
	r.equal("by id", numbers(get(r.s.LoadIDs(r.ctx, core.AsOf{Partition: 1}, []string{"t1-4", "t1-1", "t2-1", "none"}))(r)), []int64{1, 4})
	r.equal("none", numbers(get(r.s.LoadIDs(r.ctx, core.AsOf{Partition: 1}, nil))(r)), []int64(nil))
	r.equal("none", numbers(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 1}, []int64{}))(r)), []int64(nil))
	many := make([]int64, 5000)
	for i := range many {
		many[i] = int64(i + 1)
	}
	r.equal("many", numbers(get(r.s.LoadNumbers(r.ctx, core.AsOf{Partition: 2}, many))(r)), []int64{1, 2})
}

// testReadsFenced reads all that an owner reads, where there is something and where there is nothing, as of its own commit,
// of another one, and of a former epoch.
func testReadsFenced(r *rig) {
	all := births(1, 3)
	all[1].Task.State, all[1].Task.WaitsFor, all[1].Task.LockedBy = core.StatePending, "a", ""
	r.write(all...)
	r.write(ended(all[2].Task, core.StateProcessed, 1), childOf(all[0].Task, 4, 0, 0, 0))
	of := siblings(all[0].Task, 0, 0)
	st := r.own[1]
	for _, some := range []bool{true, false} {
		numbers, id, agent, after := []int64{1}, "t1-1", "a", int64(0)
		if !some {
			numbers, id, agent, after = []int64{99}, "none", "z", 99
		}
		for name, read := range map[string]func(as core.AsOf) (int, error){
			"LoadActive":    func(as core.AsOf) (int, error) { is, err := r.s.LoadActive(r.ctx, as, after, 9); return len(is), err },
			"LoadNumbers":   func(as core.AsOf) (int, error) { is, err := r.s.LoadNumbers(r.ctx, as, numbers); return len(is), err },
			"LoadIDs":       func(as core.AsOf) (int, error) { is, err := r.s.LoadIDs(r.ctx, as, []string{id}); return len(is), err },
			"Waiting":       func(as core.AsOf) (int, error) { is, err := r.s.Waiting(r.ctx, as, agent, 0, 9); return len(is), err },
			"WaitingAgents": func(as core.AsOf) (int, error) { is, err := r.s.WaitingAgents(r.ctx, as); return len(is), err },
			"Untold":        func(as core.AsOf) (int, error) { is, err := r.s.Untold(r.ctx, as, after, 9); return len(is), err },
			"Children":      func(as core.AsOf) (int, error) { is, err := r.s.Children(r.ctx, as, of, after, 9); return len(is), err },
			"Youngest": func(as core.AsOf) (int, error) {
				is, err := r.s.Youngest(r.ctx, as, of, 99-after, 9)
				return len(is), err
			},
			"ChildCounts": func(as core.AsOf) (int, error) { is, err := r.s.ChildCounts(r.ctx, as, of); return is.Born, err },
			"Fresh": func(as core.AsOf) (int, error) {
				is, err := r.s.Fresh(r.ctx, as, 1, after, r.commit)
				return len(is), err
			},
		} {
			want := 0
			if some || name == "WaitingAgents" || name == "ChildCounts" {
				want = 1
			}
			if name == "LoadActive" && some {
				want = 2
			}
			if n, err := read(core.AsOf{Partition: 1, Epoch: st.Epoch, Commit: st.LastCommit}); n != want || err != nil {
				r.Errorf("%s as this owner left it: %d, %v, want %d", name, n, err, want)
			}
			for what, as := range map[string]core.AsOf{
				"as of another commit": {Partition: 1, Epoch: st.Epoch, Commit: st.LastCommit - 1},
				"of a former epoch":    {Partition: 1, Epoch: st.Epoch - 1, Commit: st.LastCommit},
			} {
				if as.Epoch == 0 {
					as.Epoch = st.Epoch + 1
				}
				if _, err := read(as); !errors.Is(err, core.ErrOvertaken) || core.FaultOf(err).Stops != core.StopsPartition {
					r.Errorf("%s %s: %v, want %v", name, what, err, core.ErrOvertaken)
				}
			}
		}
	}
}

// testOverdue has many tasks of one time, in several partitions, and reads them
// in pages of every size.
func testOverdue(r *rig) {
	var want []core.Due
	var writes []core.TaskWrite
	for p := range partitions - 1 {
		for n := int64(1); n <= 7; n++ {
			w := birth(p, n, fmt.Sprintf("t%d-%d", p, n))
			w.Task.Bound = start + core.Instant(n/3) // ties
			if n == 4 {
				w.Task.State, w.Task.WaitsFor = core.StatePending, "payment" // parked: asked about all the same
			}
			if n == 5 {
				w.Task.State = core.StateUndoing
			}
			writes = append(writes, w)
			want = append(want, core.Due{Partition: p, Number: n, Bound: w.Task.Bound})
		}
		later := birth(p, 8, fmt.Sprintf("t%d-8", p))
		later.Task.Bound = start + 3
		done := birth(p, 9, fmt.Sprintf("t%d-9", p))
		done.Task.State, done.Task.EndedAt, done.Task.EndNumber, done.Task.Bound = core.StateProcessed, start, 1, start
		writes = append(writes, later, done)
	}
	r.write(writes...)
	now := start + 3 // not before: not overdue
	for _, limit := range []int{1, 2, 3, 7, 8, 20, 100} {
		var got []core.Due
		for after := (core.Due{}); ; {
			page := get(r.s.Overdue(r.ctx, 0, now, after, limit))(r)
			if len(page) > limit {
				r.Fatalf("%d of at most %d", len(page), limit)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = page[len(page)-1]
		}
		r.equal(fmt.Sprintf("pages of %d", limit), got, want)
	}
	const since = start + 1
	late := slices.DeleteFunc(slices.Clone(want), func(d core.Due) bool { return d.Bound < since })
	r.equal("since", get(r.s.Overdue(r.ctx, since, now, core.Due{}, 100))(r), late)
	r.equal("since, after one before", get(r.s.Overdue(r.ctx, since, now, want[0], 100))(r), late)
	r.equal("since, after one", get(r.s.Overdue(r.ctx, since, now, late[0], 100))(r), late[1:])
	r.equal("at the start", get(r.s.Overdue(r.ctx, 0, start, core.Due{}, 100))(r), []core.Due(nil))
}

func testWaiting(r *rig) {
	all := births(1, 8)
	for i, agent := range []string{"b", "a", "", "b", "b", "", "c", "b"} {
		if agent != "" {
			all[i].Task.State, all[i].Task.WaitsFor, all[i].Task.LockedBy = core.StatePending, agent, ""
		}
	}
	r.write(append(all, births(2, 1)...)...)
	r.equal("first page", get(r.s.Waiting(r.ctx, core.AsOf{Partition: 1}, "b", 0, 2))(r), []int64{1, 4})
	r.equal("second page", get(r.s.Waiting(r.ctx, core.AsOf{Partition: 1}, "b", 4, 9))(r), []int64{5, 8})
	r.equal("none", get(r.s.Waiting(r.ctx, core.AsOf{Partition: 2}, "b", 0, 9))(r), []int64(nil))
	agents := get(r.s.WaitingAgents(r.ctx, core.AsOf{Partition: 1}))(r)
	seen := map[string]int{}
	for _, a := range agents {
		seen[a]++
	}
	r.equal("agents waited for", seen, map[string]int{"a": 1, "b": 1, "c": 1})
	r.write(next(all[6].Task, true, func(t *core.Task, _ *core.Record) { t.State, t.WaitsFor = core.StateProcessing, "" }))
	r.equal("agents waited for, less one", len(get(r.s.WaitingAgents(r.ctx, core.AsOf{Partition: 1}))(r)), 2)
}

// untold makes four endings: processed, undone after a refusal, error, and one
// that was cancelled before it was submitted.
func (r *rig) untold() []core.Ending {
	r.Helper()
	r.must(r.s.PutPlan(r.ctx, plan()))
	all := births(1, 3)
	all[1].Task.ReplyTo = "inbox.of.two"
	r.write(all...)
	refused := next(all[1].Task, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.EndNumber, t.FailedStep, t.Why = core.StateUndone, t.UpdatedAt, 2, 2, "card declined"
		rec.Kind, rec.Step, rec.StepStatus, rec.Attempt, rec.Code, rec.Error = core.KindRefused, 1, core.StepFailed, 1, 422, "card declined"
	})
	failed := next(all[2].Task, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.EndNumber, t.FailedStep, t.Why = core.StateError, t.UpdatedAt, 1, 3, "gone"
		rec.Kind, rec.Step, rec.StepStatus, rec.Attempt, rec.Code, rec.Error = core.KindUndoRefused, 2, core.StepUndoing, 1, 410, "gone"
	})
	r.write(ended(all[0].Task, core.StateProcessed, 3), refused, failed)
	never := &core.Task{Partition: 1, Number: 4, ID: "never", Type: "order", CreatedAt: start, EndNumber: 4}
	var out core.Outcome
	core.BirthCancelled(never, &core.Event{At: start + 7, Actor: "olga", Reason: "not wanted"}, &out)
	r.write(core.TaskWrite{Task: never, Birth: true, Records: out.Records})

	want := make([]core.Ending, 0, 4)
	for _, e := range []struct {
		t         *core.Task
		n         int64
		step, why string
	}{{failed.Task, 1, "ship", "gone"}, {refused.Task, 2, "charge", "card declined"}, {all[0].Task, 3, "", ""}, {never, 4, "", "not wanted"}} {
		row := r.load(1, e.t.Number).Row
		want = append(want, core.Ending{
			Partition: 1, EndNumber: e.n, ID: row.ID, Type: "order", State: row.State, Seq: row.Seq, Step: e.step, Error: e.why,
			CreatedAt: row.CreatedAt, At: row.EndedAt, ReplyTo: row.ReplyTo,
		})
	}
	r.equal("reply-to", want[1].ReplyTo, "inbox.of.two")
	return want
}

func testUntold(r *rig) {
	want := r.untold()
	r.equal("all", get(r.s.Untold(r.ctx, core.AsOf{Partition: 1}, 0, 100))(r), want)
	r.equal("a page", get(r.s.Untold(r.ctx, core.AsOf{Partition: 1}, 1, 2))(r), want[1:3])
	r.equal("after the last", len(get(r.s.Untold(r.ctx, core.AsOf{Partition: 1}, 4, 100))(r)), 0)
	r.equal("other partition", len(get(r.s.Untold(r.ctx, core.AsOf{Partition: 2}, 0, 100))(r)), 0)
}

func testExisting(r *rig) {
	r.untold()
	found := map[string]core.Existing{}
	for _, e := range get(r.s.Existing(r.ctx, 1, []string{"t1-1", "t1-2", "never", "none"}))(r) {
		found[e.ID] = e
	}
	r.equal("existing", found, map[string]core.Existing{
		"t1-1":  {Partition: 1, Number: 1, ID: "t1-1", Type: "order", InputHash: []byte("hash of t1-1"), State: core.StateProcessed},
		"t1-2":  {Partition: 1, Number: 2, ID: "t1-2", Type: "order", InputHash: []byte("hash of t1-2"), State: core.StateUndone, Reason: "card declined"},
		"never": {Partition: 1, Number: 4, ID: "never", Type: "order", State: core.StateUndone, Reason: "not wanted"},
	})
	r.equal("none", len(get(r.s.Existing(r.ctx, 1, nil))(r)), 0)
	// A duplicate says as much.
	res := get(r.s.Commit(r.ctx, r.batch(birth(1, 9, "t1-2"))))(r)
	if len(res.Duplicates) != 1 || res.Duplicates[0].Existing.Reason != "card declined" {
		r.Errorf("duplicate of an undone task: %+v", res)
	}
}

// shown is a view without what it was made of.
func shown(r *rig, v core.View) string { return string(get(json.Marshal(v))(r)) }

func testView(r *rig) {
	r.untold()
	v := get(r.s.Get(r.ctx, 1, "t1-2"))(r)
	created := start.Add(2 * time.Second)
	want := core.View{
		ID: "t1-2", Type: "order", PlanVersion: 1, Partition: 1, Number: 2, State: core.StateUndone, Failures: 1,
		Input: []byte(`{"n":1}`), InputHash: []byte("hash of t1-2"), CompleteBy: created.Add(time.Minute),
		CreatedAt: created, UpdatedAt: created.Add(time.Second), EndedAt: created.Add(time.Second), Reason: "card declined", FailedStep: "charge",
		Fingerprint: schema.FailureFingerprint(&core.Task{State: core.StateUndone, FailedStep: 2, Why: "card declined"}),
	}
	if want := `The task was undone at 2030-01-01T00:00:03Z, because step charge failed: "card declined".`; v.Sentence != want || v.Seq != 2 || !slices.Equal(v.Possible, []string{"resubmit", "edit"}) {
		r.Errorf("sentence %s, want %s; seq %d, possible %v", v.Sentence, want, v.Seq, v.Possible)
	}
	steps := v.Steps
	v.Steps, v.Failures, v.LockedBy, v.Sentence, v.Seq, v.Possible = nil, 1, "", "", 0, nil
	r.equal("view", shown(r, v), shown(r, want))
	if len(steps) != 3 || steps[1].Status != "failed" || steps[1].Code != 422 || steps[1].Error != "card declined" || steps[2].Status != "skipped" ||
		steps[1].Name != "charge" || steps[1].Agent != "payment" || steps[1].Attempt != 1 || steps[1].At != created.Add(time.Second) {
		r.Errorf("steps: %+v", steps)
	}
	if v := get(r.s.Get(r.ctx, 1, "t1-1"))(r); v.Reason != "" || string(v.Steps[0].Result) != `"done"` || v.Steps[0].Status != "done" {
		r.Errorf("view of a processed task: %+v", v)
	}
	for p, id := range map[int]string{1: "none", 2: "t1-1"} {
		if _, err := r.s.Get(r.ctx, p, id); !errors.Is(err, core.ErrNotFound) {
			r.Errorf("task %s of partition %d: %v, want not found", id, p, err)
		}
	}
}

// A task whose plan is not known any more is still shown.
func testViewWithoutPlan(r *rig) {
	w := birth(1, 1, "a")
	w.Task.PlanVersion = 99
	r.write(w, birth(1, 2, "b"))
	v := get(r.s.Get(r.ctx, 1, "a"))(r)
	if v.ID != "a" || v.State != core.StateProcessing || v.PlanVersion != 99 || len(v.Steps) != 0 {
		r.Errorf("view: %+v", v)
	}
	r.write(ended(w.Task, core.StateError, 1))
	r.equal("untold", len(get(r.s.Untold(r.ctx, core.AsOf{Partition: 1}, 0, 10))(r)), 1)
}
