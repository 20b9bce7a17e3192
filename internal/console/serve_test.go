package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// mutating are all routes that change something, with a form that would work.
var mutating = map[string]url.Values{
	"tasks/order/order-1002/act/resubmit": {},
	"tasks/order/order-1002/act/undo":     {"reason": {"x"}},
	"tasks/order/order-1002/notes":        {"text": {"x"}},
	"tasks/order/order-1002/signal/x":     {"payload": {"1"}},
	"agents/check.v1/breaker":             {"state": {"open"}, "reason": {"x"}},
	"plans/order/1/deprecate":             {"reason": {"x"}},
	"failures/g1/notes":                   {"text": {"x"}},
	"operations/op-7/change/resume":       {},
	"operations/op-7/notes":               {"text": {"x"}},
	"operations/preview":                  {"action": {"undo"}, "scope": {"matching"}, "filter": {"state=error"}, "reason": {"x"}},
	"operations/start":                    {"token": {"op-7"}, "rate": {"1"}, "brake": {"1"}, "tasks": {"1"}},
	"partitions/3/pin":                    {"node": {"node-2"}, "reason": {"x"}},
	"pauses/new":                          {"agent": {"check.v1"}, "reason": {"x"}},
	"pauses/p1/lift":                      {},
	"agents/check.v1/limit/set":           {"rate": {"1"}, "reason": {"x"}},
	"agents/charge.v1/limit/remove":       {"reason": {"x"}},
	"settings/tokens/new":                 {"name": {"x"}, "role": {"viewer"}},
	"settings/tokens/t1a9/revoke":         {"reason": {"x"}},
	"settings/alerts/ops-hook/test":       {},
	"settings/alerts/new":                 {"name": {"x"}, "document": {"{}"}},
	"settings/alerts/ops-hook/edit":       {"document": {"{}"}},
	"settings/alerts/ops-hook/delete":     {"reason": {"x"}},
	"views":                               {"name": {"x"}, "query": {"state=error"}},
	"views/abc/delete":                    {},
	"books/compare":                       {},
	"schedules/nightly/pause":             {"reason": {"x"}},
	"schedules/nightly/run-now":           {},
	"books/repair":                        {"agent": {"charge.v1"}, "effect": {"order-1004/charge/0"}, "repair": {"undo"}, "reason": {"x"}},
}

// needsAdmin are those of them that an operator may not use.
var needsAdmin = []string{"partitions/3/pin", "settings/tokens/new", "settings/tokens/t1a9/revoke", "settings/alerts/ops-hook/test", "settings/alerts/new", "settings/alerts/ops-hook/edit", "settings/alerts/ops-hook/delete"}

// TestEveryChangeIsTried: the forms above are those of all routes that change something, with the role that each wants.
func TestEveryChangeIsTried(t *testing.T) {
	source, err := os.ReadFile("console.go")
	if err != nil {
		t.Fatal(err)
	}
	routes := regexp.MustCompile(`\t(?:post|form|dialog)\("([^"]+)", operate\.Role(\w+), `).FindAllSubmatch(source, -1)
	if len(routes) < 25 {
		t.Fatalf("found %d routes", len(routes))
	}
	for _, m := range routes {
		route := regexp.MustCompile("^" + regexp.MustCompile(`{\w+}`).ReplaceAllString(string(m[1]), "[^/]+") + "$")
		tried := false
		for path := range mutating {
			if route.MatchString(path) {
				tried = true
				if admin := slices.Contains(needsAdmin, path); admin != (string(m[2]) == "Admin") {
					t.Errorf("%s is tried as one of %s", path, m[2])
				}
			}
		}
		if !tried {
			t.Errorf("%s is not tried", m[1])
		}
	}
}

// TestRoles: read-only is read-only on the server, and what was refused is in the audit trail.
//
// covers: OP16, OP17
func TestRoles(t *testing.T) {
	untouched := fixedWorld()
	refusing := newConsole(t, untouched.config())
	for path, form := range mutating {
		for _, role := range []operate.Role{"", operate.RoleViewer, operate.RoleOperator, operate.RoleAdmin} {
			allowed := role == operate.RoleAdmin || role == operate.RoleOperator && !slices.Contains(needsAdmin, path)
			w, h := untouched, refusing
			if allowed {
				w = fixedWorld()
				h = newConsole(t, w.config())
			}
			before := len(w.entries)
			rec := post(t, as(role, h), Path+path, form)
			switch {
			case role == "" && rec.Code != http.StatusUnauthorized, role != "" && !allowed && rec.Code != http.StatusForbidden:
				t.Errorf("POST %s as %q: %d", path, role, rec.Code)
			case allowed && (rec.Code == http.StatusForbidden || rec.Code == http.StatusUnauthorized || rec.Code >= 500):
				t.Errorf("POST %s as %s: %d %.300s", path, role, rec.Code, rec.Body)
			}
			if role == operate.RoleViewer {
				if len(w.entries) != before+1 || !strings.HasPrefix(w.entries[before].Outcome, "refused: ") || w.entries[before].Actor != "ada" || w.entries[before].From != "192.0.2.7" {
					t.Errorf("POST %s as viewer left %d entries", path, len(w.entries)-before)
				}
				if len(w.done) > 0 {
					t.Errorf("POST %s as viewer did something", path)
				}
			}
		}
	}
	w := fixedWorld()
	h := newConsole(t, w.config())
	if rec := get(t, h, Path+"tasks"); rec.Code != http.StatusUnauthorized {
		t.Errorf("without an actor: %d", rec.Code)
	}
	body := get(t, as(operate.RoleViewer, h), Path+"tasks/order/order-1002").Body.String()
	if strings.Contains(body, "/act/undo\"") || !strings.Contains(body, "Your role is viewer; this needs the role operator.") {
		t.Error("a viewer's buttons are not disabled with the reason")
	}
	if rec := get(t, as(operate.RoleViewer, h), Path+"tasks/order/order-1002/act/edit"); strings.Contains(rec.Body.String(), "tok_live") {
		t.Error("a viewer sees the secrets of an input in the form for editing")
	}
}

