package scheduler

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Limits in a shard. For each limited agent the shard has a grant: places, which bound how many do commands are out at a
// time, and a rate of commands. It never uses more than it was granted. When it has more than its fair share it gives up
// places as commands end, so that other shards can have them. limits.go claims the grants in the state store.

// shardLimit is how much of an agent's limit, or of what the limit allows one key, a shard may use.
type shardLimit struct {
	limit core.Limit
	// seq is the number of the newest grant that the shard has heard of.
	seq int64
	// places is how many commands may be out now; fair is the share that it comes down to.
	places int
	fair   int
	// rateMilli is the granted rate in thousandths of a call a second.
	rateMilli int64
	// tokens is what the rate has accrued up to at, in millionths of a call.
	tokens int64
	at     core.Instant
	// made is when the whole limit's rate, not only the share granted here, would have accrued the calls that
	// have left. Until then a shard that lost its grant must not take a first token from a new one.
	made core.Instant
	// until is when the grant ends.
	until core.Instant
}

const (
	token     = 1_000_000 // one call, in the units of shardLimit.tokens
	burstPart = 10        // a rate accrues for 1/burstPart of a second: 100 a second may send 10 at once
)

// take replaces the grant by a newer one. out is how many commands are out.
func (l *shardLimit) take(m *GrantMail, now core.Instant, out int) {
	l.refill(now)
	l.limit, l.seq, l.until = m.Limit, m.Seq, m.Grant.Until
	if m.Grant.Keyed {
		l.limit = m.Limit.OfKey()
	}
	l.places, l.fair = m.Grant.Places, m.Fair.Places
	if m.First && l.rateMilli == 0 && now >= l.made {
		l.tokens = token
	}
	l.rateMilli = min(m.Grant.RateMilli, m.Fair.RateMilli)
	if l.rateMilli == 0 {
		l.tokens = 0
	}
	l.comeDown(out)
}

// comeDown gives up the places above the fair share that no command uses.
func (l *shardLimit) comeDown(out int) { l.places = min(l.places, max(out, l.fair)) }

// refill accrues the rate's tokens up to now.
func (l *shardLimit) refill(now core.Instant) {
	if passed := now - l.at; passed > 0 && l.rateMilli > 0 {
		most := max(2*token, l.rateMilli*token/1000/burstPart)
		l.tokens = min(most, l.tokens+min(int64(passed), int64(time.Hour/time.Microsecond))*l.rateMilli/1000)
	}
	l.at = max(l.at, now)
}

// setBack moves the instants from which the rate counts by as much as the machine's clock jumped; by is negative. Otherwise
// nothing would leave until the clock had caught up.
func (l *shardLimit) setBack(by core.Instant) { l.at, l.made = l.at+by, l.made+by }

// room returns how many do commands may be sent now; each must end before the grant does, so longest bounds
// them. -1: no limit.
func (l *shardLimit) room(now core.Instant, out int, longest time.Duration) int {
	if l.outlasts(now, longest) {
		return 0
	}
	room := l.calls(now)
	if l.limit.Concurrent > 0 {
		l.comeDown(out)
		if n := max(0, l.places-out); room < 0 || n < room {
			room = n
		}
	}
	return room
}

// outlasts reports whether a do command that is sent now may still be at work when the grant ends. Then
// another holder may already use its place.
func (l *shardLimit) outlasts(now core.Instant, longest time.Duration) bool {
	return now.Add(longest) > l.until
}

// spend charges the rate with a do command that leaves.
func (l *shardLimit) spend(now core.Instant) {
	l.refill(now)
	l.tokens -= token
	if l.limit.RateMilli > 0 {
		l.made = max(l.made, now).Add(time.Duration(token*1000/l.limit.RateMilli) * time.Microsecond)
	}
}

// unspend takes spend back, for a command that does not leave after all.
func (l *shardLimit) unspend() {
	l.tokens += token
	if l.limit.RateMilli > 0 {
		l.made = l.made.Add(-time.Duration(token*1000/l.limit.RateMilli) * time.Microsecond)
	}
}

// calls returns how many commands the rate lets leave now; -1: the rate does not bound them.
func (l *shardLimit) calls(now core.Instant) int {
	if l.limit.RateMilli == 0 {
		return -1
	}
	l.refill(now)
	return int(max(0, l.tokens) / token)
}

// next returns when the rate lets the next command leave. 0: the rate has a call now, or something else is in
// the way (no rate is granted, or no place is free), so waiting does not help.
func (l *shardLimit) next(now core.Instant, out int) core.Instant {
	if l.limit.RateMilli == 0 || l.rateMilli == 0 || l.tokens >= token || l.limit.Concurrent > 0 && out >= l.places {
		return 0
	}
	return now.Add(time.Duration((token-l.tokens)*1000/l.rateMilli+1) * time.Microsecond)
}

// inUse is what a shard uses of one limit, that of an agent or of one key there.
type inUse struct {
	// limit is nil if the agent has none.
	limit *shardLimit
	// out counts the commands, do and undo, that are out or wait for the agent, and those left behind
	// (left.go).
	out int
}

// next is shardLimit.next; 0 if there is no limit.
func (u *inUse) next(now core.Instant) core.Instant {
	if u.limit == nil {
		return 0
	}
	return u.limit.next(now, u.out)
}

// spend is shardLimit.spend, if there is a limit.
func (u *inUse) spend(now core.Instant) {
	if u.limit != nil {
		u.limit.spend(now)
	}
}

// unspend is shardLimit.unspend, if there is a limit.
func (u *inUse) unspend() {
	if u.limit != nil {
		u.limit.unspend()
	}
}

// limitUse is a shard's report of one limit or key: what it uses, and how much it could use.
type limitUse struct {
	of        limitOf
	seq       int64
	wanted    int
	places    int
	rateMilli int64
	longest   time.Duration
}

// idle reports whether the shard neither uses nor wants anything of it.
func (u *limitUse) idle() bool { return u.wanted == 0 && u.places == 0 && u.rateMilli == 0 }

// limitOf identifies what a grant is of: an agent's limit, or one key of it.
type limitOf struct {
	agent string
	keyed bool
	key   string
}

// usage makes the report of a limit for which waits tasks wait. While the rate has not made up for what was
// sent, the shard wants at least one call: a grant that went away meanwhile would come back with a fresh
// token.
func (u *inUse) usage(of limitOf, now core.Instant, waits int, longest time.Duration) limitUse {
	l := u.limit
	l.comeDown(u.out)
	is := limitUse{of: of, seq: l.seq, wanted: u.out + waits, places: max(l.places, u.out), rateMilli: l.rateMilli, longest: longest}
	if l.limit.RateMilli > 0 {
		l.refill(now)
		if l.rateMilli > 0 && l.tokens < token || now < l.made { // the rate has not made up for what was sent
			is.wanted = max(is.wanted, 1)
		}
	}
	is.wanted = min(is.wanted, core.ConcurrentMax)
	return is
}
