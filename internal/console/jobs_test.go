package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// keys types, as a person does who has no mouse.
func (b *browser) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// tab moves the focus forward until it is where a condition on the element e holds.
func (b *browser) tab(condition string) {
	b.t.Helper()
	for range 220 {
		if eval[bool](b, "(function (e) { return Boolean("+condition+"); })(document.activeElement)") {
			if !eval[bool](b, `document.activeElement.getBoundingClientRect().width > 0`) {
				b.t.Fatalf("%s has the focus and is not seen", condition)
			}
			return
		}
		b.keys(kb.Tab)
	}
	b.t.Fatalf("no %s within 220 tabs; the focus is on %s", condition, eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
}

// enter presses Enter and waits for what comes.
func (b *browser) enter(until string) {
	b.t.Helper()
	b.keys(kb.Enter)
	b.until(until)
}

const noDialog = `document.readyState === "complete" && !document.getElementById("dialog").open && `

// TestJobsByKeyboard: the five main jobs are done with the keyboard alone.
//
// covers: OP10, OP11, OP15
func TestJobsByKeyboard(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))

	// Why did a task fail?
	b.open("")
	b.tab(`e.id === "find"`)
	b.keys("order-1002")
	b.enter(`document.title.indexOf("order-1002") >= 0 && document.querySelector(".why-sentence").textContent.indexOf("card 4471 declined") >= 0`)

	// Fix and resubmit it. Escape leaves the dialog, and the focus comes back.
	edit := `e.textContent === "Edit and resubmit"`
	b.tab(edit)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-input"`)
	b.accessible("the dialog for editing")
	b.keys(kb.Escape)
	b.until(`!document.getElementById("dialog").open`)
	b.tab(edit)
	b.enter(`document.activeElement.id === "d-input"`)
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.keys(`{"order": 7}`)
	b.tab(`e.id === "d-reason"`)
	b.keys("the card was wrong")
	b.tab(`e.value === "compare"`)
	b.enter(`document.querySelector("#dialog .diff") && document.activeElement.value === "send"`)
	b.accessible("the dialog with both inputs")
	b.enter(noDialog + `document.getElementById("told").textContent.indexOf("audit trail") >= 0`)
	if l := w.find("order-1002"); l.view.State != core.StateProcessing || string(l.view.Input) != `{"order": 7}` {
		t.Fatalf("the task is %s with %s", l.view.State, l.view.Input)
	}

	// Undo more than 1,000 failed ones as one operation.
	b.tab(`e.textContent.trim() === "Failures"`)
	b.enter(`document.title.indexOf("Failures") === 0`)
	b.tab(`e.tagName === "A" && e.closest("tr") && e.closest("tr").textContent.indexOf("1,240") >= 0`)
	b.enter(`document.querySelector(".actions")`)
	b.tab(`e.textContent === "Undo"`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-reason"`)
	b.accessible("the dialog of an operation")
	b.keys("stock was counted wrong")
	b.tab(`e.textContent === "Preview"`)
	b.enter(`document.getElementById("d-confirm")`)
	b.accessible("the preview")
	b.tab(`e.id === "d-confirm"`)
	b.keys("1240")
	b.enter(noDialog + `location.pathname.indexOf("/operations/op-") >= 0 && document.getElementById("op-tally").textContent.indexOf("1,240") >= 0`)
	if s := w.find("bulk-00007").view.State; s != core.StateUndone {
		t.Fatalf("a task of the operation is %s", s)
	}

	// Who did that?
	b.tab(`e.textContent.trim() === "Audit"`)
	b.enter(`document.title.indexOf("Audit") === 0 && document.querySelector("tbody tr") !== null`)
	if row := eval[string](b, `document.querySelector("tbody tr").textContent`); !strings.Contains(row, "ada") || !strings.Contains(row, "operation.start") || !strings.Contains(row, "stock was counted wrong") {
		t.Errorf("the newest entry is %q", row)
	}

	// Whose deadline comes next?
	b.tab(`e.textContent.trim().indexOf("Overview") === 0`)
	b.enter(`document.title.indexOf("Overview") === 0`)
	b.tab(`e.tagName === "A" && e.textContent.indexOf("of the deadline") > 0`)
	b.enter(`document.title.indexOf("Whose deadline") === 0 && document.querySelector("tbody th a").textContent === "order/order-1005"`)
	b.clean("the five jobs")

	// The graph moves and changes its size by keys, while it has the focus.
	b.open("tasks/onboarding/a-very-long-id-that-uses-all-the-room-there-is-0123456789-abcdef")
	b.tab(`e.className === "pan"`)
	width := eval[float64](b, `document.querySelector("svg.graph").getBoundingClientRect().width`)
	b.keys("+")
	b.until(fmt.Sprintf(`document.querySelector("svg.graph").getBoundingClientRect().width > %f`, width))
	b.keys(kb.ArrowDown)
	b.until(`document.querySelector(".pan").scrollTop > 0`)
	b.clean("the graph")
}

