package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// view reads the task that a path names.
func (c *console) view(ctx context.Context, r *http.Request) (core.View, error) {
	return c.viewOf(ctx, r.PathValue("type"), r.PathValue("id"))
}

// viewOf reads a task.
func (c *console) viewOf(ctx context.Context, taskType, id string) (core.View, error) {
	if err := core.CheckName("type", taskType); err != nil {
		return core.View{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "type", Detail: err.Error()}
	}
	if err := core.CheckTaskID(id); err != nil {
		return core.View{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "id", Detail: err.Error()}
	}
	v, err := c.Reader.Get(ctx, c.PartitionOf(id), id)
	if err == nil && v.Type != taskType {
		err = core.ErrNotFound
	}
	if errors.Is(err, core.ErrNotFound) {
		return v, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("task.none-of-type", "task", id, "type", taskType)}
	}
	return v, err
}

// readPlans reads the plans. Those that a newer node stored and this one cannot read are named apart: all else goes on.
func (c *console) readPlans(ctx context.Context) ([]core.Plan, core.UnreadablePlans, error) {
	plans, err := c.Reader.Plans(ctx)
	if unread, some := errors.AsType[core.UnreadablePlans](err); some {
		return plans, unread, nil
	}
	return plans, nil, err
}

// planOf is the plan of a task; nil: this node does not know it.
func (c *console) planOf(ctx context.Context, name string, version int64) (*core.Plan, error) {
	plans, _, err := c.readPlans(ctx)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return core.FindPlan(plans, name, version), nil
}

type taskData struct {
	View     core.View
	Plan     *core.Plan
	Lineage  []core.TaskName // the tasks that it is a part of, from the root down
	Steps    stepsData
	When     []expr.Decision
	Replay   bool // the time machine can open it
	Timeline *timeline
	Trail    trail
	Journal  []journalRow
	Older    string // address of older rows; empty: there are none
	Newest   bool   // the newest rows are shown
	Input    *document
	Actions  []actionButton
	Notes    []operate.Note
	Audit    []operate.AuditEntry
	AuditURL string
	Group    string // address of its failure group; empty: it is in none
	Ended    bool
}

// stepsData is a task's steps as a graph, and as a table with the same content.
type stepsData struct {
	Graph template.HTML
	Rows  []stepRow
	Exact bool // times are never relative
}

// stepsOf shows the steps of a task; base is the task's address, empty: without their results.
func stepsOf(p *core.Plan, v *core.View, base, label string) stepsData {
	d := stepsData{Graph: taskGraph(p, v).SVG(label), Rows: stepRows(p, v, base)}
	for i := range d.Rows {
		if s := &d.Rows[i]; s.Kind.Parent() && s.Children.Born > 0 {
			d.Rows[i].ChildrenURL = "?parent=" + url.QueryEscape(v.ID) + "&type=" + url.QueryEscape(s.Child)
		}
	}
	return d
}

// stepRow is a step of the table that has the same content as the graph.
type stepRow struct {
	core.StepView
	After       string
	Result      *document
	What        string // of a step that is no call: what it waits for
	ChildrenURL string // query of the list of its children; empty: it has none
}

