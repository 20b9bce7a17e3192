package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/conformance"
	"duly.dev/duly/internal/core"
)

// conformanceCmd plays the rules of the protocol against an agent that runs.
type conformanceCmd struct {
	Agent string `required:"" help:"Name of the agent, as plans have it. It must run, and its effects be such that they can be made and taken back: not the agent of production, unless that can."`
	Step  string `default:"conformance" help:"Step of the commands, for an agent that tells steps apart."`
	Type  string `default:"conformance" help:"Type of the task of the commands."`

	Input      string `type:"existingfile" help:"File with a JSON input that the agent takes (default: {})."`
	SlowInput  string `type:"existingfile" help:"File with one that it works long on, for what comes meanwhile: some 100 ms."`
	LargeInput string `type:"existingfile" help:"File with one whose result is too large."`
	Results    string `type:"existingfile" help:"File with the results of earlier steps, as a JSON object: step to result."`

	NoUndo    bool   `help:"The step is a check: it has no effect and no undo. P1 to P8 and P15 do not apply."`
	Probes    bool   `help:"The agent must answer probes. Without it they are asked where they are answered."`
	Effects   string `help:"Where effects are counted: http://… or https://…, which is asked with ?key=…, or a subject of NATS, which is asked with {\"key\":…}. The answer is {\"effects\":1} or the number. Without it effects are judged by probes, or by answers alone."`
	ResultMax int    `default:"65536" help:"Largest result, in bytes: the step's result_max."`

	Calls     int           `default:"1000" help:"How many calls there are at a time, in the check of that name; 1 to 100000."`
	Together  int           `default:"16" help:"How many dos of one key come at a time; 2 to 256."`
	CallTime  time.Duration `default:"5s" help:"Time from a command to its complete-by."`
	Silence   time.Duration `default:"1s" help:"How long nothing must come to count as nothing."`
	Slack     time.Duration `default:"250ms" help:"How long an answer may be on its way after the complete-by."`
	CheckTime time.Duration `default:"1m" help:"Time for one check; what has not ended by then is not judged."`

	Only   []string `help:"Judge only these rules: P4,P8."`
	Strict bool     `help:"Fail also if a finding is not judged."`
	JSON   bool     `name:"json" help:"Print JSON."`

	natsLinks
	Timeout time.Duration `default:"10s" help:"How long to wait for NATS."`
}

// ruleColumns are those of the table.
var ruleColumns = []string{"check", "rule", "state", "by", "why"}

// Run plays, and fails if a rule is broken.
func (c *conformanceCmd) Run(ctx context.Context, std streams) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	conn, err := c.dialWithin(ctx, c.Timeout, "duly conformance")
	if err != nil {
		return err
	}
	defer conn.Close()
	o.Names = conn.Names()
	if c.Effects != "" {
		if o.Effects, err = conformance.EffectsAt(conn.NATS(), c.Effects); err != nil {
			return useError{err}
		}
	}
	ctx, end := conn.UntilDenied(ctx, conn.Names().CommandSubject(c.Agent, false))
	report, err := conformance.Run(ctx, conn.NATS(), o)
	err = end(err)
	switch {
	case errors.Is(err, conformance.ErrNoAgent):
		return awayError{err}
	case err != nil:
		return err
	}
	return told(std, c.JSON, report, c.print, report.Broken > 0 || c.Strict && report.NotJudged > 0)
}

// options are the flags as a run has them.
func (c *conformanceCmd) options() (o conformance.Options, err error) {
	o = conformance.Options{
		Agent: c.Agent, Step: c.Step, Type: c.Type, Check: c.NoUndo, Probes: c.Probes, ResultMax: c.ResultMax, Calls: c.Calls, Together: c.Together,
		CallTime: c.CallTime, Silence: c.Silence, Slack: c.Slack, CheckTime: c.CheckTime,
	}
	for _, id := range c.Only {
		o.Only = append(o.Only, strings.ToUpper(strings.TrimSpace(id)))
	}
	for _, f := range []struct {
		flag, file string
		into       *[]byte
	}{{"input", c.Input, &o.Input}, {"slow-input", c.SlowInput, &o.SlowInput}, {"large-input", c.LargeInput, &o.LargeInput}} {
		if *f.into, err = payloadFile(f.flag, f.file, core.InputBytesMax); err != nil {
			return o, err
		}
	}
	data, err := payloadFile("results", c.Results, core.StepsMax*core.ResultBytesMax)
	if err != nil || data == nil {
		return o, err
	}
	var results map[string]json.RawMessage
	if err := json.Unmarshal(data, &results); err != nil {
		return o, misuse("results: %s: want a JSON object, step to result: %v", c.Results, err)
	}
	for _, step := range slices.Sorted(maps.Keys(results)) {
		o.Results = append(o.Results, core.StepResult{Step: step, Result: results[step]})
	}
	return o, nil
}

// payloadFile reads a file of so many bytes at most; without a name there is none.
func payloadFile(flag, name string, most int64) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, misuse("%s: %v", flag, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, misuse("%s: %v", flag, err)
	case int64(len(data)) > most:
		return nil, misuse("%s: %s is over the limit of %d bytes", flag, name, most)
	}
	return data, nil
}

// print prints a table, and what is broken with its evidence.
func (c *conformanceCmd) print(page show.Page, report *conformance.Report) error {
	data, err := json.Marshal(report.Findings)
	if err != nil {
		return fmt.Errorf("findings: %w", err)
	}
	var rows []show.Object
	if err := show.Decode(data, &rows); err != nil {
		return err
	}
	page.Table(ruleColumns, rows)
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.State != conformance.Broken {
			continue
		}
		fmt.Fprintf(page.W, "\n%s  %s, %s\n", f.Rule, page.Coloured("state", string(f.State)), f.Check)
		paragraph(page, "rule  ", conformance.TextOf(f.Rule))
		paragraph(page, "why   ", f.Why)
		for _, e := range f.Evidence {
			paragraph(page, "sent  ", e.What+", to "+e.Subject+": "+e.Sent)
			for _, came := range e.Came {
				paragraph(page, "came  ", came)
			}
			if len(e.Came) == 0 {
				paragraph(page, "came  ", "nothing")
			}
		}
	}
	if report.Left > 0 {
		fmt.Fprintln(page.W)
		paragraph(page, "left  ", report.LeftText())
	}
	total := fmt.Sprintf("%d held, %d broken", report.Held, report.Broken)
	for i, rule := range report.Breaks() {
		total += [...]string{" (", ", "}[min(i, 1)] + rule.ID
	}
	if report.Broken > 0 {
		total += ")"
	}
	total += fmt.Sprintf(", %d not judged", report.NotJudged)
	if report.Aside > 0 {
		total += fmt.Sprintf(", %d that do not apply", report.Aside)
	}
	_, err = fmt.Fprintf(page.W, "\nagent %s: %s; %d messages in %v; tasks %s…\n", report.Agent, total,
		report.Messages, (time.Duration(report.TookMS) * time.Millisecond).Round(100*time.Millisecond), report.Tasks)
	return err
}
