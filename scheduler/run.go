package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Wires brings the mail of one partition to an inbox.
type Wires interface {
	// Listen subscribes to the replies of the partition's commands.
	Listen(partition int, in *Inbox) (stop func(), err error)
	// Read reads the partition's tasks and controls from where the adoption
	// says. lost is called, from any goroutine, with the reason when reading has
	// become impossible: a successor, another stream, one that went back
	// (ErrRewound, ErrControlRewound).
	Read(ctx context.Context, partition int, from Adopted, in *Inbox, lost func(error)) (stop func(), err error)
	// Ground is what there is of the partition outside the database.
	Ground(ctx context.Context, partition int) (Ground, error)
	// Evidence calls heard with what owners record outside the database, until ctx ends.
	Evidence(ctx context.Context, heard func(core.Evidence)) error
}

// Members knows which nodes live.
type Members interface {
	// Watch calls live with the names of the live nodes, first the present ones
	// and then at each change, until ctx ends.
	Watch(ctx context.Context, live func(nodes []string)) error
}

// RunConfig is what the shell around the shards needs.
type RunConfig struct {
	Config
	Partitions  int
	Shards      int           // committers, each with a shard of the partitions; few are better: batches shrink with more
	DrainMax    time.Duration // how long a stop waits for commands that are out; negative: not at all
	HandoverMax time.Duration // how long to wait for a live predecessor to let go
	// CommitGap is the least time from the beginning of a commit cycle that wrote several tasks to that of the
	// committer's next: what arrives meanwhile is one commit. Negative: none.
	CommitGap time.Duration
	// CycleTarget is how long a commit cycle may take before the node takes up fewer new tasks: see [Admission].
	// Negative: cycles may take any time.
	CycleTarget time.Duration
	FlushEvery  time.Duration // how long a moved cursor may wait for a commit to ride on
	Retain      Retention
	// Begins is when the task stream of a partition took the oldest message that it still has, 0 if it has none: no row is
	// forgotten whose submission may still be there, to be read again. known is false while that cannot be said; nil: no
	// submission is read again.
	Begins func(partition int) (at core.Instant, known bool)
	// Pauses reads what operators have paused, up to core.PausesMax; nil: nothing is. Nothing is taken over before it was
	// read once.
	Pauses   func(context.Context) ([]core.Pause, error)
	Breakers BreakerConfig
	Limits   LimitConfig
	// Wishes calls heard with where operators want partitions to be, first with all that there are and then at each
	// change, until ctx ends; nil: there are none.
	Wishes func(ctx context.Context, heard func([]core.Wish)) error
	Rand   func() float64 // safe for use by several goroutines
}

// The defaults of RunConfig.
const (
	DefaultShards      = 2
	DefaultDrainMax    = 5 * time.Second
	DefaultHandoverMax = 10 * time.Second
	DefaultFlushEvery  = 200 * time.Millisecond
	DefaultCommitGap   = 5 * time.Millisecond
	DefaultCycleTarget = 150 * time.Millisecond
)

// Scheduler is the role: it owns the partitions that fall to this node among
// the live ones, and runs their shards.
type Scheduler struct {
	cfg        RunConfig
	store      RunStore
	wires      Wires
	members    Members
	log        *slog.Logger
	committers []*Committer
	placement  placement
	news       *news
	breakers   *breakers
	limits     *limits
	pausesTold signal // the pauses are to be read again
}

// RunStore is what the role as a whole needs of the state store.
type RunStore interface {
	Store
	Purger
}

