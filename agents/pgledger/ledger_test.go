package pgledger_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/agents"
	"duly.dev/duly/agents/ledgertest"
	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
)

// Every way to have the ledger keeps the contract of ledgers.
//
// covers: S40, D6, inv7
func TestContract(t *testing.T) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			ledgertest.Run(t, s.open(t))
		})
	}
}

// named gives the keys of one world a beginning of their own.
type named struct {
	agents.Ledger
	name string
}

func (n named) Do(ctx context.Context, key string, work func(context.Context) ([]byte, error)) ([]byte, error) {
	return n.Ledger.Do(ctx, n.name+key, work)
}

func (n named) Undo(ctx context.Context, key string, work func(context.Context, []byte, bool) error) error {
	return n.Ledger.Undo(ctx, n.name+key, work)
}

// The simulator's agents crash, hang, answer late and refuse; with this ledger, too, its books agree with what every task
// ended as.
//
// covers: S40, inv7
func TestSimulated(t *testing.T) {
	url, pool := database(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 100 // the simulator has one thread: a call that waited for a connection would wait for ever
	many, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(many.Close)
	ledger := withPgx(t, many, pgledger.Options{})
	for seed := range uint64(24) {
		cfg := sim.Draw(seed)
		cfg.Graph = seed%3 == 0
		cfg.Ledger = named{ledger, string(rune('a'+seed)) + ":"}
		if err := sim.New(cfg).Run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	var keys, tombs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state = 'undone') FROM duly_ledger`).Scan(&keys, &tombs); err != nil || keys < 100 || tombs < 10 {
		t.Errorf("%d keys, %d of them undone, %v: the simulator hardly used it", keys, tombs, err)
	}
}

// What work wrote before it failed is gone with its transaction, and its key is as it was.
func TestEffectAndRowAreOne(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	s := pgxService(pool, ledger)
	failure := errors.New("after the effect")
	for _, fails := range []bool{true, false} {
		_, err := ledger.Do(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			if err := s.Do(ctx, "k"); err != nil || !fails {
				return nil, err
			}
			return nil, failure
		})
		if fails != errors.Is(err, failure) {
			t.Error(err)
		}
	}
	for _, fails := range []bool{true, false} {
		err := ledger.Undo(t.Context(), "k", func(ctx context.Context, _ []byte, known bool) error {
			if !known {
				t.Error("the do is not known")
			}
			if err := s.Undo(ctx, "k"); err != nil || !fails {
				return err
			}
			return failure
		})
		if fails != errors.Is(err, failure) {
			t.Error(err)
		}
	}
	if e := entries(t, pool)["k"]; e.done != 1 || e.undone != 1 {
		t.Errorf("%+v, want one effect, and that it is taken back once", e)
	}
}

// Work that goes on after one of its statements has failed does not commit, and leaves no key.
func TestFailedStatementIsNoResult(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	_, err := pgledger.Do(t.Context(), ledger, "k", func(ctx context.Context, tx pgx.Tx) (int, error) {
		_, _ = tx.Exec(ctx, `INSERT INTO effects (key, n) VALUES ('k', 1)`)
		_, _ = tx.Exec(ctx, `SELECT 1 / 0`)
		return 1, nil
	})
	if err == nil || errors.Is(err, pgledger.ErrUnknown) {
		t.Errorf("error %v, want one that is not ErrUnknown", err)
	}
	if p, err := ledger.Probe(t.Context(), "k"); err != nil || p.Outcome != core.ProbeAbsent || len(entries(t, pool)) != 0 {
		t.Errorf("%+v %v, effects %v", p, err, entries(t, pool))
	}
}

// Work cannot end the ledger's transaction with pgx. With database/sql it can: the key is not done again then, and can be
// undone.
func TestTransactionIsTheLedgers(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	_, err := pgledger.Do(t.Context(), ledger, "k", func(ctx context.Context, tx pgx.Tx) (int, error) {
		if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
			t.Error("work has ended the transaction")
		}
		return 1, pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return nil }) // a savepoint
	})
	if err != nil {
		t.Error(err)
	}
	other := withSQL(t, pool, pgledger.Options{})
	dos := 0
	do := func() error {
		_, err := pgledger.Do(t.Context(), other, "sql", func(_ context.Context, tx *sql.Tx) (int, error) {
			dos++
			return 1, tx.Commit()
		})
		return err
	}
	for range 2 {
		if do() == nil || dos != 1 {
			t.Errorf("done %d times, or without an error", dos)
		}
	}
	if _, err := other.Probe(t.Context(), "sql"); err == nil {
		t.Error("a probe knows what became of it")
	}
	err = pgledger.Undo(t.Context(), other, "sql", func(_ context.Context, _ *sql.Tx, _ int, known bool) error {
		if known {
			t.Error("its result is known")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := do(); !errors.Is(err, agents.ErrGone) {
		t.Error(err)
	}
}

// Transactions that are not serializable with each other are run again, with their work.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{Isolation: sql.LevelSerializable})
	const calls = 2
	var works atomic.Int32
	var both, all sync.WaitGroup
	both.Add(calls)
	for i := range calls {
		key := string(rune('a' + i))
		all.Go(func() {
			_, err := pgledger.Do(t.Context(), ledger, key, func(ctx context.Context, tx pgx.Tx) (n int, err error) {
				if err := tx.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n); err != nil {
					return 0, err
				}
				if works.Add(1) <= calls { // both have looked before one writes
					both.Done()
					both.Wait()
				}
				_, err = tx.Exec(ctx, `INSERT INTO effects (key, n) VALUES ($1, $2)`, key, n+1)
				return n + 1, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var numbers string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(n::TEXT, ' ' ORDER BY n) FROM effects`).Scan(&numbers); err != nil || numbers != "1 2" {
		t.Errorf("numbers %s, %v, want 1 2", numbers, err)
	}
	if n := works.Load(); n <= calls {
		t.Errorf("%d works: none was run again", n)
	}
}

