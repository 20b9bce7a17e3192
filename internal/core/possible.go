package core

import "time"

// words are the requests of a task's owner that people know, in the order in which they are named.
var words = []string{"cancel", "undo", "resubmit", "edit", "accept", "resolve", "extend", "signal"}

// PossibleIn are the requests that some task in a state takes; [Task.Possible] says which of them one does.
func PossibleIn(s State) []string {
	switch s {
	case StatePending, StateProcessing:
		return []string{"cancel", "undo", "extend", "signal"}
	case StateProcessed:
		return []string{"undo"}
	case StateUndone:
		return []string{"resubmit", "edit"}
	case StateError:
		return []string{"undo", "resubmit", "edit", "accept", "resolve"}
	}
	return nil
}

// Possible are the requests that the task's owner would take at a time, each with the best that can be given with it: the
// owner's own decision is played on a copy. p is the task's plan, or the newest of a task whose plan was unknown when it
// came; nil when there is none. What a cancel of a task in error does is called its undo.
func (t *Task) Possible(p *Plan, at Instant) (possible []string) {
	for _, word := range words {
		if t.takes(p, word, at) && (word != "cancel" || t.State != StateError) {
			possible = append(possible, word)
		}
	}
	return possible
}

func (t *Task) takes(p *Plan, word string, at Instant) bool {
	payload := []byte("0")
	ev := Event{At: at, Actor: "anyone"}
	switch word {
	case "cancel", "undo":
		ev.Kind = map[string]EventKind{"cancel": EventCancel, "undo": EventUndo}[word]
		if t.would(p, ev) != nil {
			ev.Found = ProbeDone
		}
	case "resubmit", "edit":
		if ev.Kind = EventResubmit; word == "edit" {
			ev.Kind, ev.Input = EventEdit, payload
		}
		if t.would(p, ev) != nil {
			ev.Found = ProbeAbsent
		}
	case "accept":
		ev.Kind, ev.Result = EventAccept, payload
	case "resolve":
		ev.Kind, ev.As = EventResolve, StateUndone
	case "extend":
		ev.Kind, ev.Until = EventExtend, max(at, t.Deadline).Add(time.Hour)
	case "signal":
		for i := range t.Steps {
			if t.takesSignal(p, i, at) {
				return true
			}
		}
		return false
	}
	return t.would(p, ev) == nil
}

// takesSignal reports whether step i is one that takes a signal at a time.
func (t *Task) takesSignal(p *Plan, i int, at Instant) bool {
	return p != nil && t.Steps[i].kind == kindSignal &&
		t.would(p, Event{Kind: EventSignal, At: at, Actor: "anyone", Step: p.Steps[i].Name, AskToken: t.AskToken(p, i), Result: []byte("0")}) == nil
}

// would is what Apply says of an event; nothing changes.
func (t *Task) would(p *Plan, ev Event) error {
	c := *t // what else it points to is never changed in place
	c.Steps, c.Earlier = append([]StepState(nil), t.Steps...), append([][]byte(nil), t.Earlier...)
	var out Outcome
	return Apply(p, &c, &ev, &out)
}
