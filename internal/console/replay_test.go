package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// long is a task of so many journal rows, whose step charge fails again and again.
func (w *world) long(id string, rows int) *life {
	l := w.born(&w.plansAll[1], id, 3*time.Hour, orderInput)
	l.row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).row(35*time.Millisecond, core.KindDone, 1, core.StepDone, next(2))
	for len(l.rows)+2 <= rows {
		l.fails(100*time.Millisecond, 2, 503, "payment gateway: connection reset by peer", 400*time.Millisecond)
	}
	for len(l.rows) < rows {
		l.row(time.Millisecond, core.KindAsked, -1, 0, nil)
	}
	return l
}

// TestTimeMachine: each row of a journal is a page that says what happened, what was decided and why, with the task as it
// was then; what an answer at another time would have led to is told or refused in a sentence.
//
// covers: OP13
func TestTimeMachine(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	const at = Path + "tasks/order/order-1002/replay"
	contains := func(path string, code int, wants ...string) {
		t.Helper()
		rec := get(t, h, path)
		for _, want := range wants {
			if !strings.Contains(rec.Body.String(), want) {
				t.Errorf("%s: %d, no %q", path, rec.Code, want)
			}
		}
		if rec.Code != code {
			t.Errorf("%s: %d, want %d", path, rec.Code, code)
		}
	}
	// Without a row it stands at the newest.
	contains(at, 200, "Row 8 <span", "of step charge failed: 422, &#34;card 4471 declined: insufficient funds&#34;.", "Failed, not undone", "error</span>")
	contains(at+"?at=1", 200, "The task was submitted.", "No other step has to be done before it.", "so no other time of the answer can be tried", `On its way`)
	contains(at+"?at=3", 200, "Step reserve was done on attempt 1.", "The step that had to be done before it is done: reserve.", "3 steps have begun")
	contains(at+"?at=4", 200, "Attempt 1 of 5 failed; the wait before the next one is random", `data-before="0" data-after="6"`)
	// The attempt that was not answered in time would have been done.
	contains(at+"?at=6&ms=1500&come=earlier", 200, "The decision would have been different", "Step ship is sent to its agent")
	contains(at+"?at=6&ms=0&come=later", 200, "A late answer never completes a step")
	contains(at+"?at=3&ms=5&come=earlier", 200, "The same would have been decided")
	contains(at+"?at=3&ms=86400000&come=earlier", 200, "before its command left at")
	for query, want := range map[string]string{"at=0": "1 to 8", "at=9": "1 to 8", "at=x": "1 to 8", "at=3&ms=-1": "0 to 86400000", "at=3&ms=86400001": "0 to 86400000", "at=3&come=never": "earlier or later", "row=3": "at, ms, come"} {
		contains(at+"?"+query, 400, want)
	}
	contains(Path+"tasks/order/none-such/replay", 404, "There is no task none-such")
	contains(Path+"tasks/ledger/order-1002/replay", 404, "There is no task order-1002 of type ledger")

	// An input that an edit took the place of is shown where it held.
	l := w.find("order-1003")
	w.apply(l, operate.Request{Action: operate.ActionEdit, Input: []byte(`{"order":77}`), Reason: "another card"}, "ada")
	contains(Path+"tasks/order/order-1003/replay?at=2", 200, "9007199254740993")
	contains(Path+"tasks/order/order-1003/replay", 200, "&#34;order&#34;: 77", "resubmitted with another input")
	contains(Path+"tasks/order/order-1003/payload?of=input&at=2", 200, "9007199254740993")
	contains(Path+"tasks/order/order-1003/payload?of=input&at=99", 400, "1 to 6")
}

