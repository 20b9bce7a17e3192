package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

type failuresData struct {
	Groups operate.Groups
	Type   string
	State  core.State
	Types  []string
	Next   string
	First  bool
	Bad    *operate.Refusal
	Peak   int64 // tasks of the largest group of the page
}

// failures lists failure groups: tasks of one type that failed in one step in the same way.
func (c *console) failures(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	d := failuresData{Type: q.Get("type"), State: core.State(q.Get("state")), First: q.Get("after") == ""}
	if d.Type != "" {
		if err := core.CheckName("type", d.Type); err != nil {
			return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "type", Detail: err.Error()}
		}
	}
	if d.State != "" && d.State != core.StateError && d.State != core.StateUndone {
		return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "state", Detail: fmt.Sprintf("state is %s, want error, undone or nothing for both.", core.QuoteShort(string(d.State)))}
	}
	var err error
	if d.Groups, err = c.Reader.Groups(ctx, operate.GroupFilter{Type: d.Type, State: d.State, Limit: rowsOfList, After: q.Get("after")}); err == nil {
		d.Types, err = c.typeNames(ctx)
	}
	if err != nil {
		return page{}, err
	}
	for i := range d.Groups.Groups {
		d.Peak = max(d.Peak, d.Groups.Groups[i].Tasks.N)
	}
	d.Groups.Groups, d.Next = d.Groups.Ranked(), nextPage(r, d.Groups.Next)
	return page{Title: "Failures", Data: d}, nil
}

type failureData struct {
	Group    operate.Group
	Tasks    []core.View
	TasksURL string
	Notes    []operate.Note
	Buttons  []actionButton
}

// failure is the page of one failure group.
func (c *console) failure(ctx context.Context, r *http.Request) (page, error) {
	var d failureData
	var err error
	if d.Group, err = c.Reader.Group(ctx, r.PathValue("id")); err != nil {
		return page{}, err
	}
	g := &d.Group
	f := core.Filter{Type: g.Type, State: g.State, Step: g.Step, Fingerprint: g.Fingerprint, Limit: tasksOfGroup}
	list, err := c.Reader.List(ctx, f)
	if err != nil {
		return page{}, err
	}
	d.Tasks = list.Tasks
	d.TasksURL = c.url("tasks") + "?" + groupQuery(g)
	if d.Notes, err = c.Notes.Notes(ctx, "group/"+g.ID, notesShown); err != nil {
		return page{}, err
	}
	for _, info := range actions {
		if !slices.Contains(bulkIn(g.State), info.Action) {
			continue // of no member
		}
		d.Buttons = append(d.Buttons, actionButton{actionInfo: info, Why: operate.WhyNotRole(actorOf(r), operate.RoleOperator),
			URL: c.url("operations", "new") + "?group=" + g.ID + "&action=" + string(info.Action)})
	}
	return page{Title: g.Type + ": " + operate.StepWord(g.Step), Data: d}, nil
}

func groupQuery(g *operate.Group) string {
	q := map[string][]string{"type": {g.Type}, "state": {string(g.State)}}
	if g.Step != "" {
		q["step"] = []string{g.Step}
	}
	if g.Fingerprint != "" {
		q["fingerprint"] = []string{g.Fingerprint}
	}
	return queryOf(q)
}
