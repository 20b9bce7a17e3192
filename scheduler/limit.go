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
	until     core.Instant // the grant ends
}

// grantMail is a grant for a shard.
type grantMail struct {
	limit core.Limit
	grant core.Grant
	fair  core.Grant
	first bool // no other holder has any of the rate: a call may leave at once
	seq   int64
}

const (
	token     = 1_000_000 // millionths of a call
	burstPart = 10        // of a second: a rate of 100 may send 10 at once
)

// take is the shard's own part of a grant.
func (l *shardLimit) take(m *grantMail, now core.Instant, out int) {
	l.refill(now)
	l.limit, l.seq, l.until = m.limit, m.seq, m.grant.Until
	l.places, l.fair = m.grant.Places, m.fair.Places
	if m.first && l.rateMilli == 0 {
		l.tokens = token
	}
	l.rateMilli = min(m.grant.RateMilli, m.fair.RateMilli)
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

// room is how many do commands may leave now, each of which is over within longest.
func (l *shardLimit) room(now core.Instant, out int, longest time.Duration) int {
	if now.Add(longest) > l.until {
		return 0
	}
	room := -1
	if l.limit.Concurrent > 0 {
		l.comeDown(out)
		room = max(0, l.places-out)
	}
	if l.limit.RateMilli > 0 {
		l.refill(now)
		if n := int(max(0, l.tokens) / token); room < 0 || n < room {
			room = n
		}
	}
	return room
}

// next is when the rate lets the next call through; 0: it is not the rate that keeps it back.
func (l *shardLimit) next(now core.Instant, out int) core.Instant {
	if l.limit.RateMilli == 0 || l.rateMilli == 0 || l.tokens >= token || l.limit.Concurrent > 0 && out >= l.places {
		return 0
	}
	return now.Add(time.Duration((token-l.tokens)*1000/l.rateMilli+1) * time.Microsecond)
}

// applyLimits takes limits and grants of the mail, and lets the round look at what is parked at their agents.
func (s *Shard) applyLimits() {
	c, b := &s.cycle, &s.breakers
	if c.mail.Limits != nil {
		b.limited = map[string]core.Limit{}
		for _, l := range *c.mail.Limits {
			b.limited[l.Agent] = l
		}
		s.countAll()
		for name, a := range b.agents {
			is, limited := b.limited[name]
			switch {
			case limited && a.limit == nil:
				a.limit = &shardLimit{limit: is, places: a.out, at: c.now}
			case !limited && a.limit != nil:
				a.out, a.gone, a.limit = a.out-a.gone, 0, nil
				s.lookParked(a)
			}
		}
		c.mail.Limits = nil
	}
	for i := range c.mail.grants {
		m := &c.mail.grants[i]
		if a := b.agents[m.limit.Agent]; a != nil && a.limit != nil {
			a.limit.take(m, c.now, a.out)
			s.lookParked(a)
		}
	}
	c.mail.grants = c.mail.grants[:0]
	if b.rateAt != 0 && c.now >= b.rateAt {
		b.rateAt = 0
		for _, a := range b.agents {
			if a.limit != nil && a.limit.limit.RateMilli > 0 {
				s.lookParked(a)
			}
		}
	}
}

// countAll counts the commands that are out: where there is no limit that is not known.
func (s *Shard) countAll() {
	for _, p := range s.inOrder() {
		for _, e := range p.tasks {
			switch {
			case e.plan == nil:
			case len(s.breakers.limited) > 0:
				e.countOut(false)
			default:
				e.uncount()
			}
		}
	}
}

// lookParked makes the round look at what is parked at an agent.
func (s *Shard) lookParked(a *agentCalls) {
	for _, p := range s.inOrder() {
		slot, ok := p.slots[a.name]
		if !ok {
			continue
		}
		if at := p.order[slot]; at != nil && (len(at.known) > 0 || at.beyond) { // else nothing waits, and none is wanted
			p.park[slot] = true
		}
	}
}

// limitUse is what a shard says of one limited agent.
type limitUse struct {
	agent     string
	seq       int64
	wanted    int
	places    int
	rateMilli int64
	longest   time.Duration
}

// limitUses gives out what the shard uses and wants of limits.
func (s *Shard) limitUses(yield func(limitUse)) {
	for name := range s.breakers.limited {
		a := s.breakers.agents[name]
		if a == nil || a.limit == nil {
			continue
		}
		l := a.limit
		a.settle(s.cycle.now)
		l.comeDown(a.out)
		u := limitUse{agent: name, seq: l.seq, wanted: a.out, places: max(l.places, a.out), rateMilli: l.rateMilli, longest: a.longest}
		for _, p := range s.partitions {
			slot, ok := p.slots[name]
			if !ok {
				continue
			}
			waits := len(p.blocked[slot])
			if at := p.order[slot]; at != nil {
				waits += len(at.known)
			}
			if p.park[slot] {
				waits = max(waits, 1)
			}
			u.wanted += waits
		}
		if l.limit.RateMilli > 0 && l.rateMilli > 0 && l.tokens < token { // what it has sent is not made up for yet
			u.wanted = max(u.wanted, 1)
		}
		u.wanted = min(u.wanted, core.ConcurrentMax)
		yield(u)
	}
}
