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
	"time"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planfile"
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
	return page{Title: "Agents", Data: struct {
		Agents []agentRow
		Why    string
	}{agentRows(all, limits), operate.WhyNotRole(actorOf(r), operate.RoleOperator)}}, nil
}

// forceBreaker opens or closes the breaker of an agent, or lets it go.
func (c *console) forceBreaker(r *http.Request) (*dialog, error) {
	agent := r.PathValue("agent")
	wishes := field{Name: "state", Label: "Breaker", Value: string(operate.BreakerOpened), Options: []string{string(operate.BreakerOpened), string(operate.BreakerClosed), string(operate.BreakerAuto)}}
	if r.Method == http.MethodGet {
		if err := c.offerWishes(r, &wishes); err != nil {
			return nil, err
		}
	}
	return &dialog{Title: "Breaker of " + core.ShortText(agent, core.NameBytesMax), Go: "Change", URL: c.url("agents", agent, "breaker"), Back: c.url("agents"), ReasonIs: true,
		What:   say.Of("breaker.what"),
		Fields: []field{wishes, {Name: "for", Label: "For", Hint: say.Of("breaker.until")}},
		told:   say.Of("breaker.changed"),
		do: func(ctx context.Context, typed form) error {
			until, err := c.lasting(typed)
			if err != nil {
				return err
			}
			_, err = c.Breakers.Force(ctx, actorOf(r), operate.ForceBreaker{Agent: agent, State: operate.BreakerWish(typed("state")), Reason: typed("reason"), Until: until, EvenIfUnknown: typed.insists(operate.EvenIfUnknown)})
			return err
		}}, nil
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
	marked, err := c.Versions.Deprecated(ctx)
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
	Why      string    // why neither the mark can be changed nor the plan be paused; empty: both can
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
	marked, err := c.Versions.Deprecated(ctx)
	if err != nil {
		return page{}, err
	}
	if since := marked.Since(d.Plan.Name, version); since != 0 {
		d.Since = since.Time()
	}
	d.Why = operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	for _, s := range d.Plan.Steps {
		var names []string
		for _, a := range s.After {
			names = append(names, d.Plan.Steps[a].Name)
		}
		d.Steps = append(d.Steps, planStep{s, strings.Join(names, ", ")})
	}
	if d.With != 0 {
		before, err := planfile.Write(versions[d.With])
		if err != nil {
			return page{}, err
		}
		now, err := planfile.Write(d.Plan)
		if err != nil {
			return page{}, err
		}
		d.Diff = diffLines(string(before), string(now))
		d.Same = !differs(d.Diff)
	}
	d.Graph = planGraph(d.Plan).SVG(say.Of("graph.plan", "plan", d.Plan.Name, "version", d.Plan.Version, "n", len(d.Plan.Steps)))
	return page{Title: "Plan " + d.Plan.Name, Data: d}, nil
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

// changePartition pins a partition, lets it go, or has its owner hand it over.
func (c *console) changePartition(r *http.Request) (*dialog, error) {
	p, err := strconv.Atoi(r.PathValue("partition"))
	if err != nil || p < 0 {
		return nil, &operate.Refusal{Code: http.StatusBadRequest, Field: "partition", Detail: fmt.Sprintf("partition is %s, want a number of 0 or more.", core.QuoteShort(r.PathValue("partition")))}
	}
	d := &dialog{URL: c.url("partitions", p, r.PathValue("change")), Back: c.url("partitions"), ReasonIs: true, told: say.Of("partition.asked", "partition", p)}
	switch r.PathValue("change") {
	case "pin":
		d.Title, d.Go = fmt.Sprintf("Pin partition %d", p), "Pin"
		d.What = say.Of("partition.pin")
		d.Fields = []field{{Name: "node", Label: "Node", Hint: say.Of("partition.node"), Required: true}}
		d.do = func(ctx context.Context, typed form) error {
			return c.Partitions.Pin(ctx, actorOf(r), p, typed("node"), typed("reason"), typed.insists(operate.EvenIfUnknown))
		}
	case "unpin":
		d.Title, d.Go = fmt.Sprintf("Unpin partition %d", p), "Unpin"
		d.What = say.Of("partition.unpin")
		d.do = func(ctx context.Context, typed form) error {
			return c.Partitions.Unpin(ctx, actorOf(r), p, typed("reason"))
		}
	case "stepdown":
		d.Title, d.Go, d.Danger = say.Of("partition.stepdown-from", "partition", p), "Step down", true
		d.What = say.Of("partition.stepdown")
		d.do = func(ctx context.Context, typed form) error {
			return c.Partitions.StepDown(ctx, actorOf(r), p, typed("reason"))
		}
	default:
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("partition.no-change", "change", core.QuoteShort(r.PathValue("change")))}
	}
	return d, nil
}

