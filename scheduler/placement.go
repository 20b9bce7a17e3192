package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

const (
	// retakeAfter is how often Reassign runs although the live nodes have not changed.
	retakeAfter = 500 * time.Millisecond
	// compareEvery is how often an owner reads its rows although nothing is to be taken over: without commits nothing else
	// would show it that another has taken over, or that the database went back.
	compareEvery = 2 * time.Second
)

// SetLive takes the names of all live nodes. It is safe for concurrent use.
func (s *Scheduler) SetLive(nodes []string) {
	p := &s.placement
	p.mu.Lock()
	before, first := p.live, p.owners == nil
	p.live = nodes
	s.place()
	p.changed = true
	p.mu.Unlock()
	logMembers(s.log, before, nodes, first)
	p.change.set()
}

// SetWishes takes where operators want partitions to be. It is safe for concurrent use.
func (s *Scheduler) SetWishes(wishes []core.Wish) {
	p := &s.placement
	p.mu.Lock()
	p.wishes = wishes
	if p.owners != nil {
		s.place()
	}
	p.mu.Unlock()
	p.change.set()
}

// place computes which node each partition should belong to. The placement is locked.
func (s *Scheduler) place() {
	p := &s.placement
	var now core.Instant
	if len(p.wishes) > 0 {
		now = s.cfg.Now()
	}
	owners := PlaceBy(p.live, s.cfg.Partitions, p.wishes, now)
	p.changed = p.changed || p.owners == nil || !slices.Equal(owners, p.owners)
	p.owners = owners
}

// Heard drops a partition for which another owner has recorded a higher epoch. Otherwise, if the database
// fails over to a copy from before that takeover, an owner that does not know its successor could go on with
// it. Evidence of a former owner is compared with what this node's takeover found. It is safe for concurrent
// use.
func (s *Scheduler) Heard(e core.Evidence) {
	if e.Partition < 0 || e.Partition >= s.cfg.Partitions {
		return
	}
	c := s.of(e.Partition)
	is, ok := c.owns(e.Partition)
	switch {
	case !ok:
	case e.Former && e.Epoch < is.epoch:
		c.ask(order{kind: orderDoubt, partition: e.Partition, epoch: is.epoch, evidence: e, why: errSuccessor})
	case !e.Former && e.Epoch > is.epoch:
		c.Lose(e.Partition, is.epoch, errSuccessor)
	}
}

// errSuccessor is why a partition is given up whose row is not as this node left it.
var errSuccessor = errors.New("another node has taken it over, or the database went back")

// keepPlaced runs Reassign whenever the placement changes, and every retakeAfter, until ctx ends.
func (s *Scheduler) keepPlaced(ctx context.Context) {
	tick := time.NewTicker(retakeAfter)
	defer tick.Stop()
	for {
		s.Reassign(ctx, time.Now())
		s.news.log(s.log, s.falls, s.adopting())
		select {
		case <-ctx.Done():
			s.news.log(s.log, s.falls, false)
			return
		case <-s.placement.change:
		case <-tick.C:
		}
	}
}