// nasty is text that would do something if any page took it for more than text.
const nasty = `</textarea></title></script><script>window.bitten=1</script>"><img src=x onerror=window.bitten=1>'onmouseover='window.bitten=1'<svg/onload=window.bitten=1><iframe srcdoc="<script>parent.bitten=1</script>"></iframe>` +
	`<a href="javascript:window.bitten=1" hx-get="/console/live" hx-trigger="load" hx-on:load="window.bitten=1">x</a>{{constructor.constructor('window.bitten=1')()}}<!--` + "\u2028\u202e" + `<style>*{display:none}</style>`

// TestText: whatever text comes from outside is shown as text, on every page, in a real browser.
//
// covers: OP20
func TestText(t *testing.T) {
	w := newWorld(time.Now)
	for i, l := range w.tasks[:12] {
		v := &l.view
		v.Reason, v.Sentence, v.WaitsFor, v.LockedBy = nasty, nasty, nasty, nasty
		v.Labels = []core.Label{{Key: nasty, Value: nasty}}
		v.Input = []byte(fmt.Sprintf(`{%q: %q, "n": %d}`, "k"+nasty, nasty, i))
		v.FailedStep = nasty
		for k := range v.Steps {
			s := &v.Steps[k]
			s.Agent, s.Error, s.By, s.Result = nasty, nasty, nasty, []byte(nasty)
		}
		for k := range l.rows {
			r := &l.rows[k]
			r.Actor, r.Reason, r.Error = nasty, nasty, nasty
		}
	}
	w.tasks[1].view.Fingerprint = nasty
	for i := range w.plansAll {
		for k := range w.plansAll[i].Steps {
			if k%2 == 1 {
				w.plansAll[i].Steps[k].Name, w.plansAll[i].Steps[k].Agent = nasty+fmt.Sprint(k), nasty
			}
		}
	}
	for _, op := range w.ops {
		op.Selection, op.Why, op.By, op.Reason = nasty, nasty, nasty, nasty
	}
	for i := range w.members["op-7"] {
		m := &w.members["op-7"][i]
		m.ID, m.Type, m.Step, m.Text = nasty, nasty, nasty, nasty
	}
	for i := range w.entries {
		e := &w.entries[i]
		e.Actor, e.Target, e.Reason, e.Outcome, e.From, e.Action = nasty, nasty, nasty, nasty, nasty, nasty
		e.Before, e.After = []byte(nasty), []byte(nasty)
	}
	w.entries[3].Target = "task/order/order-1002"
	for i := range w.agentsIn {
		w.agentsIn[i].Name += nasty
	}
	w.parts[1].Owner, w.parts[1].Pinned = nasty, nasty
	w.held[0].Reason, w.held[0].Agent, w.held[0].By, w.held[0].ID = nasty, nasty, nasty, "p1"
	w.channels[0] = Channel{Name: nasty, Kind: nasty, To: nasty, Events: []string{nasty}, Error: nasty}
	w.tokens[0].Name, w.tokens[0].By = nasty, nasty
	for i, target := range []string{"task/order/order-1002", "operation/op-7"} {
		w.notes = append(w.notes, operate.Note{Number: int64(9 + i), Target: target, Text: nasty, By: nasty})
	}
	w.trouble = []operate.Trouble{{Name: nasty, Text: nasty}}
	w.settings["view/1"] = []byte(fmt.Sprintf(`{"name":%q,"query":"state=error","by":%q}`, strings.ReplaceAll(nasty, "\u202e", ""), "x"))
	b := newBrowser(t, as(operate.RoleAdmin, newConsole(t, w.config())))
	groups := w.groupsAll()
	pages := append([]string{"failures/" + groups[0].ID, "tasks?step=charge&label=%3Cscript%3E%3D1", "find?id=%3Cscript%3Ewindow.bitten%3D1%3C%2Fscript%3E", "%3Cscript%3Ewindow.bitten%3D1%3C%2Fscript%3E"}, everyPage...)
	for _, path := range append(pages, "tasks/order/order-1002/act/edit", "tasks/order/order-1002/act/accept", "operations/op-7/change/stop", "operations/new?action=undo&id=order/order-1002", "pauses/new?agent=%22%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.bitten%3D1%3E") {
		b.open(path)
		if n := eval[int](b, `document.querySelectorAll("img, iframe, object, embed, style, script:not([src]), [onerror], [onload], [onmouseover], [hx-trigger=load], a[href^='javascript:' i]").length`); n != 0 {
			t.Errorf("%s: %d elements came out of text", path, n)
		}
		if eval[bool](b, `"bitten" in window`) {
			t.Errorf("%s: a script of a text ran", path)
		}
		b.clean(path)
	}
	// Also what comes live.
	b.open("")
	w.tell(nasty)
	b.until(`!document.getElementById("banner").hidden`)
	if eval[bool](b, `"bitten" in window || document.querySelectorAll("img, iframe").length > 0`) {
		t.Error("a live event did something")
	}
	b.clean("live")
}

