package core

import (
	"errors"
	"testing"
)

// TestChildIsItsParents: what only the parent decides about a child is refused to others, and its parent may ask it.
func TestChildIsItsParents(t *testing.T) {
	r := newRig(t, stepsPlan(2))
	r.birth(0)
	r.task.Parent, r.row.Parent = 7, 7
	for _, kind := range []EventKind{EventCancel, EventUndo} {
		if err := r.apply(Event{Kind: kind, Actor: person}); !errors.Is(err, ErrNotAllowed) {
			t.Fatalf("event %d of a child: %v", kind, err)
		}
	}
	r.must(Event{Kind: EventUndo, ByParent: true})
	r.answer(0)
	r.answer(0)
	if r.task.State != StateUndone {
		t.Fatalf("undone by its parent: %s", r.task)
	}
	if err := r.apply(Event{Kind: EventResubmit, Actor: person}); !errors.Is(err, ErrNotAllowed) {
		t.Fatalf("resubmit of an undone child: %v", err)
	}
	r.must(Event{Kind: EventResubmit, ByParent: true})
	if r.task.State != StateProcessing || r.task.Round != 1 {
		t.Fatalf("resubmitted by its parent: %s", r.task)
	}
}

// TestElements splits a list as its children take it.
func TestElements(t *testing.T) {
	for list, want := range map[string][]string{
		`[]`: nil, `[1]`: {"1"}, `[1,"a,]\"",{"x":[1,2]},[],null]`: {"1", `"a,]\""`, `{"x":[1,2]}`, "[]", "null"},
	} {
		all := Elements([]byte(list))
		if len(all) != len(want) || countElements([]byte(list)) != len(want) {
			t.Fatalf("%s has %d elements, want %d", list, len(all), len(want))
		}
		for i, e := range all {
			if got := list[e[0]:e[1]]; got != want[i] {
				t.Errorf("element %d of %s is %s, want %s", i, list, got, want[i])
			}
		}
	}
}
