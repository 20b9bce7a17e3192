package ingest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// Outbox is a table of submissions that were written in transactions of their submitters.
type Outbox interface {
	// Take takes up to most rows that no other relay has, calls hand with them, and then does what hand says of each:
	// in one transaction, so that a row whose fate is not written down is taken again. Rows of which hand says nothing
	// stay as they are. It returns how many it took; hand is not called when there are none. A relay has at most as many
	// under way at once as there are task streams.
	Take(ctx context.Context, most int, hand func(context.Context, []Written) []Verdict) (took int, err error)
}

// Written is a row of an outbox.
type Written struct {
	Row     int64
	Tries   int     // that were put off or refused
	Request Request // without an Answer
	// Unfit is why no request can be made of the row; nil: it can.
	Unfit *Refusal
}

// Verdict is what becomes of a row.
type Verdict struct {
	Row     int64
	Refused *Refusal      // nil: stored and synced, so that the row can go
	Again   time.Duration // with Refused: when it is tried again; 0: never, unless an operator says so
}

// The defaults of RelayConfig.
const (
	defaultRelayInterval = 250 * time.Millisecond
	defaultRelayItems    = 64 // with inputs of the largest size 16 MiB, for each stream that is waited for
	relayRestMax         = 10 * time.Second
	relayAgain           = time.Second // until a row that is put off is tried again; it doubles
	relayAgainMax        = time.Minute
	relayPatience        = 250 * time.Millisecond // after which rows of other task streams do not wait for one
)

// RelayConfig is how a relay works. Zero fields take their defaults.
type RelayConfig struct {
	Interval time.Duration // between two looks at an outbox that was empty
	Items    int           // rows that are taken at a time
	// Report hears of every failure of the outbox, and nil when it works; nil: no one does. It may be called from any
	// goroutine.
	Report func(error)
}

// RelayStats counts what a relay did since it was made.
type RelayStats struct {
	Relayed int64 // rows that were stored
	Refused int64 // rows that are kept as refused
	PutOff  int64 // tries that were put off
}

// Relay hands in what stands in an outbox, through the same door as other requests. Several may share an outbox. A task
// stream that does not answer holds up its own rows alone.
type Relay struct {
	cfg     RelayConfig
	outbox  Outbox
	submit  func(Request)
	streams relayStreams

	relayed, refused, putOff atomic.Int64
}

// NewRelay makes a relay of an outbox into a door.
func NewRelay(cfg RelayConfig, outbox Outbox, in *Ingest) *Relay {
	names := make([]string, len(in.door.streams))
	for i, s := range in.door.streams {
		names[i] = s.name
	}
	return newRelay(cfg, outbox, in.Submit, names, func(id string) int { return in.door.streamFor(id).number })
}

func newRelay(cfg RelayConfig, outbox Outbox, submit func(Request), streams []string, of func(id string) int) *Relay {
	cfg.Interval = cmp.Or(cfg.Interval, defaultRelayInterval)
	cfg.Items = cmp.Or(cfg.Items, defaultRelayItems)
	if cfg.Report == nil {
		cfg.Report = func(error) {}
	}
	return &Relay{cfg: cfg, outbox: outbox, submit: submit, streams: newRelayStreams(streams, of)}
}

// Stats returns the counts. It is safe for concurrent use.
func (r *Relay) Stats() RelayStats {
	return RelayStats{Relayed: r.relayed.Load(), Refused: r.refused.Load(), PutOff: r.putOff.Load()}
}

// takeResult is what a look at an outbox came to.
type takeResult struct {
	took int
	full time.Duration // how long the door asks to wait
	err  error
}

