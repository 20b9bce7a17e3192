package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Texts that pages find hard: 128 characters without a space, from right to left, and signs of several code points.
var (
	noSpace = strings.Repeat("connection_refused_", 7)[:128]
	rtl     = "הכרטיס נדחה: אין יתרה (code 4471) — تم رفض الدفع, gpj.\u202eexe\u2066"
	emoji   = "🧾 paid twice 👩‍👩‍👧‍👦🚚 – naïve Ænderung 統合"
)

// hardWorld is a world whose texts and names are as hard as may be.
func hardWorld() *world {
	w := newWorld(time.Now)
	texts := []string{noSpace, rtl, emoji}
	name := strings.Repeat("n", core.NameBytesMax)
	for i, l := range w.tasks {
		if i >= 8 && i < len(w.tasks)-60 {
			continue
		}
		v := &l.view
		text := texts[i%3]
		v.Reason, v.LockedBy = text, name
		v.Labels = []core.Label{{Key: strings.Repeat("k", operate.LabelBytesMax), Value: strings.Repeat("v", operate.LabelBytesMax)}, {Key: "kind", Value: text}}
		if v.Sentence != "" {
			v.Sentence = "It stands in error: step charge failed with “" + text + "”."
		}
		v.Input = []byte(fmt.Sprintf(`{%q:%q}`, text, noSpace))
		for k := range v.Steps {
			v.Steps[k].Agent, v.Steps[k].By = name, name+"@"+name
			if v.Steps[k].Status == "failed" {
				v.Steps[k].Error = text
			}
		}
		for k := range l.rows {
			l.rows[k].Actor = name + "@" + name
			if l.rows[k].Error != "" {
				l.rows[k].Error = text
			}
		}
	}
	for i := range w.plansAll {
		w.plansAll[i].Steps[1].Name, w.plansAll[i].Steps[1].Agent = name, name
	}
	for i, op := range w.ops {
		op.Selection, op.Why, op.By, op.Reason = texts[i%3], texts[(i+1)%3], name, texts[i%3]
		op.Tasks, op.Tally = 1_000_000, operate.Tally{Waiting: 700_000, Asked: 99_999, Done: 100_000, FailedAgain: 100_000, Skipped: 1}
	}
	for i := range w.members["op-7"] {
		w.members["op-7"][i].Text, w.members["op-7"][i].Step = texts[i%3], name
	}
	for i := range w.entries {
		e := &w.entries[i]
		e.Actor, e.Reason, e.Target, e.From = name+"@example.test", texts[i%3], "task/"+name+"/"+name, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	for i := range w.agentsIn {
		w.agentsIn[i].Name = fmt.Sprintf("%s%d", name[1:], i)
	}
	for i := range w.bounds {
		w.bounds[i].Agent = fmt.Sprintf("%s%d", name[1:], i)
		l := &w.bounds[i]
		l.Key, l.By, l.Reason, l.KeyConcurrent = noSpace, name, texts[i%3], core.ConcurrentMax
		l.Keys, l.BusiestKeys = 1_000_000, []operate.KeyGranted{{Key: noSpace, Holders: 1000, Wanted: 1_000_000_000, Places: core.ConcurrentMax}, {Key: rtl}, {Key: emoji}}
	}
	for i := range w.parts {
		w.parts[i].Owner, w.parts[i].Pinned = name, name
	}
	w.held[0].Agent, w.held[0].Reason, w.held[0].By = name, rtl, name
	w.channels[0].To, w.channels[1].Error = noSpace, noSpace
	w.tokens[0].Name = name
	w.notes = append(w.notes, operate.Note{Number: 2, Target: "task/order/order-1002", At: w.now(), By: name, Text: rtl + "\n" + noSpace + "\n" + emoji})
	w.settings["view/1"] = []byte(fmt.Sprintf(`{"name":%q,"query":"state=error","by":%q,"at":"2026-03-01T12:00:00Z"}`, strings.Repeat("V", viewNameMax), name))
	return w
}

// emptyWorld is a world before the first task.
func emptyWorld() *world {
	w := newWorld(time.Now)
	w.tasks, w.plansAll, w.entries, w.notes, w.ops, w.agentsIn, w.bounds, w.parts, w.held, w.channels, w.tokens = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
	w.samples = w.samples[:1]
	return w
}

// listPages are the pages that a world of any content has.
var listPages = []string{"", "tasks", "risk", "failures", "operations", "agents", "pauses", "plans", "partitions", "audit", "settings"}

// textPages are pages and dialogs with texts and names of others, one of each kind.
var textPages = []string{
	"tasks?state=error", "tasks/order/order-1002", "tasks/order/order-1004", "tasks/order/order-1002/replay?at=6&ms=200&come=earlier", "tasks/order/order-1002/compare?with=order-1001", "tasks/order/order-1002/payload?of=input",
	"operations/op-7", "plans/order?version=2&with=1", "audit?action=edit", "tasks/order/order-1002/act/edit", "tasks/order/order-1002/act/accept", "operations/new?action=undo&scope=matching&filter=state%3Derror", "operations/op-7/change/stop",
	"pauses/p1/lift", "partitions/3/pin",
}

// TestHardPages: pages of nothing, of a store that is away, and of the hardest names and texts fit at 1280 and 320 pixels
// and at 200 %, and have no violation of axe-core.
//
// covers: OP15, OP22
func TestHardPages(t *testing.T) {
	for name, world := range map[string]*world{"empty": emptyWorld(), "away": newWorld(time.Now), "hard": hardWorld()} {
		t.Run(name, func(t *testing.T) {
			if name == "away" {
				world.broken = errors.New("connection refused")
			}
			pages := listPages
			switch name {
			case "away":
				pages = []string{"", "tasks", "tasks/order/order-1002/replay"}
			case "hard":
				pages = slices.Concat(listPages, textPages)
			}
			b := newBrowser(t, as(operate.RoleAdmin, newConsole(t, world.config())))
			for _, path := range pages {
				b.looksRight(name+" "+path, path)
			}
		})
	}
}

// TestManyInABrowser: 10,000 failure groups are paged by keyboard, a task of 64 steps shows each in graph and table, and
// counts of millions are readable.
//
// covers: OP5, OP14, OP15, OP21
func TestManyInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	for i := range 10_000 {
		l := w.born(&w.plansAll[0], fmt.Sprintf("alone-%05d", i), time.Hour, `{}`)
		l.stops(time.Second, 0, 500, fmt.Sprintf("stock: shard %d is read-only", i))
		l.view.Fingerprint = fmt.Sprintf("f%05d", i)
	}
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("failures?state=error")
	first := eval[string](b, `document.querySelector("#results tbody a").href`)
	if n := eval[int](b, `document.querySelectorAll("#results tbody tr").length`); n != rowsOfList {
		t.Errorf("%d groups on a page, want %d", n, rowsOfList)
	}
	b.tab(`e.textContent === "Next page"`)
	b.enter(fmt.Sprintf(`document.readyState === "complete" && location.search.indexOf("after=") > 0 && document.querySelector("#results tbody a").href !== %q`, first))
	b.tab(`e.textContent === "First page"`)
	b.enter(fmt.Sprintf(`document.readyState === "complete" && document.querySelector("#results tbody a") && document.querySelector("#results tbody a").href === %q`, first))
	b.looksRight("10000 groups", "failures?state=error")

	steps := "tasks/onboarding/a-very-long-id-that-uses-all-the-room-there-is-0123456789-abcdef"
	b.looksRight("64 steps", steps)
	b.open(steps + "/replay")
	if n := eval[[]int](b, `[document.querySelectorAll("svg.graph .node").length, document.querySelectorAll("section[aria-labelledby=steps-title] tbody tr:not(.sub)").length, document.querySelectorAll(".lanes tbody tr").length]`); fmt.Sprint(n) != "[64 64 64]" {
		t.Errorf("graph, table and trail have %v steps", n)
	}
	b.looksRight("64 steps replay", steps+"/replay")

	w.mu.Lock()
	w.millions = true
	w.mu.Unlock()
	b.open("")
	if text := eval[string](b, `document.getElementById("states").textContent + document.getElementById("needs").textContent`); !strings.Contains(text, "1,000,000") || !strings.Contains(text, "100,000 tasks in error") {
		t.Errorf("the first screen says %s", text)
	}
	b.looksRight("millions", "")
}

