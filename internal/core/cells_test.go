package core

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// testdata/cells.txt says what every kind of event does in every situation that
// a task can be in; together its situations hold every pair of a task's state
// and a step's status that can be. It is written by hand: no flag rewrites it.

// situations build the tasks of cells.txt; a, b and c are their steps.
var situations = map[string]func(r *rig){
	"parked for room": func(r *rig) {
		r.birth(0)
		r.must(Event{Kind: EventReply, Seq: 1, Full: StepSetOf(1)})
	},
	"paused": func(r *rig) {
		r.plan.Steps[1].OnExhausted, r.plan.Steps[1].AttemptsMax = PolicyWait, 1
		r.plan.Steps[1].Pause = 20 * time.Second
		atB(r)
		r.answer(CodeAgentError)
	},
	"at work": atB,
	"between tries": func(r *rig) {
		atB(r)
		r.answer(CodeAgentError)
	},
	"processed": func(r *rig) {
		atB(r)
		r.answer(0)
		r.answer(0)
	},
	"cancelled at work": func(r *rig) {
		atB(r)
		r.must(Event{Kind: EventCancel})
	},
	"undo at work": func(r *rig) {
		r.plan.Steps[1].AttemptsMax = 1
		atB(r)
		r.answer(CodeAgentError)
	},
	"between undo tries": func(r *rig) {
		situations2["undo at work"](r)
		r.answer(CodeAgentError)
	},
	"grace": func(r *rig) {
		r.plan.Steps[1].AttemptsMax = 1
		atB(r)
		r.late()
	},
	"second undo at work": func(r *rig) {
		situations2["undo at work"](r)
		r.answer(0)
	},
	"undone": func(r *rig) {
		situations2["second undo at work"](r)
		r.answer(0)
	},
	"undone after a refusal": func(r *rig) {
		atB(r)
		r.answer(CodeRefused)
		r.answer(0)
	},
	"undone, a check done": func(r *rig) {
		r.plan.Steps[0].Undoable = false
		situations2["parked for room"](r)
		r.must(Event{Kind: EventCancel})
	},
	"error by policy": func(r *rig) {
		r.plan.Steps[1].OnExhausted = PolicyError
		atB(r)
		r.answer(CodeRefused)
	},
	"waits for its agent": func(r *rig) {
		atB(r)
		r.absent()
	},
	"retry out": func(r *rig) {
		situations2["waits for its agent"](r)
		r.wait()
	},
	"agent full": func(r *rig) {
		atB(r)
		r.answer(CodeTooMany)
	},
	"undo waits for its agent": func(r *rig) {
		situations2["undo at work"](r)
		r.absent()
	},
	"retry of undo out": func(r *rig) {
		situations2["undo waits for its agent"](r)
		r.wait()
	},
	"undo in trouble": func(r *rig) {
		situations2["undo at work"](r)
		r.now = r.now.Add(undoAlertAfter)
		r.must(Event{Kind: EventOverdue, Rand: 0.5}) // and a, which b does not come after, goes on
	},
	"undo gave up": func(r *rig) {
		situations2["undo at work"](r)
		r.answer(CodeRefused)
	},
	"error, undo gave up": func(r *rig) {
		situations2["undo gave up"](r)
		r.answer(0)
	},
	"error, second undo gave up": func(r *rig) {
		situations2["second undo at work"](r)
		r.answer(CodeRefused)
	},
	"error, poisoned between tries": func(r *rig) {
		situations2["between tries"](r)
		r.must(Event{Kind: EventPoison})
	},
	"error, poisoned in the grace after processed": func(r *rig) {
		atB(r)
		r.answer(0)
		r.crash()
		r.answer(0)
		r.must(Event{Kind: EventUndo})
		r.must(Event{Kind: EventPoison})
	},
	"processed by hand": func(r *rig) {
		situations2["error by policy"](r)
		r.must(Event{Kind: EventResolve, As: StateProcessed})
	},
	"processed by hand, half undone": func(r *rig) {
		situations2["error, second undo gave up"](r)
		r.must(Event{Kind: EventResolve, As: StateProcessed})
	},
	"undone by hand": func(r *rig) {
		situations2["error, undo gave up"](r)
		r.must(Event{Kind: EventResolve, As: StateUndone})
	},
	"plan unknown":               func(r *rig) { bare(r, false) },
	"cancelled before submitted": func(r *rig) { bare(r, true) },
}

