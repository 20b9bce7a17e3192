// Package live is the one reader of a process for everything that is shown live: the first screen and the samples of
// its plots. It reads while something listens, never more often than its interval and never more for many listeners
// than for one. While nothing is committed it only looks, by one query, whether that is still so.
package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
)

// The defaults of Config, and what bounds the reader.
const (
	defaultInterval = 2 * time.Second
	defaultReadMax  = 30 * time.Second // nobody who asks waits that long: see Current
	DefaultRisk     = 5 * time.Minute
	ringFor         = 10 * time.Minute // of samples are kept
	intervalMax     = time.Minute
	// idleShare is how many times as long as a read takes the reader waits at least before the next: a database that
	// answers slowly is asked seldom.
	idleShare   = 50
	newestMax   = 500 // endings of which a sample takes its percentiles
	runningMax  = 20  // operations of the first screen
	riskMax     = operate.ListMax
	countsExact = operate.CountExactMax

	// While the mark stays the same, what changes by itself is read so often: deadlines that come nearer and agents that
	// go, of which each need says when it was looked at; and so often what is forgotten, by reading everything.
	restEvery  = 30 * time.Second
	wholeEvery = 5 * time.Minute
	// Those who listen are told so often that nothing has changed.
	tellEvery = 10 * time.Second
)

// Reader is what of the state store is read.
type Reader interface {
	CountsUpTo(ctx context.Context, most int) ([]core.Count, error)
	Groups(ctx context.Context, f operate.GroupFilter) (operate.Groups, error)
	AtRisk(ctx context.Context, before core.Instant, limit int) (tasks []core.View, more bool, err error)
	Sample(ctx context.Context, newest int) (operate.Sample, error)
	Signals(ctx context.Context, near core.Instant, next int) (operate.Signals, error)
}

// Running reads the operations that are not over.
type Running interface {
	Operations(ctx context.Context, states []operate.OperationState, limit int, after string) (ops []operate.Operation, next string, err error)
}

// Config is what is read and how often. Zero numbers take their defaults.
type Config struct {
	Reader     Reader                   // required
	Operations Running                  // nil: none are shown
	Agents     operate.Agents           // nil: none are shown
	Pauses     operate.PauseControl     // nil: none are shown
	Limits     operate.LimitControl     // nil: none are shown
	Troubles   func() []operate.Trouble // of this node; nil: none are shown
	// Mark tells by one cheap query whether something was committed: its text is then another one. nil: all is read each time.
	Mark     func(context.Context) (string, error)
	Interval time.Duration // between two reads, at least
	ReadMax  time.Duration // of one read
	Risk     time.Duration // a task whose deadline is nearer than that is at risk
	Now      func() time.Time
	Log      *slog.Logger // required
}

// Snapshot is what was read last.
type Snapshot struct {
	Overview operate.Overview `json:"overview"`
	Sample   operate.Sample   `json:"sample"`
	// Trouble says why the newest read failed; what stands beside it is then as old as its time says.
	Trouble string `json:"trouble,omitempty"`
	// Counts are those of the overview by type, too.
	Counts []core.Count `json:"-"`
}

// seen is what the read before says of the next one.
type seen struct {
	mark  string    // "": everything is read
	whole time.Time // when everything was read
	rest  time.Time // when deadlines and agents were

	groups operate.Groups
	moves  []operate.Need // that change without a commit
}

// Live is the reader. It is safe for concurrent use.
type Live struct {
	cfg    Config
	wanted chan struct{} // something listens now

	seen seen // of the one read that is under way

	mu       sync.Mutex
	reading  chan struct{}      // closed when the read that is under way is over; nil: none is
	cancel   context.CancelFunc // of that read
	ended    bool               // no read begins any more
	last     Snapshot
	lastTry  time.Time     // when a read ended
	lastTook time.Duration // of it
	lastTold time.Time     // when those who listen were told
	owed     bool          // one who listens has been told nothing yet
	ring     []operate.Sample
	readers  map[chan Snapshot]struct{}
}

// New makes a reader that reads nothing until something listens or asks.
func New(cfg Config) *Live {
	cfg.Interval = cmp.Or(cfg.Interval, defaultInterval)
	cfg.ReadMax = cmp.Or(cfg.ReadMax, defaultReadMax)
	cfg.Risk = cmp.Or(cfg.Risk, DefaultRisk)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Live{cfg: cfg, wanted: make(chan struct{}, 1), readers: map[chan Snapshot]struct{}{}}
}

// Run reads for those who listen until ctx ends. It returns when no read is under way; none begins after that.
func (l *Live) Run(ctx context.Context) error {
	defer l.end()
	for {
		for l.listened() {
			l.mu.Lock()
			over := l.begin()
			l.mu.Unlock()
			select {
			case <-over:
			case <-ctx.Done():
				return nil
			}
			if pause.For(ctx, l.wait()) != nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wanted:
		}
	}
}

// wait is how long to wait after the read that ended last.
func (l *Live) wait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(intervalMax, max(l.cfg.Interval, idleShare*l.lastTook))
}

func (l *Live) listened() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.readers) > 0
}

