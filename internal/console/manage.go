package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// agents shows every agent, what bounds it, and what waits for it.
func (c *console) agents(ctx context.Context, r *http.Request) (page, error) {
	all, err := c.Agents.Agents(ctx)
	if err != nil {
		return page{}, err
	}
	limits, err := c.limitsNow(ctx)
	if err != nil {
		return page{}, err
	}
	may := func(served bool, what string) string {
		if !served {
			return say.Of("console.absent", "what", what)
		}
		return operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	}
	return page{Title: "Agents", Data: struct {
		Agents                    []agentRow
		Why, WhyBreaker, WhyLimit string
	}{agentRows(all, limits), may(c.Pauses != nil, "pauses"), may(c.Breakers != nil, "breakers"), may(c.Limits != nil, "limits")}}, nil
}

func (c *console) breakerDialog(r *http.Request) (confirmData, error) {
	if c.Breakers == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "breakers")}
	}
	agent := r.PathValue("agent")
	return confirmData{Title: "Breaker of " + core.ShortText(agent, core.NameBytesMax), Go: "Change", URL: c.url("agents", agent, "breaker"), Back: c.url("agents"), ReasonIs: true,
		What: say.Of("breaker.what"),
		Fields: []field{
			{Name: "state", Label: "Breaker", Value: string(operate.BreakerOpened), Options: []string{string(operate.BreakerOpened), string(operate.BreakerClosed), string(operate.BreakerAuto)}},
			{Name: "for", Label: "For", Hint: say.Of("breaker.until")},
		}}, nil
}

func (c *console) breakerForm(w http.ResponseWriter, r *http.Request) {
	d, err := c.breakerDialog(r)
	if err == nil && c.Agents != nil {
		err = c.offerWishes(r, &d.Fields[0])
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "agents", d)
}

// offerWishes leaves of the options those that the breaker of the agent takes now.
func (c *console) offerWishes(r *http.Request, f *field) error {
	ctx, cancel := reading(r)
	defer cancel()
	all, err := c.Agents.Agents(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a operate.Agent) bool { return a.Name == r.PathValue("agent") })
	if i < 0 {
		return &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("refuse.agent-unknown", "agent", core.QuoteShort(r.PathValue("agent")))}
	}
	f.Options = slices.DeleteFunc(f.Options, func(wish string) bool { return !all[i].Breaker.Takes(operate.BreakerWish(wish)) })
	return nil
}

