package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	writeMax  = 10 * time.Second // of one event: who reads more slowly is cut off
	heartbeat = 15 * time.Second // keeps proxies from ending a quiet stream
)

// point is one place of the plots: rates since the sample before.
type point struct {
	At      int64   `json:"t"` // Unix seconds
	Created float64 `json:"c"` // a second
	Ended   float64 `json:"e"` // a second
	Backlog float64 `json:"b"`
	P50     float64 `json:"p"` // ms
	P99     float64 `json:"q"` // ms
}

// points takes differences of totals. The newest backlog is what was counted; the ones before follow from it by what was
// created and ended since, so a resubmit in between, which ends a task twice, moves them by one.
func points(samples []operate.Sample, counts []operate.StateCount) []point {
	open := float64(0)
	for _, sc := range counts {
		if !sc.State.Ended() {
			open += float64(sc.Tasks.N)
		}
	}
	var all []point
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		seconds := b.At.Sub(a.At).Seconds()
		if seconds <= 0 {
			continue
		}
		last := &samples[len(samples)-1]
		since := (last.Created - b.Created) - (last.Ended - b.Ended)
		all = append(all, point{At: b.At.Unix(), Created: max(0, float64(b.Created-a.Created)/seconds), Ended: max(0, float64(b.Ended-a.Ended)/seconds),
			Backlog: max(0, open-float64(since)), P50: b.P50MS, P99: b.P99MS})
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

// figures are the plots of the points. With more there may be more unfinished tasks than were counted.
func figures(ps []point, more bool) []figure {
	unfinished := "unfinished tasks"
	if more {
		unfinished += ", at least"
	}
	at := func(f func(*point) float64) []float64 {
		values := make([]float64, len(ps))
		for i := range ps {
			values[i] = f(&ps[i])
		}
		return values
	}
	all := []figure{
		{ID: "throughput", Title: "Throughput", Unit: "tasks a second", Lines: []figureLine{
			{Name: "created", Values: at(func(p *point) float64 { return p.Created })}, {Name: "ended", Values: at(func(p *point) float64 { return p.Ended })}}},
		{ID: "backlog", Title: "Backlog", Unit: unfinished, Lines: []figureLine{{Name: "unfinished", Values: at(func(p *point) float64 { return p.Backlog })}}},
		{ID: "latency", Title: "Latency", Unit: "creation to end, ms", Lines: []figureLine{
			{Name: "p50", Values: at(func(p *point) float64 { return p.P50 })}, {Name: "p99", Values: at(func(p *point) float64 { return p.P99 })}}},
	}
	for i := range all {
		f := &all[i]
		for j := range f.Lines {
			f.Lines[j].Now = "–"
			if n := len(ps); n > 0 {
				f.Lines[j].Now = decimal(f.Lines[j].Values[n-1])
			}
		}
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
func (c *console) encode(ctx context.Context, s Snapshot) (all, one []byte, err error) {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	if c.live.all != nil && c.live.of.Equal(s.Overview.At) && c.live.trouble == s.Trouble {
		return c.live.all, c.live.one, nil
	}
	d := overviewData{HasLive: true, Now: c.Now()}
	if err := c.fillNeeds(ctx, &d, s); err != nil {
		c.Log.Warn("console: what needs someone could not be read", "error", err)
		d.Trouble = "the state store cannot be read now"
	}
	var needs bytes.Buffer
	if err := c.pages["overview"].ExecuteTemplate(&needs, "needs", d); err != nil {
		return nil, nil, fmt.Errorf("live event: %w", err)
	}
	e := event{At: s.Overview.At, Trouble: d.Trouble, Needs: needs.String(), Count: len(d.Needs), States: map[string]string{}, Ops: map[string]string{}, Points: points(c.Live.Samples(), s.Overview.Counts)}
	for _, sc := range s.Overview.Counts {
		e.States[string(sc.State)] = count(sc.Tasks)
	}
	var holdsNot []string
	for i := range s.Overview.Troubles {
		holdsNot = append(holdsNot, s.Overview.Troubles[i].Name+": "+s.Overview.Troubles[i].Text)
	}
	if len(holdsNot) > 0 {
		e.Warn = "This node has trouble. " + core.ShortText(strings.Join(holdsNot, "; "), 400)
	}
	for i := range s.Overview.Operations {
		op := &s.Overview.Operations[i]
		var b bytes.Buffer
		if err := c.pages["operation"].ExecuteTemplate(&b, "optally", operationData{Op: *op, Outcomes: c.outcomes(op), Sum: op.Tally.Total()}); err != nil {
			return nil, nil, fmt.Errorf("live event: %w", err)
		}
		e.Ops[op.ID] = b.String()
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
func (c *console) events(w http.ResponseWriter, r *http.Request) {
	if c.Live == nil {
		c.absent(w, r, "overview", "Live numbers")
		return
	}
	leave, full := c.streams.Take(r.Context(), "event streams")
	if full != nil {
		c.fail(w, r, full)
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(text []byte) bool {
		if err := out.SetWriteDeadline(time.Now().Add(writeMax)); err != nil && !isUnsupported(err) {
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
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	first := true
	snapshots := c.Live.Subscribe(r.Context())
	for {
		select {
		case <-r.Context().Done():
			return
		case <-c.Ending:
			return
		case <-beat.C:
			if !send([]byte(": \n\n")) {
				return
			}
		case s, open := <-snapshots:
			if !open {
				return
			}
			all, one, err := c.encode(r.Context(), s)
			if err != nil {
				c.Log.Error("console", "error", err)
				return
			}
			if first {
				one = all
			}
			first = false
			if !send(fmt.Appendf(nil, "event: live\ndata: %s\n\n", one)) {
				return
			}
		}
	}
}
