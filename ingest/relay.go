package ingest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/submit"
)

// Outbox is a table into which submitters write submissions in their own transactions.
type Outbox interface {
	// Take takes up to most rows that no other relay has, calls hand with them, and does what hand says of
	// each in the same transaction: a row whose fate was not written down is taken again. A row of which hand
	// says nothing stays as it is. Take returns how many rows it took, and does not call hand when there are
	// none. A relay calls it at most once more at a time than there are task streams.
	Take(ctx context.Context, most int, hand func(context.Context, []Written) []Verdict) (took int, err error)
}

// Written is a row of an outbox.
type Written struct {
	Row int64
	// Tries counts earlier tries, which were put off or refused.
	Tries   int
	Request Request // without an Answer
	// Unfit is why no request can be made of the row; nil: Request is one.
	Unfit *Refusal
}

// Verdict says what to do with a row.
type Verdict struct {
	Row int64
	// Refused is nil when the submission is stored and synced: the row can go.
	Refused *Refusal
	// Again, with Refused, is after how long to try again; 0: never, until an operator says so.
	Again time.Duration
}

// The defaults of RelayConfig.
const (
	defaultRelayInterval = 250 * time.Millisecond
	defaultRelayItems    = 64 // with inputs of the largest size 16 MiB, for each stream that is waited for
	relayRestMax         = 10 * time.Second
	relayAgain           = time.Second // until a row that is put off is tried again; it doubles
	relayAgainMax        = time.Minute
	relayPatience        = 250 * time.Millisecond // after which rows of other task streams do not wait for one
	relayLookMax         = 2 * time.Second        // of the looks at the tasks of a take's rows, which are locked meanwhile
	relayLookAgain       = 100 * time.Millisecond // between two looks at how far owners have read
)

// RelayConfig is how a relay works. Zero fields take their defaults.
type RelayConfig struct {
	// Interval is the time between two looks at an empty outbox.
	Interval time.Duration
	// Items is how many rows are taken at a time.
	Items int
	// Existing looks up the task of an id; nil: there is none. A relay without it takes every refusal for the truth.
	Existing func(ctx context.Context, id string) (*core.Existing, error)
	// Unread returns those of the ids whose partitions have not been read up to a time. nil: all always are.
	Unread func(ctx context.Context, ids []string, before time.Time) (map[string]bool, error)
	// Report gets every error of the outbox, and nil when it works; nil: errors are not reported. Any
	// goroutine may call it.
	Report func(error)
}

// RelayStats counts what a relay did since it was made.
type RelayStats struct {
	Relayed int64 // rows that were stored
	Refused int64 // rows that are kept as refused
	// PutOff counts tries after which the row waits for another.
	PutOff int64
}

// Relay submits what is in an outbox, through the same door as all other requests. Several relays may share
// an outbox. A task stream that does not answer holds up only its own rows.
type Relay struct {
	cfg     RelayConfig
	outbox  Outbox
	submit  func(Request)
	streams relayStreams
	lacking lacking
	looking sync.Mutex // held by the take that looks whether its rows are tasks

	relayed, refused, putOff atomic.Int64
}

// NewRelay makes a relay from an outbox into a door.
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
	if cfg.Unread == nil {
		cfg.Unread = func(context.Context, []string, time.Time) (map[string]bool, error) { return nil, nil }
	}
	if cfg.Report == nil {
		cfg.Report = func(error) {}
	}
	return &Relay{cfg: cfg, outbox: outbox, submit: submit, streams: newRelayStreams(streams, of)}
}

// Stats returns the counts. It is safe for concurrent use.
func (r *Relay) Stats() RelayStats {
	return RelayStats{Relayed: r.relayed.Load(), Refused: r.refused.Load(), PutOff: r.putOff.Load()}
}

// takeResult tells Run how a take of rows is doing, so that it can begin the next.
type takeResult struct {
	took int
	// full is for how long the door asked to wait because it had no room.
	full time.Duration
	err  error
}