// forceBreaker opens or closes the breaker of an agent, or lets it go.
func (c *console) forceBreaker(w http.ResponseWriter, r *http.Request) {
	d, err := c.breakerDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	f := operate.ForceBreaker{Agent: r.PathValue("agent"), State: operate.BreakerWish(r.PostForm.Get("state")), Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
	c.carry(w, r, "agents", d, nil, say.Of("breaker.changed"), func(ctx context.Context) error {
		if strings.TrimSpace(r.PostForm.Get("for")) != "" {
			lasts, bad := durationOf(r.PostForm, "for", 0)
			if bad != nil {
				bad.Code = http.StatusUnprocessableEntity
				return bad
			}
			f.Until = c.Now().Add(lasts)
		}
		_, err := c.Breakers.Force(ctx, actorOf(r), f)
		return err
	})
}

// planRow is one plan in the list: the version that new tasks take, and how many there are.
type planRow struct {
	Plan       core.Plan
	Versions   int
	Deprecated bool // all are, and Plan is the newest
}

// plans lists the plans by name.
func (c *console) plans(ctx context.Context, _ *http.Request) (page, error) {
	all, unread, err := c.readPlans(ctx)
	if err != nil {
		return page{}, err
	}
	marked, err := c.deprecated(ctx)
	if err != nil {
		return page{}, err
	}
	rows := map[string]*planRow{}
	for i := range all {
		row := rows[all[i].Name]
		if row == nil {
			row = &planRow{Deprecated: true}
			rows[all[i].Name] = row
		}
		row.Versions++
		if old := marked.Has(all[i].Name, all[i].Version); old == row.Deprecated && all[i].Version > row.Plan.Version || row.Deprecated && !old {
			row.Plan, row.Deprecated = all[i], old
		}
	}
	sorted := make([]*planRow, 0, len(rows))
	for _, row := range rows {
		sorted = append(sorted, row)
	}
	slices.SortFunc(sorted, func(a, b *planRow) int { return strings.Compare(a.Plan.Name, b.Plan.Name) })
	return page{Title: "Plans", Data: struct {
		Rows   []*planRow
		Unread core.UnreadablePlans
	}{sorted, unread}}, nil
}

type planData struct {
	Plan     *core.Plan
	Versions []int64   // newest first
	With     int64     // version it is compared with; 0: none
	Since    time.Time // when it was marked as deprecated; zero: it is not
	Why      string    // why the mark cannot be changed here; empty: it can
	WhyPause string    // why the plan cannot be paused here
	Graph    any
	Steps    []planStep
	Diff     []diffRow
	Same     bool
}

type planStep struct {
	core.Step
	AfterNames string
}

// plan shows one version of a plan, and what differs from another.
func (c *console) plan(ctx context.Context, r *http.Request) (page, error) {
	all, unread, err := c.readPlans(ctx)
	if err != nil {
		return page{}, err
	}
	versions := map[int64]*core.Plan{}
	var d planData
	for i := range all {
		if all[i].Name == r.PathValue("name") {
			versions[all[i].Version] = &all[i]
			d.Versions = append(d.Versions, all[i].Version)
		}
	}
	slices.Sort(d.Versions)
	slices.Reverse(d.Versions)
	if newer := unread.Newest(r.PathValue("name")); len(d.Versions) == 0 && newer > 0 {
		return page{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("plan.unread", "plan", r.PathValue("name"), "version", newer)}
	}
	if len(d.Versions) == 0 {
		return page{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("plan.unknown", "plan", core.QuoteShort(r.PathValue("name")))}
	}
	pick := func(field string, or int64) (int64, *operate.Refusal) {
		text := r.URL.Query().Get(field)
		if text == "" {
			return or, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || versions[n] == nil {
			return 0, &operate.Refusal{Code: http.StatusNotFound, Field: field, Detail: say.Of("plan.no-version", "field", field, "value", core.QuoteShort(text), "plan", r.PathValue("name"), "versions", d.Versions)}
		}
		return n, nil
	}
	version, bad := pick("version", d.Versions[0])
	if bad == nil {
		d.With, bad = pick("with", 0)
	}
	if bad != nil {
		return page{}, bad
	}
	d.Plan = versions[version]
	marked, err := c.deprecated(ctx)
	if err != nil {
		return page{}, err
	}
	if since := marked.Since(d.Plan.Name, version); since != 0 {
		d.Since = since.Time()
	}
	if d.Why = operate.WhyNotRole(actorOf(r), operate.RoleOperator); c.Versions == nil {
		d.Why = say.Of("console.absent", "what", "versions of plans")
	}
	if d.WhyPause = operate.WhyNotRole(actorOf(r), operate.RoleOperator); c.Pauses == nil {
		d.WhyPause = say.Of("console.absent", "what", "pauses")
	}
	for _, s := range d.Plan.Steps {
		var names []string
		for _, a := range s.After {
			names = append(names, d.Plan.Steps[a].Name)
		}
		d.Steps = append(d.Steps, planStep{s, strings.Join(names, ", ")})
	}
	if d.With != 0 {
		d.Diff = diffLines(planText(versions[d.With]), planText(d.Plan))
		d.Same = !differs(d.Diff)
	}
	d.Graph = planGraph(d.Plan).SVG(say.Of("graph.plan", "plan", d.Plan.Name, "version", d.Plan.Version, "n", len(d.Plan.Steps)))
	return page{Title: "Plan " + d.Plan.Name, Data: d}, nil
}

// planText is a plan as lines, so that two versions can be compared.
func planText(p *core.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "complete by %s\ngrace %s\ninput up to %d bytes\norder: %s\n", duration(p.CompleteBy), duration(p.Grace), p.InputMax, p.Order())
	for i := range p.Steps {
		s := &p.Steps[i]
		fmt.Fprintf(&b, "step %s\n  agent %s\n", s.Name, s.Agent)
		for _, a := range s.After {
			fmt.Fprintf(&b, "  after %s\n", p.Steps[a].Name)
		}
		fmt.Fprintf(&b, "  undoable %v\n  complete by %s, %d attempts, backoff %s to %s\n  when exhausted: %s\n", s.Undoable, duration(s.CompleteBy), s.AttemptsMax, duration(s.Backoff), duration(s.BackoffCap), s.OnExhausted)
		if s.OnExhausted == core.PolicyWait {
			fmt.Fprintf(&b, "  pause %s\n", duration(s.Pause))
		}
		if s.Undoable {
			fmt.Fprintf(&b, "  undo: complete by %s, patience %s", duration(s.UndoCompleteBy), duration(cmp.Or(s.UndoPatience, core.DefaultUndoPatience)))
			if s.UndoAttemptsMax > 0 {
				fmt.Fprintf(&b, ", %d attempts", s.UndoAttemptsMax)
			}
			b.WriteString("\n")
		}
		if s.KeyLasts > 0 {
			fmt.Fprintf(&b, "  its service remembers keys for %s\n", duration(s.KeyLasts))
		}
		fmt.Fprintf(&b, "  result up to %d bytes\n", s.ResultMax)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// confirmData is a dialog of a change with a reason, and little else.
type confirmData struct {
	Title, What, URL, Back, Go string
	Fields                     []field
	Reason                     string
	ReasonIs                   bool // a reason is required
	NoReason                   bool // none is asked for
	Danger                     bool
	Bad, Field                 string
	Secret                     string // told once
	Hidden                     map[string]string
}

// field is one line of such a dialog.
type field struct {
	Name, Label, Value, Hint string
	Options                  []string
	Required                 bool
	Rows                     int  // lines of a longer text; 0: one line
	Secret                   bool // it is not shown, not even to who typed it
}

func (c *console) confirm(w http.ResponseWriter, r *http.Request, code int, sectionID string, d confirmData) {
	c.show(w, r, code, "confirm", page{Title: d.Title, Section: sectionID, Data: d})
}

// carry asks for a change; what is refused is shown in the dialog again. Without an act the port that is asked writes it down.
func (c *console) carry(w http.ResponseWriter, r *http.Request, sectionID string, d confirmData, act *operate.Act, told string, do func(ctx context.Context) error) {
	ctx, cancel := reading(r)
	defer cancel()
	d.Reason = strings.TrimSpace(r.PostForm.Get("reason"))
	for i := range d.Fields {
		if !d.Fields[i].Secret {
			d.Fields[i].Value = r.PostForm.Get(d.Fields[i].Name)
		}
	}
	var bad *operate.Refusal
	switch {
	case d.ReasonIs && d.Reason == "":
		bad = &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "reason", Detail: say.Of("act.reason")}
	case core.CheckWords("", d.Reason) != nil:
		bad = &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "reason", Detail: core.CheckWords("The reason", d.Reason).Error() + "."}
	default:
		err := error(nil)
		if act == nil {
			err = do(ctx)
		} else {
			act.By, act.Reason = actorOf(r), d.Reason
			err = c.Desk.Change(ctx, act, do)
		}
		if err == nil {
			if told != "" {
				c.done(w, r, d.Back, told)
			}
			return
		}
		if !errors.As(err, &bad) {
			c.fail(w, r, err)
			return
		}
	}
	d.Bad, d.Field = bad.Detail, bad.Field
	c.confirm(w, r, bad.Code, sectionID, d)
}

// partitions shows who owns what.
func (c *console) partitions(ctx context.Context, r *http.Request) (page, error) {
	all, err := c.Partitions.Partitions(ctx)
	if err != nil {
		return page{}, err
	}
	why := operate.WhyNotRole(actorOf(r), operate.RoleAdmin)
	return page{Title: "Partitions", Data: struct {
		Partitions []operate.Partition
		Why        string
		Chained    bool // some partition has a hash chain
	}{all, why, slices.ContainsFunc(all, func(p operate.Partition) bool { return p.Chain.Height > 0 })}}, nil
}

// partitionChange reads which partition is to be moved, and how.
func (c *console) partitionChange(r *http.Request) (int, confirmData, error) {
	if c.Partitions == nil {
		return 0, confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "partitions")}
	}
	p, err := strconv.Atoi(r.PathValue("partition"))
	if err != nil || p < 0 {
		return 0, confirmData{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "partition", Detail: fmt.Sprintf("partition is %s, want a number of 0 or more.", core.QuoteShort(r.PathValue("partition")))}
	}
	d := confirmData{URL: c.url("partitions", p, r.PathValue("change")), Back: c.url("partitions"), ReasonIs: true}
	switch r.PathValue("change") {
	case "pin":
		d.Title, d.Go = fmt.Sprintf("Pin partition %d", p), "Pin"
		d.What = say.Of("partition.pin")
		d.Fields = []field{{Name: "node", Label: "Node", Hint: say.Of("partition.node"), Required: true}}
	case "unpin":
		d.Title, d.Go = fmt.Sprintf("Unpin partition %d", p), "Unpin"
		d.What = say.Of("partition.unpin")
	case "stepdown":
		d.Title, d.Go, d.Danger = say.Of("partition.stepdown-from", "partition", p), "Step down", true
		d.What = say.Of("partition.stepdown")
	default:
		return 0, d, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("partition.no-change", "change", core.QuoteShort(r.PathValue("change")))}
	}
	return p, d, nil
}

