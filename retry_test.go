package duly

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// sure is the wall clock without chance: every pause is the longest it may be.
type sure struct{ wall }

func (sure) Float64() float64 { return 1 }

func refusal(code int) error {
	return &SubmitError{Type: "order", Task: "t", Code: code, Description: "no"}
}

func TestWhatIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		err   error
		again bool
	}{
		{refusal(400), false},
		{refusal(404), false},
		{refusal(408), true},
		{refusal(409), false},
		{refusal(413), false},
		{refusal(425), true},
		{refusal(429), true},
		{refusal(500), true},
		{refusal(503), true},
		{nats.ErrNoResponders, true},
		{nats.ErrTimeout, true},
		{context.DeadlineExceeded, true},
		{nats.ErrReconnectBufExceeded, true},
		{nats.ErrConnectionClosed, false},
		{nats.ErrMaxPayload, false},
		{errAnswer, false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tries := 0
				err := persist(ctx, sure{}, operation{verb: "submit"}, func(context.Context) error { tries++; return test.err })
				if !errors.Is(err, test.err) {
					t.Errorf("%v does not wrap its cause", err)
				}
				if again := tries > 1; again != test.again || again != errors.Is(err, ErrTimeout) {
					t.Errorf("%d tries, %v", tries, err)
				}
				refused, ok := errors.AsType[*SubmitError](err)
				if ok && refused.Retryable() != test.again {
					t.Errorf("retryable is %v", refused.Retryable())
				}
				if ok && errors.Is(err, ErrRefused) == test.again {
					t.Errorf("%v is refused", err)
				}
			})
		})
	}
}

// TestRefusedAfterNoAnswer: who comes too late, after a try that was not answered, does not hear that nothing was begun.
func TestRefusedAfterNoAnswer(t *testing.T) {
	late := &SubmitError{Type: "order", Task: "t", Code: 400, Description: "complete-by has passed", late: true}
	for name, x := range map[string]struct {
		first, then error
		refused     bool
	}{
		"no answer":                          {nats.ErrTimeout, late, false},
		"the connection is lost":             {nats.ErrDisconnected, late, false},
		"an answer that leaves it open":      {&SubmitError{Type: "order", Task: "t", Code: 504, open: true}, late, false},
		"no one listens":                     {nats.ErrNoResponders, late, true},
		"an answer that it is not stored":    {refusal(503), late, true},
		"it would be refused whenever asked": {nats.ErrTimeout, refusal(404), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := persist(t.Context(), sure{}, operation{"submit", "task t"}, func(context.Context) error {
				if tries++; tries == 1 {
					return x.first
				}
				return x.then
			})
			if tries != 2 || errors.Is(err, ErrRefused) != x.refused || errors.Is(err, ErrTimeout) == x.refused || !x.refused && !errors.Is(err, x.first) {
				t.Errorf("%s: %d tries, %v", name, tries, err)
			}
		})
	}
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []string
		err := persist(t.Context(), sure{}, operation{verb: "submit"}, func(context.Context) error {
			if at = append(at, fmt.Sprint(time.Since(start).Milliseconds())); len(at) == 9 {
				return nil
			}
			return refusal(429)
		})
		if err != nil {
			t.Error(err)
		}
		// 50, 100, 200, 400, 800, 1600, 2000, 2000 ms.
		if got, want := strings.Join(at, " "), "0 50 150 350 750 1550 3150 5150 7150"; got != want {
			t.Errorf("tries at %s ms, want %s", got, want)
		}
	})
}

// The server's wish comes first, the jitter on top.
func TestRetryHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []string
		err := persist(t.Context(), sure{}, operation{verb: "submit"}, func(context.Context) error {
			at = append(at, fmt.Sprint(time.Since(start)))
			wish := []time.Duration{time.Second, time.Hour, -time.Second, 0}[len(at)-1]
			if wish == 0 {
				return nil
			}
			return &SubmitError{Code: 503, RetryAfter: wish}
		})
		if err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(at, " "), "0s 1.05s 5m1.15s 5m1.35s"; got != want {
			t.Errorf("tries at %s, want %s", got, want)
		}
	})
}

// A try that gets no answer does not use up the time of the next.
func TestOneTryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := persist(t.Context(), sure{}, operation{verb: "submit"}, func(ctx context.Context) error {
			if tries++; tries == 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil || tries != 2 {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}

func TestTimeoutSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := persist(ctx, sure{}, operation{"submit", "task t"}, func(context.Context) error { return nats.ErrNoResponders })
		for _, want := range []error{ErrTimeout, context.DeadlineExceeded, nats.ErrNoResponders} {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %v", err, want)
			}
		}
		if !strings.HasPrefix(err.Error(), "submit task t: no answer in time") {
			t.Errorf("error reads %q", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tries := 0
		err := persist(ctx, sure{}, operation{verb: "submit"}, func(ctx context.Context) error {
			if tries++; tries == 1 {
				return refusal(503)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if refused, ok := errors.AsType[*SubmitError](err); !ok || refused.Code != 503 || !errors.Is(err, ErrTimeout) {
			t.Errorf("a last try cut short hides why: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := persist(ctx, sure{}, operation{verb: "submit"}, func(context.Context) error { t.Error("tried"); return nil })
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The error of a plan names it once, whether the server does or not.
func TestRefusedPlanIsNamedOnce(t *testing.T) {
	for description, want := range map[string]string{
		"plan cannot work: plan order: 0 steps": "plan cannot work: plan order: 0 steps (400)",
		"plan order version 1: it is another":   "plan order version 1: it is another (400)",
		"plan orders: 0 steps":                  "plan order: plan orders: 0 steps (400)",
		"no more":                               "plan order: no more (400)",
	} {
		if got := (&SubmitError{Type: "order", Code: 400, Description: description}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
