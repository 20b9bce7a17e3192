package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of Config.
const (
	defaultScanMax    = 1000
	defaultMessageMax = 1000
	defaultSlack      = 100 * time.Millisecond
	defaultAskAgain   = 30 * time.Second
	defaultActor      = "supervisor"
)

// Config is how a supervisor works. Zero fields take their defaults.
type Config struct {
	ScanMax    int           // rows read in one tick at most
	MessageMax int           // tasks one message asks about at most, one message per partition and tick
	Slack      time.Duration // how long after its bound a task is asked about: clocks differ, and an owner refuses what comes early
	AskAgain   time.Duration // after it a partition is asked again though it has not read the last message
	Actor      string        // who the journal names
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	c.ScanMax = cmp.Or(c.ScanMax, defaultScanMax)
	c.MessageMax = cmp.Or(c.MessageMax, defaultMessageMax)
	c.Slack = cmp.Or(c.Slack, defaultSlack)
	c.AskAgain = cmp.Or(c.AskAgain, defaultAskAgain)
	c.Actor = cmp.Or(c.Actor, defaultActor)
	return c
}

// Report says what one tick did.
type Report struct {
	Held     bool // this supervisor leads
	Read     int  // rows read
	Asked    int  // tasks asked about
	Messages int  // messages stored
	Unread   int  // partitions left out because they have yet to read their last message
	Full     bool // there was more than one tick may read or ask
}

// Supervisor looks for what is overdue. It is not safe for concurrent use.
type Supervisor struct {
	cfg   Config
	store Store
	bus   Bus
	lease Lease

	places map[int]*place
	next   int // partition the next scan begins with

	since   core.Instant // no row has an earlier bound, as far as the last walk has seen
	wholeAt core.Instant // the last walk from the beginning
}

// place is what the supervisor remembers of one partition. All of it may be
// lost: asking again is harmless.
type place struct {
	asked   uint64 // position of our last message; 0: none that we know of
	askedAt core.Instant
	unread  bool         // as of this tick
	resume  core.Due     // where the next scan of it begins; zero: at its beginning
	first   core.Instant // bound of the first row, as of the last look at its beginning; 0: there was none
	found   []core.Due   // in this tick
}

// New makes a supervisor. It does nothing until Tick.
func New(cfg Config, store Store, bus Bus, lease Lease) *Supervisor {
	return &Supervisor{cfg: cfg.WithDefaults(), store: store, bus: bus, lease: lease, places: map[int]*place{}}
}

// Tick renews the lease and, if it is held, scans once and asks. An error leaves
// nothing undone that the next tick does not do again.
func (s *Supervisor) Tick(ctx context.Context, now core.Instant) (Report, error) {
	var rep Report
	held, err := s.lease.Renew(ctx)
	if err != nil {
		return rep, fmt.Errorf("renew the lease: %w", err)
	}
	if rep.Held = held; !held {
		return rep, nil
	}
	cursors, err := s.store.Cursors(ctx)
	if err != nil {
		return rep, fmt.Errorf("read the partitions: %w", err)
	}
	s.look(cursors, now, &rep)
	// What was found before an error is asked all the same.
	scanErr := s.scan(ctx, now, &rep)
	return rep, errors.Join(scanErr, s.ask(ctx, now, &rep))
}

// look sees which partitions have read what they were asked. One that has not
// is left alone, or requests would pile up before a partition without an owner;
// but not for ever, because positions start again at 1 when a stream is lost.
func (s *Supervisor) look(cursors []core.PartitionState, now core.Instant, rep *Report) {
	for _, c := range cursors {
		p := s.place(c.Partition)
		p.unread = p.asked > c.ControlCursor && !p.askedAt.Elapsed(now, s.cfg.AskAgain)
		if p.unread {
			rep.Unread++
		}
	}
}

func (s *Supervisor) place(partition int) *place {
	p := s.places[partition]
	if p == nil {
		p = &place{}
		s.places[partition] = p
	}
	return p
}

// ask sends each partition the tasks that were found.
func (s *Supervisor) ask(ctx context.Context, now core.Instant, rep *Report) error {
	var failed error
	for _, partition := range s.found() {
		p := s.places[partition]
		c := core.Control{Kind: core.EventOverdue, Actor: s.cfg.Actor}
		for _, d := range p.found {
			c.Numbers, c.Steps = append(c.Numbers, d.Number), append(c.Steps, d.Step)
		}
		seq, err := s.bus.Ask(ctx, partition, c)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("ask partition %d about %d tasks: %w", partition, len(p.found), err))
			p.resume = core.Due{}
		} else {
			p.asked, p.askedAt = seq, now
			rep.Messages++
			rep.Asked += len(p.found)
		}
		p.found = p.found[:0]
	}
	return failed
}

// found is the partitions with something to ask, in order.
func (s *Supervisor) found() []int {
	var all []int
	for partition, p := range s.places {
		if len(p.found) > 0 {
			all = append(all, partition)
		}
	}
	slices.Sort(all)
	return all
}

// Resign gives the lease up.
func (s *Supervisor) Resign(ctx context.Context) error {
	if err := s.lease.Release(ctx); err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}
