package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// memTaken is a state store whose answers a test gives.
type memTaken struct {
	asked []string
	done  []func(*core.Existing, error)
	full  bool
}

func (m *memTaken) Look(_ int, id string, done func(*core.Existing, error)) bool {
	if m.full {
		return false
	}
	m.asked, m.done = append(m.asked, id), append(m.done, done)
	return true
}

func (m *memTaken) answer(task *core.Existing, err error) {
	done := m.done[0]
	m.done = m.done[1:]
	done(task, err)
}

// stored is a task as the store has it.
func stored(id, taskType, input string) *core.Existing {
	return &core.Existing{ID: id, Type: taskType, InputHash: core.HashInput(taskType, []byte(input)), State: core.StateProcessed}
}

// takenRig is a rig whose door looks; spare says whether it looks without need.
func takenRig(t *testing.T, spare bool, change func(*Config)) (*rig, *memTaken) {
	t.Helper()
	m := &memTaken{}
	r := newRig(t, func(c *Config) {
		c.Taken, c.QuietItems = m, 1<<20 // what is there is published at once
		if !spare {
			c.LookRate = 1
		}
		if change != nil {
			change(c)
		}
	})
	if !spare {
		r.door.lookups.second, r.door.lookups.spent = epoch.Add(time.Hour), 0
		r.door.lookups.restUntil = epoch.Add(1000 * time.Hour)
	}
	return r, m
}

// say submits the id with an input of that type.
func (r *rig) say(now core.Instant, key, id, taskType, input string) {
	req := r.request(key)
	req.ID, req.Type, req.Input = id, taskType, []byte(input)
	r.door.Submit(now, req)
}

// accepted submits and has it stored.
func (r *rig) accepted(now core.Instant, key, id, taskType, input string) {
	r.t.Helper()
	r.say(now, key, id, taskType, input)
	r.door.Flush(now)
	r.log.store(len(r.log.got) - 1)
	r.door.Flush(now)
	if a := r.answer(key); a.Err != nil {
		r.t.Fatalf("%s: %v", key, a.Err)
	}
}

// What differs from what was accepted under its id a moment ago waits for the store, and
// is refused unless it is the store's own task.
//
// covers: C2
func TestDifferentInputUnderATakenID(t *testing.T) {
	failed := errors.New("no connection")
	for _, tt := range []struct {
		name           string
		taskType, what string
		after          time.Duration
		task           *core.Existing
		err            error
		refused        string // empty: accepted
	}{
		{"another input", "order", `{"b":1}`, ms(1), stored("a1", "order", `{"a":1}`), nil, `id "a1" is a task already, with another input`},
		{"another type", "refund", `{"a":1}`, ms(1), stored("a1", "order", `{"a":1}`), nil, `id "a1" is already a task of type "order"`},
		{"not stored yet", "order", `{"b":1}`, ms(1), nil, nil, `is not decided yet`},
		{"the store is away", "order", `{"b":1}`, ms(1), nil, failed, `is not decided yet`},
		{"the store is away later", "order", `{"b":1}`, 30 * time.Second, nil, failed, `is not decided yet`},
		{"the first was refused by its owner", "order", `{"b":1}`, 6 * time.Second, nil, nil, ""},
		{"the second is what the store has", "order", `{"b":1}`, ms(1), stored("a1", "order", `{"b":1}`), nil, ""},
		{"cancelled", "order", `{"b":1}`, ms(1), &core.Existing{ID: "a1", Type: "order"}, nil, `id "a1" was cancelled before it was submitted`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, m := takenRig(t, false, nil)
			r.plans.now["refund"] = &core.Plan{Name: "refund", Version: 1, InputMax: 1000}
			now := epoch
			r.accepted(now, "first", "a1", "order", `{"a":1}`)
			r.accepted(now, "again", "a1", "order", `{ "a" : 1 }`) // the same is the same task, and waits for nothing
			if len(m.asked) != 0 {
				t.Fatalf("looked at %v", m.asked)
			}
			now = now.Add(tt.after)
			r.say(now, "second", "a1", tt.taskType, tt.what)
			r.door.Flush(now)
			if len(m.asked) != 1 || len(r.log.got) != 2 || len(r.answers["second"]) != 0 {
				t.Fatalf("looked at %v, %d messages, answers %v", m.asked, len(r.log.got), r.answers["second"])
			}
			m.answer(tt.task, tt.err)
			r.door.Flush(now)
			if tt.refused == "" {
				r.log.store(2)
				r.door.Flush(now)
				a := r.answer("second")
				if a.Err != nil {
					t.Error(a.Err)
				}
				if tt.task != nil && a.State != tt.task.State {
					t.Errorf("told that it is %q, it is %q", a.State, tt.task.State)
				}
			} else {
				a := r.answer("second")
				code, cause := 409, CauseConflict
				if tt.task == nil {
					code, cause = 503, CauseUndecided
				}
				if a.Err == nil || a.Err.Code != code || a.Err.ErrCode != cause || code == 503 && a.Err.Retry == 0 || !strings.Contains(a.Err.Description, tt.refused) || len(r.log.got) != 2 {
					t.Errorf("%+v, %d messages", a.Err, len(r.log.got))
				}
			}
			r.idle()
		})
	}
}

