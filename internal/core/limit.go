package core

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// Limits of limits.
const (
	LimitsMax     = 1000 // agents that have one
	ConcurrentMax = 1_000_000
	RateMilliMax  = 1_000_000_000 // a million calls a second
	LimitKeyMax   = 1024          // bytes of the expression of a limit's keys
	KeyBytesMax   = 128           // of one key, see KeyOf
	ClaimsMax     = 512           // grants of one limit that are claimed at a time
	limitTurn     = time.Second   // after which places are shared out otherwise, where there are fewer than holders
)

// Limit bounds what an agent gets of do commands, over all nodes: in all, and for each key, for instance each customer. Undo
// commands take places, and never wait for one.
type Limit struct {
	Agent      string
	Concurrent int   // do commands that are out at a time; 0: any number
	RateMilli  int64 // do commands in 1,000 seconds; 0: any number
	// Key is an expression over a task: the commands of tasks of which it is the same are bounded together, by the next two.
	// Empty: there are no keys.
	Key           string
	KeyConcurrent int   // as Concurrent, of one key
	KeyRateMilli  int64 // as RateMilli, of one key
	Revision      int64 // rises with each change
}

// InAll reports whether it bounds what an agent gets in all.
func (l *Limit) InAll() bool { return l.Concurrent > 0 || l.RateMilli > 0 }

// OfKey is what bounds each key.
func (l *Limit) OfKey() Limit {
	return Limit{Agent: l.Agent, Concurrent: l.KeyConcurrent, RateMilli: l.KeyRateMilli, Revision: l.Revision}
}

// StartsOver reports what of a limit was not there before, in all or for keys: what holders had of such a thing earlier is nothing.
func (l *Limit) StartsOver(was *Limit) (inAll, keys bool) {
	return l.InAll() && !was.InAll(), l.Key != "" && l.Key != was.Key
}

