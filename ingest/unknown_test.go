package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

func stranger(r *rig, id, taskType string) Request {
	req := r.request(id)
	req.Type = taskType
	return req
}

func TestUnknownTypeAfterReading(t *testing.T) {
	r := newRig(t, nil)
	r.door.Submit(epoch, stranger(r, "a1", "nosuch"))
	r.door.Flush(epoch)
	if len(r.plans.readings) != 1 || len(r.answers) != 0 {
		t.Fatalf("%d readings, %d answers: the plans are read before a refusal", len(r.plans.readings), len(r.answers))
	}
	r.plans.read(nil)
	r.door.Flush(epoch)
	if e := r.refused("a1", 404, CauseTypeUnknown); !strings.Contains(e.Description, `"nosuch"`) || e.Retryable() {
		t.Error(e)
	}
	r.idle()
}

func TestPlanFoundByReading(t *testing.T) {
	r := newRig(t, nil)
	r.plans.later = map[string]*core.Plan{"new": {Name: "new", Version: 1, InputMax: 5}}
	r.door.Submit(epoch, stranger(r, "a1", "new")) // its input has 7 bytes
	ok := stranger(r, "b1", "new")
	ok.Input = []byte(`[1]`)
	r.door.Submit(epoch, ok)
	r.door.Flush(epoch)
	r.plans.read(nil)
	r.door.Flush(epoch)
	r.refused("a1", 413, CauseInputSize)
	if len(r.log.got) != 1 || r.log.got[0].subs[0].PlanVersion != 1 {
		t.Errorf("messages %+v", r.log.got)
	}
}

func TestPlansNotRead(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"error":   func(r *rig) { r.plans.read(errors.New("no database")); r.door.Flush(epoch) },
		"silence": func(r *rig) { r.door.Flush(epoch.Add(defaultReloadMax)) },
	} {
		r := newRig(t, nil)
		r.door.Submit(epoch, stranger(r, "a1", "new"))
		r.door.Flush(epoch)
		end(r)
		if e := r.refused("a1", 503, CausePlans); !e.Retryable() || e.Retry <= 0 || strings.Contains(e.Description, "no database") {
			t.Errorf("%s: %v", name, e)
		}
		r.idle()
	}
}

// A reading speaks only for those who came before it: a plan may have been
// stored after it began.
func TestReadingDoesNotSpeakForLaterOnes(t *testing.T) {
	r := newRig(t, nil)
	r.door.Submit(epoch, stranger(r, "a1", "new"))
	r.door.Flush(epoch)
	r.door.Submit(epoch, stranger(r, "b1", "new"))
	r.plans.read(nil)
	r.door.Flush(epoch.Add(ms(1)))
	r.refused("a1", 404, CauseTypeUnknown)
	if len(r.answers["b1"]) != 0 {
		t.Fatal("refused by a reading that began before it came")
	}
	if due := r.door.Due(epoch.Add(ms(1))); due != epoch.Add(defaultReloadPause) {
		t.Errorf("next reading due after %v, want %v", due.Sub(epoch), defaultReloadPause)
	}
	r.plans.later = map[string]*core.Plan{"new": {Name: "new", Version: 1, InputMax: 100}}
	r.door.Flush(epoch.Add(defaultReloadPause))
	r.plans.read(nil)
	r.door.Flush(epoch.Add(defaultReloadPause))
	if len(r.log.got) != 1 {
		t.Error("not submitted though its plan was read")
	}
}

func TestStrangersDoNotFloodTheStore(t *testing.T) {
	r := newRig(t, func(c *Config) { c.UnknownMax = 50 })
	now := epoch
	readings := 0
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		r.door.Submit(now, stranger(r, fmt.Sprintf("s%d", i), "nosuch"))
		r.door.Flush(now)
		if len(r.plans.readings) > 0 {
			readings++
			r.plans.read(nil)
			r.door.Flush(now)
		}
	}
	if readings > 5 {
		t.Errorf("%d readings in a second, want at most one in %v", readings, defaultReloadPause)
	}
	many := r.door.Stats(epoch).Refused[causeUnknownMany]
	if many < 700 || r.door.Stats(epoch).Items > 50 {
		t.Errorf("%d refused as too many, %d waiting", many, r.door.Stats(epoch).Items)
	}
	r.submit(now, "known1")
	if len(r.answers["known1"]) != 0 {
		t.Error("strangers keep others out")
	}
}

// A reading that was given up ends later: its late result answers no request.
func TestLateReading(t *testing.T) {
	r := newRig(t, nil)
	r.door.Submit(epoch, stranger(r, "a1", "new"))
	r.door.Flush(epoch)
	now := epoch.Add(defaultReloadMax)
	r.door.Flush(now)
	r.door.Submit(now, stranger(r, "b1", "new"))
	r.door.Flush(now)
	r.plans.read(nil) // the first one
	r.door.Flush(now)
	if len(r.answers["b1"]) != 0 {
		t.Fatal("answered by a reading that began before it came")
	}
	r.plans.read(nil)
	r.door.Flush(now)
	r.refused("b1", 404, CauseTypeUnknown)
	r.refused("a1", 503, CausePlans)
	r.idle()
}

