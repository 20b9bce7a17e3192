package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// How a committer takes partitions over, and lets them go.

// carryOut carries out one order.
func (c *Committer) carryOut(ctx context.Context, o order) {
	switch o.kind {
	case orderAdopt:
		c.adopt(ctx, o.partition)
	case orderRelease:
		c.drain(o.partition)
	default:
		if c.isLost(&o) {
			c.s.log.Debug("the partition is given up", "partition", o.partition, "epoch", o.epoch, "why", o.why)
			c.s.news.lose(o.partition)
			c.shard.evidence.wentBack(o.partition, o.why)
			c.drop(o.partition)
		}
	}
}

// isLost reports whether the ownership that an order is about is still held and is indeed lost.
func (c *Committer) isLost(o *order) bool {
	epoch, ok := c.shard.Owns(o.partition)
	switch {
	case !ok || epoch != o.epoch:
		return false
	case o.kind == orderDoubt:
		return c.shard.evidence.doubt(c.shard.partitions[o.partition], o.evidence)
	case o.kind == orderOverwritten:
		return c.shard.LastCommit(o.partition) < o.commit
	}
	return true
}

// adopt takes a partition over, unless it should be another node's by now.
func (c *Committer) adopt(ctx context.Context, p int) {
	if _, ok := c.shard.Owns(p); ok {
		return
	}
	// The order may be from before another node came: nodes that start together would take each other's partitions away.
	if c.stopping || !c.s.falls(p) {
		c.forget(p)
		return
	}
	err := c.tryAdopt(ctx, p)
	if err != nil {
		c.unfeed(p)
		c.shard.Drop(p)
	}
	if ctx.Err() == nil {
		c.s.cfg.report(TroubleTakeover, c.s.news.noteTakeover(p, err))
	}
	if err == nil {
		c.worked() // if what failed before has to be done still, it fails again soon
	}
}

// tryAdopt takes a partition over. It subscribes to replies before commands are sent again, because an
// earlier answer would be lost.
func (c *Committer) tryAdopt(ctx context.Context, p int) error {
	ground, err := c.readGround(ctx, p)
	if err != nil {
		return err
	}
	f := &feed{}
	c.feeds[p] = f
	c.s.cfg.Admission.own(1)
	if f.stopListen, err = c.s.wires.Listen(p, c.in); err != nil {
		return err
	}
	from, err := c.shard.Adopt(ctx, c.s.cfg.Now(), p, ground)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.held[p] = &ownership{epoch: from.Epoch, last: c.shard.LastCommit(p), wentBack: c.shard.partitions[p].takeover.WentBackAt}
	c.mu.Unlock()
	c.in.openGate(p, c.s.cfg.InFlight-c.shard.Load(p))
	lost := func(why error) { c.ask(order{kind: orderLost, partition: p, epoch: from.Epoch, why: why}) }
	if f.stopRead, err = c.s.wires.Read(ctx, p, from, c.in, lost); err != nil {
		c.shard.evidence.wentBack(p, err)
		return err
	}
	c.s.log.Debug("partition taken over", "partition", p, "epoch", from.Epoch, "cursor", from.Cursor, "resumed", from.Resumed)
	return nil
}

// readGround looks at what there is of a partition outside the database, and has the takeover look again by
// the same means.
func (c *Committer) readGround(ctx context.Context, p int) (Ground, error) {
	at := c.s.cfg.Now()
	g, err := c.s.wires.Ground(ctx, p)
	g.At, g.Again = at, func(ctx context.Context) (Ground, error) { return c.readGround(ctx, p) }
	return g, err
}

// drop forgets a partition and stops its mail.
func (c *Committer) drop(p int) {
	c.shard.Drop(p)
	c.unfeed(p)
}

// unfeed stops a partition's mail.
func (c *Committer) unfeed(p int) {
	c.in.closeGate(p)
	if f := c.feeds[p]; f != nil {
		f.stopReading()
		if f.stopListen != nil {
			f.stopListen()
		}
		delete(c.feeds, p)
		c.s.cfg.Admission.own(-1)
	}
	delete(c.drains, p)
	c.forget(p)
	if len(c.away) > 0 { // there may be no further cycle that would look
		away := c.shard.agentsAway(c.s.cfg.Now(), c.away)
		c.mu.Lock()
		c.away = away
		c.mu.Unlock()
	}
}

const (
	// flushesOfDrain: while it drains, a committer runs this many cycles in FlushEvery to see whether it is done.
	flushesOfDrain = 10
	// DrainMax/drainEnd is left for the last commit and the release. A commit that is cut off costs the shard all its
	// partitions, and the drained ones would keep an owner that their successor has to wait for.
	drainEnd = 5
)

// drain begins to let a partition go: it is not read any more. endDrains releases it when its commands are
// answered and its cursors committed, or most of DrainMax is over.
func (c *Committer) drain(p int) {
	if _, ok := c.shard.Owns(p); !ok || c.drains[p] != 0 { // not adopted yet, or draining already; an order to adopt it stays
		return
	}
	if c.s.cfg.DrainMax < 0 {
		c.drop(p)
		return
	}
	c.in.closeGate(p)
	c.feeds[p].stopReading()
	c.shard.StartNoMore(p)
	c.drains[p] = c.s.cfg.Now().Add(c.s.cfg.DrainMax - c.s.cfg.DrainMax/drainEnd)
}

// endDrains releases the partitions whose drain is over.
func (c *Committer) endDrains(work context.Context) {
	if len(c.drains) == 0 {
		return
	}
	now := c.now()
	var over, kept []int
	var failed error
	for p, until := range c.drains {
		if now >= until || work.Err() != nil || !c.shard.busy(p) {
			over = append(over, p)
		}
	}
	slices.Sort(over)
	for _, p := range over {
		if epoch, ok := c.shard.Owns(p); ok {
			if err := c.s.store.Release(work, p, epoch); err != nil {
				kept, failed = append(kept, p), errors.Join(failed, err)
			}
		}
		c.drop(p)
	}
	if failed != nil { // successors take them over after HandoverMax
		c.s.log.Warn("partitions cannot be released, and their successors wait", "partitions", listed(kept), "error", failed)
	}
}

// Stop begins to let everything go. The driver calls Step and Due until Stopped.
func (c *Committer) Stop() {
	if c.stopping {
		return
	}
	c.stopping = true
	for _, p := range slices.Sorted(maps.Keys(c.feeds)) {
		c.drain(p)
	}
}

// Stopped reports whether the committer has let everything go.
func (c *Committer) Stopped() bool { return c.stopping && len(c.feeds) == 0 }
