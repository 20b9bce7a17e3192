package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/seal"
)

// actionInfo is an action in words.
type actionInfo struct {
	Action operate.Action
	Title  string // of its button
	What   string // what it does to a task
	Reason bool   // a reason is required
	Danger bool
}

// actions are what may be asked of a task. Reasons are required wherever something is destroyed or a person's word counts
// as a result.
var actions = []actionInfo{
	{operate.ActionResubmit, "Resubmit", say.Of("act.resubmit"), false, false},
	{operate.ActionEdit, "Edit and resubmit", say.Of("act.edit"), true, false},
	{operate.ActionAccept, "Accept step", say.Of("act.accept"), true, true},
	{operate.ActionExtend, "Extend", say.Of("act.extend"), false, false},
	{operate.ActionCancel, "Cancel", say.Of("act.cancel"), true, true},
	{operate.ActionUndo, "Undo", say.Of("act.undo"), true, true},
	{operate.ActionResolve, "Resolve", say.Of("act.resolve"), true, true},
}

// bulkActions are those that an operation takes, for many tasks at once.
var bulkActions = []operate.Action{operate.ActionResubmit, operate.ActionEdit, operate.ActionAccept, operate.ActionUndo, operate.ActionResolve}

// bulkIn are those of them that some task in a state takes; empty: in any state.
func bulkIn(state core.State) (all []operate.Action) {
	for _, a := range bulkActions {
		if state == "" || slices.Contains(core.PossibleIn(state), string(a)) {
			all = append(all, a)
		}
	}
	return all
}

func noneTakes(state core.State, a operate.Action) *operate.Refusal {
	return &operate.Refusal{Code: http.StatusConflict, Field: "action", Detail: say.Of("refuse.none-takes", "state", state, "action", a)}
}

func infoOf(a operate.Action) (actionInfo, bool) {
	i := slices.IndexFunc(actions, func(info actionInfo) bool { return info.Action == a })
	if i < 0 {
		return actionInfo{}, false
	}
	return actions[i], true
}

// actionButton is an action on a page: what may not be pressed says why.
type actionButton struct {
	actionInfo
	URL string
	Why string // empty: it may be pressed
}

// buttons are the actions of a task for an actor.
func (c *console) buttons(r *http.Request, v *core.View) []actionButton {
	var all []actionButton
	for _, info := range actions {
		all = append(all, actionButton{actionInfo: info, URL: c.url("tasks", v.Type, v.ID, "act", info.Action), Why: c.whyNoAction(r, v, info.Action)})
	}
	return all
}

// whyNoAction is why an actor may not ask an action of a task as it is; empty: they may.
func (c *console) whyNoAction(r *http.Request, v *core.View, a operate.Action) string {
	return operate.WhyNot(actorOf(r), v, a)
}

// impossible refuses to show the dialog of what is not possible.
func impossible(why string) error {
	return &operate.Refusal{Code: http.StatusConflict, Detail: why}
}

// actForm is the dialog of one action on one task.
type actForm struct {
	Info     actionInfo
	View     core.View
	Failed   string // step that failed
	URL      string
	Back     string
	Key      string
	IfSeq    int64
	Reason   string
	Input    string
	Result   string
	Until    string
	As       string
	Found    string
	Diff     []diffRow
	Compare  bool // the input is shown beside the old one, to be sent
	Unedited bool
	Bad      string // what was refused
	Field    string // what of it is wrong
	Next     []string
	ReasonIs bool   // a reason is required
	SealedBy string // id of the key that the task's payloads are encrypted with, where the action would put one beside them; empty: not
}

// actionForm shows the dialog.
func (c *console) actionForm(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := reading(r)
	defer cancel()
	v, err := c.view(ctx, r)
	if err != nil {
		return err
	}
	f, err := c.newActForm(r, v)
	if why := c.whyNoAction(r, &v, f.Info.Action); err == nil && why != "" {
		err = impossible(why)
	}
	if err != nil {
		return err
	}
	f.Key, f.IfSeq = newKey(), v.Seq
	if f.Info.Action == operate.ActionEdit {
		f.Input = indented(v.Input)
	}
	return c.show(w, r, http.StatusOK, "act", page{Title: f.Info.Title, Section: "tasks", Data: f})
}

func (c *console) newActForm(r *http.Request, v core.View) (actForm, error) {
	info, ok := infoOf(operate.Action(r.PathValue("action")))
	if !ok {
		return actForm{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("act.none", "action", core.QuoteShort(r.PathValue("action")))}
	}
	failed, by := v.FailedStep, ""
	if e, encrypted := seal.Of(v.Input); encrypted && (info.Action == operate.ActionEdit || info.Action == operate.ActionAccept) {
		by = e.Key
	}
	return actForm{SealedBy: by, Info: info, View: v, Failed: failed, URL: c.url("tasks", v.Type, v.ID, "act", info.Action), Back: c.taskURL(v.Type, v.ID), ReasonIs: info.Reason, As: string(core.StateProcessed)}, nil
}

// indented lays JSON out for editing, with its secrets: only those who may edit it see it.
func indented(raw []byte) string {
	text, err := quickjson.Indent(raw)
	if err != nil {
		return string(raw)
	}
	return text
}