// task is the page of one task.
func (c *console) task(ctx context.Context, r *http.Request) (page, error) {
	before, limit, bad := journalQuery(r)
	if bad != nil {
		return page{}, bad
	}
	v, err := c.view(ctx, r)
	if err != nil {
		return page{}, err
	}
	d := taskData{View: v, Newest: before == 0, Ended: v.State.Ended()}
	d.Lineage = slices.Clone(v.Ancestors)
	slices.Reverse(d.Lineage)
	if d.Plan, err = c.planOf(ctx, v.Type, v.PlanVersion); err != nil {
		return page{}, err
	}
	// One more than is shown says whether there are older ones.
	records, err := c.Reader.JournalPage(ctx, v.Partition, v.Number, before, limit+1)
	if err != nil {
		return page{}, err
	}
	if len(records) > limit {
		records = records[:limit]
		d.Older = "?before=" + strconv.FormatInt(records[limit-1].Seq, 10) + "#journal"
	}
	d.Journal = journalOf(d.Plan, records)
	now := core.InstantOf(c.Now())
	if len(records) > 0 && records[0].Seq < v.Seq {
		now = 0 // what these rows leave open has ended since
	}
	d.Timeline = newTimeline(d.Plan, &v, records, now)
	d.Trail = newTrail(d.Plan, &v, oldestFirst(records), d.Older != "" || before != 0)
	base := c.taskURL(v.Type, v.ID)
	d.Input = documentOf("input", "Input", v.Input, base+"/payload?of=input")
	d.Steps = stepsOf(d.Plan, &v, base, say.Of("graph.plan", "plan", v.Type, "version", v.PlanVersion, "n", len(v.Steps)))
	d.When = c.conditions(ctx, d.Plan, &v)
	d.Replay = len(records) > 0
	d.Actions = append(c.signalButtons(r, &v), c.buttons(r, &v)...)
	target := "task/" + v.Type + "/" + v.ID
	if d.Notes, err = c.Notes.Notes(ctx, target, notesShown); err != nil {
		return page{}, err
	}
	done, err := c.Trail.Audit(ctx, operate.AuditFilter{Target: target, Whole: true, Limit: trailOfTask})
	if err != nil {
		return page{}, err
	}
	d.Audit, d.AuditURL = done.Entries, c.url("audit")+"?target="+target
	if v.Fingerprint != "" {
		d.Group = c.url("tasks") + "?type=" + v.Type + "&state=" + string(v.State) + "&fingerprint=" + v.Fingerprint
	}
	return page{Title: v.Type + "/" + v.ID, Data: d}, nil
}

func journalQuery(r *http.Request) (before int64, limit int, bad *operate.Refusal) {
	limit = journalRows
	q := r.URL.Query()
	if text := q.Get("before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return 0, 0, &operate.Refusal{Code: http.StatusBadRequest, Field: "before", Detail: fmt.Sprintf("before is %s, want the number of a journal row, 1 or more.", core.QuoteShort(text))}
		}
		before = n
	}
	if text := q.Get("rows"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > journalRowsMax {
			return 0, 0, &operate.Refusal{Code: http.StatusBadRequest, Field: "rows", Detail: fmt.Sprintf("rows is %s, want 1 to %d.", core.QuoteShort(text), journalRowsMax)}
		}
		limit = min(n, journalRowsMax-1) // one more is read
	}
	return before, limit, nil
}

func stepRows(p *core.Plan, v *core.View, base string) []stepRow {
	all := make([]stepRow, len(v.Steps))
	for i := range v.Steps {
		all[i] = stepRow{StepView: v.Steps[i]}
		if base != "" {
			all[i].Result = documentOf("result-"+v.Steps[i].Name, "Result of "+v.Steps[i].Name, v.Steps[i].Result, base+"/payload?of="+v.Steps[i].Name)
		}
		all[i].What = whatOf(&v.Steps[i])
		if p != nil && i < len(p.Steps) {
			var names []string
			for _, a := range p.Steps[i].After {
				names = append(names, p.Steps[a].Name)
			}
			all[i].After = strings.Join(names, ", ")
		}
	}
	return all
}

// whatOf says what a step that is no call is: what it waits for, or its children. A call's agent says it: empty.
func whatOf(s *core.StepView) string {
	switch s.Kind {
	case core.WaitStep:
		return "wait"
	case core.SignalStep:
		return "signal"
	case core.TaskStep:
		return "task " + s.Child
	case core.EachStep:
		if s.Count == 0 {
			return "each " + s.Child
		}
		words := fmt.Sprintf("%s of %s %s", number(int64(s.Children.Done)), number(int64(s.Count)), s.Child)
		for _, part := range []struct {
			n    int
			word string
		}{{s.Children.Running, "running"}, {s.Children.Undone, "undone"}, {s.Children.Error, "in error"}} {
			if part.n > 0 {
				words += ", " + number(int64(part.n)) + " " + part.word
			}
		}
		return words
	}
	return ""
}

// noteOf is what a step's node has beside its name.
func noteOf(s *core.StepView) string {
	switch {
	case s.Kind == core.EachStep && s.Count > 0:
		return number(int64(s.Children.Done)) + "/" + number(int64(s.Count))
	case s.Kind == core.EachStep, s.Kind == core.TaskStep, s.Kind == core.WaitStep, s.Kind == core.SignalStep:
		return string(s.Kind)
	case s.Attempt > 1:
		return fmt.Sprintf("attempt %d", s.Attempt)
	}
	return ""
}

