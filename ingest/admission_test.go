package ingest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// tight is a change of a configuration: plans take so long.
func tight(takes time.Duration) func(*Config) {
	return func(c *Config) {
		c.Admit = func(_ core.Instant, _ *core.Plan, left time.Duration) string {
			if left >= takes {
				return ""
			}
			return "it takes " + takes.String() + ", and " + left.String() + " are left"
		}
	}
}

// admits gives the plan "order" a minute and an admission.
func (r *rig) admits(how core.Admission) {
	p := *r.plans.now["order"]
	p.Admission, p.CompleteBy = how, time.Minute
	r.plans.now["order"] = &p
}

// ask submits with a time, and returns where its answer comes.
func (r *rig) ask(id, within string) *Answer {
	var got Answer
	r.door.Submit(epoch, Request{Form: submit.Form{Type: "order", ID: id, Input: []byte(`{}`), CompleteBy: within}, Answer: func(a Answer) { got = a }})
	r.door.Flush(epoch)
	return &got
}

// TestAdmission: off and enough time let in, warn lets in with a warning, refuse is 422 with both figures.
func TestAdmission(t *testing.T) {
	for _, c := range []struct {
		how     core.Admission
		within  string
		code    int
		warning bool
	}{
		{core.AdmissionOff, "1s", 0, false}, {core.AdmissionWarn, "1s", 0, true}, {core.AdmissionWarn, "", 0, false},
		{core.AdmissionRefuse, "1s", 422, false}, {core.AdmissionRefuse, "20s", 0, false}, {core.AdmissionRefuse, "", 0, false},
	} {
		r := newRig(t, tight(10*time.Second))
		r.admits(c.how)
		got := r.ask("t1", c.within)
		if c.code == 0 {
			if len(r.log.got) != 1 {
				t.Fatalf("%q with %q: %d messages, answer %+v", c.how, c.within, len(r.log.got), got.Err)
			}
			r.log.store(0)
			r.door.Flush(epoch)
		}
		switch {
		case c.code != 0 && (got.Err == nil || got.Err.Code != c.code || got.Err.ErrCode != causeNoTime || !strings.Contains(got.Err.Description, "10s, and 1s are left")):
			t.Errorf("%q with %q: %+v", c.how, c.within, got.Err)
		case c.code == 0 && got.Err != nil, c.warning != (got.Warning != ""):
			t.Errorf("%q with %q: %+v, warning %q", c.how, c.within, got.Err, got.Warning)
		}
		if warned := r.door.Stats(epoch).Warned; (warned == 1) != c.warning {
			t.Errorf("%q with %q: %d counted as warned", c.how, c.within, warned)
		}
	}
}

// TestAdmissionOfATask: what is a task already is not refused; whether it is, the store says; when it does not, the
// submitter may ask again.
func TestAdmissionOfATask(t *testing.T) {
	for _, c := range []struct {
		name string
		task *core.Existing
		err  error
		code int
	}{
		{"a new one", nil, nil, 422},
		{"a task", stored("t1", "order", `{}`), nil, 0},
		{"another's id", stored("t1", "order", `{"other":1}`), nil, 409},
		{"a silent store", nil, errors.New("gone"), 503},
	} {
		r, m := takenRig(t, false, tight(10*time.Second))
		r.admits(core.AdmissionRefuse)
		got := r.ask("t1", "1s")
		if len(m.asked) != 1 {
			t.Fatalf("%s: the store was asked %d times", c.name, len(m.asked))
		}
		m.answer(c.task, c.err)
		r.door.Flush(epoch)
		if c.code == 0 {
			if len(r.log.got) != 1 || got.Err != nil {
				t.Errorf("%s: %d messages, %+v; its owner must say that it is the same", c.name, len(r.log.got), got.Err)
			}
			continue
		}
		if got.Err == nil || got.Err.Code != c.code || len(r.log.got) > 0 {
			t.Errorf("%s: %+v, want %d", c.name, got.Err, c.code)
		}
	}
}

// TestAdmissionAgain: what was accepted here a moment ago is not refused, without a look.
func TestAdmissionAgain(t *testing.T) {
	r, m := takenRig(t, false, tight(10*time.Second))
	r.admits(core.AdmissionRefuse)
	r.ask("t1", "20s")
	r.log.store(0)
	r.door.Flush(epoch)
	if got := r.ask("t1", "1s"); len(m.asked) > 0 || len(r.log.got) != 2 || got.Err != nil {
		t.Errorf("%d looks, %d messages, %+v", len(m.asked), len(r.log.got), got.Err)
	}
	m.full = true
	if got := r.ask("t2", "1s"); got.Err == nil || got.Err.Code != 429 {
		t.Errorf("without room for a look: %+v, want 429", got.Err)
	}
}
