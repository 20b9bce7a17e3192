package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Absence is what one node has in flight that waits for an agent of which no instance takes commands.
type Absence struct {
	Agent string
	Since time.Time // when the node has seen that first
	Tasks int64
	First time.Time // the earliest deadline
	Steps []WaitingStep
	More  bool // others of its steps may wait
}

// LiveAgents is Agents over NATS's service discovery. The exported fields are required. It is safe for concurrent use: callers
// that come together, or within AgentsFresh of each other, make one request.
type LiveAgents struct {
	Flow FlowReader
	// Instances asks the agents of those names for their instances; more: there may be others than those that it returns.
	Instances func(ctx context.Context, agents []string) (all []Instance, more bool, err error)
	// Absent asks all nodes for what they have in flight that waits for an agent; more: a node has not said all.
	Absent func(ctx context.Context) (all []Absence, more bool, err error)
	// Pauses returns what is paused, Breakers what breakers there are.
	Pauses   func(ctx context.Context) ([]Pause, error)
	Breakers func(ctx context.Context) ([]core.Breaker, error)
	Now      func() time.Time

	mu        sync.Mutex // held during a look: others wait for it
	seen      []Agent
	at        time.Time       // of the last look that succeeded
	announced map[string]bool // agents of the last looks that have had instances
}

