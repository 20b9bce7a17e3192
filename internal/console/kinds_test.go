package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

const approvalSchema = `{"type":"object","required":["approved","limit"],"properties":{
	"approved":{"type":"boolean","title":"Approved"},
	"limit":{"type":"integer","description":"cents","minimum":1,"maximum":1000000},
	"class":{"enum":["economy","business"]},
	"by":{"$ref":"#/$defs/person"},
	"tags":{"type":"array","items":{"type":"string"}}},
	"$defs":{"person":{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":40},"note":{"type":"string"}}}}}`

// trips fills a world with tasks of a plan that has every kind of step.
func (w *world) trips() {
	plan := core.Plan{Name: "trip", Version: 1, CompleteBy: 24 * time.Hour, Steps: []core.Step{
		{Name: "quote", Agent: "quotes", CompleteBy: 5 * time.Second},
		{Name: "approve", Kind: core.SignalStep, After: []int{0}, CompleteBy: 8 * time.Hour, Schema: approvalSchema, When: `input.cents > 5000 && results.quote.risk < 0.5`},
		{Name: "insure", Agent: "insurance", After: []int{0}, Undoable: true, CompleteBy: 5 * time.Second, When: `input.cents > 1000000`, OnExhausted: core.PolicySkip},
		{Name: "rooms", Kind: core.EachStep, Child: "room", Elements: "input.rooms", ElementsMax: 100, After: []int{1}, CompleteBy: time.Hour},
		{Name: "pause", Kind: core.WaitStep, For: time.Hour, After: []int{3}},
	}}.WithDefaults()
	w.plansAll = append(w.plansAll, plan, chain("room", 1, "book"))
	p := &w.plansAll[len(w.plansAll)-2]
	at := core.InstantOf(w.now().Add(-time.Minute))
	l := w.born(p, "trip-1", time.Minute, `{"cents":7000,"rooms":[{"n":1},{"n":2}]}`)
	for i := range p.Steps {
		l.view.Steps[i].Kind, l.view.Steps[i].Child = p.Steps[i].Kind, p.Steps[i].Child
		l.view.Steps[i].When, l.view.Steps[i].Optional = p.Steps[i].When, p.Steps[i].OnExhausted == core.PolicySkip
	}
	l.row(time.Second, core.KindDone, 0, core.StepDone, func(r *core.Record) {
		r.Next, r.State, r.Result = 1, core.StateProcessing, []byte(`{"risk":0.25}`)
	})
	l.row(0, core.KindSkipped, 2, core.StepSkipped, func(r *core.Record) { r.State, r.Reason = core.StatePending, "its condition is false" })
	l.view.Sentence = "Step approve waits for a signal."
	l.view.Steps[1].At, l.view.Steps[1].Due, l.view.Steps[1].Ask = at, at.Add(8*time.Hour), "0.12ab"
	l = w.born(p, "trip-2", time.Minute, `{"cents":100,"rooms":[{"n":1},{"n":2},{"n":3}]}`)
	for i := range p.Steps {
		l.view.Steps[i].Kind, l.view.Steps[i].Child = p.Steps[i].Kind, p.Steps[i].Child
		l.view.Steps[i].When, l.view.Steps[i].Optional = p.Steps[i].When, p.Steps[i].OnExhausted == core.PolicySkip
	}
	l.row(time.Second, core.KindDone, 0, core.StepDone, func(r *core.Record) { r.State, r.Result = core.StateProcessing, []byte(`{"risk":0.25}`) })
	l.row(0, core.KindSkipped, 1, core.StepSkipped, func(r *core.Record) { r.State, r.Reason = core.StateProcessing, "its condition is false" })
	l.row(0, core.KindSkipped, 2, core.StepSkipped, func(r *core.Record) { r.State, r.Reason = core.StateProcessing, "its condition is false" })
	l.row(0, core.KindStarted, -1, 0, func(r *core.Record) {
		r.Next, r.State, r.Input = 3, core.StatePending, []byte(`[{"n":1},{"n":2},{"n":3}]`)
	})
	l.view.Steps[3].Count, l.view.Steps[3].Children = 3, core.ChildCounts{Born: 3, Running: 1, Done: 1, Error: 1}
	for i := range 3 {
		c := w.born(&w.plansAll[len(w.plansAll)-1], core.ChildID("trip-2", "rooms", i, 0, true), time.Minute, `{"n":1}`)
		c.view.Partition, c.view.Parent, c.view.Ancestors = l.view.Partition, "trip-2", []core.TaskName{{Type: "trip", ID: "trip-2"}}
		switch i {
		case 0:
			c.row(time.Second, core.KindDone, 0, core.StepDone, to(core.StateProcessed))
		case 1:
			c.stops(time.Second, 0, 422, "the hotel is full")
		}
	}
}

