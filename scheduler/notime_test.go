package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// needsTen says of every plan that its tasks take ten seconds.
func needsTen(*core.Plan) time.Duration { return 10 * time.Second }

// mailed is one message of the task stream that was stored so long ago.
func (r *rig) mailed(ago time.Duration, subs ...core.Submission) {
	r.tasks(0, subs...)
	r.mail.Tasks[len(r.mail.Tasks)-1].Stored = r.now.Add(-ago)
}

// TestNoTimeWhenItComesUp: what has waited in its stream, and has less time than its plan takes and a quarter more, ends
// unbegun, unless its plan says that it may be late; so does what came by the stream endpoint where the plan refuses. A plan
// that does not refuse by itself is taken to need a quarter of the time at most.
func TestNoTimeWhenItComesUp(t *testing.T) {
	for how, over := range map[core.Admission]string{core.AdmissionQueue: "late", core.AdmissionOff: "", core.AdmissionWarn: "", core.AdmissionRefuse: "late queued unseen"} {
		r := newRig(t, scheduler.Config{Needs: needsTen})
		p := orderPlan("tight", 1, "a")
		p.Admission, p.UndoReserve = how, time.Second
		r.store.AddPlan(p)
		sub := func(id string, unchecked bool, after time.Duration) core.Submission {
			return core.Submission{Type: "tight", ID: id, Unchecked: unchecked, CompleteBy: r.now.Add(after)}
		}
		r.mailed(0, sub("unseen", true, 13*time.Second), sub("checked", false, 13*time.Second))
		r.mailed(3*time.Second, sub("enough", false, 14*time.Second), sub("queued", false, 13*time.Second))
		r.mailed(12*time.Second, sub("late", false, 5*time.Second))
		r.cycle()
		for _, id := range []string{"unseen", "checked", "enough", "queued", "late"} {
			want := core.StateProcessing
			if strings.Contains(over, id) {
				want = core.StateUndone
			}
			if task := r.store.Task(0, id); task == nil || task.State != want {
				t.Errorf("admission %q: %s is %v, want %s", how, id, task, want)
			}
		}
	}
}

// TestNoTimeCountsFromTheStart: what begins later is looked at when it begins, and not before.
func TestNoTimeCountsFromTheStart(t *testing.T) {
	r := newRig(t, scheduler.Config{Needs: needsTen})
	p := orderPlan("tight", 1, "a")
	p.Admission, p.CompleteBy = core.AdmissionRefuse, 13*time.Second
	r.store.AddPlan(p)
	later := func(id string, start time.Duration) core.Submission {
		return core.Submission{Type: "tight", ID: id, Unchecked: true, At: r.now.Add(-10 * time.Second), StartAt: r.now.Add(start)}
	}
	short := later("short", time.Hour)
	short.CompleteBy = short.StartAt.Add(11 * time.Second)
	r.mailed(10*time.Second, later("later", time.Hour), later("begun", -5*time.Second), short)
	r.cycle()
	r.state("later", core.StatePending)
	r.state("begun", core.StateUndone)
	r.state("short", core.StateUndone)
}

// TestReadings: what the doors are told counts submissions, and of them what began.
func TestReadings(t *testing.T) {
	r := newRig(t, scheduler.Config{Needs: needsTen})
	r.store.AddPlan(orderPlan("tight", 1, "a"))
	sub := func(id string, after time.Duration) core.Submission {
		return core.Submission{Type: "tight", ID: id, CompleteBy: r.now.Add(after)}
	}
	r.mailed(3*time.Second, sub("a", time.Minute), sub("b", time.Minute), sub("c", time.Second))
	r.cycle()
	r.mailed(0, sub("a", time.Minute))
	r.cycle()
	if got := r.shard.Reading(0); got.Read != 4 || got.Begun != 2 || got.Cursor != 2 || got.Epoch == 0 {
		t.Errorf("%+v, want 4 read up to position 2, of which 2 began", got)
	}
}

// TestTimeFromTheTurn: where a plan's time counts from a task's turn, nothing ends for its wait before queue_for is over, and
// what begins has all of its time, whoever owns it later; beyond, it ends unbegun, and says why. A deadline that was named
// stays.
func TestTimeFromTheTurn(t *testing.T) {
	r := newRig(t, scheduler.Config{Needs: needsTen})
	p := orderPlan("turn", 1, "a")
	p.CompleteBy, p.QueueFor = 13*time.Second, time.Minute
	r.store.AddPlan(p)
	p.Version, p.Admission = 2, core.AdmissionOff
	r.store.AddPlan(p)
	p.Version, p.Admission = 3, core.AdmissionRefuse
	r.store.AddPlan(p)
	sub := func(id string, version int64, ago time.Duration) core.Submission {
		return core.Submission{Type: "turn", ID: id, PlanVersion: version, At: r.now.Add(-ago)}
	}
	named, later, late := sub("named", 1, 50*time.Second), sub("later", 1, 50*time.Second), sub("late-start", 1, 2*time.Minute)
	named.CompleteBy, later.StartAt, late.StartAt = r.now.Add(20*time.Second), r.now.Add(time.Hour), r.now.Add(-time.Second)
	r.mailed(60*time.Second, sub("waited", 1, 60*time.Second), sub("sure", 3, 60*time.Second), named, later, late)
	r.mailed(61*time.Second, sub("missed", 1, 61*time.Second), sub("off", 2, 61*time.Second))
	r.cycle()
	for id, want := range map[string]core.Instant{
		"waited": r.now.Add(13 * time.Second), "sure": r.now.Add(13 * time.Second), "off": r.now.Add(13 * time.Second), "late-start": r.now.Add(13 * time.Second),
		"named": named.CompleteBy, "later": later.StartAt.Add(13 * time.Second),
	} {
		state := core.StateProcessing
		if id == "later" {
			state = core.StatePending
		}
		if got := r.state(id, state).Deadline; got != want {
			t.Errorf("%s has a deadline %v from now, want %v", id, got.Sub(r.now), want.Sub(r.now))
		}
	}
	missed := r.state("missed", core.StateUndone)
	if want := "waited for its turn longer than its plan's queue_for; nothing of it began"; !strings.Contains(missed.Why, want) {
		t.Errorf("it ended because %q, want %q", missed.Why, want)
	}
	first := r.store.Task(0, "waited").Deadline
	r.now = r.now.Add(5 * time.Second)
	r.start("n2")
	r.adopt(0)
	r.cycle()
	if got := r.state("waited", core.StateProcessing).Deadline; got != first {
		t.Errorf("at another owner its deadline is %v later", got.Sub(first))
	}
}
