package scheduler

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Limits of a node. Each committer holds grants: a grant is what it may use of an agent's limit, stored in the state store. A
// claim is one transaction that locks the limit's row, reads all grants and stores the holder's own, so that together they
// never exceed the limit. A holder above its fair share gives places up as its commands end, and only then stores a smaller
// grant. A grant must last until every command that it allowed is over, or is counted in somebody else's grant: whoever takes
// a partition over counts the commands that it goes on with, and says so in the store. Once every partition is counted, the
// grants of holders without partitions are void.

// LimitStore keeps limits and grants, for all nodes.
type LimitStore interface {
	// Limits returns all, up to core.LimitsMax, by agent.
	Limits(ctx context.Context) ([]core.Limit, error)
	// ClaimGrants stores what core.Limit.Claim gives the holders in mine, of an agent's limit or of its keys,
	// one after the other, in one transaction with reading all other grants. It returns what they got, in the
	// order of mine, which has core.ClaimsMax at most. An idle grant of a key is not kept. If the limit is
	// gone: core.ErrNotFound.
	ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error)
	// CountPlaces notes that what these partitions have out, as of these epochs, is counted in a holder's
	// grants. Only Partition and Epoch are used; a pair that is not the partition's present ownership counts
	// for nothing.
	CountPlaces(ctx context.Context, holder string, all []core.Counting) error
	// Counted returns, for all partitions that ever had an owner, which holder counts what they have out.
	// ClaimGrants treats grants of holders that are not among them (see core.Holders) as free.
	Counted(ctx context.Context) ([]core.Counting, error)
}

// LimitConfig is what a scheduler needs for limits. Without a store there are none.
type LimitConfig struct {
	Store LimitStore
	// Life makes the holders of two lives of a node different.
	Life string
}

const (
	limitRenew = time.Second            // a grant is renewed after this
	keyRenew   = 2 * time.Second        // a grant of a key is renewed after this
	limitSoon  = 100 * time.Millisecond // a grant is claimed again after this, while more is wanted than was got
	// recountEvery is how often the store is told which partitions a shard counts, because a database that fails over may
	// forget it.
	recountEvery = 4 * time.Second
	grantMargin  = 5 * time.Second  // a grant lasts this much longer than the longest command
	keyMargin    = 30 * time.Second // a grant of a key lasts this much longer: there may be many keys to renew
)

// grantKey identifies one committer's grant of one limit.
type grantKey struct {
	shard int
	limitOf
}

