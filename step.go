package duly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Check is a step that leaves nothing behind, so that there is nothing to undo:
// it reads, validates or asks. In is the task's input, Out what the check finds.
type Check[In, Out any] struct{ def definition }

// NewCheck defines a check. name is unique within the plan, 1 to 64 of
// A–Z a–z 0–9 _ -; agent is who performs it, 1 to 4 such names joined by dots.
func NewCheck[In, Out any](name, agent string, options ...CheckOption) *Check[In, Out] {
	c := &Check[In, Out]{define(name, core.CallStep)}
	c.def.step.Agent = agent
	for _, option := range options {
		option.forCheck(&c.def)
	}
	return c
}

// Name is the step's name.
func (c *Check[In, Out]) Name() string {
	if c == nil {
		return "" // refused where it is used
	}
	return c.def.step.Name
}

// Agent is the name of who performs it.
func (c *Check[In, Out]) Agent() string { return c.def.step.Agent }

// Serve lets a perform the check with do, from [Agent.Run] on.
func (c *Check[In, Out]) Serve(a *Agent, do func(context.Context, Call[In]) (Out, error)) error {
	return c.def.serve(a, agents.Handlers{Do: doHandler(a.codec, do)})
}

// ServeAsync is Serve for a do that does not wait for its work: it returns at once,
// and calls done when the work has ended, from any goroutine. It suits a service that
// calls back, or many calls at a time that need no goroutine each. What [Agent] says
// of handlers holds; one that blocks holds up others. The context ends at the
// complete-by, and with done. done must be called once; what is said after that is ignored, and
// a command whose done is never called keeps its place among those at work (see [Running]).
func (c *Check[In, Out]) ServeAsync(a *Agent, do func(ctx context.Context, call Call[In], done func(Out, error))) error {
	return c.def.serve(a, agents.Handlers{Start: doStarter(a.codec, do)})
}

// Result reads what the check answered, in a later step of the same task.
func (c *Check[In, Out]) Result(in Earlier[In]) (Out, error) { return result[Out](c.Name(), in) }

func (c *Check[In, Out]) takes(In)          {}
func (c *Check[In, Out]) gives() (none Out) { return none }
func (c *Check[In, Out]) define() definition {
	if c == nil {
		return definition{err: errNilStep}
	}
	return c.def
}

// Step is a step with an effect, and therefore with an undo. In is the task's
// input, Out the receipt that do answers and undo is given.
type Step[In, Out any] struct{ def definition }

// NewStep defines a step. name is unique within the plan, 1 to 64 of
// A–Z a–z 0–9 _ -; agent is who performs it, 1 to 4 such names joined by dots.
func NewStep[In, Out any](name, agent string, options ...StepOption) *Step[In, Out] {
	s := &Step[In, Out]{define(name, core.CallStep)}
	s.def.step.Agent, s.def.step.Undoable = agent, true
	for _, option := range options {
		option.forStep(&s.def)
	}
	return s
}

// Name is the step's name.
func (s *Step[In, Out]) Name() string {
	if s == nil {
		return "" // refused where it is used
	}
	return s.def.step.Name
}

// Agent is the name of who performs it.
func (s *Step[In, Out]) Agent() string { return s.def.step.Agent }

// Serve lets a perform the step with do and take it back with undo, from
// [Agent.Run] on.
//
// Either may be called more than once for one key, do may have taken effect
// without undo being told its result (Undo.Known is false), and undo may come
// for a do that never did anything. Both must cope, or the agent keeps a ledger:
// see [WithLedger]. dulytest.RunTwice tries it out.
func (s *Step[In, Out]) Serve(a *Agent, do func(context.Context, Call[In]) (Out, error), undo func(context.Context, Undo[In, Out]) error) error {
	return s.def.serve(a, agents.Handlers{Do: doHandler(a.codec, do), Undo: undoHandler(a.codec, undo)})
}

// ServeAsync is Serve for handlers that do not wait for their work: see
// [Check.ServeAsync]. An agent with a ledger waits for the work all the same, on a
// goroutine for each call.
func (s *Step[In, Out]) ServeAsync(a *Agent, do func(ctx context.Context, call Call[In], done func(Out, error)), undo func(ctx context.Context, undo Undo[In, Out], done func(error))) error {
	return s.def.serve(a, agents.Handlers{Start: doStarter(a.codec, do), StartUndo: undoStarter(a.codec, undo)})
}

