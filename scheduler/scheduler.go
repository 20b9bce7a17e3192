package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Scheduler is the role: it decides which partitions this node takes over, and runs their shards.
type Scheduler struct {
	shared
	members    Members
	committers []*Committer
	// pausesKick asks for the pauses to be read.
	pausesKick signal
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
	s := &Scheduler{
		shared: shared{
			cfg: cfg, store: store, wires: wires, log: log, placement: newPlacement(), news: newNews(),
			breakers: newBreakers(), limits: newLimits(cfg.Shards),
		},
		members: members, pausesKick: newSignal(),
	}
	for i := range cfg.Shards {
		s.committers = append(s.committers, newCommitter(&s.shared, i, bus))
	}
	return s
}

// Committers returns the loops of the node's shards. Run drives them; a caller that does not use Run does so
// itself.
func (s *Scheduler) Committers() []*Committer { return s.committers }

// of returns the committer that a partition belongs to.
func (s *Scheduler) of(partition int) *Committer { return s.committers[partition%len(s.committers)] }

// Overloaded reports whether the node is too slow even for the smallest window; see Admission.
func (s *Scheduler) Overloaded() bool { return s.cfg.Admission.Overloaded() }

// PlansChanged makes every shard read the plans again.
func (s *Scheduler) PlansChanged() {
	for _, c := range s.committers {
		c.in.PlansChanged()
	}
}

// Owned returns how many partitions this node holds now.
func (s *Scheduler) Owned() int {
	n := 0
	for _, c := range s.committers {
		n += len(c.ownerships())
	}
	return n
}

// Readings returns how far this node is with the task streams of its partitions, as of the newest commit
// cycles.
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

// Full reports whether a partition is not read because it, or the node, has as much in flight as it may.
func (s *Scheduler) Full(partition int) bool { return s.of(partition).in.full(partition) }

// Waits reports whether requests are deferred in a partition held here, so that its control cursor does not
// move.
func (s *Scheduler) Waits(partition int) bool {
	c := s.of(partition)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.held[partition]
	return o != nil && o.waits
}

// PausesChanged makes the scheduler read the pauses again soon. It is safe for concurrent use.
func (s *Scheduler) PausesChanged() {
	s.pausesKick.set()
}

// SetPauses replaces the pauses that all shards know of. It is safe for concurrent use.
func (s *Scheduler) SetPauses(pauses []core.Pause) {
	for _, c := range s.committers {
		c.in.Pauses(pauses)
	}
}

// pausesDuty reads the pauses and tells the shards when they have changed.
func (s *Scheduler) pausesDuty() duty {
	var known *[]core.Pause
	return duty{trouble: TroublePauses, kick: s.pausesKick, every: func() time.Duration { return PausesEvery }, run: func(ctx context.Context) error {
		pauses, err := s.cfg.Pauses(ctx)
		if err == nil && (known == nil || !slices.Equal(pauses, *known)) {
			known = &pauses
			s.SetPauses(pauses)
		}
		return err
	}}
}

// Snapshot returns the counts as of the newest commit cycles. It is safe for concurrent use.
func (s *Scheduler) Snapshot() Snapshot {
	a := s.cfg.Admission
	all := Snapshot{InFlight: a.InFlight(), Window: a.Window(), Overloaded: a.Overloaded(), Memory: s.cfg.Memory.Used(), Openings: s.breakers.openings.Load()}
	away := map[string]*Away{}
	for _, c := range s.committers {
		c.mu.Lock()
		all.Stats.add(&c.stats)
		for i, n := range c.cycles.Counts {
			all.Cycles.Counts[i] += n
		}
		all.Cycles.Sum += c.cycles.Sum
		for p, o := range c.held {
			if o.epoch != 0 {
				all.Owned = append(all.Owned, p)
			}
		}
		for _, one := range c.away {
			if had := away[one.Agent]; had != nil {
				had.Tasks, had.Since = had.Tasks+one.Tasks, min(had.Since, one.Since)
				for _, step := range one.Steps {
					had.add(step, one.First)
				}
				continue
			}
			one.Steps = slices.Clone(one.Steps)
			away[one.Agent] = &one
		}
		c.mu.Unlock()
		c.shard.tally.read(&all)
	}
	slices.Sort(all.Owned)
	for _, one := range away {
		all.Away = append(all.Away, *one)
	}
	slices.SortFunc(all.Away, func(x, y Away) int { return cmp.Compare(x.Agent, y.Agent) })
	return all
}
