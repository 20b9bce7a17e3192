package main

import "time"

// span is from a time on and before another, in nanoseconds since the measured load began.
type span struct{ From, To time.Duration }

func (s span) has(ns int64) bool { return ns >= int64(s.From) && ns < int64(s.To) }

// Window counts what happened in a part of a load, each thing when it happened: what is processed in it may have arrived
// before. A window that begins late enough thereby has none of what an empty queue took at first, and one that ends with the
// load nothing of what is drained after it.
type Window struct {
	Seconds  float64 `json:"seconds"`
	Offered  int     `json:"offered"`   // by the schedule
	HeldBack int     `json:"held_back"` // of those: never sent, because their clients were told to wait
	Refused  int     `json:"refused"`   // also what had no answer within 5 s
	TimedOut int     `json:"timed_out"` // of those: had none
	Taken    int     `json:"taken"`
	InTime   int     `json:"in_time"` // processed by its deadline, as its submitter's clock has it
	Late     int     `json:"late"`    // processed after it
	Undone   int     `json:"undone"`
	Expired  int     `json:"expired"` // undone before anything of it was called
	Error    int     `json:"error"`

	EndToEnd   Quantiles `json:"end_to_end_ms"` // of what was processed in time, from the scheduled time
	First      Share     `json:"first_tenant"`
	Others     Share     `json:"other_tenants"`
	CameAgain  int       `json:"came_again"`  // tries of the whole load by clients that were refused and told when to come
	TakenAgain int       `json:"taken_again"` // arrivals that such a try was taken of
}

// Share is what some tenants had.
type Share struct {
	Offered int `json:"offered"`
	InTime  int `json:"in_time"`
}

// window counts what happened from one time to another since the generator began.
func (t *tally) window(in span) *Window {
	g, took := t.g, newHistogram()
	w := &Window{Seconds: (in.To - in.From).Seconds(), CameAgain: g.clients.cameAgain}
	for i := range g.sent {
		due := int64(g.plan.at(i))
		tenant := &w.Others
		if tenantOf(i, g.settings.FirstShare) == 0 {
			tenant = &w.First
		}
		if in.has(due) {
			w.Offered++
			tenant.Offered++
		}
		if g.again[i] && g.state[i] == accepted {
			w.TakenAgain++
		}
		if t.answered(w, i, in) {
			continue // its client timed out: it counts as refused, whatever became of it
		}
		k := t.endOf[i]
		switch {
		case k < 0 || !in.has(g.endedAt[k]):
		case g.inTime(k, g.endedAt[k]-due):
			w.InTime++
			tenant.InTime++
			record(took, g.endedAt[k]-due)
		default:
			*[...]*int{endProcessed: &w.Late, endUndone: &w.Undone, endError: &w.Error, endRefused: &w.Refused, endExpired: &w.Expired}[g.endedAs[k]]++
		}
	}
	w.EndToEnd = quantilesOf(took)
	return w
}

// answered counts the answer to an arrival, and reports whether there was none in time.
func (t *tally) answered(w *Window, i int, in span) (none bool) {
	g := t.g
	switch {
	case g.timedOut(i):
		if in.has(g.sentAt[i] + int64(answerMax)) {
			w.Refused++
			w.TimedOut++
		}
		return true
	case !in.has(g.answered[i]):
	case g.state[i] == heldBack:
		w.HeldBack++
	case g.state[i] == refused && t.endOf[i] < 0: // else the stream had taken it
		w.Refused++
	default:
		w.Taken++
	}
	return false
}