// TestTimeMachineIsBounded: the moves of a slider read once, only a few journals are kept, and one that is too long is
// refused with its limit and the next step.
//
// covers: OP6, OP13, OP22
func TestTimeMachineIsBounded(t *testing.T) {
	w := fixedWorld()
	now := noon
	w.now = func() time.Time { return now }
	for i := range 12 {
		w.long(fmt.Sprintf("many-%02d", i), 30)
	}
	w.long("longest", replayRowsMax)
	w.long("too-long", replayRowsMax+1)
	c, err := build(w.config())
	if err != nil {
		t.Fatal(err)
	}
	h := as(operate.RoleViewer, c.routes())
	reads := func(path string) int {
		before := w.reads
		if rec := get(t, h, Path+path); rec.Code != 200 {
			t.Fatalf("%s: %d %.300s", path, rec.Code, rec.Body)
		}
		return w.reads - before
	}
	if first := reads("tasks/order/many-00/replay?at=3"); first == 0 {
		t.Error("nothing was read")
	}
	if n := reads("tasks/order/many-00/replay?at=4"); n != 0 {
		t.Errorf("the next move read %d times", n)
	}
	now = now.Add(recordingFor)
	if n := reads("tasks/order/many-00/replay?at=4"); n == 0 {
		t.Error("what was read is shown for longer than it may")
	}
	for i := range 12 {
		reads(fmt.Sprintf("tasks/order/many-%02d/replay", i))
	}
	if n := len(c.recordings.all); n != recordingsMax {
		t.Errorf("%d journals are kept, want %d", n, recordingsMax)
	}
	w.find("many-00").rows[2].Result = []byte(strings.Repeat("x", recordingKept))
	now = now.Add(recordingFor)
	reads("tasks/order/many-00/replay?at=2")
	if c.recordings.all["order/many-00"] != nil {
		t.Error("a journal of many bytes is kept")
	}
	rec := get(t, h, Path+"tasks/order/longest/replay?at=20000")
	if rec.Code != 200 || rec.Body.Len() > 100_000 || strings.Count(rec.Body.String(), "<rect class=") > stripParts+100 {
		t.Errorf("a journal of the limit: %d, %d bytes", rec.Code, rec.Body.Len())
	}
	if rec := get(t, h, Path+"tasks/order/too-long/replay"); rec.Code != 422 || !strings.Contains(rec.Body.String(), "has 20,001 journal rows; the time machine opens at most 20,000") {
		t.Errorf("a journal beyond the limit: %d", rec.Code)
	}
	w.broken = errors.New("connection refused")
	if rec := get(t, h, Path+"tasks/order/many-01/compare?with=many-05"); rec.Code != 200 && rec.Code != 503 {
		t.Errorf("without the store: %d", rec.Code)
	}
}

// TestCompare: two tasks of one plan are shown where they part; what cannot be compared is said in the form.
//
// covers: OP13
func TestCompare(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	for path, want := range map[string][]string{
		"order-1002/compare":                       {"Tasks of the same plan that ended another way", `compare?with=order-1001"`},
		"order-1002/compare?with=order-1001":       {"the same way for 3 journal rows; row 4 is the first that differs", "Attempt 1 of step charge failed: 503", "Step charge was done on attempt 1.", `order-1002/replay?at=4"`, `order-1001/replay?at=4"`},
		"order-1002/compare?with=order/order-1001": {"the same way for 3 journal rows"},
		"order-1002/compare?with=order-1002":       {"Both tasks went the same way in all 8 journal rows"},
		"order-1001/compare?with=order-1005":       {"row 3 is the first that differs"},
		"order-1002/compare?with=none":             {"There is no task none of type order", `aria-invalid="true"`},
		"order-1002/compare?with=ledger-7":         {"There is no task ledger-7 of type order"},
		"order-1002/compare?with=%20":              {"Tasks of the same plan"},
	} {
		body := get(t, h, Path+"tasks/order/"+path).Body.String()
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: no %q", path, part)
			}
		}
	}
	w.find("order-1001").view.PlanVersion = 1
	now := noon.Add(recordingFor)
	w.now = func() time.Time { return now }
	h = as(operate.RoleViewer, newConsole(t, w.config()))
	if rec := get(t, h, Path+"tasks/order/order-1002/compare?with=order-1001"); rec.Code != 422 || !strings.Contains(rec.Body.String(), "Only tasks of one plan") && !strings.Contains(rec.Body.String(), "only tasks of one plan") {
		t.Errorf("two versions of a plan: %d", rec.Code)
	}
}