// Run relays until ctx ends, and returns when what was handed in has been answered and written down.
func (r *Relay) Run(ctx context.Context) {
	var takes sync.WaitGroup
	defer takes.Wait()
	failed := 0
	for ctx.Err() == nil {
		turns := make(chan takeResult, 2)
		takes.Go(func() { r.take(ctx, turns) })
		t := <-turns
		if ctx.Err() != nil {
			return
		}
		rest := r.cfg.Interval
		switch {
		case t.err != nil:
			failed++
			rest = max(rest, core.Backoff(r.cfg.Interval, relayRestMax, failed, 1))
		case t.full > 0:
			failed, rest = 0, max(rest, min(t.full, relayRestMax))
		case t.took == r.cfg.Items:
			failed, rest = 0, 0
		default:
			failed = 0
		}
		if pause.For(ctx, max(rest, r.streams.rest(r.cfg.Interval))) != nil {
			return
		}
	}
}

// take takes rows once, and says what it came to: at its end, and before that when only streams that are late keep it, so
// that the next may begin.
func (r *Relay) take(ctx context.Context, turns chan<- takeResult) {
	var t takeResult
	t.took, t.err = r.outbox.Take(ctx, r.cfg.Items, func(_ context.Context, rows []Written) []Verdict {
		var verdicts []Verdict
		verdicts, t.full = r.hand(rows, func() { turns <- takeResult{took: len(rows)} })
		return verdicts
	})
	if ctx.Err() == nil {
		r.cfg.Report(t.err)
	}
	turns <- t
}

// hand hands rows in and waits for every answer, which the door owes whatever happens. Rows of a stream that rests or is
// late are not handed in. It calls late when such streams alone are waited for. full is how long the door asks to wait, if
// it had no room for some.
func (r *Relay) hand(rows []Written, late func()) (verdicts []Verdict, full time.Duration) {
	answers := make([]Answer, len(rows))
	h := r.streams.begin(rows, answers)
	for i := range rows {
		if answers[i].Err != nil {
			continue
		}
		req := rows[i].Request
		req.Answer = func(a Answer) {
			answers[i] = a
			h.answered(req.ID, a.Err, r.cfg.Interval)
		}
		r.submit(req)
	}
	h.wait(late)
	for i := range rows {
		v, rest := r.judge(&rows[i], answers[i].Err)
		if v != nil {
			verdicts = append(verdicts, *v)
		}
		full = max(full, rest)
	}
	return verdicts, full
}

// judge says what becomes of a row. One that the door or the only stream has no room for stays as it is, and the relay
// rests. One that only waits for something of its own, which is the plan, its id, the owner of its partition or its
// stream, is put off, so that it does not hold up those behind it.
func (r *Relay) judge(w *Written, refused *Refusal) (v *Verdict, rest time.Duration) {
	switch {
	case refused == nil:
		r.relayed.Add(1)
		return &Verdict{Row: w.Row}, 0
	case refused.ErrCode == CauseTypeUnknown, refused.ErrCode == CauseVersionUnknown, // it may be applied later
		refused.ErrCode == CauseBacklog, refused.ErrCode == CauseUndecided,
		ofStream(refused) && r.streams.others(w.Request.ID):
		r.putOff.Add(1)
		again := core.Backoff(max(relayAgain, refused.Retry), relayAgainMax, w.Tries+1, 1)
		return &Verdict{Row: w.Row, Refused: refused, Again: again}, 0
	case ofStream(refused):
		return nil, 0 // see relayStreams.rest
	case refused.Retryable():
		return nil, max(refused.Retry, r.cfg.Interval)
	}
	r.refused.Add(1)
	return &Verdict{Row: w.Row, Refused: refused}, 0
}

// relayLate is how long a row may wait before it is a trouble.
const relayLate = 30 * time.Second

// Standing is how an outbox does.
type Standing struct {
	Waiting int64 // rows to relay
	Oldest  time.Duration
	Refused int64  // rows that are kept
	First   string // about the first of these
}

// Trouble is what is wrong with it; nil: nothing.
func (s Standing) Trouble() error {
	switch {
	case s.Refused > 0:
		return fmt.Errorf("%d submissions are refused; the first: %s", s.Refused, s.First)
	case s.Oldest > relayLate:
		return fmt.Errorf("%d submissions wait to be relayed, the first for %v", s.Waiting, s.Oldest.Round(time.Second))
	}
	return nil
}