func (c *console) partitionForm(w http.ResponseWriter, r *http.Request) {
	_, d, err := c.partitionChange(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "partitions", d)
}

func (c *console) changePartition(w http.ResponseWriter, r *http.Request) {
	p, d, err := c.partitionChange(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	node, reason := strings.TrimSpace(r.PostForm.Get("node")), strings.TrimSpace(r.PostForm.Get("reason"))
	told := say.Of("partition.asked", "partition", p)
	c.carry(w, r, "partitions", d, nil, told, func(ctx context.Context) error {
		switch r.PathValue("change") {
		case "pin":
			return c.Partitions.Pin(ctx, actorOf(r), p, node, reason)
		case "unpin":
			return c.Partitions.Unpin(ctx, actorOf(r), p, reason)
		}
		return c.Partitions.StepDown(ctx, actorOf(r), p, reason)
	})
}

// pauses shows what is held back, and what waits behind it.
func (c *console) pauses(ctx context.Context, r *http.Request) (page, error) {
	all, err := c.Pauses.Held(ctx)
	if err != nil {
		return page{}, err
	}
	why := operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	return page{Title: "Pauses", Data: struct {
		Held []Held
		Why  string
	}{all, why}}, nil
}

func (c *console) pauseDialog(r *http.Request) (confirmData, error) {
	if c.Pauses == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "pauses")}
	}
	q := r.URL.Query()
	return confirmData{Title: "Pause", Go: "Pause", URL: c.url("pauses", "new"), Back: c.url("pauses"), ReasonIs: true,
		What: say.Of("pause.what"),
		Fields: []field{
			{Name: "type", Label: "Task type", Value: q.Get("type"), Hint: "Empty: every type"},
			{Name: "step", Label: "Step", Value: q.Get("step"), Hint: say.Of("pause.step")},
			{Name: "agent", Label: "Agent", Value: q.Get("agent"), Hint: "Empty: every agent"},
			{Name: "label", Label: "Label", Value: q.Get("label"), Hint: say.Of("pause.label")},
			{Name: "for", Label: "For", Value: q.Get("for"), Hint: say.Of("pause.until")},
		}}, nil
}

