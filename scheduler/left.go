package scheduler

import (
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// What a shard leaves behind. A command that is out when its partition is let go may be at work, and has its place of a
// limit until it is over, or until the partition's next owner counts it: it says so in the state store, see limits.go.

// leave leaves a place of a task of a partition behind.
func (a *agentCalls) leave(partition int, epoch int64, key *keyCalls) {
	place := leftPlace{a, key}
	if a.limit == nil {
		a.out--
		place.agent = nil
	}
	if place == (leftPlace{}) {
		return
	}
	b := a.book
	if b.behind == nil {
		b.behind = map[int]*leftBehind{}
	}
	l := b.behind[partition]
	if l == nil {
		l = &leftBehind{}
		b.behind[partition] = l
	}
	l.epoch, l.over = epoch, max(l.over, b.now().Add(a.longest))
	l.places = append(l.places, place)
}

// free forgets what was left behind in a partition. Its places are not used before they are claimed again: the next owner may
// have them.
func (b *agentBook) free(partition int) {
	l := b.behind[partition]
	if l == nil {
		return
	}
	for _, place := range l.places {
		if place.agent != nil {
			place.agent.out--
			place.agent.limit.giveUp()
		}
		if place.key != nil {
			place.key.end()
			place.key.limit.giveUp()
		}
	}
	delete(b.behind, partition)
}

// giveUp gives up a place that was taken.
func (l *shardLimit) giveUp() { l.places = max(0, l.places-1) }

// freeLeft frees what is over, or counted by a later owner.
func (b *agentBook) freeLeft(now core.Instant, counted []core.Counting) {
	for _, p := range slices.Sorted(maps.Keys(b.behind)) {
		l := b.behind[p]
		if now >= l.over || slices.ContainsFunc(counted, func(c core.Counting) bool { return c.Partition == p && c.Counted > l.epoch }) {
			b.free(p)
		}
	}
}

// forgetLeft gives back what was left behind of an agent's limit, which is no more.
func (b *agentBook) forgetLeft(a *agentCalls) {
	for _, l := range b.behind {
		for i := range l.places {
			if l.places[i].agent == a {
				a.out--
				l.places[i].agent = nil
			}
		}
	}
}

// leftAt is when something that was left behind is over; 0: nothing was.
func (b *agentBook) leftAt() (at core.Instant) {
	for _, l := range b.behind {
		at = earlier(at, l.over)
	}
	return at
}

// begin begins a term, with each takeover: others may have had the shard's grants while the partitions that it knew were no
// more its own.
func (b *agentBook) begin() {
	b.term++
	for _, a := range b.all {
		for _, k := range a.keys {
			k.limit.lapse()
			k.report()
		}
		if a.limit != nil {
			a.limit.lapse()
		}
	}
}

// lapse makes nothing leave until there is another grant.
func (l *shardLimit) lapse() { l.places, l.rateMilli, l.tokens, l.until = 0, 0, 0, 0 }
