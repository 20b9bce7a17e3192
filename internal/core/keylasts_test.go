package core

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// No way of going on uses a key that its service may have forgotten: it has begun a second before that time is over, and
// then it is over. What a person has found there is taken, and what contradicts it is refused.
//
// covers: W5
func TestNoCommandByAnOldKey(t *testing.T) {
	const lasts = time.Hour
	do := func(r *rig) { r.answer(CodeAgentError) } // an effect is possible from now on
	undo := func(r *rig) { r.answer(0); r.must(Event{Kind: EventUndo}); r.answer(CodeAgentError) }
	request := func(ev Event) func(r *rig) error { return func(r *rig) error { return r.apply(ev) } }
	supervisor := request(Event{Kind: EventOverdue})
	for name, c := range map[string]struct {
		policy Policy
		first  func(r *rig)
		way    func(r *rig) error
		undo   bool // the command in question is one
		want   State
	}{
		"the next try":             {PolicyUndo, do, supervisor, false, StateUndoing},
		"after a pause":            {PolicyWait, func(r *rig) { do(r) }, request(Event{Kind: EventClaim}), false, StateError},
		"after a full agent":       {PolicyError, func(r *rig) { r.answer(CodeTooMany) }, request(Event{Kind: EventWake}), false, StateError},
		"a resubmit":               {PolicyError, func(r *rig) { do(r); r.wait(); do(r) }, request(Event{Kind: EventResubmit}), false, StateError},
		"an edit":                  {PolicyError, func(r *rig) { do(r); r.wait(); do(r) }, request(Event{Kind: EventEdit, Input: []byte(`{}`)}), false, StateError},
		"a takeover":               {PolicyError, do, func(r *rig) error { r.crash(); return r.apply(Event{Kind: EventWake}) }, false, StateError},
		"the next try of an undo":  {PolicyUndo, undo, supervisor, true, StateError},
		"an undo again":            {PolicyUndo, func(r *rig) { undo(r); r.now = r.now.Add(2 * lasts); r.must(Event{Kind: EventOverdue}) }, request(Event{Kind: EventUndo}), true, StateError},
		"an undo at a full agent":  {PolicyUndo, func(r *rig) { r.answer(0); r.must(Event{Kind: EventUndo}); r.answer(CodeTooMany) }, request(Event{Kind: EventWake}), true, StateError},
		"an undo after a takeover": {PolicyUndo, undo, func(r *rig) error { r.crash(); return r.apply(Event{Kind: EventWake}) }, true, StateError},
	} {
		t.Run(name, func(t *testing.T) {
			p := stepsPlan(1)
			p.CompleteBy = 24 * time.Hour
			p.Steps[0].KeyLasts, p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = lasts, c.policy, 2
			if c.policy == PolicyWait {
				p.Steps[0].AttemptsMax = 1
			}
			r := newRig(t, p)
			r.birth(0)
			c.first(r)
			r.now = max(r.now, birthTime.Add(2*lasts))
			err := c.way(r)
			if err != nil && (!errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "its service remembers keys for 1h0m0s")) {
				t.Fatal(err)
			}
			for _, e := range r.out.Effects {
				if err == nil && (e.Kind == EffectDo || e.Kind == EffectUndo && c.undo) {
					t.Errorf("a command leaves: %+v", e)
				}
			}
			if r.task.State != c.want {
				t.Errorf("%s, want %s", r.task, c.want)
			}
		})
	}
}

// A key that no command has used does not grow old: while no agent listens, and after an agent, or a person, has said that there
// is nothing.
func TestUnusedKeyGrowsNotOld(t *testing.T) {
	p := stepsPlan(1)
	p.CompleteBy, p.Steps[0].KeyLasts = 48*time.Hour, time.Minute
	r := newRig(t, p)
	r.birth(0)
	r.absent()
	for range 20 {
		r.now = r.now.Add(10 * time.Minute)
		r.wait()
		r.absent()
	}
	r.wait()
	sent := r.now
	r.answer(CodeAgentError)
	if used := r.task.Steps[0].Used; used > sent || used < sent.Add(-heardAfter) {
		t.Fatalf("used at %s, its try left at %s", at(used), at(sent))
	}
	r.wait()
	if r.task.Out() != 0 {
		t.Fatalf("not tried again: %s", r.task)
	}
}

// What a person has not found at a service counts if it was looked for when nothing could act there any more: a request that
// was stored before may come to its owner much later.
//
// covers: W5
func TestAbsentIsAsOldAsTheLook(t *testing.T) {
	p := stepsPlan(1)
	p.Grace, p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = time.Minute, PolicyError, 1
	r := newRig(t, p)
	r.birth(0)
	r.now = r.task.Steps[0].Due
	r.must(Event{Kind: EventOverdue})
	quiet := r.task.Steps[0].Effect.Open
	if r.task.State != StateError || quiet == 0 {
		t.Fatalf("it is not in error, or nothing may act any more: %s", r.task)
	}
	r.now = quiet.Add(time.Hour)
	ev := Event{Kind: EventResubmit, Actor: "olga", Found: ProbeAbsent, Looked: quiet - 1}
	if err := r.apply(ev); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("looked for while it could still act: %v", err)
	}
	ev.Looked = quiet
	r.must(ev)
}

