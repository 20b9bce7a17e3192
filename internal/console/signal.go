package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/seal"
)

// signalButtons are the steps of a task that wait for an answer, or will.
func (c *console) signalButtons(r *http.Request, v *core.View) []actionButton {
	if v.State != core.StatePending && v.State != core.StateProcessing {
		return nil
	}
	var all []actionButton
	for i := range v.Steps {
		s := &v.Steps[i]
		running := s.Status == core.StepRunning.String()
		if s.Kind != core.SignalStep || !running && s.Status != core.StepWaiting.String() {
			continue
		}
		b := actionButton{URL: c.url("tasks", v.Type, v.ID, "signal", s.Name)}
		b.Action, b.Title = operate.Action("signal-"+s.Name), "Answer "+s.Name+"…"
		if b.Why = c.whyNoAction(r, v, operate.ActionSignal); b.Why == "" && s.Ask == "" {
			b.Why = say.Of("signal.nothing", "step", s.Name)
		}
		all = append(all, b)
	}
	return all
}

// signalForm is the dialog that answers a signal step.
type signalForm struct {
	View     core.View
	Step     core.StepView
	Early    bool // the step has not begun: the answer is kept for it
	URL      string
	Back     string
	Key      string
	Input    *document // what the step asks of
	Results  []*document
	Form     formField
	Refused  bool // the answer is no
	Reason   string
	Bad      string // what was refused
	Next     []string
	SealedBy string // id of the key that the task's payloads are encrypted with; empty: they are not
}

// newSignalForm reads which step is meant. get is what was typed; nil: nothing yet.
func (c *console) newSignalForm(r *http.Request, get func(string) string) (signalForm, string, error) {
	ctx, cancel := reading(r)
	defer cancel()
	v, err := c.view(ctx, r)
	if err != nil {
		return signalForm{}, "", err
	}
	plan, err := c.planOf(ctx, v.Type, v.PlanVersion)
	if err != nil {
		return signalForm{}, "", err
	}
	name := r.PathValue("step")
	f := signalForm{View: v, Back: c.taskURL(v.Type, v.ID), URL: c.url("tasks", v.Type, v.ID, "signal", name)}
	for i := range v.Steps {
		if v.Steps[i].Name != name || v.Steps[i].Kind != core.SignalStep {
			continue
		}
		f.Step, f.Early = v.Steps[i], v.Steps[i].Status == core.StepWaiting.String()
		base := c.taskURL(v.Type, v.ID)
		f.Input = documentOf("input", "Input", v.Input, base+"/payload?of=input")
		schema := ""
		if plan != nil && i < len(plan.Steps) {
			schema = plan.Steps[i].Schema
			mine := plan.Ancestors(i)
			for j, before := range v.Steps {
				if d := documentOf("result-"+before.Name, "Result of "+before.Name, before.Result, base+"/payload?of="+before.Name); d != nil && mine.Has(j) {
					f.Results = append(f.Results, d)
				}
			}
		}
		if e, encrypted := seal.Of(v.Input); encrypted {
			f.SealedBy = e.Key
		}
		f.Form = formOf(schema, get)
		return f, schema, nil
	}
	return f, "", &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("signal.none", "task", v.ID, "step", core.QuoteShort(name))}
}

// signalDialog shows it.
func (c *console) signalDialog(w http.ResponseWriter, r *http.Request) error {
	f, _, err := c.newSignalForm(r, nil)
	if why := c.whyNoAction(r, &f.View, operate.ActionSignal); err == nil && why != "" {
		err = impossible(why)
	}
	if err != nil {
		return err
	}
	f.Key = newKey()
	return c.show(w, r, http.StatusOK, "signal", page{Title: "Answer " + f.Step.Name, Section: "tasks", Data: f})
}

// signal sends the answer.
func (c *console) signal(w http.ResponseWriter, r *http.Request) error {
	f, schema, err := c.newSignalForm(r, r.PostForm.Get)
	if err != nil {
		return err
	}
	f.Key, f.Reason, f.Refused = r.PostForm.Get("key"), strings.TrimSpace(r.PostForm.Get("reason")), r.PostForm.Get("go") == "refuse"
	request := operate.Request{Action: operate.ActionSignal, Step: f.Step.Name, Reason: f.Reason, Key: f.Key, Ask: r.PostForm.Get("ask")}
	bad := f.answer(&c.schemas, schema, &request)
	if bad == nil && request.Ask != f.Step.Ask {
		bad = &operate.Refusal{Code: http.StatusConflict, Field: "ask", Detail: say.Of("signal.changed")}
	}
	if bad == nil {
		ctx, cancel := reading(r)
		defer cancel()
		var answer operate.Answer
		if answer, err = c.Actions.Do(ctx, actorOf(r), operate.TaskRef{Type: f.View.Type, ID: f.View.ID}, request); err == nil {
			return c.done(w, r, f.Back, say.Of("signal.answered", "outcome", strings.TrimSuffix(answer.Outcome, "."), "entry", answer.Audit))
		}
		if !errors.As(err, &bad) {
			return err
		}
	}
	f.Bad, f.Key = bad.Detail, nextKey(f.Key, bad)
	for _, a := range bad.Possible {
		f.Next = append(f.Next, string(a))
	}
	return c.show(w, r, bad.Code, "signal", page{Title: "Answer " + f.Step.Name, Section: "tasks", Data: f})
}

// answer puts what was typed into a request, after a look at the schema.
func (f *signalForm) answer(schemas *jsonschema.Cache, schema string, request *operate.Request) *operate.Refusal {
	bad := func(format string, args ...any) *operate.Refusal {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "result", Detail: fmt.Sprintf(format, args...)}
	}
	if f.Refused {
		if f.Reason == "" {
			return bad("%s", say.Of("refuse.say-why-refused"))
		}
		return nil
	}
	value, err := f.Form.json()
	switch {
	case err != nil:
		return bad("%v.", err)
	case value == nil:
		value = json.RawMessage("null")
	}
	if len(value) > core.ResultBytesMax {
		return bad("%s", say.Of("refuse.answer-size", "bytes", len(value), "limit", core.ResultBytesMax))
	}
	switch err := schemas.Check(schema, value); {
	case errors.Is(err, jsonschema.ErrSchema):
		return bad("%s", say.Of("refuse.answer-schema", "step", f.Step.Name, "error", err))
	case err != nil:
		return bad("%s", say.Of("refuse.answer-unfit", "error", err))
	}
	request.Result = value
	return nil
}
