package console

import (
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

const (
	idleShare = 0.15 // of all busy time: a stretch without an attempt that is longer is drawn shorter
	idleDrawn = 0.04 // of the width, at most, that such a stretch takes
	tickApart = 7.0  // per cent between two labels
	tickEnd   = 95.0 // per cent from which a label ends at its time
)

// span is an attempt or a wait of one step.
type span struct {
	Step     int // -1: of the task as a whole
	Wait     bool
	Undo     bool
	Try      int
	From, To core.Instant // To 0: it goes on
	Due      core.Instant // complete-by of an attempt; when a wait ends
	End      string       // how it ended: a kind, or empty
	Text     string
	Began    bool // before what this page shows
}

// timeline is when things happened to a task, true to time.
type timeline struct {
	plan     *core.Plan
	spans    []span
	lanes    []int // steps that have spans, in order; -1 is the task
	from, to core.Instant
	end      core.Instant // of what goes on, as far as it is known
	now      core.Instant // 0: newer rows are not shown
	deadline core.Instant
	skews    []string
	breaks   []stretch
	total    float64 // of drawn time
}

// stretch is an idle time that is drawn shorter.
type stretch struct {
	from, to core.Instant
	drawn    float64
}

// newTimeline reads spans out of journal rows, newest first. Time never runs backwards in it: a row whose clock is behind
// the row before it is put at that row's time, and named. now is 0 where there are newer rows.
func newTimeline(p *core.Plan, v *core.View, records []core.Record, now core.Instant) *timeline {
	t := &timeline{plan: p, now: now, deadline: v.CompleteBy}
	if len(records) == 0 {
		return nil
	}
	rows := slices.Clone(records)
	slices.Reverse(rows)
	partial := rows[0].Seq > 1
	open := map[int]*span{}
	seen := map[int]bool{} // steps that rows of this page were about
	at := rows[0].At
	t.from = at
	ends := func(step int, kind core.Kind, text string) {
		s := open[step]
		if s == nil {
			return
		}
		s.To, s.End = at, string(kind)
		if !s.Wait { // whose text says what it waits for
			s.Text = text
		}
		t.spans = append(t.spans, *s)
		delete(open, step)
	}
	for i := range rows {
		r := &rows[i]
		if r.At < at {
			t.skews = append(t.skews, say.Of("timeline.clock", "row", r.Seq, "time", duration(at.Sub(r.At)), "before", r.Seq-1, "at", r.Seq-1))
		}
		at = max(at, r.At)
		text := r.Error
		if text == "" {
			text = r.Reason
		}
		if r.Step >= 0 {
			if partial && !seen[r.Step] && open[r.Step] == nil && r.Attempt > 0 {
				open[r.Step] = &span{Step: r.Step, Try: r.Attempt, From: t.from, Began: true}
			}
			seen[r.Step] = true
			ends(r.Step, r.Kind, text)
			again := r.StepStatus == core.StepWaiting || r.StepStatus == core.StepUndoing
			if again && r.Next != r.Step && !r.State.Ended() {
				why := say.Of("timeline.backoff")
				if r.Kind == core.KindUnserved || r.Kind == core.KindUndoUnserved {
					why = say.Of("timeline.agent")
				}
				open[r.Step] = &span{Step: r.Step, Wait: true, From: at, Due: r.Due, Text: why}
			}
		}
		if r.Next >= 0 {
			seen[r.Next] = true
			ends(r.Next, r.Kind, "")
			ends(-1, r.Kind, "")
			open[r.Next] = &span{Step: r.Next, Undo: r.Undo, Try: r.NextAttempt, From: at, Due: r.Due}
		}
		if r.State == core.StatePending && open[-1] == nil {
			open[-1] = &span{Step: -1, Wait: true, From: at, Text: say.Of("timeline.parked")}
		}
		if r.State.Ended() {
			for step := range open {
				ends(step, r.Kind, text)
			}
		}
	}
	t.end = at
	if !v.State.Ended() {
		t.end = max(at, now)
	}
	t.to = t.end
	for _, s := range open {
		t.spans = append(t.spans, *s)
	}
	slices.SortFunc(t.spans, func(a, b span) int {
		if a.From != b.From {
			return int(max(-1, min(1, a.From-b.From)))
		}
		return a.Step - b.Step
	})
	for i := range t.spans {
		if !slices.Contains(t.lanes, t.spans[i].Step) {
			t.lanes = append(t.lanes, t.spans[i].Step)
		}
	}
	slices.Sort(t.lanes)
	t.scale()
	return t
}

// until is the end of a span that may go on.
func (t *timeline) until(s *span) core.Instant {
	if s.To == 0 {
		return max(t.end, s.From)
	}
	return s.To
}

// scale finds stretches in which nothing was at work, and how long they are drawn.
func (t *timeline) scale() {
	type edge struct {
		at core.Instant
		by int
	}
	var edges []edge
	marks := []core.Instant{t.from, t.to} // where something is to be seen besides attempts
	for i := range t.spans {
		s := &t.spans[i]
		marks = append(marks, s.From, t.until(s))
		if !s.Wait {
			edges = append(edges, edge{s.From, 1}, edge{t.until(s), -1})
		}
	}
	if t.deadline > t.to {
		t.to = min(t.deadline, t.to.Add(24*time.Hour*365))
		marks = append(marks, t.to)
	}
	slices.Sort(marks)
	marks = slices.Compact(marks)
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return b.by - a.by
	})
	var idle []stretch
	busy, running, e := core.Instant(0), 0, 0
	for i := 1; i < len(marks); i++ {
		for ; e < len(edges) && edges[e].at <= marks[i-1]; e++ {
			running += edges[e].by
		}
		if running > 0 {
			busy += marks[i] - marks[i-1]
		} else {
			idle = append(idle, stretch{from: marks[i-1], to: marks[i]})
		}
	}
	t.total = float64(busy)
	long := max(float64(busy)*idleShare, float64(time.Millisecond/time.Microsecond))
	for _, s := range idle {
		if length := float64(s.to - s.from); length <= long {
			t.total += length
		} else {
			t.breaks = append(t.breaks, s)
		}
	}
	if t.total == 0 {
		t.total = 1
	}
	for i := range t.breaks {
		share := min(idleDrawn, 0.5/float64(len(t.breaks)))
		t.breaks[i].drawn = t.total * share
	}
	for i := range t.breaks {
		t.total += t.breaks[i].drawn
	}
}