// taskGraph is the graph of a task: the plan's order with the steps' states. Without a plan it is a chain.
func taskGraph(p *core.Plan, v *core.View) *graph {
	nodes := make([]graphNode, len(v.Steps))
	for i := range v.Steps {
		s := &v.Steps[i]
		nodes[i] = graphNode{Name: s.Name, Status: s.Status, Note: noteOf(s)}
		switch {
		case p != nil && i < len(p.Steps):
			nodes[i].After = p.Steps[i].After
		case i > 0:
			nodes[i].After = []int{i - 1}
		}
	}
	return layout(nodes)
}

// planGraph is the graph of a plan alone.
func planGraph(p *core.Plan) *graph {
	nodes := make([]graphNode, len(p.Steps))
	for i := range p.Steps {
		nodes[i] = graphNode{Name: p.Steps[i].Name, After: p.Steps[i].After}
		switch s := &p.Steps[i]; {
		case s.Kind != core.CallStep:
			nodes[i].Note = string(s.Kind)
		case !s.Undoable:
			nodes[i].Note = "check"
		}
	}
	return layout(nodes)
}

// payload serves one document of a task alone: the input, or the result of a step. Secrets are hidden as on the page.
func (c *console) payload(ctx context.Context, r *http.Request) (page, error) {
	v, err := c.view(ctx, r)
	if err != nil {
		return page{}, err
	}
	of := r.URL.Query().Get("of")
	if at := r.URL.Query().Get("at"); at != "" {
		rec, err := c.recording(ctx, v.Type, v.ID)
		if err != nil {
			return page{}, err
		}
		seq, bad := rowOf(at, rec.rows())
		if bad != nil {
			return page{}, bad
		}
		if _, v, err = rec.seek(seq); err != nil {
			return page{}, err
		}
	}
	raw, title := v.Input, "Input"
	if of != "input" {
		raw, title = nil, "Result of "+of
		for i := range v.Steps {
			if v.Steps[i].Name == of {
				raw = v.Steps[i].Result
			}
		}
	}
	d := documentOf("document", title, raw, "")
	if d == nil {
		return page{}, &operate.Refusal{Code: http.StatusNotFound, Field: "of", Detail: say.Of("task.no-document", "task", v.ID, "name", core.QuoteShort(of))}
	}
	d.Fold = false
	return page{Title: title + " of " + v.Type + "/" + v.ID, Data: struct {
		View core.View
		Doc  *document
	}{v, d}}, nil
}

func (c *console) noteOnTask(w http.ResponseWriter, r *http.Request) error {
	taskType, id := r.PathValue("type"), r.PathValue("id")
	return c.note(w, r, "task/"+taskType+"/"+id, c.taskURL(taskType, id)+"#notes")
}

func (c *console) noteOnGroup(w http.ResponseWriter, r *http.Request) error {
	return c.note(w, r, "group/"+r.PathValue("id"), c.url("failures", r.PathValue("id"))+"#notes")
}

func (c *console) noteOnOperation(w http.ResponseWriter, r *http.Request) error {
	return c.note(w, r, "operation/"+r.PathValue("id"), c.url("operations", r.PathValue("id"))+"#notes")
}

// note keeps what someone wrote.
func (c *console) note(w http.ResponseWriter, r *http.Request, target, back string) error {
	text := strings.TrimSpace(r.PostForm.Get("text"))
	err := core.CheckWords("the note", text)
	if text == "" {
		err = errors.New("the note is empty")
	}
	if err != nil {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "text", Detail: err.Error() + "."}
	}
	ctx, cancel := reading(r)
	defer cancel()
	err = c.Desk.Change(ctx, &operate.Act{By: actorOf(r), Action: "note.add", Target: target}, func(ctx context.Context) error {
		_, err := c.Notes.AddNote(ctx, operate.Note{Target: target, At: c.Now(), By: actorOf(r).Name, Text: text})
		return err
	})
	if err != nil {
		return err
	}
	return c.done(w, r, back, say.Of("note.kept"))
}