// KeyOf is the key of a limit (not of a step) that a text gives: itself, or its hash if it is longer than KeyBytesMax.
func KeyOf(text string) string {
	if len(text) <= KeyBytesMax {
		return text
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

// Check refuses a limit that cannot be, naming the field, its value and its bound.
func (l *Limit) Check() error {
	if err := CheckAgent(l.Agent); err != nil {
		return err
	}
	switch {
	case l.Concurrent < 0 || l.Concurrent > ConcurrentMax:
		return fmt.Errorf("concurrent: %d, want 0 (any number) to %d", l.Concurrent, ConcurrentMax)
	case l.RateMilli < 0 || l.RateMilli > RateMilliMax:
		return fmt.Errorf("rate: %g a second, want 0 (any number), or 0.001 to %d", float64(l.RateMilli)/1000, RateMilliMax/1000)
	case len(l.Key) > LimitKeyMax:
		return fmt.Errorf("key: %d bytes, the most is %d", len(l.Key), LimitKeyMax)
	case l.KeyConcurrent < 0 || l.KeyConcurrent > ConcurrentMax:
		return fmt.Errorf("key_concurrent: %d, want 0 (any number) to %d", l.KeyConcurrent, ConcurrentMax)
	case l.KeyRateMilli < 0 || l.KeyRateMilli > RateMilliMax:
		return fmt.Errorf("key_rate: %g a second, want 0 (any number), or 0.001 to %d", float64(l.KeyRateMilli)/1000, RateMilliMax/1000)
	case l.Key == "" && (l.KeyConcurrent != 0 || l.KeyRateMilli != 0):
		return errors.New("key: it is not given, but key_concurrent or key_rate is")
	case l.Key != "" && l.KeyConcurrent == 0 && l.KeyRateMilli == 0:
		return fmt.Errorf("key: %s is given, but neither key_concurrent nor key_rate is", QuoteShort(l.Key))
	case !l.InAll() && l.Key == "":
		return fmt.Errorf("limit of agent %s: neither concurrent nor rate is given", l.Agent)
	}
	return nil
}

// Grant is what one holder, a committer of a node, may use of a limit, or of what bounds one of its keys, as it is stored.
type Grant struct {
	Keyed     bool   // it is of Key, which may be empty
	Key       string // see KeyOf
	Holder    string
	Wanted    int   // places that it could use
	Places    int   // that it may use
	RateMilli int64 // that it may use
	// Until is when the grant ends if it is not renewed: not before every command that takes a place is over.
	Until Instant
}

// ClaimedGrant is what a claim has come to.
type ClaimedGrant struct {
	Limit Limit // as it is
	Grant Grant // as it is stored now
	Fair  Grant // that the holder is to come down to
	First bool  // no other holder has any of the rate
}

// Counting says whose grant counts what commands of a partition have out.
type Counting struct {
	Partition int
	Epoch     int64  // of its owner
	Counted   int64  // the epoch whose owner counted last what it goes on with
	Holder    string // of the grants in which it did
}

// Holders are those in whose grants the commands of all partitions are counted: whatever another holder had out is counted
// there by now, or over. nil: it is not known, because an owner has not counted yet, or none ever has.
func Holders(all []Counting) map[string]bool {
	var holders map[string]bool
	for _, c := range all {
		if c.Counted != c.Epoch {
			return nil
		}
		if holders == nil {
			holders = make(map[string]bool, len(all))
		}
		holders[c.Holder] = true
	}
	return holders
}

// EndGrants ends the stored grants of all but some holders, see Holders, where mine are not of them: their commands
// are counted elsewhere, or over, and their places would be lost until the grants end by time. The claimer's own
// grants it knows itself.
func EndGrants(stored, mine []Grant, holders map[string]bool) {
	if holders == nil {
		return
	}
	own := make(map[string]bool, len(mine))
	for i := range mine {
		own[mine[i].Holder] = true
	}
	for i := range stored {
		if g := &stored[i]; !holders[g.Holder] && !own[g.Holder] {
			g.Until = 0
		}
	}
}

// Idle reports whether nothing is used of a grant, and nothing is wanted.
func (g *Grant) Idle() bool { return g.Wanted == 0 && g.Places == 0 && g.RateMilli == 0 }

// Claim is the claim of a holder by all grants of the limit, or of the key, that there are, its own among them.
func (l *Limit) Claim(now Instant, mine Grant, stored []Grant) ClaimedGrant {
	c := ClaimedGrant{Limit: *l, First: true}
	for _, o := range stored {
		c.First = c.First && (o.Until <= now || o.RateMilli == 0 || o.Holder == mine.Holder)
	}
	bounds := *l
	if mine.Keyed {
		bounds = l.OfKey()
	}
	c.Grant, c.Fair = bounds.Share(now, mine, stored)
	return c
}

// Share is what a holder may use from now on. mine has what it wants, and the places and the rate that it uses now, below
// which it cannot go at once; others are the grants of all other holders. A fair share is what the holder is to come down
// to when commands end: all that ask for more get the same, and never more than the others
// leave: undos and takeovers take places that there are not.
func (l *Limit) Share(now Instant, mine Grant, others []Grant) (grant, fair Grant) {
	all := []Grant{mine}
	places, rate := 0, int64(0)
	for _, o := range others {
		if o.Until > now && o.Holder != mine.Holder {
			all = append(all, o)
			places, rate = places+o.Places, rate+o.RateMilli
		}
	}
	grant, fair = mine, mine
	// Every holder sorts by the same hashes, so that claims in one turn agree on who gets what is left over.
	turn := int64(now) / limitTurn.Microseconds()
	hashes := make([]uint64, len(all)) // by which who gets what is left over changes from turn to turn
	for i := range all {
		hashes[i] = turnHash(all[i].Holder, turn)
		for k := i; k > 0 && (hashes[k] < hashes[k-1] || hashes[k] == hashes[k-1] && all[k].Holder < all[k-1].Holder); k-- {
			all[k], all[k-1], hashes[k], hashes[k-1] = all[k-1], all[k], hashes[k-1], hashes[k]
		}
	}
	wanted := make([]int64, len(all))
	at := 0
	for i := range all {
		wanted[i] = int64(all[i].Wanted)
		if all[i].Holder == mine.Holder {
			at = i
		}
	}
	if l.Concurrent > 0 {
		// Others may hold more than their share until their commands end: only what they leave is there to take.
		fair.Places = min(int(fairShare(int64(l.Concurrent), wanted, at)), max(0, l.Concurrent-places))
		grant.Places = max(fair.Places, mine.Places)
	} else {
		grant.Places, fair.Places = 0, 0
	}
	if l.RateMilli > 0 {
		for i := range wanted {
			// Who wants any place may use all of the rate: how fast calls end is not known here.
			wanted[i] = min(wanted[i], 1) * l.RateMilli
		}
		fair.RateMilli = min(fairShare(l.RateMilli, wanted, at), max(0, l.RateMilli-rate))
		grant.RateMilli = max(fair.RateMilli, mine.RateMilli)
	} else {
		grant.RateMilli, fair.RateMilli = 0, 0
	}
	return grant, fair
}

// fairShare is what the one at a place gets of a whole, when all that want more get the same, and what is left over
// goes to the first. Each turn of the loop shares out among those that still want more, until all have enough or
// nothing is left.
func fairShare(whole int64, wanted []int64, at int) int64 {
	given := make([]int64, len(wanted))
	for {
		open := int64(0)
		for i := range wanted {
			if given[i] < wanted[i] {
				open++
			}
		}
		if open == 0 || whole == 0 {
			return given[at]
		}
		each, left := whole/open, whole%open
		for i := range wanted {
			more := min(each, wanted[i]-given[i])
			if each == 0 && left > 0 && given[i] < wanted[i] {
				more, left = 1, left-1
			}
			given[i] += more
			whole -= more
		}
	}
}

// turnHash orders holders in a turn.
func turnHash(holder string, turn int64) uint64 {
	h := uint64(turn)*0x9E3779B97F4A7C15 + 0xcbf29ce484222325
	for i := range len(holder) {
		h = (h ^ uint64(holder[i])) * 0x100000001b3
	}
	h ^= h >> 29
	return h * 0x9E3779B97F4A7C15
}
