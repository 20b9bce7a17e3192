package core

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A plan that cannot work is refused, and the error names field, value and limit.
func TestPlanRefused(t *testing.T) {
	for _, c := range []struct {
		change func(p *Plan)
		want   string
	}{
		{func(p *Plan) { p.Name = "or.der" }, `"or.der"`},
		{func(p *Plan) { p.Name = "" }, "0 bytes"},
		{func(p *Plan) { p.Version = 0 }, "version 0"},
		{func(p *Plan) { p.Steps = nil }, "0 steps, want 1 to 64"},
		{func(p *Plan) { p.Steps = make([]Step, StepsMax+1) }, "65 steps, want 1 to 64"},
		{func(p *Plan) { p.CompleteBy = -time.Second }, "complete_by is -1s"},
		{func(p *Plan) { p.Grace = time.Microsecond }, "grace is 1µs, want 1ms"},
		{func(p *Plan) { p.Steps[1].Name = "a" }, "steps 1 and 2 are both named a"},
		{func(p *Plan) { p.Steps[1].Name = strings.Repeat("x", 65) }, "65 bytes, want 1 to 64"},
		{func(p *Plan) { p.Steps[1].Agent = "a..b" }, "step b"},
		{func(p *Plan) { p.Steps[1].Agent = "a.b.c.d.e" }, "more than 4 tokens"},
		{func(p *Plan) { p.Steps[1].After = []int{1} }, "step number 2, which is not an earlier step"},
		{func(p *Plan) { p.Steps[1].After = []int{2} }, "step number 3"},
		{func(p *Plan) { p.Steps[1].After = []int{-1} }, "step number 0"},
		{func(p *Plan) { p.Steps[1].AttemptsMax = AttemptsLimit + 1 }, "attempts_max is 1001, want 1 to 1000"},
		{func(p *Plan) { p.Steps[1].UndoAttemptsMax = -1 }, "undo_attempts_max is -1"},
		{func(p *Plan) { p.Steps[1].ResultMax = ResultBytesMax + 1 }, "result_max is 65537, want 1 to 65536"},
		{func(p *Plan) { p.Steps[1].OnExhausted = "retry" }, `on_exhausted is "retry"`},
		{func(p *Plan) { p.Steps[1].Backoff, p.Steps[1].BackoffCap = 2*time.Second, time.Second }, "backoff is 2s, want at most its cap of 1s"},
		{func(p *Plan) { p.Steps[1].CompleteBy, p.CompleteBy = 2*time.Second, time.Second }, "complete_by is"},
		{func(p *Plan) { p.Steps[1].Pause = 2 * DurationMax }, "pause is"},
		{func(p *Plan) { p.InputMax = InputBytesMax + 1 }, "input_max is 262145, want 1 to 262144"},
		{func(p *Plan) { p.InputMax = InputBytesMax }, "over the server's max_payload of 400000"},
	} {
		p := stepsPlan(3).WithDefaults()
		p.InputMax = 1000
		c.change(&p)
		err := p.Validate(400_000)
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got: %v", c.want, err)
		}
	}
}

func TestPlanAccepted(t *testing.T) {
	given := stepsPlan(3)
	p := given.WithDefaults()
	p.Steps[2].After = []int{0, 1}
	if err := p.Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if given.Steps[0].AttemptsMax != 0 {
		t.Error("WithDefaults changed the plan it was called on")
	}
	s := p.Steps[0]
	if s.OnExhausted != PolicyUndo || s.AttemptsMax != DefaultAttemptsMax || s.UndoCompleteBy != DefaultStepCompleteBy {
		t.Errorf("defaults: %+v", s)
	}
	if p.StepIndex("c") != 2 || p.StepIndex("x") != -1 {
		t.Error("StepIndex")
	}
}

func TestShortestTimeout(t *testing.T) {
	p := stepsPlan(2).WithDefaults()
	p.Steps[1].UndoCompleteBy = time.Second
	if got := p.ShortestTimeout(); got != time.Second {
		t.Errorf("with an undo of one second: %v", got)
	}
	p.Steps[1].Undoable = false
	if got := p.ShortestTimeout(); got != DefaultStepCompleteBy {
		t.Errorf("a check is never undone: %v", got)
	}
}

// covers: I18, D8
func TestFinalCode(t *testing.T) {
	for code, want := range map[int]bool{
		0: false, 302: false, 400: true, 404: true, CodeTimeout: false, CodeGone: true, CodeRefused: true,
		CodeTooEarly: false, CodeTooMany: false, 499: true, 500: false, CodeBadResult: false, -1: false,
	} {
		if FinalCode(code) != want {
			t.Errorf("FinalCode(%d) = %v", code, !want)
		}
	}
}

// covers: I23
func TestKey(t *testing.T) {
	for round, want := range map[int]string{0: "t1/drone/0", 9: "t1/drone/9", 10: "t1/drone/10"} {
		c := Command{Task: "t1", Step: "drone", Round: round}
		if got := c.Key(); got != want {
			t.Errorf("round %d: %q", round, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	s := Step{Backoff: 200 * time.Millisecond, BackoffCap: time.Second}
	for attempt, want := range []time.Duration{1: 200, 2: 400, 3: 800, 4: 1000, 5: 1000, 1000: 1000} {
		if attempt == 0 || want == 0 {
			continue
		}
		if got := backoff(&s, attempt, 0.5); got != want*time.Millisecond/2 {
			t.Errorf("before try %d: %v", attempt+1, got)
		}
	}
	if got := backoff(&s, 3, 0); got != 0 {
		t.Errorf("full jitter begins at 0, got %v", got)
	}
}

// Times keep the microsecond that every store keeps.
func TestInstant(t *testing.T) {
	i := InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 1234567, time.UTC))
	if i.Add(1500*time.Nanosecond) != i+1 || i.Add(time.Second).Sub(i) != time.Second {
		t.Error("Add and Sub")
	}
	if got := i.Time(); got.Nanosecond() != 1_234_000 || got.Location() != time.UTC {
		t.Errorf("%v", got)
	}
}

func TestLongErrorIsCut(t *testing.T) {
	if got := len(cut(strings.Repeat("x", 2*ErrorBytesMax))); got != ErrorBytesMax {
		t.Errorf("%d bytes kept", got)
	}
}

// Replay refuses a journal that cannot be this task's.
//
// covers: I24
func TestReplayRefuses(t *testing.T) {
	r := newRig(t, stepsPlan(1))
	r.birth(0)
	r.answer(0)
	stranger := r.journal[1]
	stranger.Step = 5
	for name, journal := range map[string][]Record{
		"empty": nil, "a gap": r.journal[1:], "a step that is not there": {r.journal[0], stranger},
	} {
		if _, err := Replay(r.plan, &Saved{Row: r.row, Journal: journal}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Requests with a deadline in the past and unknown kinds of event change nothing.
func TestBadRequests(t *testing.T) {
	p := stepsPlan(1)
	p.Steps[0].OnExhausted = PolicyError
	r := newRig(t, p)
	r.birth(0)
	if err := r.apply(Event{Kind: 99}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("kind 99: %v", err)
	}
	r.answer(CodeRefused)
	if err := r.apply(Event{Kind: EventResubmit, Until: r.now}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("resubmit until now: %v", err)
	}
}
