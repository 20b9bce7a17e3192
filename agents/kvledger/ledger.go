package kvledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// Bounds of a [Ledger].
const (
	KeyMax        = 512                    // bytes of a key
	ResultMaxMost = 512 << 10              // bytes: the most that Options.ResultMax may be
	LeaseDefault  = time.Minute            // Options.Lease where none is said
	LeaseMost     = 24 * time.Hour         // the most that a claim holds
	SkewDefault   = 500 * time.Millisecond // Options.Skew where none is said
	KeepLeast     = time.Hour              // the least that a bucket may keep keys for
	finishMax     = 5 * time.Second        // for the record of what was done
	finishPause   = 50 * time.Millisecond
	whyMax        = 512 // bytes of an error that is kept
	claimTries    = 10  // of one claim, against others that change the key
	claimPause    = 5 * time.Millisecond
)

var (
	// ErrUnknown says that a do began and that it is not known whether it took effect: see [Options].AtMostOnce.
	ErrUnknown = errors.New("it is not known whether the do took effect: it began, and did not say that it had none")
	// ErrLost says that another took the key over before the work's outcome was recorded, or that the bucket has lost it.
	// Code 425: the same key again finds out what has become of it.
	ErrLost error = &agents.Error{Code: core.CodeTooEarly, Err: errors.New("the claim of the key was lost before its outcome was recorded")}
)

// Options change a [Ledger].
type Options struct {
	// AtMostOnce has no do work again of which it is not known whether it took effect. Without it the service must recognise
	// the key.
	AtMostOnce bool
	ResultMax  int // bytes of a result; 0: what a task can keep of one
	// Lease is how long a claim holds whose context has no deadline; its work is ended then. Commands of Duly have one, and
	// it counts. 0: LeaseDefault.
	Lease time.Duration
	// Skew is how far the clocks of agents and of the NATS server may be apart: a claim is taken over so much later.
	// 0: SkewDefault.
	Skew time.Duration
}

// Ledger is a [duly.Ledger] in a bucket. It answers probes, too. It is safe for concurrent use, in any number of processes.
type Ledger struct {
	kv      jetstream.KeyValue
	options Options
}

var _ agents.ProbingLedger = (*Ledger)(nil)

// New makes a ledger in a bucket: see [Create]. Errors: options that cannot be, a bucket that is not there, one that keeps
// keys for less than KeepLeast or for ever.
func New(ctx context.Context, kv jetstream.KeyValue, o Options) (*Ledger, error) {
	o.ResultMax = cmp.Or(o.ResultMax, core.ResultBytesMax)
	o.Lease = cmp.Or(o.Lease, LeaseDefault)
	o.Skew = cmp.Or(o.Skew, SkewDefault)
	switch {
	case o.ResultMax < 1 || o.ResultMax > ResultMaxMost:
		return nil, fmt.Errorf("ledger: Options.ResultMax: %d bytes, want 1 to %d", o.ResultMax, ResultMaxMost)
	case o.Lease < time.Millisecond || o.Lease > LeaseMost:
		return nil, fmt.Errorf("ledger: Options.Lease: %v, want %v to %v", o.Lease, time.Millisecond, LeaseMost)
	case o.Skew < 0 || o.Skew > time.Hour:
		return nil, fmt.Errorf("ledger: Options.Skew: %v, want 0 to %v", o.Skew, time.Hour)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledger: bucket %s: %w", kv.Bucket(), err)
	}
	if ttl := status.TTL(); ttl < KeepLeast {
		return nil, fmt.Errorf("ledger: bucket %s: it keeps keys for %v (0: for ever), want %v or more", kv.Bucket(), ttl, KeepLeast)
	}
	return &Ledger{kv: kv, options: o}, nil
}

// claim is the right to work on a key, until another takes it over.
type claim struct {
	key      string // as the bucket has it
	owner    string
	revision uint64
	lease    time.Duration
	until    time.Time // the work ends then: the claim is not written before the lease begins
	was      record    // what the key was before
}

// Do implements [duly.Ledger].
func (l *Ledger) Do(ctx context.Context, key string, work func(context.Context) ([]byte, error)) (result []byte, err error) {
	c, was, err := l.claim(ctx, key, false)
	if err != nil {
		return nil, fmt.Errorf("ledger: key %s: %w", key, err)
	}
	if c == nil {
		return was.Result, nil
	}
	completed := false
	defer func() {
		if !completed { // work has panicked
			l.failed(ctx, c, nil)
		}
	}()
	result, err = l.work(ctx, c, work)
	completed = true
	if err == nil && len(result) > l.options.ResultMax {
		// The effect is there; only its result cannot be kept.
		l.failed(ctx, c, nil)
		return nil, agents.Fail(fmt.Errorf("ledger: key %s: result has %d bytes, the limit is %d", key, len(result), l.options.ResultMax))
	}
	if err != nil {
		l.failed(ctx, c, err)
		return nil, err
	}
	if err := l.finish(ctx, c, record{State: stateDone, Result: result}); err != nil {
		return nil, fmt.Errorf("ledger: key %s: %w", key, err)
	}
	return result, nil
}

// work does the work of a claim, for no longer than it holds.
func (l *Ledger) work(ctx context.Context, c *claim, work func(context.Context) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	return work(ctx)
}

// failed gives a claim back whose do gave an error; nil: it does not say what became of the effect. A claim that cannot be
// given back ends by itself.
func (l *Ledger) failed(ctx context.Context, c *claim, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
	defer cancel()
	if l.options.AtMostOnce && !none(err) {
		r := record{State: stateWorking, Owner: c.owner}
		if err != nil {
			r.Why = core.CutText(err.Error(), whyMax)
		}
		_, _ = l.kv.Update(ctx, c.key, r.encode(), c.revision)
		return
	}
	_ = l.kv.Purge(ctx, c.key, jetstream.LastRevision(c.revision))
}