// TestCrossOrigin: a page of another site changes nothing.
//
// covers: OP17
func TestCrossOrigin(t *testing.T) {
	w := fixedWorld()
	r := httptest.NewRequest(http.MethodPost, Path+"tasks/order/order-1002/act/undo", strings.NewReader("reason=x"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	rec := httptest.NewRecorder()
	as(operate.RoleAdmin, newConsole(t, w.config())).ServeHTTP(rec, r)
	if rec.Code != http.StatusForbidden || len(w.done) != 0 {
		t.Errorf("%d, %d done", rec.Code, len(w.done))
	}
	// By plain HTTP a browser says where its page is from alone, and a proxy may name another host to this node.
	cfg := w.config()
	cfg.Origin = "http://ops.example.test"
	for origin, want := range map[string]int{"http://ops.example.test": http.StatusSeeOther, "http://other.example.test": http.StatusForbidden} {
		r = httptest.NewRequest(http.MethodPost, Path+"tasks/order/order-1002/notes", strings.NewReader("text=x"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
		rec = httptest.NewRecorder()
		as(operate.RoleAdmin, newConsole(t, cfg)).ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("a page of %s: %d, want %d", origin, rec.Code, want)
		}
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)

// fields are the hidden ones of a form.
func fields(body string) url.Values {
	v := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(body, -1) {
		v.Add(m[1], html.UnescapeString(m[2]))
	}
	return v
}

// TestDestructive: what, how many and why are asked, the number is typed above 100, and the actor is stored.
//
// covers: OP3, OP9, OP10
func TestDestructive(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	undo := Path + "tasks/order/order-1002/act/undo"
	form := fields(get(t, h, undo).Body.String())
	if rec := post(t, h, undo, form); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "Give a reason: undo needs one.") || len(w.done) != 0 {
		t.Fatalf("without a reason: %d", rec.Code)
	}
	form.Set("reason", "sold twice")
	if rec := post(t, h, undo, form); rec.Code != http.StatusSeeOther {
		t.Fatalf("with a reason: %d", rec.Code)
	}
	if rec := post(t, h, undo, form); rec.Code != http.StatusSeeOther || len(w.done) != 1 {
		t.Errorf("the same dialog sent twice: %d, done %d times", rec.Code, len(w.done))
	}
	if e := w.entries[len(w.entries)-1]; e.Actor != "ada" || e.Via != "console" || e.Reason != "sold twice" {
		t.Errorf("audit: %+v", e)
	}
	// All that match: the filter in words, and its number typed.
	dialog := get(t, h, Path+"operations/new?action=undo&scope=matching&filter="+url.QueryEscape("state=error&type=order&step=reserve")+"&id=order/order-1001").Body.String()
	if !strings.Contains(dialog, "all tasks of type order in state error whose step reserve failed") {
		t.Error("the dialog does not say the filter in words")
	}
	if of := get(t, h, Path+"operations/new?action=undo&scope=matching&filter="+url.QueryEscape("type=order&plan_version=2")).Body.String(); !strings.Contains(of, "all tasks of type order of version 2") {
		t.Error("the dialog does not say the version")
	}
	form = fields(dialog)
	if form.Has("id") {
		t.Error("single ids go with all that match")
	}
	if rec := post(t, h, Path+"operations/preview", form); rec.Code != http.StatusUnprocessableEntity {
		t.Errorf("preview without a reason: %d", rec.Code)
	}
	form.Set("reason", "stock was counted wrong")
	preview := post(t, h, Path+"operations/preview", form).Body.String()
	if !strings.Contains(preview, "Undo 1,241 tasks") || !strings.Contains(preview, "The list of tasks is fixed") || !strings.Contains(preview, "Type the number of tasks, 1241") {
		t.Fatalf("preview: %s", preview)
	}
	start := fields(preview)
	start.Set("rate", "50")
	start.Set("brake", "20")
	for _, typed := range []string{"", "1240"} {
		start.Set("confirm", typed)
		if rec := post(t, h, Path+"operations/start", start); rec.Code != http.StatusUnprocessableEntity || w.find("bulk-00001").view.State != core.StateError {
			t.Errorf("start with the number %q: %d", typed, rec.Code)
		}
	}
	start.Set("confirm", "1,241")
	if rec := post(t, h, Path+"operations/start", start); rec.Code != http.StatusSeeOther || w.find("bulk-00001").view.State != core.StateUndone {
		t.Errorf("start: %d", rec.Code)
	}
	// A task that has moved on since is left alone.
	w.find("order-1004").view.State = core.StateError
	stale := fields(get(t, h, Path+"tasks/order/order-1004/act/resolve").Body.String())
	w.find("order-1004").row(time.Second, core.KindExtended, -1, 0, to(core.StateError))
	stale.Set("reason", "settled")
	stale.Set("as", "undone")
	if rec := post(t, h, Path+"tasks/order/order-1004/act/resolve", stale); rec.Code != http.StatusConflict || !strings.Contains(rec.Body.String(), "has moved on") {
		t.Errorf("a stale dialog: %d", rec.Code)
	}
}

// TestTaskShowsItsOwnTrail: what was asked of another task, whose id begins with this one's, is not on its page.
func TestTaskShowsItsOwnTrail(t *testing.T) {
	w := fixedWorld()
	own := w.append(operate.AuditEntry{At: noon, Actor: "ada", Action: "resubmit", Target: "task/order/order-1001", Outcome: "done"})
	other := w.append(operate.AuditEntry{At: noon, Actor: "grace", Action: "undo", Target: "task/order/order-10012", Outcome: "done"})
	body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"tasks/order/order-1001").Body.String()
	if !strings.Contains(body, fmt.Sprintf("entry %d<", own)) || strings.Contains(body, fmt.Sprintf("entry %d<", other)) {
		t.Error("the page has not just the entries of its task")
	}
}

// TestOutcomesAddUp: the columns add up to the frozen total, and what joined since is shown beside them.
//
// covers: OP2, OP3
func TestOutcomesAddUp(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	body := get(t, h, Path+"operations/op-7").Body.String()
	for _, want := range []string{">112</td>", ">39</td>", ">2</td>", ">3</td>", ">4,156</td>", "<strong>4,312</strong>", "37 tasks have joined the group since the preview"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	w.ops[0].Tally.Done--
	if body := get(t, h, Path+"operations/op-7").Body.String(); !strings.Contains(body, "add up to 4,311, not to 4,312") {
		t.Error("columns that do not add up are not named")
	}
}

// TestFilters: a filter is its URL, with every value in its field again, and what is wrong is said in place.
//
// covers: OP8, OP22
func TestFilters(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	body := get(t, h, Path+"tasks?type=order&state=error&step=charge&label=region%3Deu&created_from=2026-03-01T10:00").Body.String()
	for _, want := range []string{"<option selected>order</option>", "<option selected>error</option>", `value="charge"`, `value="region=eu"`, `value="2026-03-01T10:00"`, "order-1002", "created from 2026-03-01 10:00:00 UTC",
		`/v1/tasks?created_from=2026-03-01T10%3A00%3A00Z&amp;format=csv&amp;label=region%3Deu&amp;state=error&amp;step=charge&amp;type=order`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "bulk-0") {
		t.Error("the filter selects others")
	}
	for path, want := range map[string]string{
		"tasks?state=gone": "state is &#34;gone&#34;, want one of", "tasks?label=x": "want key=value", "tasks?created_to=yesterday": "want a time in UTC", "tasks?limit=1001": "want 1 to 1000", "tasks?stat=error": "does not accept the parameter",
		"tasks?after=" + strings.Repeat("9", 600): "the limit is 512", "tasks?after=zz": "cannot be found", "failures?state=processed": "want error, undone", "operations?state=x": "want one of", "operations/op-7?outcome=x": "want waiting",
		"tasks/order/order-1002?before=x": "want the number of a journal row", "tasks/order/order-1002?rows=0": "want 1 to 1000", "risk?within=1ns": "want a duration", "audit?from=x": "want a time in UTC", "books?status=x": "want one of", "books/repair?repair=undo": "Nothing has this name",
		"plans/order?version=9": "has the versions [2 1]", "plans/none": "is stored", "find?id=a%20b": "want A–Z", "operations/new?action=fly": "want one of", "operations/new?action=undo": "No task is selected",
		"tasks/order/order-1002/act/fly": "There is no action", "partitions/x/pin": "want a number", "nowhere": "no such page",
	} {
		rec := get(t, as(operate.RoleAdmin, newConsole(t, w.config())), Path+path)
		if rec.Code < 400 || rec.Code > 499 || !strings.Contains(rec.Body.String(), want) || !strings.Contains(rec.Body.String(), "<nav aria-label=\"Console\">") {
			t.Errorf("%s: %d, no %q", path, rec.Code, want)
		}
	}
	if rec := get(t, h, Path+"find?id=order/order-1002"); rec.Header().Get("Location") != Path+"tasks/order/order-1002" {
		t.Errorf("find: %d %s", rec.Code, rec.Header().Get("Location"))
	}
}

// TestPaging: following the pages shows each task once.
//
// covers: OP21
func TestPaging(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	seen := map[string]int{}
	link := regexp.MustCompile(`<th scope="row"><a href="/console/tasks/([^"]+)"`)
	next := regexp.MustCompile(`<a class="button" href="(\?[^"]*)">Next page`)
	for path, n := "?limit=200", 0; path != "" && n < 20; n++ {
		body := get(t, h, Path+"tasks"+path).Body.String()
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			seen[m[1]]++
		}
		path = ""
		if m := next.FindStringSubmatch(body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if len(seen) != len(w.tasks) {
		t.Errorf("%d tasks seen, want %d", len(seen), len(w.tasks))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was shown %d times", id, n)
		}
	}
}

// TestExports: what a page offers for download is the whole list at the API, by the page's own filter.
//
// covers: OP25
func TestExports(t *testing.T) {
	cfg := fixedWorld().config()
	cfg.Base = "/duly"
	h := as(operate.RoleViewer, newConsole(t, cfg))
	for page, want := range map[string][]string{
		"tasks?state=error&created_from=2026-03-01T10:00&deadline_to=2026-03-02": {
			"/duly/v1/tasks?created_from=2026-03-01T10%3A00%3A00Z&deadline_to=2026-03-02T00%3A00%3A00Z&format=ndjson&state=error",
			"/duly/v1/tasks?created_from=2026-03-01T10%3A00%3A00Z&deadline_to=2026-03-02T00%3A00%3A00Z&format=csv&state=error",
		},
		"tasks/order/order-1002": {"/duly/v1/tasks/order/order-1002/journal?format=ndjson"},
		"operations/op-7":        {"/duly/v1/operations/op-7/members?format=csv"},
		"audit?actor=ci&from=2026-03-01": {
			"/duly/v1/audit?actor=ci&format=ndjson&from=2026-03-01T00%3A00%3A00Z", "/duly/v1/audit?actor=ci&format=csv&from=2026-03-01T00%3A00%3A00Z",
		},
	} {
		body := get(t, h, Path+page).Body.String()
		for _, address := range want {
			if !strings.Contains(body, `<a href="`+html.EscapeString(address)+`" download>Export `) {
				t.Errorf("%s: no %s", page, address)
			}
		}
	}
}

// TestAuditIsBounded: a page of the trail shows so many bytes of what was changed; of an entry that is too long, or has no room left,
// it says where all of it is.
//
// covers: OP16
func TestAuditIsBounded(t *testing.T) {
	w := fixedWorld()
	document := func(bytes int) json.RawMessage {
		return json.RawMessage(`{"text":"` + strings.Repeat("x", bytes) + `","password":"open sesame"}`)
	}
	for range 40 {
		w.append(operate.AuditEntry{At: noon, Actor: "olga", Action: "plan.apply", Target: "plan/order/2", Before: document(20 << 10), After: document(25 << 10)})
	}
	w.append(operate.AuditEntry{At: noon, Actor: "olga", Action: "plan.apply", Target: "plan/order/3", After: document(250 << 10)})
	w.append(operate.AuditEntry{At: noon, Actor: "olga", Action: "plan.apply", Target: "plan/order/4", After: document(10)})
	body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"audit").Body.String()
	if len(body) > 3<<19 || strings.Contains(body, "open sesame") {
		t.Errorf("a page of %d bytes", len(body))
	}
	shown, left := strings.Count(body, "before → after</summary>"), strings.Count(body, "too many for this page")
	if shown < 20 || left < 10 || !strings.Contains(body, "xxxxxxxxxx&") {
		t.Errorf("%d changes are shown and %d are not", shown, left)
	}
	whole := "/v1/audit?" + url.Values{"actor": {"olga"}, "action": {"plan.apply"}, "target": {"plan/order/3"}, "from": {noon.UTC().Format(time.RFC3339Nano)}, "to": {noon.UTC().Add(time.Microsecond).Format(time.RFC3339Nano)}, "format": {"ndjson"}}.Encode()
	if !strings.Contains(body, `<a href="`+html.EscapeString(whole)+`" download>`) {
		t.Errorf("no way to %s", whole)
	}
}

// TestEditShowsBothInputs: old and new stand side by side before anything is sent; what is no JSON, or is refused, is said
// where it was typed.
//
// covers: OP11
func TestEditShowsBothInputs(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	path := Path + "tasks/order/order-1002/act/edit"
	form := fields(get(t, h, path).Body.String())
	form.Set("reason", "another card")
	form.Set("input", "{\n  \"order\": 1,\n}")
	form.Set("go", "compare")
	if rec := post(t, h, path, form); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "line 3, column 1") || !strings.Contains(rec.Body.String(), `aria-invalid="true"`) {
		t.Errorf("no JSON: %d", rec.Code)
	}
	form.Set("input", strings.Replace(orderInput, "9007199254740993", "9007199254740994", 1))
	rec := post(t, h, path, form)
	if body := rec.Body.String(); rec.Code != 200 || !strings.Contains(body, "<del>  &#34;order&#34;: 9007199254740993,</del>") || !strings.Contains(body, "<ins>  &#34;order&#34;: 9007199254740994,</ins>") || len(w.done) != 0 {
		t.Fatalf("compare: %d, done %d", rec.Code, len(w.done))
	}
	form.Set("go", "send")
	if rec := post(t, h, path, form); rec.Code != http.StatusSeeOther || !strings.Contains(string(w.done[0].Input), "9007199254740994") {
		t.Errorf("send: %d", rec.Code)
	}
	if e := w.entries[len(w.entries)-1]; !strings.Contains(string(e.Before), "9007199254740993") {
		t.Error("the old input is not kept")
	}
	w.find("order-1003").view.State = core.StateError
	path = Path + "tasks/order/order-1003/act/edit"
	form = url.Values{"reason": {"x"}, "input": {`{"a":1}`}, "go": {"send"}}
	if rec := post(t, h, path, form); rec.Code != 422 || !strings.Contains(rec.Body.String(), "has no member order") || !strings.Contains(rec.Body.String(), `aria-invalid="true"`) {
		t.Errorf("refused by the plan: %d", rec.Code)
	}
}

// shut is a world that refuses what is asked by a key.
type shut struct {
	*world
	bad *operate.Refusal
}

func (s *shut) Do(context.Context, operate.Actor, operate.TaskRef, operate.Request) (operate.Answer, error) {
	return operate.Answer{}, s.bad
}

func (s *shut) SetPause(context.Context, operate.Actor, operate.Pause) (operate.Pause, error) {
	return operate.Pause{}, s.bad
}

// shutTimes are its schedules.
type shutTimes struct {
	timetable
	s *shut
}

func (t shutTimes) RunSchedule(context.Context, operate.Actor, string, string, string) (operate.ScheduleRun, error) {
	return operate.ScheduleRun{}, t.s.bad
}

// TestRefusedFormHasAnotherKey: what was refused is put right in its form and sent again by another key, as a key answers for one
// request; what may be done is asked again by its own.
func TestRefusedFormHasAnotherKey(t *testing.T) {
	w := fixedWorld()
	w.trips()
	cfg, s := w.config(), &shut{world: w}
	cfg.Actions, cfg.Pauses, cfg.Schedules = s, s, shutTimes{timetable{w}, s}
	h := as(operate.RoleOperator, newConsole(t, cfg))
	for path, typed := range map[string]url.Values{
		"tasks/order/order-1002/act/edit":  {"input": {`{"a":1}`}, "go": {"send"}},
		"tasks/order/order-1002/act/undo":  {},
		"tasks/trip/trip-1/signal/approve": {"go": {"refuse"}},
		"pauses/new":                       {"agent": {"check.v1"}},
		"schedules/nightly/run-now":        {},
	} {
		form := fields(get(t, h, Path+path).Body.String())
		form.Set("reason", "x")
		for name, values := range typed {
			form[name] = values
		}
		for _, s.bad = range []*operate.Refusal{{Code: 422, Detail: "no"}, {Code: 503, Detail: "not now", RetryMS: 1000}} {
			rec := post(t, h, Path+path, form)
			is := fields(rec.Body.String()).Get("key")
			if rec.Code != s.bad.Code || is == "" || (is == form.Get("key")) != (s.bad.RetryMS > 0) {
				t.Errorf("%s: %d, the key was %s and is %s after %+v", path, rec.Code, form.Get("key"), is, s.bad)
			}
		}
	}
}

// TestEncryptedPayloads: an encrypted input is a state of its own, with its key, and is edited where the key is.
//
// covers: OP11, OP18
func TestEncryptedPayloads(t *testing.T) {
	w := fixedWorld()
	w.find("order-1002").view.Input = []byte(`{"duly.enc":"A256GCM-1","key":"k-7","data":"UVVJVEU="}`)
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	if body := get(t, h, Path+"tasks/order/order-1002").Body.String(); !strings.Contains(body, `encrypted</span> with key <span class="mono">k-7</span>`) || !strings.Contains(body, "As it is stored, ") {
		t.Error("the page of the task does not say that its input is encrypted, and with what")
	}
	for _, action := range []string{"edit", "accept"} {
		body := get(t, h, Path+"tasks/order/order-1002/act/"+action).Body.String()
		if strings.Contains(body, "<textarea") || strings.Contains(body, "UVVJVEU") || !strings.Contains(body, "duly task "+action+" order/order-1002 --payload-keys FILE") {
			t.Errorf("%s: the dialog does not say how it is done with the key: %s", action, body)
		}
	}
	if body := get(t, h, Path+"tasks/order/order-1002/act/resubmit").Body.String(); !strings.Contains(body, "<textarea") {
		t.Error("a resubmit is not to be had")
	}
}

// TestPatchMany: an edit of many changes each task's own input; the dialog shows one of them, and the preview what becomes
// of some. Nothing, no JSON, and an input for all are told apart.
//
// covers: OP11, OP9
func TestPatchMany(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	dialog := get(t, h, Path+"operations/new?action=edit&group="+w.groupsAll()[0].ID).Body.String()
	if !strings.Contains(dialog, "The input of one of them") || !strings.Contains(dialog, "d-patch") {
		t.Errorf("dialog: %s", dialog)
	}
	form := fields(dialog)
	form.Set("reason", "the bank wants euros")
	if rec := post(t, h, Path+"operations/preview", form); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "Say what changes") {
		t.Errorf("nothing: %d", rec.Code)
	}
	form.Set("patch", `{"currency":`)
	if rec := post(t, h, Path+"operations/preview", form); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "The patch") {
		t.Errorf("no JSON: %d", rec.Code)
	}
	form.Set("patch", `{"currency":"EUR"}`)
	rec := post(t, h, Path+"operations/preview", form)
	if text := rec.Body.String(); rec.Code != http.StatusOK || !strings.Contains(text, "What the patch changes") || !strings.Contains(text, "<ins>") || !strings.Contains(text, "does not apply") {
		t.Errorf("preview: %d %s", rec.Code, rec.Body)
	}
	if r := w.ops[len(w.ops)-1].Request; r.Action != operate.ActionEdit || string(r.Patch) != `{"currency":"EUR"}` || r.Input != nil {
		t.Errorf("asked %+v", r)
	}
	form.Set("patch", "")
	form.Set("input", `{"order":1}`)
	if rec := post(t, h, Path+"operations/preview", form); rec.Code != http.StatusOK || w.ops[len(w.ops)-1].Request.Patch != nil || string(w.ops[len(w.ops)-1].Request.Input) != `{"order":1}` {
		t.Errorf("an input for all: %d", rec.Code)
	}
}