func (c *console) pauseForm(w http.ResponseWriter, r *http.Request) {
	if bad := known(r, "type", "step", "agent", "label", "for"); bad != nil {
		c.fail(w, r, bad)
		return
	}
	d, err := c.pauseDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "pauses", d)
}

func (c *console) pause(w http.ResponseWriter, r *http.Request) {
	d, err := c.pauseDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	p := operate.Pause{Type: get("type"), Step: get("step"), Agent: get("agent"), Label: get("label"), At: c.Now(), By: actorOf(r).Name, Reason: get("reason")}
	c.carry(w, r, "pauses", d, nil, "Paused.", func(ctx context.Context) error {
		refuse := func(field, format string, args ...any) error {
			return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf(format, args...)}
		}
		for field, name := range map[string]string{"type": p.Type, "step": p.Step} {
			if name == "" {
				continue
			}
			if err := core.CheckName(field, name); err != nil {
				return refuse(field, "%v", err)
			}
		}
		switch {
		case p.Type == "" && p.Agent == "" && p.Label == "":
			return refuse("type", "Name a type, an agent or a label: a pause of everything is not what this is for.")
		case p.Step != "" && p.Type == "":
			return refuse("step", "A step needs the type of its tasks.")
		}
		if p.Agent != "" {
			if err := core.CheckAgent(p.Agent); err != nil {
				return refuse("agent", "%v", err)
			}
		}
		if get("for") != "" {
			d, bad := durationOf(r.PostForm, "for", 0)
			if bad != nil {
				bad.Code = http.StatusUnprocessableEntity
				return bad
			}
			p.Until = c.Now().Add(d)
		}
		return c.Pauses.Set(ctx, actorOf(r), p)
	})
}

