package duly

import (
	"errors"
	"fmt"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/seal"
)

// Call is one call of a check or a step. Its context's deadline is the
// complete-by: what is answered after it does not count.
type Call[In any] struct {
	Task    string // the task's id
	Type    string // the plan's name
	Step    string
	Key     string // <task>/<step>/<round>: the same for every attempt of do and undo
	Attempt int    // 1, 2, 3 …
	Trace   string // W3C traceparent; may be empty. The context of the call has it as the remote span
	Input   In

	results []core.StepResult
	codec   Codec
}

// Undo is one call to take a step back. It is known by its key, and must work
// without a result: no answer from do is not the same as no effect.
type Undo[In, Out any] struct {
	Call[In]
	Result Out  // what do answered, if Known
	Known  bool // whether do is known to have answered
}

// Earlier is a [Call] or an [Undo]: where the results of earlier steps are read.
type Earlier[In any] interface {
	takes(In)
	find(step string) (result []byte, task string, ok bool, err error)
}

func (c Call[In]) takes(In) {}

func (c Call[In]) find(step string) ([]byte, string, bool, error) {
	for _, r := range c.results {
		if r.Step == step {
			data, err := opened(c.codec, Place{c.Type, c.Task, step}, r.Result)
			return data, c.Task, true, err
		}
	}
	return nil, c.Task, false, nil
}

// decode gives a payload as it was before a codec encoded it; none is none.
func decode(codec Codec, at Place, stored []byte) ([]byte, error) {
	if codec == nil || len(stored) == 0 {
		return stored, nil
	}
	return codec.Decode(at, stored)
}

// opened is a payload as a handler gets it. Where there is no codec, one that is encrypted, or looks so, is refused: it would
// be read as an object of which every member is zero. One whose key is not here is for an instance that has it.
func opened(codec Codec, at Place, stored []byte) (payload []byte, err error) {
	if _, is := seal.Of(stored); is && codec == nil {
		err = fmt.Errorf("%s: the agent has no codec: %w", at, ErrKeyUnknown)
	} else {
		payload, err = decode(codec, at, stored)
	}
	if errors.Is(err, ErrKeyUnknown) {
		return nil, &agents.Error{Code: core.CodeUnable, Err: err}
	}
	return payload, err
}

// result reads one earlier result; an empty one is null.
func result[Out, In any](step string, in Earlier[In]) (Out, error) {
	var out Out
	data, task, ok, err := in.find(step)
	if err != nil {
		return out, err
	}
	if !ok {
		return out, fmt.Errorf("task %s: no result of step %s here: is it an earlier step of the plan?", task, step)
	}
	if len(data) == 0 {
		return out, nil
	}
	if err := quickjson.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("task %s: result of step %s: %w", task, step, err)
	}
	return out, nil
}

func callOf[In any](codec Codec, cmd *core.Command) (Call[In], error) {
	call := Call[In]{
		Task: cmd.Task, Type: cmd.Type, Step: cmd.Step, Key: cmd.Key(), Attempt: cmd.Attempt,
		Trace: cmd.Trace, results: cmd.Results, codec: codec,
	}
	input, err := opened(codec, Place{Type: cmd.Type, Task: cmd.Task}, cmd.Input)
	if err != nil {
		return call, err
	}
	if err := quickjson.Unmarshal(input, &call.Input); err != nil {
		return call, fmt.Errorf("input of task %s is not what step %s expects: %w", cmd.Task, cmd.Step, err)
	}
	return call, nil
}