// TestErrorsAreAnswers: whatever is away, each page is a sentence with a next step.
//
// covers: OP22
func TestErrorsAreAnswers(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleAdmin, newConsole(t, w.config()))
	w.broken = fmt.Errorf("dial tcp 10.1.2.3:5432: %w", errors.New("connection refused"))
	for _, path := range everyPage {
		rec := get(t, h, Path+path)
		body := rec.Body.String()
		if strings.HasPrefix(path, "operations/op-") {
			continue // of a store that the world keeps apart
		}
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" || !strings.Contains(body, "This node cannot read the database now.") || !strings.Contains(body, ">Try again</a>") {
			t.Errorf("%s: %d", path, rec.Code)
		}
		if strings.Contains(body, "10.1.2.3") {
			t.Errorf("%s tells an address", path)
		}
	}
	w.broken = context.DeadlineExceeded
	if body := get(t, h, Path+"tasks").Body.String(); !strings.Contains(body, "did not answer within 10 s") {
		t.Error("a time-out is not said")
	}
}

// unread is a store that must not be asked.
type unread struct {
	*world
	t *testing.T
}

func (u unread) Groups(context.Context, operate.GroupFilter) (operate.Groups, error) {
	u.t.Error("the groups were read once more")
	return operate.Groups{}, nil
}

