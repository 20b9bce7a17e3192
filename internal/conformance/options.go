package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/wire"
)

// Defaults of Options.
const (
	stepDefault      = "conformance"
	callsDefault     = 1000
	togetherDefault  = 16
	callTimeDefault  = 5 * time.Second
	silenceDefault   = time.Second
	slackDefault     = 250 * time.Millisecond
	checkTimeDefault = time.Minute
)

// Limits of Options.
const (
	callsMax    = 100_000
	togetherMax = 256
	timeMin     = 10 * time.Millisecond
	timeMax     = 10 * time.Minute
)

// Options are what a run plays with. Agent is required; every other zero value has a default.
type Options struct {
	Names wire.Names
	Agent string
	Step  string // of the commands; default stepDefault
	Type  string // of the task; default stepDefault

	Input      []byte            // JSON that the agent takes; default {}
	SlowInput  []byte            // JSON that it takes and works long on; nil: Input
	LargeInput []byte            // JSON that it takes, whose result is over ResultMax; nil: none
	Results    []core.StepResult // of earlier steps

	Check   bool    // the step leaves nothing behind and has no undo
	Probes  bool    // the agent must answer probes; without it they are asked where they are answered
	Effects Effects // counts effects; nil: they cannot be seen

	ResultMax int // bytes; default core.ResultBytesMax
	Calls     int // how many calls there are at a time in the check of that name
	Together  int // how many dos of one key there are at a time

	CallTime  time.Duration // from a command to its complete-by
	Silence   time.Duration // how long nothing must come for it to count as nothing
	Slack     time.Duration // what an answer may take on its way, and more
	CheckTime time.Duration // for one check; one that takes longer is not judged

	Only []string // numbers of the rules to judge; empty: all
}

// Effects counts the effects that stand for a key. It may be called at any time, also for a key that was never done, of
// which there are none.
type Effects func(ctx context.Context, key string) (int, error)

// complete fills in the defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	o.Step, o.Type = cmp.Or(o.Step, stepDefault), cmp.Or(o.Type, stepDefault)
	o.ResultMax = cmp.Or(o.ResultMax, core.ResultBytesMax)
	o.Calls, o.Together = cmp.Or(o.Calls, callsDefault), cmp.Or(o.Together, togetherDefault)
	o.CallTime, o.Silence = cmp.Or(o.CallTime, callTimeDefault), cmp.Or(o.Silence, silenceDefault)
	o.Slack, o.CheckTime = cmp.Or(o.Slack, slackDefault), cmp.Or(o.CheckTime, checkTimeDefault)
	if o.Input == nil {
		o.Input = []byte(`{}`)
	}
	if err := core.CheckAgent(o.Agent); err != nil {
		return o, option.Refuse("agent", err)
	}
	for _, n := range []struct{ option, name string }{{"step", o.Step}, {"type", o.Type}} {
		if err := core.CheckName(n.option, n.name); err != nil {
			return o, option.Refuse(n.option, err)
		}
	}
	for _, n := range []struct {
		option        string
		is, min, most int
	}{{"result-max", o.ResultMax, 1, core.ResultBytesMax}, {"calls", o.Calls, 1, callsMax}, {"together", o.Together, 2, togetherMax}} {
		if n.is < n.min || n.is > n.most {
			return o, option.Refuse(n.option, fmt.Errorf("%d, want %d to %d", n.is, n.min, n.most))
		}
	}
	for _, d := range []struct {
		option string
		is     time.Duration
	}{{"call-time", o.CallTime}, {"silence", o.Silence}, {"slack", o.Slack}, {"check-time", o.CheckTime}} {
		if d.is < timeMin || d.is > timeMax {
			return o, option.Refuse(d.option, fmt.Errorf("%v, want %v to %v", d.is, timeMin, timeMax))
		}
	}
	if least := 2 * (o.CallTime + o.Slack + o.Silence); o.CheckTime < least {
		return o, option.Refuse("check-time", fmt.Errorf("%v, want %v or more: twice call-time, slack and silence", o.CheckTime, least))
	}
	return o, errors.Join(o.checkPayloads(), o.checkOnly())
}

// checkPayloads refuses inputs and results that no task has.
func (o *Options) checkPayloads() error {
	for _, p := range []struct {
		option string
		data   []byte
	}{{"input", o.Input}, {"slow-input", o.SlowInput}, {"large-input", o.LargeInput}} {
		switch {
		case p.data == nil:
		case len(p.data) > core.InputBytesMax:
			return option.Refuse(p.option, fmt.Errorf("%d bytes, the limit is %d", len(p.data), core.InputBytesMax))
		default:
			if err := quickjson.Check("it", p.data); err != nil {
				return option.Refuse(p.option, err)
			}
		}
	}
	if n := len(o.Results); n > core.StepsMax {
		return option.Refuse("results", fmt.Errorf("%d of them, the limit is %d", n, core.StepsMax))
	}
	for _, r := range o.Results {
		if err := core.CheckName("step of a result", r.Step); err != nil {
			return option.Refuse("results", err)
		}
		if len(r.Result) > core.ResultBytesMax {
			return option.Refuse("results", fmt.Errorf("of step %s: %d bytes, the limit is %d", r.Step, len(r.Result), core.ResultBytesMax))
		}
		if err := quickjson.Check("result of step "+r.Step, r.Result); err != nil {
			return option.Refuse("results", err)
		}
	}
	return nil
}

// checkOnly refuses rules that there are not.
func (o *Options) checkOnly() error {
	for _, id := range o.Only {
		if TextOf(id) == "" {
			return option.Refuse("only", fmt.Errorf("%s is no rule, want some of %s to %s", core.QuoteShort(id), Rules[0].ID, Rules[len(Rules)-1].ID))
		}
	}
	return nil
}

// wants reports whether one of the rules is to be judged.
func (o *Options) wants(rules ...string) bool {
	if len(o.Only) == 0 {
		return true
	}
	for _, id := range o.Only {
		if slices.Contains(rules, id) {
			return true
		}
	}
	return false
}