// pointersSchema is of a Go type of pointers, without omitempty.
const pointersSchema = `{"type":"object","properties":{"note":{"type":["string","null"]},"sure":{"type":["boolean","null"]},"limit":{"type":["integer","null"]},"by":{"$ref":"#/$defs/person-null"}},
	"required":["note","sure","limit","by"],"$defs":{"person-null":{"type":["object","null"],"properties":{"name":{"type":"string"}},"required":["name"]}}}`

// TestSchemaForm: a form has the fields of a schema, and what is typed into it is JSON that fits.
func TestSchemaForm(t *testing.T) {
	for _, x := range []struct {
		schema string
		typed  map[string]string
		want   string // JSON, or after ! the error
	}{
		{approvalSchema, map[string]string{"value/approved": "true", "value/limit": "12"}, `{"approved":true,"limit":12}`},
		{approvalSchema, map[string]string{"value/approved": "false", "value/limit": " 12 ", "value/class": `"business"`, "value/by/name": "Ann \"A\"", "value/tags": `["x"]`}, `{"approved":false,"limit":12,"class":"business","by":{"name":"Ann \"A\""},"tags":["x"]}`},
		{approvalSchema, map[string]string{"value/approved": "true"}, `!limit is missing`},
		{approvalSchema, map[string]string{"value/approved": "true", "value/limit": "twelve"}, `!limit is "twelve", want a number`},
		{approvalSchema, map[string]string{"value/approved": "true", "value/limit": "1", "value/tags": "["}, `!tags is "[", want JSON`},
		{``, map[string]string{"value": `{"a":1}`}, `{"a":1}`},
		{``, map[string]string{"value": ``}, `!Answer is missing`},
		{`{"type":"string"}`, map[string]string{"value": ""}, `!Answer is missing`},
		{`{"type":"boolean"}`, map[string]string{"value": "true"}, `true`},
		{`{"type":["string","null"]}`, map[string]string{"value": `null`}, `null`},
		{pointersSchema, map[string]string{"value/note": `it's late`, "value/sure": "null", "value/limit": "null", "value/by/name": "Ann"}, `{"note":"it's late","sure":null,"limit":null,"by":{"name":"Ann"}}`},
		{pointersSchema, map[string]string{"value/note": "null", "value/sure": "true", "value/limit": "5"}, `!name is missing`},
		{pointersSchema, nil, `!note is missing`},
		{`{"type":"object"}`, map[string]string{"value": `{}`}, `{}`},
		{`{"const":"yes"}`, map[string]string{"value": `"yes"`}, `"yes"`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`, map[string]string{"value": `1`}, `1`},
		{`{"type":"object","properties":{"a/b":{"type":"string"}}}`, map[string]string{"value/a/b": `x`}, `{"a/b":"x"}`},
	} {
		f := formOf(x.schema, func(name string) string { return x.typed[name] })
		got, err := f.json()
		if want, wrong := strings.CutPrefix(x.want, "!"); wrong && (err == nil || !strings.HasPrefix(err.Error(), want)) || !wrong && (err != nil || string(got) != want) {
			t.Errorf("%.40s with %v: %s, %v, want %s", x.schema, x.typed, got, err, x.want)
		}
	}
	// A default is there before anything was typed.
	if f := formOf(`{"type":"object","properties":{"a":{"type":"string","default":"x y"},"n":{"type":"number","default":2}}}`, nil); f.Fields[0].Value != "x y" || f.Fields[1].Value != "2" {
		t.Errorf("defaults: %+v", f.Fields)
	}
	many := map[string]any{}
	for _, c := range strings.Split(strings.Repeat("x", 100), "") {
		many[c+strings.Repeat("y", len(many))] = map[string]any{"type": "object", "properties": map[string]any{"z": map[string]any{"type": "string"}}}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": many})
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	var count func(f *formField)
	count = func(f *formField) {
		fields++
		for i := range f.Fields {
			count(&f.Fields[i])
		}
	}
	f := formOf(string(schema), nil)
	if count(&f); fields > 4*formFieldsMax {
		t.Errorf("%d fields of a large schema", fields)
	}
}

// TestTaskPageSaysKey: the page of a task says until when a service remembers the key of a step.
func TestTaskPageSaysKey(t *testing.T) {
	w := fixedWorld()
	steps := w.find("order-1002").view.Steps
	steps[len(steps)-1].KeyUntil = core.InstantOf(time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC))
	page := regexp.MustCompile(`(?s)The service remembers the key of this step until <time [^>]*datetime="2027-01-02T03:04:05`)
	if body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"tasks/order/order-1002").Body.String(); !page.MatchString(body) {
		t.Error("the page does not say it")
	}
}

// TestSignalPage: a step that waits for a person is answered on a form, or refused with a reason; what does not fit says why
// and keeps what was typed.
//
// covers: OP10, OP16
func TestSignalPage(t *testing.T) {
	w := fixedWorld()
	w.trips()
	for i := range w.find("trip-1").view.Steps {
		if s := &w.find("trip-1").view.Steps[i]; s.Name == "approve" {
			s.Ask = "0.12ab"
		}
	}
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	page := Path + "tasks/trip/trip-1"
	at := page + "/signal/approve"
	if body := get(t, h, page).Body.String(); !strings.Contains(body, "Answer approve…") || !strings.Contains(body, at) {
		t.Fatal("the task's page has no way to answer")
	}
	if body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), page).Body.String(); strings.Contains(body, at) {
		t.Error("a viewer may answer")
	}
	rec := get(t, h, at)
	body := rec.Body.String()
	for _, want := range []string{`name="value/approved"`, `name="value/limit"`, `inputmode="decimal"`, `<option value="&#34;business&#34;">business</option>`, `name="value/by/name"`, `maxlength="40"`, "cents", "Asked in round 0", "id=\"input\""} {
		if !strings.Contains(body, want) {
			t.Errorf("the form has no %s", want)
		}
	}
	form := fields(body)
	send := func(more url.Values) (int, string) {
		t.Helper()
		v := url.Values{"key": form["key"], "ask": form["ask"]}
		for name, values := range more {
			v[name] = values
		}
		rec := post(t, h, at, v)
		return rec.Code, html.UnescapeString(rec.Body.String())
	}
	for want, typed := range map[string]url.Values{
		"limit is missing":            {"go": {"answer"}, "value/approved": {"true"}},
		`limit is "x", want a number`: {"go": {"answer"}, "value/approved": {"true"}, "value/limit": {"x"}},
		"The answer does not fit":     {"go": {"answer"}, "value/approved": {"true"}, "value/limit": {"0"}},
		"a refusal needs one":         {"go": {"refuse"}},
		`name is missing`:             {"go": {"answer"}, "value/approved": {"true"}, "value/limit": {"1"}, "value/by/note": {"kept text"}},
	} {
		code, body := send(typed)
		if code != http.StatusUnprocessableEntity || !strings.Contains(body, want) || typed.Get("value/by/note") != "" && !strings.Contains(body, "kept text") {
			t.Errorf("%v: %d, want 422 with %q", typed, code, want)
		}
	}
	if len(w.done) > 0 {
		t.Fatalf("something was sent: %+v", w.done)
	}
	if code, body := send(url.Values{"go": {"answer"}, "value/approved": {"true"}, "value/limit": {"5"}, "reason": {"fine"}}); code != http.StatusSeeOther {
		t.Fatalf("%d %s", code, body)
	}
	if r := w.done[0]; r.Ask == "" || r.Ask != form.Get("ask") {
		t.Errorf("the answer does not say what it is for: %+v", r)
	}
	if code, body := send(url.Values{"go": {"answer"}, "value/approved": {"true"}, "value/limit": {"5"}, "ask": {"0.ab"}}); code != http.StatusConflict ||
		!strings.Contains(body, "The question has changed since you opened this page") || len(w.done) != 1 {
		t.Errorf("an answer to another ask: %d %s", code, body)
	}
	if r := w.done[0]; r.Action != operate.ActionSignal || r.Step != "approve" || string(r.Result) != `{"approved":true,"limit":5}` || r.Reason != "fine" || r.Key == "" {
		t.Errorf("%+v", r)
	}
	if code, _ := send(url.Values{"go": {"refuse"}, "reason": {"too dear"}, "key": {"k2"}}); code != http.StatusSeeOther {
		t.Fatalf("refused: %d", code)
	}
	if r := w.done[1]; r.Action != operate.ActionSignal || r.Result != nil || r.Reason != "too dear" {
		t.Errorf("%+v", r)
	}
	for path, code := range map[string]int{page + "/signal/quote": http.StatusNotFound, page + "/signal/none": http.StatusNotFound, Path + "tasks/trip/none/signal/approve": http.StatusNotFound} {
		if rec := get(t, h, path); rec.Code != code {
			t.Errorf("%s: %d, want %d", path, rec.Code, code)
		}
	}
	w.find("trip-1").view.Input = []byte(`{"duly.enc":"A256GCM-1","key":"k-7","data":"UVVJVEU="}`)
	if body := get(t, h, at).Body.String(); strings.Contains(body, "<textarea") || !strings.Contains(body, "duly signal trip/trip-1 approve '{…}' --payload-keys FILE") {
		t.Errorf("the dialog does not say how it is done with the key: %s", body)
	}
}