// Agents implements Agents: by name, each that a stored plan names or that tasks wait for. Instances is 0 for one that has not
// answered, and -1 for one that may have.
func (s *LiveAgents) Agents(ctx context.Context) ([]Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := s.Now().Sub(s.at); !s.at.IsZero() && age >= 0 && age < AgentsFresh { // less than 0: the clock was set back
		return slices.Clone(s.seen), nil
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	s.seen, s.at = seen, s.Now()
	return slices.Clone(seen), nil
}

// Forget has the next who asks look again: something that it shows was changed.
func (s *LiveAgents) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

func (s *LiveAgents) look(ctx context.Context) ([]Agent, error) {
	plans, err := s.Flow.Plans(ctx)
	if _, some := errors.AsType[core.UnreadablePlans](err); err != nil && !some {
		return nil, fmt.Errorf("plans: %w", err)
	}
	book := agentBook{}
	for k := range plans {
		for i := range plans[k].Steps {
			if agent := plans[k].Steps[i].Agent; agent != "" {
				book.of(agent)
			}
		}
	}
	for _, read := range []func(context.Context, agentBook, []core.Plan) error{s.readParked, s.readAbsent, s.readPauses, s.readBreakers, s.readInstances} {
		if err := read(ctx, book, plans); err != nil {
			return nil, err
		}
	}
	all := make([]Agent, 0, len(book))
	for _, a := range book {
		slices.SortFunc(a.Steps, func(a, b WaitingStep) int {
			return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Step, b.Step))
		})
		if len(a.Steps) > WaitingStepsMax {
			a.Steps, a.StepsMore = a.Steps[:WaitingStepsMax], true
		}
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// agentBook is agents by name, while they are looked at.
type agentBook map[string]*Agent

func (b agentBook) of(name string) *Agent {
	a := b[name]
	if a == nil {
		a = &Agent{Name: name, Steps: []WaitingStep{}, Breaker: Breaker{State: core.BreakerClosed}}
		b[name] = a
	}
	return a
}

// waits adds tasks that wait for the agent at a step until a deadline.
func (a *Agent) waits(step WaitingStep, first time.Time) {
	if !first.IsZero() && (a.FirstDeadline.IsZero() || first.Before(a.FirstDeadline)) {
		a.FirstDeadline = first
	}
	if step.Step == "" {
		return
	}
	i := slices.IndexFunc(a.Steps, func(s WaitingStep) bool {
		return s.Type == step.Type && s.Step == step.Step && s.NotServed == step.NotServed
	})
	if i < 0 {
		a.Steps = append(a.Steps, step)
		return
	}
	a.Steps[i].Tasks += step.Tasks
	a.Steps[i].AtLeast = a.Steps[i].AtLeast || step.AtLeast
}

// readParked adds what is parked.
func (s *LiveAgents) readParked(ctx context.Context, book agentBook, plans []core.Plan) error {
	parked, err := s.Flow.ParkedAt(ctx)
	if err != nil {
		return fmt.Errorf("parked tasks: %w", err)
	}
	for name, all := range parked {
		a := book.of(name)
		for i := range all {
			p := &all[i]
			a.Waiting = a.Waiting.Plus(p.Tasks)
			first := time.Time{}
			if p.First != 0 {
				first = p.First.Time()
			}
			a.waits(WaitingStep{Type: p.Type, Step: stepsAt(plans, p, name), Tasks: p.Tasks.N, AtLeast: p.Tasks.AtLeast}, first)
			a.StepsMore = a.StepsMore || p.Tasks.AtLeast
		}
	}
	return nil
}

// stepsAt names the steps of a plan that are at an agent; empty: the plan cannot be read.
func stepsAt(plans []core.Plan, of *ParkedOf, agent string) string {
	var names []string
	for k := range plans {
		if plans[k].Name != of.Type || plans[k].Version != of.Version {
			continue
		}
		for i := range plans[k].Steps {
			if plans[k].Steps[i].Agent == agent {
				names = append(names, plans[k].Steps[i].Name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// Plus is the sum of two counts, up to CountExactMax.
func (c Count) Plus(o Count) Count {
	c.N, c.AtLeast = c.N+o.N, c.AtLeast || o.AtLeast
	if c.N > CountExactMax {
		c.N, c.AtLeast = CountExactMax, true
	}
	return c
}

// readAbsent adds what nodes have in flight that waits for agents.
func (s *LiveAgents) readAbsent(ctx context.Context, book agentBook, _ []core.Plan) error {
	absent, more, err := s.Absent(ctx)
	if err != nil {
		return err
	}
	for i := range absent {
		is := &absent[i]
		a := book.of(is.Agent)
		a.Unserved = a.Unserved.Plus(Count{N: is.Tasks})
		if a.AwaySince.IsZero() || is.Since.Before(a.AwaySince) {
			a.AwaySince = is.Since
		}
		a.Gone = a.Gone || len(is.Steps) == 0 || slices.ContainsFunc(is.Steps, func(s WaitingStep) bool { return !s.NotServed })
		a.waits(WaitingStep{}, is.First)
		a.StepsMore = a.StepsMore || is.More
		for _, step := range is.Steps {
			a.waits(step, time.Time{})
		}
	}
	if more {
		for _, a := range book {
			a.Unserved.AtLeast, a.StepsMore = true, true
		}
	}
	return nil
}

// readPauses adds which are paused.
func (s *LiveAgents) readPauses(ctx context.Context, book agentBook, _ []core.Plan) error {
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return fmt.Errorf("pauses: %w", err)
	}
	now := s.Now()
	for name, a := range book {
		a.Paused = slices.ContainsFunc(pauses, func(p Pause) bool {
			return (p.Agent == name || p.Agent == "") && p.Type == "" && p.Label == "" && (p.Until.IsZero() || now.Before(p.Until))
		})
	}
	return nil
}

// readBreakers adds the breakers. One of an agent that no plan names any more is shown while it is not closed.
func (s *LiveAgents) readBreakers(ctx context.Context, book agentBook, _ []core.Plan) error {
	breakers, err := s.Breakers(ctx)
	if err != nil {
		return fmt.Errorf("breakers: %w", err)
	}
	now := s.Now()
	for i := range breakers {
		b := BreakerOf(&breakers[i], now)
		if book[breakers[i].Agent] != nil || b.State != core.BreakerClosed || b.Forced {
			book.of(breakers[i].Agent).Breaker = b
		}
	}
	return nil
}

// readInstances asks the agents of the book, and adds those that answer.
func (s *LiveAgents) readInstances(ctx context.Context, book agentBook, _ []core.Plan) error {
	instances, more, err := s.Instances(ctx, slices.Sorted(maps.Keys(book)))
	if err != nil {
		return err
	}
	busy, messages := map[string]time.Duration{}, map[string]int64{}
	for _, is := range instances {
		a := book.of(is.Agent)
		a.Instances, a.Calls, a.Errors = a.Instances+1, a.Calls+is.Calls, a.Errors+is.Errors
		if a.Since.IsZero() || is.Started.Before(a.Since) {
			a.Since = is.Started
		}
		busy[is.Agent] += is.Busy
		messages[is.Agent] += is.Messages
	}
	announced := map[string]bool{}
	for name, a := range book {
		if n := messages[name]; n > 0 {
			a.LatencyMS = float64(busy[name]) / float64(n) / float64(time.Millisecond)
		}
		announced[name] = a.Instances > 0 || s.announced[name]
		a.InstancesMore = more
		if a.Instances == 0 && more {
			a.Instances = -1
		}
		a.Gone = a.Instances == 0 && (announced[name] || a.Gone)
	}
	s.announced = announced
	return nil
}
