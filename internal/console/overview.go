package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

const (
	tasksOfGroup = 5               // on its page
	soonWithin   = 5 * time.Minute // of a deadline, unless the page is asked for another
	recentFor    = 4 * time.Second // how long one reading serves all tabs
	oldAfter     = 2 * time.Second // the age of a figure is said beside it
)

// recent is one reading that serves everyone for a moment. Those who come while it is read wait for it.
type recent[T any] struct {
	mu    sync.Mutex
	at    time.Time
	value T
	err   error
}

func (r *recent[T]) get(ctx context.Context, now func() time.Time, read func(context.Context) (T, error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := now(); !r.at.IsZero() && at.Sub(r.at) < recentFor && !at.Before(r.at) {
		return r.value, r.err
	}
	// The one who asked first may go away, or wait for its turn; the others still want the answer.
	bounded, cancel := context.WithTimeout(operate.ForAll(context.WithoutCancel(ctx)), readMax)
	defer cancel()
	r.value, r.err = read(bounded)
	r.at = now() // not when it was asked for: of a store that answers slowly each who waits would read it again
	return r.value, r.err
}

// forget has the next who asks read it again: it was changed.
func (r *recent[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
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
	Books   *operate.BooksView
}

// overview is the first screen: what needs someone, and how the engine does.
func (c *console) overview(ctx context.Context, _ *http.Request) (page, error) {
	snapshot, err := c.Live.Current(ctx)
	if err != nil {
		return page{}, err
	}
	d := overviewData{Now: c.Now(), Points: points(c.Live.Samples())}
	d.Figures = figures(d.Points)
	if err := c.fillNeeds(ctx, &d, snapshot); err != nil {
		return page{}, err
	}
	return page{Title: "Overview", Data: d, Plots: true}, nil
}

// fillNeeds shows what needs someone as it was read, and whether the books are closed.
func (c *console) fillNeeds(ctx context.Context, d *overviewData, s live.Snapshot) error {
	o := &s.Overview
	d.At, d.Trouble, d.Counts = o.At, s.Trouble, slices.Clone(o.Counts)
	slices.SortFunc(d.Counts, func(a, b operate.StateCount) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})
	for i := range o.Needs {
		d.Needs = append(d.Needs, need{&o.Needs[i], needFaces[o.Needs[i].Kind], o.At})
	}
	if d.At.IsZero() {
		d.At = d.Now
	}
	return c.needBooks(ctx, d)
}

// need is one of the things that want a person, and how it is shown.
type need struct {
	*operate.Need
	needFace
	looked time.Time // at all
}

// needFace is how a kind of need is shown.
type needFace struct {
	Icon, Class string
	List        string // page of all of them, below the console's; empty: there is none
	Line        string // what the page of one begins with
}

var needFaces = map[operate.NeedKind]needFace{
	operate.NeedTrouble:    {"warning", "bad", "", ""},
	operate.NeedAgents:     {"agent", "bad", "agents", "agents#"},
	operate.NeedBreakers:   {"agent", "bad", "agents", "agents#"},
	operate.NeedPauses:     {"pause", "warn", "pauses", "pauses#"},
	operate.NeedLimits:     {"agent", "warn", "agents", "agents#"},
	operate.NeedErrors:     {"cross", "bad", "failures?state=error", "failures/"},
	operate.NeedDeadlines:  {"clock", "warn", "risk", "tasks/"},
	operate.NeedAnswers:    {"reply", "busy", "tasks?waits=" + waitsSignal, "tasks/"},
	operate.NeedOperations: {"wave", "warn", "operations", "operations/"},
	needsBooks:             {"books", "bad", "books", "books#"},
}

// Old reports whether it was looked at before the rest was.
func (n need) Old() bool { return n.looked.Sub(n.At) > oldAfter }

// risk lists unfinished tasks by their deadline.
func (c *console) risk(ctx context.Context, r *http.Request) (page, error) {
	within, bad := durationOf(r.URL.Query(), "within", soonWithin)
	if bad != nil {
		return page{}, bad
	}
	tasks, more, err := c.Reader.AtRisk(ctx, core.InstantOf(c.Now().Add(within)), rowsOfList)
	if err != nil {
		return page{}, err
	}
	chances, err := c.Forecaster.Forecast(ctx)
	if err != nil {
		return page{}, err
	}
	return page{Title: say.Of("risk.title"), Data: struct {
		Tasks  []core.View
		More   bool
		Within time.Duration
		Asked  string
		Chance operate.Forecast
	}{tasks, more, within, r.URL.Query().Get("within"), chances}}, nil
}

// durationOf reads a duration of a query.
func durationOf(q url.Values, name string, or time.Duration) (time.Duration, *operate.Refusal) {
	if q.Get(name) == "" {
		return or, nil
	}
	return durationIn(name, q.Get(name))
}

// durationIn reads a duration, 1 s to 365 days.
func durationIn(name, text string) (time.Duration, *operate.Refusal) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > core.DurationMax {
		return 0, &operate.Refusal{Code: http.StatusBadRequest, Field: name, Detail: fmt.Sprintf("%s is %s, want a duration of 1s to %dh, such as 15m or 2h.", name, core.QuoteShort(text), int(core.DurationMax.Hours()))}
	}
	return d, nil
}
