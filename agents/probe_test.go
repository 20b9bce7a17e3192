package agents_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

func idle(context.Context, *core.Command) ([]byte, error) { return nil, nil }

// TestProbeAnswers: an answer is passed on as it is, one that is none is an error with a code, and a panic is one.
func TestProbeAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		is   core.Probe
		err  error
		want core.Probe
		code int
		text string
	}{
		{name: "done", is: core.Probe{Outcome: core.ProbeDone, Result: []byte(`{"a":1}`)}, want: core.Probe{Outcome: core.ProbeDone, Result: []byte(`{"a":1}`)}},
		{name: "done without a result", is: core.Probe{Outcome: core.ProbeDone}, want: core.Probe{Outcome: core.ProbeDone, Result: []byte(`null`)}},
		{name: "absent", is: core.Probe{Outcome: core.ProbeAbsent, Result: []byte(`1`)}, want: core.Probe{Outcome: core.ProbeAbsent}},
		{name: "in progress", is: core.Probe{Outcome: core.ProbeInProgress}, want: core.Probe{Outcome: core.ProbeInProgress}},
		{name: "none", code: 512, text: `outcome ""`},
		{name: "another", is: core.Probe{Outcome: "perhaps"}, code: 512, text: `outcome "perhaps"`},
		{name: "too large", is: core.Probe{Outcome: core.ProbeDone, Result: []byte(`"12345678901234"`)}, code: 512, text: "16 bytes, the limit is 15"},
		{name: "not JSON", is: core.Probe{Outcome: core.ProbeDone, Result: []byte(`{`)}, code: 512, text: "not JSON"},
		{name: "NUL", is: core.Probe{Outcome: core.ProbeDone, Result: []byte(`"\u0000"`)}, code: 512, text: "NUL"},
		{name: "an error", is: core.Probe{Outcome: core.ProbeDone}, err: errors.New("the bank is away"), code: 500, text: "the bank is away"},
		{name: "not known", err: agents.ErrNotKnown, code: 500, text: agents.ErrNotKnown.Error()},
		{name: "a panic", err: errPanic, code: 500, text: "panic: oh"},
		{name: "an error that panics", is: core.Probe{Outcome: core.ProbeDone}, err: (*nilError)(nil), code: 500, text: nilPanic},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: idle, Undo: idle, ResultMax: 15})
				cmd := command(10 * time.Second)
				if err := runtime.RegisterProbe(cmd.Agent, cmd.Step, func(context.Context, *core.Command) (core.Probe, error) {
					if errors.Is(c.err, errPanic) {
						panic("oh")
					}
					return c.is, c.err
				}); err != nil {
					t.Fatal(err)
				}
				p, code, err := runtime.Probe(t.Context(), core.InstantOf(time.Now()), cmd)
				if p.Outcome != c.want.Outcome || string(p.Result) != string(c.want.Result) || code != c.code || (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
					t.Errorf("%+v %d %v, want %+v %d %q", p, code, err, c.want, c.code, c.text)
				}
			})
		})
	}
}

var errPanic = errors.New("panics")

// TestProbeTime: a probe has the time that its answer is read for, and no more than ten seconds; one whose answer is not read any
// more is not begun.
func TestProbeTime(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 10 * time.Second, -time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: idle, Undo: idle})
			cmd := command(left)
			cmd.CompleteBy = core.InstantOf(time.Now().Add(left))
			begun := false
			if err := runtime.RegisterProbe(cmd.Agent, cmd.Step, func(ctx context.Context, _ *core.Command) (core.Probe, error) {
				begun = true
				<-ctx.Done()
				return core.Probe{}, ctx.Err()
			}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, _, err := runtime.Probe(t.Context(), core.InstantOf(began), cmd)
			if took := time.Since(began); err == nil || took != want || begun != (want > 0) {
				t.Errorf("%v left: %v after %v, begun %v", left, err, took, begun)
			}
		})
	}
}

// TestProbeOfALedger: a ledger that can answer does, for steps with an undo; a handler of the step's own goes before it.
// What it does not know is not absent.
func TestProbeOfALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := agents.NewMemoryLedger(func() core.Instant { return core.InstantOf(time.Now()) }, time.Hour, 0)
		runtime := newRuntime(t, agents.Config{Ledger: ledger}, agents.Handlers{Do: idle, Undo: idle})
		cmd := command(10 * time.Second)
		if got := runtime.Probed(); !slices.Equal(got, []string{cmd.Agent}) {
			t.Errorf("probed %v", got)
		}
		ask := func() (core.Probe, error) {
			p, _, err := runtime.Probe(t.Context(), core.InstantOf(time.Now()), cmd)
			return p, err
		}
		if p, err := ask(); !errors.Is(err, agents.ErrNotKnown) {
			t.Errorf("a key that was never done: %+v %v", p, err)
		}
		during := func(what string) {
			if p, err := ask(); err != nil || p.Outcome != core.ProbeInProgress {
				t.Errorf("%s: %+v %v", what, p, err)
			}
		}
		if _, err := ledger.Do(t.Context(), cmd.Key(), func(context.Context) ([]byte, error) {
			during("while it is done")
			return []byte(`"r"`), nil
		}); err != nil {
			t.Fatal(err)
		}
		if p, err := ask(); err != nil || p.Outcome != core.ProbeDone || string(p.Result) != `"r"` {
			t.Errorf("done: %+v %v", p, err)
		}
		broken := errors.New("broken")
		if err := ledger.Undo(t.Context(), cmd.Key(), func(context.Context, []byte, bool) error {
			during("while it is undone")
			return broken
		}); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		during("after an undo that failed")
		if err := ledger.Undo(t.Context(), cmd.Key(), func(context.Context, []byte, bool) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if p, err := ask(); err != nil || p.Outcome != core.ProbeAbsent {
			t.Errorf("undone: %+v %v", p, err)
		}
		if err := runtime.RegisterProbe(cmd.Agent, cmd.Step, func(context.Context, *core.Command) (core.Probe, error) {
			return core.Probe{Outcome: core.ProbeInProgress}, nil
		}); err != nil {
			t.Fatal(err)
		}
		during("with a handler of the step's own")
	})
}

// TestProbeIsNotServed: who serves none says so, and what cannot be served is refused.
func TestProbeIsNotServed(t *testing.T) {
	runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: idle, Undo: idle})
	cmd := command(10 * time.Second)
	if got := runtime.Probed(); len(got) != 0 {
		t.Errorf("probed %v", got)
	}
	if _, code, err := runtime.Probe(t.Context(), core.InstantOf(time.Now()), cmd); err == nil || code != 501 {
		t.Errorf("%d %v", code, err)
	}
	probe := func(context.Context, *core.Command) (core.Probe, error) { return core.Probe{}, nil }
	if err := runtime.RegisterProbe(cmd.Agent, cmd.Step, probe); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"twice": runtime.RegisterProbe(cmd.Agent, cmd.Step, probe), "nil": runtime.RegisterProbe(cmd.Agent, "other", nil),
		"agent": runtime.RegisterProbe("a b", cmd.Step, probe), "step": runtime.RegisterProbe(cmd.Agent, "a b", probe),
	} {
		if err == nil {
			t.Errorf("%s: served", name)
		}
	}
}
