package shop

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestLedger: what was done is told once, page by page, until it is undone; a warehouse that forgets needs a second undo;
// what is older than anyone compares is forgotten.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		note := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		for i := range 25 {
			note(l.do(fmt.Sprintf("o-%d/reserve/0", i), time.Now()))
			note(l.do(fmt.Sprintf("o-%d/reserve/0", i), time.Now()))
			<-time.After(time.Second)
		}
		note(l.undo("o-3/reserve/0", false))
		note(l.undo("o-4/reserve/0", true))
		note(l.undo("none/reserve/0", false))
		count := func(since time.Time) int {
			t.Helper()
			n := 0
			for after := ""; ; {
				page, next, err := l.Since(t.Context(), since, after, 10)
				if err != nil || len(page) > 10 {
					t.Fatalf("%d effects, %v", len(page), err)
				}
				n += len(page)
				if after = next; next == "" {
					return n
				}
			}
		}
		if all, late := count(began), count(began.Add(20*time.Second)); all != 24 || late != 5 {
			t.Errorf("%d effects, %d of the last seconds, want 24 and 5", all, late)
		}
		note(l.undo("o-4/reserve/0", true))
		if found, err := l.Find(t.Context(), []string{"o-4/reserve/0", "o-5/reserve/0", "o-3/reserve/0"}); err != nil || len(found) != 1 || found[0].Key != "o-5/reserve/0" {
			t.Errorf("%+v, %v", found, err)
		}
		<-time.After(keptFor)
		note(l.do("new/reserve/0", time.Now()))
		if n := count(time.Time{}); n != 1 || len(l.places) != 1 {
			t.Errorf("%d effects after %v, %d in memory", n, keptFor, len(l.places))
		}
		if _, _, err := l.Since(t.Context(), began, "nonsense", 10); err == nil {
			t.Error("a page after nonsense")
		}
	})
}

// TestBooksOutliveTheProcess: after a restart the services have the effects that they had, one for each key, and take back
// what was done before it.
//
// covers: O7
func TestBooksOutliveTheProcess(t *testing.T) {
	dir, keys := t.TempDir(), []string{"o-1/reserve/0", "o-2/reserve/0", "o-3/reserve/0"}
	for round, want := range []int{2, 1, 0} {
		s := New()
		if err := s.Keep(dir); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			for _, key := range append(keys, keys[1]) {
				if err := s.stock.do(key, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
		} else if err := s.stock.do(keys[2], time.Now()); round == 1 && err != nil {
			t.Fatal(err)
		}
		if err := s.stock.undo(keys[round], false); err != nil {
			t.Fatal(err)
		}
		if found, err := s.stock.Find(t.Context(), keys); err != nil || len(found) != want {
			t.Errorf("round %d: %+v, %v; want %d", round, found, err, want)
		}
		since, _, err := s.stock.Since(t.Context(), time.Now().Add(-time.Hour), "", 10)
		if err != nil || len(since) != want {
			t.Errorf("round %d: %+v, %v; want %d", round, since, err, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
