package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A task that waits for its plan has not begun here, but it may have run before the database went back: then nobody may call
// it undone while its plan cannot be read, and once it can be, no undo leaves before the task's deadline, because how long
// its commands may take was not known.
//
// covers: A4
func TestUnreadAfterTheDatabaseWentBack(t *testing.T) {
	p := stepsPlan(1).WithDefaults()
	u := UnreadablePlan{Name: p.Name, Version: p.Version, CompleteBy: 30 * time.Second}
	end := birthTime.Add(u.CompleteBy)
	for _, wentBack := range []bool{false, true} {
		born := Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: birthTime, Input: []byte(`{}`)}
		ev := Event{At: birthTime, Actor: node}
		if wentBack {
			ev.Kind, ev.Until = EventWentBack, birthTime.Add(-time.Second)
		}
		var out Outcome
		BirthUnread(&u, &born, &ev, &out)
		saved := Saved{Row: born, Journal: slices.Clone(out.Records)}
		want := map[bool]State{false: StateUndone, true: StateError}[wentBack]
		overdue := born
		if err := Apply(nil, &overdue, &Event{Kind: EventOverdue, At: end, Actor: node}, &out); err != nil || overdue.State != want {
			t.Errorf("went back %v: at its deadline it is %s, %v, want %s", wentBack, overdue.State, err, want)
		}
		undo := born
		if err := Apply(nil, &undo, &Event{Kind: EventUndo, At: birthTime, Actor: person}, &out); wentBack != errors.Is(err, ErrNotAllowed) || !wentBack && undo.State != StateUndone {
			t.Errorf("went back %v: an undo: %s, %v", wentBack, undo.State, err)
		}
		read, err := Replay(&p, &saved)
		if err == nil {
			err = Apply(&p, read, &Event{Kind: EventCancel, At: birthTime.Add(time.Second), Actor: person}, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		leaves := slices.ContainsFunc(out.Effects, func(e Effect) bool { return e.Kind == EffectUndo })
		if wentBack && (read.State != StateUndoing || leaves || read.undoWhen(0) < end) || !wentBack && read.State != StateUndone {
			t.Errorf("went back %v: cancelled when its plan can be read: %s, an undo leaves: %v", wentBack, read, leaves)
		}
	}
}

// The time of the plan counts from when a task may start, and a child is its parent's, whoever can read its plan.
func TestUnreadStartsLaterAndIsItsParents(t *testing.T) {
	u := UnreadablePlan{Name: "order", Version: 3, CompleteBy: 30 * time.Second}
	task := Task{ID: "t1~kids", Type: "order", Number: 2, Parent: 1, CreatedAt: birthTime, StartAt: birthTime.Add(time.Hour), Input: []byte(`{}`)}
	var out Outcome
	BirthUnread(&u, &task, &Event{At: birthTime, Actor: node}, &out)
	if want := task.StartAt.Add(u.CompleteBy); task.Deadline != want {
		t.Errorf("its deadline is %d, want %d", task.Deadline, want)
	}
	for _, kind := range []EventKind{EventCancel, EventUndo} {
		if err := Apply(nil, &task, &Event{Kind: kind, At: birthTime, Actor: person}, &out); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "it is a part of task") {
			t.Errorf("event %d of a person: %v", kind, err)
		}
	}
	if err := Apply(nil, &task, &Event{Kind: EventUndo, At: birthTime, Actor: "t1", ByParent: true}, &out); err != nil || task.State != StateUndone {
		t.Errorf("its parent's: %s, %v", task.State, err)
	}
}

// A task that waits for its plan takes it up when that can be read: it is asked about at its start, or parked where it finds no
// room.
//
// covers: A4
func TestUnreadIsClaimedBeforeItCanBegin(t *testing.T) {
	p := stepsPlan(1).WithDefaults()
	u := UnreadablePlan{Name: p.Name, Version: p.Version, CompleteBy: 30 * time.Second}
	for _, later := range []time.Duration{0, time.Hour} {
		task := Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: birthTime, StartAt: birthTime.Add(later), Input: []byte(`{}`)}
		var out Outcome
		BirthUnread(&u, &task, &Event{At: birthTime, Actor: node}, &out)
		read, err := Replay(&p, &Saved{Row: task, Journal: slices.Clone(out.Records)})
		if err != nil {
			t.Fatal(err)
		}
		err = Apply(&p, read, &Event{Kind: EventClaim, At: birthTime.Add(time.Second), Actor: node, Full: StepSetOf(0)}, &out)
		waits, bound := "agent.a", read.Deadline
		if later > 0 {
			waits, bound = "", read.StartAt
		}
		if err != nil || read.PlanVersion != p.Version || read.State != StatePending || read.WaitsFor != waits || read.Bound != bound || !out.Row {
			t.Errorf("starts after %v: it waits for %q, want %q, is of version %d and looked at after %v: %v", later, read.WaitsFor, waits, read.PlanVersion, read.Bound.Sub(birthTime), err)
		}
	}
}
