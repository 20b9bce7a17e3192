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
		began := time.Now()
		for i := range 25 {
			l.do(fmt.Sprintf("o-%d/reserve/0", i))
			l.do(fmt.Sprintf("o-%d/reserve/0", i))
			<-time.After(time.Second)
		}
		l.undo("o-3/reserve/0", false)
		l.undo("o-4/reserve/0", true)
		l.undo("none/reserve/0", false)
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
		l.undo("o-4/reserve/0", true)
		if found, err := l.Find(t.Context(), []string{"o-4/reserve/0", "o-5/reserve/0", "o-3/reserve/0"}); err != nil || len(found) != 1 || found[0].Key != "o-5/reserve/0" {
			t.Errorf("%+v, %v", found, err)
		}
		<-time.After(keptFor)
		l.do("new/reserve/0")
		if n := count(time.Time{}); n != 1 || len(l.places) != 1 {
			t.Errorf("%d effects after %v, %d in memory", n, keptFor, len(l.places))
		}
		if _, _, err := l.Since(t.Context(), began, "nonsense", 10); err == nil {
			t.Error("a page after nonsense")
		}
	})
}