// A retry is heard a second after it left at the latest, however late its owner sees that, or the answer: its key does not
// count as younger.
//
// covers: W5
func TestRetryOfAnOwnerThatStoodStillIsAsOldAsItIs(t *testing.T) {
	for _, kind := range []EventKind{EventWake, EventReply} {
		for _, undo := range []bool{false, true} {
			for _, late := range []time.Duration{-time.Microsecond, time.Minute} { // after its complete-by
				if kind == EventReply && late > 0 {
					continue // refused
				}
				for _, code := range []int{CodeAgentError, CodeTooEarly, CodeUnavailable} { // the last two: it cannot take it now
					testRetryOfAnOwnerThatStoodStill(t, kind, undo, late, code)
				}
			}
		}
	}
}

func testRetryOfAnOwnerThatStoodStill(t *testing.T, kind EventKind, undo bool, late time.Duration, code int) {
	p := stepsPlan(1)
	p.CompleteBy = time.Hour
	r := newRig(t, p)
	r.birth(0)
	if undo {
		r.answer(0)
		r.must(Event{Kind: EventUndo})
	}
	r.absent()
	r.now = r.now.Add(time.Minute)
	r.wait() // a retry leaves
	sent, s := r.now, &r.task.Steps[0]
	r.now = s.Due.Add(late)
	r.must(Event{Kind: kind, Seq: s.Out, Copy: s.Copy, Code: code})
	used := s.Used
	if undo {
		used = s.UndoUsed
	}
	if used == 0 || used > sent || used < sent.Add(-heardAfter) {
		t.Errorf("undo %t, event %d, code %d, %s after its time: its key is used since %s, the retry left at %s: %s", undo, kind, code, late, at(used), at(sent), r.task)
	}
}

// A row cannot be dated before the one that it follows: where that came after the retry's time, its key counts from the start
// of the wait, at the latest.
//
// covers: W5
func TestLateRetryIsAsOldAsItsWait(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.Steps[1].After, p.Steps[1].CompleteBy = time.Hour, nil, 30*time.Minute
	r := newRig(t, p)
	r.birth(0)
	s, other := &r.task.Steps[0], &r.task.Steps[1]
	r.must(Event{Kind: EventUnserved, Seq: s.Out, Copy: s.Copy, Rand: 0.5})
	r.now = r.now.Add(time.Minute)
	r.wait() // a retry leaves
	sent := r.now
	r.now = s.Due.Add(time.Minute)
	r.must(Event{Kind: EventReply, Seq: other.Out, Copy: other.Copy})
	r.must(Event{Kind: EventWake})
	if s.Used == 0 || s.Used > sent {
		t.Errorf("its key is used since %s, the retry left at %s: %s", at(s.Used), at(sent), r.task)
	}
}

// An undo answered with 429 has used its key: a later retry without a responder does not reset the key's age.
//
// covers: W5
func TestUndoThatWasHeardKeepsItsAge(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(0)
	r.must(Event{Kind: EventUndo})
	sent := r.now
	r.answer(CodeTooMany)
	r.wait()           // a retry leaves
	r.now += 1_000_000 // and is taken for heard
	r.wait()
	r.absent()
	if used := r.task.Steps[0].UndoUsed; used == 0 || used > sent {
		t.Errorf("its key is used since %s, the undo left at %s: %s", at(used), at(sent), r.task)
	}
}

// A view says until when the key is remembered by which a call is tried again, or undone.
func TestKeyUntil(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].KeyLasts, p.Steps[0].OnExhausted, p.Steps[0].AttemptsMax = time.Hour, PolicyError, 1
	r := newRig(t, p)
	is := func(want Instant) {
		t.Helper()
		if v := r.task.View(r.plan, r.journal, r.now); v.Steps[0].KeyUntil != want {
			t.Errorf("%s until %s, want %s", v.Steps[0].Status, at(v.Steps[0].KeyUntil), at(want))
		}
	}
	r.birth(0)
	is(0)
	sent := r.now
	r.answer(CodeAgentError)
	is(sent.Add(time.Hour))
	r.now = r.now.Add(time.Minute)
	r.must(Event{Kind: EventUndo})
	is(r.now.Add(time.Hour))
	r.answer(0)
	is(0)
}

