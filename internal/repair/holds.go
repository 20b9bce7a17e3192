package repair

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// Agents knows which agents are there; operate.Agents has it.
type Agents interface {
	Agents(ctx context.Context) ([]operate.Agent, error)
}

// NewHolds tells from pauses and from the agents that are there what holds commands back. agents may be nil: then it is
// not known which are away.
func NewHolds(pauses operate.PauseStore, agents Agents, now func() time.Time) Holds {
	return holds{pauses, agents, now}
}

type holds struct {
	pauses operate.PauseStore
	agents Agents
	now    func() time.Time
}

// Holds implements Holds.
func (h holds) Holds(ctx context.Context) (Hold, error) {
	all, err := h.pauses.Pauses(ctx)
	if err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	now, lasting := h.now(), all[:0:0]
	for _, p := range all {
		if p.Until.IsZero() || p.Until.After(now) {
			lasting = append(lasting, p)
		}
	}
	away := map[string]bool{}
	if h.agents != nil {
		agents, err := h.agents.Agents(ctx)
		if err != nil {
			return nil, fmt.Errorf("agents: %w", err)
		}
		for i := range agents {
			away[agents[i].Name] = agents[i].Gone
		}
	}
	return func(t *core.Task, s *core.Step, undo bool) string {
		for i := range lasting {
			if !undo && lasting[i].Covers(t.Type, s.Name, s.Agent, t.Labels) {
				return say.Of("repair.paused", "step", s.Name, "type", t.Type, "by", lasting[i].By)
			}
		}
		if away[s.Agent] {
			return say.Of("repair.away", "agent", s.Agent)
		}
		return ""
	}, nil
}
