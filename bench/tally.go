package main

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"duly.dev/duly/examples/drone"
)

// histogramMax is the highest latency of a histogram, in microseconds; three digits are
// kept.
const histogramMax = int64(10 * time.Minute / time.Microsecond)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, histogramMax, 3) }

func record(h *hdrhistogram.Histogram, ns int64) {
	_ = h.RecordValue(min(max(1, ns/1000), histogramMax)) // within its bounds
}

func quantilesOf(h *hdrhistogram.Histogram) Quantiles {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Quantiles{P50: ms(h.ValueAtQuantile(50)), P99: ms(h.ValueAtQuantile(99)), P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max())}
}

// bucketsOf sums a histogram up in steps of a tenth of a decade's doubling: fine
// enough to look at.
func bucketsOf(name string, h *hdrhistogram.Histogram) Histogram {
	out := Histogram{Name: name}
	for limit, bars, i := 0.1, h.Distribution(), 0; i < len(bars); limit *= 1.25 {
		n := int64(0)
		for ; i < len(bars) && float64(bars[i].To)/1000 <= limit; i++ {
			n += bars[i].Count
		}
		if n > 0 || len(out.Buckets) > 0 {
			out.Buckets = append(out.Buckets, Bucket{UpToMS: limit, Count: n})
		}
		if limit > float64(histogramMax) {
			break
		}
	}
	for len(out.Buckets) > 0 && out.Buckets[len(out.Buckets)-1].Count == 0 {
		out.Buckets = out.Buckets[:len(out.Buckets)-1]
	}
	return out
}

// loadReport is what the generator measured.
type loadReport struct {
	Result
	MeasuredEnded  int // ends of measured tasks until the load stopped
	MeasuredInTime int // of those, processed in time
}

// second gathers what happened in one second.
type second struct {
	Point
	submit, end *hdrhistogram.Histogram
}

// tally works the notes of a run out. Times count from the measured load's
// beginning, which comes after the warm-up.
type tally struct {
	g                     *generator
	zero                  int64 // ns from the generator's beginning to the measured load's
	first                 int   // the first measured arrival
	seconds               []*second
	submit, end, overhead *hdrhistogram.Histogram
	late                  *hdrhistogram.Histogram
	endOf                 []int // place of each arrival's end; -1: it has none
	report                loadReport
}

func (g *generator) report(load loadDone) (*loadReport, error) {
	t := &tally{g: g, zero: load.Began - g.began.UnixNano(), submit: newHistogram(), end: newHistogram(), overhead: newHistogram(), late: newHistogram()}
	for t.first < g.sent && g.plan.segments[g.plan.segmentOf(t.first)].Warm {
		t.first++
	}
	t.answers()
	if err := t.ends(load); err != nil {
		return nil, err
	}
	r := &t.report
	r.Offered, r.Reasons = g.sent-t.first, g.reasons.list()
	if g.settings.Window != (span{}) {
		r.Window = t.window(span{time.Duration(t.zero) + g.settings.Window.From, time.Duration(t.zero) + g.settings.Window.To})
	}
	r.Submit, r.EndToEnd, r.Overhead, r.GeneratorLate = quantilesOf(t.submit), quantilesOf(t.end), quantilesOf(t.overhead), quantilesOf(t.late)
	r.Histogram = []Histogram{bucketsOf("submit", t.submit), bucketsOf("end_to_end", t.end), bucketsOf("overhead", t.overhead)}
	t.timeline()
	if g.settings.plain() {
		return r, nil
	}
	return r, g.writeAccepted()
}

// in is the second of a time since the generator began; nil: before the
// measured load.
func (t *tally) in(ns int64) *second {
	if ns < t.zero {
		return nil
	}
	i := int((ns - t.zero) / int64(time.Second))
	for len(t.seconds) <= i {
		t.seconds = append(t.seconds, &second{Point: Point{Second: len(t.seconds)}, submit: newHistogram(), end: newHistogram()})
	}
	return t.seconds[i]
}

// answers goes through the submissions.
func (t *tally) answers() {
	g := t.g
	for i := t.first; i < g.sent; i++ {
		due := int64(g.plan.at(i))
		record(t.late, g.late[i])
		if s := t.in(due); s != nil {
			s.Offered++
		}
		at := g.answered[i]
		if g.timedOut(i) {
			t.report.TimedOut++
		}
		if g.state[i] == unanswered || g.state[i] == heldBack {
			continue
		}
		record(t.submit, at-due)
		s := t.in(at)
		if s != nil {
			record(s.submit, at-due)
		}
		if g.state[i] == refused {
			t.report.Refused++
			if s != nil {
				s.Refused++
			}
			continue
		}
		t.report.Accepted++
		if s != nil {
			s.Accepted++
		}
	}
}

// ends goes through the ends of tasks and finds each one's submission.
func (t *tally) ends(load loadDone) error {
	g := t.g
	services, err := drone.NewServices(drone.ServiceOptions{Seed: g.settings.Seed, Scale: g.settings.Scale})
	if err != nil {
		return err
	}
	t.endOf = make([]int, g.sent)
	index := make(map[[idBytes]byte]int, g.sent)
	for i := range g.sent {
		index[[idBytes]byte(g.ids[i*idBytes:])] = i
		t.endOf[i] = -1
	}
	stopped := load.Stopped - g.began.UnixNano()
	for k, at := range g.endedAt {
		id := g.endedIDs[k*idBytes : (k+1)*idBytes]
		i, ok := index[[idBytes]byte(id)]
		if !ok { // a second event of one end
			continue
		}
		delete(index, [idBytes]byte(id))
		t.endOf[i] = k
		if g.endedAs[k] == endRefused {
			g.state[i] = refused
		}
		if i < t.first { // of the warm-up
			continue
		}
		took := at - int64(g.plan.at(i))
		inTime := g.inTime(k, took)
		if t.count(k, inTime); g.endedAs[k] == endRefused {
			continue
		}
		record(t.end, took)
		record(t.overhead, took-int64(services.FirstLatencies(string(id))))
		if at <= stopped {
			t.report.MeasuredEnded++
			if inTime {
				t.report.MeasuredInTime++
			}
		}
		if s := t.in(at); s != nil {
			s.Ended++
			if inTime {
				s.InTime++
			}
			record(s.end, took)
		}
	}
	return nil
}

// count counts the end at a place.
func (t *tally) count(k int, inTime bool) {
	r := &t.report
	switch t.g.endedAs[k] {
	case endProcessed:
		r.Processed++
		if !inTime {
			r.Late++
		}
	case endUndone:
		r.Undone++
	case endExpired:
		r.Expired++
	case endError:
		r.Error++
	case endRefused: // after the stream had stored it
		r.Refused++
		r.Accepted--
	}
}

// timeline adds the seconds up.
func (t *tally) timeline() {
	backlog := 0
	for _, s := range t.seconds {
		backlog += s.Accepted - s.Ended
		s.Backlog = backlog
		t.report.BacklogMax = max(t.report.BacklogMax, backlog)
		if q := quantilesOf(s.submit); s.submit.TotalCount() > 0 {
			s.SubmitP50, s.SubmitP99 = q.P50, q.P99
		}
		if q := quantilesOf(s.end); s.end.TotalCount() > 0 {
			s.EndToEndP50, s.EndToEndP99 = q.P50, q.P99
		}
		t.report.Timeline = append(t.report.Timeline, s.Point)
	}
}