func (u unread) AtRisk(context.Context, core.Instant, int) ([]core.View, bool, error) {
	u.t.Error("the tasks at risk were read once more")
	return nil, false, nil
}

// TestOverviewReadsOnce: the first screen shows what was read live, and asks the store for none of it again.
//
// covers: OP6, OP7
func TestOverviewReadsOnce(t *testing.T) {
	w := fixedWorld()
	w.risky = true
	w.find("order-1005").view.CompleteBy = core.InstantOf(noon.Add(time.Minute))
	soon, groups := w.nearest(core.InstantOf(w.now().Add(2*time.Minute))), w.largest().Groups
	cfg := w.config()
	cfg.Reader = unread{w, t}
	body := get(t, as(operate.RoleViewer, newConsole(t, cfg)), Path).Body.String()
	if len(soon) == 0 || len(groups) == 0 || !strings.Contains(body, `href="/console/tasks/`+soon[0].Type+"/"+soon[0].ID) || !strings.Contains(body, `href="/console/failures/`+groups[0].ID) {
		t.Errorf("%d groups, %d tasks near their deadline, and the page does not name the first of each", len(groups), len(soon))
	}
}

// TestOverview: each thing that needs someone is one click from its list; nothing is green with the time of the look.
//
// covers: OP7
func TestOverview(t *testing.T) {
	w := fixedWorld()
	w.trouble = []operate.Trouble{{Name: "database", Text: "the database cannot be reached", Since: noon.Add(-time.Minute)}}
	w.find("order-1005").view.CompleteBy = core.InstantOf(noon.Add(time.Minute))
	body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path).Body.String()
	for _, want := range []string{`href="/console/failures?state=error">1,242 tasks in error`, `href="/console/operations/op-7">braked: resubmit`, `href="/console/tasks/order/order-1005"`, `href="/console/risk"`, `href="/console/agents#reserve.v1"`, "This node: database", "the database cannot be reached", "2026-03-01 12:00:00.000Z"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	quiet := fixedWorld()
	quiet.tasks, quiet.ops, quiet.agentsIn, quiet.held = quiet.tasks[:1], nil, nil, nil
	quiet.agreed()
	body = get(t, as(operate.RoleViewer, newConsole(t, quiet.config())), Path).Body.String()
	if !strings.Contains(body, "Nothing needs your attention.") || !strings.Contains(body, `Looked at <time class="x" datetime="2026-03-01T12:00:00Z"`) || strings.Contains(body, `class="need `) {
		t.Error("an empty first screen is not green with the time of the look")
	}
}

// TestOneReadingForAll: fifty first screens at a time read the database as often as one.
//
// covers: OP6
func TestOneReadingForAll(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	get(t, h, Path)
	reads := w.reads
	for range 50 {
		get(t, h, Path)
	}
	if w.reads != reads {
		t.Errorf("%d reads for 50 more first screens", w.reads-reads)
	}
}

// TestStreams: all streams of one look get the same bytes, made once; there are no more of them than allowed.
//
// covers: OP6
func TestStreams(t *testing.T) {
	w := fixedWorld()
	w.ops[0].State = operate.OperationRunning
	cfg := w.config()
	cfg.StreamsMax = 6 // three of an actor
	server := httptest.NewServer(as(operate.RoleViewer, newConsole(t, cfg)))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := func() *bufio.Reader {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+Path+"live", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %s", resp.StatusCode, resp.Header)
		}
		return bufio.NewReader(resp.Body)
	}
	readers := []*bufio.Reader{listen(), listen(), listen()}
	data := func(r *bufio.Reader) string {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				return text
			}
		}
	}
	first := data(readers[0])
	for _, r := range readers[1:] {
		if data(r) != first {
			t.Error("two streams got different bytes of one look")
		}
	}
	var e event
	if err := json.Unmarshal([]byte(first), &e); err != nil || len(e.Points) < 100 || !strings.Contains(e.Needs, "tasks in error") || e.States["error"] != "1,242" || !strings.Contains(e.Ops["op-7"], "4,156") {
		t.Errorf("first event: %v, %d points", err, len(e.Points))
	}
	reads := w.reads
	w.tell("the state store could not be read")
	var second event
	if err := json.Unmarshal([]byte(data(readers[0])), &second); err != nil || second.Trouble == "" || len(second.Points) != 1 {
		t.Errorf("second event: %v, %d points, trouble %q", err, len(second.Points), second.Trouble)
	}
	if w.reads != reads {
		t.Errorf("an event took %d reads", w.reads-reads)
	}
	resp, err := http.Get(server.URL + Path + "live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a stream over the limit: %d", resp.StatusCode)
	}
	cancel()
}

