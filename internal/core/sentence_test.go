package core

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// more are situations that differ in their sentence only, or that no event of a chain of three steps leads to.
var more = map[string]func(t *testing.T) *rig{
	"a chance of room is over": func(t *testing.T) *rig { return built(t, "paused", 30*time.Second) },
	"deadline near":            func(t *testing.T) *rig { return built(t, "at work", 55*time.Second) },
	"deadline passed":          func(t *testing.T) *rig { return built(t, "parked for room", time.Hour) },
	"silent":                   func(t *testing.T) *rig { return built(t, "at work", 10*time.Second) },
	"silent, cancelled":        func(t *testing.T) *rig { return built(t, "cancelled at work", 10*time.Second) },
	"silent undo":              func(t *testing.T) *rig { return built(t, "undo at work", 10*time.Second) },
	"its backoff is over":      func(t *testing.T) *rig { return built(t, "between tries", 10*time.Second) },
	"undo asked": func(t *testing.T) *rig {
		r := built(t, "processed", 0)
		r.must(Event{Kind: EventUndo, Reason: "sent to the wrong\naddress"})
		return r
	},
	"in error, undo asked": func(t *testing.T) *rig { // the person's reason is not the step's failure
		r := built(t, "error by policy", 0)
		r.must(Event{Kind: EventUndo, Reason: "the gateway is down"})
		return r
	},
	"in error, undo asked without a reason": func(t *testing.T) *rig {
		r := built(t, "error by policy", 0)
		r.must(Event{Kind: EventUndo})
		return r
	},
	"between tries, cancelled": func(t *testing.T) *rig {
		r := built(t, "between tries", 0)
		r.must(Event{Kind: EventCancel, Reason: "the customer called"})
		return r
	},
	"cancelled at work, then it failed": func(t *testing.T) *rig {
		r := built(t, "at work", 0)
		r.must(Event{Kind: EventCancel, Reason: "the customer called"})
		r.answer(CodeAgentError)
		return r
	},
	"cancelled at work, then it was refused": func(t *testing.T) *rig {
		r := built(t, "at work", 0)
		r.must(Event{Kind: EventCancel, Reason: "the customer called"})
		r.answer(409)
		return r
	},
	"cancelled at work, then silent": func(t *testing.T) *rig {
		r := built(t, "at work", 0)
		r.must(Event{Kind: EventCancel, Reason: "the customer called"})
		r.now = r.now.Add(10 * time.Second)
		r.must(Event{Kind: EventOverdue, Rand: 0.5})
		return r
	},
	"a long reason": func(t *testing.T) *rig {
		r := built(t, "processed", 0)
		r.must(Event{Kind: EventUndo, Reason: strings.Repeat("ä", 300)})
		return r
	},
	"last step at work": func(t *testing.T) *rig {
		r := built(t, "at work", 0)
		r.answer(0)
		return r
	},
	"several steps ready": func(t *testing.T) *rig {
		r := diamond(t)
		r.birth(0)
		return r
	},
	"several steps ready, between tries": func(t *testing.T) *rig {
		r := diamond(t)
		r.birth(0)
		r.answer(0)
		r.answer(CodeAgentError)
		return r
	},
	"several steps out": func(t *testing.T) *rig { // as an owner has it that lets steps run side by side
		r := diamond(t)
		r.birth(0)
		r.answer(0)
		r.task.Steps[2] = StepState{Status: StepRunning, Attempt: 1, Out: 9, Due: r.now.Add(5 * time.Second)}
		return r
	},
	"a join waits for one of two": func(t *testing.T) *rig {
		r := diamond(t)
		r.birth(0)
		r.answer(0)
		r.answer(0)
		return r
	},
	"several undos open, one in trouble": func(t *testing.T) *rig {
		r := diamond(t)
		r.plan.Steps[3].OnExhausted, r.plan.Steps[3].AttemptsMax = PolicyUndo, 1
		r.birth(0)
		for range 3 {
			r.answer(0)
		}
		r.answer(CodeAgentError)
		r.now = r.now.Add(undoAlertAfter)
		r.must(Event{Kind: EventOverdue, Rand: 0.5})
		return r
	},
	"plan gone": func(t *testing.T) *rig {
		r := built(t, "at work", 0)
		r.plan, r.task.Steps = nil, nil
		return r
	},
	"plan gone, in error": func(t *testing.T) *rig {
		r := built(t, "error by policy", 0)
		r.plan, r.task.Steps = nil, nil
		return r
	},
}

