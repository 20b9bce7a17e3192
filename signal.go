package duly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Signal is a step that waits for an answer from outside: a person's approval, a webhook. T is what is answered; it
// becomes the step's result. A refusal, and silence until the step's [CompleteBy], are failures of the step.
type Signal[In, T any] struct{ def definition }

// NewSignal defines a signal. name is unique within the plan, 1 to 64 of A–Z a–z 0–9 _ -.
func NewSignal[In, T any](name string, options ...SignalOption) *Signal[In, T] {
	s := &Signal[In, T]{define(name, core.SignalStep)}
	s.def.payload = reflect.TypeFor[T]()
	for _, option := range options {
		option.forSignal(&s.def)
	}
	return s
}

// Name is the step's name.
func (s *Signal[In, T]) Name() string {
	if s == nil {
		return "" // refused where it is used
	}
	return s.def.step.Name
}

// Result reads what was answered, in a later step of the same task.
func (s *Signal[In, T]) Result(in Earlier[In]) (T, error) { return result[T](s.Name(), in) }

// Answer is the answer with that payload, for [Plan.Signal].
func (s *Signal[In, T]) Answer(payload T) Answer[In] {
	data, err := json.Marshal(payload)
	if err != nil {
		err = fmt.Errorf("payload of signal %s: %w", s.Name(), err)
	}
	return Answer[In]{step: s, payload: data, err: err}
}

// Refuse is the answer that says no, for [Plan.Signal]: the step fails with the reason, for good. An empty reason is
// refused by Plan.Signal.
func (s *Signal[In, T]) Refuse(reason string) Answer[In] {
	a := Answer[In]{step: s, refused: true, reason: reason}
	if reason == "" {
		a.err = fmt.Errorf("refusal of signal %s: no reason is given", s.Name())
	}
	return a
}

func (s *Signal[In, T]) takes(In) {}
func (s *Signal[In, T]) define() definition {
	if s == nil {
		return definition{err: errNilStep}
	}
	return s.def
}

// Answer is what a task's signal is told: see [Signal.Answer] and [Signal.Refuse].
type Answer[In any] struct {
	step    Named
	payload []byte
	refused bool
	reason  string
	ask     string
	err     error
}

// To is the answer to one ask: a token is [TaskStep.Ask], and names what the step asked of which input and results, in which
// round, by which version of the plan. The answer is refused where the step asks something else by then. Without it an answer
// counts until the task is first resubmitted, accepted or moved to another version, unless the plan says [AskRequired].
func (a Answer[In]) To(ask string) Answer[In] {
	a.ask = ask
	return a
}

// Signal answers a task that waits for it, or will: an answer that comes before the step begins is kept. It returns
// once the answer is stored; [Client.Watch] shows what comes of it. Refused are, as a [SubmitError] that is
// [ErrRefused]: an id that no task has (404), a signal that is not of this plan or a payload that is too large (400,
// 413), a second answer, and one that comes too late (409). While the server does not answer it tries again, until
// ctx ends.
func (p *Plan[In]) Signal(ctx context.Context, c *Client, id string, answer Answer[In]) error {
	a, err := p.answer(id, answer)
	if err != nil {
		return fmt.Errorf("signal task %s of type %s: %w", id, p.spec.Name, err)
	}
	return c.signal(ctx, a)
}

// PlayAnswer is what [Plan.Signal] sends, for package dulytest: the step, the payload or the reason of a refusal, and the ask.
func (p *Plan[In]) PlayAnswer(id string, answer Answer[In]) (step string, payload []byte, reason, ask string, err error) {
	a, err := p.answer(id, answer)
	return a.step, a.payload, a.reason, a.ask, err
}

// signalOf is an answer to one task.
type signalOf struct {
	typ, id, step string
	payload       []byte // nil: a refusal
	reason, ask   string
	most          int // bytes of payload
}

