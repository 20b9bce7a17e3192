package duly_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// orders are so many submissions of the shop's plan.
func orders(n int) iter.Seq[duly.Submission] {
	return func(yield func(duly.Submission) bool) {
		for i := range n {
			if !yield(Buy.Submission(fmt.Sprintf("all-%d", i), Order{Cents: i})) {
				return
			}
		}
	}
}

// buying is a rig that has the shop's plan, and whose agent works.
func buying(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.work(t, &shop{})
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSubmitAll: each submission has one result, under its index; what is refused keeps none of the others out, and what
// may be taken later is tried again.
func TestSubmitAll(t *testing.T) {
	r := buying(t)
	const n = 300
	var mu sync.Mutex
	tries := map[string]int{}
	r.refuse = func(s *natsbus.SubmitRequest) *wire.RefusedError {
		mu.Lock()
		defer mu.Unlock()
		tries[s.ID]++
		switch {
		case strings.HasSuffix(s.ID, "7"):
			return &wire.RefusedError{APIError: wire.APIError{Code: 422, Description: "it ends in 7"}}
		case strings.HasSuffix(s.ID, "3") && tries[s.ID] == 1:
			return &wire.RefusedError{APIError: wire.APIError{Code: 429, Description: "full"}}
		}
		return nil
	}
	seen := map[int]bool{}
	refused := 0
	for done, err := range r.SubmitAll(t.Context(), orders(n), duly.InFlight(32)) {
		if seen[done.Index] {
			t.Errorf("index %d is told twice", done.Index)
		}
		seen[done.Index] = true
		if id := fmt.Sprintf("all-%d", done.Index); done.Submission.Task != id {
			t.Errorf("index %d is %s", done.Index, done.Submission.Task)
		}
		switch seven := done.Index%10 == 7; {
		case seven && errors.Is(err, duly.ErrRefused):
			refused++
		case seven || err != nil:
			t.Errorf("index %d: %v", done.Index, err)
		case done.Receipt.Task != done.Submission.Task || done.Receipt.Seq == 0:
			t.Errorf("index %d: %+v", done.Index, done.Receipt)
		}
	}
	if len(seen) != n || refused != n/10 {
		t.Errorf("%d told, %d refused", len(seen), refused)
	}
	mu.Lock()
	defer mu.Unlock()
	if tries["all-3"] != 2 || tries["all-4"] != 1 || tries["all-7"] != 1 {
		t.Errorf("tries %d, %d, %d", tries["all-3"], tries["all-4"], tries["all-7"])
	}
}

// TestSubmitAllIsBounded: no more are in flight, results included, than was said.
func TestSubmitAllIsBounded(t *testing.T) {
	r := buying(t)
	var given atomic.Int64
	all := func(yield func(duly.Submission) bool) {
		for s := range orders(100) {
			given.Add(1)
			if !yield(s) {
				return
			}
		}
	}
	told := int64(0)
	for _, err := range r.SubmitAll(t.Context(), all, duly.InFlight(4)) {
		told++
		// The one that is told made room for one, and one more waits for room.
		if n := given.Load(); n > told+5 {
			t.Fatalf("%d were taken from the sequence when %d are told", n, told)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if told != 100 {
		t.Errorf("%d told", told)
	}
	for _, most := range []int{0, -1, 10_001} {
		for done, err := range r.SubmitAll(t.Context(), orders(1), duly.InFlight(most)) {
			if err == nil || done.Index != -1 || !strings.Contains(err.Error(), fmt.Sprintf("InFlight(%d), want 1 to 10000", most)) {
				t.Errorf("%d: %v", most, err)
			}
		}
	}
}

// TestSubmitAllLeftEarly: a loop that is left ends the sequence and what is in flight; the package's leak check sees that
// no goroutine is left.
func TestSubmitAllLeftEarly(t *testing.T) {
	r := buying(t)
	r.refuse = func(s *natsbus.SubmitRequest) *wire.RefusedError {
		if s.ID != "all-0" {
			return &wire.RefusedError{APIError: wire.APIError{Code: 503, Description: "not yet"}} // it is tried again until the loop is left
		}
		return nil
	}
	ended := false
	all := func(yield func(duly.Submission) bool) {
		defer func() { ended = true }()
		orders(1_000_000)(yield)
	}
	for done, err := range r.SubmitAll(t.Context(), all) {
		if err != nil || done.Index != 0 {
			t.Errorf("%d %v", done.Index, err)
		}
		break
	}
	if !ended {
		t.Error("the sequence goes on after the loop")
	}
}

// TestSubmitAllEndsWithContext: what is in flight and the first that was not begun are told with ErrTimeout.
func TestSubmitAllEndsWithContext(t *testing.T) {
	r := buying(t)
	r.refuse = func(s *natsbus.SubmitRequest) *wire.RefusedError {
		if s.ID == "all-1" {
			return &wire.RefusedError{APIError: wire.APIError{Code: 503, Description: "not yet"}}
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	last, began := -1, map[int]error{}
	for done, err := range r.SubmitAll(ctx, orders(1_000_000), duly.InFlight(2)) {
		if done.Index == 20 {
			cancel()
		}
		began[done.Index], last = err, done.Index
	}
	if err := began[1]; !errors.Is(err, duly.ErrTimeout) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("in flight: %v", err)
	}
	if err := began[last]; !errors.Is(err, duly.ErrTimeout) || !strings.Contains(err.Error(), "were not begun") || last < 21 {
		t.Errorf("the last, %d: %v", last, err)
	}
	for i := range last {
		if _, told := began[i]; !told {
			t.Errorf("%d is not told, and %d is", i, last)
		}
	}
}

// TestSubmissionThatCannotBe: what is wrong with one is its result.
func TestSubmissionThatCannotBe(t *testing.T) {
	r := buying(t)
	bad := []duly.Submission{
		Buy.Submission("a b", Order{}), {Type: "order", Task: "raw", Input: []byte("{")}, {Type: "no type", Task: "x", Input: []byte("1")}, {Type: "nosuch", Task: "x", Input: []byte("1")},
		Buy.Submission("late", Order{}, duly.Within(-time.Second)), duly.NewPlan[Order]("empty", 1).Submission("x", Order{}),
	}
	n := 0
	for done, err := range r.SubmitAll(t.Context(), func(yield func(duly.Submission) bool) {
		for _, s := range bad {
			if !yield(s) {
				return
			}
		}
	}) {
		n++
		if !errors.Is(err, duly.ErrRefused) {
			t.Errorf("%d: %v", done.Index, err)
		}
	}
	if n != len(bad) {
		t.Errorf("%d told", n)
	}
}
