package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// What an operation starts with when nothing else is said.
const (
	rateDefault  = 50
	rateMax      = 10_000
	brakeDefault = 20 // per cent of a wave
	exampleMax   = 4 << 10
)

type operationsData struct {
	Operations []operate.Operation
	States     []operate.OperationState
	State      operate.OperationState
	Next       string
	First      bool
}

var operationStates = operate.StartedOperations()

// operations lists operations, newest first.
func (c *console) operations(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	d := operationsData{States: operationStates, State: operate.OperationState(q.Get("state")), First: q.Get("after") == ""}
	wanted := operationStates
	if d.State != "" {
		if !slices.Contains(operationStates, d.State) {
			return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "state", Detail: fmt.Sprintf("state is %s, want one of %v.", core.QuoteShort(string(d.State)), operationStates)}
		}
		wanted = []operate.OperationState{d.State}
	}
	ops, next, err := c.Operations.Operations(ctx, wanted, rowsOfList, q.Get("after"))
	if err != nil {
		return page{}, err
	}
	d.Operations, d.Next = ops, nextPage(r, next)
	return page{Title: "Operations", Data: d}, nil
}

// outcome is one column of an operation: the columns add up to its total.
type outcome struct {
	Look    look
	Name    operate.Outcome
	N       int64
	Percent string
	URL     string
}

func (c *console) outcomes(op *operate.Operation) []outcome {
	t := op.Tally
	all := []outcome{
		{Name: operate.OutcomeDone, N: t.Done}, {Name: operate.OutcomeFailedAgain, N: t.FailedAgain}, {Name: operate.OutcomeSkipped, N: t.Skipped},
		{Name: operate.OutcomeAsked, N: t.Asked}, {Name: operate.OutcomeWaiting, N: t.Waiting},
	}
	for i := range all {
		all[i].Look, all[i].Percent = lookOf(all[i].Name), percent(all[i].N, t.Total())
		all[i].URL = c.url("operations", op.ID) + "?outcome=" + string(all[i].Name)
	}
	return all
}

type operationData struct {
	Op       operate.Operation
	Outcomes []outcome
	Sum      int64
	Members  []operate.Member
	Outcome  operate.Outcome
	Next     string
	First    bool
	Notes    []operate.Note
	Buttons  []changeButton
	GroupURL string
	Moves    bool // it changes by itself: the page looks again
}

// changeButton is a change of an operation.
type changeButton struct {
	Change, Title, What, URL, Why string
	Danger                        bool
	state                         operate.OperationState
}

var changes = []changeButton{
	{Change: operate.ChangePause, state: operate.OperationPaused, Title: "Pause", What: say.Of("op.pause")},
	{Change: operate.ChangeResume, state: operate.OperationRunning, Title: "Resume", What: say.Of("op.resume")},
	{Change: operate.ChangeRate, Title: "Change rate", What: say.Of("op.rate")},
	{Change: operate.ChangeStop, state: operate.OperationStopped, Title: "Stop", What: say.Of("op.stop"), Danger: true},
}

// changeWhy says why a change cannot be made; empty: it can.
func (c *console) changeWhy(r *http.Request, op *operate.Operation, change string) string {
	if why := operate.WhyNotRole(actorOf(r), operate.RoleOperator); why != "" || op.State.Takes(change) {
		return why
	}
	return fmt.Sprintf("The operation is %s.", op.State)
}

