package scheduler

import (
	"context"
	"errors"
	"slices"

	"duly.dev/duly/internal/core"
)

// order asks a committer to do something with one partition between commit cycles.
type order struct {
	kind      orderKind
	partition int
	epoch     int64         // of a loss: the ownership that was lost
	evidence  core.Evidence // of orderDoubt: what a former owner recorded
	commit    int64         // of orderOverwritten: what the store has
	why       error         // of a loss
}

// orderKind is what an order asks for. The last three are losses: the partition is forgotten, if it is still held
// under the order's epoch.
type orderKind int

const (
	orderAdopt       orderKind = iota
	orderRelease               // let it go in order
	orderLost                  // it cannot be read any more, or is another owner's
	orderDoubt                 // the same, if the takeover found less than a former owner knew
	orderOverwritten           // the same, if the store's last commit is not of the cycle that is under way
)

// ask hands an order over. It is safe for concurrent use, and does not block: there is one order of a kind for a
// partition at most.
func (c *Committer) ask(o order) {
	c.mu.Lock()
	if o.kind == orderAdopt && c.held[o.partition] == nil {
		c.held[o.partition] = &ownership{}
	}
	i := slices.IndexFunc(c.orders, func(w order) bool { return w.kind == o.kind && w.partition == o.partition })
	switch {
	case i < 0:
		c.orders = append(c.orders, o)
	case c.orders[i].epoch == o.epoch:
		o.why = bothRewound(c.orders[i].why, o.why)
		c.orders[i] = o
	case c.orders[i].epoch < o.epoch:
		c.orders[i] = o
	}
	c.mu.Unlock()
	c.asked.set()
}

// bothRewound is the newer of two reasons, and the older as well if it names a stream that went back: the next takeover
// must read that one again.
func bothRewound(older, newer error) error {
	for _, stream := range []error{ErrRewound, ErrControlRewound} {
		if errors.Is(older, stream) && !errors.Is(newer, stream) {
			newer = errors.Join(newer, stream)
		}
	}
	return newer
}

func (c *Committer) hasOrders() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.orders) > 0
}

// nextOrder takes the oldest order.
func (c *Committer) nextOrder() (o order, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orders) == 0 {
		return order{}, false
	}
	o = c.orders[0]
	c.orders = slices.Delete(c.orders, 0, 1)
	return o, true
}

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

// isLost reports whether the ownership that an order is about is held still, and lost.
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

// Lose tells, from any goroutine, that a partition held under an epoch can no longer be read, or is another owner's.
func (c *Committer) Lose(partition int, epoch int64, why error) {
	c.ask(order{kind: orderLost, partition: partition, epoch: epoch, why: why})
}