// Result reads what the step answered, in a later step of the same task.
func (s *Step[In, Out]) Result(in Earlier[In]) (Out, error) { return result[Out](s.Name(), in) }

func (s *Step[In, Out]) takes(In)          {}
func (s *Step[In, Out]) gives() (none Out) { return none }
func (s *Step[In, Out]) define() definition {
	if s == nil {
		return definition{err: errNilStep}
	}
	return s.def
}

var errNilStep = errors.New("a step is nil")

// serve registers the step's handlers with an agent. A step with an effect has an undo.
func (d *definition) serve(a *Agent, handlers agents.Handlers) error {
	if d.err != nil {
		return fmt.Errorf("serve on agent %s: %w", d.step.Agent, d.err)
	}
	if d.step.Undoable && handlers.Undo == nil && handlers.StartUndo == nil {
		return fmt.Errorf("serve step %s of agent %s: no undo handler", d.step.Name, d.step.Agent)
	}
	handlers.ResultMax = d.step.ResultMax
	return a.runtime.Register(d.step.Agent, d.step.Name, handlers)
}

// doHandler keeps a nil do nil, as its like below do, so that it is refused where it is served.
func doHandler[In, Out any](codec Codec, do func(context.Context, Call[In]) (Out, error)) agents.Handler {
	if do == nil {
		return nil
	}
	return func(ctx context.Context, cmd *core.Command) ([]byte, error) {
		call, err := doCallOf[In](codec, cmd)
		if err != nil {
			return nil, err
		}
		out, err := do(ctx, call)
		return encode(codec, cmd, out, err)
	}
}

// doStarter is doHandler for a do that answers by done.
func doStarter[In, Out any](codec Codec, do func(context.Context, Call[In], func(Out, error))) agents.Starter {
	if do == nil {
		return nil
	}
	return func(ctx context.Context, cmd *core.Command, done func([]byte, error)) {
		call, err := doCallOf[In](codec, cmd)
		if err != nil {
			done(nil, err)
			return
		}
		do(ctx, call, func(out Out, err error) { done(encode(codec, cmd, out, err)) })
	}
}

// doCallOf is callOf for a do: what does not decode now will not the next time, but for a key that is elsewhere.
func doCallOf[In any](codec Codec, cmd *core.Command) (Call[In], error) {
	call, err := callOf[In](codec, cmd)
	if err != nil && !errors.Is(err, ErrKeyUnknown) {
		return call, agents.Refuse(400, err)
	}
	return call, err
}

// encode makes the result of a do that gave out and err.
func encode[Out any](codec Codec, cmd *core.Command, out Out, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, agents.Fail(fmt.Errorf("result of step %s: %w", cmd.Step, err))
	}
	if codec == nil {
		return data, nil
	}
	if data, err = codec.Encode(Place{cmd.Type, cmd.Task, cmd.Step}, data); err != nil { // its key service may come back
		return nil, fmt.Errorf("result of step %s: %w", cmd.Step, err)
	}
	return data, nil
}

func undoHandler[In, Out any](codec Codec, undo func(context.Context, Undo[In, Out]) error) agents.Handler {
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, cmd *core.Command) ([]byte, error) {
		u, err := undoOf[In, Out](codec, cmd)
		if err != nil {
			return nil, err
		}
		return nil, undo(ctx, u)
	}
}

func undoStarter[In, Out any](codec Codec, undo func(context.Context, Undo[In, Out], func(error))) agents.Starter {
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, cmd *core.Command, done func([]byte, error)) {
		u, err := undoOf[In, Out](codec, cmd)
		if err != nil {
			done(nil, err)
			return
		}
		undo(ctx, u, func(err error) { done(nil, err) })
	}
}

// undoOf is the call of an undo. What does not decode is tried again: an undo that is
// given up is work for a person, and a corrected agent may be on its way.
func undoOf[In, Out any](codec Codec, cmd *core.Command) (Undo[In, Out], error) {
	call, err := callOf[In](codec, cmd)
	u := Undo[In, Out]{Call: call, Known: cmd.Result != nil}
	if err == nil && len(cmd.Result) > 0 {
		result, bad := opened(codec, Place{cmd.Type, cmd.Task, cmd.Step}, cmd.Result)
		if bad != nil {
			return u, bad
		}
		if err = quickjson.Unmarshal(result, &u.Result); err != nil {
			err = fmt.Errorf("result of step %s of task %s is not what its undo expects: %w", cmd.Step, cmd.Task, err)
		}
	}
	return u, err
}
