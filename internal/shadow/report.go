package shadow

import (
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Report is what came of a run.
type Report struct {
	Agent  string `json:"agent"`
	Shadow string `json:"shadow"`

	Seen      int `json:"seen"`      // dos of the agent
	Copied    int `json:"copied"`    // of these
	Compared  int `json:"compared"`  // of these: both answered, or the agent alone
	Same      int `json:"same"`      // of these
	Different int `json:"different"` // the others
	Unclear   int `json:"unclear"`   // copied and not compared: the agent did not answer, or either could not take the command now
	Dropped   int `json:"dropped"`   // not copied for want of room
	Missed    int `json:"missed"`    // messages that came faster than they were looked at

	RealMS   Times `json:"real_ms"` // of those compared
	ShadowMS Times `json:"shadow_ms"`

	Differences []Difference `json:"differences"` // the first ones

	real, shadow []time.Duration
}

// Times are milliseconds until answers came.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Difference is one command that was answered otherwise.
type Difference struct {
	Task    string  `json:"task"`
	Type    string  `json:"type"`
	Step    string  `json:"step"`
	Attempt int     `json:"attempt"`
	Real    string  `json:"real"` // done, or the code of an error
	Shadow  string  `json:"shadow"`
	At      []Place `json:"at,omitempty"` // where the results differ; the first ones
}

// Place is where two results differ.
type Place struct {
	Pointer string  `json:"pointer"`          // RFC 6901
	Real    *string `json:"real,omitempty"`   // JSON, shortened; nil: there is none, or values are not shown
	Shadow  *string `json:"shadow,omitempty"` // likewise
}

// timesKept bounds the times of which the report has the quantiles.
const timesKept = 1 << 16

// What was answered, in words.
const (
	saidDone   = "done"
	saidSilent = "no answer"
)

func said(a *answer) string {
	switch {
	case a == nil:
		return saidSilent
	case a.reply.Code == 0:
		return saidDone
	}
	return fmt.Sprint(a.reply.Code)
}

// judge counts a pair whose time is over, or to which both have answered.
func (r *Report) judge(p *pair, o *Options) {
	if p.real == nil || core.BusyCode(p.real.reply.Code) || p.shadow != nil && core.BusyCode(p.shadow.reply.Code) {
		r.Unclear++
		return
	}
	r.Compared++
	if len(r.real) < timesKept {
		r.real = append(r.real, p.real.after)
		if p.shadow != nil {
			r.shadow = append(r.shadow, p.shadow.after)
		}
	}
	d := Difference{Task: p.Task, Type: p.Type, Step: p.Step, Attempt: p.Attempt, Real: said(p.real), Shadow: said(p.shadow)}
	if d.Real == d.Shadow {
		if d.Real == saidDone {
			d.At = differ(p.real.reply.Result, p.shadow.reply.Result, o)
		}
		if d.At == nil {
			r.Same++
			return
		}
	}
	r.Different++
	if len(r.Differences) < o.Kept {
		r.Differences = append(r.Differences, d)
	}
}

// finish makes the quantiles.
func (r *Report) finish() {
	r.RealMS, r.ShadowMS = timesOf(r.real), timesOf(r.shadow)
	if r.Differences == nil {
		r.Differences = []Difference{}
	}
}

func timesOf(all []time.Duration) Times {
	if len(all) == 0 {
		return Times{}
	}
	slices.Sort(all)
	at := func(q int) float64 {
		return float64(all[min(len(all)*q/100, len(all)-1)].Microseconds()) / 1000
	}
	return Times{P50: at(50), P99: at(99)}
}
