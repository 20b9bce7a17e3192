package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/term"

	"duly.dev/duly"
	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// prompting is a reader that stands for a terminal.
type prompting interface{ Prompting() bool }

// interactive reports whether there is a person to ask: input and error output are a terminal.
func (s streams) interactive() bool {
	if p, ok := s.given().(prompting); ok {
		return p.Prompting()
	}
	in, ok := s.given().(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && terminal(s.err)
}

// prompt asks for a line.
func (s streams) prompt(question string) (string, error) {
	fmt.Fprint(s.err, question+" ")
	line, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil && line == "" {
		return "", misuse("no answer: %v", err)
	}
	return strings.TrimSpace(line), nil
}

// reasonOf is the reason that is given, or asked for at a terminal.
func reasonOf(std streams, given string, needed bool) (string, error) {
	if given == "" && needed {
		if !std.interactive() {
			return "", misuse("reason: none given, and it is kept in the audit trail: --reason '…'")
		}
		var err error
		if given, err = std.prompt(say.Of("cli.why")); err != nil {
			return "", err
		}
		if given == "" {
			return "", misuse("reason: none given, want one")
		}
	}
	if err := core.CheckWords("reason", given); err != nil {
		return "", misuse("%v", err)
	}
	return given, nil
}

// moment reads a time: RFC 3339, or a duration from now.
func moment(name, text string) (time.Time, error) { return momentFrom(name, text, 1) }

// momentFrom is moment with durations that count from now by sign: 1 after it, -1 before it.
func momentFrom(name, text string, sign time.Duration) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, misuse("%s: %q, want a time as 2026-01-31T12:00:00Z or a duration as 30m", name, text)
	}
	return time.Now().Add(sign * d), nil
}

// document reads JSON that is given as text, as @file or as - for standard input.
func document(std streams, name, text string) (json.RawMessage, error) {
	data := []byte(text)
	var err error
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err = os.ReadFile(file)
	} else if text == "-" {
		data, err = io.ReadAll(std.in)
	}
	if err != nil {
		return nil, misuse("%s: %v", name, err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, misuse("%s is not JSON: %v", name, err)
	}
	return data, nil
}

// acting is what every action on one task takes.
type acting struct {
	named
	Reason string `help:"Why; it is kept in the audit trail and in the journal."`
	IfSeq  int64  `name:"if-seq" help:"Refuse if the task's newest journal row is another than this one: field seq of duly get -o json."`
	keyed
	server
}

// act asks for one action.
func (a *acting) act(ctx context.Context, std streams, r operate.Request, reasonNeeded bool) error {
	var err error
	if r.Reason, err = reasonOf(std, a.Reason, reasonNeeded); err != nil {
		return err
	}
	r.IfSeq = a.IfSeq
	answer, data, err := answered[operate.Answer](a.send(ctx, http.MethodPost, a.path()+"/"+string(r.Action), r, a.header()))
	if err != nil {
		return a.unsure(string(r.Action), err)
	}
	said := "asked"
	if answer.Again {
		said = say.Of("cli.again")
	}
	was := ""
	if answer.State != "" {
		was = ", which is " + string(answer.State)
	}
	return a.said(std, data, answerColumns, "%s: %s of %s%s: %s (audit %d)", said, answer.Action, answer.ID, was, show.Clean(strings.TrimPrefix(answer.Outcome, operate.Asked)), answer.Audit)
}

