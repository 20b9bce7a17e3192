package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
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

// Members tells who lives.
type Members interface {
	// Watch calls live with the names of the live nodes, first the present ones
	// and then at each change, until ctx ends.
	Watch(ctx context.Context, live func(nodes []string)) error
}

// RunConfig is what the shell around the shards needs.
type RunConfig struct {
	Config
	Partitions  int
	Shards      int           // committers; few are better: batches shrink with more
	DrainMax    time.Duration // how long a stop waits for commands that are out; negative: not at all
	HandoverMax time.Duration // how long to wait for a live predecessor to let go
	// CommitGap is the least time from one commit of several tasks to the next of a
	// committer, while answers are missing. Committers that turn together rest for it
	// divided by their number. Negative: none, and each turns by itself.
	CommitGap time.Duration
	// Flooded reports whether submissions come faster than this process takes them
	// in. Meanwhile the node takes up new tasks only until it has FloodInFlight in
	// hand: those that have begun go on, and what is not begun waits in the stream as
	// well as here. And its committers rest between commits: the processors are the
	// door's then. nil: never.
	Flooded       func() bool
	FloodInFlight int           // of all partitions of the node together, in equal parts; InFlight binds as well
	FloodGap      time.Duration // least time from one commit to the next of a committer meanwhile; negative: as at any time
	// TurnMax is how long a turn of a committer may take. Longer ones mean that what is
	// in hand is more than this machine does in good time, and steps would run out of
	// theirs in a queue here: fewer new tasks are taken up until turns are short again,
	// at least a sixteenth of InFlight. Negative: turns may take any time.
	TurnMax    time.Duration
	FlushEvery time.Duration // how long a moved cursor may wait for a commit to ride on
	Retain     Retention
	Rand       func() float64 // safe for use by several goroutines
}

// The defaults of RunConfig.
const (
	DefaultShards      = 2
	DefaultDrainMax    = 5 * time.Second
	DefaultHandoverMax = 10 * time.Second
	DefaultFlushEvery  = 200 * time.Millisecond
	DefaultCommitGap   = 10 * time.Millisecond
	DefaultTurnMax     = 150 * time.Millisecond
	DefaultFloodGap    = 150 * time.Millisecond
	// DefaultFloodInFlight is for each processor that the program may use: with
	// DefaultFloodGap some thousand tasks a second, a fifth of what it could do.
	DefaultFloodInFlight = 768
	retakeAfter          = 500 * time.Millisecond
	// compareEvery is how often an owner without commits looks whether the database is
	// still the one it left.
	compareEvery = 2 * time.Second
)

// Scheduler is the role: it owns the partitions that fall to this node among
// the live ones, and runs their shards.
type Scheduler struct {
	cfg     RunConfig
	store   RunStore
	wires   Wires
	members Members
	log     *slog.Logger
	runners []*runner
	lead    lead
	news    *news

	mu     sync.Mutex
	live   []string
	owners []string  // whose each partition is to be, of the live ones
	moved  time.Time // when the live nodes last changed
	change chan struct{}

	compared time.Time // when the store was last held to what this node holds; place's alone
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
	orInt(&cfg.Shards, DefaultShards)
	orInt(&cfg.FloodInFlight, DefaultFloodInFlight*runtime.GOMAXPROCS(0))
	cfg.Shards = min(cfg.Shards, cfg.Partitions)
	for _, d := range []struct {
		of  *time.Duration
		def time.Duration
	}{{&cfg.DrainMax, DefaultDrainMax}, {&cfg.HandoverMax, DefaultHandoverMax}, {&cfg.FlushEvery, DefaultFlushEvery}, {&cfg.CommitGap, DefaultCommitGap}, {&cfg.FloodGap, DefaultFloodGap}, {&cfg.TurnMax, DefaultTurnMax}} {
		if *d.of == 0 {
			*d.of = d.def
		}
	}
	s := &Scheduler{cfg: cfg, store: store, wires: wires, members: members, log: log, change: make(chan struct{}, 1), news: newNews(), lead: lead{free: newLock()}}
	for range cfg.Shards {
		s.runners = append(s.runners, newRunner(s, bus))
	}
	return s
}

