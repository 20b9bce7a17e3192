package scheduler

import (
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// How a shard takes limits and grants from the mail, and reports their use after each cycle.

// applyLimits applies the limits and grants of the mail, and frees what was left behind and is over or
// counted elsewhere.
func (q *queues) applyLimits(mail *Mail) {
	b, now := &q.gate.agents, q.gate.now
	if mail.Limits != nil {
		b.setLimits(*mail.Limits, now, q.in.inOrder())
		mail.Limits = nil
	}
	for i := range mail.Grants {
		m := &mail.Grants[i]
		a := b.all[m.Limit.Agent]
		switch {
		case a == nil || m.Term != b.term:
		case m.Grant.Keyed:
			if a.keys != nil {
				a.key(m.Grant.Key).take(m, now)
			}
		case a.limit != nil:
			a.limit.take(m, now, a.out)
		}
	}
	mail.Grants = mail.Grants[:0]
	b.freeLeft(now, mail.Counted)
	mail.Counted = nil
	if b.nextRateRound.due(now) {
		q.recheckKeys()
	}
}

// setLimits replaces the limits. Commands that are out are counted anew, since they were not counted for a
// limit that is new.
func (b *agentBook) setLimits(all []core.Limit, now core.Instant, in []*partition) {
	was := b.limited
	b.limited, b.keyed = map[string]core.Limit{}, false
	for _, l := range all {
		b.limited[l.Agent] = l
		b.keyed = b.keyed || l.Key != ""
	}
	for _, p := range in {
		p.uncount()
	}
	for name, a := range b.all {
		is := b.limited[name]
		if was[name].Key != is.Key {
			a.rekey(is.Key != "", in)
		}
		if a.limit != nil && !is.InAll() {
			b.forgetLeft(a)
			a.limit = nil
		}
	}
	if len(b.limited) > 0 { // without limits places are not counted
		for _, p := range in {
			for _, e := range p.tasks {
				if e.plan != nil {
					b.takePlaces(e)
					e.round.places = core.StepSet{} // these commands left in earlier rounds
				}
			}
		}
	}
	for name, a := range b.all {
		if is := b.limited[name]; a.limit == nil && is.InAll() {
			a.limit = &shardLimit{limit: is, places: a.out, at: now}
		}
	}
	b.reportKeys()
}

// reportKeys has all keys reported. The scheduler forgets what was claimed for a limit's keys when the limit
// is removed; if it was set again before the shard noticed, only this tells the scheduler of the keys.
func (b *agentBook) reportKeys() {
	for _, name := range slices.Sorted(maps.Keys(b.limited)) {
		if a := b.all[name]; a != nil {
			for _, key := range slices.Sorted(maps.Keys(a.keys)) {
				a.keys[key].report()
			}
		}
	}
}

// rekey forgets an agent's keys, because its limit has another expression or none. What is parked there is
// read again from the store and judged by its new keys.
func (a *agentCalls) rekey(has bool, in []*partition) {
	a.keys = nil
	if has {
		a.keys = map[string]*keyCalls{}
	}
	for _, p := range in {
		if slot := p.slots[a.name]; slot != nil && slot.order != nil {
			slot.order = nil
			slot.queue()
		}
	}
}

// limitUses yields what the partitions use and want of each limit, and of those keys whose use has changed
// since the last call.
func (g *gate) limitUses(in []*partition, yield func(limitUse)) {
	for name := range g.agents.limited {
		a := g.agents.all[name]
		if a == nil || a.limit == nil {
			continue
		}
		waits := 0
		for _, p := range in {
			slot := p.slots[name]
			if slot == nil {
				continue
			}
			here := len(slot.blocked)
			if at := slot.order; at != nil && !p.noMore {
				here += len(at.known) - at.aside.waiting
			}
			if at := slot.order; at != nil && at.beyond && !p.noMore {
				here = max(here, 1)
			}
			waits += here
		}
		yield(a.usage(limitOf{agent: name}, g.now, waits, a.longest))
	}
	g.keyUses(in, yield)
}

// keyUses is the part of limitUses for keys. It forgets the keys that are no longer in use.
func (g *gate) keyUses(in []*partition, yield func(limitUse)) {
	b := &g.agents
	changed := b.unreported
	b.unreported = nil
	for _, k := range changed {
		k.reporting = false
		if k.agent.keys[k.key] != k { // the limit's keys have changed meanwhile
			continue
		}
		waits := 0
		for _, p := range in {
			if slot := p.slots[k.agent.name]; slot != nil && slot.order != nil && !p.noMore {
				waits += slot.order.ofKey[k.key]
			}
		}
		if k.wantsPlace {
			waits = max(waits, 1)
		}
		k.wantsPlace = false
		use := k.usage(limitOf{agent: k.agent.name, keyed: true, key: k.key}, g.now, waits, k.agent.longest)
		if use.idle() && k.nextRound.lookAt == 0 {
			delete(k.agent.keys, k.key)
		}
		yield(use)
	}
	b.unreported = append(changed[:0], b.unreported...)
}
