package scheduler

import (
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// What a shard leaves behind. A command that is out when its partition is let go may still be at work. It keeps its place of
// a limit until it is over at the latest, or until the partition's next owner has counted it, which that owner notes in the
// state store (limits.go). Without this an agent would get more than its limit during a takeover.

// leave keeps the places of a command that is out while its task is let go. partition and epoch are the
// task's.
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

// free gives up what was left behind in a partition. The shard gives its grant's places up with it, because
// the partition's next owner may have claimed them: it must claim again before it uses them.
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

// giveUp makes the grant smaller by one place.
func (l *shardLimit) giveUp() { l.places = max(0, l.places-1) }

// freeLeft frees what is over by now, or is counted by a later owner.
func (b *agentBook) freeLeft(now core.Instant, counted []core.Counting) {
	for _, p := range slices.Sorted(maps.Keys(b.behind)) {
		l := b.behind[p]
		if now >= l.over || slices.ContainsFunc(counted, func(c core.Counting) bool { return c.Partition == p && c.Counted > l.epoch }) {
			b.free(p)
		}
	}
}

// forgetLeft drops an agent's places from all that was left behind: its limit was removed.
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

// leftAt returns when the first partition's left-behind commands are over; 0: there are none.
func (b *agentBook) leftAt() (at core.Instant) {
	for _, l := range b.behind {
		at = earlier(at, l.over)
	}
	return at
}

// begin begins a new term; the shard calls it after each takeover. While a partition was another's, others
// may have been granted what this shard believes to have, so every grant from before lapses.
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

// lapse stops all new commands until there is another grant.
func (l *shardLimit) lapse() { l.places, l.rateMilli, l.tokens, l.until = 0, 0, 0, 0 }