// PlansChanged makes every shard read the plans again.
func (s *Scheduler) PlansChanged() {
	for _, r := range s.runners {
		r.in.PlansChanged()
	}
}

// Owned is how many partitions this node holds now.
func (s *Scheduler) Owned() int {
	n := 0
	for _, r := range s.runners {
		n += int(r.owned.Load())
	}
	return n
}

// Run owns and serves partitions until ctx ends, then drains: it takes no new
// work, waits up to DrainMax for the commands that are out, commits and lets its
// partitions go. It returns early only on a bug (core.ErrForeignRow).
func (s *Scheduler) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, r := range s.runners {
		wg.Go(func() {
			if err := r.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Go(func() {
		if err := s.members.Watch(ctx, s.setLive); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the live nodes: %w", err))
		}
	})
	wg.Go(func() {
		if err := s.wires.Evidence(ctx, s.heard); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("watch the evidence of commits: %w", err))
		}
	})
	wg.Go(func() { s.purge(ctx) })
	s.place(ctx)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Cause(parent)) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("scheduler %s: %w", s.cfg.Node, err)
	}
	return nil
}

// heard lets a partition go that another owner has recorded under a higher epoch. An
// owner that does not know its successor could otherwise go on where the database
// fails over to a copy from before the takeover.
func (s *Scheduler) heard(e core.Evidence) {
	if e.Partition < 0 || e.Partition >= s.cfg.Partitions {
		return
	}
	r := s.runners[e.Partition%len(s.runners)]
	epoch, ok := r.epoch(e.Partition)
	if ok && (epoch < e.Epoch || e.Former && e.Epoch < epoch) {
		r.lose(order{partition: e.Partition, lost: true, epoch: epoch, why: errSuccessor, evidence: e})
	}
}

// errSuccessor is why a partition is given up whose row is not as this node left it.
var errSuccessor = errors.New("another node has taken it over, or the database went back")

func (s *Scheduler) setLive(nodes []string) {
	s.mu.Lock()
	before, first := s.live, s.moved.IsZero()
	s.live, s.owners, s.moved = nodes, Place(nodes, s.cfg.Partitions), time.Now()
	s.mu.Unlock()
	s.membersChanged(before, nodes, first)
	s.look()
}

// look makes place look at once.
func (s *Scheduler) look() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// place hands partitions to the runners and takes them back, whenever the live
// nodes change and while something is not yet as it should be.
func (s *Scheduler) place(ctx context.Context) {
	tick := time.NewTicker(retakeAfter)
	defer tick.Stop()
	waiting := map[int]time.Time{} // since when a live predecessor is waited for
	for {
		s.placeOnce(ctx, waiting)
		s.tell(s.adopting())
		select {
		case <-ctx.Done():
			s.tell(false)
			return
		case <-s.change:
		case <-tick.C:
		}
	}
}

