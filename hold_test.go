package duly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

// fullServer refuses while it is full, and tells each that it refuses a time of its own. Its answers take a millisecond.
type fullServer struct {
	began time.Time
	full  bool
	apart time.Duration // between two times
	slot  time.Duration // since it began

	mu    sync.Mutex
	asked []string
	at    []time.Duration
}

func (s *fullServer) ask(ctx context.Context, id string) error {
	s.mu.Lock()
	s.asked, s.at = append(s.asked, id), append(s.at, time.Since(s.began))
	s.mu.Unlock()
	if err := (wall{}).Sleep(ctx, time.Millisecond); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	if !s.full || now >= 10*time.Second {
		return nil
	}
	s.slot = max(s.slot, 10*time.Second) + s.apart
	return &SubmitError{Type: "order", Task: id, Code: 429, Description: "it would begin in about 40s", RetryAfter: s.slot - now}
}

// requests is how many were asked for.
func (s *fullServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// submit submits one, as Client.Submit does.
func (s *fullServer) submit(ctx context.Context, h *holds, key holdKey, id string) error {
	place := turn{holds: h, key: key, task: id}
	return place.persist(ctx, wall{}, operation{"submit", "task " + id}, func(ctx context.Context) error { return s.ask(ctx, id) })
}

var orders = holdKey{"order", core.ClassNormal}

// TestHeldBack: when some are refused and told when to come again, no other of the type is asked for before, and then they
// go one after the other in the order in which they came, the faster the more are taken.
func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := &fullServer{began: time.Now(), full: true, apart: 20 * time.Millisecond}, &holds{}
		var wg sync.WaitGroup
		submit := func(id string) {
			wg.Go(func() {
				if err := s.submit(t.Context(), h, orders, id); err != nil {
					t.Error(err)
				}
			})
		}
		const refused, held = 10, 500
		for i := range refused {
			submit(fmt.Sprint("refused-", i))
		}
		synctest.Wait()
		_ = wall{}.Sleep(t.Context(), time.Millisecond)
		synctest.Wait()
		var want []string
		for i := range held {
			want = append(want, fmt.Sprint("held-", i))
			submit(want[i])
			synctest.Wait()
		}
		_ = wall{}.Sleep(t.Context(), 9*time.Second)
		if n := s.requests(); n != refused {
			t.Errorf("%d were asked for before the time that was told, want the %d that were refused", n, refused)
		}
		wg.Wait()
		first := slices.Index(s.asked, "held-0")
		if n := len(s.asked); n != 2*refused+held || s.at[first] < s.slot {
			t.Fatalf("%d requests, want %d; the first that was held back at %v, want none before %v", n, 2*refused+held, s.at[first], s.slot)
		}
		var got []string
		var at []time.Duration
		for i, id := range s.asked {
			if strings.HasPrefix(id, "held-") {
				got, at = append(got, id), append(at, s.at[i])
			}
		}
		if !slices.Equal(got, want) {
			t.Error("they do not go in the order in which they came")
		}
		for i := range at[1:] {
			if at[i+1] == at[i] {
				t.Fatalf("%s and %s go at the same time, %v", got[i], got[i+1], at[i])
			}
		}
		if whole := at[held-1] - at[0]; whole > 500*time.Millisecond {
			t.Errorf("%d that are all taken go within %v", held, whole)
		}
		if err := s.submit(t.Context(), h, orders, "later"); err != nil || len(h.of) != 0 {
			t.Errorf("%v, and %d are held back when all is over", err, len(h.of))
		}
	})
}

// TestHeldBackByTypeAndClass: other types, and other classes, are not held back, and nothing is by a refusal without a time.
func TestHeldBackByTypeAndClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holds{}
		told := turn{holds: h, key: orders}
		told.heard(wall{}.Now(), &SubmitError{Code: 503, RetryAfter: time.Hour})
		told.heard(wall{}.Now(), &SubmitError{Code: 429})
		if len(h.of) != 0 || told.told {
			t.Error("a refusal that is no 429 with a time holds back")
		}
		told.heard(wall{}.Now(), &SubmitError{Code: 429, RetryAfter: time.Hour})
		start := time.Now()
		for _, key := range []holdKey{{"parcel", core.ClassNormal}, {"order", core.ClassHigh}, {"order", core.ClassLow}} {
			if _, gone := h.wait(t.Context(), wall{}, key); gone || time.Since(start) != 0 {
				t.Errorf("%v is held back for %v", key, time.Since(start))
			}
		}
		if err := told.wait(t.Context(), wall{}); err != nil || time.Since(start) != 0 {
			t.Errorf("one that was told a time waits behind others: %v, after %v", err, time.Since(start))
		}
		if _, gone := h.wait(t.Context(), wall{}, orders); gone || time.Since(start) != hintMax {
			t.Errorf("held back for %v, want %v", time.Since(start), hintMax)
		}
	})
}

// TestHeldBackCancelled: who does not wait any longer is gone at once, says why it waited, and lets those behind it go.
func TestHeldBackCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := &fullServer{began: time.Now(), full: true}, &holds{}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.submit(ctx, h, orders, "refused") })
		synctest.Wait()
		_ = wall{}.Sleep(t.Context(), time.Millisecond)
		synctest.Wait()
		ended := make(chan error, 100)
		for i := range 100 {
			wg.Go(func() { ended <- s.submit(ctx, h, orders, fmt.Sprint("held-", i)) })
			synctest.Wait()
		}
		wg.Go(func() {
			if err := s.submit(t.Context(), h, orders, "stays"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		_ = wall{}.Sleep(t.Context(), time.Second)
		cancel()
		synctest.Wait()
		if n := s.requests(); len(ended) != 100 || n != 1 {
			t.Errorf("%d of 100 have ended at once, and %d were asked for", len(ended), n)
		}
		err := <-ended
		if is, ok := errors.AsType[*SubmitError](err); !ok || is.Code != 429 || !strings.HasPrefix(is.Task, "held-") {
			t.Errorf("%v is no refusal of its own", err)
		}
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "held back, because another of its type was refused: it would begin in about 40s") {
			t.Error(err)
		}
		wg.Wait()
		if got := s.asked[len(s.asked)-1]; got != "stays" || s.at[len(s.at)-1] != 10*time.Second {
			t.Errorf("%s goes at %v, want the one that stayed, when the time has come", got, s.at[len(s.at)-1])
		}
	})
}

// TestHeldBackIsBounded: of so many types at most something is kept, and what is over makes room.
func TestHeldBackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holds{}
		for range 2 {
			for i := range 2 * holdsMax {
				place := turn{holds: h, key: holdKey{fmt.Sprint("type-", i), core.ClassNormal}}
				place.heard(wall{}.Now(), &SubmitError{Code: 429, RetryAfter: time.Second})
				if !place.told || len(h.of) > holdsMax {
					t.Fatalf("%d types are kept, want %d at most", len(h.of), holdsMax)
				}
			}
			_ = wall{}.Sleep(t.Context(), time.Second)
		}
	})
}
