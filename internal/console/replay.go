package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/replay"
	"duly.dev/duly/internal/say"
)

// Limits of the time machine.
const (
	replayRowsMax = 20_000          // journal rows of a task that it opens
	shiftMax      = 24 * time.Hour  // by which an answer is thought to have come at another time
	shiftDefault  = 200             // ms
	rowsAround    = 3               // rows that are shown before and after one
	stripParts    = 240             // of the strip that shows where trouble was
	peersShown    = 5               // tasks that are offered for a comparison
	recordingFor  = 4 * time.Second // how long one reading serves the moves of the slider
	recordingsMax = 8               // that are kept at a time
	recordingKept = 8 << 20         // bytes: a longer one is read again for each move
	recordingRead = 2               // that are read at a time: the next one waits
	rowBytes      = 256             // of a row in memory, besides its texts
)

// recording is a task with its plan and all of its journal, as read at one time.
type recording struct {
	view  core.View
	plan  *core.Plan // nil: it is not known here
	saved *core.Saved
	at    time.Time
}

// recordings keeps the newest for the next moves of a slider.
type recordings struct {
	slots chan struct{}

	mu  sync.Mutex
	all map[string]*recording // by type/id
}

func newRecordings() recordings {
	return recordings{slots: make(chan struct{}, recordingRead), all: map[string]*recording{}}
}

func (k *recordings) get(name string, now time.Time) *recording {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.all[name]; r != nil && now.Sub(r.at) < recordingFor && !now.Before(r.at) {
		return r
	}
	delete(k.all, name)
	return nil
}