// TestSubPath: below a proxy's path every address is, with and without the proxy taking it off.
//
// covers: OP20
func TestSubPath(t *testing.T) {
	w := fixedWorld()
	cfg := w.config()
	cfg.Base = "/ops/duly"
	h := as(operate.RoleAdmin, newConsole(t, cfg))
	address := regexp.MustCompile(` (?:href|src|action|hx-get|hx-post|data-live)="([^"]*)"`)
	for _, path := range slices.Concat(everyPage, everyDialog) {
		for _, base := range []string{"/ops/duly", ""} {
			rec := get(t, h, base+Path+path)
			for _, m := range address.FindAllStringSubmatch(rec.Body.String(), -1) {
				if to := m[1]; !strings.HasPrefix(to, "/ops/duly/console/") && !strings.HasPrefix(to, "/ops/duly/v1/") && !strings.HasPrefix(to, "?") && !strings.HasPrefix(to, "#") {
					t.Fatalf("%s has the address %s", path, to)
				}
			}
		}
	}
	for _, bad := range []string{"ops", "/ops/", "/a b", `/"x`} {
		cfg.Base = bad
		if _, err := New(cfg); err == nil {
			t.Errorf("base %q is accepted", bad)
		}
	}
}

// TestWeight: the first load is less than 250 KB, and is kept by the browser.
//
// covers: OP20
func TestWeight(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	page := get(t, h, Path)
	weight := page.Body.Len()
	for _, m := range regexp.MustCompile(`(?:href|src)="(/console/assets/[^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		rec := get(t, h, m[1])
		if rec.Code != 200 || !strings.Contains(rec.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %s", m[1], rec.Code, rec.Header().Get("Cache-Control"))
		}
		weight += rec.Body.Len()
		r := httptest.NewRequest(http.MethodGet, m[1], nil)
		r.Header.Set("Accept-Encoding", "gzip")
		small := httptest.NewRecorder()
		h.ServeHTTP(small, r)
		if small.Header().Get("Content-Encoding") != "gzip" || small.Body.Len() > rec.Body.Len() {
			t.Errorf("%s is not compressed", m[1])
		}
	}
	t.Logf("first load: %d bytes, not compressed", weight)
	if weight >= 250_000 {
		t.Errorf("the first load has %d bytes", weight)
	}
	if rec := get(t, h, Path+"assets/x/../../console.go"); rec.Code == 200 {
		t.Error("a path out of the assets is served")
	}
}

// TestTokenIsToldOnce: the secret is in the answer to its creation, and nowhere after.
func TestTokenIsToldOnce(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleAdmin, newConsole(t, w.config()))
	rec := post(t, h, Path+"settings/tokens/new", url.Values{"name": {"deploy"}, "role": {"operator"}, "for": {"24h"}})
	_, secret, _ := strings.Cut(rec.Body.String(), `aria-label="Secret">`)
	secret, _, _ = strings.Cut(secret, "<")
	last := w.tokens[len(w.tokens)-1]
	if rec.Code != 200 || !strings.HasPrefix(secret, "duly_") || last.Name != "deploy" || rec.Header().Get("Set-Cookie") != "" {
		t.Fatalf("%d, %q", rec.Code, secret)
	}
	if !last.Expires.Equal(noon.Add(24 * time.Hour)) {
		t.Errorf("expires %v", last.Expires)
	}
	for _, path := range []string{"settings", "audit"} {
		if strings.Contains(get(t, h, Path+path).Body.String(), secret) {
			t.Errorf("%s tells the secret again", path)
		}
	}
	if rec := post(t, h, Path+"settings/tokens/new", url.Values{"name": {"two words"}, "role": {"operator"}}); rec.Code != 422 || len(w.tokens) != 3 {
		t.Errorf("a name with a space: %d", rec.Code)
	}
}

// TestVendored: what others wrote is what they published.
func TestVendored(t *testing.T) {
	for name, want := range map[string]string{ // SHA-256 of the files in the packages htmx.org 4.0.1 and uplot 1.6.32 of npm
		"htmx.min.js":   "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
		"uplot.min.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has another hash", name)
		}
	}
}

// TestCounts: a count that is not exact says so.
//
// covers: OP5
func TestCounts(t *testing.T) {
	for c, want := range map[operate.Count]string{{N: 0}: "0", {N: 1234567}: "1,234,567", {N: 10_000, AtLeast: true}: "≥ 10,000", {AtLeast: true}: "not counted"} {
		if got := c.String(); got != want {
			t.Errorf("%+v is %s", c, got)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 µs", 1500 * time.Millisecond: "1.5 s", 61 * time.Second: "1 min 1 s", 26 * time.Hour: "26 h", 49 * time.Hour: "2 d 1 h", -time.Second: "−1 s"} {
		if got := duration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// TestStreamsOutliveTheServersLimit: a stream lasts longer than the server lets one answer take, and ends when the node
// does.
//
// covers: OP6
func TestStreamsOutliveTheServersLimit(t *testing.T) {
	w := newWorld(time.Now)
	cfg := w.config()
	ending := make(chan struct{})
	cfg.Ending = ending
	server := httptest.NewUnstartedServer(as(operate.RoleViewer, newConsole(t, cfg)))
	server.Config.WriteTimeout, server.Config.ReadTimeout = 500*time.Millisecond, 500*time.Millisecond
	server.Start()
	defer server.Close()
	resp, err := http.Get(server.URL + Path + "live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for range 2 {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			if strings.HasPrefix(line, "data: ") {
				break
			}
		}
		<-time.After(800 * time.Millisecond)
		w.tell("")
	}
	close(ending)
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(r); err != nil {
		t.Errorf("the end of the node: %v", err)
	}
}

// TestHome: a browser that asks for / is sent to the console; a program is not.
func TestHome(t *testing.T) {
	h := Home("/ops", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for accept, want := range map[string]int{"text/html,application/xhtml+xml": http.StatusFound, "*/*": http.StatusTeapot, "": http.StatusTeapot} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != want || want == http.StatusFound && rec.Header().Get("Location") != "/ops/console/" {
			t.Errorf("Accept %q: %d %s", accept, rec.Code, rec.Header().Get("Location"))
		}
	}
}

// TestViews: a filter is saved under a name, used from the list, and deleted, each with its audit entry.
//
// covers: OP8, OP16
func TestViews(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	rec := post(t, h, Path+"views", url.Values{"name": {"EU errors"}, "query": {"state=error&label=region%3Deu&after=77&limit=3"}})
	if to := rec.Header().Get("Location"); rec.Code != http.StatusSeeOther || to != Path+"tasks?label=region%3Deu&state=error" {
		t.Fatalf("%d %s", rec.Code, to)
	}
	if body := get(t, h, Path+"tasks?label=region%3Deu&state=error").Body.String(); !strings.Contains(body, `href="/console/tasks?label=region%3Deu&amp;state=error" aria-current="true">EU errors</a>`) {
		t.Error("the saved view is not on the list")
	}
	for _, form := range []url.Values{{"name": {""}, "query": {"state=error"}}, {"name": {strings.Repeat("x", 65)}, "query": {"state=error"}}, {"name": {"x"}, "query": {"state=gone"}}, {"name": {"x"}, "query": {"%zz"}}} {
		if rec := post(t, h, Path+"views", form); rec.Code < 400 || rec.Code > 499 || len(w.settings) != 1 {
			t.Errorf("%v: %d", form, rec.Code)
		}
	}
	views, err := (&console{Config: w.config()}).views(t.Context())
	if err != nil || len(views) != 1 {
		t.Fatalf("%v, %v", views, err)
	}
	if rec := post(t, h, Path+"views/"+views[0].ID+"/delete", nil); rec.Code != http.StatusSeeOther || len(w.settings) != 0 {
		t.Errorf("delete: %d", rec.Code)
	}
	last := w.entries[len(w.entries)-2:]
	if last[0].Action != "view.save" || last[0].Outcome != "done" || last[1].Action != "view.delete" || len(last[1].Before) == 0 {
		t.Errorf("audit: %+v", last)
	}
}

// TestPauses: a pause says what waits behind it and until when; it is set and lifted with a reason, and what is wrong is
// said in the dialog.
//
// covers: OP10, OP16, OP19
func TestPauses(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := get(t, h, Path+"pauses").Body.String()
	for _, want := range []string{"agent ship.v1", ">312</td>", `datetime="2026-03-01T12:04:00Z"`, "carrier is down until 18:00"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	for field, form := range map[string]url.Values{
		"reason": {"agent": {"check.v1"}},
		"type":   {"reason": {"x"}},
		"step":   {"agent": {"check.v1"}, "step": {"a"}, "reason": {"x"}},
		"agent":  {"agent": {"a b"}, "reason": {"x"}},
		"for":    {"agent": {"check.v1"}, "for": {"soon"}, "reason": {"x"}},
	} {
		rec := post(t, h, Path+"pauses/new", form)
		if rec.Code != http.StatusUnprocessableEntity || !regexp.MustCompile(`id="d-`+field+`"[^>]*aria-invalid="true"`).MatchString(rec.Body.String()) || len(w.held) != 1 {
			t.Errorf("%v: %d", form, rec.Code)
		}
	}
	if rec := post(t, h, Path+"pauses/new", url.Values{"agent": {"check.v1"}, "for": {"30m"}, "reason": {"bank is down"}}); rec.Code != http.StatusSeeOther || len(w.held) != 2 || !w.held[1].Until.Equal(noon.Add(30*time.Minute)) || w.held[1].By != "ada" {
		t.Fatalf("set: %d %+v", rec.Code, w.held)
	}
	if e := w.entries[len(w.entries)-1]; len(w.entries) != 121 || e.Action != "pause.set" || e.Reason != "bank is down" || e.Via != "console" {
		t.Errorf("%d entries, the newest is %+v", len(w.entries), e)
	}
	if rec := post(t, h, Path+"pauses/p1/lift", nil); rec.Code != http.StatusUnprocessableEntity || len(w.held) != 2 {
		t.Errorf("lift without a reason: %d", rec.Code)
	}
	if rec := post(t, h, Path+"pauses/p1/lift", url.Values{"reason": {"the carrier is back"}}); rec.Code != http.StatusSeeOther || len(w.held) != 1 {
		t.Errorf("lift: %d", rec.Code)
	}
	admin := as(operate.RoleAdmin, newConsole(t, w.config()))
	if rec := post(t, admin, Path+"partitions/3/pin", url.Values{"node": {"nobody"}, "reason": {"x"}}); rec.Code != 422 || !strings.Contains(rec.Body.String(), "There is no node nobody.") {
		t.Errorf("pin: %d", rec.Code)
	}
	if e := w.entries[len(w.entries)-1]; len(w.entries) != 122 || e.Action != "partition.pin" || e.Outcome != "refused: no such node" {
		t.Errorf("audit of a refused pin: %+v", e)
	}
	form := url.Values{"node": {"nobody"}, "reason": {"x"}, "even_if_unknown": {"no"}}
	if rec := post(t, admin, Path+"partitions/3/pin", form); rec.Code != 422 || !strings.Contains(rec.Body.String(), `<label for="d-even_if_unknown">Do it all the same`) {
		t.Errorf("a refused pin does not say how to insist: %d %s", rec.Code, rec.Body)
	}
	form.Set("even_if_unknown", "yes")
	if rec := post(t, admin, Path+"partitions/3/pin", form); rec.Code != http.StatusSeeOther || w.parts[3].Pinned != "nobody" {
		t.Errorf("an insisted pin: %d %+v", rec.Code, w.parts[3])
	}
	rec := post(t, admin, Path+"settings/alerts/on-call/test", nil)
	r := httptest.NewRequest(http.MethodGet, Path+"settings", nil)
	for _, c := range rec.Result().Cookies() {
		r.AddCookie(c)
	}
	shown := httptest.NewRecorder()
	admin.ServeHTTP(shown, r)
	if !strings.Contains(shown.Body.String(), "The test alert was not delivered: connection refused") {
		t.Errorf("a test that fails: %d", rec.Code)
	}
}

// TestBreakers: the page says how each breaker stands, until when and why, and which steps wait for whom; it is forced with a
// reason, and what is wrong is said in the dialog.
//
// covers: OP16, OP19
func TestBreakers(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := get(t, h, Path+"agents").Body.String()
	for _, want := range []string{"412 of 500 calls failed", `datetime="2026-03-01T12:03:00Z"`, "forced by ada", "until it is set to auto", "trial", "order/reserve: 10,064", "in flight, taken by no instance: 64", "gone"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if first := get(t, h, Path).Body.String(); !strings.Contains(first, "2 breakers open: 409 tasks wait") {
		t.Error("the first page does not say which breakers are open")
	}
	path := Path + "agents/check.v1/breaker"
	if dialog := get(t, h, path).Body.String(); !strings.Contains(dialog, "Breaker of check.v1") || !strings.Contains(dialog, `id="d-for"`) {
		t.Error(dialog)
	}
	for field, form := range map[string]url.Values{"reason": {"state": {"open"}}, "for": {"state": {"open"}, "for": {"soon"}, "reason": {"x"}}, "": {"state": {"trial"}, "reason": {"x"}}} {
		rec := post(t, h, path, form)
		if rec.Code < 400 || rec.Code >= 500 || field != "" && !regexp.MustCompile(`id="d-`+field+`"[^>]*aria-invalid="true"`).MatchString(rec.Body.String()) || w.agentsIn[1].Breaker.State != core.BreakerClosed {
			t.Errorf("%v: %d", form, rec.Code)
		}
	}
	rec := post(t, h, path, url.Values{"state": {"open"}, "for": {"30m"}, "reason": {"bank is down"}})
	if b := w.agentsIn[1].Breaker; rec.Code != http.StatusSeeOther || b.State != core.BreakerOpen || !b.Until.Equal(noon.Add(30*time.Minute)) || b.By != "ada" {
		t.Fatalf("forced: %d %+v", rec.Code, b)
	}
	if e := w.entries[len(w.entries)-1]; e.Action != "breaker.open" || e.Target != "agent/check.v1" || e.Reason != "bank is down" || e.Via != "console" {
		t.Errorf("the newest entry is %+v", e)
	}
	viewer := as(operate.RoleViewer, newConsole(t, w.config()))
	if rec := post(t, viewer, path, url.Values{"state": {"auto"}, "reason": {"x"}}); rec.Code != http.StatusForbidden {
		t.Errorf("a viewer: %d", rec.Code)
	}
	if body := get(t, viewer, Path+"agents").Body.String(); strings.Contains(body, "agents/check.v1/breaker") || !strings.Contains(body, "whyb-check.v1") {
		t.Error("a viewer is offered to change breakers")
	}
}

// TestLimits: the page says what bounds each agent and what of it is granted and wanted, also of an agent that there is no
// more, and which keys are busiest, whatever is in them; a limit is set and removed with a reason, and what is wrong is said
// at its field.
//
// covers: OP16, OP19, OP22
func TestLimits(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := get(t, h, Path+"agents").Body.String()
	for _, want := range []string{"20 at a time", "17 granted", "1,250.5 a second", "833.667 granted", `each <code class="own">input.customer</code>: 2 at a time<br>`, "412 wanted by 3 holders", "what the bank allows",
		"31 keys in use; the busiest 3", ">acme<", "&lt;script&gt;alert(1)&lt;/script&gt;", "empty: the tasks whose key cannot be computed", `id="retired.v0"`, "in no plan", "0.1 a second", "our contract", "1 key in use<",
		Path + "agents/charge.v1/limit/remove", Path + "agents/check.v1/limit/set"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "<script>alert") || strings.Contains(body, Path+"agents/check.v1/limit/remove") || strings.Contains(body, Path+"agents/retired.v0/breaker") {
		t.Error("a key is a script, or what cannot be is offered")
	}
	for range 20 {
		get(t, h, Path+"agents")
	}
	if w.looked != 1 {
		t.Errorf("21 pages read the limits %d times", w.looked)
	}
	path := Path + "agents/charge.v1/limit/set"
	dialog := get(t, h, path).Body.String()
	for name, value := range map[string]string{"concurrent": "20", "rate": "1250.5", "key": "input.customer", "key_concurrent": "2", "key_rate": ""} {
		if !strings.Contains(dialog, `name="`+name+`" value="`+value+`"`) {
			t.Errorf("the dialog has not %s as it is", name)
		}
	}
	before := slices.Clone(w.bounds)
	for _, wrong := range []struct{ field, value, says string }{
		{"reason", "", "Give a reason"}, {"concurrent", "many", "want a number of calls"}, {"concurrent", "0", "want a number of calls"}, {"rate", "0", "want calls a second"}, {"concurrent", "1000001", "want 0 (any number) to 1000000"}, {"concurrent", "", "neither concurrent nor rate is given"},
		{"rate", "6/min", "want calls a second"}, {"rate", "-1", "or 0.001 to 1000000"}, {"rate", "NaN", "or 0.001 to 1000000"}, {"rate", "0.0001", "or 0.001"},
		{"key", "input.", "line 1, column 7"}, {"key", "[1]", "it gives"}, {"key", "type", "neither key_concurrent nor key_rate is"}, {"key_concurrent", "1.5", "want a number of calls"}, {"key_rate", "fast", "want calls a second"},
	} {
		form := url.Values{"concurrent": {"5"}, "reason": {"x"}}
		form.Set(wrong.field, wrong.value)
		rec := post(t, h, path, form)
		body := html.UnescapeString(rec.Body.String())
		if rec.Code < 400 || rec.Code >= 500 || !regexp.MustCompile(`id="d-`+wrong.field+`"[^>]*aria-invalid="true"`).MatchString(body) || !strings.Contains(body, wrong.says) || wrong.value != "" && !strings.Contains(body, `value="`+wrong.value+`"`) {
			t.Errorf("%+v: %d", wrong, rec.Code)
		}
	}
	if rec := post(t, h, path, url.Values{"key_rate": {"1"}, "reason": {"x"}}); rec.Code != 400 || !regexp.MustCompile(`id="d-key"[^>]*aria-invalid="true"`).MatchString(rec.Body.String()) {
		t.Errorf("a rate of no key: %d", rec.Code)
	}
	if !reflect.DeepEqual(w.bounds, before) {
		t.Errorf("what was refused was done: %+v", w.bounds)
	}
	get(t, h, Path+"agents")
	looked := w.looked
	rec := post(t, h, path, url.Values{"rate": {" 0.25 "}, "key": {"input.tenant"}, "key_concurrent": {"3"}, "key_rate": {"2"}, "reason": {"they have shrunk"}})
	if l := w.bounds[len(w.bounds)-1]; rec.Code != http.StatusSeeOther || l.Agent != "charge.v1" || l.Concurrent != 0 || l.Rate != 0.25 || l.Key != "input.tenant" || l.KeyConcurrent != 3 || l.KeyRate != 2 || l.By != "ada" {
		t.Fatalf("set: %d %+v", rec.Code, l)
	}
	if e := w.entries[len(w.entries)-1]; e.Action != "limit.set" || e.Target != "agent/charge.v1" || e.Reason != "they have shrunk" || e.Via != "console" {
		t.Errorf("the newest entry is %+v", e)
	}
	if body := get(t, h, Path+"agents").Body.String(); !strings.Contains(body, "0.25 a second") || !strings.Contains(body, `each <code class="own">input.tenant</code>: 3 at a time, 2 a second<br>`) || !strings.Contains(body, "no key in use") || w.looked != looked+1 {
		t.Errorf("the page does not show at once what was set, %d readings", w.looked-looked)
	}
	remove := Path + "agents/retired.v0/limit/remove"
	if rec := post(t, h, remove, url.Values{}); rec.Code != 422 || len(w.bounds) != 3 {
		t.Errorf("removed without a reason: %d", rec.Code)
	}
	if rec := post(t, h, remove, url.Values{"reason": {"over"}}); rec.Code != http.StatusSeeOther || len(w.bounds) != 2 || w.entries[len(w.entries)-1].Action != "limit.remove" {
		t.Errorf("removed: %d", rec.Code)
	}
	if rec := post(t, h, remove, url.Values{"reason": {"over"}}); rec.Code != 404 || !strings.Contains(html.UnescapeString(rec.Body.String()), `agent "retired.v0" has no limit`) {
		t.Errorf("removed twice: %d", rec.Code)
	}
	if strings.Contains(get(t, h, Path+"agents").Body.String(), "retired.v0") {
		t.Error("an agent of which nothing is left is shown")
	}
	viewer := as(operate.RoleViewer, newConsole(t, w.config()))
	if rec := get(t, viewer, path); rec.Code != http.StatusForbidden || strings.Contains(rec.Body.String(), "d-rate") {
		t.Errorf("a viewer gets the form: %d", rec.Code)
	}
	if body := get(t, viewer, Path+"agents").Body.String(); strings.Contains(body, "/limit/") || !strings.Contains(body, "whyl-check.v1") || !strings.Contains(body, "0.25 a second") {
		t.Error("a viewer is offered to change limits, or does not see them")
	}
}

// TestChannels: a channel of alerts is made, changed and deleted on the page; its secret goes to the store alone, and admins
// alone see where it leads.
//
// covers: OP16, OP22
func TestChannels(t *testing.T) {
	w := fixedWorld()
	h := newConsole(t, w.config())
	admin := as(operate.RoleAdmin, h)
	if rec := get(t, as(operate.RoleOperator, h), Path+"settings/alerts/ops-hook/edit"); rec.Code != http.StatusForbidden || strings.Contains(rec.Body.String(), "hooks.example.test/duly") {
		t.Errorf("an operator sees the address: %d", rec.Code)
	}
	for role, may := range map[operate.Role]bool{operate.RoleViewer: false, operate.RoleOperator: false, operate.RoleAdmin: true} {
		body := get(t, as(role, h), Path+"settings").Body.String()
		for _, part := range []string{"ops-hook", "hooks.example.test", "on-call@example.test", "connection refused"} {
			if strings.Contains(body, part) != may {
				t.Errorf("a %s sees %q of the channels: %v", role, part, !may)
			}
		}
	}
	form := url.Values{"name": {"night"}, "document": {`{"kind":"webhook","url":"https://h"}`}, "secret": {"open sesame"}}
	if rec := post(t, admin, Path+"settings/alerts/new", form); rec.Code != http.StatusSeeOther {
		t.Errorf("new: %d %s", rec.Code, rec.Body)
	}
	form.Set("document", `{"kind":"webhook","url":"ftp://h"}`)
	rec := post(t, admin, Path+"settings/alerts/ops-hook/edit", form)
	if body := rec.Body.String(); rec.Code != 400 || strings.Contains(body, "open sesame") || !strings.Contains(body, "ftp://h") || !strings.Contains(body, "url: want https://host/…") {
		t.Errorf("refused: %d %s", rec.Code, body)
	}
	form.Set("document", `{"secret":"typed in the wrong place"`)
	before := len(w.entries)
	if rec := post(t, admin, Path+"settings/alerts/ops-hook/edit", form); rec.Code != 422 || len(w.entries) != before || !strings.Contains(rec.Body.String(), `aria-invalid="true"`) {
		t.Errorf("no JSON: %d, %d entries", rec.Code, len(w.entries)-before)
	}
	form = url.Values{"document": {`{"kind":"webhook","url":"https://h2"}`}}
	if rec := post(t, admin, Path+"settings/alerts/ops-hook/edit", form); rec.Code != http.StatusSeeOther {
		t.Errorf("edit: %d %s", rec.Code, rec.Body)
	}
	if e := w.entries[len(w.entries)-1]; e.Action != "channel.put" || e.Target != "channel/ops-hook" || !strings.Contains(string(e.Before), "hooks.example.test/duly") || string(e.After) != `{"kind":"webhook","url":"https://h2"}` {
		t.Errorf("audit %+v", e)
	}
	if rec := post(t, admin, Path+"settings/alerts/ops-hook/delete", url.Values{"reason": {"moved"}}); rec.Code != http.StatusSeeOther {
		t.Errorf("delete: %d", rec.Code)
	}
	if want := []string{`night {"kind":"webhook","url":"https://h"}`, "open sesame", `ops-hook {"kind":"webhook","url":"https://h2"}`, "deleted ops-hook"}; !slices.Equal(w.put, want) {
		t.Errorf("stored %q", w.put)
	}
	for _, e := range w.entries {
		if strings.Contains(string(e.After)+string(e.Before)+e.Reason, "open sesame") {
			t.Errorf("a secret is in the audit trail: %+v", e)
		}
	}
	if rec := get(t, admin, Path+"settings/alerts/none/edit"); rec.Code != 404 {
		t.Errorf("no channel: %d", rec.Code)
	}
}

// TestOneEncoding: the event of a look is made once, whatever the number of streams.
//
// covers: OP6
func TestOneEncoding(t *testing.T) {
	w := fixedWorld()
	c, err := build(w.config())
	if err != nil {
		t.Fatal(err)
	}
	s := w.snapshot()
	first, _, err := c.encode(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := c.encode(t.Context(), s); err != nil || &again[0] != &first[0] {
		t.Errorf("the same look was made into an event twice: %v", err)
	}
	s.Overview.At = s.Overview.At.Add(time.Second)
	if later, _, err := c.encode(t.Context(), s); err != nil || &later[0] == &first[0] {
		t.Errorf("a later look is not told: %v", err)
	}
}

// TestManyGroups: 10,000 failure groups are pages like any other.
//
// covers: OP5, OP21
func TestManyGroups(t *testing.T) {
	w := fixedWorld()
	for i := range 10_000 {
		l := w.born(&w.plansAll[0], fmt.Sprintf("alone-%05d", i), time.Hour, `{}`)
		l.stops(time.Second, 0, 500, "x")
		l.view.Fingerprint = fmt.Sprintf("f%05d", i)
	}
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	next, seen := "failures?state=error", map[string]bool{}
	row := regexp.MustCompile(`href="/console/failures/(g[^"]+)"`)
	for range 3 {
		body := get(t, h, Path+next).Body.String()
		rows := row.FindAllStringSubmatch(body, -1)
		if len(rows) != rowsOfList || len(body) > 150_000 {
			t.Fatalf("%s: %d rows in %d bytes", next, len(rows), len(body))
		}
		for _, m := range rows {
			if seen[m[1]] {
				t.Errorf("group %s is on two pages", m[1])
			}
			seen[m[1]] = true
		}
		m := regexp.MustCompile(`href="(\?[^"]*)">Next page`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("%s has no next page", next)
		}
		next = "failures" + html.UnescapeString(m[1])
	}
	if body := get(t, h, Path).Body.String(); len(row.FindAllString(body, -1)) != operate.NeedLinesMax {
		t.Error("the first screen does not keep to its few groups")
	}
}