// x is the place of a time, in per cent of the width.
func (t *timeline) x(at core.Instant) float64 {
	at = max(t.from, min(at, t.to))
	x := float64(at - t.from)
	for _, b := range t.breaks {
		if at <= b.from {
			break
		}
		within := float64(min(at, b.to) - b.from)
		x += within/float64(b.to-b.from)*b.drawn - within
	}
	return max(0, min(100, 100*x/t.total))
}

// lane is one row of the timeline.
type lane struct {
	Name string
	Step int
	SVG  template.HTML
}

// Lanes draws one row a step.
func (t *timeline) Lanes() []lane {
	var all []lane
	for _, step := range t.lanes {
		l := lane{Name: stepName(t.plan, step), Step: step}
		if step < 0 {
			l.Name = "the task"
		}
		var b strings.Builder
		fmt.Fprintf(&b, `<svg class="lane" height="26" role="img" aria-label="%s">`, html.EscapeString(say.Of("timeline.lane", "name", l.Name)))
		t.background(&b)
		for i := range t.spans {
			if s := &t.spans[i]; s.Step == step {
				t.bar(&b, s)
			}
		}
		b.WriteString(`</svg>`)
		l.SVG = template.HTML(b.String())
		all = append(all, l)
	}
	return all
}

func (t *timeline) background(b *strings.Builder) {
	for _, s := range t.breaks {
		fmt.Fprintf(b, `<rect class="gap" x="%.3f%%" width="%.3f%%" y="0" height="26"/>`, t.x(s.from), t.x(s.to)-t.x(s.from))
	}
	if t.deadline >= t.from && t.deadline <= t.to {
		fmt.Fprintf(b, `<line class="deadline" x1="%.3f%%" x2="%.3f%%" y1="0" y2="26"/>`, t.x(t.deadline), t.x(t.deadline))
	}
	if t.now >= t.from && t.now < t.to {
		fmt.Fprintf(b, `<line class="now" x1="%.3f%%" x2="%.3f%%" y1="0" y2="26"/>`, t.x(t.now), t.x(t.now))
	}
}

func (t *timeline) bar(b *strings.Builder, s *span) {
	from, to := t.x(s.From), t.x(t.until(s))
	class := "try " + s.look()
	if s.Wait {
		class = "wait"
	}
	if s.Undo {
		class += " undo"
	}
	fmt.Fprintf(b, `<g class="%s"><title>%s</title>`, class, html.EscapeString(t.words(s)))
	y, height := 6, 14
	if s.Wait {
		y, height = 11, 4
	}
	fmt.Fprintf(b, `<rect x="%.3f%%" width="%.3f%%" y="%d" height="%d" rx="2"/>`, from, max(0.25, to-from), y, height)
	if !s.Wait && s.Due != 0 && s.Due >= t.from && s.Due <= t.to {
		fmt.Fprintf(b, `<line class="due" x1="%.3f%%" x2="%.3f%%" y1="3" y2="23"/>`, t.x(s.Due), t.x(s.Due))
	}
	b.WriteString(`</g>`)
}