// A call whose key is at work elsewhere is answered at once, however long that takes.
func TestKeyAtWorkIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	begun, end := make(chan struct{}), make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		if _, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
			close(begun)
			<-end
			return nil, nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	nothing := func(context.Context) ([]byte, error) { return nil, nil }
	if _, err := ledger.Do(t.Context(), "k", nothing); !errors.Is(err, agents.ErrInProgress) {
		t.Errorf("do: %v", err)
	}
	if err := ledger.Undo(t.Context(), "k", func(context.Context, []byte, bool) error { return nil }); !errors.Is(err, agents.ErrInProgress) {
		t.Errorf("undo: %v", err)
	}
	if p, err := ledger.Probe(t.Context(), "k"); err != nil || p.Outcome != core.ProbeInProgress {
		t.Errorf("probe: %v %v", p, err)
	}
	close(end)
	holder.Wait()
}

// A holder that stands still is cut off by the server once its time is over, so that a host that has vanished holds no key.
func TestHolderThatStandsStill(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{Hold: time.Second})
	a := account{ledger: ledger}
	_, err := pgledger.Do(t.Context(), ledger, "k", func(ctx context.Context, tx pgx.Tx) (int, error) {
		if _, err := tx.Exec(ctx, `INSERT INTO effects (key, n) VALUES ('k', 1)`); err != nil {
			return 0, err
		}
		_, err := a.do(ctx, "k") // has to wait until this one is cut off
		return 0, err
	})
	if err == nil || errors.Is(err, agents.ErrGone) {
		t.Errorf("the one that stood still: %v", err)
	}
	if e := entries(t, pool)["k"]; e.done != 1 {
		t.Errorf("%+v, want one effect", e)
	}
}

