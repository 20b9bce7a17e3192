package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// AgentsFresh is how long one look at the agents serves all who ask.
const AgentsFresh = 2 * time.Second

// Instance is one instance of an agent that has answered.
type Instance struct {
	Agent    string
	Started  time.Time
	Calls    int64 // answered since its start
	Errors   int64 // of these
	Busy     time.Duration
	Messages int64 // that Busy is about
}

// LiveAgents is Agents over NATS's service discovery. The exported fields are required. It is safe for concurrent use: callers
// that come together, or within AgentsFresh of each other, make one request.
type LiveAgents struct {
	Flow FlowReader
	// Instances asks the agents of those names for their instances; more: there may be others than those that it returns.
	Instances func(ctx context.Context, agents []string) (all []Instance, more bool, err error)
	// Pauses returns what is paused.
	Pauses func(ctx context.Context) ([]Pause, error)
	Now    func() time.Time

	mu   sync.Mutex // held during a look: others wait for it
	seen []Agent
	at   time.Time // of the last look that succeeded
}

// Agents implements Agents: by name, each that a stored plan names or that tasks wait for. Instances is 0 for one that has not
// answered, and -1 for one that may have.
func (s *LiveAgents) Agents(ctx context.Context) ([]Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && s.Now().Sub(s.at) < AgentsFresh {
		return slices.Clone(s.seen), nil
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	s.seen, s.at = seen, s.Now()
	return slices.Clone(seen), nil
}

func (s *LiveAgents) look(ctx context.Context) ([]Agent, error) {
	plans, err := s.Flow.Plans(ctx)
	if _, some := errors.AsType[core.UnreadablePlans](err); err != nil && !some {
		return nil, fmt.Errorf("plans: %w", err)
	}
	waiting, err := s.Flow.WaitingFor(ctx)
	if err != nil {
		return nil, err
	}
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	byName := map[string]*Agent{}
	of := func(name string) *Agent {
		a := byName[name]
		if a == nil {
			a = &Agent{Name: name}
			byName[name] = a
		}
		return a
	}
	for k := range plans {
		for i := range plans[k].Steps {
			of(plans[k].Steps[i].Agent)
		}
	}
	for name, n := range waiting {
		of(name).Waiting = n
	}
	instances, more, err := s.Instances(ctx, slices.Sorted(maps.Keys(byName)))
	if err != nil {
		return nil, err
	}
	busy, messages := map[string]time.Duration{}, map[string]int64{}
	for _, is := range instances {
		a := of(is.Agent)
		a.Instances, a.Calls, a.Errors = a.Instances+1, a.Calls+is.Calls, a.Errors+is.Errors
		if a.Since.IsZero() || is.Started.Before(a.Since) {
			a.Since = is.Started
		}
		busy[is.Agent] += is.Busy
		messages[is.Agent] += is.Messages
	}
	now := s.Now()
	all := make([]Agent, 0, len(byName))
	for name, a := range byName {
		if n := messages[name]; n > 0 {
			a.LatencyMS = float64(busy[name]) / float64(n) / float64(time.Millisecond)
		}
		if a.Instances == 0 && more {
			a.Instances = -1
		}
		a.Paused = slices.ContainsFunc(pauses, func(p Pause) bool {
			return (p.Agent == name || p.Agent == "") && p.Type == "" && p.Label == "" && (p.Until.IsZero() || now.Before(p.Until))
		})
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