// Run relays until ctx ends. It returns when everything that it submitted has been answered and the outbox
// knows.
func (r *Relay) Run(ctx context.Context) {
	var takes sync.WaitGroup
	defer takes.Wait()
	failed := 0
	for ctx.Err() == nil {
		turns := make(chan takeResult, 2) // one of up to three is read
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

// take takes rows once and sends the result. If only slow streams keep it waiting, or looks at tasks, it sends a result early, so
// that Run begins the next take, and another at its end, which need not be read.
func (r *Relay) take(ctx context.Context, turns chan<- takeResult) {
	var t takeResult
	looks := false // until the take is over: so no more than one is beside the others
	t.took, t.err = r.outbox.Take(ctx, r.cfg.Items, func(ctx context.Context, rows []Written) []Verdict {
		var verdicts []Verdict
		verdicts, t.full = r.hand(ctx, rows, func(full time.Duration) { turns <- takeResult{took: len(rows), full: full} }, func() bool {
			looks = r.looking.TryLock()
			return looks
		})
		return verdicts
	})
	if looks {
		r.looking.Unlock()
	}
	if ctx.Err() == nil {
		r.cfg.Report(t.err)
	}
	turns <- t
}

// hand submits rows and waits for all answers; the door answers always. It does not submit rows of streams
// that are slow or rest. It calls early when only slow streams are waited for, and when only looks at tasks are, which it does
// if mayLook says so. full is for how long the door asked to wait, if it had no room for some.
func (r *Relay) hand(ctx context.Context, rows []Written, early func(full time.Duration), mayLook func() bool) (verdicts []Verdict, full time.Duration) {
	answers := make([]Answer, len(rows))
	r.lacking.answer(rows, answers)
	h := r.streams.begin(rows, answers)
	for i := range rows {
		if answers[i].Err != nil {
			continue
		}
		req := rows[i].Request
		req.Answer = func(a Answer) {
			answers[i] = a
			r.lacking.note(&req.Form, a.Err)
			h.answered(req.ID, a.Err, r.cfg.Interval)
		}
		r.submit(req)
	}
	h.wait(func() { early(0) })
	var unsure []int
	for i := range rows {
		if rows[i].Tries > 0 && r.mayBeTask(answers[i].Err) {
			unsure = append(unsure, i)
			continue
		}
		v, rest := r.judge(&rows[i], answers[i].Err)
		if v != nil {
			verdicts = append(verdicts, *v)
		}
		full = max(full, rest)
	}
	if len(unsure) > 0 && mayLook() {
		early(full)
		var known []Verdict
		known, unsure = r.look(ctx, rows, answers, unsure)
		verdicts = append(verdicts, known...)
	}
	for _, i := range unsure {
		verdicts = append(verdicts, *r.later(&rows[i], answers[i].Err, settleMax))
	}
	return verdicts, full
}

// judge decides what happens to a row. A row that the door, or the only stream, has no room for stays as it
// is, and the relay rests. A row that waits for something of its own - its plan, its id, the owner of its
// partition, its stream - is put off, so that it does not hold up those behind it.
func (r *Relay) judge(w *Written, refused *Refusal) (v *Verdict, rest time.Duration) {
	switch {
	case refused == nil:
		r.relayed.Add(1)
		return &Verdict{Row: w.Row}, 0
	case ofPlan(refused), refused.ErrCode == CauseBacklog, refused.ErrCode == CauseUndecided, refused.ErrCode == CauseStore,
		ofStream(refused) && r.streams.others(w.Request.ID):
		return r.later(w, refused, core.Backoff(max(relayAgain, refused.Retry), relayAgainMax, w.Tries+1, 1)), 0
	case ofStream(refused):
		return nil, 0 // see relayStreams.rest
	case refused.Retryable():
		return nil, max(refused.Retry, r.cfg.Interval)
	case r.mayBeTask(refused): // and its submission under way to the stream still
		return r.later(w, refused, settleMax), 0
	}
	return r.kept(w, refused), 0
}

// later puts a row off.
func (r *Relay) later(w *Written, refused *Refusal, again time.Duration) *Verdict {
	r.putOff.Add(1)
	return &Verdict{Row: w.Row, Refused: refused, Again: again}
}

// kept keeps a row as refused.
func (r *Relay) kept(w *Written, refused *Refusal) *Verdict {
	r.refused.Add(1)
	return &Verdict{Row: w.Row, Refused: refused}
}

// ofPlan reports whether a refusal is for a plan that may be applied later, or read, also by a newer node alone.
func ofPlan(r *Refusal) bool {
	return r.ErrCode == CauseTypeUnknown || r.ErrCode == CauseVersionUnknown || r.ErrCode == CausePlans
}

// lacking are the plans that the door refused a moment ago. It answers when it has read them again, and with such a row all
// others of its take wait: many rows without a plan would hold up those that have one.
type lacking struct {
	mu  sync.Mutex
	all map[planName]lack
}

// planName is a plan as a submission names it.
type planName struct{ taskType, version string }

// lack is how a plan was refused, and until when its rows get that answer.
type lack struct {
	why   *Refusal
	until time.Time
}

// answer answers the rows whose plans were refused a moment ago.
func (l *lacking) answer(rows []Written, answers []Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range rows {
		if is, has := l.all[planName{rows[i].Request.Type, rows[i].Request.Version}]; has && now.Before(is.until) {
			answers[i].Err = is.why
		}
	}
}

// note notes an answer of the door.
func (l *lacking) note(f *submit.Form, refused *Refusal) {
	if refused == nil || !ofPlan(refused) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.all == nil {
		l.all = map[planName]lack{}
	}
	maps.DeleteFunc(l.all, func(_ planName, is lack) bool { return !now.Before(is.until) })
	l.all[planName{f.Type, f.Version}] = lack{refused, now.Add(relayAgain)}
}

// ofNow are the causes of final refusals that the same row need not have met before: it was in time, or its plan another.
var ofNow = []int{causeCompleteByPast, causeNoTime, causeDeprecated, CauseInputSchema, CauseInputSize}

// mayBeTask reports whether a row that is refused for good may be a task: a relay that died had it stored before.
func (r *Relay) mayBeTask(refused *Refusal) bool {
	return r.cfg.Existing != nil && refused != nil && slices.Contains(ofNow, refused.ErrCode)
}

// look decides about rows that are refused for good and may be tasks. No relay has them stored meanwhile, as they are locked. left
// are those of which that is not known soon: the store does not answer, or the owner has not read so far.
func (r *Relay) look(ctx context.Context, rows []Written, answers []Answer, unsure []int) (verdicts []Verdict, left []int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), relayLookMax)
	defer cancel()
	for began := time.Now(); ; {
		ids := make([]string, len(unsure))
		for k, i := range unsure {
			ids[k] = rows[i].Request.ID
		}
		unread, err := r.cfg.Unread(ctx, ids, began) // before it is looked what is there
		if err != nil {
			return verdicts, unsure
		}
		unsure = slices.DeleteFunc(unsure, func(i int) bool {
			w := &rows[i]
			if unread[w.Request.ID] {
				return false
			}
			task, err := r.cfg.Existing(ctx, w.Request.ID)
			switch {
			case err != nil:
				return false
			case task != nil && Differs(w.Request.ID, w.Request.Type, task.Type, w.Request.Input, task.InputHash) == nil:
				r.relayed.Add(1)
				verdicts = append(verdicts, Verdict{Row: w.Row})
			default:
				verdicts = append(verdicts, *r.kept(w, answers[i].Err))
			}
			return true
		})
		if len(unsure) == 0 || pause.For(ctx, relayLookAgain) != nil {
			return verdicts, unsure
		}
	}
}

// relayLate is how old the oldest waiting row may be before that is a trouble.
const relayLate = 30 * time.Second

// Standing shows how an outbox does.
type Standing struct {
	Waiting int64 // rows to relay
	Oldest  time.Duration
	Refused int64 // rows that are kept
	// First tells of the first refused row.
	First string
}

// Trouble is what an operator should know is wrong; nil: nothing.
func (s Standing) Trouble() error {
	switch {
	case s.Refused > 0:
		return fmt.Errorf("%d submissions are refused; the first: %s", s.Refused, s.First)
	case s.Oldest > relayLate:
		return fmt.Errorf("%d submissions wait to be relayed, the first for %v", s.Waiting, s.Oldest.Round(time.Second))
	}
	return nil
}