// answer looks whether an answer can be one to a task of the plan.
func (p *Plan[In]) answer(id string, answer Answer[In]) (signalOf, error) {
	refuse := func(code int, err error) error {
		return &SubmitError{Type: p.spec.Name, Task: id, Code: code, Description: err.Error()}
	}
	switch {
	case answer.step == nil || answer.step.Name() == "":
		return signalOf{}, refuse(400, errors.New("the answer is of no signal: see Signal.Answer"))
	case answer.err != nil:
		return signalOf{}, refuse(400, answer.err)
	case p.steps[answer.step.Name()] != answer.step.define().self:
		return signalOf{}, refuse(400, fmt.Errorf("signal %s is not a step of plan %s version %d", answer.step.Name(), p.spec.Name, p.spec.Version))
	}
	a := signalOf{typ: p.spec.Name, id: id, step: answer.step.Name(), payload: answer.payload, reason: answer.reason, ask: answer.ask, most: core.ResultBytesMax}
	if i := p.spec.StepIndex(a.step); i >= 0 {
		a.most = p.spec.Steps[i].ResultMax
	}
	if len(a.payload) > a.most {
		return signalOf{}, refuse(413, fmt.Errorf("payload of signal %s has %d bytes, the limit is %d", a.step, len(a.payload), a.most))
	}
	return a, nil
}

// SignalRaw is [Plan.Signal] for callers without the plan's types: payload is the JSON as it shall become the step's
// result. ask is the token of the ask that it answers, see [Answer.To]; empty: the only one.
func (c *Client) SignalRaw(ctx context.Context, typ, id, step string, payload []byte, ask string) error {
	a := signalOf{typ: typ, id: id, step: step, payload: payload, ask: ask, most: core.ResultBytesMax}
	refused := &SubmitError{Type: typ, Task: id, Code: 400}
	switch {
	case payload == nil:
		refused.Description = "the payload of signal " + core.QuoteShort(step) + " is empty, want JSON"
	case len(payload) > a.most:
		refused.Code, refused.Description = 413, fmt.Sprintf("payload of signal %s has %d bytes, the limit is %d", step, len(payload), a.most)
	default:
		return c.signal(ctx, a)
	}
	return fmt.Errorf("signal task %s of type %s: %w", id, typ, refused)
}

// RefuseSignalRaw is [Plan.Signal] with a refusal, for callers without the plan's types.
func (c *Client) RefuseSignalRaw(ctx context.Context, typ, id, step, reason, ask string) error {
	if reason == "" {
		return fmt.Errorf("signal task %s of type %s: %w", id, typ, &SubmitError{Type: typ, Task: id, Code: 400, Description: "refusal of signal " + core.QuoteShort(step) + ": no reason is given"})
	}
	return c.signal(ctx, signalOf{typ: typ, id: id, step: step, reason: reason, ask: ask})
}

// signal asks that an answer be stored.
func (c *Client) signal(ctx context.Context, a signalOf) error {
	what := operation{"signal", fmt.Sprintf("task %s of type %s", a.id, a.typ)}
	if err := checkTask(a.typ, a.id); err != nil {
		return what.failed(err)
	}
	if err := core.CheckName("step", a.step); err != nil {
		return what.failed(&SubmitError{Type: a.typ, Task: a.id, Code: 400, Description: err.Error()})
	}
	if err := core.CheckWords("reason", a.reason); err != nil {
		return what.failed(refusedName(a.typ, a.id, err))
	}
	if a.payload != nil {
		if err := quickjson.Check("payload", a.payload); err != nil {
			return what.failed(refusedName(a.typ, a.id, err))
		}
	}
	if c.codec != nil && a.payload != nil {
		sent, err := c.codec.Encode(Place{Type: a.typ, Task: a.id, Step: a.step}, a.payload)
		switch {
		case err != nil:
			return what.failed(&SubmitError{Type: a.typ, Task: a.id, Code: 400, Description: err.Error()})
		case len(sent) > a.most:
			return what.failed(&SubmitError{Type: a.typ, Task: a.id, Code: 413, Description: fmt.Sprintf("payload of signal %s has %d bytes as the codec makes it (%d before), the limit is %d", a.step, len(sent), len(a.payload), a.most)})
		}
		a.payload = sent
	}
	control := core.Control{Kind: core.EventSignal, ID: a.id, Type: a.typ, Actor: c.actor, Step: a.step, Result: a.payload, Reason: a.reason, Ask: a.ask}
	return persist(ctx, c.clock, what, func(ctx context.Context) error { return c.ask(ctx, &control) })
}