// TestAnswersWaitedFor: the first screen counts what waits for an answer and leads to each of it and to the list, the list
// has them alone.
func TestAnswersWaitedFor(t *testing.T) {
	w := fixedWorld()
	w.trips()
	cfg := w.config()
	first := html.UnescapeString(get(t, as(operate.RoleViewer, newConsole(t, cfg)), Path).Body.String())
	for _, want := range []string{`href="/console/tasks?waits=signal">1 task waiting for an answer: none of them has to be answered within 5 min</a>`, `href="/console/tasks/trip/trip-1">trip/trip-1 · approve</a>`} {
		if !strings.Contains(first, want) {
			t.Errorf("no %s", want)
		}
	}
	h := as(operate.RoleViewer, newConsole(t, cfg))
	body := get(t, h, Path+"tasks?waits=signal").Body.String()
	if strings.Count(body, `<th scope="row"><a`) != 1 || !strings.Contains(body, "trip-1") || !strings.Contains(body, "all tasks that wait for an answer") || !strings.Contains(body, `<option value="signal" selected>`) {
		t.Error("the list has not the one task that waits for an answer")
	}
	if rec := get(t, h, Path+"tasks?waits=wait"); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "waits is") {
		t.Errorf("another word: %d", rec.Code)
	}
	// One that has to come soon is said to.
	for i := range w.find("trip-1").view.Steps {
		w.find("trip-1").view.Steps[i].Due = core.InstantOf(w.now().Add(time.Minute))
	}
	if body := get(t, as(operate.RoleViewer, newConsole(t, cfg)), Path).Body.String(); !strings.Contains(body, "1 of them must be answered within 5 min") {
		t.Error("that one has to come soon is not said")
	}
}

