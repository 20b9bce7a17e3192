package core

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// answered is what one answer comes to, in the words of the page.
type answered struct{ do, attempt, effect, journal, breaker, undo string }

// TestAnswersOnThePage: the table of answers in docs/reference/protocol.md says of each code, of silence and of no responder
// what becomes of a do and of an undo, and has each code once.
func TestAnswersOnThePage(t *testing.T) {
	said := answersOnThePage(t)
	if len(said) != 203 {
		t.Fatalf("%d answers, want success, 400 to 599, silence and no responder", len(said))
	}
	for code := 400; code < 600; code++ {
		again := FinalCode(code) == (said[code].effect == "none") && LastCode(code) == (said[code].do == "final") && BusyCode(code) == (said[code].do == "waits")
		if !again {
			t.Errorf("code %d is %+v on the page, and the functions say otherwise", code, said[code])
		}
	}
	for code, want := range said {
		if got := answerOf(t, code); got != want {
			t.Errorf("code %d:\n%+v, and the page says\n%+v", code, got, want)
		}
	}
}

// What is no code: see answersOnThePage.
const (
	saysNothing = -1
	notThere    = -2
)

func answersOnThePage(t *testing.T) map[int]answered {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n### Answers\n")
	_, rest, _ = strings.Cut(rest, "|---|---|---|---|---|---|---|\n")
	said := map[int]answered{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(cells) != 7 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		for _, code := range codesOf(t, cells[0]) {
			if _, twice := said[code]; twice {
				t.Errorf("code %d is there twice", code)
			}
			said[code] = answered{cells[1], cells[2], cells[3], strings.Trim(cells[4], "`"), cells[5], cells[6]}
		}
	}
	return said
}

// codesOf are the codes that a cell names: "408, 5xx but 501, 503".
func codesOf(t *testing.T, cell string) (codes []int) {
	t.Helper()
	switch cell {
	case "a result, or nothing":
		return []int{0}
	case "silence":
		return []int{saysNothing}
	case "no responder":
		return []int{notThere}
	}
	with, without, _ := strings.Cut(cell, " but ")
	for part := range strings.SplitSeq(with, ", ") {
		first, span := strings.ReplaceAll(part, "x", "0"), 1
		if first != part {
			span = 100
		}
		n, err := strconv.Atoi(first)
		if err != nil {
			t.Fatalf("%q is no code: %v", part, err)
		}
		for code := n; code < n+span; code++ {
			if !slices.Contains(strings.Split(without, ", "), strconv.Itoa(code)) {
				codes = append(codes, code)
			}
		}
	}
	return codes
}

// answers is an answer, or what comes in its place.
func (r *rig) answers(code int) {
	switch code {
	case saysNothing:
		r.late()
	case notThere:
		r.absent()
	default:
		r.answer(code)
	}
}

// answerOf plays an answer to a do, and to an undo.
func answerOf(t *testing.T, code int) (got answered) {
	p := stepsPlan(1)
	r := newRig(t, p)
	r.birth(0)
	r.answers(code)
	s := &r.task.Steps[0]
	row := r.journal[1]
	got.journal, got.breaker = string(row.Kind), map[Kind]string{KindDone: "done", KindRefused: "done", KindFailed: "failed", KindOverdue: "failed", KindUnserved: "–"}[row.Kind]
	got.attempt = map[int]string{0: "no", 1: "yes"}[row.Attempt]
	switch {
	case s.Status == StepDone:
		got.effect = "there"
	case s.Effect.Possible():
		got.effect = "not known"
	default:
		got.effect = "none"
	}
	got.do = doOf(r)

	r = newRig(t, p)
	r.birth(0)
	r.answer(0)
	r.must(Event{Kind: EventUndo})
	r.answers(code)
	switch r.task.State {
	case StateUndone:
		got.undo = "undone"
	case StateError:
		got.undo = "given up"
	case StateUndoing:
		got.undo = map[bool]string{true: "again", false: r.task.String()}[r.leaves()]
	default:
		got.undo = r.task.String()
	}
	return got
}

// doOf is what follows an answer to the first attempt of a do.
func doOf(r *rig) string {
	switch r.task.State {
	case StateProcessed:
		return "done"
	case StateUndone, StateUndoing:
		return "final"
	}
	busy := r.task.Steps[0].Awaits != 0
	switch {
	case !r.leaves():
		return r.task.String()
	case busy:
		return "waits"
	}
	return "again"
}

// leaves lets the wait for another attempt pass, and reports whether one leaves.
func (r *rig) leaves() bool {
	if r.task.Out() < 0 {
		r.wait()
	}
	return r.task.Out() >= 0
}
