package agents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// nilError is an error whose text a nil pointer does not have, as a handler returns by mistake.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

const nilPanic = "panic: runtime error: invalid memory address or nil pointer dereference"

func TestReplyCodes(t *testing.T) {
	plain := errors.New("bank is down")
	for _, test := range []struct {
		name   string
		undo   bool
		result string
		err    error
		code   int
		text   string
		tries  int
	}{
		{name: "a result", result: `{"ok":true}`, tries: 1},
		{name: "an empty result", tries: 1},
		{name: "a result at its limit", result: `"1234567890123"`, tries: 1},
		{name: "a result over its limit", result: `"12345678901234"`, code: 512, text: "result has 16 bytes, result_max is 15", tries: 1},
		{name: "not JSON", result: `{"ok"`, code: 512, text: "result is not JSON: byte 5 of 5: unexpected end of JSON input", tries: 1},
		{name: "no UTF-8", result: "\"\xff\"", code: 512, text: "result is not UTF-8: byte 2", tries: 1},
		{name: "NUL", result: `"\u0000"`, code: 512, text: `result holds a NUL (\u0000) at byte 2`, tries: 1},
		{name: "an error", err: plain, code: 500, text: "bank is down", tries: 3},
		{name: "refused", err: agents.Refuse(422, plain), code: 422, text: "bank is down", tries: 1},
		{name: "refused, wrapped", err: fmt.Errorf("charge: %w", agents.Refuse(403, plain)), code: 403, text: "charge: bank is down", tries: 1},
		{name: "refused with a code that is none", err: agents.Refuse(200, plain), code: 422, text: "bank is down", tries: 1},
		{name: "refused without an error", err: agents.Refuse(422, nil), code: 422, text: "refused", tries: 1},
		{name: "too early", err: agents.ErrInProgress, code: 425, text: agents.ErrInProgress.Error(), tries: 3},
		{name: "too many", err: agents.Refuse(429, plain), code: 429, text: "bank is down", tries: 3},
		{name: "gone", err: agents.ErrGone, code: 410, text: agents.ErrGone.Error(), tries: 1},
		{name: "an error of two lines", err: errors.New("a\r\nb"), code: 500, text: "a  b", tries: 3},
		{name: "an error without a text", err: errors.New("\n"), code: 500, text: "error without a text", tries: 3},
		{name: "an error that is not text", err: errors.New("a\xffb"), code: 500, text: "a?b", tries: 3},
		{name: "an error with a code of none", err: &agents.Error{Err: plain}, code: 500, text: "bank is down", tries: 3},
		{name: "an error with a code of success", err: fmt.Errorf("charge: %w", &agents.Error{Code: 200, Err: plain}), code: 500, text: "charge: bank is down", tries: 3},
		{name: "a code below 0", err: &agents.Error{Code: -1, Err: plain}, code: 500, text: "bank is down", tries: 3},
		{name: "a code without an error", err: &agents.Error{Code: 422}, code: 422, text: "error without a text", tries: 1},
		{name: "a nil pointer of the type", err: (*agents.Error)(nil), code: 500, text: "error without a text", tries: 3},
		{name: "an error that panics", err: (*nilError)(nil), code: 512, text: nilPanic, tries: 1},
		{name: "an undo", undo: true, result: `"dropped"`, tries: 1},
		{name: "an undo that fails with a code of none", undo: true, err: &agents.Error{Err: plain}, code: 500, text: "bank is down", tries: 3},
		{name: "an undo that fails", undo: true, err: plain, code: 500, text: "bank is down", tries: 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				handler := func(context.Context, *core.Command) ([]byte, error) {
					tries++
					return []byte(test.result), test.err
				}
				runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: handler, Undo: handler, ResultMax: 15})
				cmd := command(10 * time.Second)
				cmd.Undo = test.undo
				reply, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd)
				if !answered {
					t.Fatal("no answer")
				}
				want := ""
				if test.code == 0 && !test.undo {
					want = test.result
				}
				if reply.Code != test.code || reply.Error != test.text || string(reply.Result) != want {
					t.Errorf("got %d %q %q, want %d %q %q", reply.Code, reply.Error, reply.Result, test.code, test.text, want)
				}
				if reply.Partition != 3 || reply.Number != 17 || reply.Seq != 5 {
					t.Errorf("fence of the reply: %+v", reply)
				}
				if tries != test.tries {
					t.Errorf("%d tries, want %d", tries, test.tries)
				}
			})
		})
	}
}

func TestLongErrorIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) {
			return nil, errors.New("x" + strings.Repeat("é", core.ErrorBytesMax))
		}})
		reply, _ := runtime.Handle(t.Context(), core.InstantOf(time.Now()), command(time.Minute))
		if n := len(reply.Error); n != core.ErrorBytesMax-1 || !strings.HasSuffix(reply.Error, "é") {
			t.Errorf("error text has %d bytes, want %d and whole letters", n, core.ErrorBytesMax-1)
		}
	})
}

// A panic is answered at once as failed for good, by its first line, logged with its stack, and not repeated.
//
// covers: E17, I17, W7
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ledger := range []agents.Ledger{nil, agents.NewMemoryLedger(bubbleTime{}.Now, 0, 0)} {
			log, text := quiet()
			calls := 0
			boom := func(context.Context, *core.Command) ([]byte, error) {
				calls++
				panic("no such card\nin the second line")
			}
			runtime := newRuntime(t, agents.Config{Log: log, Ledger: ledger}, agents.Handlers{Do: boom, Undo: boom})
			for _, undo := range []bool{false, true} {
				cmd := command(time.Minute)
				cmd.Undo = undo
				reply, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd)
				if !answered || reply.Code != 512 || reply.Error != "panic: no such card" {
					t.Errorf("got %+v, %v", reply, answered)
				}
			}
			if calls != 2 {
				t.Errorf("%d calls, want 2", calls)
			}
			if got := text.String(); strings.Count(got, "runtime_test.go") < 2 || strings.Count(got, "handler panicked") != 2 {
				t.Errorf("log: %s", got)
			}
		}
	})
}

// Invariant 6: after complete-by an agent is silent, whatever the handler says.
//
// covers: S9, inv6
func TestSilence(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler agents.Handler
	}{
		{"a result too late", func(context.Context, *core.Command) ([]byte, error) { pass(3 * time.Second); return nil, nil }},
		{"a result just too late", func(context.Context, *core.Command) ([]byte, error) { pass(2 * time.Second); return nil, nil }},
		{"an error too late", func(context.Context, *core.Command) ([]byte, error) {
			pass(3 * time.Second)
			return nil, errors.New("bank is down")
		}},
		{"a refusal too late", func(context.Context, *core.Command) ([]byte, error) {
			pass(3 * time.Second)
			return nil, agents.Refuse(422, nil)
		}},
		{"a panic too late", func(context.Context, *core.Command) ([]byte, error) { pass(3 * time.Second); panic("late") }},
		{"the context's own error", func(ctx context.Context, _ *core.Command) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }},
		{"a result made when the context ended", func(ctx context.Context, _ *core.Command) ([]byte, error) { <-ctx.Done(); return []byte("1"), nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: test.handler, Undo: test.handler})
				for _, undo := range []bool{false, true} {
					cmd := command(2 * time.Second)
					cmd.Undo = undo
					if reply, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd); answered {
						t.Errorf("undo %v: answered %+v", undo, reply)
					}
				}
			})
		})
	}
}

