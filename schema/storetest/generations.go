package storetest

import (
	"time"

	"duly.dev/duly/internal/core"
)

// testGenerations has a store that keeps its journal in generations go through one:
// what is not forgotten is there before, meanwhile and after. Hours pass by hand.
func testGenerations(r *rig) {
	if r.s.Dialect() != "postgres" || r.db == nil {
		return
	}
	st := r.takeOver(0) // its owner takes the steps
	purge := func() {
		r.Helper()
		get(r.s.Purge(r.ctx, 0, st.Epoch, start.Add(time.Hour), 0, 10))(r)
	}
	count := func(query string) (n int) {
		r.Helper()
		r.must(r.db.QueryRowContext(r.ctx, query).Scan(&n))
		return n
	}
	purge()
	if count(`SELECT count(*) FROM journal_generations WHERE opened_at IS NOT NULL`) == 0 {
		return // it keeps all in one
	}
	stays, goes := birth(1, 1, "stays"), birth(1, 2, "goes")
	r.write(stays, goes)
	r.own[1].Told = 1
	r.write(ended(goes.Task, core.StateProcessed, 1))
	r.purged(0, start.Add(time.Hour), 10, 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); count(`SELECT count(*) FROM journal WHERE number = 2`) > 0; <-tick.C {
		if time.Now().After(deadline) {
			r.Fatal("what is forgotten is never gone")
		}
		get(r.db.ExecContext(r.ctx, `UPDATE journal_generations SET opened_at = opened_at - INTERVAL '1 hour', sealed_at = sealed_at - INTERVAL '1 hour'`))(r)
		purge()
		r.comesBack(stays.Task, stays.Records)
		if got := r.load(1, 2); len(got.Journal) != 0 || got.Row.Input != nil {
			r.Errorf("what is forgotten is shown: %+v", got)
		}
	}
	r.comesBack(stays.Task, stays.Records)
}