type taskCmd struct {
	Submit   submitCmd   `cmd:"" help:"Submit a task and print where it is stored."`
	Get      getCmd      `cmd:"" help:"Show one task with its steps."`
	List     listCmd     `cmd:"" help:"List tasks, newest first."`
	Children childrenCmd `cmd:"" help:"List the children of a task, newest first."`
	Why      whyCmd      `cmd:"" help:"Say why a task is where it is and what comes next."`
	Watch    watchCmd    `cmd:"" help:"Follow a task until it ends. Exit status 1 unless it is processed."`
	Cancel   cancelCmd   `cmd:"" help:"End a task; what it did is undone."`
	Undo     undoCmd     `cmd:"" help:"Take back what a task did, whatever its state."`
	Resubmit resubmitCmd `cmd:"" help:"Start a task in error again at its failed step, or one that is undone from its first."`
	Edit     editCmd     `cmd:"" help:"Resubmit with another input."`
	Accept   acceptCmd   `cmd:"" help:"Count the failed step of a task in error as done, with a given result."`
	Resolve  resolveCmd  `cmd:"" help:"Record that a task in error was settled by hand."`
	Extend   extendCmd   `cmd:"" help:"Give an unfinished task a later deadline."`
	Journal  journalCmd  `cmd:"" help:"Show what happened to a task, newest first."`
}

type undoCmd struct {
	Found string `enum:",done" default:"" help:"done: you have seen at the service that what is to be undone is still there. Wanted where the key of an undo is older than the service remembers it."`
	acting
}

// Run asks for an undo.
func (c *undoCmd) Run(ctx context.Context, std streams) error {
	return c.act(ctx, std, operate.Request{Action: operate.ActionUndo, Found: core.ProbeOutcome(c.Found)}, true)
}

type resubmitCmd struct {
	Step  string `help:"The step meant; refused if the task would start at another."`
	Until string `help:"New deadline: a time or a duration from now (default: the plan's time from now, or its own if later)."`
	found
	acting
}

// found is a person's word for the service of a step.
type found struct {
	Found string `enum:",absent" default:"" help:"absent: you have seen at the service that the step has no effect there. Wanted where its key is older than the service remembers it."`
}

// Run asks for a resubmit.
func (c *resubmitCmd) Run(ctx context.Context, std streams) error {
	until, err := moment("until", c.Until)
	if err != nil {
		return err
	}
	return c.act(ctx, std, operate.Request{Action: operate.ActionResubmit, Step: c.Step, Until: until, Found: core.ProbeOutcome(c.Found)}, false)
}

type editCmd struct {
	Input string `help:"New input: JSON, @file or - (default: the present one in your editor, at a terminal)."`
	Until string `help:"New deadline: a time or a duration from now (default: the plan's time from now, or its own if later)."`
	Yes   bool   `help:"Do not ask after showing what differs."`
	found
	payloads
	acting
}

// Run shows what differs between the old input and the new one, and asks for a resubmit with the new one.
func (c *editCmd) Run(ctx context.Context, std streams) error {
	until, err := moment("until", c.Until)
	if err != nil {
		return err
	}
	t, err := c.opened(ctx, std, &c.server, c.Type, c.ID)
	if err != nil {
		return err
	}
	if err := c.needs("input", t.Input); err != nil {
		return err
	}
	var input json.RawMessage
	if c.Input == "" {
		input, err = c.edited(ctx, std, t.Input)
	} else {
		input, err = document(std, "input", c.Input)
	}
	if err != nil {
		return err
	}
	if c.IfSeq == 0 {
		c.IfSeq = t.Seq // what was shown is what is changed
	}
	differs := udiff.Unified("input", "new input", indented(t.Input), indented(input))
	if differs == "" {
		return misuse("input: the new one is the old one; duly task resubmit starts it again")
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(differs, "\n"), "\n") {
		fmt.Fprintln(std.err, show.Clean(line))
	}
	if !c.Yes && std.interactive() {
		answer, err := std.prompt("Resubmit " + c.ID + " with this input? [y/N]")
		if err != nil {
			return err
		}
		if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
			return misuse("nothing was asked")
		}
	}
	if input, err = c.encode(duly.Place{Type: c.Type, Task: c.ID}, input, core.InputBytesMax); err != nil {
		return err
	}
	return c.act(ctx, std, operate.Request{Action: operate.ActionEdit, Input: input, Until: until, Found: core.ProbeOutcome(c.Found)}, true)
}