// covers: S9, inv6
func TestCompleteByIsTheEarlier(t *testing.T) {
	now := core.InstantOf(time.Now())
	for _, test := range []struct {
		name       string
		completeBy core.Instant
		left       time.Duration
		want       time.Duration // 0: silent at once
	}{
		{"the left is shorter: our clock is behind", now.Add(time.Hour), time.Second, time.Second},
		{"complete-by is earlier: the command was under way", now.Add(time.Second), time.Hour, time.Second},
		{"no complete-by", 0, time.Second, time.Second},
		{"no time left", now.Add(time.Hour), 0, 0},
		{"complete-by has passed", now.Add(-time.Second), time.Hour, 0},
		{"it waited in the queue", now.Add(time.Hour), -time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := core.InstantOf(time.Now())
				called := false
				runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: func(ctx context.Context, _ *core.Command) ([]byte, error) {
					called = true
					deadline, ok := ctx.Deadline()
					if got := core.InstantOf(deadline).Sub(start); !ok || got != test.want {
						t.Errorf("the context ends after %v, want %v", got, test.want)
					}
					return nil, nil
				}})
				cmd := command(0)
				cmd.Left = test.left
				if cmd.CompleteBy = 0; test.completeBy != 0 {
					cmd.CompleteBy = start.Add(test.completeBy.Sub(now))
				}
				_, answered := runtime.Handle(t.Context(), start, cmd)
				if want := test.want > 0; called != want || answered != want {
					t.Errorf("called %v, answered %v, want %v", called, answered, want)
				}
			})
		})
	}
}

// Retries stay inside complete-by: the failure is sent while there is time.
//
// covers: S8, S43, inv6
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		runtime := newRuntime(t, agents.Config{TriesMax: 10, Backoff: 100 * time.Millisecond, BackoffCap: 300 * time.Millisecond},
			agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) {
				at = append(at, time.Since(start))
				return nil, errors.New("bank is down")
			}})
		reply, answered := runtime.Handle(t.Context(), core.InstantOf(start), command(time.Second))
		if !answered || reply.Code != 500 {
			t.Errorf("got %+v, %v", reply, answered)
		}
		// 0, +100, +200, +300, +300: the next would begin at 1200 ms.
		if got, want := fmt.Sprint(at), "[0s 100ms 300ms 600ms 900ms]"; got != want {
			t.Errorf("tries at %s, want %s", got, want)
		}
		if took := time.Since(start); took != 900*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	})
}

// covers: E11, S8, S43
func TestRetrySucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: func(_ context.Context, cmd *core.Command) ([]byte, error) {
			if tries++; tries < 3 {
				return nil, errors.New("bank is down")
			}
			return []byte(cmd.Key()), agents.Refuse(410, nil)
		}})
		reply, _ := runtime.Handle(t.Context(), core.InstantOf(time.Now()), command(time.Minute))
		if reply.Code != 410 || tries != 3 {
			t.Errorf("got %+v after %d tries", reply, tries)
		}
	})
}

// TestRefusalAfterAnUnclearTry: "refused" says that there is no effect, and of a
// step that can have one a failed try before says nothing of the kind.
func TestRefusalAfterAnUnclearTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		runtime := newRuntime(t, agents.Config{}, agents.Handlers{Undo: nothing, Do: func(context.Context, *core.Command) ([]byte, error) {
			if tries++; tries == 1 {
				return nil, errors.New("bank is down")
			}
			return nil, agents.Refuse(422, errors.New("account is closed"))
		}})
		reply, _ := runtime.Handle(t.Context(), core.InstantOf(time.Now()), command(time.Minute))
		if core.FinalCode(reply.Code) || reply.Code != 500 || tries != 2 {
			t.Errorf("got %+v after %d tries, want the failure of the first", reply, tries)
		}
	})
}

// TestAtWorkAfterAnUnclearTry: that another try is at work is no answer to what became of the try before, of a do or an undo.
//
// covers: W11
func TestAtWorkAfterAnUnclearTry(t *testing.T) {
	for _, undo := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			work := func(context.Context, *core.Command) ([]byte, error) {
				if tries++; tries == 1 {
					return nil, errors.New("bank is down")
				}
				return nil, agents.ErrInProgress
			}
			runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: work, Undo: work})
			cmd := command(time.Minute)
			cmd.Undo = undo
			if reply, _ := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd); reply.Code != 500 || reply.Error != "bank is down" || tries != 3 {
				t.Errorf("undo %v: got %+v after %d tries, want the failure of the first after 3", undo, reply, tries)
			}
		})
	}
}

func TestUnknownStepIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: nothing})
		for name, change := range map[string]func(*core.Command){
			"another step":    func(c *core.Command) { c.Step = "refund" },
			"another agent":   func(c *core.Command) { c.Agent = "bank" },
			"undo of a check": func(c *core.Command) { c.Undo = true },
		} {
			cmd := command(time.Minute)
			change(cmd)
			reply, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd)
			if !answered || reply.Code != 501 || core.FinalCode(reply.Code) {
				t.Errorf("%s: got %+v, %v", name, reply, answered)
			}
		}
	})
}

// covers: S7
func TestRegister(t *testing.T) {
	for _, test := range []struct {
		agent, step string
		handlers    agents.Handlers
		want        string // part of the error; empty: none
	}{
		{"payment", "refund", agents.Handlers{Do: nothing}, ""},
		{"pay.card", "charge", agents.Handlers{Do: nothing}, ""},
		{"payment", "charge", agents.Handlers{Do: nothing}, "step charge of agent payment: served already"},
		{"pay ment", "charge", agents.Handlers{Do: nothing}, "serve step charge"},
		{"payment", "", agents.Handlers{Do: nothing}, "serve on agent payment"},
		{"payment", "refund", agents.Handlers{}, "no do handler"},
	} {
		runtime := newRuntime(t, agents.Config{}, agents.Handlers{Do: nothing})
		err := runtime.Register(test.agent, test.step, test.handlers)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s/%s: got %v, want %q", test.agent, test.step, err, test.want)
		}
	}
}

// Through the runtime, too, a key is done once and undone once, and an undo
// learns the result of a do whose answer came too late for the scheduler.
//
// covers: S39
func TestLedgerInTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		runtime := newRuntime(t, agents.Config{Ledger: agents.NewMemoryLedger(bubbleTime{}.Now, 0, 0)}, agents.Handlers{
			Do: func(context.Context, *core.Command) ([]byte, error) {
				calls = append(calls, "do")
				pass(3 * time.Second)
				return []byte(`"receipt"`), nil
			},
			Undo: func(_ context.Context, cmd *core.Command) ([]byte, error) {
				calls = append(calls, "undo "+string(cmd.Result))
				return nil, nil
			},
		})
		play := func(undo bool) string {
			cmd := command(2 * time.Second)
			cmd.Undo = undo
			reply, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd)
			if !answered {
				return "silence"
			}
			return fmt.Sprint(reply.Code, " ", string(reply.Result))
		}
		var got []string
		for _, undo := range []bool{false, false, true, true, false} {
			got = append(got, play(undo))
		}
		if got, want := strings.Join(got, ", "), `silence, 0 "receipt", 0 , 0 , 410 `; got != want {
			t.Errorf("replies: %s, want %s", got, want)
		}
		if got, want := strings.Join(calls, ", "), `do, undo "receipt"`; got != want {
			t.Errorf("calls: %s, want %s", got, want)
		}
	})
}

// A check leaves nothing behind, so the ledger does not keep it: a later answer
// may differ.
func TestCheckPassesTheLedgerBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := agents.NewMemoryLedger(bubbleTime{}.Now, 0, 0)
		calls := 0
		runtime := newRuntime(t, agents.Config{Ledger: ledger}, agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) {
			calls++
			return nil, nil
		}})
		for range 2 {
			runtime.Handle(t.Context(), core.InstantOf(time.Now()), command(time.Minute))
		}
		if calls != 2 || ledger.Len() != 0 {
			t.Errorf("%d calls, %d keys", calls, ledger.Len())
		}
	})
}
