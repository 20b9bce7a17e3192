package console

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func fixedWorld() *world { return newWorld(func() time.Time { return noon }) }

func (w *world) page(t *testing.T, id string, before int64, limit int) (*core.Plan, *core.View, []core.Record) {
	t.Helper()
	l := w.find(id)
	rows, err := w.JournalPage(t.Context(), 0, l.view.Number, before, limit)
	if err != nil {
		t.Fatal(err)
	}
	return l.plan, &l.view, rows
}

// TestTimeline: time never runs backwards in it, a clock that is behind is named, idle stretches are drawn shorter with
// their true length, and what is drawn is in the table.
//
// covers: OP13
func TestTimeline(t *testing.T) {
	w := fixedWorld()
	for _, l := range w.tasks[:9] {
		plan, v, rows := w.page(t, l.view.ID, 0, 1000)
		tl := newTimeline(plan, v, rows, core.InstantOf(noon))
		last := -1.0
		for at := tl.from; at <= tl.to; at += max(1, (tl.to-tl.from)/997) {
			x := tl.x(at)
			if x < last || x < 0 || x > 100 {
				t.Fatalf("%s: x goes from %v to %v", v.ID, last, x)
			}
			last = x
		}
		for i := range tl.spans {
			s := &tl.spans[i]
			if tl.until(s) < s.From {
				t.Errorf("%s: span %d ends before it begins", v.ID, i)
			}
		}
		for _, row := range tl.Rows() {
			if strings.Contains(row.Took, "−") {
				t.Errorf("%s: %s took %s", v.ID, row.Step, row.Took)
			}
		}
	}
	plan, v, rows := w.page(t, "order-1002", 0, 1000)
	tl := newTimeline(plan, v, rows, core.InstantOf(noon))
	if len(tl.Skews()) != 1 || !strings.Contains(tl.Skews()[0], "Row 8 is dated 2.2 s before row 7") {
		t.Errorf("skews: %q", tl.Skews())
	}
	if gaps := tl.Gaps(); len(gaps) != 1 || !strings.HasPrefix(gaps[0], "20 min without a try") {
		t.Errorf("gaps: %q", gaps)
	}
	var what []string
	for _, row := range tl.Rows() {
		what = append(what, row.Step+" "+row.What+" "+row.Took)
	}
	want := []string{"check attempt 1 20 ms", "reserve attempt 1 35 ms", "charge attempt 1 1.2 s", "charge waits for its next attempt 900 ms", "charge attempt 2 8 s", "charge waits for its next attempt 20 min", "charge attempt 3 0 µs"}
	if !slices.Equal(what, want) {
		t.Errorf("rows:\n%s\nwant\n%s", strings.Join(what, "\n"), strings.Join(want, "\n"))
	}
	svg := string(tl.Lanes()[2].SVG)
	// What goes on has lasted until now, however far its deadline is; what a page of older rows leaves open does not go on.
	running, rv, rrows := w.page(t, "order-1005", 0, 1000)
	if all := newTimeline(running, rv, rrows, core.InstantOf(noon)).Rows(); all[len(all)-1].Took != "9 min 19 s so far" {
		t.Errorf("what goes on: %+v", all)
	}
	if body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"tasks/order/order-1002?before=6").Body.String(); strings.Contains(body, "goes on") || !strings.Contains(body, "ended after what is shown") {
		t.Error("an attempt that has ended goes on on a page of older rows")
	}
	for _, part := range []string{`class="due"`, `class="deadline"`, `class="gap"`} {
		if !strings.Contains(svg, part) {
			t.Errorf("the lane of charge has no %s", part)
		}
	}
}

// TestTicksApart: the label of the end, which stands left of it, has room beside that of an idle stretch.
//
// covers: OP13
func TestTicksApart(t *testing.T) {
	tl := timeline{to: 1000, total: 100}
	for from := core.Instant(20); from < 99; from++ {
		tl.breaks = []stretch{{from: from, to: 1000, drawn: 100 - float64(from)}}
		for _, k := range tl.Ticks() {
			if x, err := strconv.ParseFloat(strings.TrimSuffix(k.X, "%"), 64); err != nil || x > 89.5 && x < 100 {
				t.Errorf("an idle stretch from %d %%: a label at %s beside that of the end", from, k.X)
			}
		}
	}
}

