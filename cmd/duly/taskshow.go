package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// task is what the commands show of one.
type task struct{ taskform.Task }

// readTask reads the answer of the API about one.
func readTask(data []byte) (t task, err error) {
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("answer of the API: %w", err)
	}
	return t, nil
}

// stepColumns are the columns of the steps of one task.
var stepColumns = []string{"step", "kind", "status", "~attempt", "~by", "result or error"}

// print shows a task with its steps, and what there is to know of each that a table has no room for.
func (t *task) print(w io.Writer) {
	page := show.On(w)
	head := t.Type + "  " + t.ID + "  " + page.Coloured("state", string(t.State))
	switch {
	case t.FailedStep != "":
		head += "  (step " + t.FailedStep + " failed: " + show.Clean(t.Reason) + ")"
	case t.Reason != "":
		head += "  (" + show.Clean(t.Reason) + ")"
	}
	wrapped(page, "", head)
	wrapped(page, "", fmt.Sprintf("version %d", t.PlanVersion)+fmt.Sprintf("  created %s  ended %s  failures %d", t.CreatedAt, cmp.Or(t.EndedAt, "-"), t.Failures))
	if t.StartAt != "" {
		wrapped(page, "", "begins at "+t.StartAt+", not before")
	}
	t.lineage(page)
	if t.Why != "" {
		wrapped(page, "", show.Clean(t.Why))
	}
	rows := make([]show.Object, len(t.Steps))
	for i := range t.Steps {
		s := &t.Steps[i]
		last := shown(s.Result)
		if s.Error != "" {
			last = s.Error
		}
		rows[i] = show.Object{
			"step": s.Name, "kind": does(s), "status": s.Status, "attempt": json.Number(strconv.Itoa(s.Attempt)),
			"by": strings.TrimSuffix(s.By, "@"+s.Agent), "result or error": last,
		}
	}
	if len(rows) > 0 {
		page.Table(stepColumns, rows)
	}
	for i := range t.Steps {
		if note := t.note(&t.Steps[i]); note != "" {
			wrapped(page, t.Steps[i].Name+": ", note)
		}
	}
	if len(t.Result) > 0 {
		wrapped(page, "", "result: "+show.Clean(shown(t.Result)))
	}
}

// lineage says of which tasks this one is a part, from the root down, and how to go up.
func (t *task) lineage(page show.Page) {
	if len(t.Parents) == 0 {
		return
	}
	line := ""
	for _, up := range slices.Backward(t.Parents) {
		line += " › " + up.Type + " " + up.ID
	}
	wrapped(page, "", "part of "+strings.TrimPrefix(line, " › ")+": duly get "+t.Parents[0].Type+"/"+t.Parents[0].ID)
}

// explain says why a task is where it is, and of each step that is open how to go on with it.
func (t *task) explain(w io.Writer) {
	page := show.Page{W: w, Width: show.On(w).Width}
	wrapped(page, "", show.Clean(t.Why))
	t.lineage(page)
	for i := range t.Steps {
		if s := &t.Steps[i]; s.KeyUntil != "" || s.Kind != "" && (s.Status == core.StepRunning.String() || s.Status == core.StepUndoing.String()) {
			wrapped(page, s.Name+": ", t.note(s))
		}
	}
}

// wrapped prints a line, and on a terminal goes on below its text.
func wrapped(page show.Page, lead, text string) {
	indent := ansi.StringWidth(lead)
	if page.Width > 2*indent {
		text = ansi.Wrap(text, page.Width-indent, "")
	}
	fmt.Fprintln(page.W, lead+strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)))
}

// does is the kind of a step, with whom it calls or what its children are.
func does(s *taskform.Step) string {
	switch {
	case s.Children != nil:
		return s.Kind + " " + s.Children.Type
	case s.Kind == "":
		return strings.TrimSpace("call " + s.Agent)
	}
	return s.Kind
}

// note is what a table has no room for: what the step waits for and how it goes on, its children, its condition.
func (t *task) note(s *taskform.Step) string {
	var parts []string
	running := s.Status == core.StepRunning.String()
	switch kind := core.StepKind(s.Kind); {
	case kind == core.WaitStep && running:
		parts = append(parts, "waits until "+s.CompleteBy)
	case kind == core.SignalStep && running:
		ask := ""
		if s.Ask != "" {
			ask = " --ask " + s.Ask
		}
		parts = append(parts, say.Of("step.signal", "at", s.CompleteBy, "type", t.Type, "id", t.ID, "step", s.Name, "ask", ask))
	case s.Status == core.SignalledWord:
		parts = append(parts, say.Of("step.answered"))
	case s.Children != nil && s.At != "":
		parts = append(parts, t.family(s.Children))
	case s.KeyUntil != "":
		parts = append(parts, say.Of("step.key", "at", s.KeyUntil))
	}
	if u := s.Undo; u != nil && (u.Attempt > 0 || u.Error != "") {
		said := fmt.Sprintf("undo, attempt %d", u.Attempt)
		if u.By != "" {
			said += ", by " + strings.TrimSuffix(u.By, "@"+s.Agent)
		}
		if u.Error != "" {
			said += ": " + u.Error
		}
		parts = append(parts, said)
	}
	switch skipped := s.Status == core.StepSkipped.String(); {
	case skipped && s.At != "" && s.Error == "" && s.When != "":
		parts = append(parts, say.Of("step.condition", "condition", s.When))
	case skipped && s.At != "" && s.Optional:
		parts = append(parts, say.Of("step.skipped"))
	case skipped:
		parts = append(parts, "never begun")
	default:
		if s.Optional {
			parts = append(parts, say.Of("step.optional"))
		}
		if s.When != "" && (s.Status == core.StepWaiting.String() || s.Status == core.SignalledWord) {
			parts = append(parts, "begins if "+s.When)
		}
	}
	return show.Clean(strings.Join(parts, "; "))
}

// family are the children of a step, by what became of them.
func (t *task) family(c *taskform.Children) string {
	of := strconv.Itoa(c.Born)
	if c.Count > 0 {
		of += " of " + strconv.Itoa(c.Count)
	}
	return say.Of("step.children", "born", of, "running", c.Running, "processed", c.Processed, "undone", c.Undone, "error", c.Error, "type", t.Type, "id", t.ID)
}

// tasks prints a list of tasks, with the columns that any of them has something in.
func (s *server) tasks(std streams, data []byte, none string) error {
	columns := taskListColumns
	if s.Output == show.Text {
		rows, err := rowsOf(data, "tasks")
		if err != nil {
			return err
		}
		has := func(name string) bool {
			return slices.ContainsFunc(rows, func(row show.Object) bool { return row[name] != nil })
		}
		columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool {
			return strings.HasPrefix(c, "~parent") && !has("parent") || c == "~start_at" && !has("start_at") || c == "~waits_for" && !has("waits_for")
		})
	}
	return s.list(std, data, "tasks", none, columns)
}

type childrenCmd struct {
	Type  string `arg:"" type:"task" help:"Task type of the parent, or type/id."`
	ID    string `arg:"" help:"Task id of the parent."`
	State string `help:"Only children in this state: pending, processing, processed, undoing, undone or error."`
	paged
}

// Run lists the children of all steps of a task.
func (c *childrenCmd) Run(ctx context.Context, std streams) error {
	if _, err := c.read(ctx, taskPath(c.Type, c.ID), nil); err != nil {
		return err // a task that is not known is not one without children
	}
	data, err := c.read(ctx, pathOf("tasks"), c.query(map[string]string{"parent": c.ID, "state": c.State}))
	if err != nil {
		return err
	}
	return c.tasks(std, data, "no child")
}