func (s *Scheduler) placeOnce(ctx context.Context, waiting map[int]time.Time) {
	s.mu.Lock()
	live, owners, moved := s.live, s.owners, s.moved
	s.mu.Unlock()
	for _, r := range s.runners {
		for _, o := range r.takeLosses() {
			r.ask(ctx, o)
		}
	}
	// Whoever is not among the live takes nothing, and lets nothing go: if others
	// are, they do not wait for it, and its next commit is fenced; if nobody is, as
	// when the server was away for longer than a lease, it would stop for nothing.
	if !slices.Contains(live, s.cfg.Node) {
		return
	}
	var wanted []int
	letGo := make([][]int, len(s.runners)) // together: their drains take as long as the longest
	for p, owner := range owners {
		i := p % len(s.runners)
		switch mine, held := owner == s.cfg.Node, s.runners[i].holds(p); {
		case mine && !held:
			wanted = append(wanted, p)
		case !mine && held:
			letGo[i] = append(letGo[i], p)
		}
	}
	for i, r := range s.runners {
		if len(letGo[i]) > 0 {
			r.ask(ctx, order{letGo: letGo[i]})
		}
	}
	maps.DeleteFunc(waiting, func(p int, _ time.Time) bool { return !slices.Contains(wanted, p) })
	if err, changed := s.news.only(func(p int) bool { return owners[p] == s.cfg.Node }); changed {
		s.cfg.report(TroubleTakeover, err)
	}
	// HandoverMax has elapsed, so no handover can be pending.
	if len(wanted) == 0 && time.Since(moved) > s.cfg.HandoverMax && time.Since(s.compared) < compareEvery {
		return
	}
	s.compared = time.Now()
	noted := s.noted() // before the store is read: it may be ahead of this, never behind
	states, err := s.store.Cursors(ctx)
	s.reportUnlessEnded(ctx, TroubleOwners, err)
	if err != nil {
		return
	}
	s.compare(ctx, owners, states, noted)
	for _, p := range s.free(states, wanted, live, waiting) {
		if i := slices.IndexFunc(states, func(st core.PartitionState) bool { return st.Partition == p }); i >= 0 {
			s.news.about(p, states[i].Owner)
		}
		s.runners[p%len(s.runners)].ask(ctx, order{partition: p, adopt: true})
	}
}

// noted is the last commit of each partition that this node holds.
func (s *Scheduler) noted() map[int]int64 {
	all := map[int]int64{}
	for _, r := range s.runners {
		r.mu.Lock()
		maps.Copy(all, r.noted)
		r.mu.Unlock()
	}
	return all
}

// falls reports whether a partition is to be this node's, as the live nodes are now.
func (s *Scheduler) falls(p int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p < len(s.owners) && s.owners[p] == s.cfg.Node
}

// compare holds what the store says to what this node holds. Partitions that it
// holds and that have been taken over meanwhile, or whose last commit the store does not
// have, are let go: without mail no commit would tell. Partitions of others that are this node's by name only are
// released, because whose they are now would wait for it: an earlier life of it
// had them when it died, or a turn that failed let them go.
func (s *Scheduler) compare(ctx context.Context, owners []string, states []core.PartitionState, noted map[int]int64) {
	var failed error
	for _, st := range states {
		p := st.Partition
		if p >= len(owners) {
			continue
		}
		r := s.runners[p%len(s.runners)]
		if epoch, ok := r.epoch(p); ok && (epoch != st.Epoch || st.LastCommit < noted[p]) {
			r.ask(ctx, order{partition: p, lost: true, epoch: epoch, why: errSuccessor})
		} else if ok && st.LastCommit > r.last(p) { // this owner's own, of the turn that is on, or that of another of this epoch
			r.ask(ctx, order{partition: p, lost: true, epoch: epoch, commit: st.LastCommit, why: errSuccessor})
		}
		if st.Owner != s.cfg.Node || owners[p] == s.cfg.Node || r.holds(p) {
			continue
		}
		if err := s.store.Release(ctx, p, st.Epoch); err != nil && failed == nil {
			failed = fmt.Errorf("partition %d: %w", p, err)
		}
	}
	s.reportUnlessEnded(ctx, TroubleRelease, failed)
}

// free leaves out the partitions that a live node still holds and is about to
// let go, for HandoverMax at most: a planned handover drains first.
func (s *Scheduler) free(states []core.PartitionState, wanted []int, live []string, waiting map[int]time.Time) []int {
	holder := map[int]string{}
	for _, st := range states {
		holder[st.Partition] = st.Owner
	}
	alive := map[string]bool{}
	for _, n := range live {
		alive[n] = n != s.cfg.Node
	}
	free := wanted[:0]
	for _, p := range wanted {
		if !alive[holder[p]] {
			free = append(free, p)
			continue
		}
		since, ok := waiting[p]
		if !ok {
			waiting[p] = time.Now()
			continue
		}
		if time.Since(since) > s.cfg.HandoverMax {
			free = append(free, p)
		}
	}
	return free
}