// TestTimeMachineInABrowser: the slider and its buttons move by keyboard, the address keeps the row, the row is announced,
// what an answer at another time would have led to is asked and told, without the script too.
//
// covers: OP8, OP13, OP15
func TestTimeMachineInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	w.long("long", 20_000)
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, w.config())))
	row := func(n int) string {
		return fmt.Sprintf(`document.getElementById("frame").dataset.at === "%d" && location.search === "?at=%d" && document.getElementById("player").value === "%d" && document.getElementById("say").textContent.indexOf("Row %d of 8: ") === 0`, n, n, n, n)
	}
	b.open("tasks/order/order-1002")
	b.tab(`e.textContent === "Time machine"`)
	b.enter(`document.readyState === "complete" && document.title.indexOf("Row 8 of order/order-1002") === 0`)
	b.tab(`e.id === "player"`)
	b.keys(kb.Home)
	b.until(row(1))
	b.keys(kb.ArrowRight)
	b.until(row(2))
	b.keys(kb.ArrowRight)
	b.until(row(3))
	if !eval[bool](b, `document.activeElement.id === "player" && document.activeElement.getAttribute("aria-valuetext") === document.getElementById("frame").dataset.say`) {
		t.Error("the slider has lost the focus, or does not say its row")
	}
	b.tab(`e.dataset.go === "after"`)
	b.enter(row(4))
	b.enter(row(6))
	b.do(chromedp.Reload())
	b.until(`document.readyState === "complete" && document.getElementById("frame") && document.getElementById("frame").dataset.at === "6" && document.getElementById("player").value === "6"`)
	b.accessible("the time machine")
	b.tab(`e.dataset.go === "back"`)
	b.enter(row(5))
	b.tab(`e.dataset.go === "forward"`)
	b.enter(row(6))
	b.tab(`e.id === "shift-ms"`)
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.keys("1500")
	b.tab(`e.id === "shift-go"`)
	b.enter(`location.search === "?at=6&ms=1500&come=earlier" && document.getElementById("shift").textContent.indexOf("Step ship is sent to its agent") > 0 && document.getElementById("say").textContent.indexOf("The decision would have been different") > 0 && document.activeElement.id === "shift-go"`)
	b.accessible("what if")
	b.shoot("time machine what if")
	b.clean("the time machine")

	// Rows that the task has since are within reach when what was read a moment ago is read again.
	b.open("tasks/order/order-1005/replay")
	b.until(`document.getElementById("player").max === "3"`)
	w.mu.Lock()
	w.find("order-1005").row(time.Second, core.KindAsked, -1, 0, nil)
	w.mu.Unlock()
	b.tab(`e.id === "player"`)
	waits(t, "the new row is within reach", func() bool {
		b.keys(kb.ArrowLeft)
		b.until(`document.getElementById("frame").dataset.at === "2"`)
		b.keys(kb.ArrowRight)
		b.until(`document.getElementById("frame").dataset.at === "3"`)
		return eval[bool](b, `document.getElementById("player").max === "4" && document.getElementById("player-rows").textContent === "4"`)
	})

	// The strip and the slider of 20,000 rows, end to end.
	b.open("tasks/order/long/replay?at=1")
	b.tab(`e.id === "player"`)
	b.keys(kb.End)
	b.until(`document.getElementById("frame").dataset.at === "20000" && location.search === "?at=20000"`)
	b.keys(kb.ArrowLeft)
	b.until(`document.getElementById("frame").dataset.at === "19999"`)
	b.size(320, 700, 1)
	b.fits("the time machine of 20,000 rows at 320 pixels")
	b.size(1280, 900, 1)
	b.clean("20,000 rows")

	// Links and forms work without the script.
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	press := func(key, what, then string) {
		t.Helper()
		b.do(chromedp.Focus(what), chromedp.KeyEvent(key), chromedp.WaitReady(then))
	}
	b.do(chromedp.Navigate(b.base+Path+"tasks/order/order-1002/replay?at=3"), chromedp.WaitReady("#frame"))
	press(kb.Enter, `[data-go=forward]`, `#frame[data-at="4"]`)
	press(kb.ArrowRight, `#player`, `#player`)
	press(kb.Enter, `.nojs`, `#frame[data-at="5"]`)
	press(kb.ArrowRight, `#player`, `#player`)
	press(kb.Enter, `.nojs`, `#frame[data-at="6"]`)
	press(kb.Enter, `#shift-go`, `#shift .shift`)
}

var rowOfFrame = regexp.MustCompile(`data-at="(\d+)"`)

// BenchmarkPages: what it takes to make the page of a task with 1,000 and 20,000 journal rows, and the time machine's.
func BenchmarkPages(b *testing.B) {
	for _, rows := range []int{1_000, replayRowsMax} {
		w := fixedWorld()
		w.long("long", rows)
		h, err := New(w.config())
		if err != nil {
			b.Fatal(err)
		}
		h = as(operate.RoleViewer, h)
		for name, path := range map[string]string{"task": "tasks/order/long?rows=1000", "replay": fmt.Sprintf("tasks/order/long/replay?at=%d", rows), "compare": "tasks/order/long/compare?with=order-1002"} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				for b.Loop() {
					rec := httptest.NewRecorder()
					h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, Path+path, nil))
					if rec.Code != 200 || name == "replay" && rowOfFrame.FindString(rec.Body.String()) == "" {
						b.Fatal(rec.Code)
					}
				}
			})
		}
	}
}
