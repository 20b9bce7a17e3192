package scheduler

import "duly.dev/duly/internal/core"

// call is one that a record ends. It is counted when the record is committed.
type call struct {
	p     *partition
	e     *entry
	agent *agentCalls
	calls core.Calls
	trial bool

	refused int // as inRound.refused was
}

// calls are those of a round.
type calls []call

// note notes what the records of an event say of calls. Only what the agent did counts: a refusal before the step has
// begun is an expression's; and of a command that another owner sent, or whose answer may have been lost on the way, it is
// not known that the agent was silent.
func (all *calls) note(p *partition, e *entry, records []core.Record) {
	for i := range records {
		r := &records[i]
		if r.Step < 0 || r.Step >= len(e.plan.agents) || e.plan.agents[r.Step] == nil {
			continue
		}
		bit := uint64(1) << uint(r.Step)
		one := call{p: p, e: e, agent: e.plan.agents[r.Step], trial: e.trial&bit != 0, refused: e.round.refused}
		switch r.Kind {
		case core.KindDone, core.KindRefused:
			if e.at&bit == 0 {
				continue
			}
			one.calls.Done = 1
		case core.KindFailed:
			one.calls.Failed = 1
		case core.KindOverdue:
			if e.heardAll&bit == 0 {
				continue
			}
			one.calls.Failed = 1
		default:
			continue
		}
		*all = append(*all, one)
	}
}

// countCalls counts the calls of the round that is committed, but for those of rows that were left out.
func (b *agentBook) countCalls(now core.Instant, all calls) {
	for _, c := range all {
		if c.refused == c.e.round.refused && !c.p.lost {
			b.count(now, c.agent, c.calls, c.trial)
		}
	}
}
