package pgledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// Bounds of a [Ledger].
const (
	KeyMax        = 512              // bytes of a key
	ResultMaxMost = 64 << 20         // bytes: the most that Options.ResultMax may be
	HoldDefault   = time.Minute      // Options.Hold where none is said
	HoldMost      = 24 * time.Hour   // the most that it may be
	ForgetLeast   = time.Hour        // the least age at which keys are forgotten
	holdLeast     = time.Second      // of a transaction that may stand still
	retriesMax    = 20               // of one transaction, within its time
	retryFirst    = time.Millisecond // the most that is waited before the first of them; doubles
	retryCap      = 200 * time.Millisecond
	forgetRows    = 1000 // of one transaction that forgets
)

// Options change a [Ledger]. The zero value is right for most users of PostgreSQL.
type Options struct {
	Schema string // of the table; empty: the search_path says
	// Isolation is that of the transactions; zero: the database's own. A transaction that the database cannot put in order
	// with others (40001, 40P01) is run again, with its work, while there is time.
	Isolation sql.IsolationLevel
	ResultMax int // bytes of a result; 0: what a task can keep of one
	// Hold is how long a transaction may stand still, between two statements, before the server ends it. Where the context
	// has a deadline, that counts. 0: HoldDefault.
	Hold time.Duration
	// CockroachDB leaves the advisory lock out, which most versions of CockroachDB lack: a do whose key is at work elsewhere
	// waits for that one's end, as long as its context or the connection's lock_timeout allows.
	CockroachDB bool
}

// Ledger is a [duly.Ledger] in a table of PostgreSQL or CockroachDB. T is the transaction that work gets: a pgx.Tx or a
// *sql.Tx. It answers probes, too. It is safe for concurrent use.
type Ledger[T any] struct {
	db      database[T]
	options Options
	text    statements
	table   string
}

var (
	_ agents.ProbingLedger = (*Ledger[pgx.Tx])(nil)
	_ agents.ProbingLedger = (*Ledger[*sql.Tx])(nil)
)

// New makes a ledger whose transactions are pgx's. Errors: options that cannot be.
func New(pool *pgxpool.Pool, options Options) (*Ledger[pgx.Tx], error) {
	return open[pgx.Tx](pgxPool{pool}, options)
}

// NewSQL makes a ledger whose transactions are database/sql's, with pgx's driver or another that numbers parameters as
// PostgreSQL does. Errors: options that cannot be.
//
// Work must not commit or roll back its transaction; a pgx.Tx refuses that, a *sql.Tx cannot.
func NewSQL(db *sql.DB, options Options) (*Ledger[*sql.Tx], error) {
	return open[*sql.Tx](sqlDB{db}, options)
}

func open[T any](db database[T], o Options) (*Ledger[T], error) {
	o.ResultMax = cmp.Or(o.ResultMax, core.ResultBytesMax)
	o.Hold = cmp.Or(o.Hold, HoldDefault)
	if o.ResultMax < 1 || o.ResultMax > ResultMaxMost {
		return nil, fmt.Errorf("ledger: Options.ResultMax: %d bytes, want 1 to %d", o.ResultMax, ResultMaxMost)
	}
	if o.Hold < holdLeast || o.Hold > HoldMost {
		return nil, fmt.Errorf("ledger: Options.Hold: %v, want %v to %v", o.Hold, holdLeast, HoldMost)
	}
	if _, err := level(o.Isolation); err != nil {
		return nil, err
	}
	table := Table
	if o.Schema != "" {
		table = pgx.Identifier{o.Schema, Table}.Sanitize()
	}
	return &Ledger[T]{db: db, options: o, text: statementsOf(table, o.CockroachDB), table: table}, nil
}

// Do implements [duly.Ledger]: work finds its transaction with [Ledger.Tx].
//
// An error that is [ErrUnknown] says that the commit may have happened: the next Do of the key finds out.
func (l *Ledger[T]) Do(ctx context.Context, key string, work func(context.Context) ([]byte, error)) ([]byte, error) {
	return l.do(ctx, key, func(ctx context.Context, tx T) ([]byte, error) { return work(l.with(ctx, tx)) })
}

// Undo implements [duly.Ledger]: work finds its transaction with [Ledger.Tx]. known says whether a do committed.
//
// An error that is [ErrUnknown] says that the commit may have happened: the next Undo of the key finds out.
func (l *Ledger[T]) Undo(ctx context.Context, key string, work func(context.Context, []byte, bool) error) error {
	return l.undo(ctx, key, func(ctx context.Context, tx T, result []byte, known bool) error {
		return work(l.with(ctx, tx), result, known)
	})
}