// look is the colour of an attempt by how it ended.
func (s *span) look() string {
	switch core.Kind(s.End) {
	case "":
		return "busy"
	case core.KindDone:
		return "good"
	case core.KindUndone, core.KindUndoLate:
		return "calm"
	case core.KindOverdue, core.KindUndoOverdue, core.KindUnserved, core.KindUndoUnserved:
		return "warn"
	case core.KindFailed, core.KindRefused, core.KindUndoFailed, core.KindUndoRefused, core.KindUndoGaveUp, core.KindPoisoned:
		return "bad"
	}
	return "calm"
}

func (s *span) what() string {
	switch {
	case s.Wait:
		return s.Text
	case s.Undo:
		return fmt.Sprintf("undo, attempt %d", s.Try)
	}
	return fmt.Sprintf("attempt %d", s.Try)
}

func (t *timeline) words(s *span) string {
	text := stepName(t.plan, s.Step)
	if text == "" {
		text = "the task"
	}
	text += ", " + s.what() + ": " + duration(t.until(s).Sub(s.From))
	if s.To == 0 && t.now == 0 {
		text += ", " + say.Of("timeline.later")
	} else if s.To == 0 {
		text += " so far"
	} else if !s.Wait {
		text += ", " + endWord(s.End)
	}
	return text
}

func endWord(kind string) string {
	if kind == "" {
		return ""
	}
	return say.Of("journal." + kind)
}

// spanRow is a span in the table.
type spanRow struct {
	Step, What, End, Text, Late string
	From                        core.Instant
	Took                        string
	Due                         core.Instant
	Class                       string
}

// Rows is the timeline as a table.
func (t *timeline) Rows() []spanRow {
	all := make([]spanRow, len(t.spans))
	for i := range t.spans {
		s := &t.spans[i]
		row := spanRow{Step: stepName(t.plan, s.Step), What: s.what(), From: s.From, Took: duration(t.until(s).Sub(s.From)), Due: s.Due, Class: s.look()}
		if row.Step == "" {
			row.Step = "the task"
		}
		switch {
		case s.To == 0 && t.now == 0:
			row.End, row.Took = say.Of("timeline.later"), row.Took+" or more"
		case s.To == 0:
			row.End, row.Took = "goes on", row.Took+" so far"
		case s.Wait:
			row.End, row.Class = "over", "calm"
		default:
			row.End, row.Text = endWord(s.End), s.Text
		}
		if s.Began {
			row.What += " " + say.Of("timeline.earlier")
		}
		all[i] = row
	}
	return all
}

// tick is a label of the time axis.
type tick struct {
	X      string // in per cent
	Anchor string
	Text   string
}

// Ticks are the labels of the axis: times since the first row shown.
func (t *timeline) Ticks() []tick {
	at := []core.Instant{t.from}
	for _, b := range t.breaks {
		at = append(at, b.from, b.to)
	}
	for i := 1; i < 6; i++ {
		// The time at this share of the width, found by halving.
		low, high, want := t.from, t.to, float64(i)*100/6
		for high-low > 1 {
			if mid := low + (high-low)/2; t.x(mid) < want {
				low = mid
			} else {
				high = mid
			}
		}
		at = append(at, high)
	}
	at = append(at, t.to)
	// The first, the last and the edges of breaks go before the rest.
	var all []tick
	var taken []float64
	add := func(i core.Instant) {
		x := t.x(i)
		for _, other := range taken {
			apart := tickApart
			if max(x, other) > tickEnd { // all of that label is left of its time
				apart *= 1.5
			}
			if x-other < apart && other-x < apart {
				return
			}
		}
		taken = append(taken, x)
		k := tick{X: fmt.Sprintf("%.3f%%", x), Anchor: "middle", Text: "+" + duration(i.Sub(t.from))}
		if i == t.from {
			k.Text = "0"
		}
		if x < 3 {
			k.Anchor = "start"
		} else if x > tickEnd {
			k.Anchor = "end"
		}
		all = append(all, k)
	}
	add(t.from)
	add(t.to)
	for _, i := range at[1 : len(at)-1] {
		add(i)
	}
	return all
}

// Gaps are the stretches that are drawn shorter, in words.
func (t *timeline) Gaps() []string {
	var all []string
	for _, b := range t.breaks {
		all = append(all, fmt.Sprintf("%s without a try, from +%s", duration(b.to.Sub(b.from)), duration(b.from.Sub(t.from))))
	}
	return all
}

// Skews are rows whose clock was behind.
func (t *timeline) Skews() []string { return t.skews }

// Deadline is the task's, and whether the axis reaches it.
func (t *timeline) Deadline() core.Instant { return t.deadline }