// Reassign compares the partitions that should be this node's with those that it holds, and orders the
// committers to take over and to let go. It acts once; what fails or has to wait is done by a later call.
func (s *Scheduler) Reassign(ctx context.Context, now time.Time) {
	p := &s.placement
	p.mu.Lock()
	if len(p.wishes) > 0 && p.owners != nil {
		s.place() // a wish to step down may have run out
	}
	live, owners := p.live, p.owners
	if p.changed {
		p.changed, p.moved = false, now
	}
	p.mu.Unlock()
	// A node that is not among the live ones neither takes over nor lets go. If others are live they do not wait for it, and
	// its next commit is fenced. If none is, as when NATS was away for longer than a lease, letting go would stop it for
	// nothing.
	if !slices.Contains(live, s.cfg.Node) {
		return
	}
	var wanted []int
	for partition, owner := range owners {
		c := s.of(partition)
		switch mine, held := owner == s.cfg.Node, c.holds(partition); {
		case mine && !held:
			wanted = append(wanted, partition)
		case !mine && held:
			c.ask(order{kind: orderRelease, partition: partition})
		}
	}
	maps.DeleteFunc(p.waiting, func(partition int, _ time.Time) bool { return !slices.Contains(wanted, partition) })
	if err, changed := s.news.only(func(partition int) bool { return owners[partition] == s.cfg.Node }); changed {
		s.cfg.report(TroubleTakeover, err)
	}
	// HandoverMax has elapsed, so no handover can be pending.
	if len(wanted) == 0 && now.Sub(p.moved) > s.cfg.HandoverMax && now.Sub(p.compared) < compareEvery {
		return
	}
	p.compared = now
	held := s.ownerships() // read before the store, which then can only be ahead of it
	states, err := s.store.CursorsOf(ctx, slices.AppendSeq(slices.Clone(wanted), maps.Keys(held)), s.cfg.Node)
	s.cfg.reportUnlessEnded(ctx, TroubleOwners, err)
	if err != nil {
		return
	}
	s.compare(ctx, owners, states, held)
	for _, partition := range s.free(now, states, wanted, live) {
		if i := slices.IndexFunc(states, func(st core.PartitionState) bool { return st.Partition == partition }); i >= 0 {
			s.news.about(partition, states[i].Owner)
		}
		s.of(partition).ask(order{kind: orderAdopt, partition: partition})
	}
}

// ownerships returns the partitions that this node holds.
func (s *Scheduler) ownerships() map[int]ownership {
	all := map[int]ownership{}
	for _, c := range s.committers {
		maps.Copy(all, c.ownerships())
	}
	return all
}

// compare compares the rows of the store with what this node holds; before is what it held before they were
// read. A partition that was taken over meanwhile, or whose last commit the store does not have, is let go:
// without mail no commit would show it. A row that still names this node although the partition is another's,
// left behind by an earlier life or a failed cycle, is released so that its new owner need not wait.
func (s *Scheduler) compare(ctx context.Context, owners []string, states []core.PartitionState, before map[int]ownership) {
	var failed error
	for _, st := range states {
		p := st.Partition
		if p >= len(owners) {
			continue
		}
		c := s.of(p)
		is, ok := c.owns(p)
		ok = ok && is.epoch == before[p].epoch // else it was taken over while the rows were read
		if ok && (is.epoch != st.Epoch || st.LastCommit < before[p].last) {
			c.Lose(p, is.epoch, errSuccessor)
		} else if ok && st.LastCommit > is.last { // a commit of our own cycle that is under way, or of another owner with the same epoch
			c.ask(order{kind: orderOverwritten, partition: p, epoch: is.epoch, commit: st.LastCommit, why: errSuccessor})
		}
		if st.Owner != s.cfg.Node || owners[p] == s.cfg.Node || c.holds(p) {
			continue
		}
		if err := s.store.Release(ctx, p, st.Epoch); err != nil && failed == nil {
			failed = fmt.Errorf("partition %d: %w", p, err)
		}
	}
	s.cfg.reportUnlessEnded(ctx, TroubleRelease, failed)
}

// free returns the wanted partitions that can be taken over now. One that a live node still holds is left out
// for up to HandoverMax: a planned handover drains first.
func (s *Scheduler) free(now time.Time, states []core.PartitionState, wanted []int, live []string) []int {
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
		since, ok := s.placement.waiting[p]
		if !ok {
			s.placement.waiting[p] = now
			continue
		}
		if now.Sub(since) > s.cfg.HandoverMax {
			free = append(free, p)
		}
	}
	return free
}

// adopting reports whether a takeover is under way or ordered.
func (s *Scheduler) adopting() bool { return slices.ContainsFunc(s.committers, (*Committer).adopting) }