// TestErrorKeepsWhatIsThere: a store that goes away under a list or the time machine leaves what was read, grey, under a
// banner; the next answer takes its place.
//
// covers: OP22
func TestErrorKeepsWhatIsThere(t *testing.T) {
	w := newWorld(time.Now)
	var later atomic.Int64
	w.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	cfg := w.config()
	cfg.Live = liveWorld{newWorld(time.Now)} // of a store that stays: it has a banner of its own
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, cfg)))
	breaks := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.broken = err
		later.Add(int64(time.Minute)) // past what is kept
	}
	const away = `document.body.classList.contains("stale") && document.getElementById("banner").textContent.indexOf("This node cannot read the database now. What you see was read at 20") >= 0 && `
	const back = `document.getElementById("banner").hidden && !document.body.classList.contains("stale") && `
	choose := func(state string) {
		eval[chromedp.Void](b, fmt.Sprintf(`(function () { var s = document.getElementById("f-state"); s.value = %q; s.dispatchEvent(new Event("change", {bubbles: true})); })()`, state))
	}
	b.open("tasks?state=error")
	breaks(errors.New("connection refused"))
	choose("undone")
	b.until(away + `location.search === "?state=error" && document.querySelectorAll("#results tbody tr").length === 50`)
	b.accessible("a list under the banner")
	b.shoot("banner list away")
	breaks(nil)
	choose("undone")
	b.until(back + `location.search === "?state=undone" && document.querySelectorAll("#results tbody tr").length === 1`)

	b.open("tasks/order/order-1002/replay?at=4")
	breaks(errors.New("connection refused"))
	b.tab(`e.id === "player"`)
	b.keys(kb.ArrowRight)
	b.until(away + `location.search === "?at=4" && document.getElementById("frame").dataset.at === "4" && document.getElementById("player").value === "4"`)
	breaks(nil)
	b.keys(kb.ArrowRight)
	b.until(back + `location.search === "?at=5" && document.getElementById("frame").dataset.at === "5"`)
	b.clean("a store that was away")
}