// pauses shows what is held back, and what waits behind it.
func (c *console) pauses(ctx context.Context, r *http.Request) (page, error) {
	all, err := c.Pauses.Pauses(ctx)
	if err != nil {
		return page{}, err
	}
	why := operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	return page{Title: "Pauses", Data: struct {
		Held []operate.PauseView
		Why  string
	}{all, why}}, nil
}

// pause holds commands back.
func (c *console) pause(r *http.Request) (*dialog, error) {
	q := r.URL.Query()
	return &dialog{Title: "Pause", Go: "Pause", URL: c.url("pauses", "new"), Back: c.url("pauses"), ReasonIs: true, Hidden: keyOf(r),
		What: say.Of("pause.what"),
		Fields: []field{
			{Name: "type", Label: "Task type", Value: q.Get("type"), Hint: "Empty: every type"},
			{Name: "step", Label: "Step", Value: q.Get("step"), Hint: say.Of("pause.step")},
			{Name: "agent", Label: "Agent", Value: q.Get("agent"), Hint: "Empty: every agent"},
			{Name: "label", Label: "Label", Value: q.Get("label"), Hint: say.Of("pause.label")},
			{Name: "for", Label: "For", Value: q.Get("for"), Hint: say.Of("pause.until")},
		},
		told: "Paused.",
		do: func(ctx context.Context, typed form) error {
			p := operate.Pause{Type: typed("type"), Step: typed("step"), Agent: typed("agent"), Label: typed("label"), At: c.Now(), By: actorOf(r).Name, Reason: typed("reason"), EvenIfUnknown: typed.insists(operate.EvenIfUnknown), Key: typed("key")}
			if err := checkPause(&p); err != nil {
				return err
			}
			var err error
			if p.Until, err = c.lasting(typed); err != nil {
				return err
			}
			_, err = c.Pauses.SetPause(ctx, actorOf(r), p)
			return err
		}}, nil
}

// checkPause refuses what a pause cannot hold back, or what this page is not for.
func checkPause(p *operate.Pause) error {
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
	return nil
}

// lift ends a pause.
func (c *console) lift(r *http.Request) (*dialog, error) {
	id := r.PathValue("id")
	return &dialog{Title: "Lift the pause", Go: "Lift", URL: c.url("pauses", id, "lift"), Back: c.url("pauses"), ReasonIs: true, What: say.Of("pause.lift"),
		told: say.Of("pause.lifted"),
		do: func(ctx context.Context, typed form) error {
			return c.Pauses.LiftPause(ctx, actorOf(r), id, typed("reason"))
		}}, nil
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
	Whole         string // where all of it is, when it is too long for this page
}

// auditBytesMax is how much a page of the audit trail shows of what was changed, laid out; the newest entries go first. Of one
// entry it shows inlineMax at most.
const auditBytesMax = 1 << 20

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
	room := auditBytesMax
	for i := range page1.Entries {
		row, err := c.auditRow(&page1.Entries[i], &room)
		if err != nil {
			return page{}, err
		}
		d.Rows = append(d.Rows, row)
	}
	return page{Title: "Audit", Data: d}, nil
}

// auditRow lays an entry out, in the room that the page has left.
func (c *console) auditRow(e *operate.AuditEntry, room *int) (row auditRow, err error) {
	row = auditRow{AuditEntry: *e, Refused: strings.HasPrefix(e.Outcome, "refused") || strings.HasPrefix(e.Outcome, "failed")}
	most := min(*room, inlineMax)
	row.Long = len(e.Before)+len(e.After) > 0
	if row.Long && len(e.Before)+len(e.After) <= most {
		if len(e.Before) > 0 {
			row.BeforeT, _, _ = layOut(e.Before)
		}
		if len(e.After) > 0 {
			row.Aft, _, _ = layOut(e.After)
		}
	}
	switch n := len(row.BeforeT) + len(row.Aft); {
	case !row.Long:
	case n == 0 || n > most:
		row.BeforeT, row.Aft = "", ""
		at := e.At.UTC()
		only := url.Values{"actor": {e.Actor}, "action": {e.Action}, "target": {e.Target}, "from": {at.Format(time.RFC3339Nano)}, "to": {at.Add(time.Microsecond).Format(time.RFC3339Nano)}}
		if row.Whole, err = c.export("ndjson", only.Encode(), "audit"); err != nil {
			return row, err
		}
	default:
		*room -= n
	}
	parts := strings.Split(e.Target, "/")
	switch {
	case len(parts) == 3 && parts[0] == "task":
		row.URL = c.taskURL(parts[1], parts[2])
	case len(parts) == 2 && parts[0] == "operation":
		row.URL = c.url("operations", parts[1])
	case len(parts) == 2 && parts[0] == "group":
		row.URL = c.url("failures", parts[1])
	}
	return row, nil
}

