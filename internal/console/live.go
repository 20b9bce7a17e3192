package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/sheet"
)

const (
	writeMax  = 10 * time.Second // of one event: who reads more slowly is cut off
	heartbeat = 15 * time.Second // keeps proxies from ending a quiet stream, and tells a tab that the node still answers
)

// point is one place of the plots: rates since the sample before.
type point struct {
	At      int64   `json:"t"` // Unix seconds
	Created float64 `json:"c"` // a second
	Ended   float64 `json:"e"` // a second
	Backlog float64 `json:"b"`
	More    bool    `json:"m,omitempty"` // there may be more than that
	P50     float64 `json:"p"`           // ms
	P99     float64 `json:"q"`           // ms
	Gap     bool    `json:"g,omitempty"` // nothing was looked at for a while before it, so that it has no rates
}

// points takes differences of totals, which never are below zero: a database that went back has lower ones. Their times
// rise: what lies ahead of a clock that was set back is left out.
func points(samples []operate.Sample) []point {
	var all []point
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		seconds := b.At.Sub(a.At).Seconds()
		if seconds <= 0 {
			continue
		}
		p := point{At: b.At.Unix(), Backlog: float64(b.Backlog.N), More: b.Backlog.AtLeast, P50: b.P50MS, P99: b.P99MS, Gap: b.Gap}
		if !b.Gap {
			p.Created, p.Ended = max(0, float64(b.Created-a.Created)/seconds), max(0, float64(b.Ended-a.Ended)/seconds)
		}
		for len(all) > 0 && all[len(all)-1].At > p.At {
			all = all[:len(all)-1]
		}
		all = append(all, p)
	}
	return all
}

// figure is one plot with its numbers.
type figure struct {
	ID, Title, Unit string
	Lines           []figureLine
	Rows            []figureRow // newest first
}

type figureLine struct {
	Name   string
	Now    string
	Values []float64
}

type figureRow struct {
	At     time.Time
	Values []string
}

const figureRows = 12

// figures are the plots of the points.
func figures(ps []point) []figure {
	at := func(f func(*point) float64) []float64 {
		values := make([]float64, len(ps))
		for i := range ps {
			if values[i] = f(&ps[i]); ps[i].Gap { // the line is broken
				values[i] = math.NaN()
			}
		}
		return values
	}
	now := func(f func(*point) float64) string {
		if len(ps) == 0 {
			return "–"
		}
		return decimal(f(&ps[len(ps)-1]))
	}
	line := func(name string, f func(*point) float64) figureLine { return figureLine{name, now(f), at(f)} }
	rate := func(f func(*point) float64) func(*point) float64 {
		return func(p *point) float64 {
			if p.Gap {
				return math.NaN()
			}
			return f(p)
		}
	}
	all := []figure{
		{ID: "throughput", Title: "Throughput", Unit: "tasks a second", Lines: []figureLine{
			line("created", rate(func(p *point) float64 { return p.Created })), line("ended", rate(func(p *point) float64 { return p.Ended }))}},
		{ID: "backlog", Title: "Backlog", Unit: "unfinished tasks", Lines: []figureLine{line("unfinished", func(p *point) float64 { return p.Backlog })}},
		{ID: "latency", Title: "Latency", Unit: say.Of("overview.latency"), Lines: []figureLine{
			line("p50", func(p *point) float64 { return p.P50 }), line("p99", func(p *point) float64 { return p.P99 })}},
	}
	if n := len(ps); n > 0 && ps[n-1].More {
		all[1].Lines[0].Now = "≥ " + all[1].Lines[0].Now
	}
	for i := range all {
		f := &all[i]
		for k := len(ps) - 1; k >= 0 && len(f.Rows) < figureRows; k-- {
			row := figureRow{At: time.Unix(ps[k].At, 0)}
			for j := range f.Lines {
				row.Values = append(row.Values, decimal(f.Lines[j].Values[k]))
			}
			f.Rows = append(f.Rows, row)
		}
	}
	return all
}

// liveCache is the newest event, made once for all streams.
type liveCache struct {
	mu       sync.Mutex
	of       time.Time // of the snapshot
	trouble  string
	all, one []byte // with all points, with the newest alone
}

