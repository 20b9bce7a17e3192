package group

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/pause"
)

// Poison is a message that could not be handled.
type Poison struct {
	Msg   Msg
	Err   error // of the last try
	Tries int   // of the message by itself
}

// Verdict is what becomes of a message that could not be handled.
type Verdict int

// Verdicts.
const (
	Stop Verdict = iota // the partition stops until [Resume]; the others go on
	Skip                // the message is left out, and recorded
	Try                 // it is tried again, as often as before
)

// Gap is a range of the stream that was removed before a partition had read it. Some of the messages in it were the
// partition's, or none: that cannot be known any more.
type Gap struct {
	Partition   int
	First, Last uint64 // sequences of the stream
}

// lane is a partition that this member owns.
type lane struct {
	m         *member
	partition int
	epoch     int64
	at        position      // as committed; of the worker
	committed atomic.Uint64 // the same, for others
	queue     *queue
	leave     chan struct{} // closed: end after the batch at work
	cancel    func()        // ends the batch at work
	ended     chan struct{} // closed when it has ended
	left      bool          // leave is closed; of the goroutine that places
	rewind    func()        // has its feed begin again

	limit int // messages of the next batch
	tries int // of a message by itself
	waits int // pauses in a row
}

// run handles batches until the lane is told to leave, is lost or stops.
func (l *lane) run(ctx context.Context) {
	defer l.m.wake()
	defer close(l.ended)
	l.limit = l.m.cfg.batch
	for {
		items := l.next(ctx)
		if items == nil {
			break
		}
		err := l.handle(ctx, items)
		switch {
		case err == nil:
			l.limit, l.tries, l.waits = min(2*l.limit, l.m.cfg.batch), 0, 0
			if l.queue.done(len(items)) {
				l.rewind()
			}
		case errors.Is(err, errLost):
			l.m.log.Warn("a partition is another member's now", "partition", l.partition, "epoch", l.epoch)
			return
		case errors.Is(err, errStopped):
			return
		default:
			l.queue.trouble()
			l.wait(ctx, err)
		}
	}
	l.release(ctx)
}

// next waits for a batch; nil: the lane is to end.
func (l *lane) next(ctx context.Context) []item {
	timer := time.NewTimer(l.m.cfg.linger)
	timer.Stop()
	defer timer.Stop()
	waiting := false
	for {
		select {
		case <-l.leave:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
		items := l.queue.head(l.limit, l.m.cfg.bytes)
		if len(items) > 0 && (l.m.cfg.linger == 0 || l.waits > 0 || len(items) >= l.limit || items[0].kind == isGap) {
			return items
		}
		if len(items) > 0 && !waiting {
			waiting = true
			timer.Reset(l.m.cfg.linger)
		}
		select {
		case <-l.leave:
		case <-ctx.Done():
		case <-l.queue.ready:
		case <-timer.C:
			return l.queue.head(l.limit, l.m.cfg.bytes)
		}
	}
}

// wait waits after a failure, longer after each.
func (l *lane) wait(ctx context.Context, err error) {
	l.waits++
	d := l.m.cfg.first << min(l.waits-1, 20)
	if d > l.m.cfg.most || d <= 0 {
		d = l.m.cfg.most
	}
	l.m.log.Warn("a batch failed and is tried again", "partition", l.partition, "after", l.at.seq, "in", d, "error", err)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-l.leave:
	case <-ctx.Done():
	}
}

var (
	errStopped = errors.New("the partition is stopped") // committed so
	errAgain   = errors.New("it is tried again")
)

// unhandled is an error of the user's code: nothing was committed, and the database is not to blame.
type unhandled struct{ error }

func (u unhandled) Unwrap() error { return u.error }

// outcome is what a transaction makes of the partition's row.
type outcome struct {
	to      position
	stopped string
}

// handle has a batch take effect once.
func (l *lane) handle(ctx context.Context, items []item) error {
	to := outcome{to: items[len(items)-1].to}
	if items[0].kind == isGap {
		return l.gap(ctx, Gap{l.partition, items[0].first, to.to.seq}, to)
	}
	msgs := make([]Msg, 0, len(items))
	for _, it := range items {
		if it.kind == isMsg {
			msgs = append(msgs, it.msg)
		}
	}
	err := l.transact(ctx, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		if len(msgs) == 0 {
			return to, nil
		}
		err := l.user(ctx, tx, func(ctx context.Context, tx pgx.Tx) error { return l.m.handler(ctx, tx, msgs) })
		return to, err
	})
	var failed unhandled
	if !errors.As(err, &failed) {
		return err
	}
	if len(msgs) > 1 { // one of them is to blame
		l.limit, l.waits = len(msgs)/2, 0
		return err
	}
	if l.tries++; l.tries < l.m.cfg.tries {
		return err
	}
	return l.judge(ctx, Poison{msgs[0], failed.error, l.tries}, to)
}

// user calls the user's code. A panic is an error of it.
func (l *lane) user(ctx context.Context, tx pgx.Tx, call func(context.Context, pgx.Tx) error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			l.m.log.Error("the group's user panicked", "partition", l.partition, "after", l.at.seq, "panic", why, "stack", string(debug.Stack()))
			err = unhandled{fmt.Errorf("panic: %v", why)}
		}
	}()
	err = call(ctx, lent{tx})
	if err == nil || ctx.Err() != nil || passing(tx.Conn(), err) {
		return err
	}
	return unhandled{err}
}