// Two submissions race under one id: neither is told that the other is the task before one is.
//
// covers: W13
func TestSubmissionsRacing(t *testing.T) {
	r, m := takenRig(t, false, nil)
	r.accepted(epoch, "first", "a1", "order", `{"a":1}`)
	r.say(epoch, "other", "a1", "order", `{"b":1}`)
	m.answer(nil, nil)
	r.door.Flush(epoch)
	if a := r.answer("other"); a.Err == nil || a.Err.Code != 503 || a.Err.ErrCode != CauseUndecided || a.Err.Retry == 0 {
		t.Errorf("while neither is a task: %+v", a)
	}
	at := epoch.Add(time.Second)
	r.say(at, "other again", "a1", "order", `{"b":1}`)
	m.answer(stored("a1", "order", `{"a":1}`), nil)
	r.door.Flush(at)
	r.refused409(t, "other again")
	r.accepted(at, "first again", "a1", "order", `{"a":1}`)
	r.idle()
}

// A store that does not answer holds a submission up for its time and no longer, and
// there is room for so many; what was accepted long ago is left to the owner.
//
// covers: C2
func TestTakenIDOfASilentStore(t *testing.T) {
	r, m := takenRig(t, false, func(c *Config) { c.LooksMax = 1 })
	r.accepted(epoch, "first", "a1", "order", `{"a":1}`)
	r.accepted(epoch, "other", "b1", "order", `{"a":1}`)
	r.say(epoch, "second", "a1", "order", `{"b":1}`)
	r.say(epoch, "full", "b1", "order", `{"b":1}`)
	if a := r.answer("full"); a.Err == nil || a.Err.ErrCode != CauseUndecided {
		t.Errorf("%+v", a)
	}
	if due := r.door.Due(epoch); due != epoch.Add(2*time.Second) {
		t.Errorf("due %v after", due.Sub(epoch))
	}
	r.door.Flush(epoch.Add(2*time.Second - 1))
	if len(r.answers["second"]) != 0 {
		t.Error("answered early")
	}
	r.door.Flush(epoch.Add(2 * time.Second))
	if a := r.answer("second"); a.Err == nil || a.Err.ErrCode != CauseUndecided {
		t.Errorf("%+v", a)
	}
	m.answer(nil, nil) // it has been answered already
	r.door.Flush(epoch.Add(2 * time.Second))
	late := epoch.Add(time.Minute)
	r.accepted(late, "late", "a1", "order", `{"b":1}`)
	if len(m.asked) != 1 {
		t.Errorf("looked at %v", m.asked)
	}
	r.idle()
}

// A quiet door looks at ids that it does not know, too, a few in a second; a store that
// does not answer one is let be, and nothing is refused for it.
//
// covers: C2
func TestQuietDoorLooksAtIDs(t *testing.T) {
	r, m := takenRig(t, true, func(c *Config) { c.LookRate = 3 })
	r.say(epoch, "taken", "a1", "order", `{"b":1}`)
	m.answer(stored("a1", "order", `{"a":1}`), nil)
	r.door.Flush(epoch)
	r.refused409(t, "taken")
	r.say(epoch, "new", "b1", "order", `{"b":1}`)
	r.say(epoch, "slow", "c1", "order", `{"b":1}`)
	r.say(epoch, "over the rate", "d1", "order", `{"b":1}`)
	m.answer(nil, nil)
	r.door.Flush(epoch)
	if got := fmt.Sprint(m.asked); got != "[a1 b1 c1]" {
		t.Errorf("looked at %s", got)
	}
	if due := r.door.Due(epoch); due != epoch.Add(defaultLookSpare) {
		t.Errorf("due %v after", due.Sub(epoch))
	}
	now := epoch.Add(defaultLookSpare)
	r.door.Flush(now)
	for _, at := range []time.Duration{time.Second, 5 * time.Second} { // it is let be
		r.say(epoch.Add(at), fmt.Sprint(at), "e1", "order", `{"b":1}`)
	}
	r.say(epoch.Add(6*time.Second), "again", "f1", "order", `{"b":1}`)
	if got := fmt.Sprint(m.asked); got != "[a1 b1 c1 f1]" {
		t.Errorf("looked at %s", got)
	}
	m.full = true
	r.say(epoch.Add(6*time.Second), "no room", "g1", "order", `{"b":1}`)
	r.door.Close(epoch.Add(6 * time.Second))
	for i := range r.log.got {
		r.log.store(i)
	}
	r.door.Flush(epoch.Add(6 * time.Second))
	for _, key := range []string{"new", "slow", "over the rate", "1s", "5s", "again", "no room"} {
		if a := r.answer(key); a.Err != nil {
			t.Errorf("%s: %v", key, a.Err)
		}
	}
	r.idle()
}