// That an effect stands frees the key of its undo only where none can be at work any more: one that is may yet be the first use
// of it, of which the service remembers as long as of any other.
//
// covers: W5
func TestFoundWhileAnUndoMayBeAtWork(t *testing.T) {
	const lasts = time.Minute
	p := stepsPlan(1)
	p.Steps[0].KeyLasts = lasts
	r := newRig(t, p)
	r.birth(0)
	r.answer(0)
	used, found := r.now, Event{Kind: EventUndo, Found: ProbeDone}
	r.must(Event{Kind: EventUndo})
	r.must(Event{Kind: EventPoison}) // its first undo is at work, and its owner waits for it no more
	r.must(found)
	r.absent()
	r.now = used.Add(lasts)
	if err := r.apply(Event{Kind: EventWake}); err != nil || r.task.State != StateError {
		t.Fatalf("%v; %s: an undo leaves by a key that the service may have forgotten: %+v", err, r.task, r.out.Effects)
	}
	quiet := r.task.Steps[0].UndoUsed.Add(lasts + r.plan.Grace + OwnedFor)
	r.now = quiet - 1
	if err := r.apply(found); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "may still act until "+stamp(quiet)) {
		t.Fatalf("%s: %v: want it refused while an undo may be at work", r.task, err)
	}
	r.now = quiet
	found.Looked = quiet - 1
	if err := r.apply(found); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("%v: want it refused as seen before", err)
	}
	found.Looked = quiet
	if r.must(found); r.task.Out() != 0 {
		t.Errorf("%s: want it undone", r.task)
	}
}

// A task that is born again from its submission after the database went back may have used its keys since that was handed in:
// where services have forgotten them, no do and no undo leaves, and a person decides.
//
// covers: W5, inv7
func TestKeysOfALostLifeAreAsOldAsTheTask(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, 30 * time.Hour} {
		for _, late := range []bool{false, true} {
			p := stepsPlan(2)
			p.CompleteBy = 48 * time.Hour
			if late {
				p.CompleteBy = time.Minute
			}
			r := newRig(t, p)
			r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`), Deadline: r.now.Add(p.CompleteBy)}
			r.now = r.now.Add(age)
			Birth(r.plan, r.task, &Event{Kind: EventWentBack, At: r.now, Actor: node, Until: r.now}, &r.out)
			r.commit(&Task{})
			left := 0
			for n := 0; n < 100 && !r.task.State.Ended(); n++ {
				if r.task.Out() < 0 {
					r.wait()
					continue
				}
				left++
				r.answer(0)
			}
			forgotten := age > 24*time.Hour
			want := StateProcessed
			if late {
				want = StateUndone
			}
			if forgotten {
				want = StateError
			}
			if (left == 0) != forgotten || r.task.State != want {
				t.Errorf("after %v, late %v: %d commands left, want none: %v; %s, want %s", age, late, left, forgotten, r.task, want)
			}
		}
	}
}

// A task that is born again may have come to its next round in the lost time, too: keys of that round are as old as the task.
//
// covers: W5, inv7
func TestKeysOfANextRoundOfALostLife(t *testing.T) {
	for _, age := range []time.Duration{20 * time.Hour, 25 * time.Hour} {
		p := stepsPlan(1)
		p.CompleteBy = 48 * time.Hour
		r := newRig(t, p)
		r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`), Deadline: r.now.Add(p.CompleteBy)}
		r.now = r.now.Add(2 * time.Hour)
		Birth(r.plan, r.task, &Event{Kind: EventWentBack, At: r.now, Actor: node, Until: r.now}, &r.out)
		r.commit(&Task{})
		r.answer(422) // the service has undone it
		for n := 0; n < 100 && !r.task.State.Ended(); n++ {
			if r.task.Out() < 0 {
				r.wait()
				continue
			}
			r.answer(0)
		}
		if r.task.State != StateUndone {
			t.Fatal(r.task)
		}
		r.now = r.task.CreatedAt.Add(age)
		r.must(Event{Kind: EventResubmit, Actor: person})
		if out, forgotten := r.task.Out() >= 0, age > 24*time.Hour; out == forgotten {
			t.Errorf("in a round of its own after %v, by a key that may be as old: a command leaves: %v; %s", age, out, r.task)
		}
	}
}

// The key of an undo is free once a person has looked, also of a step that is done: a task that was born again after the database
// went back may have used it.
//
// covers: W5
func TestFoundDoneOfAProcessedTask(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`)}
	r.now = r.now.Add(time.Second)
	Birth(r.plan, r.task, &Event{Kind: EventWentBack, At: r.now, Actor: node, Until: r.now}, &r.out)
	r.commit(&Task{})
	r.answer(0)
	r.now = r.now.Add(30 * time.Hour)
	if err := r.apply(Event{Kind: EventUndo, Actor: person}); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("its key is old: %v", err)
	}
	r.must(Event{Kind: EventUndo, Actor: person, Found: ProbeDone})
	if r.task.State != StateUndoing || r.task.Steps[0].Status != StepUndoing || r.task.Out() != 0 {
		t.Errorf("a person has found it done: %s: %s", r.task, r.task.Why)
	}
}
