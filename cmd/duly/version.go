package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/versions"
	"duly.dev/duly/internal/wire"
)

// deprecateColumns are what a change of a version's mark says.
var deprecateColumns = []string{"name", "version", "deprecated", "newest"}

type planDeprecateCmd struct {
	Name    string `arg:"" help:"Name of the plan."`
	Version int64  `arg:"" help:"The version."`
	Undo    bool   `help:"Let new submissions take it again."`
	Called  bool   `name:"even-if-called" help:"Also where it is the last version, and steps of other plans, whose children are of it, fail then."`
	reasoned
}

// Run marks a version, or takes the mark away.
func (c *planDeprecateCmd) Run(ctx context.Context, std streams) error {
	a, data, err := answered[struct{ Newest int64 }](c.change(ctx, std, pathOf("plans", c.Name, strconv.FormatInt(c.Version, 10), "deprecate"), show.Object{"undo": c.Undo, operate.EvenIfCalled: c.Called}))
	if err != nil {
		return err
	}
	said := fmt.Sprintf("plan %s version %d is deprecated", c.Name, c.Version)
	if c.Undo {
		said = fmt.Sprintf("plan %s version %d is deprecated no more", c.Name, c.Version)
	}
	if a.Newest == 0 {
		err = c.said(std, data, deprecateColumns, "%s; every version is, so submissions are refused, and steps fail whose children it is for, until another is applied", said)
	} else {
		err = c.said(std, data, deprecateColumns, "%s; new submissions take version %d", said, a.Newest)
	}
	if err != nil || c.Undo {
		return err
	}
	if err := c.named(ctx, std); err != nil { // what is asked for is done
		fmt.Fprintf(std.err, "warning: schedules may name this version: %v\n", err)
	}
	return nil
}