// Subscribe gives what is read from now on, beginning with what was read last if that is not old, until ctx ends; the
// channel is closed then. A listener that is slow misses what is not the newest, and holds nothing up. Run must run.
func (l *Live) Subscribe(ctx context.Context) <-chan Snapshot {
	c := make(chan Snapshot, 1)
	l.mu.Lock()
	l.readers[c] = struct{}{}
	if l.fresh() {
		c <- l.last
	} else {
		l.owed = true
	}
	l.mu.Unlock()
	select {
	case l.wanted <- struct{}{}:
	default: // Run has yet to see the last one
	}
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.readers, c)
		close(c)
	})
	return c
}

// fresh reports whether what was read last is young enough to stand for a read; mu is held.
func (l *Live) fresh() bool {
	return !l.lastTry.IsZero() && l.cfg.Now().Sub(l.lastTry) < max(l.cfg.Interval, min(intervalMax, idleShare*l.lastTook))
}

// Current is what was read last, read now if that is too old. All who ask at a time share one read, which goes on when
// the time of who asked is over: they have what was read before, with a Trouble, and the next one has what it finds.
// Error: that nothing was ever read.
func (l *Live) Current(ctx context.Context) (Snapshot, error) {
	l.mu.Lock()
	if !l.fresh() {
		over := l.begin()
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	s := l.last
	l.mu.Unlock()
	if ctx.Err() != nil {
		s.Trouble = cmp.Or(s.Trouble, "the state store has not answered yet")
	}
	if s.Overview.At.IsZero() {
		return s, fmt.Errorf("overview: %s", cmp.Or(s.Trouble, "the node ends"))
	}
	return s, nil
}

// Samples are those of the last ringFor, the oldest first.
func (l *Live) Samples() []operate.Sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ring)
}

// begin begins a read, unless one is under way, and gives what is closed when it is over; mu is held.
func (l *Live) begin() <-chan struct{} {
	if l.ended {
		over := make(chan struct{})
		close(over)
		return over
	}
	if l.reading == nil {
		var ctx context.Context
		l.reading = make(chan struct{})
		ctx, l.cancel = context.WithTimeout(context.Background(), l.cfg.ReadMax)
		go l.read(ctx)
	}
	return l.reading
}

// end ends the read that is under way.
func (l *Live) end() {
	l.mu.Lock()
	l.ended = true
	over := l.reading
	if over != nil {
		l.cancel()
	}
	l.mu.Unlock()
	if over != nil {
		<-over
	}
}

