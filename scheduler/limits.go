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

// Limits of a node. Each committer is a holder: what it may use of an agent's limit is a grant in the state store. A claim
// is one transaction that locks the limit's row, reads all grants and stores the holder's own, so that together they never
// are more than the limit. A holder that is over its fair share gives places up as its commands end, and only then stores
// less. A grant ends when every command that it allowed is over, or counted in the grants of others: who takes a partition
// over counts what it goes on with, and says so in the store. When all have, the grants of those who have no partition are
// nothing any more.

// LimitStore keeps limits and grants, for all nodes.
type LimitStore interface {
	// Limits returns all, up to core.LimitsMax, by agent.
	Limits(ctx context.Context) ([]core.Limit, error)
	// ClaimGrants stores what core.Limit.Claim gives holders of a limit, or of its keys, one after the other, in one
	// transaction with the reading of all others, and returns it in the order of mine: at most core.ClaimsMax. What is
	// idle of a key is not kept. A limit that is gone: core.ErrNotFound.
	ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error)
	// CountPlaces notes that what partitions have out as of their epochs is counted in the grants of a holder. Of the two
	// fields that it looks at, Partition and Epoch, a pair that is not of the partition's owner now counts for nothing.
	CountPlaces(ctx context.Context, holder string, all []core.Counting) error
	// Counted returns who counts what partitions have out, of all that ever had an owner. ClaimGrants gives what holders
	// have that core.Holders does not know to others.
	Counted(ctx context.Context) ([]core.Counting, error)
}

// LimitConfig is what a scheduler needs for limits. Without a store there are none.
type LimitConfig struct {
	Store LimitStore
	Life  string // makes holders of two lives of a node different
}

const (
	limitRenew   = time.Second            // how often a grant is renewed
	keyRenew     = 2 * time.Second        // likewise, of a key
	limitSoon    = 100 * time.Millisecond // and claimed, while more is wanted than is had
	recountEvery = 4 * time.Second        // how often it is said which partitions a shard counts: a database that fails over may forget that
	grantMargin  = 5 * time.Second        // that a grant lasts beyond the longest command
	keyMargin    = 30 * time.Second       // likewise, of a key: there may be many to renew
)

// grantKey is one committer's grant of one limit.
type grantKey struct {
	shard int
	limitOf
}

func (h grantKey) compare(o grantKey) int {
	kind := func(h grantKey) int {
		if h.keyed {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(h.agent, o.agent), kind(h)-kind(o), strings.Compare(h.key, o.key), cmp.Compare(h.shard, o.shard))
}

// grantState is what the node knows of a holding.
type grantState struct {
	use     limitUse   // as the shard has said last
	sent    core.Grant // the newest grant that the shard was sent
	seq     int64      // of that
	claimed core.Instant
}

// floor is below what the stored grant must not go: what the shard may be using.
func (h *grantState) floor() (places int, rateMilli int64) {
	places, rateMilli = h.use.places, h.use.rateMilli
	if h.use.seq != h.seq { // it has not heard of the newest one yet, or has not said so
		places, rateMilli = max(places, h.sent.Places), max(rateMilli, h.sent.RateMilli)
	}
	return places, rateMilli
}

// update takes what the shard says, in a new term or in the one before. A key that it has forgotten meanwhile is told anew,
// as one that has heard of no grant: of those that it had heard of it uses nothing.
func (h *grantState) update(u limitUse, newTerm bool) {
	if newTerm {
		h.seq = u.seq
	} else {
		u.seq = max(u.seq, h.use.seq)
	}
	h.use = u
}

// bounds are those that a holding is of.
func (b *limits) bounds(of limitOf) (l core.Limit, known bool) {
	if l, known = b.known[of.agent]; of.keyed {
		l = l.OfKey()
	}
	return l, known && l.InAll()
}

// wants reports whether it could use more than it has.
func (h *grantState) wants(l *core.Limit) bool {
	return h.use.wanted > 0 && (l.Concurrent > 0 && h.use.wanted > h.sent.Places || l.RateMilli > 0 && h.sent.RateMilli == 0)
}

// limits is what a node knows of limits. Its methods are safe for concurrent use.
type limits struct {
	kick signal // a turn is due

	mu        sync.Mutex
	known     map[string]core.Limit
	grants    map[grantKey]*grantState
	seq       int64 // of the newest grant that any shard was sent
	shards    []shardCounts
	counted   map[int]int64 // the epochs of the partitions that are said to be counted
	countedAt core.Instant  // since when
}

// shardCounts is what a node knows of what a shard counts.
type shardCounts struct {
	term int64           // as the shard has said last
	here []core.Counting // is counted, and not said to be
	left bool            // it has left something behind, which others may count
}

func newLimits(shards int) *limits {
	return &limits{kick: newSignal(), known: map[string]core.Limit{}, grants: map[grantKey]*grantState{}, shards: make([]shardCounts, shards), counted: map[int]int64{}}
}

// collect takes what the gate of a shard says of its grants in its partitions.
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
		if u.of.keyed && u.idle() && (h == nil || h.sent.Idle() && h.seq == u.seq) {
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

// collectCounts takes of a shard which partitions it counts, and whether it has left something behind. It reports whether
// that is to be looked at soon. limits is locked.
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
		h.claimed = 0 // what was claimed was claimed without these
		if newTerm {  // it uses nothing of what it was sent
			h.seq = h.use.seq
		}
	}
	return true
}

// of is what is known of a holding, a new one if need be. limits is locked.
func (b *limits) of(key grantKey) *grantState {
	h := b.grants[key]
	if h == nil {
		h = &grantState{}
		b.grants[key] = h
	}
	return h
}

// learn takes the limits as they are stored, and reports whether they are others than before.
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

// due are the holdings that are to be claimed now: of each agent at most core.ClaimsMax, its limit in all first and then the
// keys that were claimed longest ago, so that no number of keys keeps others waiting. If more are due there is a turn soon.
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
		uses := h.use.wanted > 0 || places > 0 || rate > 0 || !h.sent.Idle()
		if !bounded || key.keyed && !uses { // its shard may know nothing of it any more
			delete(b.grants, key)
			continue
		}
		less := places < h.sent.Places || h.use.wanted == 0 && h.use.seq == h.seq && (h.sent.RateMilli > 0 || h.sent.Wanted > 0)
		if uses && (more || less || h.claimed.Elapsed(now, renew)) {
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

// hasClaimed reports whether all that a shard uses is claimed since it has counted a partition.
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