// named warns of schedules that name the version: what they submit is refused from now on.
func (c *planDeprecateCmd) named(ctx context.Context, std streams) error {
	for after, more := "", true; more; {
		data, err := c.read(ctx, pathOf("schedules"), queryOf(map[string]string{"after": after, "limit": strconv.Itoa(operate.ListMax)}))
		if err != nil {
			return err
		}
		var page struct {
			Schedules []struct {
				Name    string `json:"name"`
				Type    string `json:"type"`
				Version int64  `json:"plan_version"`
			} `json:"schedules"`
			Next string `json:"next"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("answer of the API: %w", err)
		}
		for _, s := range page.Schedules {
			if s.Type == c.Name && s.Version == c.Version {
				fmt.Fprintf(std.err, "warning: schedule %s names this version: its runs are refused from now on\n", show.Clean(s.Name))
			}
		}
		after, more = page.Next, page.Next != ""
	}
	return nil
}

// planRef is a plan as an argument names it: a file, or NAME@VERSION of a stored one; without the version, the newest.
type planRef struct {
	file    string
	name    string
	version int64
}

// refOf reads such an argument. What is a file here is one.
func refOf(arg string) (planRef, error) {
	if _, err := os.Stat(arg); err == nil {
		return planRef{file: arg}, nil
	}
	name, text, said := strings.Cut(arg, "@")
	r := planRef{name: name}
	if said {
		var err error
		if r.version, err = core.ParsePlanVersion(text); err != nil {
			return r, misuse("plan: %s: %v", arg, err)
		}
	}
	if err := core.CheckName("plan", name); err != nil {
		return r, misuse("plan: %s is no file, and no NAME@VERSION: %v", core.QuoteShort(arg), err)
	}
	return r, nil
}

// planOf reads the plan that an argument names, with its defaults.
func (s *server) planOf(ctx context.Context, r planRef) (*core.Plan, error) {
	var data json.RawMessage
	var err error
	if r.file != "" {
		data, err = readPlan(r.file, 0)
	} else {
		data, err = s.plan(ctx, r.name, r.version)
	}
	if err != nil {
		return nil, err
	}
	p, err := decodeStored(data)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", r.name+r.file, err)
	}
	return p, nil
}

// decodeStored reads a plan as the API shows it: its form, and what is known of the version.
func decodeStored(data json.RawMessage) (*core.Plan, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for _, field := range []string{"deprecated_at", "$schema"} {
		delete(fields, field)
	}
	plain, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	p, err := wire.DecodePlan(plain)
	if err != nil {
		return nil, err
	}
	p = p.WithDefaults()
	return &p, nil
}

type planDiffCmd struct {
	A       string `arg:"" help:"A file with a plan, or NAME@VERSION."`
	B       string `arg:"" optional:"" help:"The plan that A is compared with (default: the newest stored version). Of a file and a stored version the file is the newer one, otherwise B is."`
	Unified bool   `help:"Print both as lines that differ."`
	server
}

// Run compares two plans as they are understood: what a file leaves out has its default.
func (c *planDiffCmd) Run(ctx context.Context, std streams) error {
	from, to, err := c.both(ctx)
	if err != nil {
		return err
	}
	d, err := versions.Compare(from, to)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(d.Changes, func(c versions.Change) bool { return c.Field == "input_schema" }) {
		page, err := c.firstPage(ctx, to)
		if err != nil { // who may read plans need not be let check them
			fmt.Fprintf(std.err, "warning: whether plans with children of this one break is not known: %v\n", err)
		}
		d.Callers = page.Callers
	}
	switch {
	case c.Output != show.Text:
		data, err := json.Marshal(&d)
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if err := c.list(std, data, "changes", "", []string{"what", "step", "field", "was", "is", "words", "means"}); err != nil {
			return err
		}
	case c.Unified:
		if err := unified(std.out, from, to); err != nil {
			return err
		}
	case d.Same:
		fmt.Fprintln(std.out, "the same")
	default:
		fmt.Fprintf(std.out, "plan %s: version %d, compared with version %d\n", d.Name, d.To, d.From)
		for _, change := range d.Changes {
			fmt.Fprintf(std.out, "  %s\n      → %s\n", show.Clean(change.Words), change.Means)
		}
		fmt.Fprint(std.out, "Tasks in flight keep their version until they are moved (→: what it means then).\n")
	}
	warnCallers(std, d.Callers)
	if !d.Same {
		return errUnclean
	}
	return nil
}

// firstPage is the first page of a check of a version that need not be stored.
func (s *server) firstPage(ctx context.Context, p *core.Plan) (page versions.CheckPage, err error) {
	form, err := wire.EncodePlan(p)
	if err != nil {
		return page, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	page, _, err = answered[versions.CheckPage](s.send(ctx, http.MethodPost, pathOf("plans", p.Name, "check"), show.Object{"plan": json.RawMessage(form)}, nil))
	return page, err
}

// warnCallers warns of steps whose next children a version breaks, and reports whether there are any.
func warnCallers(std streams, all []versions.Caller) (broken bool) {
	for i := range all {
		if says := all[i].Warning(); says != "" {
			fmt.Fprintln(std.err, "warning:", show.Clean(says))
		}
		broken = broken || all[i].Unfit > 0
	}
	return broken
}

// both are the plans that are compared, the older one first.
func (c *planDiffCmd) both(ctx context.Context) (from, to *core.Plan, err error) {
	a, err := refOf(c.A)
	if err != nil {
		return nil, nil, err
	}
	if from, err = c.planOf(ctx, a); err != nil {
		return nil, nil, err
	}
	b := planRef{name: from.Name}
	if c.B != "" {
		if b, err = refOf(c.B); err != nil {
			return nil, nil, err
		}
	}
	if to, err = c.planOf(ctx, b); err != nil {
		return nil, nil, err
	}
	if a.file != "" && b.file == "" {
		from, to = to, from
	}
	if from.Name != to.Name {
		return nil, nil, misuse("plan: %s and %s are two plans, want two versions of one", from.Name, to.Name)
	}
	return from, to, nil
}

// unified prints two plans as lines that differ.
func unified(w io.Writer, from, to *core.Plan) error {
	texts := [2]string{}
	for i, p := range []*core.Plan{from, to} {
		form, err := wire.EncodePlan(p)
		if err != nil {
			return fmt.Errorf("plan %s: %w", p.Name, err)
		}
		texts[i] = indented(form)
	}
	_, err := io.WriteString(w, udiff.Unified(fmt.Sprintf("version %d", from.Version), fmt.Sprintf("version %d", to.Version), texts[0], texts[1]))
	return err
}

type planCheckCmd struct {
	Plan string `arg:"" help:"A file with a plan, or NAME@VERSION."`
	Last int    `default:"0" help:"Ended tasks to play as well, the newest first: up to 1,000,000."`
	Show int    `default:"100" help:"How many of the tasks that come out differently, or of which that cannot be said, are listed. Of those that differ alike the text lists one, and says how many more there are."`
	server
}

// Run plays the tasks of a type against a version, page by page.
func (c *planCheckCmd) Run(ctx context.Context, std streams) error {
	ref, err := refOf(c.Plan)
	if err != nil {
		return err
	}
	kinds, alike := map[versions.Finding]string{}, map[string]int{}
	sum, err := c.check(ctx, ref, c.Last, false, func(all []versions.Finding, f versions.Finding) []versions.Finding {
		kind := f
		kind.ID, kind.State, kind.Rows = "", "", 0
		if first := kinds[kind]; first != "" && c.Output == show.Text {
			alike[first]++
			return all
		}
		if len(all) < c.Show {
			kinds[kind] = f.ID
			all = append(all, f)
		}
		return all
	})
	if err != nil {
		return err
	}
	if c.Output != show.Text {
		data, err := json.Marshal(&sum)
		if err == nil {
			err = c.list(std, data, "findings", "", []string{"id", "state", "version", "fate", "seq", "event", "was", "is", "why", "stays"})
		}
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
	} else {
		sum.print(std.out, alike)
	}
	if warnCallers(std, sum.Callers) || sum.Different > 0 {
		return errUnclean
	}
	return nil
}

// checkSum is all pages of a check.
type checkSum struct{ versions.CheckPage }

// print prints the summary, and then the findings; alike are how many more there are like one, by its id.
func (s *checkSum) print(w io.Writer, alike map[string]int) {
	left := s.Different + s.Unknown
	for i := range s.Callers {
		if c := &s.Callers[i]; c.Warning() == "" {
			fmt.Fprintln(w, show.Clean(say.Of("version.called", "plan", c.Plan, "version", c.Version, "step", c.Step, "n", c.Tasks)))
		}
	}
	fmt.Fprintf(w, "%s played, %d of them in flight: same %d, different %d, cannot be said %d\n", say.Count(int64(s.InFlight+s.Ended), "task"), s.InFlight, s.Same, s.Different, s.Unknown)
	fmt.Fprintf(w, "%d of those in flight may be moved to the version\n", s.Movable)
	for _, f := range s.Findings {
		fmt.Fprintf(w, "%s  %s, version %d: %s", show.Clean(f.ID), f.State, f.Version, f.Fate)
		if f.Seq > 0 {
			fmt.Fprintf(w, " at row %d: %s", f.Seq, show.Clean(f.Event))
		}
		fmt.Fprintln(w)
		for _, line := range [...]struct{ what, text string }{{"was", f.Was}, {"is", f.Is}, {"why", f.Why}, {"stays", f.Stays}} {
			if line.text != "" {
				fmt.Fprintf(w, "    %s: %s\n", line.what, show.Clean(line.text))
			}
		}
		if n := alike[f.ID]; n > 0 {
			fmt.Fprintf(w, "    and %s alike\n", say.Count(int64(n), "more task"))
		}
		left -= 1 + alike[f.ID]
	}
	if left > 0 {
		fmt.Fprintf(w, "and %d more\n", left)
	}
}

// check asks for all pages of a check; keep says which findings are kept.
func (s *server) check(ctx context.Context, ref planRef, last int, all bool, keep func([]versions.Finding, versions.Finding) []versions.Finding) (sum checkSum, err error) {
	body := show.Object{"last": last, "all": all}
	p, err := s.planOf(ctx, ref)
	if err != nil {
		return sum, err
	}
	name := p.Name
	if ref.file == "" {
		body["version"] = p.Version
	} else {
		form, err := wire.EncodePlan(p)
		if err != nil {
			return sum, fmt.Errorf("plan %s: %w", p.Name, err)
		}
		body["plan"] = json.RawMessage(form)
	}
	sum.Findings = []versions.Finding{}
	for {
		page, _, err := answered[versions.CheckPage](s.send(ctx, http.MethodPost, pathOf("plans", name, "check"), body, nil))
		if err != nil {
			return sum, err
		}
		sum.Callers = append(sum.Callers, page.Callers...)
		sum.InFlight, sum.Ended, sum.Movable = sum.InFlight+page.InFlight, sum.Ended+page.Ended, sum.Movable+page.Movable
		sum.Same, sum.Different, sum.Unknown = sum.Same+page.Same, sum.Different+page.Different, sum.Unknown+page.Unknown
		for _, f := range page.Findings {
			sum.Findings = keep(sum.Findings, f)
		}
		if page.Next == "" {
			return sum, nil
		}
		body["after"] = page.Next
	}
}

// migrateBody is a request for a preview of a migration.
type migrateBody struct {
	Selection migrateSelection `json:"selection"`
	Action    operate.Action   `json:"action"`
	Request   operate.Request  `json:"request"`
}

// migrateSelection is the tasks that are to be moved: those named, or all that match.
type migrateSelection struct {
	IDs    []operate.TaskRef `json:"ids,omitempty"`
	Filter *migrateFilter    `json:"filter,omitempty"`
}

type migrateFilter struct {
	Type    string `json:"type"`
	Version int64  `json:"plan_version,omitempty"`
	State   string `json:"state,omitempty"`
	Label   string `json:"label,omitempty"`
}

type planMigrateCmd struct {
	Name   string   `arg:"" help:"Name of the plan."`
	To     int64    `required:"" help:"Stored version to go on by."`
	Tasks  []string `help:"Ids of the tasks, up to 1000 (default: all that are pending, processing or in error)."`
	From   int64    `help:"Only tasks of this version."`
	State  string   `help:"Only tasks in this state: pending, processing or error."`
	Label  string   `help:"Only tasks with this label, KEY=VALUE."`
	DryRun bool     `name:"dry-run" help:"Say how many may be moved, and why the others stay, and move none."`
	Reason string   `help:"Why; it is kept in the audit trail and in the journals."`
	Yes    int64    `help:"The number of tasks, if they are more than 100, without a terminal to type it at. Another number is refused."`
	Rate   int      `help:"Tasks a second at most; 0: no limit but the waves."`
	Detach bool     `help:"Print the operation and do not wait for it."`
	server
}

// selection is what the command names.
func (c *planMigrateCmd) selection() (sel migrateSelection, err error) {
	switch {
	case c.To < 1:
		return sel, misuse("to: %d, want a version, 1 or more", c.To)
	case c.From < 0 || c.From == c.To:
		return sel, misuse("from: %d, want another version than %d, or none", c.From, c.To)
	case c.State != "" && c.State != string(core.StatePending) && c.State != string(core.StateProcessing) && c.State != string(core.StateError):
		return sel, misuse("state: %s, want pending, processing or error", core.QuoteShort(c.State))
	case len(c.Tasks) > operate.ListMax:
		return sel, misuse("tasks: %d ids, want at most %d", len(c.Tasks), operate.ListMax)
	case len(c.Tasks) > 0 && (c.From != 0 || c.State != "" || c.Label != ""):
		return sel, misuse("tasks: from, state and label choose tasks as well, want one of both")
	case len(c.Tasks) == 0:
		sel.Filter = &migrateFilter{Type: c.Name, Version: c.From, State: c.State, Label: c.Label}
	}
	for _, id := range c.Tasks {
		sel.IDs = append(sel.IDs, operate.TaskRef{Type: c.Name, ID: id})
	}
	return sel, nil
}

// Run previews, and moves tasks whose begun steps are the same in both versions, as one operation.
func (c *planMigrateCmd) Run(ctx context.Context, std streams) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	reason := c.Reason
	if !c.DryRun {
		if reason, err = reasonOf(std, c.Reason, true); err != nil {
			return err
		}
	}
	body := migrateBody{Selection: sel, Action: operate.ActionMigrate, Request: operate.Request{Action: operate.ActionMigrate, Reason: reason, Version: c.To}}
	p, data, err := answered[operate.Preview](c.send(ctx, http.MethodPost, pathPreview, body, nil))
	if err != nil {
		return err
	}
	missing := int64(len(slices.Compact(slices.Sorted(slices.Values(c.Tasks))))) - p.Tasks
	if missing > 0 {
		fmt.Fprintf(std.err, "duly: %d of the tasks that are named are not there\n", missing)
	}
	switch {
	case c.DryRun:
		err = c.printed(std, data, &p)
		if err == nil && (missing > 0 || p.Rehearsal != nil && p.Rehearsal.Refused > 0) {
			err = errUnclean
		}
		return err
	case p.Tasks == 0 && missing <= 0:
		return c.said(std, data, previewFields, "no task is to be moved to version %d", c.To)
	case p.Tasks == 0:
		return errUnclean
	}
	if err = c.start(ctx, std, data, &p, reason); err == nil && missing > 0 {
		err = errUnclean
	}
	return err
}

// printed prints a preview as the answer.
func (c *planMigrateCmd) printed(std streams, preview []byte, p *operate.Preview) error {
	if c.Output != show.Text {
		return c.object(std, preview, previewFields)
	}
	return printPreview(show.On(std.out), p, preview)
}

// start shows the preview, and runs it.
func (c *planMigrateCmd) start(ctx context.Context, std streams, preview []byte, p *operate.Preview, reason string) error {
	if err := printPreview(show.On(std.err), p, preview); err != nil {
		return err
	}
	start := startBody{Token: p.Token, Rate: c.Rate, Reason: reason, Confirm: p.Tasks}
	if p.Tasks > operate.ConfirmMax || c.Yes != 0 {
		var err error
		if start.Confirm, err = confirmed(std, c.Yes, p.Tasks); err != nil {
			return err
		}
	}
	return c.begin(ctx, std, start, c.Detach)
}