// Do is [Ledger.Do] for a handler that calls it itself: work has the transaction, and what it gives is kept as JSON and is
// what a Do that comes again gets. Work may be called again when its transaction was rolled back. Errors of work are
// returned as they are, and leave nothing behind. A codec of the agent does not encode what is kept here.
func Do[T, Out any](ctx context.Context, l *Ledger[T], key string, work func(ctx context.Context, tx T) (Out, error)) (Out, error) {
	var out Out
	data, err := l.do(ctx, key, func(ctx context.Context, tx T) ([]byte, error) {
		out, err := work(ctx, tx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	})
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("ledger: result of key %s: %w", key, err)
	}
	return out, nil
}

// Undo is [Ledger.Undo] for a handler that calls it itself. result is what the do gave, if known; where it is not, no do of
// the key has committed here, and none will.
func Undo[T, Out any](ctx context.Context, l *Ledger[T], key string, work func(ctx context.Context, tx T, result Out, known bool) error) error {
	return l.undo(ctx, key, func(ctx context.Context, tx T, data []byte, known bool) error {
		var result Out
		if known && len(data) > 0 {
			if err := json.Unmarshal(data, &result); err != nil {
				return fmt.Errorf("ledger: result of key %s: %w", key, err)
			}
		}
		return work(ctx, tx, result, known)
	})
}

// Probe is [Ledger.Probe] for [duly.Step.ServeProbe], of keys that were done with [Do].
func Probe[Out, T any](ctx context.Context, l *Ledger[T], key string) (duly.Probe[Out], error) {
	p, err := l.Probe(ctx, key)
	if err != nil {
		return duly.Probe[Out]{}, err
	}
	switch p.Outcome {
	case core.ProbeAbsent:
		return duly.Absent[Out](), nil
	case core.ProbeInProgress:
		return duly.InProgress[Out](), nil
	}
	var result Out
	if err := json.Unmarshal(p.Result, &result); err != nil {
		return duly.Probe[Out]{}, fmt.Errorf("ledger: result of key %s: %w", key, err)
	}
	return duly.Done(result), nil
}

// txKey is where a ledger's transaction is in a context.
type txKey[T any] struct{ ledger *Ledger[T] }

func (l *Ledger[T]) with(ctx context.Context, tx T) context.Context {
	return context.WithValue(ctx, txKey[T]{l}, tx)
}

// Tx is the transaction of the do or undo whose context ctx is. It panics when ctx is not one of this ledger's: the agent
// was made without [duly.WithLedger], or the step has no undo.
func (l *Ledger[T]) Tx(ctx context.Context) T {
	tx, ok := ctx.Value(txKey[T]{l}).(T)
	if !ok {
		panic("pgledger: there is no transaction in this context: is the agent made with duly.WithLedger, and has the step an undo?")
	}
	return tx
}

