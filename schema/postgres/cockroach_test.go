package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// asBoth runs a test on each database that a store can be on; behind the proxy CockroachDB is a PostgreSQL.
func asBoth(t *testing.T, test func(t *testing.T, cockroach bool)) {
	for name, cockroach := range map[string]bool{"postgres": false, "cockroach": true} {
		t.Run(name, func(t *testing.T) { test(t, cockroach) })
	}
}

// rowIDs makes the function of CockroachDB that gives new rows their numbers.
func rowIDs(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec(`CREATE FUNCTION unique_rowid() RETURNS INT8 LANGUAGE SQL AS
		$$ SELECT (extract(EPOCH FROM clock_timestamp()) * 1000000)::INT8 * 1000 + floor(random() * 1000)::INT8 $$`); err != nil {
		t.Fatal(err)
	}
}

// No answer says that there is room where it is not known: of a CockroachDB it is said where to look.
//
// covers: K8
func TestRoomIsNotKnown(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		s := opened(t, through(t, proxy(t, faultsAs(cockroach)), pgtestdb.Migrated(t)), schema.Options{}).(*postgres.Store)
		err := s.ProbeRoom(t.Context())
		if errors.Is(err, schema.ErrNotProbed) != cockroach || cockroach && !strings.Contains(err.Error(), "capacity_available") {
			t.Errorf("%v", err)
		}
	})
}

// How often a commit that is prepared already waits for an answer: docs/decisions/051-cockroachdb.md says so, and why it is not
// less on CockroachDB.
//
// covers: K3
func TestRoundTripsOfACommit(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		var mu sync.Mutex
		var heard []string
		watch := func(_ int, texts []string, ran bool) bool {
			mu.Lock()
			defer mu.Unlock()
			if !ran {
				heard = append(heard, fmt.Sprintf("%.40q", texts))
			}
			return false
		}
		faults := faultsAs(cockroach)
		faults.Watch = watch
		s := opened(t, through(t, proxy(t, faults), pgtestdb.Migrated(t)), schema.Options{MaxConns: 1})
		if err := s.Partitions(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "node"})
		if err != nil {
			t.Fatal(err)
		}
		trips := func(id int64, writes ...core.TaskWrite) int {
			t.Helper()
			mu.Lock()
			heard = nil
			mu.Unlock()
			b := &core.Batch{ID: id, Partitions: []core.PartitionWrite{{Epoch: st.Epoch, After: id - 1, NextNumber: 9, NextEnd: 1}}, Writes: writes}
			if res, err := s.Commit(t.Context(), b); err != nil || len(res.Fenced) > 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%q", heard)
			return len(heard)
		}
		changed := func(number int64, seq int64) core.TaskWrite {
			w := plainBirth(0, number)
			task := *w.Task
			task.Seq = seq
			w.Task, w.Birth, w.Row = &task, false, true
			w.Records = slices.Clone(w.Records)
			w.Records[0].Seq, w.Records[0].Kind = seq, core.KindDone
			return w
		}
		trips(1, plainBirth(0, 1), plainBirth(0, 2))
		trips(2, changed(1, 2)) // now all is prepared
		births, changes := trips(3, plainBirth(0, 3)), trips(4, plainBirth(0, 4), changed(2, 2))
		want := [2]int{1, 1}
		if cockroach {
			want = [2]int{5, 6} // BEGIN, SAVEPOINT, fence with births and journal, [the changes], RELEASE, COMMIT
		}
		if got := [2]int{births, changes}; got != want {
			t.Errorf("%d round trips with births alone and with changes, want %d", got, want)
		}
	})
}