// act carries out one action.
func (c *console) act(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := reading(r)
	defer cancel()
	v, err := c.view(ctx, r)
	if err != nil {
		return err
	}
	f, err := c.newActForm(r, v)
	if err != nil {
		return err
	}
	form := r.PostForm
	f.Key, f.Reason, f.Input, f.Result, f.Until, f.As = form.Get("key"), strings.TrimSpace(form.Get("reason")), form.Get("input"), form.Get("result"), form.Get("until"), form.Get("as")
	f.Found = form.Get("found")
	f.IfSeq, _ = strconv.ParseInt(form.Get("if_seq"), 10, 64)
	request, bad := c.requestOf(form.Get, f.Info)
	if bad == nil && f.Info.Action == operate.ActionEdit && form.Get("go") != "send" {
		old, now := indented(v.Input), indented([]byte(f.Input))
		f.Diff, f.Compare = diffLines(old, now), form.Get("go") != "back"
		f.Unedited = !differs(f.Diff)
		return c.show(w, r, http.StatusOK, "act", page{Title: f.Info.Title, Section: "tasks", Data: f})
	}
	if bad == nil {
		request.IfSeq, request.Key = f.IfSeq, f.Key
		var answer operate.Answer
		answer, err = c.Actions.Do(ctx, actorOf(r), operate.TaskRef{Type: v.Type, ID: v.ID}, request)
		if err == nil {
			text := say.Of("act.asked", "action", f.Info.Title, "id", v.ID, "outcome", strings.TrimSuffix(answer.Outcome, "."), "entry", answer.Audit)
			if answer.Again {
				text = say.Of("act.again", "outcome", strings.TrimSuffix(answer.Outcome, "."), "entry", answer.Audit)
			}
			return c.done(w, r, f.Back, text)
		}
		if !errors.As(err, &bad) {
			return err
		}
	}
	f.Bad, f.Field, f.Key = bad.Detail, bad.Field, nextKey(f.Key, bad)
	for _, a := range bad.Possible {
		f.Next = append(f.Next, string(a))
	}
	return c.show(w, r, bad.Code, "act", page{Title: f.Info.Title, Section: "tasks", Data: f})
}

// requestOf reads what a dialog says beside the action.
func (c *console) requestOf(get func(string) string, info actionInfo) (operate.Request, *operate.Refusal) {
	request := operate.Request{Action: info.Action, Reason: strings.TrimSpace(get("reason")), Step: get("step"), Found: core.ProbeOutcome(get("found"))}
	bad := func(field, format string, args ...any) (operate.Request, *operate.Refusal) {
		return request, &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	if info.Reason && request.Reason == "" {
		return bad("reason", "%s", say.Of("refuse.say-why", "action", info.Action))
	}
	if err := core.CheckWords("The reason", request.Reason); err != nil {
		return bad("reason", "%v.", err)
	}
	switch info.Action {
	case operate.ActionEdit:
		if text := strings.TrimSpace(get("patch")); text != "" && strings.TrimSpace(get("input")) == "" {
			if err := checkJSON("The patch", text, operate.PatchBytesMax); err != nil {
				return bad("patch", "%v.", err)
			}
			request.Patch = json.RawMessage(text)
			break
		}
		if err := checkJSON("The input", get("input"), core.InputBytesMax); err != nil {
			return bad("input", "%v.", err)
		}
		request.Input = json.RawMessage(get("input"))
	case operate.ActionAccept:
		if text := strings.TrimSpace(get("result")); text != "" {
			if err := checkJSON("The result", text, core.ResultBytesMax); err != nil {
				return bad("result", "%v.", err)
			}
			request.Result = json.RawMessage(text)
		}
	case operate.ActionResolve:
		request.As = core.State(get("as"))
		if request.As != core.StateProcessed && request.As != core.StateUndone {
			return bad("as", "as is %s, want processed or undone.", core.QuoteShort(get("as")))
		}
	}
	if info.Action == operate.ActionExtend || info.Action == operate.ActionResubmit || info.Action == operate.ActionEdit {
		until := strings.TrimSpace(get("until"))
		switch {
		case until == "" && info.Action == operate.ActionExtend:
			return bad("until", "%s", say.Of("refuse.say-until"))
		case until != "":
			at, err := c.untilOf(until)
			if err != nil {
				return bad("until", "%v", err)
			}
			request.Until = at
		}
	}
	return request, nil
}

// untilOf reads a deadline: a duration from now, or a time in UTC.
func (c *console) untilOf(text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < time.Second || d > core.DurationMax {
			return time.Time{}, fmt.Errorf("until is %s, want 1s to %dh from now", core.QuoteShort(text), int(core.DurationMax.Hours()))
		}
		return c.Now().Add(d), nil
	}
	at, err := timeIn(text)
	if err != nil {
		return at, fmt.Errorf("until is %s, want a duration from now such as 2h, or a time in UTC such as 2026-03-01T14:05", core.QuoteShort(text))
	}
	if !at.After(c.Now()) {
		return at, fmt.Errorf("until is %s, which is over", core.QuoteShort(text))
	}
	return at, nil
}
