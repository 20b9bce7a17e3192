package duly

import (
	"context"
	"encoding/json"
	"fmt"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
)

// Probe is the answer to the question whether the do of a key took effect: see [Step.ServeProbe]. Its zero value is none:
// use [Done], [Absent] or [InProgress].
type Probe[Out any] struct {
	outcome core.ProbeOutcome
	result  Out
}

// Done says that the effect is there; result is what the do would have answered.
func Done[Out any](result Out) Probe[Out] {
	return Probe[Out]{outcome: core.ProbeDone, result: result}
}

// Absent says that there is no effect, and that no call for the key is at work. Duly asks again until that is certain: no
// promise about calls on their way is asked of the agent.
func Absent[Out any]() Probe[Out] { return Probe[Out]{outcome: core.ProbeAbsent} }

// InProgress says that a do is still at work, or that the effect is being taken back.
func InProgress[Out any]() Probe[Out] { return Probe[Out]{outcome: core.ProbeInProgress} }

// ErrNotKnown is what a probe returns that cannot tell: it is not the same as [Absent].
var ErrNotKnown = agents.ErrNotKnown

// ServeProbe lets a say what became of a do that did not answer, on duly.probe.<agent>, from [Agent.Run] on: beside
// [Step.Serve], before or after it. call is the one whose outcome is not known; ask the service behind by its Key. probe
// only looks: it begins nothing, and may be called at any time, also for a key that was never done. An error says that it
// cannot tell. Duly asks about steps with [Probed].
//
// An agent whose ledger can answer ([agents.ProbingLedger]; [NewMemoryLedger]'s can, of what it remembers) needs no
// ServeProbe.
func (s *Step[In, Out]) ServeProbe(a *Agent, probe func(context.Context, Call[In]) (Probe[Out], error)) error {
	if s.def.err != nil {
		return fmt.Errorf("serve probes on agent %s: %w", s.def.step.Agent, s.def.err)
	}
	return a.runtime.RegisterProbe(s.def.step.Agent, s.def.step.Name, prober(a.codec, probe))
}

// prober keeps a nil probe nil, so that it is refused where it is served.
func prober[In, Out any](codec Codec, probe func(context.Context, Call[In]) (Probe[Out], error)) agents.Prober {
	if probe == nil {
		return nil
	}
	return func(ctx context.Context, cmd *core.Command) (core.Probe, error) {
		call, err := callOf[In](codec, cmd)
		if err != nil {
			return core.Probe{}, err
		}
		is, err := probe(ctx, call)
		if err != nil {
			return core.Probe{}, err
		}
		p := core.Probe{Outcome: is.outcome}
		if p.Outcome != core.ProbeDone {
			return p, nil
		}
		if p.Result, err = json.Marshal(is.result); err == nil && codec != nil {
			p.Result, err = codec.Encode(Place{cmd.Type, cmd.Task, cmd.Step}, p.Result)
		}
		if err != nil {
			return core.Probe{}, fmt.Errorf("result of step %s: %w", cmd.Step, err)
		}
		return p, nil
	}
}

// serveProbes answers probes until stop is called. On an error some may be served.
func (s source) serveProbes(ctx context.Context, conn *natsbus.Conn) (stop func(), err error) {
	var all []func()
	stop = func() {
		for _, served := range all {
			served()
		}
	}
	if s.dry {
		return stop, nil
	}
	for _, agent := range s.probes.Probed() {
		served, err := conn.ServeProbes(ctx, agent, func(ctx context.Context, cmd *core.Command) (core.Probe, int, error) {
			return s.probes.Probe(ctx, wall{}.Now(), cmd)
		})
		if err != nil {
			return stop, fmt.Errorf("probes of agent %s: %w", agent, err)
		}
		all = append(all, served)
	}
	return stop, nil
}