// compare orders grants by agent, the agent's own limit before its keys, then by shard.
func (h grantKey) compare(o grantKey) int {
	kind := func(h grantKey) int {
		if h.keyed {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(h.agent, o.agent), kind(h)-kind(o), strings.Compare(h.key, o.key), cmp.Compare(h.shard, o.shard))
}

// grantState is what the node knows of a grant.
type grantState struct {
	// use is what the shard last reported.
	use limitUse
	// sent is the newest grant that the shard was sent, seq its number, claimed when it was claimed in the
	// store.
	sent    core.Grant
	seq     int64
	claimed core.Instant
	// unsure is whether a claim has failed since: what it asked for may be stored.
	unsure bool
}

// floor returns what the shard may be using: the stored grant must not be less. If the shard has not reported
// on the newest grant yet, it may be using that one.
func (h *grantState) floor() (places int, rateMilli int64) {
	places, rateMilli = h.use.places, h.use.rateMilli
	if h.use.seq != h.seq { // the shard has not reported on the newest grant yet
		places, rateMilli = max(places, h.sent.Places), max(rateMilli, h.sent.RateMilli)
	}
	return places, rateMilli
}

// update takes a shard's report, in a new term or in the present one. A key that the shard has forgotten
// meanwhile is reported as if it had heard of no grant; it uses nothing of those that it had heard of, so the
// higher number counts.
func (h *grantState) update(u limitUse, newTerm bool) {
	if newTerm {
		h.seq = u.seq
	} else {
		u.seq = max(u.seq, h.use.seq)
	}
	h.use = u
}

// bounds returns the limit that bounds a grant; known is false if there is none any more.
func (b *limits) bounds(of limitOf) (l core.Limit, known bool) {
	if l, known = b.known[of.agent]; of.keyed {
		l = l.OfKey()
	}
	return l, known && l.InAll()
}

// wants reports whether the shard could use more than it was granted.
func (h *grantState) wants(l *core.Limit) bool {
	return h.use.wanted > 0 && (l.Concurrent > 0 && h.use.wanted > h.sent.Places || l.RateMilli > 0 && h.sent.RateMilli == 0)
}

// limits is what a node knows of limits. Its methods are safe for concurrent use.
type limits struct {
	// kick asks for a turn.
	kick signal

	mu     sync.Mutex
	known  map[string]core.Limit
	grants map[grantKey]*grantState
	// seq is the number of the newest grant that any shard was sent.
	seq    int64
	shards []shardCounts
	// counted holds the epochs under which partitions were said to be counted, in the store, since countedAt.
	counted   map[int]int64
	countedAt core.Instant
}

// shardCounts is what a node knows about which commands a shard counts.
type shardCounts struct {
	// term is what the shard last reported.
	term int64
	// here are the partitions that the shard counts and the store was not told of.
	here []core.Counting
	// left is whether the shard left commands behind, which others may count by now.
	left bool
}

func newLimits(shards int) *limits {
	return &limits{kick: newSignal(), known: map[string]core.Limit{}, grants: map[grantKey]*grantState{}, shards: make([]shardCounts, shards), counted: map[int]int64{}}
}

// collect takes a shard's reports about its grants. It kicks the duty if the shard begins to want more.
func (b *limits) collect(g *gate, in []*partition, shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(g.agents.limited) == 0 {
		b.shards[shard] = shardCounts{}
		return
	}
	newTerm := b.shards[shard].term != g.agents.term
	soon := b.collectCounts(g, in, shard)
	g.limitUses(in, func(u limitUse) {
		key := grantKey{shard, u.of}
		h := b.grants[key]
		if u.of.keyed && u.idle() && (h == nil || !h.unsure && h.sent.Idle() && h.seq == u.seq) {
			delete(b.grants, key)
			return
		}
		h = b.of(key)
		l, known := b.bounds(u.of)
		had := known && h.wants(&l)
		h.update(u, newTerm)
		soon = soon || known && !had && h.wants(&l)
	})
	if soon {
		b.kick.set()
	}
}

// collectCounts notes of which partitions a shard counts the commands at agents, and whether it has let partitions go whose
// commands may still be out. soon: that has changed, and the duty is to look at it at once. b.mu is held.
func (b *limits) collectCounts(g *gate, in []*partition, shard int) (soon bool) {
	was, is := &b.shards[shard], shardCounts{term: g.agents.term, left: len(g.agents.behind) > 0}
	newTerm := was.term != is.term
	soon = newTerm || is.left != was.left
	for _, p := range in {
		if one := (core.Counting{Partition: p.id, Epoch: p.epoch}); g.now > p.uncounted && b.counted[p.id] != p.epoch {
			is.here, soon = append(is.here, one), soon || !slices.Contains(was.here, one)
		}
	}
	*was = is
	if !soon {
		return false
	}
	for key, h := range b.grants {
		if key.shard != shard {
			continue
		}
		h.claimed = 0 // claims made so far did not include this partition's commands
		if newTerm {  // after a takeover it uses nothing of earlier grants
			h.seq = h.use.seq
		}
	}
	return true
}

// of returns what is known of a grant, and makes an entry if it is new. The lock is held.
func (b *limits) of(key grantKey) *grantState {
	h := b.grants[key]
	if h == nil {
		h = &grantState{}
		b.grants[key] = h
	}
	return h
}

// learn takes the limits as they are stored, and reports whether they have changed.
func (b *limits) learn(stored []core.Limit) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := make(map[string]core.Limit, len(stored))
	changed := len(stored) != len(b.known)
	for _, l := range stored {
		known, ok := b.known[l.Agent]
		changed = changed || !ok || known != l
		is[l.Agent] = l
	}
	was := b.known
	b.known = is
	for key := range b.grants {
		if l, ok := is[key.agent]; !ok || key.keyed && l.Key != was[key.agent].Key || !key.keyed && !l.InAll() {
			delete(b.grants, key)
		}
	}
	return changed
}

// due returns the grants to be claimed now: of each agent at most core.ClaimsMax, its own limit first and
// then the keys that were claimed longest ago, so that many keys cannot keep others waiting. If it leaves
// some out it asks for another turn soon.
func (b *limits) due(now core.Instant) (all []grantKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, h := range b.grants {
		l, bounded := b.bounds(key.limitOf)
		places, rate := h.floor()
		more := h.wants(&l)
		renew := limitRenew
		if key.keyed {
			renew = keyRenew
		}
		uses := h.unsure || h.use.wanted > 0 || places > 0 || rate > 0 || !h.sent.Idle()
		if !bounded || key.keyed && !uses { // its shard may have forgotten the key
			delete(b.grants, key)
			continue
		}
		less := places < h.sent.Places || h.use.wanted == 0 && h.use.seq == h.seq && (h.sent.RateMilli > 0 || h.sent.Wanted > 0)
		if uses && (more || less || h.unsure || h.claimed.Elapsed(now, renew)) {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, func(x, y grantKey) int {
		if x.agent == y.agent && x.keyed && y.keyed {
			return cmp.Or(cmp.Compare(b.grants[x].claimed, b.grants[y].claimed), x.compare(y))
		}
		return x.compare(y)
	})
	agent, n := "", 0
	return slices.DeleteFunc(all, func(h grantKey) bool {
		if h.agent != agent {
			agent, n = h.agent, 0
		}
		if n++; n > core.ClaimsMax && b.grants[h].claimed.Elapsed(now, limitSoon) {
			b.kick.set()
		}
		return n > core.ClaimsMax
	})
}

// hasClaimed reports whether everything that a shard uses was claimed after it began to count its newest
// partition. Only then may the store be told that the partition is counted.
func (b *limits) hasClaimed(shard int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, h := range b.grants {
		if key.shard == shard && h.claimed == 0 && h.use.places > 0 {
			return false
		}
	}
	return true
}
