package scheduler

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Limits in a shard. The shard has a grant for each limited agent: places for do commands that are out, and a rate. It
// never uses more, and it comes down to its fair share as commands end; limits.go claims grants for it.

// shardLimit is what a shard may use of an agent's limit.
type shardLimit struct {
	limit     core.Limit
	seq       int64 // of the newest grant that it has heard of
	places    int   // that it may use now
	fair      int   // that it is to come down to
	rateMilli int64
	tokens    int64        // of the rate, in millionths of a call
	at        core.Instant // up to when they are counted
	made      core.Instant // when the calls that have left would be made up for by the whole rate
	until     core.Instant // the grant ends
}

const (
	token     = 1_000_000 // millionths of a call
	burstPart = 10        // of a second: a rate of 100 may send 10 at once
)

// take is the shard's own part of a grant.
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

// comeDown gives up places beyond the fair share that are not taken.
func (l *shardLimit) comeDown(out int) { l.places = min(l.places, max(out, l.fair)) }

// refill counts the rate up to now.
func (l *shardLimit) refill(now core.Instant) {
	if passed := now - l.at; passed > 0 && l.rateMilli > 0 {
		most := max(2*token, l.rateMilli*token/1000/burstPart)
		l.tokens = min(most, l.tokens+min(int64(passed), int64(time.Hour/time.Microsecond))*l.rateMilli/1000)
	}
	l.at = max(l.at, now)
}

// setBack moves what of the rate is counted by a clock that is set back.
func (l *shardLimit) setBack(by core.Instant) { l.at, l.made = l.at+by, l.made+by }

// room is how many do commands may leave now, each of which is over within longest.
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

// outlasts reports whether a do command that leaves now may be at work when the grant ends.
func (l *shardLimit) outlasts(now core.Instant, longest time.Duration) bool {
	return now.Add(longest) > l.until
}

// spend takes a do command that leaves off the rate.
func (l *shardLimit) spend(now core.Instant) {
	l.refill(now)
	l.tokens -= token
	if l.limit.RateMilli > 0 {
		l.made = max(l.made, now).Add(time.Duration(token*1000/l.limit.RateMilli) * time.Microsecond)
	}
}

// unspend takes spend back.
func (l *shardLimit) unspend() {
	l.tokens += token
	if l.limit.RateMilli > 0 {
		l.made = l.made.Add(-time.Duration(token*1000/l.limit.RateMilli) * time.Microsecond)
	}
}

// calls is how many the rate lets leave now; -1: as many as come.
func (l *shardLimit) calls(now core.Instant) int {
	if l.limit.RateMilli == 0 {
		return -1
	}
	l.refill(now)
	return int(max(0, l.tokens) / token)
}

// next is when the rate lets the next call through; 0: it is not the rate that keeps it back.
func (l *shardLimit) next(now core.Instant, out int) core.Instant {
	if l.limit.RateMilli == 0 || l.rateMilli == 0 || l.tokens >= token || l.limit.Concurrent > 0 && out >= l.places {
		return 0
	}
	return now.Add(time.Duration((token-l.tokens)*1000/l.rateMilli+1) * time.Microsecond)
}

// inUse is what a shard uses of one limit: an agent's, or that of one of its keys.
type inUse struct {
	limit *shardLimit // nil: there is none
	out   int         // commands that are out or wait for the agent, do and undo, and those left behind
}

// next is when the limit's rate lets the next call through by itself; 0: it does not.
func (u *inUse) next(now core.Instant) core.Instant {
	if u.limit == nil {
		return 0
	}
	return u.limit.next(now, u.out)
}

// spend takes a do command that leaves off the rate.
func (u *inUse) spend(now core.Instant) {
	if u.limit != nil {
		u.limit.spend(now)
	}
}

// unspend takes spend back.
func (u *inUse) unspend() {
	if u.limit != nil {
		u.limit.unspend()
	}
}

// limitUse is what a shard says of one limited agent, or of one key there.
type limitUse struct {
	of        limitOf
	seq       int64
	wanted    int
	places    int
	rateMilli int64
	longest   time.Duration
}

// idle reports whether nothing is used of it, and nothing is wanted.
func (u *limitUse) idle() bool { return u.wanted == 0 && u.places == 0 && u.rateMilli == 0 }

// limitOf is what a grant is of: the limit of an agent, or what bounds one key of it.
type limitOf struct {
	agent string
	keyed bool
	key   string
}

// usage is what the shard says of a limit, where so many tasks wait.
func (u *inUse) usage(of limitOf, now core.Instant, waits int, longest time.Duration) limitUse {
	l := u.limit
	l.comeDown(u.out)
	is := limitUse{of: of, seq: l.seq, wanted: u.out + waits, places: max(l.places, u.out), rateMilli: l.rateMilli, longest: longest}
	if l.limit.RateMilli > 0 {
		l.refill(now)
		if l.rateMilli > 0 && l.tokens < token || now < l.made { // what it has sent is not made up for yet
			is.wanted = max(is.wanted, 1)
		}
	}
	is.wanted = min(is.wanted, core.ConcurrentMax)
	return is
}