// TestConditionsAreShown: a task's page says what was decided of each condition, and by what values.
func TestConditionsAreShown(t *testing.T) {
	w := fixedWorld()
	w.trips()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	body := html.UnescapeString(get(t, h, Path+"tasks/trip/trip-1").Body.String())
	for _, want := range []string{"input.cents > 5000 && results.quote.risk < 0.5", "it does", "it does not", "<code>input.cents</code></th><td class=\"wide\"><code>7000</code>", "<code>results.quote.risk</code></th><td class=\"wide\"><code>0.25</code>", "<code>input.cents > 1000000</code></th><td class=\"wide\"><code>false</code>"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestConditionsHideSecrets: what is hidden in a task's data is hidden among the values of its conditions, too.
func TestConditionsHideSecrets(t *testing.T) {
	w := fixedWorld()
	w.trips()
	plan, l := &w.plansAll[len(w.plansAll)-2], w.find("trip-1")
	plan.Steps[2].When = `input.api_token == "x" && input.customer == results.quote && input.note == "x" && input.cents > 1000000`
	l.view.Input = []byte(`{"cents":7000,"api_token":"tok_live_7","customer":{"password":"tok_live_8","since":"` + strings.Repeat("x", 300) + `"},"note":"Bearer tok_live_9","rooms":[]}`)
	l.born = l.view.Input
	body := html.UnescapeString(get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"tasks/trip/trip-1").Body.String())
	_, shown, _ := strings.Cut(body, `id="conditions"`)
	if strings.Contains(body, "tok_live_") {
		t.Errorf("a secret is shown: %.3000s", shown)
	}
	for _, want := range []string{"<code>input.api_token</code></th><td class=\"wide\"><code>" + masked, "<code>input.customer</code></th><td class=\"wide\"><code>" + masked, "<code>input.note</code></th><td class=\"wide\"><code>" + masked, "<code>input.cents</code></th><td class=\"wide\"><code>7000</code>"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A condition that was asked again, after an edit, has the values of the last time; that of a round before is not shown.
func TestConditionsOfTheLastTime(t *testing.T) {
	plan := core.Plan{Name: "p", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a"}, {Name: "b", Agent: "b", After: []int{0}, When: "input.n > 1"}}}.WithDefaults()
	saved := &core.Saved{Row: core.Task{ID: "t", Type: "p", PlanVersion: 1, Input: []byte(`{"n":2}`), State: core.StateProcessing}, Journal: []core.Record{
		{Seq: 1, Kind: core.KindSubmitted, State: core.StateProcessing, Step: -1, Next: 0, NextAttempt: 1},
		{Seq: 2, Kind: core.KindDone, State: core.StateProcessing, Step: 0, StepStatus: core.StepDone, Attempt: 1, Next: 1, NextAttempt: 1, Result: []byte(`1`)},
	}}
	all, err := new(expr.Cache).Decisions(&plan, saved)
	if err != nil || len(all) != 1 || all[0].Decided != "true" || all[0].Row != 2 || len(all[0].Terms) == 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	saved.Journal = saved.Journal[:1]
	if all, err = new(expr.Cache).Decisions(&plan, saved); err != nil || len(all) != 1 || all[0].Decided != "" || all[0].Terms != nil {
		t.Errorf("before it was asked: %+v, %v", all, err)
	}
}

// TestFanOut: an each is one node with its counts, and leads to its children, each of which has a page that leads back.
func TestFanOut(t *testing.T) {
	w := fixedWorld()
	w.trips()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := html.UnescapeString(get(t, h, Path+"tasks/trip/trip-2").Body.String())
	list := "?parent=trip-2&type=room"
	for _, want := range []string{"1/3", "1 of 3 room, 1 running, 1 in error", list} {
		if !strings.Contains(body, want) {
			t.Errorf("the parent's page has no %s", want)
		}
	}
	rec := get(t, h, Path+"tasks"+list+"&state=error")
	body = html.UnescapeString(rec.Body.String())
	child := core.ChildID("trip-2", "rooms", 1, 0, true)
	if rec.Code != http.StatusOK || strings.Count(body, "tasks/room/trip-2") != 1 || !strings.Contains(body, "that are part of trip-2") {
		t.Fatalf("the list of children: %d", rec.Code)
	}
	for _, path := range []string{"", "/replay", "/act/resubmit", "/payload?of=input", "/compare"} {
		rec := get(t, h, Path+"tasks/room/"+child+path)
		if rec.Code != http.StatusOK {
			t.Errorf("%s of a child: %d", path, rec.Code)
		}
		if path == "" && !strings.Contains(rec.Body.String(), `href="/console/tasks/trip/trip-2"`) {
			t.Error("the child's page does not lead to its parent")
		}
	}
	if rec := get(t, h, Path+"tasks?parent=a/b"); rec.Code != http.StatusBadRequest {
		t.Errorf("a parent that is no id: %d", rec.Code)
	}
}

// TestKindsByKeyboard: a person answers a signal, finds the failed child of a fan-out and resubmits it, and pauses a
// schedule, with the keyboard alone.
//
// covers: OP10, OP15
func TestKindsByKeyboard(t *testing.T) {
	w := newWorld(time.Now)
	w.trips()
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("tasks/trip/trip-1")
	b.tab(`e.textContent === "Answer approve…"`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.name === "value/approved"`)
	b.accessible("the form of a signal")
	b.keys("y")
	b.tab(`e.name === "value/limit"`)
	b.keys("1,5")
	b.tab(`e.value === "answer"`)
	b.until(`!document.querySelector("#dialog form").checkValidity()`) // the browser says what is wrong before it is sent
	b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	for range 20 {
		if eval[bool](b, `document.activeElement.name === "value/limit"`) {
			break
		}
		b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.keys("25")
	b.tab(`e.value === "answer"`)
	b.enter(noDialog + `document.getElementById("told").textContent.indexOf("audit trail") >= 0`)
	if len(w.done) != 1 || string(w.done[0].Result) != `{"approved":true,"limit":25}` {
		t.Fatalf("sent: %+v", w.done)
	}

	b.open("tasks/trip/trip-2")
	b.tab(`e.tagName === "A" && e.textContent.indexOf("1 of 3 room") === 0`)
	b.enter(`document.readyState === "complete" && location.search.indexOf("parent=trip-2") >= 0 && document.querySelectorAll("#results tbody tr").length === 3`)
	b.tab(`e.id === "f-state"`)
	b.keys("e")
	b.until(`document.querySelectorAll("#results tbody tr").length === 1`)
	b.tab(`e.tagName === "A" && e.textContent.indexOf("trip-2~rooms~1") >= 0`)
	b.enter(`document.readyState === "complete" && document.title.indexOf("room/trip-2~rooms~1") >= 0`)
	b.tab(`e.textContent === "Resubmit"`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-reason" || document.activeElement.id === "d-until"`)
	b.tab(`e.textContent === "Resubmit" && e.type === "submit"`)
	b.enter(noDialog + `document.getElementById("told").textContent.indexOf("audit trail") >= 0`)
	b.tab(`e.textContent === "trip/trip-2"`)
	b.enter(`document.readyState === "complete" && document.title.indexOf("trip/trip-2") >= 0`)

	b.open("schedules")
	b.tab(`e.textContent.indexOf("Pause") === 0 && e.closest("tr") && e.closest("tr").textContent.indexOf("nightly") >= 0`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-reason"`)
	b.keys("month's end")
	b.tab(`e.textContent === "Pause" && e.type === "submit"`)
	b.enter(noDialog + `document.getElementById("told").textContent.indexOf("Paused") >= 0`)
	b.clean("kinds of steps")
}

// TestEveryKindHasWords: the console names a row of each kind.
//
// covers: L5
func TestEveryKindHasWords(t *testing.T) {
	for _, kind := range core.Kinds() {
		if strings.HasPrefix(say.Of("journal."+string(kind)), "journal.") {
			t.Errorf("%s has no words", kind)
		}
	}
}