// situations2 breaks the initialisation cycle of situations that build on others.
var situations2 map[string]func(*rig)

func init() { situations2 = situations }

func atB(r *rig) {
	r.birth(0)
	r.answer(0)
}

func bare(r *rig, cancelled bool) {
	r.task = &Task{ID: "t1", Type: "order", CreatedAt: r.now}
	if cancelled {
		BirthCancelled(r.task, &Event{At: r.now}, &r.out)
	} else {
		Birth(nil, r.task, &Event{At: r.now, Error: "no plan"}, &r.out)
	}
	r.journal = append(r.journal, r.out.Records...)
	r.row = *r.task
}

// never lists the pairs of state and status that no task is ever in. The
// property test looks for one.
var never = map[State][]StepStatus{
	StatePending:    {StepRunning, StepFailed, StepUndoing, StepUndone, StepSkipped},
	StateProcessing: {StepFailed, StepUndoing, StepUndone, StepSkipped},
	StateProcessed:  {StepRunning, StepSkipped},
	StateUndoing:    {StepSkipped},
	StateUndone:     {StepWaiting, StepRunning},
	StateError:      {StepRunning, StepSkipped},
}

// probes are the events put to every situation. Those called early come at
// once; wake and overdue come when the task's due time has passed.
var probes = []string{
	"reply", "reply-failed", "reply-refused", "reply-late", "reply-other", "unserved",
	"wake-early", "wake", "claim", "claim-full", "overdue-early", "overdue",
	"cancel", "undo", "resubmit", "resolve", "extend", "poison", "reply-full", "served", "accept", "edit",
}

func probe(name string, r *rig) Event {
	ev := Event{At: r.now, Actor: node, Rand: 0.5, Seq: lastCommand(r)}
	switch base, kind, _ := strings.Cut(name, "-"); base {
	case "reply":
		ev.Kind = EventReply
		switch kind {
		case "failed":
			ev.Code = CodeAgentError
		case "full":
			ev.Code = CodeTooMany
		case "refused":
			ev.Code = CodeRefused
		case "late":
			ev.At = max(r.now, r.task.NextDue(r.plan))
		case "other":
			ev.Seq += 100
		}
	case "wake", "overdue":
		ev.Kind = map[string]EventKind{"wake": EventWake, "overdue": EventOverdue}[base]
		if kind != "early" {
			ev.At = max(r.now, r.task.NextDue(r.plan))
		}
	case "claim":
		ev.Kind = EventClaim
		if kind == "full" {
			ev.Full = StepsBelow(StepsMax)
		}
	case "resolve":
		ev.Kind, ev.As = EventResolve, StateUndone
	case "extend":
		ev.Kind, ev.Until = EventExtend, r.now.Add(time.Hour)
	case "accept":
		ev.Kind, ev.Result = EventAccept, []byte(`"by hand"`)
	case "edit":
		ev.Kind, ev.Input = EventEdit, []byte(`{"edited":true}`)
	default:
		ev.Kind = map[string]EventKind{
			"unserved": EventUnserved, "cancel": EventCancel, "undo": EventUndo,
			"resubmit": EventResubmit, "poison": EventPoison, "served": EventServed,
		}[base]
	}
	if i := r.task.OutSeq(ev.Seq); i >= 0 {
		ev.Copy = r.task.Steps[i].Copy
	}
	return ev
}

// lastCommand is the number of the command that left last.
func lastCommand(r *rig) int64 {
	if i := r.task.Out(); i >= 0 {
		return r.task.Steps[i].Out
	}
	for i := len(r.journal) - 1; i >= 0; i-- {
		if r.journal[i].Next >= 0 {
			return r.journal[i].Seq
		}
	}
	return 1
}

// outcome is one cell: kind of record, new state, effects.
func outcome(r *rig, ev Event, err error) string {
	switch {
	case errors.Is(err, ErrStale):
		return "stale"
	case errors.Is(err, ErrNotAllowed):
		return "not allowed"
	case err != nil:
		return err.Error()
	}
	parts := []string{"-"}
	if n := len(r.out.Records); n > 0 {
		kinds := ""
		for _, rec := range r.out.Records[:n-1] {
			kinds += string(rec.Kind) + ", "
		}
		parts[0] = fmt.Sprintf("%s%s → %s", kinds, r.out.Records[n-1].Kind, r.task.State)
	}
	for _, e := range r.out.Effects {
		parts = append(parts, effect(r.plan, e, ev.At))
	}
	return strings.Join(parts, "; ")
}