// New makes a scheduler. It does nothing until Run.
func New(cfg RunConfig, store RunStore, bus Bus, wires Wires, members Members, log *slog.Logger) *Scheduler {
	cfg.Config = cfg.Config.WithDefaults()
	if cfg.IDs == nil {
		cfg.IDs = NewCommitIDs(cfg.Rand)
	}
	cfg.Shards = cmp.Or(cfg.Shards, DefaultShards)
	cfg.Shards = min(cfg.Shards, cfg.Partitions)
	for _, d := range []struct {
		of  *time.Duration
		def time.Duration
	}{{&cfg.DrainMax, DefaultDrainMax}, {&cfg.HandoverMax, DefaultHandoverMax}, {&cfg.FlushEvery, DefaultFlushEvery}, {&cfg.CommitGap, DefaultCommitGap}, {&cfg.CycleTarget, DefaultCycleTarget}} {
		if *d.of == 0 {
			*d.of = d.def
		}
	}
	if cfg.Admission == nil {
		cfg.Admission = NewAdmission(cfg.InFlight, cfg.CycleTarget)
	}
	s := &Scheduler{cfg: cfg, store: store, wires: wires, members: members, log: log, placement: newPlacement(cfg.Partitions), news: newNews(), breakers: newBreakers(), limits: newLimits(cfg.Shards), pausesTold: newSignal()}
	for i := range cfg.Shards {
		s.committers = append(s.committers, newCommitter(s, i, bus))
	}
	return s
}

// Committers are the loops of the node's shards, in the order of the shards. Run drives them; without it their
// caller does.
func (s *Scheduler) Committers() []*Committer { return s.committers }

// of is the committer whose shard a partition falls to.
func (s *Scheduler) of(partition int) *Committer { return s.committers[partition%len(s.committers)] }

// Overloaded reports whether the node takes too long even for the least that it always takes up.
func (s *Scheduler) Overloaded() bool { return s.cfg.Admission.Overloaded() }

// PlansChanged makes every shard read the plans again.
func (s *Scheduler) PlansChanged() {
	for _, c := range s.committers {
		c.in.PlansChanged()
	}
}

// Owned is how many partitions this node holds now.
func (s *Scheduler) Owned() int {
	n := 0
	for _, c := range s.committers {
		n += len(c.ownerships())
	}
	return n
}

// Readings is how far this node is with the task streams of its partitions, as of the newest commit cycles.
func (s *Scheduler) Readings() (all []core.Reading) {
	for _, c := range s.committers {
		for _, o := range c.ownerships() {
			if o.reading.Epoch != 0 {
				all = append(all, o.reading)
			}
		}
	}
	slices.SortFunc(all, func(a, b core.Reading) int { return a.Partition - b.Partition })
	return all
}

// Run owns and serves partitions until ctx ends, then drains: it takes no new
// work, waits up to DrainMax for the commands that are out, commits and lets its
// partitions go. It returns early only on a bug (core.ErrForeignRow).
func (s *Scheduler) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, t := range s.turns() {
		if !s.first(ctx, t) {
			wg.Wait()
			return nil
		}
		wg.Go(func() { s.keep(ctx, t) })
	}
	for _, c := range s.committers {
		wg.Go(func() {
			if err := c.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Go(func() {
		if err := s.members.Watch(ctx, s.SetLive); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the live nodes: %w", err))
		}
	})
	wg.Go(func() {
		if err := s.wires.Evidence(ctx, s.Heard); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the evidence of commits: %w", err))
		}
	})
	if s.cfg.Wishes != nil {
		first := make(chan struct{})
		told := sync.OnceFunc(func() { close(first) })
		wg.Go(func() {
			if err := s.cfg.Wishes(ctx, func(wishes []core.Wish) { s.SetWishes(wishes); told() }); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("watch where partitions are to be: %w", err))
			}
		})
		awaitFirst(ctx, first)
	}
	wg.Go(func() { s.purge(ctx) })
	s.keepPlaced(ctx)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Cause(parent)) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("scheduler %s: %w", s.cfg.Node, err)
	}
	return nil
}

// wishesPatience is how long a scheduler that starts waits for what operators want of the partitions: without it, it would
// take some over that are others', only to let them go.
const wishesPatience = 2 * time.Second

// awaitFirst waits until the wishes were heard once, for wishesPatience at most.
func awaitFirst(ctx context.Context, first <-chan struct{}) {
	timer := time.NewTimer(wishesPatience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-first:
	case <-timer.C:
	}
}