// A transaction may stand still as long as its command has time, however short those without a deadline may.
func TestHolderWithTime(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{Hold: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	still := func(ctx context.Context, tx pgx.Tx) (ms int64, err error) {
		err = tx.QueryRow(ctx, `SELECT setting::INT8 FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`).Scan(&ms)
		if ms < 4*60_000 {
			t.Errorf("it may stand still for %d ms, and has five minutes", ms)
		}
		return ms, err
	}
	if _, err := pgledger.Do(ctx, ledger, "k", still); err != nil {
		t.Error(err)
	}
	if err := pgledger.Undo(ctx, ledger, "k", func(ctx context.Context, tx pgx.Tx, _ int64, _ bool) error {
		_, err := still(ctx, tx)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Forget takes what is older, of any state, and leaves what is younger and what is at work.
func TestForget(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	if _, err := ledger.Forget(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "want 1h0m0s or more") {
		t.Errorf("a minute: %v", err)
	}
	const old = 2500
	if _, err := pool.Exec(t.Context(), `INSERT INTO duly_ledger (key, state, touched)
		SELECT 'old-' || n, CASE n % 3 WHEN 0 THEN 'done' WHEN 1 THEN 'undoing' ELSE 'undone' END, now() - INTERVAL '2 hours'
		FROM generate_series(1, $1) n`, old); err != nil {
		t.Fatal(err)
	}
	a := account{ledger: ledger}
	if _, err := a.do(t.Context(), "young"); err != nil {
		t.Fatal(err)
	}
	err := ledger.Undo(t.Context(), "old-1", func(ctx context.Context, _ []byte, _ bool) error { // old, but at work
		n, err := ledger.Forget(ctx, time.Hour)
		if n != old-1 {
			t.Errorf("%d forgotten, want %d", n, old-1)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	var left string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(key || ' ' || state, ', ' ORDER BY key) FROM duly_ledger`).Scan(&left); err != nil || left != "old-1 undone, young done" {
		t.Errorf("left: %s, %v", left, err)
	}
}

// A tombstone is as old as the last word of its undo, however old its do: while it is kept no do of the key takes effect.
func TestForgetKeepsYoungTombstones(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger := withPgx(t, pool, pgledger.Options{})
	a := account{ledger: ledger}
	refused := errors.New("not now")
	for i, x := range []struct {
		was  string
		work error // of the undo
	}{{"done", nil}, {"done", refused}, {"undoing", nil}} {
		key := x.was + strings.Repeat("!", i)
		if _, err := pool.Exec(t.Context(), `INSERT INTO duly_ledger (key, state, touched) VALUES ($1, $2, now() - INTERVAL '2 hours')`, key, x.was); err != nil {
			t.Fatal(err)
		}
		if err := ledger.Undo(t.Context(), key, func(context.Context, []byte, bool) error { return x.work }); !errors.Is(err, x.work) {
			t.Fatalf("%s: undo: %v", key, err)
		}
		if n, err := ledger.Forget(t.Context(), time.Hour); n != 0 || err != nil {
			t.Errorf("%s: %d forgotten, %v", key, n, err)
		}
		if got, err := a.do(t.Context(), key); got != gone || err != nil {
			t.Errorf("%s: a do after the undo: %s, %v", key, got, err)
		}
	}
}

// What cannot be is refused with its limit, and leaves nothing behind.
func TestLimits(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	for _, o := range []pgledger.Options{
		{ResultMax: -1}, {ResultMax: pgledger.ResultMaxMost + 1}, {Hold: time.Millisecond}, {Hold: 25 * time.Hour}, {Isolation: sql.LevelSnapshot},
	} {
		if _, err := pgledger.New(pool, o); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ledger := withPgx(t, pool, pgledger.Options{ResultMax: 10})
	for _, key := range []string{"", strings.Repeat("k", pgledger.KeyMax+1), "\xff", "a\x00"} {
		_, err := ledger.Do(t.Context(), key, func(context.Context) ([]byte, error) { return nil, nil })
		if err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("key %.20q: %v", key, err)
		}
		if err := ledger.Undo(t.Context(), key, nil); err == nil {
			t.Errorf("undo of key %.20q", key)
		}
		if _, err := ledger.Probe(t.Context(), key); err == nil {
			t.Errorf("probe of key %.20q", key)
		}
	}
	_, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return make([]byte, 11), nil })
	if err == nil || !strings.Contains(err.Error(), "11 bytes, the limit is 10") {
		t.Errorf("result: %v", err)
	}
	if p, err := ledger.Probe(t.Context(), "k"); err != nil || p.Outcome != core.ProbeAbsent {
		t.Errorf("%+v %v", p, err)
	}
}

// A database without the table says how to make it; two may make it at a time.
func TestSetup(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	ledger, err := pgledger.New(pool, pgledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Do(t.Context(), "k", nil); !errors.Is(err, pgledger.ErrNoTable) {
		t.Errorf("do: %v", err)
	}
	if err := ledger.Undo(t.Context(), "k", nil); !errors.Is(err, pgledger.ErrNoTable) {
		t.Errorf("undo: %v", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := ledger.Setup(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	a := account{ledger: ledger}
	if id, err := a.do(t.Context(), "k"); err != nil || id != "1" {
		t.Errorf("%s %v", id, err)
	}
}

// A context that is not one of the ledger's has no transaction.
func TestNoTransaction(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	defer func() {
		if recover() == nil {
			t.Error("there was one")
		}
	}()
	withPgx(t, pool, pgledger.Options{}).Tx(t.Context())
}