// A user who may only insert can write into an outbox: on CockroachDB nothing of it is a sequence, which wants a right of its own.
//
// covers: K4
func TestOutboxOfARightToInsert(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		p := proxy(t, faultsAs(cockroach))
		direct := pgtestdb.Migrated(t)
		db := dbOf(opened(t, direct, schema.Options{}))
		rowIDs(t, db)
		o := openOutbox(t, through(t, p, direct))
		if err := o.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(p.Texts(), "\n"); strings.Contains(said, "IDENTITY") == cockroach {
			t.Errorf("the table is made by\n%s", said)
		}
		if _, err := db.Exec(`DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN; GRANT INSERT ON duly_outbox TO writer`); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := db.Exec(`DROP OWNED BY writer; DROP ROLE writer`); err != nil {
				t.Error(err)
			}
		})
		written(t, userOf(t, strings.Replace(direct, "postgres://postgres@", "postgres://writer@", 1)), "o-1", "o-2")
		var taken []postgres.OutboxRow
		for len(taken) < 2 { // some are passed over
			if _, err := o.Take(t.Context(), 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); err != nil {
				t.Fatal(err)
			}
		}
		if taken[0].Number == taken[1].Number {
			t.Errorf("%+v", taken)
		}
	})
}

// Rows of an outbox that SKIP LOCKED skips although they are not locked are relayed a little later, each once, by relays that
// look at once.
//
// covers: K7
func TestOutboxRowsPassedOver(t *testing.T) {
	p := proxy(t, faultsAs(true))
	direct := pgtestdb.Migrated(t)
	rowIDs(t, dbOf(opened(t, direct, schema.Options{})))
	at := through(t, p, direct)
	relays := []*postgres.Outbox{openOutbox(t, at), openOutbox(t, at)}
	if err := relays[0].Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprintf("o-%02d", i))
	}
	written(t, userOf(t, direct), ids...)
	var taken [2][]postgres.OutboxRow
	if n, err := relays[0].Take(t.Context(), len(ids), all(postgres.OutboxVerdict{Stored: true}, &taken[0])); err != nil || n == len(ids) {
		t.Fatalf("%d taken, %v: no row was passed over, and this test is of no use", n, err)
	}
	var both sync.WaitGroup
	for i, o := range relays {
		both.Go(func() {
			for left := int64(1); left > 0; {
				_, err := o.Take(t.Context(), 5, all(postgres.OutboxVerdict{Stored: true}, &taken[i]))
				s, failed := o.Standing(t.Context())
				if err := errors.Join(err, failed); err != nil {
					t.Error(err)
					return
				}
				left = s.Waiting
			}
		})
	}
	both.Wait()
	got := tasksOf(slices.Concat(taken[0], taken[1]))
	if slices.Sort(got); !slices.Equal(got, ids) {
		t.Errorf("taken: %q", got)
	}
}

// Whichever database it is, its server ends a transaction in which nothing is said: a frozen owner, or relay, keeps no
// successor waiting for longer than that.
//
// covers: K1
func TestServerEndsIdleTransactions(t *testing.T) {
	asBoth(t, func(t *testing.T, cockroach bool) {
		p := proxy(t, faultsAs(cockroach))
		at := through(t, p, pgtestdb.Migrated(t))
		s := opened(t, at, schema.Options{}).(*postgres.Store)
		for name, db := range map[string]*sql.DB{"commits": s.DB(), "asks": s.AskDB()} {
			var ends string
			if err := db.QueryRow(`SHOW idle_in_transaction_session_timeout`).Scan(&ends); err != nil || ends != "1min" {
				t.Errorf("who %s is ended after %s, %v", name, ends, err)
			}
		}
		o := openOutbox(t, at)
		rowIDs(t, s.DB())
		if err := o.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		written(t, userOf(t, at), "o-1")
		for n := 0; n == 0; { // it is passed over
			var err error
			if n, err = o.Take(t.Context(), 1, func(context.Context, []postgres.OutboxRow) []postgres.OutboxVerdict { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if said := strings.Join(p.Texts(), "\n"); !strings.Contains(said, "SET LOCAL idle_in_transaction_session_timeout = 30000") {
			t.Error("a relay that stands still is not ended")
		}
	})
}