func (l *Ledger[T]) do(ctx context.Context, key string, work func(context.Context, T) ([]byte, error)) (result []byte, err error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	err = l.transact(ctx, key, l.options.Isolation, func(tx T) error {
		claimed, err := l.db.exec(ctx, tx, l.text.claim, l.lockArgs(ctx, key)...)
		if err != nil {
			return l.refused(key, err)
		}
		if claimed == 0 {
			result, err = l.found(ctx, tx, key)
			return err
		}
		if result, err = work(ctx, l.db.lend(tx)); err != nil {
			return err
		}
		return l.record(ctx, tx, key, result)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// found is the answer to a do whose key has a row, or is at work elsewhere.
func (l *Ledger[T]) found(ctx context.Context, tx T, key string) ([]byte, error) {
	r, err := l.read(ctx, tx, key, l.text.read, key)
	switch {
	case err != nil:
		return nil, err
	case r.state == "": // the other has not committed, or has been rolled back by now
		return nil, agents.ErrInProgress
	case r.state == stateDone:
		return r.result, nil
	case r.state == stateWorking:
		return nil, fmt.Errorf("ledger: key %s: its work ended the ledger's transaction, so its result is not known", key)
	}
	return nil, agents.ErrGone
}

// record writes the result into the row that was claimed.
func (l *Ledger[T]) record(ctx context.Context, tx T, key string, result []byte) error {
	if len(result) > l.options.ResultMax {
		return agents.Fail(fmt.Errorf("ledger: key %s: result has %d bytes, the limit is %d", key, len(result), l.options.ResultMax))
	}
	if result == nil {
		result = []byte{} // NULL says that there is none
	}
	return l.change(ctx, tx, key, l.text.record, key, result)
}

// change changes the one row of a key.
func (l *Ledger[T]) change(ctx context.Context, tx T, key, text string, args ...any) error {
	switch n, err := l.db.exec(ctx, tx, text, args...); {
	case err != nil:
		return fmt.Errorf("ledger: key %s: %w", key, err)
	case n != 1:
		return fmt.Errorf("ledger: key %s: its row is gone from the transaction", key)
	}
	return nil
}

func (l *Ledger[T]) undo(ctx context.Context, key string, work func(context.Context, T, []byte, bool) error) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := l.bury(ctx, key); err != nil {
		return err
	}
	return l.transact(ctx, key, l.options.Isolation, func(tx T) error {
		r, err := l.read(ctx, tx, key, l.text.hold, l.lockArgs(ctx, key)...)
		switch {
		case err != nil:
			return err
		case r.state == stateUndone:
			return nil
		case r.state != stateUndoing: // locked, or its do committed after bury
			return agents.ErrInProgress
		}
		if err := work(ctx, l.db.lend(tx), r.result, r.known); err != nil {
			return err
		}
		return l.change(ctx, tx, key, l.text.settle, key)
	})
}

// bury leaves the tombstone, if the key is not at work and has none.
func (l *Ledger[T]) bury(ctx context.Context, key string) error {
	args := []any{key}
	if !l.options.CockroachDB {
		args = append(args, l.lock(key))
	}
	err := l.again(ctx, func() error {
		_, err := l.db.alone(ctx, l.text.bury, args...)
		return err
	})
	if err != nil {
		return l.refused(key, err)
	}
	return nil
}

// Probe implements [agents.ProbingLedger]: done with its result, absent, or in progress. Absent means that no transaction of
// the key has committed, as far as [Ledger.Forget] has left it: what an undo has taken back is absent, too.
func (l *Ledger[T]) Probe(ctx context.Context, key string) (core.Probe, error) {
	if err := checkKey(key); err != nil {
		return core.Probe{}, err
	}
	var p core.Probe
	// Each statement must see what was committed before it, so that a do cannot commit between the lock and the look unseen.
	err := l.transact(ctx, key, sql.LevelReadCommitted, func(tx T) error {
		free := true
		if !l.options.CockroachDB { // there, a look waits for the end of the work
			if _, err := l.db.row(ctx, tx, l.text.free, []any{l.lock(key)}, &free); err != nil {
				return fmt.Errorf("ledger: key %s: %w", key, err)
			}
		}
		r, err := l.read(ctx, tx, key, l.text.read, key)
		if err != nil {
			return err
		}
		p, err = r.probe(key, free)
		return err
	})
	return p, err
}

// transact runs f in a transaction, again where the database asks for that.
func (l *Ledger[T]) transact(ctx context.Context, key string, isolation sql.IsolationLevel, f func(tx T) error) error {
	return l.again(ctx, func() error {
		tx, err := l.db.begin(ctx, isolation)
		if err != nil {
			return fmt.Errorf("ledger: key %s: begin: %w", key, err)
		}
		open := true
		defer func() {
			if open { // also when work panics
				l.db.rollback(tx)
			}
		}()
		if err := f(tx); err != nil {
			return err
		}
		open = false
		if err := l.db.commit(ctx, tx); err != nil {
			return commitError(key, err)
		}
		return nil
	})
}

// again calls f until it is not refused for the order of transactions.
func (l *Ledger[T]) again(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || n > retriesMax || !mayRunAgain(err) {
			return err
		}
		if pause.For(ctx, core.Backoff(retryFirst, retryCap, n, rand.Float64())) != nil {
			return err
		}
	}
}

// lockArgs are the parameters of a statement that takes a key for a transaction.
func (l *Ledger[T]) lockArgs(ctx context.Context, key string) []any {
	hold := l.options.Hold
	if deadline, ok := ctx.Deadline(); ok {
		hold = min(max(time.Until(deadline), 0)+holdLeast, HoldMost)
	}
	args := []any{key, strconv.FormatInt(hold.Milliseconds(), 10)}
	if !l.options.CockroachDB {
		args = append(args, l.lock(key))
	}
	return args
}

// checkKey refuses what cannot be a key here.
func checkKey(key string) error {
	switch {
	case key == "" || len(key) > KeyMax:
		return fmt.Errorf("ledger: key of %d bytes, want 1 to %d", len(key), KeyMax)
	case !core.IsText(key):
		return errors.New("ledger: the key is not text: want valid UTF-8 without a zero byte")
	}
	return nil
}