// diamond is a plan of a, then b and c, then d.
func diamond(t *testing.T) *rig {
	p := stepsPlan(4)
	p.Steps[1].After, p.Steps[2].After, p.Steps[3].After = []int{0}, []int{0}, []int{1, 2}
	return newRig(t, p)
}

// built is a situation of the cells, some time later.
func built(t *testing.T, name string, later time.Duration) *rig {
	t.Helper()
	r := newRig(t, stepsPlan(3))
	situations[name](r)
	r.now = r.now.Add(later)
	return r
}

// tellsNext finds in a sentence what comes next, and when or on what.
var tellsNext = regexp.MustCompile(`(must answer by|had to answer|due by|Until|may still take effect until|start over at|retried at|retried within) (20\d\d-|step|\d)|` +
	`starts automatically when|will be retried, or gives up|as soon as the scheduler|will be undone next|starts next|starts again next|Possible now: |go to state error\.|resubmit the task, or|then resolve`)

var tellsStep = regexp.MustCompile(`\b[Ss]teps? [a-d]\b`)

// checkSentence holds the sentence of an unfinished task to what it must name.
func checkSentence(t *testing.T, name string, r *rig) string {
	t.Helper()
	text := r.task.Sentence(r.plan, r.journal, r.now)
	if strings.ContainsAny(text, "\n\r\t\x00") || !strings.HasSuffix(text, ".") {
		t.Errorf("%s: not one line that ends: %q", name, text)
	}
	if r.task.State == StateProcessed || r.task.State == StateUndone {
		return text
	}
	if !tellsNext.MatchString(text) {
		t.Errorf("%s: it does not say what comes next: %s", name, text)
	}
	if r.task.Steps != nil && !tellsStep.MatchString(text) {
		t.Errorf("%s: it names no step: %s", name, text)
	}
	begun := slices.ContainsFunc(r.task.Steps, func(s StepState) bool { return s.Status == StepDone })
	if r.task.State == StatePending && begun && !strings.Contains(text, "its state is pending because") {
		t.Errorf("%s: it does not say why it is pending with steps done: %s", name, text)
	}
	return text
}

// TestSentences compares the sentence of every situation with testdata/sentences.txt, and holds the sentence of
// every cell of cells.txt (a situation after an event) to what it must name: what its owner has in memory, and what a
// reader replays from the store.
//
// covers: OP1, U8
func TestSentences(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Why a task is where it is, in every situation of cells.txt and some more. Where the store knows less than\n# the task's owner, its readers see the second sentence.\n")
	tell := func(name string, r *rig) {
		fmt.Fprintf(&b, "\n[%s]\n%s\n", name, checkSentence(t, name, r))
		if r.task.Steps == nil || strings.HasPrefix(name, "several steps out") {
			return
		}
		stored := *r
		stored.task = r.replayed()
		if text := checkSentence(t, name+", from the store", &stored); text != r.task.Sentence(r.plan, r.journal, r.now) {
			b.WriteString(text + "\n")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readCells(t))) {
		build, ok := situations[name]
		if !ok {
			t.Fatalf("cells.txt has a situation %q that no test builds", name)
		}
		r := newRig(t, stepsPlan(3))
		build(r)
		tell(name, r)
		for _, p := range probes {
			r := newRig(t, stepsPlan(3))
			build(r)
			ev := probe(p, r)
			if err := applyCell(r, ev); err != nil {
				continue
			}
			r.now = max(r.now, ev.At)
			checkSentence(t, name+" after "+p, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		tell(name, more[name](t))
	}
	const file = "testdata/sentences.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; the sentences are now:\n%s", file, b.String())
	}
}

