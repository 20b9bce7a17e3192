package console

import (
	"fmt"
	"net/http"

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
func (c *console) failures(w http.ResponseWriter, r *http.Request) {
	if bad := known(r, "type", "state", "after"); bad != nil {
		c.fail(w, r, bad)
		return
	}
	q := r.URL.Query()
	d := failuresData{Type: q.Get("type"), State: core.State(q.Get("state")), First: q.Get("after") == ""}
	if d.Type != "" {
		if err := core.CheckName("type", d.Type); err != nil {
			c.fail(w, r, &operate.Refusal{Code: http.StatusBadRequest, Field: "type", Detail: err.Error()})
			return
		}
	}
	if d.State != "" && d.State != core.StateError && d.State != core.StateUndone {
		c.fail(w, r, &operate.Refusal{Code: http.StatusBadRequest, Field: "state", Detail: fmt.Sprintf("state is %s, want error, undone or nothing for both.", core.QuoteShort(string(d.State)))})
		return
	}
	ctx, cancel := reading(r)
	defer cancel()
	var err error
	if d.Groups, err = c.Reader.Groups(ctx, operate.GroupFilter{Type: d.Type, State: d.State, Limit: rowsOfList, After: q.Get("after")}); err == nil {
		d.Types, err = c.typeNames(ctx)
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	for i := range d.Groups.Groups {
		d.Peak = max(d.Peak, d.Groups.Groups[i].Tasks.N)
	}
	d.Next = nextPage(r, d.Groups.Next)
	c.show(w, r, http.StatusOK, "failures", page{Title: "Failures", Section: "failures", Data: d})
}

type failureData struct {
	Group    operate.Group
	Tasks    []core.View
	TasksURL string
	Notes    []operate.Note
	HasNotes bool
	Buttons  []actionButton
}

// failure is the page of one failure group.
func (c *console) failure(w http.ResponseWriter, r *http.Request) {
	if bad := known(r); bad != nil {
		c.fail(w, r, bad)
		return
	}
	ctx, cancel := reading(r)
	defer cancel()
	var d failureData
	var err error
	if d.Group, err = c.Reader.Group(ctx, r.PathValue("id")); err != nil {
		c.fail(w, r, err)
		return
	}
	g := &d.Group
	f := core.Filter{Type: g.Type, State: g.State, Step: g.Step, Fingerprint: g.Fingerprint, Limit: groupsOnTop}
	list, err := c.Reader.List(ctx, f)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	d.Tasks, d.HasNotes = list.Tasks, c.Notes != nil
	d.TasksURL = c.url("tasks") + "?" + groupQuery(g)
	if c.Notes != nil {
		if d.Notes, err = c.Notes.Notes(ctx, "group/"+g.ID, notesShown); err != nil {
			c.fail(w, r, err)
			return
		}
	}
	by := actorOf(r)
	for _, info := range actions {
		b := actionButton{actionInfo: info, URL: c.url("operations", "new") + "?group=" + g.ID + "&action=" + string(info.Action)}
		allowed := false
		for _, s := range info.In {
			allowed = allowed || s == g.State
		}
		if !allowed {
			continue // no member can be in a state that allows it
		}
		switch {
		case c.Repairs == nil:
			b.Why = "This node does not serve operations."
		case !by.Role.May(operate.RoleOperator):
			b.Why = notAllowed(by.Role, operate.RoleOperator).Detail
		}
		d.Buttons = append(d.Buttons, b)
	}
	c.show(w, r, http.StatusOK, "failure", page{Title: g.Type + ": " + stepWord(g.Step), Section: "failures", Data: d})
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