func (c *console) liftDialog(r *http.Request) (confirmData, error) {
	if c.Pauses == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "pauses")}
	}
	return confirmData{Title: "Lift the pause", Go: "Lift", URL: c.url("pauses", r.PathValue("id"), "lift"), Back: c.url("pauses"), ReasonIs: true, What: say.Of("pause.lift")}, nil
}

func (c *console) liftForm(w http.ResponseWriter, r *http.Request) {
	d, err := c.liftDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "pauses", d)
}

func (c *console) lift(w http.ResponseWriter, r *http.Request) {
	d, err := c.liftDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	id := r.PathValue("id")
	c.carry(w, r, "pauses", d, nil, say.Of("pause.lifted"), func(ctx context.Context) error {
		return c.Pauses.Lift(ctx, actorOf(r), id, strings.TrimSpace(r.PostForm.Get("reason")))
	})
}

// auditNames are the parameters of the audit trail: its filter is its URL.
var auditNames = []string{"actor", "action", "target", "from", "to", "after"}

// auditFilterOf reads the filter of the audit trail.
func auditFilterOf(r *http.Request) (operate.AuditFilter, *operate.Refusal) {
	q := r.URL.Query()
	f := operate.AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), Target: q.Get("target"), Limit: rowsOfList, After: q.Get("after")}
	var err error
	for name, to := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		if *to, err = timeIn(q.Get(name)); err != nil {
			return f, &operate.Refusal{Code: http.StatusBadRequest, Field: name, Detail: fmt.Sprintf("%s is %s, want a time in UTC such as 2026-03-01T14:05.", name, core.QuoteShort(q.Get(name)))}
		}
	}
	for name, value := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target} {
		if len(value) > 256 {
			return f, &operate.Refusal{Code: http.StatusBadRequest, Field: name, Detail: say.Of("refuse.name-size", "name", name, "bytes", len(value))}
		}
	}
	return f, nil
}