// What a task's Possible names is what Apply takes, in every situation.
func TestPossible(t *testing.T) {
	some := map[State]map[string]bool{}
	for name, build := range situations {
		r := newRig(t, stepsPlan(3))
		build(r)
		state, says := r.task.State, r.task.Possible(r.plan, r.now)
		for _, word := range says {
			if some[state] == nil {
				some[state] = map[string]bool{}
			}
			some[state][word] = true
		}
		for _, word := range []string{"cancel", "undo", "resubmit", "edit", "accept", "resolve", "extend"} {
			r := newRig(t, stepsPlan(3))
			build(r)
			err := applyCell(r, probe(word, r))
			switch said := slices.Contains(says, word); {
			case said && err != nil:
				t.Errorf("%s: %s is said to be possible: %v", name, word, err)
			case !said && err == nil && (word != "cancel" || state != StateError): // a cancel in error is an undo, and called so
				t.Errorf("%s: %s is possible, and not said to be", name, word)
			}
		}
	}
	for state := range never {
		for _, word := range words {
			if in := slices.Contains(PossibleIn(state), word); word != "signal" && in != some[state][word] {
				t.Errorf("%s in state %s: said to be possible of some task %v, and is of one %v", word, state, in, some[state][word])
			}
		}
	}
}

// A deadline is near when a call or a wait does not fit any more; a signal that may take long is no hurry.
func TestDeadlineOfASignalIsNotNear(t *testing.T) {
	for kind, near := range map[StepKind]bool{SignalStep: false, WaitStep: true, CallStep: true} {
		step := Step{Name: "a", Kind: kind, CompleteBy: 3 * time.Hour}
		switch kind {
		case WaitStep:
			step.CompleteBy, step.For = 0, time.Hour
		case CallStep:
			step.Agent = "a"
		}
		p := Plan{Name: "p", Version: 1, CompleteBy: 4 * time.Hour, Steps: []Step{step}}.WithDefaults()
		r := newRig(t, p)
		r.birth(0)
		if kind == WaitStep {
			r.task.Steps[0].Due = r.now.Add(8 * time.Hour) // as an expression gives it
		}
		if got := r.task.Sentence(r.plan, nil, r.now.Add(2*time.Hour)); strings.Contains(got, "is near") != near {
			t.Errorf("%q: %s", kind, got)
		}
	}
}

// TestSentenceNamesWhoAsked: a task that is undone, or was settled, on request names who requested it.
//
// covers: OP1
func TestSentenceNamesWhoAsked(t *testing.T) {
	for _, test := range []struct {
		situation, actor, reason string
		kind                     EventKind
		want                     string
	}{
		{"at work", "olga@console", "", EventCancel, "because olga asked for it."},
		{"between tries", "olga@console", "the customer called", EventCancel, `because olga asked for it: "the customer called".`},
		{"error by policy", "olga@example.com@http", "", EventUndo, "because olga@example.com asked for it."},
		{"at work", "unnamed@nats", "", EventCancel, "because an unnamed client asked for it."},
	} {
		r := newRig(t, stepsPlan(3))
		situations[test.situation](r)
		r.must(Event{Kind: test.kind, Actor: test.actor, Reason: test.reason})
		if got := r.task.Sentence(r.plan, r.journal, r.now); !strings.Contains(got, "undone, "+test.want) {
			t.Errorf("%s asked: %s", test.actor, got)
		}
	}
	for as, want := range map[State]string{
		StateUndone:    `because olga resolved it: "paid back".`,
		StateProcessed: `The task was resolved as processed at`,
	} {
		r := newRig(t, stepsPlan(3))
		situations["error by policy"](r)
		r.must(Event{Kind: EventResolve, Actor: "olga@http", Reason: "paid back", As: as})
		if got := r.task.Sentence(r.plan, r.journal, r.now); !strings.Contains(got, want) || !strings.Contains(got, "olga") || strings.Contains(got, "@") {
			t.Errorf("resolved as %s: %s", as, got)
		}
	}
}
