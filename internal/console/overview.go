package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
)

const (
	groupsOnTop = 5               // failure groups and risky tasks of the first screen
	recentFor   = 4 * time.Second // how long one reading of them serves all tabs
)

// recent is one reading that serves everyone for a moment. Those who come while it is read wait for it.
type recent[T any] struct {
	mu    sync.Mutex
	at    time.Time
	value T
	err   error
}

func (r *recent[T]) get(ctx context.Context, now time.Time, read func(context.Context) (T, error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && now.Sub(r.at) < recentFor && !now.Before(r.at) {
		return r.value, r.err
	}
	// The one who asked first may go away, or wait for its turn; the others still want the answer.
	bounded, cancel := context.WithTimeout(operate.ForAll(context.WithoutCancel(ctx)), readMax)
	defer cancel()
	r.value, r.err = read(bounded)
	r.at = now
	return r.value, r.err
}

// forget has the next who asks read it again: it was changed.
func (r *recent[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}

// soonest are the tasks whose deadline is next.
type soonest struct {
	Tasks []core.View
	More  bool
}

// need is one thing that wants a person, with the way to it.
type need struct {
	Icon  string
	Class string // bad, warn or busy
	Title string
	URL   string
	Lines []needLine
	More  string // of the link to the rest
}

type needLine struct {
	Text, Note, URL string
	At              any // a time that belongs to it
}

// overviewData is the first screen.
type overviewData struct {
	At      time.Time // when it was looked last; zero: not yet
	Now     time.Time
	Trouble string // why the newest look failed
	Needs   []need
	Counts  []operate.StateCount
	Figures []figure
	Points  []point
	HasLive bool
	Books   *operate.BooksView // nil: this node does not serve them
}

// overview is the first screen: what needs someone, and how the engine does.
func (c *console) overview(ctx context.Context, _ *http.Request) (page, error) {
	d := overviewData{HasLive: c.Live != nil, Now: c.Now()}
	var snapshot Snapshot
	if c.Live != nil {
		var err error
		if snapshot, err = c.Live.Current(ctx); err != nil {
			return page{}, err
		}
		d.Points = points(c.Live.Samples(), snapshot.Overview.Counts)
		d.Figures = figures(d.Points, slices.ContainsFunc(snapshot.Overview.Counts, func(c operate.StateCount) bool { return !c.State.Ended() && c.Tasks.AtLeast }))
	}
	if err := c.fillNeeds(ctx, &d, snapshot); err != nil {
		return page{}, err
	}
	return page{Title: "Overview", Data: d, Plots: c.Live != nil}, nil
}

// fillNeeds looks at everything that could need someone, worst first.
func (c *console) fillNeeds(ctx context.Context, d *overviewData, s Snapshot) error {
	o := s.Overview
	d.At, d.Trouble, d.Counts = o.At, s.Trouble, slices.Clone(o.Counts)
	slices.SortFunc(d.Counts, func(a, b operate.StateCount) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})
	for i := range o.Troubles {
		t := &o.Troubles[i]
		d.Needs = append(d.Needs, need{Icon: "warning", Class: "bad", Title: "This node: " + t.Name, Lines: []needLine{{Text: t.Text, Note: "since", At: t.Since}}})
	}
	groups, err := c.topGroups(ctx, d.Now, s.Top)
	if err != nil {
		return fmt.Errorf("failure groups: %w", err)
	}
	if len(groups) > 0 {
		n := need{Icon: "cross", Class: "bad", Title: "Tasks in error", URL: c.url("failures") + "?state=error", More: "all failure groups"}
		if c.Live != nil {
			n.Title = fmt.Sprintf("%s in error", tasksWord(o.Errors))
		}
		for i := range groups[:min(len(groups), groupsOnTop)] {
			g := &groups[i]
			n.Lines = append(n.Lines, needLine{Text: g.Type + " · " + stepWord(g.Step) + ": " + core.ShortText(g.Example, 160), Note: tasksWord(g.Tasks) + ", newest", At: g.Last, URL: c.url("failures", g.ID)})
		}
		d.Needs = append(d.Needs, n)
	}
	c.needOperations(d, o.Operations)
	if err := c.needAnswers(ctx, d, o.Signals); err != nil {
		return err
	}
	if err := c.needSoon(ctx, d, o, s.Top); err != nil {
		return err
	}
	if err := c.needBooks(ctx, d); err != nil {
		return err
	}
	c.needAgents(d, o.AgentsGone, "gone", "no instance answers")
	c.needAgents(d, o.Breakers, "with an open breaker", "what would begin there waits")
	if d.At.IsZero() {
		d.At = d.Now
	}
	return nil
}

// needAgents names agents that have something in common.
func (c *console) needAgents(d *overviewData, names []string, what, note string) {
	if len(names) == 0 {
		return
	}
	n := need{Icon: "agent", Class: "bad", Title: fmt.Sprintf("%d agents %s", len(names), what), URL: c.url("agents"), More: "all agents"}
	if len(names) == 1 {
		n.Title = "1 agent " + what
	}
	for _, name := range names[:min(len(names), groupsOnTop)] {
		n.Lines = append(n.Lines, needLine{Text: name, Note: note, URL: c.url("agents") + "#" + name})
	}
	d.Needs = append(d.Needs, n)
}

// needAnswers names the tasks that wait for an answer, the most urgent first: as they were read live, or read now.
func (c *console) needAnswers(ctx context.Context, d *overviewData, s operate.Signals) error {
	within := live.DefaultRisk
	if c.Live == nil || c.AtRiskWithin != live.DefaultRisk {
		within = c.AtRiskWithin
		var err error
		if s, err = c.signals.get(ctx, d.Now, func(ctx context.Context) (operate.Signals, error) {
			return c.Reader.Signals(ctx, core.InstantOf(d.Now.Add(within)), groupsOnTop)
		}); err != nil {
			return fmt.Errorf("open signals: %w", err)
		}
	}
	if s.Tasks.N == 0 {
		return nil
	}
	n := need{Icon: "reply", Class: "busy", URL: c.url("tasks") + "?waits=" + waitsSignal, More: "all that wait for an answer", Title: tasksWord(s.Tasks) + " waiting for an answer"}
	if s.Steps.N != s.Tasks.N {
		n.Title += fmt.Sprintf(", in %s steps", count(s.Steps))
	}
	first := needLine{Text: "None has to come within " + duration(within)}
	if s.Near.N > 0 {
		n.Class = "warn"
		first.Text = count(s.Near) + " of them must come within " + duration(within)
	}
	if s.Since != nil {
		first.Note, first.At = "the oldest began to wait", *s.Since
	}
	n.Lines = append(n.Lines, first)
	for i := range s.Next[:min(len(s.Next), groupsOnTop)] {
		o := &s.Next[i]
		line := needLine{Text: o.Type + "/" + o.ID + " · " + strings.Join(o.Steps, ", "), Note: "must be answered", At: o.Due, URL: c.taskURL(o.Type, o.ID)}
		n.Lines = append(n.Lines, line)
	}
	d.Needs = append(d.Needs, n)
	return nil
}

// needOperations names operations that stopped by themselves or wait for someone.
func (c *console) needOperations(d *overviewData, ops []operate.Operation) {
	n := need{Icon: "wave", Class: "warn", Title: "Operations that stand", URL: c.url("operations"), More: "all operations"}
	for i := range ops {
		op := &ops[i]
		if op.State != operate.OperationBraked && op.State != operate.OperationPaused {
			continue
		}
		if op.State == operate.OperationBraked {
			n.Class = "bad"
		}
		n.Lines = append(n.Lines, needLine{Text: string(op.State) + ": " + string(op.Action) + " of " + op.Selection, Note: op.Why, URL: c.url("operations", op.ID)})
	}
	if len(n.Lines) > 0 {
		d.Needs = append(d.Needs, n)
	}
}

// topGroups are the first failure groups in error: as they were read live, or read now.
func (c *console) topGroups(ctx context.Context, now time.Time, top *live.Top) ([]operate.Group, error) {
	if top != nil {
		return top.Groups, nil
	}
	groups, err := c.groups.get(ctx, now, func(ctx context.Context) (operate.Groups, error) {
		return c.Reader.Groups(ctx, operate.GroupFilter{State: core.StateError, Limit: groupsOnTop + 1})
	})
	return groups.Groups, err
}

// needSoon names tasks whose deadline is next: as they were read live, or read now.
func (c *console) needSoon(ctx context.Context, d *overviewData, o operate.Overview, top *live.Top) error {
	var soon soonest
	if top != nil && c.AtRiskWithin == live.DefaultRisk {
		soon.Tasks = top.Soon[:min(len(top.Soon), groupsOnTop)]
	} else {
		var err error
		soon, err = c.soon.get(ctx, d.Now, func(ctx context.Context) (soonest, error) {
			tasks, more, err := c.Reader.AtRisk(ctx, core.InstantOf(d.Now.Add(c.AtRiskWithin)), groupsOnTop)
			return soonest{tasks, more}, err
		})
		if err != nil {
			return fmt.Errorf("tasks at risk: %w", err)
		}
	}
	if len(soon.Tasks) == 0 {
		return nil
	}
	risk := max(o.AtRisk.N, int64(len(soon.Tasks)))
	n := need{Icon: "clock", Class: "warn", URL: c.url("risk"), More: "all by deadline",
		Title: fmt.Sprintf("%s within %s of the deadline", tasksWord(operate.Count{N: risk, AtLeast: o.AtRisk.AtLeast || c.Live == nil && soon.More}), duration(c.AtRiskWithin))}
	for i := range soon.Tasks {
		v := &soon.Tasks[i]
		n.Lines = append(n.Lines, needLine{Text: v.Type + "/" + v.ID, Note: string(v.State) + ", deadline", At: v.CompleteBy, URL: c.taskURL(v.Type, v.ID)})
	}
	d.Needs = append(d.Needs, n)
	return nil
}

func stepWord(step string) string {
	if step == "" {
		return "no step failed"
	}
	return "step " + step
}

// risk lists unfinished tasks by their deadline.
func (c *console) risk(ctx context.Context, r *http.Request) (page, error) {
	within, bad := durationOf(r.URL.Query(), "within", c.AtRiskWithin)
	if bad != nil {
		return page{}, bad
	}
	tasks, more, err := c.Reader.AtRisk(ctx, core.InstantOf(c.Now().Add(within)), rowsOfList)
	if err != nil {
		return page{}, err
	}
	var chances *operate.Forecast
	if c.Forecaster != nil {
		f, err := c.Forecaster.Forecast(ctx)
		if err != nil {
			return page{}, err
		}
		chances = &f
	}
	return page{Title: "Whose deadline comes next", Data: struct {
		Tasks  []core.View
		More   bool
		Within time.Duration
		Asked  string
		Chance *operate.Forecast // nil: this node tells none
	}{tasks, more, within, r.URL.Query().Get("within"), chances}}, nil
}

// durationOf reads a duration of a query or a form, 1 s to 365 days.
func durationOf(form url.Values, name string, or time.Duration) (time.Duration, *operate.Refusal) {
	text := form.Get(name)
	if text == "" {
		return or, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > core.DurationMax {
		return 0, &operate.Refusal{Code: http.StatusBadRequest, Field: name, Detail: fmt.Sprintf("%s is %s, want a duration of 1s to %dh, such as 15m or 2h.", name, core.QuoteShort(text), int(core.DurationMax.Hours()))}
	}
	return d, nil
}