// waits until a condition holds.
func waits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(90 * time.Second)
	for !holds() {
		select {
		case <-limit:
			t.Fatalf("waited for: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestLiveInABrowser: a tab hears of changes while it is seen and not paused, asks nothing otherwise, and says when Duly
// or its store cannot be reached.
//
// covers: OP6, OP22
func TestLiveInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	asked := make(chan string, 1000)
	inner := as(operate.RoleOperator, newConsole(t, w.config()))
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		inner.ServeHTTP(rw, r)
	}))
	b.open("")
	waits(t, "the tab listens", func() bool { return w.listeners() == 1 })
	hide := func(hidden bool) {
		eval[chromedp.Void](b, fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	hide(true)
	waits(t, "a hidden tab listens no more", func() bool { return w.listeners() == 0 })
	for len(asked) > 0 {
		<-asked
	}
	// Longer than any timer of the page.
	eval[chromedp.Void](b, `new Promise(function (done) { setTimeout(done, 5000); })`)
	if n := len(asked); n > 0 {
		t.Errorf("a hidden tab asked %d times, first for %s", n, <-asked)
	}
	hide(false)
	waits(t, "a tab that is seen again listens", func() bool { return w.listeners() == 1 })
	press := `document.getElementById("pause-live").click()`
	eval[chromedp.Void](b, press)
	waits(t, "a paused tab listens no more", func() bool { return w.listeners() == 0 })
	hide(true)
	hide(false)
	if eval[string](b, `document.getElementById("pause-live").getAttribute("aria-pressed")`) != "true" || w.listeners() != 0 {
		t.Error("a paused tab listens again by being seen")
	}
	eval[chromedp.Void](b, press)
	waits(t, "it listens when the pause ends", func() bool { return w.listeners() == 1 })

	w.mu.Lock()
	last := w.samples[len(w.samples)-1]
	last.At, last.Created, last.Ended, last.P50MS = last.At.Add(2*time.Second), last.Created+2468, last.Ended+2000, 77
	w.samples = append(w.samples, last)
	w.tasks[0].view.State = core.StateError
	w.mu.Unlock()
	w.tell("")
	b.until(`document.querySelector("[data-state=error]").textContent === "1,243" && document.querySelector("#plot-throughput [data-now='0']").textContent === "1,234"`)
	b.until(`document.querySelector("[data-rows=latency] td").textContent === "77" && document.getElementById("needs").textContent.indexOf("1,243 tasks in error") >= 0`)

	w.tell("the state store could not be read")
	b.until(`!document.getElementById("banner").hidden && document.body.classList.contains("stale") && document.getElementById("banner").textContent.indexOf("was read at") > 0`)
	b.accessible("the banner")
	b.shoot("banner store away")
	w.tell("")
	b.until(`document.getElementById("banner").hidden && !document.body.classList.contains("stale")`)
	w.mu.Lock()
	w.trouble = []operate.Trouble{{Name: "nats", Text: "there is no connection to NATS", Since: time.Now()}}
	w.mu.Unlock()
	w.tell("")
	b.until(`document.getElementById("banner").textContent === "This node is not healthy: nats: there is no connection to NATS" && !document.body.classList.contains("stale")`)
	b.end()
	b.until(`/cannot be reached since .* s old/.test(document.getElementById("banner").textContent) && document.body.classList.contains("stale")`)
	b.clean("live")
}

// TestAddresses: a filter is in the address, which back, forward and reload keep; a list that comes late replaces nothing
// newer.
//
// covers: OP8, OP18, OP24
func TestAddresses(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("tasks")
	choose := func(id, value string) {
		eval[chromedp.Void](b, fmt.Sprintf(`(function () { var s = document.getElementById(%q); s.value = %q; s.dispatchEvent(new Event("change", {bubbles: true})); })()`, id, value))
	}
	choose("f-state", "undone")
	b.until(`location.search === "?state=undone" && document.querySelectorAll("#results tbody tr").length === 1`)
	choose("f-state", "error")
	b.until(`location.search === "?state=error" && document.querySelectorAll("#results tbody tr").length === 50`)
	b.do(chromedp.NavigateBack())
	b.until(`location.search === "?state=undone" && document.readyState === "complete" && document.querySelectorAll("#results tbody tr").length === 1 && document.getElementById("f-state").value === "undone"`)
	b.do(chromedp.Reload())
	b.until(`document.readyState === "complete" && document.querySelectorAll("#results tbody tr").length === 1 && document.getElementById("f-state").value === "undone"`)
	b.do(chromedp.NavigateForward())
	b.until(`location.search === "?state=error" && document.readyState === "complete" && document.getElementById("f-state").value === "error" && document.querySelectorAll("#results tbody tr").length === 50`)

	// All of a page, and all that match, in a dialog.
	eval[chromedp.Void](b, `document.getElementById("pick-all").click()`)
	b.until(`document.getElementById("picked").textContent === "selected: 50"`)
	eval[chromedp.Void](b, `document.querySelector("input[value=matching]").click(); document.getElementById("bulk-action").value = "undo"; document.querySelector("#bulk button[type=submit]").click()`)
	b.until(`document.getElementById("dialog").open && document.querySelector("#dialog .what").textContent.indexOf("all tasks in state error") >= 0`)

	// Copying works over plain HTTP, exactly; times are in the zone that was chosen.
	b.open("tasks/order/order-1001")
	if eval[bool](b, `window.isSecureContext`) {
		t.Fatal("the test's address counts as secure")
	}
	eval[chromedp.Void](b, `document.addEventListener("copy", function () { window.copied = document.activeElement.value; }); document.querySelector("[data-copy=input]").focus()`)
	b.keys(kb.Enter)
	b.until(`window.copied && window.copied.indexOf('"order": 9007199254740993,\n  "zip": "01067",\n  "amount": 1.10') > 0 && document.getElementById("say").textContent === "Copied."`)
	at := `document.querySelector("#journal time").textContent`
	if s := eval[string](b, at); !strings.HasSuffix(s, "Z") {
		t.Errorf("a time of the journal is %q, want UTC at first", s)
	}
	eval[chromedp.Void](b, `document.getElementById("zone").click()`)
	if s := eval[string](b, at); strings.HasSuffix(s, "Z") {
		t.Errorf("a time of the journal is %q after the switch to local", s)
	}
	eval[chromedp.Void](b, `document.querySelector(".facts time").focus()`)
	if shown := eval[string](b, `getComputedStyle(document.querySelector(".facts time .abs")).visibility`); shown != "visible" {
		t.Errorf("the exact time is %s while it has the focus", shown)
	}
	b.open("tasks")
	if eval[string](b, `document.getElementById("zone-word").textContent`) == "UTC" && !eval[bool](b, `Intl.DateTimeFormat().resolvedOptions().timeZone === "UTC"`) {
		t.Error("the zone is not kept")
	}
	b.clean("addresses")
}
