package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

var states = []core.State{core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError}

// filterNames are the parameters of a list of tasks: its filter is its URL.
var filterNames = []string{"type", "state", "step", "plan_version", "fingerprint", "label", "parent", "waits", "created_from", "created_to", "deadline_to", "limit", "after"}

// waitsSignal is the word of the filter for tasks that wait for an answer.
const waitsSignal = "signal"

// filterOf reads the filter of a query.
func filterOf(q url.Values) (core.Filter, *operate.Refusal) {
	bad := func(field, format string, args ...any) *operate.Refusal {
		return &operate.Refusal{Code: http.StatusBadRequest, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	f := core.Filter{Type: q.Get("type"), State: core.State(q.Get("state")), Step: q.Get("step"), Fingerprint: q.Get("fingerprint"), Label: q.Get("label"), Parent: q.Get("parent"), After: q.Get("after"), Limit: rowsOfList}
	for field, name := range map[string]string{"type": f.Type, "step": f.Step} {
		if name == "" {
			continue
		}
		if err := core.CheckName(field, name); err != nil {
			return f, bad(field, "%v", err)
		}
	}
	if f.Parent != "" {
		if err := core.CheckTaskID(f.Parent); err != nil {
			return f, bad("parent", "%v", err)
		}
	}
	switch waits := q.Get("waits"); waits {
	case "":
	case waitsSignal:
		f.OpenSignal = true
	default:
		return f, bad("waits", "waits is %s, want %s", core.QuoteShort(waits), waitsSignal)
	}
	if f.State != "" && !slices.Contains(states, f.State) {
		return f, bad("state", "state is %s, want one of %v", core.QuoteShort(string(f.State)), states)
	}
	if key, value, ok := strings.Cut(f.Label, "="); f.Label != "" && (!ok || key == "" || len(key) > operate.LabelBytesMax || len(value) > operate.LabelBytesMax) {
		return f, bad("label", "label is %s, want key=value of at most %d bytes each", core.QuoteShort(f.Label), operate.LabelBytesMax)
	}
	if len(f.Fingerprint) > core.NameBytesMax {
		return f, bad("fingerprint", "%s", say.Of("refuse.fingerprint-size", "fingerprint", core.QuoteShort(f.Fingerprint), "bytes", len(f.Fingerprint), "limit", core.NameBytesMax))
	}
	if version := q.Get("plan_version"); version != "" {
		var err error
		if f.PlanVersion, err = core.ParsePlanVersion(version); err != nil {
			return f, bad("plan_version", "%v", err)
		}
	}
	for field, to := range map[string]*core.Instant{"created_from": &f.CreatedFrom, "created_to": &f.CreatedTo, "deadline_to": &f.DeadlineTo} {
		t, err := timeIn(q.Get(field))
		if err != nil {
			return f, bad(field, "%s is %s, want a time in UTC such as 2026-03-01T14:05 or 2026-03-01T14:05:00Z", field, core.QuoteShort(q.Get(field)))
		}
		if !t.IsZero() {
			*to = core.InstantOf(t)
		}
	}
	if limit := q.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > operate.ListMax {
			return f, bad("limit", "limit is %s, want 1 to %d", core.QuoteShort(limit), operate.ListMax)
		}
		f.Limit = n
	}
	return f, nil
}

// timeIn reads a time as a form or an address has it; empty: zero.
func timeIn(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("no time")
}

// words says a filter as a sentence says it.
func words(f *core.Filter) string {
	var b strings.Builder
	b.WriteString("all tasks")
	if f.Type != "" {
		b.WriteString(" of type " + f.Type)
	}
	if f.PlanVersion != 0 {
		fmt.Fprintf(&b, " of version %d", f.PlanVersion)
	}
	if f.State != "" {
		b.WriteString(" in state " + string(f.State))
	}
	if f.Step != "" {
		b.WriteString(" whose step " + f.Step + " failed")
	}
	if f.Fingerprint != "" {
		b.WriteString(" with the fingerprint " + f.Fingerprint)
	}
	if f.Label != "" {
		b.WriteString(" with the label " + f.Label)
	}
	if f.Parent != "" {
		b.WriteString(" " + say.Of("filter.parent", "task", f.Parent))
	}
	if f.OpenSignal {
		b.WriteString(" " + say.Of("filter.signal"))
	}
	for _, part := range []struct {
		words string
		at    core.Instant
	}{{" created from ", f.CreatedFrom}, {" created before ", f.CreatedTo}, {" with a deadline before ", f.DeadlineTo}} {
		if part.at != 0 {
			b.WriteString(part.words + part.at.Time().Format(exactLayout) + " UTC")
		}
	}
	return b.String()
}

// queryOf is a filter as a query, without the cursor and the limit.
func queryOf(q url.Values) string {
	kept := url.Values{}
	for _, name := range filterNames {
		if v := q.Get(name); v != "" && name != "after" && name != "limit" {
			kept.Set(name, v)
		}
	}
	return kept.Encode()
}

type tasksData struct {
	Filter  core.Filter
	Values  map[string]string // of the form, as they came
	Words   string
	Query   string // the filter alone
	Page    core.Page
	First   bool   // this is the first page
	Next    string // address of the next
	Bad     *operate.Refusal
	Types   []string
	States  []core.State
	Views   []savedView
	Actions []operate.Action
	MayBulk bool
	Shown   int
	Counts  map[core.State]operate.Count
}

// tasks is the list of tasks.
func (c *console) tasks(w http.ResponseWriter, r *http.Request) error {
	if bad := known(r, filterNames...); bad != nil {
		return bad
	}
	q := r.URL.Query()
	d := tasksData{Values: map[string]string{}, States: states, Query: queryOf(q), First: q.Get("after") == ""}
	for _, name := range filterNames {
		d.Values[name] = q.Get(name)
	}
	code := http.StatusOK
	ctx, cancel := reading(r)
	defer cancel()
	if d.Filter, d.Bad = filterOf(q); d.Bad != nil {
		code = d.Bad.Code
	} else {
		var err error
		if d.Page, err = c.Reader.List(ctx, d.Filter); err != nil {
			return err
		}
	}
	d.Actions = bulkIn(d.Filter.State)
	d.MayBulk = len(d.Actions) > 0
	d.Words, d.Next, d.Shown = words(&d.Filter), nextPage(r, d.Page.Next), len(d.Page.Tasks)
	if s, err := c.Live.Current(ctx); err == nil {
		d.Counts = map[core.State]operate.Count{}
		for _, sc := range s.Overview.Counts {
			d.Counts[sc.State] = sc.Tasks
		}
	}
	var err error
	if d.Types, err = c.typeNames(ctx); err == nil {
		d.Views, err = c.views(ctx)
	}
	if err != nil {
		return err
	}
	return c.show(w, r, code, "tasks", page{Title: "Tasks", Section: "tasks", Data: d})
}

// typeNames are the task types that the plans name.
func (c *console) typeNames(ctx context.Context) ([]string, error) {
	plans, _, err := c.readPlans(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range plans {
		names = append(names, plans[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// find goes to a task by its id, or by type/id.
func (c *console) find(w http.ResponseWriter, r *http.Request) error {
	if bad := known(r, "id"); bad != nil {
		return bad
	}
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	if i := strings.LastIndexByte(id, '/'); i >= 0 {
		id = id[i+1:]
	}
	if err := core.CheckTaskID(id); err != nil {
		return &operate.Refusal{Code: http.StatusBadRequest, Field: "id", Detail: err.Error()}
	}
	ctx, cancel := reading(r)
	defer cancel()
	view, err := c.Reader.Get(ctx, c.PartitionOf(id), id)
	if errors.Is(err, core.ErrNotFound) {
		return &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("task.none", "task", core.QuoteShort(id))}
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, c.taskURL(view.Type, view.ID), http.StatusSeeOther)
	return nil
}

// savedView is a filter that someone named.
type savedView struct {
	ID    string    `json:"-"`
	Name  string    `json:"name"`
	Query string    `json:"query"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}

const (
	viewPrefix   = "view/"
	viewsMax     = 100
	viewNameMax  = 64
	viewQueryMax = 2000
)

func (c *console) views(ctx context.Context) ([]savedView, error) {
	documents, err := c.Settings.Settings(ctx, viewPrefix)
	if err != nil {
		return nil, fmt.Errorf("saved views: %w", err)
	}
	var all []savedView
	for name, document := range documents {
		v := savedView{ID: strings.TrimPrefix(name, viewPrefix)}
		if err := json.Unmarshal(document, &v); err != nil {
			c.Log.Warn("console: a saved view cannot be read", "name", name, "error", err)
			continue
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b savedView) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// saveView keeps the filter of the list under a name.
func (c *console) saveView(w http.ResponseWriter, r *http.Request) error {
	name, query := strings.TrimSpace(r.PostForm.Get("name")), r.PostForm.Get("query")
	values, err := url.ParseQuery(query)
	refuse := func(field, format string, args ...any) error {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case name == "" || len(name) > viewNameMax:
		return refuse("name", "The name of the view has %d bytes, want 1 to %d.", len(name), viewNameMax)
	case err != nil || len(query) > viewQueryMax:
		return refuse("query", "The filter has %d bytes, or cannot be read; the limit is %d.", len(query), viewQueryMax)
	}
	if _, bad := filterOf(values); bad != nil {
		return bad
	}
	ctx, cancel := reading(r)
	defer cancel()
	views, err := c.views(ctx)
	if err == nil && len(views) >= viewsMax {
		return refuse("name", "There are %d saved views, which is the limit: delete one first.", viewsMax)
	}
	if err != nil {
		return err
	}
	v := savedView{Name: name, Query: queryOf(values), By: actorOf(r).Name, At: c.Now().UTC()}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:8])
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = c.Desk.Change(ctx, &operate.Act{By: actorOf(r), Action: "view.save", Target: "view/" + id, After: v}, func(ctx context.Context) error {
		return c.Settings.PutSetting(ctx, viewPrefix+id, document)
	})
	if err != nil {
		return err
	}
	return c.done(w, r, c.url("tasks")+"?"+v.Query, "Saved the view "+name+".")
}

// dropView forgets a saved view.
func (c *console) dropView(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := reading(r)
	defer cancel()
	id := r.PathValue("id")
	before, err := c.Settings.Setting(ctx, viewPrefix+id)
	if err == nil {
		err = c.Desk.Change(ctx, &operate.Act{By: actorOf(r), Action: "view.delete", Target: "view/" + id, Before: json.RawMessage(before)}, func(ctx context.Context) error {
			return c.Settings.DeleteSetting(ctx, viewPrefix+id)
		})
	}
	if err != nil {
		return err
	}
	return c.done(w, r, c.url("settings"), "Deleted the view.")
}