// operation is the page of one.
func (c *console) operation(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	after := int64(0)
	if text := q.Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "after", Detail: fmt.Sprintf("after is %s, want the ordinal of a member.", core.QuoteShort(text))}
		}
		after = n
	}
	var d operationData
	var err error
	if d.Op, err = c.Repairs.Show(ctx, r.PathValue("id")); err != nil {
		return page{}, err
	}
	d.Outcome, d.First = operate.Outcome(q.Get("outcome")), after == 0
	d.Outcomes, d.Sum = c.outcomes(&d.Op), d.Op.Tally.Total()
	d.Moves = d.Op.State == operate.OperationRunning || d.Op.Tally.Asked > 0
	if d.Outcome != "" && !slices.ContainsFunc(d.Outcomes, func(o outcome) bool { return o.Name == d.Outcome }) {
		return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "outcome", Detail: fmt.Sprintf("outcome is %s, want waiting, asked, done, failed_again or skipped.", core.QuoteShort(string(d.Outcome)))}
	}
	if d.Members, err = c.Operations.Members(ctx, d.Op.ID, d.Outcome, after, rowsOfList+1); err != nil {
		return page{}, err
	}
	if len(d.Members) > rowsOfList {
		d.Members = d.Members[:rowsOfList]
		d.Next = nextPage(r, strconv.FormatInt(d.Members[rowsOfList-1].Ordinal, 10))
	}
	if d.Notes, err = c.Notes.Notes(ctx, "operation/"+d.Op.ID, notesShown); err != nil {
		return page{}, err
	}
	if d.Op.Group != "" {
		d.GroupURL = c.url("failures", d.Op.Group)
	}
	for _, b := range changes {
		b.URL, b.Why = c.url("operations", d.Op.ID, "change", b.Change), c.changeWhy(r, &d.Op, b.Change)
		d.Buttons = append(d.Buttons, b)
	}
	return page{Title: fmt.Sprintf("%s of %s", d.Op.Action, d.Op.Selection), Data: d}, nil
}

// newForm chooses what an operation asks, and of which tasks.
type newForm struct {
	Info   actionInfo
	Words  string // the tasks
	Group  string
	Filter string
	IDs    []string
	Back   string
	Reason string
	Patch  string
	Input  string
	Result string
	Until  string
	As     string
	Bad    string
	Field  string
	Many   bool
	// Example is the input of one of the tasks, for who writes a patch; empty: it is not known, or not of this action.
	Example string
}

// newOperation shows the dialog that leads to a preview.
func (c *console) newOperation(w http.ResponseWriter, r *http.Request) error {
	if bad := known(r, "group", "action", "scope", "filter", "id"); bad != nil {
		return bad
	}
	f, _, bad := c.newFormOf(r, r.URL.Query())
	if bad != nil {
		return bad
	}
	if f.Info.Action == operate.ActionEdit && f.Group != "" {
		ctx, cancel := reading(r)
		defer cancel()
		if g, err := c.Reader.Group(ctx, f.Group); err == nil {
			if v, err := c.Reader.Get(ctx, c.PartitionOf(g.Task), g.Task); err == nil {
				f.Example = core.CutText(indented(v.Input), exampleMax)
			}
		}
	}
	return c.show(w, r, http.StatusOK, "opnew", page{Title: f.Info.Title + " many", Section: "operations", Data: f})
}