// event is what a page hears.
type event struct {
	At      time.Time         `json:"at"`
	Trouble string            `json:"trouble"`
	Warn    string            `json:"warn"`  // what of this node does not hold, in one sentence
	Needs   string            `json:"needs"` // the first screen's list, as HTML made by the same template
	Count   int               `json:"count"` // of needs
	States  map[string]string `json:"states"`
	Ops     map[string]string `json:"ops"` // running operations' outcomes, as HTML
	Points  []point           `json:"points"`
}

// encode makes the event of a snapshot, or takes the one that was made for another stream.
func (c *console) encode(ctx context.Context, s live.Snapshot) (all, one []byte, err error) {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	if c.live.all != nil && c.live.of.Equal(s.Overview.At) && c.live.trouble == s.Trouble {
		return c.live.all, c.live.one, nil
	}
	d := overviewData{Now: c.Now()}
	if err := c.fillNeeds(ctx, &d, s); err != nil {
		c.Log.Warn("console: what needs someone could not be read", "error", err)
		d.Trouble = say.Of("problem.store")
	}
	var needs bytes.Buffer
	if err := c.pages["overview"].ExecuteTemplate(&needs, "needs", d); err != nil {
		return nil, nil, fmt.Errorf("live event: %w", err)
	}
	e := event{At: s.Overview.At, Trouble: d.Trouble, Needs: sheet.HTML(needs.String()), Count: len(d.Needs), States: map[string]string{}, Ops: map[string]string{}, Points: points(c.Live.Samples())}
	for _, sc := range s.Overview.Counts {
		e.States[string(sc.State)] = sc.Tasks.String()
	}
	var holdsNot []string
	for i := range s.Overview.Troubles {
		holdsNot = append(holdsNot, s.Overview.Troubles[i].Name+": "+s.Overview.Troubles[i].Text)
	}
	if len(holdsNot) > 0 {
		e.Warn = say.Of("overview.trouble", "text", core.ShortText(strings.Join(holdsNot, "; "), 400))
	}
	for i := range s.Overview.Operations {
		op := &s.Overview.Operations[i]
		if op.State != operate.OperationRunning {
			continue // more than outcomes changes on its page then
		}
		var b bytes.Buffer
		if err := c.pages["operation"].ExecuteTemplate(&b, "optally", operationData{Op: *op, Outcomes: c.outcomes(op), Sum: op.Tally.Total()}); err != nil {
			return nil, nil, fmt.Errorf("live event: %w", err)
		}
		e.Ops[op.ID] = sheet.HTML(b.String())
	}
	if all, err = json.Marshal(e); err != nil {
		return nil, nil, err
	}
	e.Points = e.Points[max(0, len(e.Points)-1):]
	if one, err = json.Marshal(e); err != nil {
		return nil, nil, err
	}
	c.live.of, c.live.trouble, c.live.all, c.live.one = s.Overview.At, s.Trouble, all, one
	return all, one, nil
}

// events is the stream of events of one tab.
func (c *console) events(w http.ResponseWriter, r *http.Request) error {
	leave, full := c.streams.Take(r.Context(), "event streams")
	if full != nil {
		return full
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		if err := out.SetWriteDeadline(time.Now().Add(writeMax)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		if _, err := w.Write(text); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	// A server's time for reading a request is over for a stream that only writes.
	_ = out.SetReadDeadline(time.Time{})
	if !send([]byte("retry: 3000\n\n")) {
		return nil
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	first := true
	snapshots := c.Live.Subscribe(r.Context())
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-c.Ending:
			return nil
		case <-beat.C:
			if !send([]byte("event: beat\ndata: 0\n\n")) {
				return nil
			}
		case s, open := <-snapshots:
			if !open {
				return nil
			}
			all, one, err := c.encode(r.Context(), s)
			if err != nil {
				c.Log.Error("console", "error", err)
				return nil
			}
			if first {
				one = all
			}
			first = false
			if !send(fmt.Appendf(nil, "event: live\ndata: %s\n\n", one)) {
				return nil
			}
		}
	}
}