type settingsData struct {
	Tokens   []operate.Token
	Channels []Channel
	Views    []savedView
	Why      string // tokens and alerts may not be changed
	ViewWhy  string
}

// settings shows tokens, alerts and saved views.
func (c *console) settings(ctx context.Context, r *http.Request) (page, error) {
	by := actorOf(r)
	d := settingsData{Why: operate.WhyNotRole(by, operate.RoleAdmin), ViewWhy: operate.WhyNotRole(by, operate.RoleOperator)}
	var err error
	if d.Why == "" {
		d.Tokens, err = c.Tokens.Tokens(ctx)
	}
	if err == nil && d.Why == "" {
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

// createToken answers with the secret itself: it is in no redirect, no cookie and no log.
func (c *console) createToken(r *http.Request) (*dialog, error) {
	name, role := strings.TrimSpace(r.PostForm.Get("name")), operate.Role(r.PostForm.Get("role"))
	d := &dialog{Title: "New token", Go: "Create", URL: c.url("settings", "tokens", "new"), Back: c.url("settings"), NoReason: true,
		What: say.Of("token.what"),
		Fields: []field{
			{Name: "name", Label: "Name", Hint: say.Of("token.name"), Required: true},
			{Name: "role", Label: "Role", Value: string(operate.RoleViewer), Options: []string{string(operate.RoleViewer), string(operate.RoleOperator), string(operate.RoleAdmin)}},
			{Name: "for", Label: "Valid for", Value: "2160h", Hint: say.Of("token.until")},
		},
		act: &operate.Act{Action: "token.create", Target: "token/" + core.ShortText(name, core.NameBytesMax), After: role}}
	d.do = func(ctx context.Context, typed form) error {
		if err := core.CheckName("name", name); err != nil {
			return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "name", Detail: err.Error()}
		}
		if !role.May(operate.RoleViewer) {
			return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "role", Detail: fmt.Sprintf("role is %s, want viewer, operator or admin.", core.QuoteShort(string(role)))}
		}
		expires, err := c.lasting(typed)
		if err != nil {
			return err
		}
		if _, d.Secret, err = auth.CreateToken(ctx, c.Tokens, name, role, actorOf(r).Name, c.Now(), expires); err != nil {
			return err
		}
		d.Title, d.What = "Token "+name, say.Of("token.secret")
		return nil
	}
	return d, nil
}

// revokeToken ends a token.
func (c *console) revokeToken(r *http.Request) (*dialog, error) {
	id := r.PathValue("id")
	return &dialog{Title: "Revoke the token", Go: "Revoke", URL: c.url("settings", "tokens", id, "revoke"), Back: c.url("settings"), ReasonIs: true, Danger: true,
		What: say.Of("token.revoke"), told: "Revoked.",
		act: &operate.Act{Action: "token.revoke", Target: "token/" + core.ShortText(id, core.NameBytesMax)},
		do:  func(ctx context.Context, _ form) error { return c.Tokens.RevokeToken(ctx, id, c.Now()) }}, nil
}

// testAlert sends a test through one channel and says what came of it.
func (c *console) testAlert(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	ctx, cancel := reading(r)
	defer cancel()
	err := c.Desk.Change(ctx, &operate.Act{By: actorOf(r), Action: "alert.test", Target: "channel/" + core.ShortText(name, core.NameBytesMax)}, func(ctx context.Context) error {
		return c.Alerts.Test(ctx, name)
	})
	refusal := new(operate.Refusal)
	switch {
	case err == nil:
		return c.done(w, r, c.url("settings")+"#alerts", say.Of("channel.tested", "name", name))
	case errors.As(err, &refusal):
		return c.done(w, r, c.url("settings")+"#alerts", say.Of("channel.failed", "error", refusal.Detail))
	default:
		return err
	}
}
