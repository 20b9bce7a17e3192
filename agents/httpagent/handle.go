package httpagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// do is the handler of a do.
func (o *operation) do(ctx context.Context, cmd *core.Command) ([]byte, error) {
	return o.perform(ctx, cmd, o.resultOf)
}

// takeBack is the handler of an undo, which has no result.
func (o *operation) takeBack(ctx context.Context, cmd *core.Command) ([]byte, error) {
	return o.perform(ctx, cmd, func(*values) ([]byte, error) { return nil, nil })
}

// probe says what became of a do.
func (o *operation) probe(ctx context.Context, cmd *core.Command) (found core.Probe, err error) {
	_, err = o.perform(ctx, cmd, func(v *values) (_ []byte, err error) {
		found, err = o.found(v)
		return nil, err
	})
	return found, err
}

// unknown is what an outcome says that cannot tell.
const unknown = "unknown"

// found is what an answer to a probe says.
func (o *operation) found(v *values) (core.Probe, error) {
	is := map[verdict]core.ProbeOutcome{done: core.ProbeDone, absent: core.ProbeAbsent, inProgress: core.ProbeInProgress}[v.answer.means]
	if o.outcome != nil {
		value, err := o.outcome.Eval(v.get)
		if err != nil {
			return core.Probe{}, fmt.Errorf("outcome: %w", err)
		}
		text, _ := value.Text()
		is = core.ProbeOutcome(text)
	}
	switch is {
	case core.ProbeDone:
		result, err := o.resultOf(v)
		return core.Probe{Outcome: is, Result: result}, err
	case core.ProbeAbsent, core.ProbeInProgress:
		return core.Probe{Outcome: is}, nil
	case unknown:
		return core.Probe{}, agents.ErrNotKnown
	}
	return core.Probe{}, fmt.Errorf("outcome: it gives %s, want %s, %s, %s or %s", core.QuoteShort(string(is)), core.ProbeDone, core.ProbeAbsent, core.ProbeInProgress, unknown)
}

// formOf writes a map as the body of a form: values are text, numbers, true or false, or lists of these.
func formOf(value expr.Value) ([]byte, error) {
	data, err := value.JSON(core.InputBytesMax)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil || fields == nil {
		return nil, fmt.Errorf("it gives %s, want a map for a form", value.Describe())
	}
	form := url.Values{}
	for name, field := range fields {
		list, ok := field.([]any)
		if !ok {
			list = []any{field}
		}
		for _, one := range list {
			switch one.(type) {
			case string, json.Number, bool:
				form.Add(name, fmt.Sprint(one))
			default:
				return nil, fmt.Errorf("%s: a form has text, numbers, true or false, or lists of these", core.QuoteShort(name))
			}
		}
	}
	return []byte(form.Encode()), nil
}

// quoted is text as JSON.
func quoted(text []byte) ([]byte, error) {
	if !core.IsText(string(text)) {
		return nil, errors.New("its body is no text: it holds a NUL, or bytes that are not UTF-8")
	}
	return json.Marshal(string(text))
}