// none holds for an error of a do that says that it had no effect. One with another code, as of [duly.Fail], does not.
func none(err error) bool {
	coded, is := errors.AsType[*agents.Error](err)
	return is && coded != nil && coded.Code >= 400 && coded.Code < 500
}

// Undo implements [duly.Ledger]. known is false also where a do has begun of which it is not known how it ended.
func (l *Ledger) Undo(ctx context.Context, key string, work func(context.Context, []byte, bool) error) error {
	c, was, err := l.claim(ctx, key, true)
	if err != nil {
		return fmt.Errorf("ledger: key %s: %w", key, err)
	}
	if c == nil {
		return nil
	}
	next := record{State: stateUndoing, Known: was.Known, Result: was.Result} // the tombstone stays; none holds it
	worked := false
	defer func() {
		if !worked {
			_ = l.finish(ctx, c, next) // else it ends by itself
		}
	}()
	_, err = l.work(ctx, c, func(ctx context.Context) ([]byte, error) { return nil, work(ctx, was.Result, was.Known) })
	if err != nil {
		return err
	}
	worked = true
	if err := l.finish(ctx, c, record{State: stateUndone}); err != nil {
		return fmt.Errorf("ledger: key %s: %w", key, err)
	}
	return nil
}

// claim takes a key for work. A nil claim without an error says that there is nothing to do any more.
func (l *Ledger) claim(ctx context.Context, key string, undo bool) (*claim, record, error) {
	at, err := encodeKey(key)
	if err != nil {
		return nil, record{}, err
	}
	c := &claim{key: at, owner: rand.Text(), lease: l.lease(ctx)}
	c.until = time.Now().Add(c.lease)
	var r record
	var refused error
	for n := range claimTries {
		var revision uint64
		if undo || n > 0 { // most dos are the first of their key
			if r, revision, err = l.get(ctx, at); err != nil {
				return nil, r, err
			}
		}
		if r.Owner == c.owner { // stored, though the answer was lost
			c.revision = revision
			return c, c.was, nil
		}
		next, err := l.next(r, undo)
		if err != nil || next.State == "" {
			return nil, r, err
		}
		next.Owner, next.Lease = c.owner, c.lease.Milliseconds()
		c.was = r
		c.revision, err = l.put(ctx, at, next, revision)
		if err == nil {
			return c, r, nil
		}
		switch {
		case full(err):
			return nil, r, fmt.Errorf("%w: %w", agents.ErrLedgerFull, err)
		case changed(err):
			err = agents.ErrInProgress // what another does with the key, if it goes on like that
		}
		if refused = err; pause.For(ctx, time.Duration(n+1)*claimPause) != nil {
			break
		}
	}
	return nil, r, refused
}

// next is what a claim makes of a key; no state: there is nothing to do any more.
func (l *Ledger) next(r record, undo bool) (record, error) {
	switch {
	case r.State == stateUndone && undo, r.State == stateDone && !undo:
		return record{}, nil
	case !undo && (r.State == stateUndoing || r.State == stateUndone):
		return record{}, agents.ErrGone
	case r.held(time.Now(), l.options.Skew):
		return record{}, agents.ErrInProgress
	case undo:
		return record{State: stateUndoing, Known: r.Known, Result: r.Result}, nil
	case r.State == stateWorking && l.options.AtMostOnce && r.Why != "":
		return record{}, fmt.Errorf("%w: it said: %s", ErrUnknown, r.Why)
	case r.State == stateWorking && l.options.AtMostOnce:
		return record{}, ErrUnknown
	}
	return record{State: stateWorking}, nil
}

// lease is how long a claim holds: as long as its command has time, because none comes again before.
func (l *Ledger) lease(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return l.options.Lease
	}
	return min(max(time.Until(deadline), time.Millisecond), LeaseMost)
}

// finish records the outcome of a claim, also past the end of its command's time: what is done is done. Error: ErrLost, and
// what keeps it from being recorded.
func (l *Ledger) finish(ctx context.Context, c *claim, r record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishMax)
	defer cancel()
	r.Owner = c.owner
	data := r.encode()
	for {
		_, err := l.kv.Update(ctx, c.key, data, c.revision)
		if err == nil {
			return nil
		}
		entry, look := l.kv.Get(ctx, c.key)
		switch {
		case look == nil && bytes.Equal(entry.Value(), data): // the answer to an earlier try was lost
			return nil
		case look == nil && entry.Revision() > c.revision, errors.Is(look, jetstream.ErrKeyNotFound):
			return ErrLost
		}
		if pause.For(ctx, finishPause) != nil {
			return fmt.Errorf("the outcome is not recorded: %w", err)
		}
	}
}

// Probe implements [agents.ProbingLedger]. A key that is not there is not known, rather than absent: its record may have
// been lost with its bucket, while the effect is in the service.
func (l *Ledger) Probe(ctx context.Context, key string) (core.Probe, error) {
	at, err := encodeKey(key)
	var r record
	if err == nil {
		r, _, err = l.get(ctx, at)
	}
	switch {
	case err != nil:
		return core.Probe{}, fmt.Errorf("ledger: key %s: %w", key, err)
	case r.State == stateDone:
		return core.Probe{Outcome: core.ProbeDone, Result: r.Result}, nil
	case r.State == stateUndone:
		return core.Probe{Outcome: core.ProbeAbsent}, nil
	case r.State == stateUndoing, r.held(time.Now(), l.options.Skew):
		return core.Probe{Outcome: core.ProbeInProgress}, nil
	}
	return core.Probe{}, agents.ErrNotKnown
}