// indented is JSON with a value a line; what is not JSON is as it is.
func indented(data json.RawMessage) string {
	text, err := quickjson.Indent(data)
	if err != nil {
		return string(data) + "\n"
	}
	return text + "\n"
}

// edited is the input as the person's editor left it.
func (c *editCmd) edited(ctx context.Context, std streams, input json.RawMessage) (json.RawMessage, error) {
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if !std.interactive() || editor == "" {
		return nil, misuse("input: none given, want --input with JSON, @file or -; at a terminal with EDITOR set it can be edited")
	}
	f, err := os.CreateTemp("", "duly-input-*.json") // with mode 0600
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(indented(input))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	words := strings.Fields(editor)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.given(), show.Under(std.out), show.Under(std.err)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %s: %w", words[0], err)
	}
	return document(std, "input", "@"+f.Name())
}

type acceptCmd struct {
	Result string `required:"" help:"Result of the step: JSON, @file or -."`
	Step   string `help:"The step meant (default: the failed one)."`
	payloads
	acting
}

// Run asks that a step count as done.
func (c *acceptCmd) Run(ctx context.Context, std streams) error {
	result, err := document(std, "result", c.Result)
	if err != nil {
		return err
	}
	if c.PayloadKeys != "" {
		t, err := c.opened(ctx, std, &c.server, c.Type, c.ID)
		if err != nil {
			return err
		}
		at, err := c.placeOf(&t)
		if err != nil {
			return err
		}
		if result, err = c.encode(at, result, core.ResultBytesMax); err != nil {
			return err
		}
		c.Step, c.IfSeq = at.Step, cmp.Or(c.IfSeq, t.Seq) // what it was encrypted for is what is accepted
	}
	return c.act(ctx, std, operate.Request{Action: operate.ActionAccept, Step: c.Step, Result: result}, true)
}

// signalCmd is duly signal.
type signalCmd struct {
	named
	Step    string `arg:"" help:"The signal step."`
	Payload string `arg:"" optional:"" help:"The answer: JSON, @file or -."`
	Refuse  string `help:"Refuse instead: why. The step fails with it."`
	Ask     string `help:"The ask that it answers, as duly get shows it (default: what the step asks now, which is printed; needed where the input has more than 2,000 bytes)."`
	keyed
	payloads
	server
}

// Run answers a signal step, or refuses it.
func (c *signalCmd) Run(ctx context.Context, std streams) error {
	if (c.Payload == "") == (c.Refuse == "") {
		return misuse("want the payload, or --refuse and why: one of them")
	}
	var payload json.RawMessage
	if c.Payload != "" {
		var err error
		if payload, err = document(std, "payload", c.Payload); err != nil {
			return err
		}
	}
	if c.Ask == "" {
		t, err := c.opened(ctx, std, &c.server, c.Type, c.ID)
		if err == nil && payload != nil {
			err = c.needs("input", t.Input)
		}
		if err != nil {
			return err
		}
		if c.Ask, err = t.asked(std.err, c.Step); err != nil {
			return err
		}
	}
	if payload != nil { // a refusal has none
		var err error
		if payload, err = c.encode(duly.Place{Type: c.Type, Task: c.ID, Step: c.Step}, payload, core.ResultBytesMax); err != nil {
			return err
		}
	}
	a := acting{named: c.named, Reason: c.Refuse, keyed: c.keyed, server: c.server}
	return a.act(ctx, std, operate.Request{Action: operate.ActionSignal, Step: c.Step, Result: payload, Ask: c.Ask}, false)
}