// TestNewerPlans: plans that a newer node stored are named, and keep no page from being shown.
//
// covers: OP22
func TestNewerPlans(t *testing.T) {
	w := fixedWorld()
	w.newer = core.UnreadablePlans{{Name: "order", Version: 3, Err: errors.New("steps[0].loop")}, {Name: "future", Version: 1, Err: errors.New("steps[0].loop")}}
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	for path, want := range map[string]string{"tasks?state=processing": "order-1005", "tasks/order/order-1002": "Forward and back", "plans/order": "version 2", "plans": "Version 3 of plan order was stored by a newer version of Duly"} {
		if rec := get(t, h, Path+path); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d, no %q", path, rec.Code, want)
		}
	}
	if rec := get(t, h, Path+"plans/future"); rec.Code != http.StatusNotFound || !strings.Contains(rec.Body.String(), "was stored by a newer version of Duly") {
		t.Errorf("a plan that only a newer node can read: %d", rec.Code)
	}
}

// TestPlansDiffer: versions that part in nothing but a condition are not the same.
func TestPlansDiffer(t *testing.T) {
	w := fixedWorld()
	next := w.plansAll[0]
	next.Version, next.Steps = 77, slices.Clone(next.Steps)
	next.Steps[1].When = "input.total > 5"
	w.plansAll = append(w.plansAll, next)
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	body := html.UnescapeString(get(t, h, fmt.Sprintf("%splans/%s?version=77&with=%d", Path, next.Name, w.plansAll[0].Version)).Body.String())
	if !strings.Contains(body, "<ins>    when: input.total > 5</ins>") || strings.Contains(body, "<del>  - name") {
		t.Errorf("no condition in %s", body)
	}
}