// read reads once, and tells those who listen what is new.
func (l *Live) read(ctx context.Context) {
	began := l.cfg.Now()
	next, how, err := l.look(ctx, began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	close(l.reading)
	l.reading = nil
	if l.ended {
		return // a read that was cut off says nothing of the store
	}
	next.Sample.Gap = !l.lastTry.IsZero() && began.Sub(l.lastTry) > 2*max(l.cfg.Interval, min(intervalMax, idleShare*l.lastTook))
	l.lastTry = l.cfg.Now()
	l.lastTook = l.lastTry.Sub(began)
	if err != nil {
		l.seen = seen{}
		if l.last.Trouble == "" {
			l.cfg.Log.Warn("the overview could not be read", "error", err)
		}
		l.last.Trouble = "the state store could not be read"
	} else {
		l.last = next
		l.keep(next.Sample)
		if how == readMark && !l.owed && began.Sub(l.lastTold) < tellEvery {
			return
		}
	}
	l.owed, l.lastTold = false, began
	for c := range l.readers {
		select {
		case <-c: // the one before was not taken
		default:
		}
		c <- l.last
	}
}

// keep adds a sample and drops what is too old; mu is held.
func (l *Live) keep(s operate.Sample) {
	old := 0
	for old < len(l.ring) && s.At.Sub(l.ring[old].At) > ringFor {
		old++
	}
	l.ring = append(slices.Delete(l.ring, 0, old), s)
	if most := int(ringFor/l.cfg.Interval) + 1; len(l.ring) > most {
		l.ring = slices.Delete(l.ring, 0, len(l.ring)-most)
	}
}

// how much a read has read.
type how int

const (
	readMark how = iota // the mark alone: it is the same
	readRest            // what changes without a commit, too
	readAll
)

// look reads what may have changed.
func (l *Live) look(ctx context.Context, now time.Time) (Snapshot, how, error) {
	mark := ""
	if l.cfg.Mark != nil {
		var err error
		if mark, err = l.cfg.Mark(ctx); err != nil {
			return Snapshot{}, readAll, err
		}
	}
	if mark == "" || mark != l.seen.mark || now.Sub(l.seen.whole) >= wholeEvery {
		next, err := l.everything(ctx, now, mark)
		return next, readAll, err
	}
	// What was read before holds now, too.
	l.mu.Lock()
	next := l.last
	l.mu.Unlock()
	before := next.Overview.Troubles
	o := &next.Overview
	o.At, next.Sample.At, o.Troubles = now, now, l.troubles()
	read := readMark
	if now.Sub(l.seen.rest) >= restEvery {
		var err error
		if l.seen.moves, err = l.rest(ctx, o, now); err != nil {
			return next, readRest, err
		}
		l.seen.rest, read = now, readRest
	}
	if !slices.Equal(before, o.Troubles) {
		read = readRest
	}
	o.Needs = l.needs(o)
	return next, read, nil
}

// needs are what wants an operator, as far as it was read.
func (l *Live) needs(o *operate.Overview) []operate.Need {
	all := slices.Concat([]operate.Need{}, operate.TroubleNeeds(o.At, o.Troubles), operate.ErrorNeeds(o.At, l.seen.groups), operate.OperationNeeds(o.At, o.Operations), l.seen.moves)
	operate.SortNeeds(all)
	return all
}

// everything reads everything once, of that mark.
func (l *Live) everything(ctx context.Context, now time.Time, mark string) (Snapshot, error) {
	o := operate.Overview{At: now, Operations: []operate.Operation{}, Troubles: l.troubles(), Counts: []operate.StateCount{}}
	sample, err := l.cfg.Reader.Sample(ctx, newestMax)
	if err != nil {
		return Snapshot{}, err
	}
	if sample.At.IsZero() {
		sample.At = now
	}
	counts, err := l.cfg.Reader.CountsUpTo(ctx, countsExact)
	if err != nil {
		return Snapshot{}, err
	}
	o.Counts = byState(counts)
	groups, err := l.cfg.Reader.Groups(ctx, operate.GroupFilter{State: core.StateError, Limit: operate.NeedLinesMax, Largest: true})
	if err != nil {
		return Snapshot{}, err
	}
	o.Errors, o.Groups = groups.Tasks, groups.All
	for i := range o.Counts {
		switch c := &o.Counts[i]; {
		case c.State == core.StateError && !groups.All.AtLeast:
			c.Tasks = o.Errors // counted at one time, so that the screen has one number
		case !c.State.Ended():
			sample.Backlog = sample.Backlog.Add(c.Tasks)
		}
	}
	if l.cfg.Operations != nil {
		ops, more, err := l.cfg.Operations.Operations(ctx, []operate.OperationState{operate.OperationBraked, operate.OperationPaused, operate.OperationRunning}, runningMax, "")
		if err != nil {
			return Snapshot{}, err
		}
		o.Operations, o.OperationsMore = append(o.Operations, ops...), more != ""
	}
	moves, err := l.rest(ctx, &o, now)
	if err != nil {
		return Snapshot{}, err
	}
	l.seen = seen{mark, now, now, groups, moves}
	o.Needs = l.needs(&o)
	return Snapshot{Overview: o, Sample: sample, Counts: counts}, nil
}

// rest reads what changes without a commit, and gives what of it wants an operator.
func (l *Live) rest(ctx context.Context, o *operate.Overview, now time.Time) (needs []operate.Need, err error) {
	o.AtRisk, o.Signals = operate.Count{}, operate.Signals{Next: []operate.OpenSignal{}}
	if slices.ContainsFunc(o.Counts, func(c operate.StateCount) bool { return !c.State.Ended() }) {
		risky, more, err := l.cfg.Reader.AtRisk(ctx, core.InstantOf(now.Add(l.cfg.Risk)), riskMax)
		if err != nil {
			return nil, err
		}
		if o.Signals, err = l.cfg.Reader.Signals(ctx, core.InstantOf(now.Add(l.cfg.Risk)), operate.NeedLinesMax); err != nil {
			return nil, err
		}
		o.AtRisk = operate.Count{N: int64(len(risky)), AtLeast: more}
		needs = append(operate.DeadlineNeeds(now, l.cfg.Risk, risky, more), operate.AnswerNeeds(now, l.cfg.Risk, &o.Signals)...)
	}
	var agents []operate.Agent
	var pauses []operate.PauseView
	var limits []operate.Limit
	if l.cfg.Agents != nil {
		if agents, err = l.cfg.Agents.Agents(ctx); err != nil {
			return nil, err
		}
	}
	if l.cfg.Pauses != nil {
		if pauses, err = l.cfg.Pauses.Pauses(ctx); err != nil {
			return nil, err
		}
	}
	if l.cfg.Limits != nil {
		if limits, err = l.cfg.Limits.Limits(ctx); err != nil {
			return nil, err
		}
	}
	return append(needs, operate.FlowNeeds(now, agents, pauses, limits)...), nil
}

// troubles are those of this node, which cost no query.
func (l *Live) troubles() []operate.Trouble {
	if l.cfg.Troubles == nil {
		return []operate.Trouble{}
	}
	return append([]operate.Trouble{}, l.cfg.Troubles()...)
}

// byState adds up the types of each state.
func byState(counts []core.Count) []operate.StateCount {
	all := []operate.StateCount{}
	for _, c := range counts {
		i := slices.IndexFunc(all, func(s operate.StateCount) bool { return s.State == c.State })
		if i < 0 {
			all, i = append(all, operate.StateCount{State: c.State}), len(all)
		}
		all[i].Tasks = all[i].Tasks.Plus(operate.Count{N: c.Tasks, AtLeast: c.AtLeast})
	}
	return all
}