// auditRow is an entry with the way to what it is about.
type auditRow struct {
	operate.AuditEntry
	URL           string
	BeforeT, Aft  string // laid out
	Refused, Long bool
}

type auditData struct {
	Rows   []auditRow
	Values map[string]string
	Query  string
	Next   string
	First  bool
}

// audit shows who did what, newest first.
func (c *console) audit(ctx context.Context, r *http.Request) (page, error) {
	f, bad := auditFilterOf(r)
	if bad != nil {
		return page{}, bad
	}
	page1, err := c.Trail.Audit(ctx, f)
	if err != nil {
		return page{}, err
	}
	d := auditData{Values: map[string]string{}, Next: nextPage(r, page1.Next), First: f.After == ""}
	q := r.URL.Query()
	q.Del("after")
	d.Query = q.Encode()
	for _, name := range []string{"actor", "action", "target", "from", "to"} {
		d.Values[name] = q.Get(name)
	}
	for i := range page1.Entries {
		d.Rows = append(d.Rows, c.auditRow(&page1.Entries[i]))
	}
	return page{Title: "Audit", Data: d}, nil
}

func (c *console) auditRow(e *operate.AuditEntry) auditRow {
	row := auditRow{AuditEntry: *e, Refused: strings.HasPrefix(e.Outcome, "refused") || strings.HasPrefix(e.Outcome, "failed")}
	row.BeforeT, _, _ = layOut(e.Before)
	row.Aft, _, _ = layOut(e.After)
	if len(e.Before) == 0 {
		row.BeforeT = ""
	}
	if len(e.After) == 0 {
		row.Aft = ""
	}
	row.Long = row.BeforeT != "" || row.Aft != ""
	parts := strings.Split(e.Target, "/")
	switch {
	case len(parts) == 3 && parts[0] == "task":
		row.URL = c.taskURL(parts[1], parts[2])
	case len(parts) == 2 && parts[0] == "operation":
		row.URL = c.url("operations", parts[1])
	case len(parts) == 2 && parts[0] == "group":
		row.URL = c.url("failures", parts[1])
	}
	return row
}

type settingsData struct {
	Tokens   []operate.Token
	TokensOK bool
	Channels []Channel
	AlertsOK bool
	Views    []savedView
	ViewsOK  bool
	Why      string // tokens and alerts may not be changed
	ViewWhy  string
}

// settings shows tokens, alerts and saved views.
func (c *console) settings(ctx context.Context, r *http.Request) (page, error) {
	by := actorOf(r)
	d := settingsData{TokensOK: c.Tokens != nil, AlertsOK: c.Alerts != nil, ViewsOK: c.Settings != nil,
		Why: operate.WhyNotRole(by, operate.RoleAdmin), ViewWhy: operate.WhyNotRole(by, operate.RoleOperator)}
	var err error
	if c.Tokens != nil && d.Why == "" {
		d.Tokens, err = c.Tokens.Tokens(ctx)
	}
	if err == nil && c.Alerts != nil && d.Why == "" {
		d.Channels, err = c.Alerts.Channels(ctx)
	}
	if err == nil {
		d.Views, err = c.views(ctx)
	}
	if err != nil {
		return page{}, err
	}
	return page{Title: "Settings", Data: d}, nil
}

func (c *console) tokenDialog() (confirmData, error) {
	if c.Tokens == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "tokens")}
	}
	return confirmData{Title: "New token", Go: "Create", URL: c.url("settings", "tokens", "new"), Back: c.url("settings"), NoReason: true,
		What: say.Of("token.what"),
		Fields: []field{
			{Name: "name", Label: "Name", Hint: say.Of("token.name"), Required: true},
			{Name: "role", Label: "Role", Value: string(operate.RoleViewer), Options: []string{string(operate.RoleViewer), string(operate.RoleOperator), string(operate.RoleAdmin)}},
			{Name: "for", Label: "Valid for", Value: "2160h", Hint: say.Of("token.until")},
		}}, nil
}