// covers: C5
// A submission that names a version of its plan takes that one or is refused, never
// another; one that names none, or says so, takes the newest.
func TestPlanVersionNamed(t *testing.T) {
	for said, want := range map[string]int64{"": 3, "newest": 3, "3": 3} {
		r := newRig(t, nil)
		req := r.request("a1")
		req.Version = said
		r.door.Submit(epoch, req)
		r.door.Flush(epoch)
		if len(r.log.got) != 1 || r.log.got[0].subs[0].PlanVersion != want {
			t.Errorf("version %q: messages %+v", said, r.log.got)
		}
	}
	for _, bad := range []string{"0", "-1", "1.5", "07", "latest", "9999999999999999999", "３"} {
		r := newRig(t, nil)
		req := r.request("a1")
		req.Version = bad
		r.door.Submit(epoch, req)
		if e := r.refused("a1", 400, causeVersionForm); !strings.Contains(e.Description, "plan version") {
			t.Errorf("version %q: %v", bad, e)
		}
		r.idle()
	}
}

// covers: C5
func TestPlanVersionNotApplied(t *testing.T) {
	r := newRig(t, nil)
	req := r.request("a1")
	req.Version = "7"
	r.door.Submit(epoch, req)
	r.door.Flush(epoch)
	if len(r.plans.readings) != 1 || len(r.answers) != 0 {
		t.Fatalf("%d readings, %d answers: the plans are read before a refusal", len(r.plans.readings), len(r.answers))
	}
	r.plans.read(nil)
	r.door.Flush(epoch)
	if e := r.refused("a1", 404, CauseVersionUnknown); !strings.Contains(e.Description, `"order"`) || !strings.Contains(e.Description, "version 7") || e.Retryable() {
		t.Error(e)
	}
	if len(r.log.got) != 0 {
		t.Errorf("messages %+v", r.log.got)
	}
	r.idle()
}

// A request whose plan cannot be read here may succeed at another node; one of a type
// that has no plan at all is told so.
func TestPlanUnreadable(t *testing.T) {
	unreadable := core.UnreadablePlans{{Name: "new", Version: 4, Err: errors.New(`unknown field "rate_max"`)}}
	for id, x := range map[string]struct {
		taskType, version string
		code, cause       int
	}{
		"a1": {"new", "", 503, CausePlans}, "b1": {"new", "4", 503, CausePlans},
		"c1": {"new", "5", 404, CauseVersionUnknown}, "d1": {"nosuch", "", 404, CauseTypeUnknown},
	} {
		r := newRig(t, nil)
		req := stranger(r, id, x.taskType)
		req.Version = x.version
		r.door.Submit(epoch, req)
		r.door.Flush(epoch)
		r.plans.read(unreadable)
		r.door.Flush(epoch)
		if e := r.refused(id, x.code, x.cause); x.code == 503 && !strings.Contains(e.Description, "rate_max") {
			t.Error(e)
		}
		r.idle()
	}
}

// A deprecated version takes nothing, also by its name: it may lack an approval that came after it.
func TestDeprecated(t *testing.T) {
	r := newRig(t, nil)
	r.plans.deprecated = map[string]bool{"order": true}
	r.door.Submit(epoch, r.request("a1"))
	named := r.request("b1")
	named.Version = "3"
	r.door.Submit(epoch, named)
	r.door.Flush(epoch)
	r.plans.read(nil)
	r.door.Flush(epoch)
	if e := r.refused("a1", 409, causeDeprecated); !strings.Contains(e.Description, `every stored version of the plan of type "order" is deprecated`) {
		t.Error(e)
	}
	if e := r.refused("b1", 409, causeDeprecated); !strings.Contains(e.Description, `version 3 of the plan of type "order" is deprecated`) {
		t.Error(e)
	}
	if len(r.log.got) != 0 {
		t.Errorf("messages %+v", r.log.got)
	}
}

// An input is checked by the schema of its plan, where that has one.
func TestInputSchema(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.CheckInput = func(p *core.Plan, input []byte) error {
			if p.InputSchema != "{}" || string(input) != `{"n":1}` {
				return errors.New(`at "/n": got string, want number`)
			}
			return nil
		}
	})
	r.plans.now["order"].InputSchema = "{}"
	good, bad := r.request("a1"), r.request("b1")
	good.Input, bad.Input = []byte(`{"n":1}`), []byte(`{"n":"1"}`)
	r.door.Submit(epoch, good)
	r.door.Submit(epoch, bad)
	r.door.Flush(epoch.Add(ms(100)))
	if e := r.refused("b1", 422, CauseInputSchema); e.Description != `input does not fit the input schema of plan order version 3: at "/n": got string, want number` || e.Retryable() {
		t.Error(e)
	}
	if len(r.log.got) != 1 || len(r.log.got[0].subs) != 1 || r.log.got[0].subs[0].ID != "a1" {
		t.Errorf("messages %+v", r.log.got)
	}
}
