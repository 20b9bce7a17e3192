package dulytest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// record keeps what RunTwice reports.
type record struct{ lines []string }

func (*record) Helper() {}

func (r *record) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

type (
	pay  = func(context.Context, duly.Call[Order]) (Receipt, error)
	back = func(context.Context, duly.Undo[Order, Receipt]) error
)

// played gives what RunTwice reports of two handlers.
func played(t *testing.T, do pay, undo back, options ...dulytest.Option) string {
	t.Helper()
	agent, err := duly.NewAgent(nil, duly.WithLedger(duly.NewMemoryLedger(0, 0)), duly.Retries(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := Charge.Serve(agent, do, undo); err != nil {
		t.Fatal(err)
	}
	var r record
	dulytest.RunTwice(&r, agent, Charge, Order{Cents: 1}, options...)
	return strings.Join(r.lines, "\n")
}

func paid(context.Context, duly.Call[Order]) (Receipt, error) { return Receipt{Payment: "p"}, nil }

func refunded(context.Context, duly.Undo[Order, Receipt]) error { return nil }

// covers: S40, inv7
func TestGoodHandlersPass(t *testing.T) {
	if got := played(t, paid, refunded); got != "" {
		t.Errorf("reported: %s", got)
	}
}

func TestUndoThatNeedsItsResultIsFound(t *testing.T) {
	got := played(t, paid, func(_ context.Context, undo duly.Undo[Order, Receipt]) error {
		if !undo.Known {
			return errors.New("which payment?")
		}
		return nil
	})
	// The ledger remembers the answer that was lost, but not one never given.
	if want := "step charge, the undo first: undo before do: failed with code 500: which payment?"; !strings.HasPrefix(got, want) {
		t.Errorf("reported: %s", got)
	}
	if strings.Contains(got, "the answer lost") {
		t.Errorf("reported: %s", got)
	}
}

// A task that was undone and is resubmitted has other keys: a handler that goes by its id has no effect for them.
func TestHandlerThatForgetsTheRoundIsFound(t *testing.T) {
	made, effects := map[string]bool{}, map[string]int{}
	do := func(_ context.Context, call duly.Call[Order]) (Receipt, error) {
		if !made[call.Task] {
			made[call.Task] = true
			effects[call.Key]++
		}
		return Receipt{Payment: call.Task}, nil
	}
	undo := func(_ context.Context, undo duly.Undo[Order, Receipt]) error {
		effects[undo.Key] = 0
		return nil
	}
	got := played(t, do, undo, dulytest.Effects(func(key string) int { return effects[key] }))
	if want := "step charge, the next round: do of the next round: 0 effects stand, want 1"; got != want {
		t.Errorf("reported: %s", got)
	}
}

func TestSlowHandlerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := played(t, func(ctx context.Context, _ duly.Call[Order]) (Receipt, error) {
			<-ctx.Done()
			return Receipt{}, ctx.Err()
		}, refunded, dulytest.CallTime(time.Second))
		if want := "step charge, all is well: do: no answer within 1s"; !strings.HasPrefix(got, want) {
			t.Errorf("reported: %s", got)
		}
	})
}

func TestEarlierResultsAreThere(t *testing.T) {
	credit := duly.NewCheck[Order, int]("credit", "credit.check")
	do := func(_ context.Context, call duly.Call[Order]) (Receipt, error) {
		score, err := credit.Result(call)
		return Receipt{Payment: fmt.Sprint(score)}, err
	}
	undo := func(_ context.Context, undo duly.Undo[Order, Receipt]) error {
		if score, err := credit.Result(undo); err != nil || score != 7 {
			return fmt.Errorf("score %d: %w", score, err)
		}
		return nil
	}
	if got := played(t, do, undo, dulytest.Earlier(credit, 7)); got != "" {
		t.Errorf("reported: %s", got)
	}
	if got := played(t, do, undo); !strings.Contains(got, "no result of step credit here") {
		t.Errorf("reported: %s", got)
	}
}

func TestWhatIsNotJSONIsFound(t *testing.T) {
	got := played(t, paid, refunded, dulytest.Earlier(Charge, func() {}))
	if !strings.HasPrefix(got, "step charge: result of step charge: json:") {
		t.Errorf("reported: %s", got)
	}
}
