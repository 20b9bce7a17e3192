package sim_test

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// stageLimits are the limits of agents, and until when each do command that is committed may be at work, by agent.
type stageLimits struct {
	all []core.Limit
	out map[string]map[issuedKey]core.Instant
}

// bound is an operator who limits the do commands at an agent, and a node that may use all of it: limit bank concurrent=1 to=n1
// term=2, where the node has taken over two partitions.
func (s *stage) bound(agent string, a args) {
	l := core.Limit{Agent: agent, Concurrent: s.number(a["concurrent"]), Revision: 1}
	term := int64(s.number(a["term"]))
	if !slices.ContainsFunc(s.limits.all, func(o core.Limit) bool { return o.Agent == agent }) {
		s.limits.all = append(s.limits.all, l)
	}
	n, all := s.node(a["to"]), slices.Clone(s.limits.all)
	n.mail.Limits = &all
	grant := core.Grant{Holder: n.name, Wanted: 1, Places: l.Concurrent, Until: s.now.Add(time.Hour)}
	n.mail.Grants = append(n.mail.Grants, scheduler.GrantMail{Term: term, ClaimedGrant: core.ClaimedGrant{Limit: l, Grant: grant, Fair: grant}, Seq: int64(len(all)) + term})
	s.say("operator", "limits", "%s to %d at a time", agent, l.Concurrent)
	n.wake()
}

// holdToLimits holds a journal row to the limits: no more do commands are committed that may be at work than there are places.
func (s *stage) holdToLimits(t *core.Task, r *core.Record) {
	plan := s.plans[t.Type][t.PlanVersion]
	if plan == nil {
		return
	}
	out := func(step int) map[issuedKey]core.Instant {
		agent := plan.Steps[step].Agent
		if s.limits.out[agent] == nil {
			s.limits.out[agent] = map[issuedKey]core.Instant{}
		}
		return s.limits.out[agent]
	}
	if r.Step >= 0 {
		delete(out(r.Step), issuedKey{t.Partition, t.Number, int64(r.Step)})
	}
	if r.Next < 0 || r.Undo {
		return
	}
	out(r.Next)[issuedKey{t.Partition, t.Number, int64(r.Next)}] = r.Due
	n := 0
	for _, until := range out(r.Next) {
		if until > s.now {
			n++
		}
	}
	for _, l := range s.limits.all {
		if l.Agent == plan.Steps[r.Next].Agent && n > l.Concurrent {
			s.wrong("%d do commands may be at work at %s, the limit is %d", n, l.Agent, l.Concurrent)
		}
	}
}