// TestSavedViewInABrowser: a filter is saved under a name by keyboard, found on the list, opened, and deleted.
//
// covers: OP8
func TestSavedViewInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("tasks?label=region%3Deu&state=error")
	b.tab(`e.id === "view-name"`)
	b.keys("EU errors")
	b.enter(`document.readyState === "complete" && document.getElementById("told").textContent.indexOf("Saved the view EU errors.") >= 0`)
	b.open("tasks")
	b.tab(`e.className === "chip" && e.textContent === "EU errors"`)
	b.enter(`document.readyState === "complete" && location.search === "?label=region%3Deu&state=error" && document.querySelector(".chip[aria-current=true]") && document.querySelectorAll("#results tbody tr").length === 1`)
	b.accessible("a saved view")
	b.do(chromedp.Reload())
	b.until(`document.readyState === "complete" && document.querySelector(".chip[aria-current=true]") && document.getElementById("f-state").value === "error" && document.getElementById("f-label").value === "region=eu"`)
	b.open("settings")
	b.tab(`e.tagName === "BUTTON" && e.textContent === "Delete EU errors"`)
	b.enter(`document.readyState === "complete" && document.getElementById("told").textContent.indexOf("Deleted the view.") >= 0`)
	if len(w.settings) != 0 {
		t.Errorf("%d views are left", len(w.settings))
	}
	b.clean("saved views")
}

// TestZoneInABrowser: one switch moves every time of a page between UTC and the browser's zone, across the hour that
// summer time skips, and what is shown is the same instant.
//
// covers: OP24
func TestZoneInABrowser(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 30, 0, 250000000, time.UTC) // in Berlin clocks went from 02:00 to 03:00 half an hour before
	w := newWorld(func() time.Time { return at.Add(time.Second) })
	l := w.born(&w.plansAll[1], "spring", time.Second, orderInput)
	l.row(-time.Hour, core.KindAsked, -1, 0, nil) // before the switch
	l.row(time.Hour+20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1))
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	b.open("tasks/order/spring")
	times := func(selector string) string {
		return eval[string](b, fmt.Sprintf(`Array.from(document.querySelectorAll(%q)).map(function (t) { return t.textContent; }).join(" ")`, selector))
	}
	rows := "#journal tbody tr td:nth-child(2) time"
	if got, want := times(rows), "2026-03-29 01:30:00.270Z 2026-03-29 00:30:00.250Z 2026-03-29 01:30:00.250Z"; got != want {
		t.Errorf("in UTC: %s, want %s", got, want)
	}
	b.tab(`e.id === "zone"`)
	b.enter(`document.getElementById("zone-word").textContent === "Europe/Berlin" && document.getElementById("say").textContent === "Times are Europe/Berlin"`)
	if got, want := times(rows), "2026-03-29 03:30:00.270 2026-03-29 01:30:00.250 2026-03-29 03:30:00.250"; got != want {
		t.Errorf("in Berlin: %s, want %s", got, want)
	}
	if got, want := times("#journal tbody td.wide time"), "2026-03-29 03:30:05.270"; !strings.HasPrefix(got, want) {
		t.Errorf("a complete-by in Berlin: %s, want %s", got, want)
	}
	for _, path := range []string{"", "tasks", "audit", "tasks/order/spring/replay"} {
		b.open(path)
		if left := eval[string](b, `Array.from(document.querySelectorAll("time")).filter(function (t) { return /Z$/.test(t.textContent); }).slice(0, 3).map(function (t) { return t.outerHTML; }).join(" ")`); left != "" {
			t.Errorf("%q has times in UTC after the switch: %s", path, left)
		}
	}
	b.tab(`e.id === "zone"`)
	b.keys(kb.Enter)
	b.until(`document.getElementById("zone-word").textContent === "UTC" && /Z$/.test(document.querySelector("time.x").textContent)`)
	b.clean("zones")
}