// TestTimelinePages: 20,000 rows are paged from the end, and a page says what began before it.
//
// covers: OP13
func TestTimelinePages(t *testing.T) {
	w := fixedWorld()
	plan := &w.plansAll[0]
	l := w.born(plan, "long-life", 20*time.Hour, `{}`)
	for range 10_000 {
		l.fails(time.Second, 0, 500, "again", time.Second)
	}
	short := w.born(plan, "short-life", 20*time.Hour, `{}`)
	for range 500 {
		short.fails(time.Second, 0, 500, "again", time.Second)
	}
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	quickest := func(path string) (body string, took time.Duration) { // which counts on a busy machine
		took = time.Hour
		for range 4 {
			began := time.Now()
			body = get(t, h, Path+path).Body.String()
			took = min(took, time.Since(began))
		}
		return body, took
	}
	_, least := quickest("tasks/order/short-life?rows=998&before=1000")
	body, took := quickest("tasks/order/long-life?rows=998&before=20000")
	if took > 5*least {
		t.Errorf("a page of 998 rows of 20,000 took %v, of 1,000 %v", took, least)
	}
	if !strings.Contains(body, `href="?before=19002#journal"`) {
		t.Errorf("no way to older rows in %d bytes", len(body))
	}
	if !strings.Contains(body, "began before what is shown") {
		t.Error("the try that began before the page is not named")
	}
	if rec := get(t, h, Path+"tasks/order/long-life?before=200"); !strings.Contains(rec.Body.String(), "This is the beginning.") {
		t.Error("the oldest page does not say so")
	}
}

// TestTrail: what is left of a task is told by words and by a sign of its own shape, so that no colour is needed.
//
// covers: OP12
func TestTrail(t *testing.T) {
	w := fixedWorld()
	look := map[string][2]string{
		"order-1001": {"check", "Done"},
		"order-1002": {"warning", "Failed, not undone"},
		"order-1003": {"back", "Failed and undone"},
		"order-1004": {"warning", "Failed, partly undone"},
		"order-1005": {"play", "On its way"},
	}
	for id, want := range look {
		plan, v, rows := w.page(t, id, 0, 1000)
		if got := newTrail(plan, v, oldestFirst(rows), false).Verdict; got.Icon != want[0] || got.Title != want[1] {
			t.Errorf("%s: %s %q, want %q", id, got.Icon, got.Title, want)
		}
	}
	plan, v, rows := w.page(t, "order-1004", 0, 1000)
	var got []string
	for _, s := range newTrail(plan, v, oldestFirst(rows), false).Steps {
		got = append(got, s.Name+": "+s.Forward.Word+" / "+s.Back.Word+" / "+s.Evidence)
	}
	want := []string{
		"check: done / nothing to undo: a check / row 2: done, by i7@check.v1",
		"reserve: done or unknown / the undo gave up: its effect may still be in place / row 7: its undo gave up, by node-1",
		"charge: done or unknown / undone / row 6: undone, by i7@charge.v1",
		"ship: failed, left nothing /  / row 5: refused by its agent, which is final, by i7@ship.v1",
		"mail: not begun /  / ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("trail:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// One that a person resolved was not undone: what stands is told, whatever its state.
	w.find("order-1004").row(time.Second, core.KindResolved, -1, 0, to(core.StateUndone))
	plan, v, rows = w.page(t, "order-1004", 0, 1000)
	if got := newTrail(plan, v, oldestFirst(rows), false).Verdict; got.Title != "Resolved as undone" || !strings.HasSuffix(got.Text, "What 1 step did is still in place.") {
		t.Errorf("resolved: %+v", got)
	}
	plan, v, rows = w.page(t, "order-1002", 0, 1000)
	if s := newTrail(plan, v, oldestFirst(rows), false).Steps[2]; s.Forward.Icon != "question" || !s.Left {
		t.Errorf("a step with a try that did not answer is %q, left %v", s.Forward.Word, s.Left)
	}
	// An attempt that never answered may have done its work, though a later one was refused.
	l := w.born(&w.plansAll[0], "silent", time.Hour, `{}`).row(time.Second, core.KindDone, 0, core.StepDone, next(1)).
		row(5*time.Second, core.KindOverdue, 1, core.StepWaiting, nil).row(time.Second, core.KindStarted, -1, 0, next(1)).
		row(time.Second, core.KindRefused, 1, core.StepFailed, to(core.StateError))
	plan, v, rows = w.page(t, l.view.ID, 0, 1000)
	if s := newTrail(plan, v, oldestFirst(rows), false).Steps[1]; s.Forward.Icon != "question" || !s.Left {
		t.Errorf("a refused step with an earlier try that did not answer is %q, left %v", s.Forward.Word, s.Left)
	}
}
