package mock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly"
)

// A service makes one effect a key, and none for a key that was undone.
func TestServiceGoesByTheKey(t *testing.T) {
	s := NewService("bank", Faults{}, 1)
	for range 2 {
		if err := s.Do(t.Context(), "a/pay/0"); err != nil || s.Stands("a/pay/0") != 1 {
			t.Errorf("%d effects: %v", s.Stands("a/pay/0"), err)
		}
	}
	for range 2 {
		if err := s.Undo(t.Context(), "a/pay/0"); err != nil || s.Stands("a/pay/0") != 0 {
			t.Errorf("%d effects: %v", s.Stands("a/pay/0"), err)
		}
	}
	if err := s.Undo(t.Context(), "b/pay/0"); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"a/pay/0", "b/pay/0"} {
		if err := s.Do(t.Context(), key); !errors.Is(err, duly.ErrGone) || s.All() != 0 {
			t.Errorf("a do after its undo: %v", err)
		}
	}
}

// In a storm every fault comes up, about as often as it was asked for.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, err := FaultsNamed("storm")
		if err != nil {
			t.Fatal(err)
		}
		s := NewService("bank", faults, 7)
		counts := map[string]int{}
		const keys = 4000
		for i := range keys {
			key := strconv.Itoa(i) + "/pay/0"
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			switch err := s.Do(ctx, key); {
			case err == nil:
				counts["done"]++
			case errors.Is(err, context.DeadlineExceeded) && s.Stands(key) == 1:
				counts["late"]++
			case errors.Is(err, context.DeadlineExceeded):
				counts["hung"]++
			case strings.Contains(err.Error(), "refuses"):
				counts["refused"]++
			case s.Stands(key) == 1:
				counts["lost"]++
			default:
				counts["down"]++
			}
			cancel()
		}
		for what, share := range map[string]float64{"refused": faults.Refused, "lost": faults.Lost, "down": faults.Transient, "hung": faults.Hung} {
			if got := float64(counts[what]) / keys; got < share/2 || got > share*3/2 {
				t.Errorf("%s %.3f of all, want about %.3f: %v", what, got, share, counts)
			}
		}
		for i := range keys {
			for undone := false; !undone; {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				undone = s.Undo(ctx, strconv.Itoa(i)+"/pay/0") == nil
				cancel()
			}
		}
		if s.All() != 0 {
			t.Errorf("%d effects stand", s.All())
		}
	})
}

// The books are held against what Duly says of each step.
func TestBooks(t *testing.T) {
	s := NewService("bank", Faults{}, 1)
	books := Books{"order/pay": s, "order/ship": s}
	if err := s.Do(t.Context(), "o-1/pay/0"); err != nil {
		t.Fatal(err)
	}
	task := duly.Task{ID: "o-1", Type: "order", Steps: []duly.TaskStep{{Name: "pay", Status: "done"}, {Name: "ship", Status: "undone"}, {Name: "mail", Status: "done"}}}
	if wrong, doubled := books.Wrong(&task); len(wrong)+doubled != 0 {
		t.Errorf("%v, %d doubled", wrong, doubled)
	}
	task.Steps[0].Status, task.Steps[1].Status = "undone", "done"
	if wrong, _ := books.Wrong(&task); len(wrong) != 2 {
		t.Errorf("%v, want two", wrong)
	}
	s.book["o-1/pay/0"].times = 2
	if _, doubled := books.Wrong(&task); doubled != 1 {
		t.Errorf("%d doubled, want 1", doubled)
	}
	for text := range map[string]bool{"": true, "Storm": true} {
		if _, err := FaultsNamed(text); err == nil {
			t.Errorf("faults %q", text)
		}
	}
}