func effect(p *Plan, e Effect, now Instant) string {
	switch e.Kind {
	case EffectDo:
		return fmt.Sprintf("do %s.%d", p.Steps[e.Step].Name, e.Attempt)
	case EffectUndo:
		return fmt.Sprintf("undo %s.%d", p.Steps[e.Step].Name, e.Attempt)
	case EffectWake:
		return "wake +" + e.At.Sub(now).String()
	case EffectReceived:
		return "received"
	case EffectAlert:
		return "alert " + p.Steps[e.Step].Name
	}
	return "ended"
}

// covers: S10, S11, S29, S42, G1, G3, T1, inv5, inv7, inv8, inv11
func TestCells(t *testing.T) {
	blocks := readCells(t)
	seen := map[State]map[StepStatus]bool{}
	for name, build := range situations {
		block, ok := blocks[name]
		if !ok {
			t.Errorf("situation %q is not in cells.txt", name)
			continue
		}
		delete(blocks, name)
		r := newRig(t, stepsPlan(3))
		build(r)
		if got := header(r.task); got != block.header {
			t.Errorf("%s: it is %q, cells.txt says %q", name, got, block.header)
		}
		note(seen, r.task)
		for _, p := range probes {
			r := newRig(t, stepsPlan(3))
			build(r)
			ev := probe(p, r)
			got := outcome(r, ev, applyCell(r, ev))
			if want, ok := block.cells[p]; !ok {
				t.Errorf("%s: no cell for %s; it does: %s", name, p, got)
			} else if got != want {
				t.Errorf("%s: %s does\n\t%s, want\n\t%s", name, p, got, want)
			}
		}
	}
	for name := range blocks {
		t.Errorf("cells.txt has a situation %q that no test builds", name)
	}
	checkPairs(t, seen)
}

// applyCell applies ev; a task without steps is not followed into the store.
func applyCell(r *rig, ev Event) error {
	if r.task.Steps == nil && ev.Kind != EventResubmit && ev.Kind != EventEdit {
		return Apply(nil, r.task, &ev, &r.out)
	}
	return r.apply(ev)
}

func header(t *Task) string {
	s := string(t.State) + ":"
	for i := range t.Steps {
		s += " " + t.Steps[i].Status.String()
	}
	return s
}

func note(seen map[State]map[StepStatus]bool, t *Task) {
	for i := range t.Steps {
		if seen[t.State] == nil {
			seen[t.State] = map[StepStatus]bool{}
		}
		seen[t.State][t.Steps[i].Status] = true
	}
}

// checkPairs wants every pair either shown in a situation or known to be
// impossible.
func checkPairs(t *testing.T, seen map[State]map[StepStatus]bool) {
	t.Helper()
	for state, impossible := range never {
		listed := map[StepStatus]bool{}
		for _, s := range impossible {
			listed[s] = true
		}
		for s := StepWaiting; s <= StepSkipped; s++ {
			if seen[state][s] == listed[s] {
				t.Errorf("a task that is %s with a step %s: shown %v, impossible %v", state, s, seen[state][s], listed[s])
			}
		}
	}
}

type cellBlock struct {
	header string
	cells  map[string]string
}

// readCells reads cells.txt: [name], the header, then lines "probe … = outcome".
func readCells(t *testing.T) map[string]cellBlock {
	t.Helper()
	data, err := os.ReadFile("testdata/cells.txt")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]cellBlock{}
	var block cellBlock
	for n, line := range strings.Split(string(data), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			name, state, _ := strings.Cut(line[1:], "] ")
			block = cellBlock{header: state, cells: map[string]string{}}
			blocks[name] = block
		default:
			names, what, ok := strings.Cut(line, "=")
			if !ok {
				t.Fatalf("cells.txt:%d: no = in %q", n+1, line)
			}
			for _, p := range strings.Fields(names) {
				if _, twice := block.cells[p]; twice {
					t.Fatalf("cells.txt:%d: %s stands twice", n+1, p)
				}
				block.cells[p] = strings.TrimSpace(what)
			}
		}
	}
	return blocks
}