// asked is the token of what a step asks, and prints that; empty: it asks nothing, which the server says. Error: it is too much
// to print, and who answers by what was printed would not know what is behind that.
func (t *task) asked(w io.Writer, name string) (token string, err error) {
	for i := range t.Steps {
		s := &t.Steps[i]
		switch {
		case s.Name != name || s.Ask == "":
		case len(t.Input) > askedBytes:
			return "", misuse("ask: none given, and the input that step %s asks about has %d bytes, too many to show here; to see it, and the ask to give: duly get %s/%s", show.Clean(name), len(t.Input), t.Type, t.ID)
		default:
			fmt.Fprintln(w, say.Of("cli.asks", "step", show.Clean(name), "round", t.Round, "input", show.Clean(string(t.Input))))
			token = s.Ask
		}
	}
	return token, nil
}

// askedBytes bounds the input that an answer is for and that is printed.
const askedBytes = 2000

type resolveCmd struct {
	As string `required:"" enum:"processed,undone" help:"What it was settled as: processed or undone."`
	acting
}

// Run asks that a task in error end.
func (c *resolveCmd) Run(ctx context.Context, std streams) error {
	return c.act(ctx, std, operate.Request{Action: operate.ActionResolve, As: core.State(c.As)}, true)
}

type extendCmd struct {
	Until string `required:"" help:"New deadline: a time or a duration from now."`
	acting
}

// Run asks for a later deadline.
func (c *extendCmd) Run(ctx context.Context, std streams) error {
	until, err := moment("until", c.Until)
	if err != nil {
		return err
	}
	return c.act(ctx, std, operate.Request{Action: operate.ActionExtend, Until: until}, false)
}

// anyTask names a task, perhaps by its id alone.
type anyTask struct {
	Task []string `arg:"" name:"task" help:"The task: type and id, type/id, or the id alone."`
	payloads
	server
}

type whyCmd struct{ anyTask }

// findTypesMax bounds the types that an id alone is looked for in.
const findTypesMax = 100

// Run says the sentence that the core makes.
func (c *whyCmd) Run(ctx context.Context, std streams) error {
	data, err := c.find(ctx)
	if err == nil {
		data, err = c.open(std, data)
	}
	if err != nil {
		return err
	}
	var t task
	var decided []condition
	var unknown error // why the conditions are not shown; the sentence stands without them
	if c.Output == show.Text {
		decided, unknown = c.conditions(ctx, data)
	}
	return c.show(std.out, data, "", taskColumns, &t, func(w io.Writer) {
		t.explain(w)
		explainConditions(w, decided)
		if unknown != nil {
			fmt.Fprintln(w, say.Of("cli.no-conditions", "error", show.Clean(unknown.Error())))
		}
	})
}

// condition is what was decided of the condition of a step, and by what values.
type condition struct {
	Step  string `json:"step"`
	When  string `json:"when"`
	Holds *bool  `json:"holds"`
	Row   int64  `json:"row"`
	Terms []struct {
		Term   string `json:"term"`
		Value  string `json:"value"`
		Failed string `json:"failed"`
	} `json:"terms"`
	Failed string `json:"failed"`
}

