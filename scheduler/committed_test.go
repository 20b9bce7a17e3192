package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// bound limits an agent, which the shard knows, and gives it all of that for an hour.
func (r *rig) bound(l core.Limit) {
	r.t.Helper()
	r.mail.Limits = &[]core.Limit{l}
	r.tasks(0, order("known"), order("parked"))
	r.leaves()
	for _, id := range []string{"known", "parked"} {
		r.control(core.Control{Kind: core.EventCancel, ID: id, Type: "order", Actor: "c"})
	}
	r.leaves()
	r.granted(l)
	r.leaves()
}

// granted gives the shard all of a limit.
func (r *rig) granted(l core.Limit) {
	term := r.shard.Term()
	grant := core.Grant{Holder: "n", Wanted: 1, Places: l.Concurrent, RateMilli: l.RateMilli, Until: r.now.Add(time.Hour)}
	r.mail.Grants = append(r.mail.Grants, scheduler.GrantMail{Term: term, ClaimedGrant: core.ClaimedGrant{Limit: l, Grant: grant, Fair: grant, First: true}, Seq: term})
}

// grantedKeys gives the shard all of a limit for some keys.
func (r *rig) grantedKeys(l core.Limit, keys ...string) {
	for _, key := range keys {
		grant := core.Grant{Holder: "n", Keyed: true, Key: key, Wanted: 1, Places: l.KeyConcurrent, RateMilli: l.KeyRateMilli, Until: r.now.Add(1000 * time.Hour)}
		r.mail.Grants = append(r.mail.Grants, scheduler.GrantMail{Term: r.shard.Term(), ClaimedGrant: core.ClaimedGrant{Limit: l, Grant: grant, Fair: grant, First: true}, Seq: 1})
	}
}

// counted is what the shard has counted of calls since the last look.
func (r *rig) counted() string {
	var all []string
	r.shard.Calls(func(agent string, _ int64, calls, trial core.Calls) {
		all = append(all, fmt.Sprint(agent, calls, trial))
	})
	return fmt.Sprint(all)
}

func (r *rig) overdue(c core.Command) {
	r.now = max(r.now, c.CompleteBy)
	r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{c.Number}})
}

// The place of a command that was answered is free when the answer is committed: of one that never was it is taken until the
// command must be over.
//
// covers: L24
func TestPlaceIsFreedByTheCommit(t *testing.T) {
	for name, fail := range map[string]func(*rig){
		"commit fails": func(r *rig) { r.store.BeforeCommit = func(*core.Batch) error { return errCut } },
		"fenced":       func(r *rig) { r.steal(0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{BatchMax: 1})
			r.adopt(1)
			r.bound(core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
			r.tasks(0, order("t1"))
			r.leaves("t1")
			r.tasks(1, order("t2"))
			r.leaves()
			r.answer(r.out[0], 0)
			fail(r)
			_, _ = r.try(false)
			r.store.BeforeCommit = nil
			limit := core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1}
			if _, owns := r.shard.Owns(1); !owns {
				r.adopt(1)
				r.granted(limit)
			}
			r.leaves()
			r.adopt(0)
			r.granted(limit)
			r.leaves("t1") // again: its answer is lost
			r.answer(r.out[1], 0)
			for range 100 { // the first owner's command is over by then
				if ids := r.left(); len(ids) > 0 && ids[len(ids)-1] == "t2" {
					return
				}
				r.now = r.now.Add(time.Second)
			}
			t.Error("the place never comes back")
		})
	}
}

// A task whose row is refused gives back at once what it took: its command has not left.
//
// covers: L24
func TestRefusedRowGivesItsPlaceBack(t *testing.T) {
	for name, refuse := range map[string]func(*rig){
		"its id was taken": func(r *rig) {
			r.tasks(0, order("t1"))
			r.cycle()
			r.finish()
		},
		"by the database": func(r *rig) {
			r.store.BeforeCommit = func(b *core.Batch) error {
				for i := range b.Writes {
					if b.Writes[i].Task.ID == "t1" && len(b.Writes[i].Task.Input) > 0 {
						return core.ErrRowRefused
					}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			refuse(r)
			r.bound(core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1})
			r.tasks(0, order("t1"), order("t2"))
			r.leaves("t2")

		})
	}
}

// What a round that is lost before anything of it was stored took is free at once, for the tasks of other partitions as well:
// none of its commands has left.
//
// covers: L24
func TestLostRoundGivesItsPlacesBack(t *testing.T) {
	limit := core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1}
	for name, fail := range map[string]func(*rig, *failing){
		"fenced": func(r *rig, _ *failing) {
			r.store.BeforeCommit = func(*core.Batch) error {
				r.store.BeforeCommit = nil
				r.steal(0)
				return nil
			}
		},
		"a read fails": func(r *rig, f *failing) {
			f.plans = errCut
			unknown := order("t0")
			unknown.Type = "unknown"
			r.tasks(0, unknown)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, scheduler.Config{})
			f := &failing{MemStore: r.store}
			r.reads = f
			r.start("n1")
			r.adopt(0)
			r.adopt(1)
			r.bound(limit)
			r.now = r.now.Add(time.Minute)
			r.tasks(0, order("t1"))
			fail(r, f)
			if lost, _ := r.try(false); !slices.Contains(lost, 0) {
				t.Fatalf("lost %v", lost)
			}
			f.plans = nil
			if _, owns := r.shard.Owns(1); !owns {
				r.adopt(1)
				r.granted(limit)
			}
			r.tasks(1, order("t2"))
			r.leaves("t2")
		})
	}
}