// A busy door looks at nothing that it need not, and one that was looked at is not looked
// at twice.
func TestBusyDoorDoesNotLook(t *testing.T) {
	r, m := takenRig(t, true, func(c *Config) { c.LookItems = 2 })
	for i := range 10 {
		r.say(epoch, fmt.Sprint("k", i), fmt.Sprint("a", i), "order", `{}`)
	}
	if got := fmt.Sprint(m.asked); got != "[a0 a1]" {
		t.Errorf("looked at %s", got)
	}
	r, m = takenRig(t, true, nil)
	req := r.request("a1")
	req.Looked = true
	r.door.Submit(epoch, req)
	if len(m.asked) != 0 {
		t.Errorf("looked at %v", m.asked)
	}
}

func (r *rig) refused409(t *testing.T, key string) {
	t.Helper()
	if a := r.answer(key); a.Err == nil || a.Err.Code != 409 || a.Err.ErrCode != CauseConflict {
		t.Errorf("%s: %+v", key, a)
	}
}

// The memory of accepted ids takes what it was given, and the newest stay.
func TestRecentIsBounded(t *testing.T) {
	r := newRecent(24 * 4 * 100)
	if len(r.sets) != 64 {
		t.Fatalf("%d sets", len(r.sets))
	}
	last := 0
	for i := range 10_000 {
		sub := core.Submission{Type: "order", ID: fmt.Sprint(i), Input: []byte("{}")}
		r.add(r.markOf(&sub), epoch.Add(time.Duration(i)*time.Millisecond))
		last = i
	}
	known := 0
	for i := range last + 1 {
		sub := core.Submission{Type: "order", ID: fmt.Sprint(i), Input: []byte("[]")}
		if r.differs(r.markOf(&sub), epoch.Add(10*time.Second), time.Minute) {
			known++
			if i < 8000 {
				t.Errorf("%d is known still", i)
			}
		}
	}
	if known < 200 || known > 256 {
		t.Errorf("%d of 256 are known", known)
	}
	if huge := newRecent(1 << 60); len(huge.sets) != recentSetsMax {
		t.Errorf("%d sets", len(huge.sets))
	}
}

// What was accepted by a plan stays accepted, whatever the newest plan would say of it: who asks again, as after an answer that
// was lost, is told of the task. All else is refused as the plan says.
//
// covers: W13
func TestPlanThatChangedRefusesNoTask(t *testing.T) {
	changes := map[string]struct {
		change func(*memPlans)
		code   int
	}{
		"schema":     {func(p *memPlans) { p.now["order"].InputSchema = "{}" }, 422},
		"size":       {func(p *memPlans) { p.now["order"].InputMax = 3 }, 413},
		"deprecated": {func(p *memPlans) { p.deprecated = map[string]bool{"order": true} }, 409},
	}
	for name, tt := range changes {
		t.Run(name, func(t *testing.T) {
			r, m := takenRig(t, false, func(c *Config) {
				c.CheckInput = func(*core.Plan, []byte) error { return errors.New("it does not fit") }
			})
			r.accepted(epoch, "first", "a1", "order", `{"a":1}`)
			tt.change(r.plans)
			now := epoch
			again := func(key, id, input string) Answer {
				t.Helper()
				now = now.Add(time.Minute) // the plans may be read again
				r.say(now, key, id, "order", input)
				for range 2 {
					r.door.Flush(now)
					if len(r.plans.readings) > 0 {
						r.plans.read(nil)
					}
					r.door.Flush(now)
					if len(m.done) > 0 {
						task := stored("b1", "order", `{"a":1}`)
						if id != task.ID {
							task = nil
						}
						m.answer(task, nil)
					}
					r.door.Flush(now)
				}
				if len(r.answers[key]) == 0 {
					r.log.store(len(r.log.got) - 1)
					r.door.Flush(now)
				}
				return r.answer(key)
			}
			if a := again("lost", "a1", `{"a":1}`); a.Err != nil {
				t.Errorf("what was accepted a moment ago: %v", a.Err)
			}
			if a := again("old", "b1", `{"a":1}`); a.Err != nil || a.State != core.StateProcessed {
				t.Errorf("what the store has: %v, state %q", a.Err, a.State)
			}
			if a := again("other", "b1", `{"b":1}`); a.Err == nil || a.Err.ErrCode != CauseConflict {
				t.Errorf("another input of an id that the store has: %v", a.Err)
			}
			if a := again("new", "c1", `{"a":1}`); a.Err == nil || a.Err.Code != tt.code || a.Err.Retryable() {
				t.Errorf("what is new: %v, want %d", a.Err, tt.code)
			}
			asked := len(m.asked)
			now = now.Add(time.Minute)
			req := r.request("named")
			req.ID, req.Version = "d1", "3"
			if name != "deprecated" {
				if r.door.Submit(now, req); r.answer("named").Err == nil || len(m.asked) != asked {
					t.Errorf("by a version that never took it: %v, %d lookups more", r.answer("named").Err, len(m.asked)-asked)
				}
			}
			r.idle()
		})
	}
}
