package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"duly.dev/duly/examples/drone"
)

// report is what a round comes to; its JSON is the last line.
type report struct {
	Store     string  `json:"store"`
	Seed      uint64  `json:"seed"`
	Seconds   float64 `json:"seconds"` // of load, the drains left out
	Faults    int     `json:"faults"`
	Tasks     int     `json:"tasks"` // accepted
	Processed int     `json:"processed"`
	Undone    int     `json:"undone"`
	Error     int     `json:"error"`
	Lost      int     `json:"lost"`
	Doubled   int     `json:"doubled"`
	HalfDone  int     `json:"half_done"`
	Untold    int     `json:"untold"`          // ended, and the event stream does not say so
	Wrong     int     `json:"operators_wrong"` // columns, members, trails, pauses, alerts and streams that were not as promised
	Mended    mended  `json:"operators"`       // what operations over many tasks came to

	Workloads []*workReport `json:"workloads,omitempty"` // by stage
	Over      []*overReport `json:"over,omitempty"`      // the same

	Recovery recovery                `json:"recovery_ms"`
	ByFault  map[string]*faultReport `json:"by_fault"`

	NotTold int            `json:"faults_not_told"` // of which something due was not told
	Noisy   int            `json:"lines_too_many"`  // of one cause within a second
	Noise   map[string]int `json:"noise,omitempty"` // the same, by message

	Stuck   int      `json:"stuck"`           // never recovered, or never ended
	Refused int      `json:"refused"`         // submissions that were refused for good
	Alarms  int      `json:"alarms"`          // panics and the like in the logs
	Exits   int      `json:"exits"`           // processes that ended by themselves and were started again
	LeftOut int      `json:"arrivals_missed"` // too many had no answer yet
	Without []string `json:"faults_left_out,omitempty"`
}

// recovery is in milliseconds, from the end of a fault on.
type recovery struct {
	P50 int64 `json:"p50"`
	Max int64 `json:"max"`

	all []time.Duration
}

type faultReport struct {
	Times    int      `json:"times"`
	HeldMS   int64    `json:"held_ms"` // mean
	Recovery recovery `json:"recovery_ms"`
	Due      int      `json:"told_due"`           // of which something had to be told
	Told     int      `json:"told"`               // of which all that was due was told
	Unready  recovery `json:"not_ready_after_ms"` // from the beginning of the fault; of those where a process said so
	Again    recovery `json:"ready_again_ms"`     // the same
	Alerts   []string `json:"alerts,omitempty"`   // conditions whose trouble was told

	held time.Duration
}

func (r *recovery) add(d time.Duration) {
	r.all = append(r.all, d)
	slices.Sort(r.all)
	r.P50, r.Max = r.all[(len(r.all)-1)/2].Milliseconds(), r.all[len(r.all)-1].Milliseconds()
}

// add counts one fault.
func (r *report) add(name string, held, took time.Duration, recovered bool) {
	if !recovered {
		r.Stuck++
	}
	f := r.ByFault[name]
	if f == nil {
		f = &faultReport{}
		r.ByFault[name] = f
	}
	r.Faults++
	f.Times++
	f.held += held
	f.HeldMS = f.held.Milliseconds() / int64(f.Times)
	f.Recovery.add(took)
	r.Recovery.add(took)
}

// hear counts what was told of a fault that was added.
func (r *report) hear(name string, t *tellings) {
	f := r.ByFault[name]
	if t.due {
		f.Due++
	}
	switch {
	case len(t.missed) > 0:
		r.NotTold++
	case t.due:
		f.Told++
	}
	if t.wasUnready {
		f.Unready.add(t.unready)
		f.Again.add(t.again)
	}
	for _, a := range t.alerts {
		if !slices.Contains(f.Alerts, a) {
			f.Alerts = append(f.Alerts, a)
		}
	}
	slices.Sort(f.Alerts)
}

// told is the report's column: of how many faults all was told that had to be.
func (f *faultReport) told() string {
	if f.Due == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", f.Told, f.Due)
}

// span is a recovery's column.
func (r *recovery) span() string {
	if len(r.all) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d, %d", r.P50, r.Max)
}

// leftOut notes a kind of fault that this machine does not allow.
func (r *report) leftOut(name string) {
	if !slices.Contains(r.Without, name) {
		r.Without = append(r.Without, name)
	}
}

// close adds a stage's books.
func (r *report) close(found *drone.Report, untold int) {
	r.Tasks += found.Accepted
	r.Processed += found.Processed
	r.Undone += found.Undone
	r.Error += found.Error
	r.Lost += found.Lost
	r.Doubled += found.Doubled
	r.HalfDone += found.HalfDone
	r.Untold += untold
}

// clean reports whether every promise was kept.
func (r *report) clean() bool {
	for _, w := range r.Workloads {
		if w.Lost+w.Doubled+w.HalfDone > 0 || w.Processed+w.Undone+w.Error != w.Tasks {
			return false
		}
	}
	for _, o := range r.Over {
		if o.InTime < inTimeLeast {
			return false
		}
	}
	return r.Lost+r.Doubled+r.HalfDone+r.Untold+r.Stuck+r.Refused+r.Alarms+r.NotTold+r.Noisy+r.Wrong == 0 && r.Processed+r.Undone+r.Error == r.Tasks
}

// write prints the table and the JSON.
func (r *report) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nfault\ttimes\theld ms (mean)\trecovered in ms (p50)\t(max)\ttold\tnot ready after ms (p50, max)\tready again ms (p50, max)\n")
	names := make([]string, 0, len(r.ByFault))
	for name := range r.ByFault {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := r.ByFault[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", name, f.Times, f.HeldMS, f.Recovery.P50, f.Recovery.Max, f.told(), f.Unready.span(), f.Again.span())
	}
	fmt.Fprintf(t, "all\t%d\t\t%d\t%d\t\t\t\n", r.Faults, r.Recovery.P50, r.Recovery.Max)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, o := range r.Over {
		fmt.Fprintf(out, "%s\n", o)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = fmt.Fprintf(out, "\n%s\n", text)
	return err
}