// newFormOf reads which tasks and which action are meant.
func (c *console) newFormOf(r *http.Request, q url.Values) (newForm, operate.Selection, *operate.Refusal) {
	refuse := func(field, format string, args ...any) (newForm, operate.Selection, *operate.Refusal) {
		return newForm{}, operate.Selection{}, &operate.Refusal{Code: http.StatusBadRequest, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	info, ok := infoOf(operate.Action(q.Get("action")))
	if !ok || !slices.Contains(bulkActions, info.Action) {
		return refuse("action", "action is %s, want one of %v.", core.QuoteShort(q.Get("action")), bulkActions)
	}
	f := newForm{Info: info, Group: q.Get("group"), Filter: q.Get("filter"), IDs: q["id"], As: string(core.StateProcessed), Many: true}
	var sel operate.Selection
	switch {
	case f.Group != "":
		ctx, cancel := reading(r)
		defer cancel()
		g, err := c.Reader.Group(ctx, f.Group)
		if err != nil {
			return refuse("group", "There is no failure group %s now: its tasks may have been repaired.", core.QuoteShort(f.Group))
		}
		if !slices.Contains(bulkIn(g.State), info.Action) {
			return newForm{}, sel, noneTakes(g.State, info.Action)
		}
		sel.Group, f.Back = f.Group, c.url("failures", f.Group)
		f.Words = say.Of("op.group", "tasks", g.Tasks.Tasks(), "type", g.Type, "state", g.State, "step", operate.StepWord(g.Step), "error", core.ShortText(g.Example, 200))
	case q.Get("scope") == "matching":
		values, err := url.ParseQuery(f.Filter)
		if err != nil {
			return refuse("filter", "The filter cannot be read: %v.", err)
		}
		filter, bad := filterOf(values)
		if bad != nil {
			return newForm{}, sel, bad
		}
		if !slices.Contains(bulkIn(filter.State), info.Action) {
			return newForm{}, sel, noneTakes(filter.State, info.Action)
		}
		filter.Limit, filter.After = 0, ""
		f.IDs, f.Filter = nil, queryOf(values)
		sel.Filter, f.Words, f.Back = &filter, words(&filter), c.url("tasks")+"?"+f.Filter
	default:
		if len(f.IDs) == 0 {
			return refuse("id", "No task is selected: select some, or all that match the filter.")
		}
		if len(f.IDs) > operate.ListMax {
			return refuse("id", "%d tasks are selected, the limit is %d: select all that match a filter instead.", len(f.IDs), operate.ListMax)
		}
		f.Filter = ""
		for _, name := range f.IDs {
			taskType, id, _ := strings.Cut(name, "/")
			if core.CheckName("type", taskType) != nil || core.CheckTaskID(id) != nil {
				return refuse("id", "id is %s, want type/id.", core.QuoteShort(name))
			}
			sel.IDs = append(sel.IDs, operate.TaskRef{Type: taskType, ID: id})
		}
		f.Words, f.Back = (operate.Count{N: int64(len(f.IDs))}).Tasks()+" that you selected", c.url("tasks")
	}
	return f, sel, nil
}

// previewData is a frozen membership with what would happen to it.
type previewData struct {
	Preview  operate.Preview
	Info     actionInfo
	Sum      int64 // of the rehearsal
	Reason   string
	Rate     string
	Brake    string
	Confirm  bool // the number has to be typed
	Bad      string
	Field    string
	Back     string
	Selected string
	Shares   []outcome
	Changes  []changedInput
}

// changedInput is what a patch makes of the input of one task.
type changedInput struct {
	operate.InputChange
	Diff []diffRow // none: it stays as it is
}

// preview freezes the membership and rehearses the action.
func (c *console) preview(w http.ResponseWriter, r *http.Request) error {
	f, sel, bad := c.newFormOf(r, r.PostForm)
	if bad != nil {
		return bad
	}
	get := r.PostForm.Get
	f.Reason, f.Patch, f.Input, f.Result, f.Until = get("reason"), get("patch"), get("input"), get("result"), get("until")
	if as := get("as"); as != "" {
		f.As = as
	}
	// Many at once always need a reason.
	info := f.Info
	info.Reason = true
	request, bad := c.requestOf(get, info)
	if info.Action == operate.ActionEdit && strings.TrimSpace(get("patch")+get("input")) == "" {
		bad = &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "patch", Detail: say.Of("op.no-patch")}
	}
	if bad == nil {
		ctx, cancel := reading(r)
		defer cancel()
		p, err := c.Repairs.Preview(ctx, actorOf(r), sel, request)
		if err == nil {
			d := previewData{Preview: p, Info: f.Info, Reason: request.Reason, Rate: strconv.Itoa(rateDefault), Brake: strconv.Itoa(brakeDefault), Back: f.Back}
			d.fill()
			return c.show(w, r, http.StatusOK, "oppreview", page{Title: "Preview", Section: "operations", Data: d})
		}
		if !errors.As(err, &bad) {
			return err
		}
	}
	f.Bad, f.Field = bad.Detail, bad.Field
	return c.show(w, r, bad.Code, "opnew", page{Title: f.Info.Title + " many", Section: "operations", Data: f})
}

func (d *previewData) fill() {
	d.Confirm = d.Preview.Tasks > confirmAbove
	for _, change := range d.Preview.Changes {
		c := changedInput{InputChange: change}
		if rows := diffLines(indented(change.Before), indented(change.After)); differs(rows) {
			c.Diff = rows
		}
		d.Changes = append(d.Changes, c)
	}
	if h := d.Preview.Rehearsal; h != nil {
		d.Sum = h.Repairable + h.FailedAgain + h.Refused + h.Waiting
		for _, s := range []struct {
			look look
			n    int64
		}{{look{"check", "can be done", "good"}, h.Repairable}, {look{"clock", "would wait", "warn"}, h.Waiting}, {look{"cross", "would fail again", "bad"}, h.FailedAgain}, {look{"minus", "would be refused", "calm"}, h.Refused}} {
			d.Shares = append(d.Shares, outcome{Look: s.look, N: s.n, Percent: percent(s.n, d.Sum)})
		}
	}
}

// start starts a preview.
func (c *console) start(w http.ResponseWriter, r *http.Request) error {
	get := r.PostForm.Get
	ctx, cancel := reading(r)
	defer cancel()
	rate, bad := wholeNumber("rate", get("rate"), rateMax)
	var brake, confirm int64
	if bad == nil {
		brake, bad = wholeNumber("brake", get("brake"), 100)
	}
	tasks, err := strconv.ParseInt(get("tasks"), 10, 64)
	if bad == nil && (err != nil || tasks < 1) {
		bad = &operate.Refusal{Code: http.StatusBadRequest, Field: "tasks", Detail: say.Of("op.no-count")}
	}
	if bad == nil && tasks > confirmAbove {
		confirm, err = strconv.ParseInt(strings.NewReplacer(",", "", " ", "", ".", "").Replace(get("confirm")), 10, 64)
		if err != nil || confirm != tasks {
			bad = &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "confirm", Detail: say.Of("op.confirm", "n", tasks)}
		}
	}
	if bad == nil {
		var op operate.Operation
		op, err = c.Repairs.Start(ctx, actorOf(r), get("token"), int(rate), int(brake), strings.TrimSpace(get("reason")), confirm)
		if err == nil {
			return c.done(w, r, c.url("operations", op.ID), fmt.Sprintf("Started: %s of %s.", op.Action, (operate.Count{N: op.Tasks}).Tasks()))
		}
		if !errors.As(err, &bad) {
			return err
		}
	}
	// The preview stands; only what was typed is asked again.
	info, _ := infoOf(operate.Action(get("action")))
	d := previewData{Preview: operate.Preview{Token: get("token"), Selection: core.ShortText(get("selection"), 400), Action: info.Action, Tasks: tasks},
		Info: info, Reason: get("reason"), Rate: get("rate"), Brake: get("brake"), Bad: bad.Detail, Field: bad.Field, Back: c.url("operations")}
	d.fill()
	return c.show(w, r, bad.Code, "oppreview", page{Title: "Preview", Section: "operations", Data: d})
}