// conditions are those of a task whose plan has any.
func (c *whyCmd) conditions(ctx context.Context, data []byte) ([]condition, error) {
	t, err := readTask(data)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(t.Steps, func(s taskform.Step) bool { return s.When != "" }) {
		return nil, nil
	}
	answer, err := c.read(ctx, taskPath(t.Type, t.ID)+"/conditions", nil)
	if err != nil {
		return nil, err
	}
	var body struct {
		Conditions []condition `json:"conditions"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, fmt.Errorf("conditions of the task: %w", err)
	}
	return body.Conditions, nil
}

// explainConditions says of each condition that was asked what it came to, with the value of each of its terms then.
func explainConditions(w io.Writer, all []condition) {
	page := show.Page{W: w, Width: show.On(w).Width}
	for i := range all {
		c := &all[i]
		if c.Holds == nil {
			continue
		}
		says := "it did"
		if !*c.Holds {
			says = "it did not"
		}
		wrapped(page, c.Step+": ", show.Clean(say.Of("cli.begins-if", "condition", c.When, "did", says, "row", c.Row)))
		for _, term := range c.Terms {
			value := term.Value
			if term.Failed != "" {
				value = "no value: " + term.Failed
			}
			wrapped(page, "  ", show.Clean(term.Term+" = "+value))
		}
	}
}

// find reads the task. An id is of one task whatever its type, so the types are tried one by one where none is given.
func (c *anyTask) find(ctx context.Context) ([]byte, error) {
	words := c.Task
	if len(words) == 1 && strings.Contains(words[0], "/") { // as audit trail and tables of the console write it
		if words = strings.SplitN(words[0], "/", 2); words[0] == "" || words[1] == "" {
			return nil, misuse("task: %q, want type/id", c.Task[0])
		}
	}
	switch len(words) {
	case 2:
		return c.read(ctx, taskPath(words[0], words[1]), nil)
	case 1:
	default:
		return nil, misuse("task: %d words, want type and id, type/id, or the id alone", len(words))
	}
	plans, err := c.read(ctx, pathOf("plans"), nil)
	if err != nil {
		return nil, err
	}
	rows, err := rowsOf(plans, "plans")
	if err != nil {
		return nil, err
	}
	tried := map[string]bool{}
	for _, row := range rows {
		name, _ := row["name"].(string)
		if name == "" || tried[name] {
			continue
		}
		if len(tried) == findTypesMax {
			return nil, misuse("there are more than %d types: say the type too", findTypesMax)
		}
		tried[name] = true
		data, err := c.read(ctx, taskPath(name, c.Task[0]), nil)
		if exitOf(err) != exitNotFound {
			return data, err
		}
	}
	return nil, &client.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no task %q of any of %d types", c.Task[0], len(tried))}
}

type watchCmd struct {
	named
	server
}

// Run follows a task until it ends: each event is a reason to read it again.
func (c *watchCmd) Run(ctx context.Context, std streams) error {
	conn, err := c.client()
	if err != nil {
		return err
	}
	last, end := "", task{}
	look := func() error {
		data, err := conn.Do(ctx, client.Request{Method: http.MethodGet, Path: c.path()})
		if err != nil {
			return err
		}
		t, err := readTask(data)
		if err != nil {
			return err
		}
		if now := string(t.State) + t.Why; now != last {
			last = now
			if c.Output == show.Text {
				fmt.Fprintf(std.out, "%s  %-10s  %s\n", time.Now().UTC().Format("15:04:05"), t.State, show.Clean(t.Why))
			} else if err := show.Raw(std.out, show.JSON, data); err != nil {
				return err
			}
		}
		if t.ended() {
			end = t
			return client.ErrStop
		}
		return nil
	}
	if err := look(); err != nil && !errors.Is(err, client.ErrStop) {
		return err
	}
	if end.State == "" {
		err = conn.Follow(ctx, client.Request{Path: c.path() + "/events"}, func(client.Event) error { return patient(ctx, look) }, func(why error) {
			if why != nil {
				fmt.Fprintln(std.err, say.Of("cli.broke-off"), why)
			}
		})
		if err != nil {
			return err
		}
	}
	if end.State != "processed" {
		return errUnclean
	}
	return nil
}

// patient looks again while the server does not answer, or is busy: the event does not come again.
func patient(ctx context.Context, look func() error) error {
	for {
		err := look()
		if err == nil || exitOf(err) != exitUnreachable || pause.For(ctx, followEvery) != nil {
			return err
		}
	}
}

type journalCmd struct {
	named
	Limit int    `default:"50" help:"How many rows, 1 to 1000."`
	After string `help:"Cursor that the page before ended with."`
	server
}

// Run shows journal rows.
func (c *journalCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, c.path()+"/journal", queryOf(map[string]string{"limit": strconv.Itoa(c.Limit), "after": c.After}), "records", "no row", journalColumns)
}