// A place that a lost round has taken from a parked task of another partition makes a round look at that.
func TestPlaceOfALostRoundWakes(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	limit := core.Limit{Agent: "agent.a", Concurrent: 1, Revision: 1}
	r.bound(limit)
	r.tasks(0, order("t0"))
	r.leaves("t0")
	r.tasks(1, order("t1")) // whose turn it is
	r.tasks(0, order("t2"))
	r.leaves()
	limit.Concurrent, limit.Revision = 2, 2
	r.mail.Limits = &[]core.Limit{limit}
	r.granted(limit)
	r.store.BeforeCommit = func(*core.Batch) error {
		r.store.BeforeCommit = nil
		r.steal(1)
		return nil
	}
	if lost := r.cycle(); !slices.Equal(lost, []int{1}) {
		t.Fatalf("lost %v", lost)
	}
	if next := r.shard.NextWake(); next > r.now {
		t.Errorf("the next round is at %d, want it now, at %d", next, r.now)
	}
	r.leaves("t2")
}

// A call counts for its agent's breaker when its answer is committed.
//
// covers: L24
func TestCallsAreCountedByTheCommit(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.leaves("t1")
	r.answer(r.out[0], core.CodeAgentError)
	r.store.BeforeCommit = func(*core.Batch) error { return errCut }
	_, _ = r.try(false)
	if got := r.counted(); got != "[]" {
		t.Errorf("an answer that is not committed counts %s", got)
	}
	r.store.BeforeCommit = nil
	r.adopt(0)
	r.leaves("t1")
	r.answer(r.out[1], core.CodeAgentError)
	r.cycle()
	if got := r.counted(); got != "[agent.a{0 1} {0 0}]" {
		t.Errorf("counted %s, want one failure", got)
	}
}

// A silent command counts only where the owner that finds it overdue has sent it, and has heard every answer since.
//
// covers: L11
func TestSilenceThatIsNotTheAgents(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *rig, hears *int64)
		want  string
	}{
		"it was silent":              {func(*rig, *int64) {}, "[agent.a{0 1} {0 0}]"},
		"sent by an owner that died": {func(r *rig, _ *int64) { r.start("n2"); r.adopt(0); r.left() }, "[]"},
		"answers were lost":          {func(r *rig, hears *int64) { *hears++; r.cycle() }, "[]"},
		"answers are lost":           {func(r *rig, hears *int64) { *hears = 0; r.cycle() }, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			hears := int64(1)
			r := newRig(t, scheduler.Config{Hears: func() int64 { return hears }})
			r.tasks(0, order("t1"))
			r.leaves("t1")
			c.spoil(r, &hears)
			r.overdue(r.out[0])
			r.cycle()
			if got := r.counted(); got != c.want {
				t.Errorf("counted %s, want %s", got, c.want)
			}
		})
	}
}

// Nothing counts for an agent that never got a command: an expression of its step failed, or its time was over before it
// could leave.
//
// covers: L11
func TestWhatTheAgentNeverGot(t *testing.T) {
	t.Run("expression", func(t *testing.T) {
		r := newRig(t, scheduler.Config{Expressions: failingInput{}})
		plan := orderPlan("bad", 1, "a")
		plan.Steps[0].Input = "input.nothing"
		r.store.AddPlan(plan)
		r.tasks(0, core.Submission{Type: "bad", ID: "t1", Input: []byte(`{}`)})
		r.leaves()
		r.state("t1", core.StateUndone)
		if got := r.counted(); got != "[]" {
			t.Errorf("counted %s", got)
		}
	})
	t.Run("slow commit", func(t *testing.T) {
		r := newRig(t, scheduler.Config{})
		after := r.store.AfterCommit
		r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
			r.now = r.now.Add(time.Hour)
			return after(b, res)
		}
		r.tasks(0, order("t1"))
		r.leaves()
		r.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{1}})
		r.cycle()
		if got := r.counted(); got != "[]" {
			t.Errorf("counted %s", got)
		}
	})
}

// failingInput answers no expression.
type failingInput struct{ core.Asker }

func (f failingInput) Bind(*core.Plan, *core.Task) core.Asker { return f }

func (failingInput) Children(*core.Plan, *core.Task, int) func(int, []byte) ([]byte, error) {
	return nil
}

func (failingInput) Input(int) ([]byte, error) { return nil, errCut }

// A migration that is refused leaves the trial, the places and the keys of the task as they were.
//
// covers: L22
func TestRefusedMigrationKeepsTheTrial(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.bound(core.Limit{Agent: "agent.a", Concurrent: 2, Revision: 1})
	r.shut(core.Breaker{Agent: "agent.a", State: core.BreakerTrial, Revision: 2})
	r.store.AddPlan(orderPlan("order", 2, "b", "a"))
	late := r.now.Add(time.Hour)
	first := orderBy("t1", late)
	first.PlanVersion = 1
	second := orderBy("t2", late)
	second.PlanVersion = 1
	r.tasks(0, first, second)
	r.leaves("t1")
	r.now = r.now.Add(time.Second)
	r.control(core.Control{Kind: core.EventMigrate, ID: "t1", Version: 2, Actor: "ops"})
	r.leaves() // t1 is still the one that is tried
	if task := r.state("t1", core.StateProcessing); task.PlanVersion != 1 {
		t.Fatalf("migrated to version %d: the case needs a migration that is refused", task.PlanVersion)
	}
	r.answer(r.out[0], 0)
	r.left()
	if got := r.counted(); got != "[agent.a{1 0} {1 0}]" {
		t.Errorf("counted %s, want the success of a trial", got)
	}
}