func (c *console) tokenForm(w http.ResponseWriter, r *http.Request) {
	d, err := c.tokenDialog()
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "settings", d)
}

// createToken answers with the secret itself: it is in no redirect, no cookie and no log.
func (c *console) createToken(w http.ResponseWriter, r *http.Request) {
	d, err := c.tokenDialog()
	if err != nil {
		c.fail(w, r, err)
		return
	}
	name, role := strings.TrimSpace(r.PostForm.Get("name")), operate.Role(r.PostForm.Get("role"))
	var secret string
	create := operate.Act{Action: "token.create", Target: "token/" + core.ShortText(name, core.NameBytesMax), After: role}
	c.carry(w, r, "settings", d, &create, "", func(ctx context.Context) error {
		if err := core.CheckName("name", name); err != nil {
			return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "name", Detail: err.Error()}
		}
		if !role.May(operate.RoleViewer) {
			return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "role", Detail: fmt.Sprintf("role is %s, want viewer, operator or admin.", core.QuoteShort(string(role)))}
		}
		var expires time.Time
		if r.PostForm.Get("for") != "" {
			d, bad := durationOf(r.PostForm, "for", 0)
			if bad != nil {
				bad.Code = http.StatusUnprocessableEntity
				return bad
			}
			expires = c.Now().Add(d)
		}
		var err error
		secret, err = c.Tokens.Create(ctx, actorOf(r), name, role, expires)
		return err
	})
	if secret != "" {
		d.Secret, d.Title, d.What = secret, "Token "+name, say.Of("token.secret")
		c.confirm(w, r, http.StatusOK, "settings", d)
	}
}

func (c *console) revokeDialog(r *http.Request) (confirmData, error) {
	if c.Tokens == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "tokens")}
	}
	return confirmData{Title: "Revoke the token", Go: "Revoke", URL: c.url("settings", "tokens", r.PathValue("id"), "revoke"), Back: c.url("settings"), ReasonIs: true, Danger: true,
		What: say.Of("token.revoke")}, nil
}

func (c *console) revokeForm(w http.ResponseWriter, r *http.Request) {
	d, err := c.revokeDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "settings", d)
}

func (c *console) revokeToken(w http.ResponseWriter, r *http.Request) {
	d, err := c.revokeDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	id := r.PathValue("id")
	c.carry(w, r, "settings", d, &operate.Act{Action: "token.revoke", Target: "token/" + core.ShortText(id, core.NameBytesMax)}, "Revoked.", func(ctx context.Context) error {
		return c.Tokens.Revoke(ctx, actorOf(r), id, strings.TrimSpace(r.PostForm.Get("reason")))
	})
}

// testAlert sends a test through one channel and says what came of it.
func (c *console) testAlert(w http.ResponseWriter, r *http.Request) {
	if c.Alerts == nil {
		c.absent(w, r, "settings", "Alerts")
		return
	}
	name := r.PathValue("name")
	ctx, cancel := reading(r)
	defer cancel()
	err := c.Desk.Change(ctx, &operate.Act{By: actorOf(r), Action: "alert.test", Target: "channel/" + core.ShortText(name, core.NameBytesMax)}, func(ctx context.Context) error {
		return c.Alerts.Test(ctx, actorOf(r), name)
	})
	refusal := new(operate.Refusal)
	switch {
	case err == nil:
		c.done(w, r, c.url("settings")+"#alerts", say.Of("channel.tested", "name", name))
	case errors.As(err, &refusal):
		c.done(w, r, c.url("settings")+"#alerts", say.Of("channel.failed", "error", refusal.Detail))
	default:
		c.fail(w, r, err)
	}
}