func wholeNumber(field, text string, most int64) (int64, *operate.Refusal) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf("%s is %s, want 1 to %d.", field, core.QuoteShort(text), most)}
	}
	return n, nil
}

// changeOperation pauses, resumes or stops an operation, or sets its rate.
func (c *console) changeOperation(r *http.Request) (*dialog, error) {
	i := slices.IndexFunc(changes, func(b changeButton) bool { return b.Change == r.PathValue("change") })
	if i < 0 {
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("op.no-change", "change", core.QuoteShort(r.PathValue("change")))}
	}
	ctx, cancel := reading(r)
	defer cancel()
	op, err := c.Operations.Operation(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	b := changes[i]
	if why := c.changeWhy(r, &op, b.Change); why != "" {
		return nil, impossible(why)
	}
	d := &dialog{Title: b.Title, Go: b.Title, URL: c.url("operations", op.ID, "change", b.Change), Back: c.url("operations", op.ID), ReasonIs: b.Danger, Danger: b.Danger,
		What: fmt.Sprintf("%s %s: %s of %s.", b.What, say.Of("count.tasks", "n", op.Tasks), op.Action, op.Selection)}
	if b.Change == operate.ChangeRate {
		d.Fields = []field{{Name: "rate", Label: "Tasks a second", Value: strconv.Itoa(op.Rate), Required: true}}
	}
	d.do = func(ctx context.Context, typed form) error {
		change := operate.Change{State: b.state, Reason: typed("reason")}
		if b.Change == operate.ChangeRate {
			n, bad := wholeNumber("rate", typed("rate"), rateMax)
			if bad != nil {
				return bad
			}
			rate := int(n)
			change.Rate = &rate
		}
		op, err := c.Repairs.Change(ctx, actorOf(r), op.ID, change)
		d.told = say.Of("op.changed", "change", b.Title, "state", op.State, "n", op.Rate)
		return err
	}
	return d, nil
}
