package scheduler

import "duly.dev/duly/internal/core"

// call is the outcome of one command. It is counted when the record that tells it is committed.
type call struct {
	p     *partition
	e     *entry
	agent *agentCalls
	calls core.Calls
	trial bool

	// refused is inRound.refused when the call was noted; see there.
	refused int
}

// calls are the outcomes of a round.
type calls []call

// note collects the outcomes that the records of an event tell. Only what is the agent's doing counts. A
// refusal of a step that was not out comes from an expression. A silent command counts against the agent only
// if this owner sent it and has heard every reply since.
func (all *calls) note(p *partition, e *entry, records []core.Record) {
	for i := range records {
		r := &records[i]
		if r.Step < 0 || r.Step >= len(e.plan.agents) || e.plan.agents[r.Step] == nil {
			continue
		}
		one := call{p: p, e: e, agent: e.plan.agents[r.Step], trial: e.trial.Has(r.Step), refused: e.round.refused}
		switch r.Kind {
		case core.KindDone, core.KindRefused:
			if !e.at.Has(r.Step) {
				continue
			}
			one.calls.Done = 1
		case core.KindFailed:
			one.calls.Failed = 1
		case core.KindOverdue:
			if !e.heardAll.Has(r.Step) {
				continue
			}
			one.calls.Failed = 1
		default:
			continue
		}
		*all = append(*all, one)
	}
}

// countCalls counts the outcomes of a committed round, without those of rows that were refused.
func (b *agentBook) countCalls(now core.Instant, all calls) {
	for _, c := range all {
		if c.refused == c.e.round.refused && !c.p.lost {
			b.count(now, c.agent, c.calls, c.trial)
		}
	}
}