// transact runs work in a transaction that moves the cursor, and finds out what became of it.
func (l *lane) transact(ctx context.Context, work func(context.Context, pgx.Tx) (outcome, error)) error {
	out, err := l.once(ctx, work)
	var failed unhandled
	for err != nil && !errors.As(err, &failed) {
		// The row alone says whether this was committed, and whether it is still ours to try.
		r, look := l.m.store.row(ctx, l.partition)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case look != nil:
			l.queue.trouble()
			l.m.log.Warn("the database cannot be asked", "partition", l.partition, "error", look)
			_ = pause.For(ctx, l.m.cfg.first) // ctx is looked at above
			continue
		case out != nil && r.epoch == l.epoch && r.cursor == out.to.seq && r.stopped == out.stopped:
			err = nil
		case r.epoch == l.epoch && r.cursor == l.at.seq && r.stopped == "" && !errors.Is(err, errLost):
			return err
		default:
			return errLost
		}
	}
	if err == nil {
		l.at = out.to
		l.committed.Store(l.at.seq)
	}
	return err
}

// once is one transaction. out is nil where it did not come to the cursor; otherwise an error leaves open what was committed.
func (l *lane) once(ctx context.Context, work func(context.Context, pgx.Tx) (outcome, error)) (out *outcome, err error) {
	tx, err := l.m.store.pool.BeginTx(ctx, l.m.store.begin)
	if err != nil {
		return nil, err
	}
	open := true
	defer func() {
		if open { // also when work panics
			rollback(tx)
		}
	}()
	to, err := work(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := l.m.store.move(ctx, tx, l.partition, l.epoch, l.at.seq, to); err != nil {
		if state(err) == abortedTransaction {
			return nil, unhandled{fmt.Errorf("a statement had failed, and the handler returned no error: %w", err)}
		}
		return nil, err
	}
	open = false
	return &to, tx.Commit(ctx)
}

// rollbackMost bounds a rollback, which must be tried also after the end of the lane's time.
const rollbackMost = 2 * time.Second

func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackMost)
	defer cancel()
	_ = tx.Rollback(ctx) // the server does it, if the connection is lost
}

// judge asks what becomes of a message, and records it in the same transaction.
func (l *lane) judge(ctx context.Context, p Poison, skip outcome) error {
	var verdict Verdict
	err := l.transact(ctx, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		verdict = Stop
		if l.m.cfg.poison != nil {
			err := l.user(ctx, tx, func(ctx context.Context, tx pgx.Tx) (err error) {
				verdict, err = l.m.cfg.poison(ctx, tx, p)
				return err
			})
			if err != nil {
				return outcome{}, err
			}
		}
		i := Incident{Partition: l.partition, First: p.Msg.Seq, Last: p.Msg.Seq, Reason: reason(p.Err)}
		switch verdict {
		case Skip:
			i.Kind = KindSkipped
			return skip, l.m.store.incident(ctx, tx, i, l.epoch)
		case Stop:
			i.Kind = KindStopped
			return outcome{l.at, i.Reason}, l.m.store.incident(ctx, tx, i, l.epoch)
		case Try:
			return outcome{}, unhandled{errAgain}
		}
		return outcome{}, unhandled{fmt.Errorf("verdict %d on message %d, want Stop, Skip or Try", verdict, p.Msg.Seq)}
	})
	switch {
	case errors.Is(err, errAgain):
		l.tries = 0
	case err == nil && verdict == Stop:
		l.m.log.Error("a partition is stopped", "partition", l.partition, "message", p.Msg.Seq, "error", p.Err)
		return errStopped
	case err == nil:
		l.m.log.Error("a message is skipped", "partition", l.partition, "message", p.Msg.Seq, "error", p.Err)
	}
	return err
}

// gap moves over what is gone, and records it; or stops there, if the user wants that.
func (l *lane) gap(ctx context.Context, g Gap, over outcome) error {
	l.m.log.Error("messages were removed from the stream before they were read", "partition", g.Partition, "first", g.First, "last", g.Last)
	i := Incident{Partition: g.Partition, Kind: KindGap, First: g.First, Last: g.Last, Reason: "removed from the stream before they were read"}
	err := l.transact(ctx, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		if l.m.cfg.gap != nil {
			if err := l.user(ctx, tx, func(ctx context.Context, tx pgx.Tx) error { return l.m.cfg.gap(ctx, tx, g) }); err != nil {
				return outcome{}, err
			}
		}
		return over, l.m.store.incident(ctx, tx, i, l.epoch)
	})
	var failed unhandled
	if !errors.As(err, &failed) {
		return err
	}
	i.Kind, i.Reason = KindStopped, reason(failed.error)
	err = l.transact(ctx, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		return outcome{l.at, i.Reason}, l.m.store.incident(ctx, tx, i, l.epoch)
	})
	if err == nil {
		l.m.log.Error("a partition is stopped", "partition", l.partition, "error", failed.error)
		return errStopped
	}
	return err
}

// releaseMost bounds what a member does at its end.
const releaseMost = 2 * time.Second

// release gives the partition free, so that its next owner need not wait.
func (l *lane) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseMost)
	defer cancel()
	if err := l.m.store.release(ctx, l.partition, l.epoch); err != nil {
		l.m.log.Warn("a partition is not released: its next owner waits for it", "partition", l.partition, "error", err)
	}
}
