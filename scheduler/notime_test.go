package scheduler_test

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// TestNoTimeAtTheStreamEndpoint: what comes unchecked and has less time than its plan takes is refused where the plan
// says so; one that was checked, and one that is a task already, is not.
func TestNoTimeAtTheStreamEndpoint(t *testing.T) {
	for _, how := range []core.Admission{core.AdmissionOff, core.AdmissionWarn, core.AdmissionRefuse} {
		r := newRig(t, scheduler.Config{Admit: func(_ *core.Plan, left time.Duration) string {
			if left < 10*time.Second {
				return "too little"
			}
			return ""
		}})
		p := orderPlan("tight", 1, "a")
		p.Admission = how
		r.store.AddPlan(p)
		sub := func(id string, unchecked bool, after time.Duration) core.Submission {
			return core.Submission{Type: "tight", ID: id, Unchecked: unchecked, CompleteBy: r.now.Add(after)}
		}
		r.tasks(0, sub("enough", true, time.Minute), sub("short", true, time.Second), sub("checked", false, time.Second))
		r.cycle()
		r.state("enough", core.StateProcessing)
		r.state("checked", core.StateProcessing)
		if refused := r.store.Task(0, "short") == nil; refused != (how == core.AdmissionRefuse) {
			t.Errorf("admission %q: refused %v", how, refused)
		}
		r.finish()
		before := r.state("enough", core.StateProcessed).Seq
		r.now = r.now.Add(55 * time.Second)
		again := sub("enough", true, 5*time.Second)
		r.start("n2") // which has not the task's id in memory when the stream is read again
		r.tasks(0, again)
		r.adopt(0)
		r.cycle()
		if task := r.store.Task(0, "enough"); task == nil || task.Seq != before {
			t.Errorf("admission %q: the task is gone", how)
		}
		for _, line := range r.news() {
			if line == "refuse enough 422" {
				t.Errorf("admission %q: a task that exists is called refused", how)
			}
		}
	}
}

// TestNoTimeCountsFromTheStart: the time of a submission that begins later counts from then, at the stream endpoint as at
// the others.
func TestNoTimeCountsFromTheStart(t *testing.T) {
	r := newRig(t, scheduler.Config{Admit: func(p *core.Plan, left time.Duration) string {
		if left < p.CompleteBy {
			return "it has " + left.String()
		}
		return ""
	}})
	p := orderPlan("tight", 1, "a")
	p.Admission, p.CompleteBy = core.AdmissionRefuse, time.Minute
	r.store.AddPlan(p)
	took := r.now.Add(-10 * time.Second) // it has lain in the stream for so long
	later := func(id string, start, by time.Duration) core.Submission {
		s := core.Submission{Type: "tight", ID: id, Unchecked: true, At: took, StartAt: r.now.Add(start)}
		if by != 0 {
			s.CompleteBy = r.now.Add(by)
		}
		return s
	}
	r.tasks(0, later("whole", time.Hour, 0), later("begun", -5*time.Second, 0), later("named", time.Hour, 2*time.Hour), later("short", time.Hour, time.Hour+30*time.Second))
	r.cycle()
	for id, taken := range map[string]bool{"whole": true, "begun": false, "named": true, "short": false} {
		if is := r.store.Task(0, id) != nil; is != taken {
			t.Errorf("%s is taken: %v, want %v", id, is, taken)
		}
	}
}