// put keeps a recording, unless it is too long; of too many the oldest goes.
func (k *recordings) put(name string, r *recording) {
	size := len(r.saved.Row.Input)
	for i := range r.saved.Journal {
		j := &r.saved.Journal[i]
		size += rowBytes + len(j.Error) + len(j.Reason) + len(j.Result) + len(j.Input)
	}
	if size > recordingKept {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, old := range k.all { // what is over is not held on to
		if r.at.Sub(old.at) >= recordingFor {
			delete(k.all, name)
		}
	}
	k.all[name] = r
	for len(k.all) > recordingsMax {
		oldest := ""
		for name, r := range k.all {
			if oldest == "" || r.at.Before(k.all[oldest].at) {
				oldest = name
			}
		}
		delete(k.all, oldest)
	}
}

// recording reads a task with its journal, or takes what was read a moment ago.
func (c *console) recording(ctx context.Context, taskType, id string) (*recording, error) {
	name := taskType + "/" + id
	if r := c.recordings.get(name, c.Now()); r != nil {
		return r, nil
	}
	select {
	case c.recordings.slots <- struct{}{}:
		defer func() { <-c.recordings.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := c.Now()
	if r := c.recordings.get(name, now); r != nil { // read while this one waited
		return r, nil
	}
	v, err := c.viewOf(ctx, taskType, id)
	if err != nil {
		return nil, err
	}
	if v.Seq > replayRowsMax {
		return nil, &operate.Refusal{Code: http.StatusUnprocessableEntity, Detail: say.Of("replay.too-long", "task", v.ID, "rows", number(v.Seq), "most", number(replayRowsMax))}
	}
	plan, err := c.planOf(ctx, v.Type, v.PlanVersion)
	if err != nil {
		return nil, err
	}
	saved, err := c.Operations.Saved(ctx, v.Partition, []int64{v.Number})
	if err != nil {
		return nil, fmt.Errorf("journal of task %s: %w", v.ID, err)
	}
	if len(saved) == 0 || len(saved[0].Journal) == 0 {
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("replay.forgotten", "task", v.ID)}
	}
	r := &recording{view: v, plan: plan, saved: &saved[0], at: now}
	c.recordings.put(name, r)
	return r, nil
}

// rows is how many journal rows there are.
func (r *recording) rows() int64 { return int64(len(r.saved.Journal)) }

// seek is the frame of one row, and the task as the pages would have shown it then.
func (r *recording) seek(seq int64) (replay.Frame, core.View, error) {
	frames, err := replay.Frames(r.plan, r.saved, seq, seq)
	if err != nil {
		return replay.Frame{}, core.View{}, err
	}
	f := frames[0]
	return f, f.Task.View(r.plan, r.saved.Journal[:seq], f.At), nil
}

// around are the rows near one, newest first as in the journal.
func (r *recording) around(seq int64) []journalRow {
	from, to := max(1, seq-rowsAround), min(r.rows(), seq+rowsAround)
	var near []core.Record
	for i := to; i >= max(1, from-1); i-- { // one more: whether its clock went back is said by the row before
		near = append(near, r.saved.Journal[i-1])
	}
	return journalOf(r.plan, near)[:to-from+1]
}

// classOf is how a row of the kind is shown.
func classOf(k core.Kind) string { return cmp.Or(kinds[k], "calm") }

func trouble(k core.Kind) bool { return classOf(k) == "bad" || classOf(k) == "warn" }

// troubles are the nearest rows before and after one that tell of trouble; 0: there is none.
func (r *recording) troubles(seq int64) (before, after int64) {
	for i := seq - 1; i >= 1 && before == 0; i-- {
		if trouble(r.saved.Journal[i-1].Kind) {
			before = i
		}
	}
	for i := seq + 1; i <= r.rows() && after == 0; i++ {
		if trouble(r.saved.Journal[i-1].Kind) {
			after = i
		}
	}
	return before, after
}

// strip draws the journal as one line, each part by the worst of its rows. The table of rows says it in words.
func (r *recording) strip() template.HTML {
	worst := map[string]int{"calm": 0, "good": 1, "warn": 2, "bad": 3}
	n := int64(len(r.saved.Journal))
	parts := min(n, stripParts)
	var b strings.Builder
	b.WriteString(`<svg class="strip" height="10" aria-hidden="true" focusable="false">`)
	for p := range parts {
		class := "calm"
		for i := p * n / parts; i < (p+1)*n/parts; i++ {
			if look := classOf(r.saved.Journal[i].Kind); worst[look] > worst[class] {
				class = look
			}
		}
		// The middle of a part is where the slider stands at it.
		wide := 100 / max(0.5, float64(parts-1))
		fmt.Fprintf(&b, `<rect class="%s" x="%.3f%%" width="%.3f%%" height="10"/>`, class, (float64(p)-0.5)*wide, wide)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// oldestFirst goes through records that are newest first.
func oldestFirst(records []core.Record) iter.Seq[*core.Record] {
	return func(yield func(*core.Record) bool) {
		for i := len(records) - 1; i >= 0; i-- {
			if !yield(&records[i]) {
				return
			}
		}
	}
}

// each goes through records in their order.
func each(records []core.Record) iter.Seq[*core.Record] {
	return func(yield func(*core.Record) bool) {
		for i := range records {
			if !yield(&records[i]) {
				return
			}
		}
	}
}

// shift is what is asked about an answer that comes at another time, and what the core says to it.
type shift struct {
	MS    int64
	Later bool
	Asked bool
	Frame *replay.Frame // what would have been decided; nil: nothing
	State core.State    // of the task then
	Same  bool          // it leads to the same, at other times
	Bad   string        // why there is no answer
}

// shiftOf reads the question.
func shiftOf(q url.Values) (shift, *operate.Refusal) {
	s := shift{MS: shiftDefault}
	bad := func(field, format string, args ...any) *operate.Refusal {
		return &operate.Refusal{Code: http.StatusBadRequest, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	if text := q.Get("ms"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > shiftMax.Milliseconds() {
			return s, bad("ms", "ms is %s, want 0 to %d.", core.QuoteShort(text), shiftMax.Milliseconds())
		}
		s.MS, s.Asked = n, true
	}
	switch come := q.Get("come"); come {
	case "", "earlier":
	case "later":
		s.Later = true
	default:
		return s, bad("come", "come is %s, want earlier or later.", core.QuoteShort(come))
	}
	return s, nil
}

// answer asks the core.
func (s *shift) answer(r *recording, was *replay.Frame) {
	if !s.Asked {
		return
	}
	by := time.Duration(s.MS) * time.Millisecond
	if s.Later {
		by = -by
	}
	f, err := replay.WhatIf(r.plan, r.saved, was.Seq, by)
	if err != nil {
		s.Bad = sentence(err.Error())
		return
	}
	s.Frame, s.State = &f, f.Task.State
	s.Same = f.Kind == was.Kind && sameStand(f.Task, was.Task)
}

// sameStand reports whether two tasks of one plan stand alike, whatever the times.
func sameStand(a, b *core.Task) bool {
	if a.State != b.State || a.Out() != b.Out() || len(a.Steps) != len(b.Steps) {
		return false
	}
	for i := range a.Steps {
		if a.Steps[i].Status != b.Steps[i].Status || a.Steps[i].Attempt != b.Steps[i].Attempt {
			return false
		}
	}
	return true
}

// sentence makes a sentence of an error's text.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// rowOf reads which journal row of so many is asked for.
func rowOf(text string, rows int64) (int64, *operate.Refusal) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > rows {
		return 0, &operate.Refusal{Code: http.StatusBadRequest, Field: "at", Detail: fmt.Sprintf("at is %s, want a journal row of 1 to %d.", core.QuoteShort(text), rows)}
	}
	return n, nil
}

type replayData struct {
	View   core.View // as it is now
	Rows   int64
	Strip  template.HTML
	Frame  replay.Frame
	Class  string
	Then   core.View // as it was after the row
	Before int64     // the nearest row of trouble before; 0: none
	After  int64
	Steps  stepsData
	Trail  trail
	Around []journalRow
	Shift  shift
	Input  *document
	Result *document
}

// At is the row that is shown.
func (d *replayData) At() int64 { return d.Frame.Seq }

// Back and Forward are the rows beside it; at an end, the end itself.
func (d *replayData) Back() int64    { return max(1, d.Frame.Seq-1) }
func (d *replayData) Forward() int64 { return min(d.Rows, d.Frame.Seq+1) }

// Say is the row in one sentence, for who does not see the page change.
func (d *replayData) Say() string {
	return fmt.Sprintf("Row %s of %s: %s %s", number(d.Frame.Seq), number(d.Rows), d.Frame.Happened, d.Frame.Decided)
}

// replay is the time machine: a task as it was after one row of its journal, what was decided there, and why.
func (c *console) replay(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	s, bad := shiftOf(q)
	if bad != nil {
		return page{}, bad
	}
	rec, err := c.recording(ctx, r.PathValue("type"), r.PathValue("id"))
	if err != nil {
		return page{}, err
	}
	d := &replayData{View: rec.view, Rows: rec.rows(), Strip: rec.strip(), Shift: s}
	at := d.Rows
	if text := q.Get("at"); text != "" {
		if at, bad = rowOf(text, d.Rows); bad != nil {
			return page{}, bad
		}
	}
	if d.Frame, d.Then, err = rec.seek(at); err != nil {
		return page{}, fmt.Errorf("task %s: %w", rec.view.ID, err)
	}
	d.Class = classOf(d.Frame.Kind)
	d.Before, d.After = rec.troubles(at)
	d.Around = rec.around(at)
	d.Shift.answer(rec, &d.Frame)
	base := c.taskURL(rec.view.Type, rec.view.ID)
	then := fmt.Sprintf("&at=%d", at)
	d.Steps = stepsOf(rec.plan, &d.Then, "", say.Of("graph.replay", "plan", d.Then.Type, "version", d.Then.PlanVersion, "row", at))
	d.Steps.Exact = true
	d.Trail = newTrail(rec.plan, &d.Then, each(rec.saved.Journal[:at]), false)
	if d.Input = documentOf("input", say.Of("replay.input"), d.Then.Input, base+"/payload?of=input"+then); d.Input != nil {
		d.Input.Fold = true
	}
	if row := &rec.saved.Journal[at-1]; len(row.Result) > 0 {
		name := stepName(rec.plan, row.Step)
		d.Result = documentOf("result", "Result of "+name, row.Result, base+"/payload?of="+url.QueryEscape(name)+then)
	}
	return page{Title: fmt.Sprintf("Row %d of %s/%s", at, rec.view.Type, rec.view.ID), Data: d}, nil
}

// compareSide is one of two tasks where they part.
type compareSide struct {
	View  core.View
	Frame *replay.Frame // nil: it has no further row
	Then  core.View
	Graph template.HTML
	Rows  []journalRow
}

type compareData struct {
	View  core.View
	With  string // id of the other
	Bad   string
	Same  int64
	Equal bool
	Sides []compareSide
	Peers []core.View // of the same plan version, to choose from
}

// compare shows the first row at which two tasks of one plan part.
func (c *console) compare(ctx context.Context, r *http.Request) (page, error) {
	a, err := c.recording(ctx, r.PathValue("type"), r.PathValue("id"))
	if err != nil {
		return page{}, err
	}
	d := &compareData{View: a.view, With: strings.TrimSpace(r.URL.Query().Get("with"))}
	p := page{Title: "Compare " + a.view.Type + "/" + a.view.ID, Data: d}
	if i := strings.LastIndexByte(d.With, '/'); i >= 0 {
		d.With = d.With[i+1:]
	}
	if d.With == "" {
		d.Peers, err = c.peers(ctx, &a.view)
		return p, err
	}
	b, err := c.recording(ctx, a.view.Type, d.With)
	refusal := new(operate.Refusal)
	if errors.As(err, &refusal) {
		d.Bad, p.Code = refusal.Detail, refusal.Code
		d.Peers, err = c.peers(ctx, &a.view)
		return p, err
	}
	if err != nil {
		return p, err
	}
	parting, err := replay.Diff(a.plan, a.saved, b.saved)
	if err != nil {
		d.Bad, p.Code = sentence(err.Error()), http.StatusUnprocessableEntity
		d.Peers, err = c.peers(ctx, &a.view)
		return p, err
	}
	d.Same, d.Equal = parting.Same, parting.A == nil && parting.B == nil
	for _, s := range []struct {
		rec *recording
		f   *replay.Frame
	}{{a, parting.A}, {b, parting.B}} {
		side := compareSide{View: s.rec.view, Frame: s.f}
		at := min(parting.Same+1, s.rec.rows())
		if s.f != nil {
			side.Then = s.f.Task.View(s.rec.plan, s.rec.saved.Journal[:at], s.f.At)
			side.Graph = taskGraph(s.rec.plan, &side.Then).SVG(say.Of("replay.graph", "task", s.rec.view.ID, "row", at))
		}
		side.Rows = s.rec.around(at)
		d.Sides = append(d.Sides, side)
	}
	return p, nil
}

// peers are tasks of the same plan version that came to another end, newest first.
func (c *console) peers(ctx context.Context, v *core.View) ([]core.View, error) {
	f := core.Filter{Type: v.Type, State: core.StateProcessed, Limit: rowsOfList}
	if v.State == core.StateProcessed {
		f.State = core.StateError
	}
	list, err := c.Reader.List(ctx, f)
	if err != nil {
		return nil, err
	}
	var all []core.View
	for i := range list.Tasks {
		if t := &list.Tasks[i]; t.PlanVersion == v.PlanVersion && t.ID != v.ID && len(all) < peersShown {
			all = append(all, *t)
		}
	}
	return all, nil
}