// TestDeprecatedPlan: a version's page says that it is deprecated and lets operators change that, with a reason.
func TestDeprecatedPlan(t *testing.T) {
	w := fixedWorld()
	marks := &planMarks{}
	cfg := w.config()
	cfg.Versions = &operate.Versioning{Store: marks, Desk: cfg.Desk, Plans: w.Plans, Announce: func() error { return nil }, Now: w.now}
	h := as(operate.RoleOperator, newConsole(t, cfg))
	p := w.plansAll[0]
	page, change := Path+"plans/"+p.Name+"?version="+strconv.FormatInt(p.Version, 10), Path+"plans/"+p.Name+"/"+strconv.FormatInt(p.Version, 10)
	if body := get(t, h, page).Body.String(); !strings.Contains(body, "Deprecate it") || strings.Contains(body, "This version has been deprecated") {
		t.Error("before: no way to deprecate it")
	}
	if rec := post(t, h, change+"/deprecate", nil); rec.Code != http.StatusUnprocessableEntity && rec.Code != http.StatusBadRequest || len(marks.all) != 0 {
		t.Errorf("without a reason: %d", rec.Code)
	}
	if rec := post(t, h, change+"/deprecate", url.Values{"reason": {"charges twice"}}); rec.Code != http.StatusSeeOther || len(marks.all) != 1 {
		t.Fatalf("deprecate: %d %s", rec.Code, rec.Body)
	}
	if e := w.entries[len(w.entries)-1]; e.Action != "plan.deprecate" || e.Reason != "charges twice" || e.Outcome != "done" {
		t.Errorf("audit: %+v", e)
	}
	if body := get(t, h, page).Body.String(); !strings.Contains(body, "This version has been deprecated since") || !strings.Contains(body, "Allow it again") {
		t.Error("after: the page does not say so")
	}
	if rec := get(t, h, change+"/allow"); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "New tasks may get this version again.") {
		t.Errorf("dialog: %d", rec.Code)
	}
	if rec := post(t, h, change+"/allow", url.Values{"reason": {"mended"}}); rec.Code != http.StatusSeeOther || len(marks.all) != 0 {
		t.Errorf("allow: %d", rec.Code)
	}
	if rec := get(t, h, change+"/other"); rec.Code != http.StatusNotFound {
		t.Errorf("another change: %d", rec.Code)
	}
	viewer := as(operate.RoleViewer, newConsole(t, cfg))
	if rec := post(t, viewer, change+"/deprecate", url.Values{"reason": {"x"}}); rec.Code != http.StatusForbidden || len(marks.all) != 0 {
		t.Errorf("a viewer: %d", rec.Code)
	}
	if body := get(t, viewer, page).Body.String(); strings.Contains(body, "Deprecate it") {
		t.Error("a viewer is offered it")
	}
}

// planMarks are the versions that are deprecated.
type planMarks struct{ all core.Deprecations }

func (m *planMarks) Deprecated(context.Context) (core.Deprecations, error) { return m.all, nil }

func (m *planMarks) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	if m.all = nil; at != 0 {
		m.all = core.Deprecations{{Name: name, Version: version, At: at}}
	}
	return nil
}
