package agents

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Prober says whether the do of a command took effect. cmd is the one whose outcome is not known, with its input and the
// results before it; the context ends when the answer is no longer read. An error says that it is not known: what
// follows is what follows without a probe.
type Prober func(ctx context.Context, cmd *core.Command) (core.Probe, error)

// ProbingLedger is a [Ledger] that answers probes by itself. An implementation that may have forgotten keys, or shares
// its agent's name with processes that have ledgers of their own, must not say core.ProbeAbsent of a key that it does not
// know: [ErrNotKnown].
type ProbingLedger interface {
	Ledger
	Probe(ctx context.Context, key string) (core.Probe, error)
}

// ErrNotKnown is the answer to a probe about a key of which nothing is known, which is not the same as no effect.
var ErrNotKnown = errors.New("nothing is known of the key")

// probeMax bounds one probe, whatever time the asker has.
const probeMax = 10 * time.Second

// RegisterProbe has probes of a step answered by probe. The step may be registered before or after. It refuses what
// [Runtime.Register] would, and a step whose probes are answered already.
func (r *Runtime) RegisterProbe(agent, step string, probe Prober) error {
	if err := core.CheckAgent(agent); err != nil {
		return fmt.Errorf("serve probes of step %s: %w", step, err)
	}
	if err := core.CheckName("step", step); err != nil {
		return fmt.Errorf("serve probes on agent %s: %w", agent, err)
	}
	at := route{agent, step}
	switch {
	case probe == nil:
		return fmt.Errorf("serve probes of step %s of agent %s: no handler", step, agent)
	case r.running.Load():
		return fmt.Errorf("serve probes of step %s of agent %s: the agent runs already", step, agent)
	case r.probes[at] != nil:
		return fmt.Errorf("serve probes of step %s of agent %s: served already", step, agent)
	}
	if r.probes == nil {
		r.probes = map[route]Prober{}
	}
	r.probes[at] = probe
	return nil
}

// Probed are the agents that have probes answered: those with a step of [Runtime.RegisterProbe], and with a
// [ProbingLedger] those with a step that has an undo; in the order of [Runtime.Agents], others after them.
func (r *Runtime) Probed() []string {
	has := map[string]bool{}
	for at := range r.probes {
		has[at.agent] = true
	}
	if _, ok := r.config.Ledger.(ProbingLedger); ok {
		for at, h := range r.routes {
			has[at.agent] = has[at.agent] || h.Undo != nil
		}
	}
	var all []string
	for _, agent := range r.agents {
		if has[agent] {
			all = append(all, agent)
			delete(has, agent)
		}
	}
	var others []string
	for agent, is := range has {
		if is {
			others = append(others, agent)
		}
	}
	slices.Sort(others)
	return append(all, others...)
}

// Probe answers one probe; now is when it was read. An error has a code as a reply's.
func (r *Runtime) Probe(ctx context.Context, now core.Instant, cmd *core.Command) (p core.Probe, code int, err error) {
	probe := r.prober(cmd)
	if probe == nil {
		return core.Probe{}, codeUnknownStep, fmt.Errorf("this agent answers no probes of step %s", core.QuoteShort(cmd.Step))
	}
	left := min(deadlineOf(now, cmd).Sub(r.config.Time.Now()), probeMax)
	if left <= 0 {
		return core.Probe{}, codeStopping, errors.New("the answer is no longer read")
	}
	work, cancel := r.config.Time.WithTimeout(ctx, left)
	defer cancel()
	if r.config.Context != nil {
		work = r.config.Context(work, cmd)
	}
	if p, err = r.probed(work, probe, cmd); err != nil {
		return core.Probe{}, core.CodeAgentError, err
	}
	if err := r.checkProbe(cmd, &p); err != nil {
		return core.Probe{}, core.CodeFailed, err
	}
	return p, 0, nil
}

// prober is what answers probes of a command's step: its own handler, or the ledger; nil: nothing does.
func (r *Runtime) prober(cmd *core.Command) Prober {
	if probe := r.probes[route{cmd.Agent, cmd.Step}]; probe != nil {
		return probe
	}
	ledger, ok := r.config.Ledger.(ProbingLedger)
	if h := r.handlers(cmd); !ok || h == nil || h.Undo == nil {
		return nil // a check goes past the ledger
	}
	return func(ctx context.Context, cmd *core.Command) (core.Probe, error) { return ledger.Probe(ctx, cmd.Key()) }
}

// probed calls a handler; a panic is its error.
func (r *Runtime) probed(ctx context.Context, probe Prober, cmd *core.Command) (p core.Probe, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.config.Log.Error("a probe panicked", "agent", cmd.Agent, "task", cmd.Task, "step", cmd.Step, "panic", v, "stack", string(debug.Stack()))
			p, err = core.Probe{}, fmt.Errorf("panic: %v", v)
		}
	}()
	if p, err = probe(ctx, cmd); err != nil {
		_ = err.Error() // an error that panics when it is asked does so here
	}
	return p, err
}

// checkProbe refuses an answer that is none, and completes one without a result.
func (r *Runtime) checkProbe(cmd *core.Command, p *core.Probe) error {
	most := core.ResultBytesMax
	if h := r.handlers(cmd); h != nil {
		most = h.ResultMax
	}
	switch p.Outcome {
	case core.ProbeDone:
		if len(p.Result) == 0 {
			p.Result = []byte("null")
		}
		if len(p.Result) > most {
			return fmt.Errorf("bad_result: %d bytes, the limit is %d", len(p.Result), most)
		}
		if err := quickjson.Check("result", p.Result); err != nil {
			return fmt.Errorf("bad_result: %w", err)
		}
	case core.ProbeAbsent, core.ProbeInProgress:
		p.Result = nil
	default:
		return fmt.Errorf("outcome %s, want %s, %s or %s", core.QuoteShort(string(p.Outcome)), core.ProbeDone, core.ProbeAbsent, core.ProbeInProgress)
	}
	return nil
}

// Probe implements [ProbingLedger]. It has its process's memory alone, so that a key that it does not know is
// ErrNotKnown, and only one that was undone here is absent.
func (l *MemoryLedger) Probe(_ context.Context, key string) (core.Probe, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
	e := l.entries[key]
	switch {
	case e == nil:
		return core.Probe{}, ErrNotKnown
	case e.undone:
		return core.Probe{Outcome: core.ProbeAbsent}, nil
	case e.working, e.tomb:
		return core.Probe{Outcome: core.ProbeInProgress}, nil
	}
	return core.Probe{Outcome: core.ProbeDone, Result: e.result}, nil
}

var _ ProbingLedger = (*MemoryLedger)(nil)
