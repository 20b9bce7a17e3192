package api_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// world is a world and the API over it, as an admin unless a test says otherwise.
func world(t *testing.T, change func(*api.Config)) (*apitest.World, http.Handler) {
	t.Helper()
	w := apitest.New()
	handler, err := w.Handler(change)
	if err != nil {
		t.Fatal(err)
	}
	return w, handler
}

func ask(handler http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// document is the description that a handler serves.
func document(t *testing.T, handler http.Handler) (text string, doc map[string]any) {
	t.Helper()
	w := ask(handler, "GET", "/openapi.json", "")
	if w.Code != 200 {
		t.Fatalf("openapi.json: %d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return w.Body.String(), doc
}

// operation is one of the description.
type operation struct {
	method, path, id, role string
	client                 bool
	is                     map[string]any
}

// operations are all of a description, in order.
func operations(doc map[string]any) (all []operation) {
	paths := doc["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(item)) {
			op := item[method].(map[string]any)
			id, _ := op["operationId"].(string)
			role, _ := op["x-role"].(string)
			client, _ := op["x-client"].(bool)
			all = append(all, operation{strings.ToUpper(method), path, id, role, client, op})
		}
	}
	return all
}

// TestDocument: the description that is checked in is the one that is served.
func TestDocument(t *testing.T) {
	_, handler := world(t, nil)
	text, doc := document(t, handler)
	file := filepath.Join("..", "..", "docs", "reference", "openapi.json")
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s is not what the code describes; `make docs` writes it", file)
	}
	if n := len(operations(doc)); n < 45 {
		t.Errorf("%d operations, want all", n)
	}
}

// TestDocumentLint holds the description to what generated clients and readers need.
func TestDocumentLint(t *testing.T) {
	_, handler := world(t, nil)
	text, doc := document(t, handler)
	ids := map[string]bool{}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, ref := range regexp.MustCompile(`"\$ref": "#/components/schemas/([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if schemas[ref[1]] == nil {
			t.Errorf("schema %s is not there", ref[1])
		}
	}
	member := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	for name, schema := range schemas {
		if !regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`).MatchString(name) {
			t.Errorf("schema %q: want a name of letters", name)
		}
		properties, _ := schema.(map[string]any)["properties"].(map[string]any)
		for property := range properties {
			if !member.MatchString(property) {
				t.Errorf("schema %s: member %q, want lower case and _", name, property)
			}
		}
	}
	for _, op := range operations(doc) {
		where := op.method + " " + op.path
		if !regexp.MustCompile(`^[a-z][A-Za-z]+$`).MatchString(op.id) || ids[op.id] {
			t.Errorf("%s: operation id %q, want one of its own", where, op.id)
		}
		ids[op.id] = true
		if summary, _ := op.is["summary"].(string); summary == "" || strings.HasSuffix(summary, ".") || len(summary) > 100 {
			t.Errorf("%s: summary %q", where, summary)
		}
		if tags, _ := op.is["tags"].([]any); len(tags) != 1 {
			t.Errorf("%s: tags %v, want one", where, tags)
		}
		if op.role == "" || op.is["security"] == nil {
			t.Errorf("%s: no role, or no security", where)
		}
		params := map[string]bool{}
		list, _ := op.is["parameters"].([]any)
		for _, p := range list {
			p := p.(map[string]any)
			params[p["in"].(string)+" "+p["name"].(string)] = true
			if required, _ := p["required"].(bool); p["schema"] == nil || p["in"] == "path" && !required {
				t.Errorf("%s: parameter %v", where, p)
			}
		}
		for _, name := range regexp.MustCompile(`\{([^}]+)\}`).FindAllStringSubmatch(op.path, -1) {
			if !params["path "+name[1]] {
				t.Errorf("%s: path parameter %s is not described", where, name[1])
			}
		}
		good := 0
		if op.is["responses"].(map[string]any)["default"] == nil {
			t.Errorf("%s: no answer of what is refused", where)
		}
		for code, response := range op.is["responses"].(map[string]any) {
			content, _ := response.(map[string]any)["content"].(map[string]any)
			switch {
			case code >= "400" && code != "default":
				t.Errorf("%s: answer %s, want one document for all refusals", where, code)
			case code == "default" && content["application/problem+json"] == nil:
				t.Errorf("%s: what is refused is no problem document", where)
			case code < "300":
				good++
				if code != "204" && len(content) == 0 {
					t.Errorf("%s: answer %s has no content", where, code)
				}
			}
		}
		if good == 0 {
			t.Errorf("%s: no answer that is good", where)
		}
	}
}

// adminOnly are the operations of admins, and viewersRead all that viewers may: what is not named in either needs an
// operator. They are written out, so that a change of a role is seen.
var (
	adminOnly = []string{"listTokens", "createToken", "revokeToken", "pinPartition", "unpinPartition", "stepDownPartition",
		"listAlertChannels", "getAlertChannel", "putAlertChannel", "deleteAlertChannel", "testAlertChannel", "getLogLevel", "putLogLevel"}
	clientsToo  = []string{"submitTask", "putTask", "submitTasks", "getTask", "deleteTask", "followTask"}
	submissions = []string{"submitTask", "putTask", "submitTasks", "deleteTask"}
)

// TestRoles: each role may on each route with each method what it is for, on the server.
//
// covers: OP17
func TestRoles(t *testing.T) {
	w, handler := world(t, nil)
	_, doc := document(t, handler)
	allowed := 0
	for n, op := range operations(doc) {
		if n%10 == 9 { // only so many refusals a second are audited
			allowed += len(w.Asked) + len(w.Submitted)
			w, handler = world(t, nil)
		}
		reads := op.method == "GET"
		for _, role := range []operate.Role{"", operate.RoleClient, operate.RoleViewer, operate.RoleOperator, operate.RoleAdmin, "root"} {
			var may bool
			switch role {
			case operate.RoleAdmin:
				may = true
			case operate.RoleOperator:
				may = !slices.Contains(adminOnly, op.id)
			case operate.RoleViewer:
				may = reads && !slices.Contains(adminOnly, op.id)
			case operate.RoleClient:
				may = slices.Contains(clientsToo, op.id)
			}
			if role == operate.RoleViewer && slices.Contains(submissions, op.id) {
				may = false
			}
			if said := role.May(operate.Role(op.role)) || op.client && role == operate.RoleClient; said != may {
				t.Errorf("%s as %q: the description says %v", op.id, role, said)
			}
			target := strings.NewReplacer("{type}", "order", "{id}", "t-5", "{group}", "g1", "{operation}", "op1", "{partition}", "1", "{name}", "order", "{version}", "1", "{pause}", "p1", "{token}", "x", "{schedule}", "nightly").Replace(op.path)
			as := handler
			if role != "" {
				as = apitest.As(role, handler)
			}
			before := len(w.Trail)
			ctx, cancel := context.WithCancel(t.Context())
			if strings.HasPrefix(op.id, "follow") {
				cancel() // it would go on
			}
			r := httptest.NewRequestWithContext(ctx, op.method, target, strings.NewReader(`{}`))
			r.Header.Set("Content-Type", "application/json")
			got := httptest.NewRecorder()
			as.ServeHTTP(got, r)
			cancel()
			want := 0
			switch {
			case role == "":
				want = 401
			case !may:
				want = 403
			}
			if denied := got.Code == 401 || got.Code == 403; denied != (want != 0) || denied && got.Code != want {
				t.Errorf("%s (%s %s) as %q: %d %s, want allowed: %v", op.id, op.method, op.path, role, got.Code, got.Body, may)
			}
			if want == 403 && !reads && (len(w.Trail) != before+1 || !strings.HasPrefix(w.Trail[before].Outcome, "refused: ") || w.Trail[before].Actor != "the-"+string(role)) {
				t.Errorf("%s as %s: the refusal is not in the audit trail", op.id, role)
			}
			if want == 401 && got.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s: 401 without WWW-Authenticate", op.id)
			}
		}
		// A method that is not described is not there.
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.ContainsFunc(operations(doc), func(other operation) bool { return other.path == op.path && other.method == method }) {
				continue
			}
			if got := ask(apitest.As(operate.RoleAdmin, handler), method, strings.NewReplacer("{", "", "}", "").Replace(op.path), `{}`); got.Code != 405 && got.Code != 400 {
				t.Errorf("%s %s: %d, want 405", method, op.path, got.Code)
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing was ever allowed")
	}
}

// TestRoutes: every route answers what the world has.
func TestRoutes(t *testing.T) {
	for _, x := range []struct {
		method, target, body string
		code                 int
		says                 string
	}{
		{"GET", "/v1/tasks/order/t-5", "", 200, `"why":"the world says that it is error","possible":["resubmit","edit","accept","resolve","undo"]`},
		{"GET", "/v1/tasks/order/t-5", "", 200, `"seq":3,"fingerprint":"f1","labels":{"customer":"c-17"}`},
		{"GET", "/v1/tasks?state=error&step=charge&fingerprint=f1&label=customer%3Dc-17&created_from=2026-01-31T12:00:00Z&created_to=2026-02-01T00:00:00Z&deadline_to=2026-01-31T12:02:00Z", "", 200, `"id":"t-5"`},
		{"GET", "/v1/tasks?label=customer%3Dother", "", 200, `{"tasks":[]}`},
		{"GET", "/v1/tasks/order/t-5/journal?limit=2", "", 200, `"next":"2"`},
		{"GET", "/v1/tasks/order/t-5/journal?after=2", "", 200, `"seq":1,"kind":"submitted"`},
		{"GET", "/v1/tasks/order/t-5/journal", "", 200, `"step":"charge","status":"failed","attempt":1,"code":422,"error":"no money"`},
		{"GET", "/v1/plans", "", 200, `"after":["credit"]`},
		{"GET", "/v1/plans/order/1", "", 200, `"name":"charge","agent":"payment.charge"`},
		{"GET", "/v1/plans/order/2", "", 404, `in version 2`},
		{"GET", "/v1/agents", "", 200, `"name":"payment.charge","instances":0`},
		{"GET", "/v1/partitions", "", 200, `"partition":3,"owner":"node-a","epoch":3`},
		{"POST", "/v1/partitions/1/pin", `{"node":"node-b","reason":"r"}`, 204, ``},
		{"POST", "/v1/partitions/1/unpin", `{"reason":"r"}`, 204, ``},
		{"POST", "/v1/partitions/1/step-down", `{"reason":"r"}`, 204, ``},
		{"POST", "/v1/partitions/4/step-down", `{"reason":"r"}`, 404, `there are 4`},
		{"POST", "/v1/streams/TASKS/accept-loss", `{"reason":"purged by hand"}`, 200, `{"stream":"TASKS","messages":3}`},
		{"POST", "/v1/streams/OTHER/accept-loss", `{"reason":"r"}`, 404, `no stream \"OTHER\"`},
		{"POST", "/v1/streams/TASKS/accept-loss", `{}`, 400, `reason`},
		{"GET", "/v1/failures", "", 200, `"id":"g1","tasks":{"n":1}`},
		{"GET", "/v1/failures?state=undone", "", 200, `"groups":[]`},
		{"GET", "/v1/failures/g1", "", 200, `"example":"no money"`},
		{"GET", "/v1/failures/g2", "", 404, `g2`},
		{"POST", "/v1/failures/g1/notes", `{"text":"the bank knows"}`, 201, `"by":"the-admin","text":"the bank knows"`},
		{"POST", "/v1/failures/g9/notes", `{"text":"x"}`, 404, `g9`},
		{"GET", "/v1/failures/g1/notes", "", 200, `"notes":[]`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1"},"action":"resubmit"}`, 201, `"token":"preview-1"`},
		{"POST", "/v1/operations/preview", `{"selection":{"filter":{"state":"error","created_to":"2026-02-01T00:00:00Z"}},"action":"undo","request":{"reason":"r"}}`, 201, `"token":"preview-1"`},
		{"POST", "/v1/operations", `{"token":"preview-1","reason":"r","rate":5,"confirm":1}`, 201, `"rate":5,"brake":20`},
		{"GET", "/v1/operations", "", 200, `"tally":{"waiting":1,"asked":0,"done":1,"failed_again":0,"skipped":0}`},
		{"GET", "/v1/operations/op1", "", 200, `"reason":"bank is back"`},
		{"GET", "/v1/operations/op1", "", 200, `"since":{"n":1}`},
		{"GET", "/v1/operations/op1/members?outcome=done", "", 200, `"ordinal":1`},
		{"GET", "/v1/operations/op1/members?limit=1", "", 200, `"next":"1"`},
		{"PATCH", "/v1/operations/op1", `{"state":"paused","rate":0,"reason":"r"}`, 200, `"state":"paused"`},
		{"PATCH", "/v1/operations/nope", `{"state":"paused","reason":"r"}`, 404, `no operation`},
		{"POST", "/v1/plans/order/1/deprecate", `{"reason":"wrong agent"}`, 200, `"name":"order","version":1,"deprecated":true,"newest":0`},
		{"POST", "/v1/plans/order/check", `{"version":1,"last":10}`, 200, `"in_flight":`},
		{"POST", "/v1/plans/order/check", `{"version":2}`, 404, `no plan \"order\" in version 2`},
		{"POST", "/v1/plans/order/check", `{"version":1,"after":"x"}`, 400, `after is no cursor of a check: \"x\"`},
		{"POST", "/v1/plans/order/check", `{"plan":{"name":"other","version":2,"steps":[{"name":"a","agent":"a"}]}}`, 400, `field plan is of \"other\"`},
		{"POST", "/v1/plans/order/check", `{"plan":{"name":"order","version":2,"steps":[]}}`, 400, `field plan: `},
		{"POST", "/v1/plans/order/check", `{"plan":{"name":"order","version":2,"steps":[{"name":"a","kind":"task","child":"none"}]}}`, 400, `child is \"none\", and no plan of that name is stored`},
		{"POST", "/v1/plans/order/1/deprecate", `{"undo":true,"reason":"right"}`, 200, `"deprecated":false,"newest":1`},
		{"POST", "/v1/plans/order/2/deprecate", `{"reason":"r"}`, 404, `no plan \"order\" in version 2`},
		{"POST", "/v1/plans/order/1/deprecate", `{"undo":true}`, 400, `reason`},
		{"PUT", "/v1/agents/payment.charge/breaker", `{"state":"auto","reason":"r"}`, 409, `is not forced: it opens and closes automatically`},
		{"PUT", "/v1/agents/payment.charge/breaker", `{"state":"open","until":"2026-01-31T13:00:00Z","reason":"bank is down"}`, 200, `{"state":"open","since":"2026-01-31T12:00:00Z","until":"2026-01-31T13:00:00Z","forced":true,"by":"the-admin","reason":"bank is down"}`},
		{"PUT", "/v1/agents/payment.charge/breaker", `{"state":"closed","reason":"bank is back"}`, 200, `{"state":"closed","since":"2026-01-31T12:00:00Z","forced":true,`},
		{"PUT", "/v1/agents/shop/breaker", `{"state":"open","reason":"r"}`, 404, `no stored plan has a step at agent \"shop\"`},
		{"GET", "/v1/agents", "", 200, `"unserved":{"n":2},"away_since":"2026-01-31T12:00:00Z","first_deadline":"2026-01-31T13:00:00Z","steps":[{"type":"order","step":"charge","tasks":2}]`},
		{"GET", "/v1/limits", "", 200, `{"limits":[]}`},
		{"PUT", "/v1/limits/payment.charge", `{"concurrent":20,"rate":0.57,"reason":"the bank asks for it"}`, 200, `{"agent":"payment.charge","concurrent":20,"rate":0.57,"granted":1,"granted_rate":0,"wanted":2,"holders":1,"revision":1,"since":"2026-01-31T12:00:00Z","by":"the-admin","reason":"the bank asks for it"}`},
		{"PUT", "/v1/limits/payment.charge", `{"rate":100,"reason":"r"}`, 200, `{"agent":"payment.charge","rate":100,"granted":1,`},
		{"PUT", "/v1/limits/payment.charge", `{"key":"input.customer","key_concurrent":2,"key_rate":0.5,"reason":"r"}`, 200, `{"agent":"payment.charge","key":"input.customer","key_concurrent":2,"key_rate":0.5,"granted":1,"granted_rate":0,"wanted":2,"holders":1,"keys":1,"busiest_keys":[{"key":"acme","holders":1,"wanted":2,"places":1}],`},
		{"DELETE", "/v1/limits/credit.check?reason=r", "", 404, `agent \"credit.check\" has no limit`},
		{"GET", "/v1/pauses", "", 200, `{"pauses":[]}`},
		{"POST", "/v1/pauses", `{"type":"order","step":"charge","reason":"bank is down","until":"2026-01-31T13:00:00Z"}`, 201, `"by":"the-admin","reason":"bank is down"`},
		{"POST", "/v1/pauses", `{"agent":"payment.chrage","reason":"r"}`, 404, `no stored plan has a step at agent \"payment.chrage\": is payment.charge meant? (even_if_unknown, at the command line --even-if-unknown, does it all the same)`},
		{"POST", "/v1/pauses", `{"agent":"payment.chrage","reason":"r","even_if_unknown":true}`, 201, `"agent":"payment.chrage"`},
		{"PUT", "/v1/limits/payment.chrage", `{"rate":100,"reason":"r"}`, 404, `is payment.charge meant?`},
		{"PUT", "/v1/limits/payment.chrage", `{"rate":100,"reason":"r","even_if_unknown":true}`, 200, `"agent":"payment.chrage"`},
		{"PUT", "/v1/agents/shop/breaker", `{"state":"open","reason":"r","even_if_unknown":true}`, 200, `"state":"open"`},
		{"DELETE", "/v1/pauses/nope", "", 404, `no pause`},
		{"GET", "/v1/books", "", 200, `"sentence":"Books not closed at 12:00: 2 of 12 effects do not agree with the journal.`},
		{"GET", "/v1/books?limit=1", "", 200, `"next":"payment.charge gone/charge/0"`},
		{"GET", "/v1/books?limit=1&after=payment.charge+gone/charge/0", "", 200, `"key":"t-4/charge/1","task":"t-4","type":"order","step":"charge","state":"undone","seq":3`},
		{"GET", "/v1/books?status=accepted", "", 200, `"ghosts":[]`},
		{"POST", "/v1/books/compare", "", 202, `"asked":{"id":"`},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"t-4/charge/1","repair":"undo","reason":"r"}`, 202, `"action":"undo"`},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"gone/charge/0","repair":"accept","reason":"r"}`, 202, `"action":"accept"`},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"gone/charge/0","repair":"undo","reason":"r"}`, 409, `cannot be undone by its task`},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"none/charge/0","repair":"undo","reason":"r"}`, 404, `has no effect with the key`},
		{"GET", "/v1/schedules", "", 200, `"name":"nightly","type":"order","input":{"cents":1},"cron":"30 2 * * *","zone":"Europe/Berlin"`},
		{"GET", "/v1/schedules?after=nightly", "", 200, `"schedules":[]`},
		{"GET", "/v1/schedules/nightly", "", 200, `"next":["2026-02-01T01:30:00Z","2026-02-02T01:30:00Z","2026-02-03T01:30:00Z","2026-02-04T01:30:00Z","2026-02-05T01:30:00Z"]`},
		{"GET", "/v1/schedules/none", "", 404, `none`},
		{"PUT", "/v1/schedules/weekly?reason=r", `{"type":"order","input":{"a":1},"cron":"0 9 * * 1-5","zone":"Europe/Berlin","overlap":"queue","queue":4}`, 200, `"next":["2026-02-02T08:00:00Z"`},
		{"PUT", "/v1/schedules/nightly", `{"name":"nightly","type":"order","input":2,"every":"15m","from":"2026-02-01T00:00:00Z"}`, 200, `"next":["2026-02-01T00:00:00Z","2026-02-01T00:15:00Z"`},
		{"POST", "/v1/schedules/nightly/pause", `{"reason":"r"}`, 200, `"paused":true`},
		{"POST", "/v1/schedules/nightly/resume", `{"reason":"r"}`, 200, `"revision":2,"by":"the-admin"`},
		{"POST", "/v1/schedules/nightly/run-now", "", 202, `{"type":"order","task":"nightly-20260131T120000Z-now"}`},
		{"POST", "/v1/schedules/none/run-now", "", 404, `there is no schedule`},
		{"DELETE", "/v1/schedules/nightly?reason=r", "", 204, ``},
		{"DELETE", "/v1/schedules/none?reason=r", "", 404, `there is no schedule`},
		{"DELETE", "/v1/schedules/nightly", "", 400, `reason is empty`},
		{"PUT", "/v1/schedules/weekly", `{"type":"order","input":1,"cron":"0 0 30 2 *"}`, 400, `would never run: it names no day`},
		{"PUT", "/v1/schedules/weekly", `{"type":"order","input":1,"cron":"0 0 * * *","zone":"Europe/Belrin"}`, 400, `is Europe/Berlin meant?`},
		{"PUT", "/v1/schedules/weekly", `{"type":"other","input":1,"every":"1h"}`, 400, `has no plan`},
		{"GET", "/v1/audit?actor=olga&action=undo&target=task/order&from=2026-01-31T12:00:00Z&to=2026-01-31T12:00:01Z", "", 200, `"reason":"asked by mail"`},
		{"GET", "/v1/overview", "", 200, `"errors":{"n":1},"groups":{"n":1},"at_risk":{"n":3},"needs":[{"kind":"agents","title":"1 agent gone`},
		{"GET", "/v1/overview", "", 200, `"lines":[{"id":"payment.charge","text":"payment.charge: no instance answers, breaker open","tasks":{"n":`},
		{"GET", "/v1/overview", "", 200, `"age_ms":0`},
		{"GET", "/v1/counts", "", 200, `"counts":[{"type":"order","state":"pending","tasks":1},{"type":"order","state":"processing","tasks":1},`},
		{"GET", "/v1/counts", "", 200, `"age_ms":0`},
		{"GET", "/v1/counts?type=order", "", 400, `type`},
		{"DELETE", "/v1/counts", "", 405, `GET`},
		{"GET", "/v1/overview", "", 200, `"signals":{"tasks":{"n":1},"steps":{"n":1},"since":"2026-01-31T11:00:00Z","near":{"n":1},"next":[{"type":"order","id":"t-0","steps":["approve"],"since":`},
		{"GET", "/v1/tasks?waits=signal", "", 200, `{"tasks":[{"id":"t-0",`},
		{"GET", "/v1/tasks?waits=wait", "", 400, `query parameter waits is \"wait\", want signal`},
		{"GET", "/v1/stats", "", 200, `"samples":[{"at":"2026-01-31T12:00:00Z","created":6`},
		{"GET", "/v1/tokens", "", 200, `{"tokens":[]}`},
		{"POST", "/v1/tokens", `{"name":"shop","role":"client","expires":"2027-01-01T00:00:00Z"}`, 201, `"secret":"duly_`},
		{"DELETE", "/v1/tokens/nope", "", 404, `no token`},
		{"PUT", "/v1/settings/views/late", `{"query":"state=error","title":"late ones"}`, 204, ``},
		{"DELETE", "/v1/settings/views/late", "", 404, `no view`},
		{"GET", "/v1/settings/views", "", 200, `{"views":[]}`},
	} {
		_, handler := world(t, nil)
		got := ask(apitest.As(operate.RoleAdmin, handler), x.method, x.target, x.body)
		if got.Code != x.code || !strings.Contains(got.Body.String(), x.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", x.method, x.target, x.body, got.Code, got.Body, x.code, x.says)
		}
		if got.Code >= 400 && got.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %s", x.method, x.target, got.Header())
		}
		if got.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %v, want no-store", x.method, x.target, got.Header())
		}
	}
}

// TestScheduleHasTheLabelsOfItsToken: what a schedule submits has the labels of the token that it was made with, and no other
// tenant's.
//
// covers: P14
func TestScheduleHasTheLabelsOfItsToken(t *testing.T) {
	_, handler := world(t, nil)
	bound := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor := operate.Actor{Name: "olga", Role: operate.RoleOperator, Labels: "tenant=acme"}
		handler.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), actor)))
	})
	const body = `{"type":"order","input":2,"every":"15m","from":"2026-02-01T00:00:00Z","labels":`
	for labels, want := range map[string]string{`{"a":"1"}`: `"labels":{"a":"1","tenant":"acme"}`, `{"tenant":"acme"}`: `"labels":{"tenant":"acme"}`, `{"tenant":"b"}`: "has the label tenant=acme", `{"a":"1,tenant=b"}`: "403"} {
		got := ask(bound, "PUT", "/v1/schedules/weekly?reason=r", body+labels+"}")
		if text := fmt.Sprint(got.Code, got.Body); !strings.Contains(text, want) && (want != "403" || got.Code == 200) {
			t.Errorf("%s: %s, want %s", labels, text, want)
		}
	}
}

// TestBadRequests: what is wrong is refused with the field, the value and what was wanted; nothing is asked of the ports.
func TestBadRequests(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, x := range []struct{ method, target, body, says string }{
		{"GET", "/v1/failures?limits=1", "", `query parameter \"limits\" is not known here; it takes type, state, limit, after, format`},
		{"GET", "/v1/failures?limit=0", "", `query parameter limit is \"0\"`},
		{"GET", "/v1/failures?limit=1001", "", `1000`},
		{"GET", "/v1/failures?limit=x", "", `query parameter limit is \"x\"`},
		{"GET", "/v1/failures?state=done", "", `query parameter state is \"done\"`},
		{"GET", "/v1/failures?after=" + long, "", `512`},
		{"GET", "/v1/failures?format=xml", "", `query parameter format is \"xml\"`},
		{"GET", "/v1/failures?type=a.b", "", `type`},
		{"GET", "/v1/failures/a%2Fb", "", `path group is`},
		{"GET", "/v1/tasks?format=xml", "", `query parameter format is \"xml\"`},
		{"GET", "/v1/tasks?label=nokey", "", `query parameter label: label refused: \"nokey\" has no =`},
		{"GET", "/v1/tasks?step=a.b", "", `query parameter step`},
		{"GET", "/v1/tasks?fingerprint=" + long, "", `want at most 64`},
		{"GET", "/v1/tasks?created_from=yesterday", "", `query parameter created_from is \"yesterday\"`},
		{"GET", "/v1/tasks?created_from=2026-02-01T00:00:00Z&created_to=2026-01-01T00:00:00Z", "", `before created_to`},
		{"GET", "/v1/tasks?deadline_to=0001-01-01T00:00:00Z", "", `deadline_to`},
		{"GET", "/v1/events?event=burnt", "", `query parameter event is \"burnt\"`},
		{"GET", "/v1/events?label=nokey", "", `query parameter label`},
		{"GET", "/v1/events?status=burnt", "", `query parameter status is \"burnt\"`},
		{"GET", "/v1/tasks/order/t-5/journal?after=x", "", `query parameter after is \"x\"`},
		{"GET", "/v1/audit?from=x", "", `query parameter from`},
		{"GET", "/v1/audit?actor=%00", "", `control characters`},
		{"GET", "/v1/operations/op1/members?after=-1", "", `query parameter after`},
		{"GET", "/v1/plans/order/0", "", `path version is \"0\"`},
		{"GET", "/v1/plans/order/x", "", `path version is \"x\"`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"reason":"r","force":true}`, `field force: unexpected property`},
		{"POST", "/v1/tasks/order/t-5/undo", `{}`, `reason is empty, and undo needs one`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"reason":"` + long + `"}`, `1000`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"reason":"a\u0000b"}`, `control characters`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"action":"cancel","reason":"r"}`, `the path says undo`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"reason":"r","input":{}}`, `undo takes no input`},
		{"POST", "/v1/tasks/order/t-5/undo", `{"reason":`, `the body`},
		{"POST", "/v1/tasks/order/t-5/undo", `[]`, `expected object`},
		{"POST", "/v1/tasks/order/t-5/resolve", `{"reason":"r"}`, `as is \"\", want processed or undone`},
		{"POST", "/v1/tasks/order/t-5/resolve", `{"reason":"r","as":"error"}`, `as is \"error\"`},
		{"POST", "/v1/tasks/order/t-5/extend", `{}`, `until is empty: give the new deadline`},
		{"POST", "/v1/tasks/order/t-5/extend", `{"until":"soon"}`, `field until is \"soon\"`},
		{"POST", "/v1/tasks/order/t-5/edit", `{"reason":"r"}`, `input is empty`},
		{"POST", "/v1/tasks/order/a.b/cancel", ``, `id`},
		{"POST", "/v1/tasks/order/t-5/cancel?force=1", ``, `query parameter \"force\" is not known`},
		{"POST", "/v1/tasks/order/t-5/resubmit", `{"if_seq":-1}`, `if_seq is -1`},
		{"POST", "/v1/operations/preview", `{"selection":{},"action":"undo"}`, `0 of group, filter and ids`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1","ids":[{"type":"order","id":"t-5"}]},"action":"undo"}`, `2 of group, filter and ids`},
		{"POST", "/v1/operations/preview", `{"selection":{"filter":{}},"action":"undo"}`, `every task`},
		{"POST", "/v1/operations/preview", `{"selection":{"filter":{"created_to":"x"}},"action":"undo"}`, `created_to`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1"},"action":"edit"}`, `input is empty`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1"},"action":"edit","request":{"input":{},"patch":{"a":1}}}`, `want one of them`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1"},"action":"undo","request":{"patch":{"a":1}}}`, `undo takes no patch`},
		{"POST", "/v1/tasks/order/t-5/edit", `{"reason":"r","patch":{"a":1}}`, `for many tasks at once`},
		{"POST", "/v1/operations/preview", `{"selection":{"group":"g1"},"action":"burn"}`, `field action is \"burn\"`},
		{"POST", "/v1/operations", `{"token":"x"}`, `reason`},
		{"POST", "/v1/operations", `{"token":"x","reason":"r","brake":0}`, `field brake`},
		{"POST", "/v1/operations", `{"token":"x","reason":"r","rate":10001}`, `field rate`},
		{"PATCH", "/v1/operations/op1", `{"reason":"r"}`, `neither is given`},
		{"PATCH", "/v1/operations/op1", `{"reason":"r","state":"done"}`, `field state`},
		{"PUT", "/v1/agents/a..b/breaker", `{"state":"open","reason":"r"}`, `a..b`},
		{"PUT", "/v1/agents/a/breaker", `{"state":"trial","reason":"r"}`, `field state`},
		{"PUT", "/v1/agents/a/breaker", `{"state":"open"}`, `reason`},
		{"PUT", "/v1/agents/a/breaker", `{"state":"open","until":"2026-01-31T12:00:00Z","reason":"r"}`, `until 2026-01-31T12:00:00Z has passed`},
		{"PUT", "/v1/limits/a..b", `{"concurrent":1,"reason":"r"}`, `a..b`},
		{"PUT", "/v1/limits/a", `{"reason":"r"}`, `neither concurrent nor rate is given`},
		{"PUT", "/v1/limits/a", `{"concurrent":-1,"reason":"r"}`, `concurrent`},
		{"PUT", "/v1/limits/a", `{"key":"input.","key_rate":1,"reason":"r"}`, `key: line 1, column 7: . cannot stand here`},
		{"PUT", "/v1/limits/a", `{"key":"results.pay","key_rate":1,"reason":"r"}`, `an expression sees input, type, labels`},
		{"PUT", "/v1/limits/a", `{"key":"type","reason":"r"}`, `neither key_concurrent nor key_rate is`},
		{"PUT", "/v1/limits/a", `{"rate":0.0009,"reason":"r"}`, `rate`},
		{"PUT", "/v1/limits/a", `{"concurrent":0,"rate":1,"reason":"r"}`, `concurrent`},
		{"PUT", "/v1/limits/a", `{"concurrent":1,"rate":0,"reason":"r"}`, `rate`},
		{"PUT", "/v1/limits/a", `{"rate":1e300,"reason":"r"}`, `rate`},
		{"PUT", "/v1/limits/a", `{"concurrent":1}`, `reason`},
		{"POST", "/v1/pauses", `{"step":"charge","reason":"r"}`, `name the type as well`},
		{"POST", "/v1/pauses", `{"label":"x","reason":"r"}`, `label`},
		{"POST", "/v1/pauses", `{"agent":"a b","reason":"r"}`, `agent`},
		{"POST", "/v1/pauses", `{"reason":"r","until":"2026-01-31T12:00:00Z"}`, `until 2026-01-31T12:00:00Z has passed`},
		{"GET", "/v1/books?status=gone", "", `query parameter status`},
		{"POST", "/v1/books/compare", `{"reason":"` + long + `"}`, `1000`},
		{"PUT", "/v1/schedules/a.b", `{"type":"order","input":{"a":1},"cron":"0 9 * * 1-5","zone":"Europe/Berlin","overlap":"queue","queue":4}`, `path schedule`},
		{"PUT", "/v1/schedules/weekly", `{"name":"daily","type":"order","input":1,"every":"1h"}`, `the path says weekly`},
		{"PUT", "/v1/schedules/weekly", `{"type":"order","input":1,"every":"1h","burn":1}`, `field burn`},
		{"PUT", "/v1/schedules/weekly", `{"type":"order","input":1,"every":"1h","from":"soon"}`, `field from`},
		{"POST", "/v1/schedules/nightly/pause", `{}`, `reason`},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"t-4/charge/1","repair":"undo"}`, `reason`},
		{"POST", "/v1/books/repair", `{"agent":"a b","effect":"t-4/charge/1","repair":"undo","reason":"r"}`, `field agent`},
		{"POST", "/v1/books/repair", `{"agent":"a","effect":"a\u0000","repair":"undo","reason":"r"}`, `field effect`},
		{"POST", "/v1/books/repair", `{"agent":"a","effect":"` + long + `","repair":"undo","reason":"r"}`, `150`},
		{"POST", "/v1/books/repair", `{"agent":"a","effect":"x","repair":"burn","reason":"r"}`, `field repair is \"burn\"`},
		{"POST", "/v1/tokens", `{"name":"x","role":"root"}`, `field role is \"root\"`},
		{"POST", "/v1/tokens", `{"name":"a\nb","role":"viewer"}`, `name`},
		{"POST", "/v1/tokens", `{"name":"x","role":"viewer","expires":"2026-01-01T00:00:00Z"}`, `expires`},
		{"POST", "/v1/tokens", `{"name":"x","role":"viewer","expires":"2126-01-01T00:00:00Z"}`, `at most`},
		{"POST", "/v1/partitions/1/pin", `{"node":"a b","reason":"r"}`, `node`},
		{"PUT", "/v1/settings/views/a.b", `{"query":"x"}`, `path name`},
		{"POST", "/v1/failures/g1/notes", `{"text":""}`, `field text`},
	} {
		w, handler := world(t, nil)
		got := ask(apitest.As(operate.RoleAdmin, handler), x.method, x.target, x.body)
		if got.Code != 400 || !strings.Contains(got.Body.String(), x.says) || got.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.80s %.80s: %d %s, want 400 that says %s", x.method, x.target, x.body, got.Code, got.Body, x.says)
		}
		if len(got.Body.String()) > 2000 || len(w.Asked) != 0 || len(w.Trail) != 1 || len(w.Keys)+len(w.Held)+len(w.Documents)+len(w.Notebook) != 0 {
			t.Errorf("%s %.80s: %d bytes, asked %v, trail %v", x.method, x.target, got.Body.Len(), w.Asked, w.Trail)
		}
	}
}

// TestActions: what is asked of a task reaches the port with the authenticated actor; a refusal says what is possible.
//
// covers: OP10
func TestActions(t *testing.T) {
	w, handler := world(t, nil)
	as := apitest.As(operate.RoleOperator, handler)
	got := ask(as, "POST", "/v1/tasks/order/t-5/edit", `{"action":"edit","reason":"wrong amount","input":{"cents":12345678901234567890},"until":"2026-02-01T00:00:00Z","if_seq":3}`, "Idempotency-Key", "k1")
	if got.Code != 202 || !strings.Contains(got.Body.String(), `"action":"edit"`) {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	r := w.Asked[0]
	if r.Action != operate.ActionEdit || r.Reason != "wrong amount" || string(r.Input) != `{"cents":12345678901234567890}` || !r.Until.Equal(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)) || r.IfSeq != 3 || r.Key != "k1" {
		t.Errorf("asked %+v", r)
	}
	if e := w.Trail[1]; e.Actor != "the-operator" || e.From != "192.0.2.1" || e.Role != operate.RoleOperator {
		t.Errorf("audit %+v", e)
	}
	if got := ask(as, "POST", "/v1/tasks/order/t-5/cancel", ""); got.Code != 202 {
		t.Errorf("without a body: %d %s", got.Code, got.Body)
	}
	w.Refuse = &operate.Refusal{Code: 409, Detail: "task t-5 is processed: it is too late to cancel", Possible: []operate.Action{operate.ActionUndo}}
	if got := ask(as, "POST", "/v1/tasks/order/t-5/cancel", `{}`); got.Code != 409 || !strings.Contains(got.Body.String(), `"possible":["undo"]`) || !strings.Contains(got.Body.String(), "is processed") {
		t.Errorf("refused: %d %s", got.Code, got.Body)
	}
	// A client that goes by the numbers asks again after 7044: no refusal of what is asked may have it.
	for code, cause := range map[int]string{405: "7040", 409: "7047", 415: "7045", 418: "7043", 421: "7043", 428: "7047", 503: "7044"} {
		w.Refuse = &operate.Refusal{Code: code, Detail: "no"}
		if got := ask(as, "POST", "/v1/tasks/order/t-5/cancel", `{}`); got.Code != code || !strings.Contains(got.Body.String(), `"err_code":`+cause) {
			t.Errorf("refused with %d: %d %s, want %s", code, got.Code, got.Body, cause)
		}
	}
	w.Refuse = &operate.Refusal{Code: 429, Detail: "full", RetryMS: 1500}
	if got := ask(as, "POST", "/v1/tasks/order/t-5/cancel", `{}`); got.Code != 429 || got.Header().Get("Retry-After") != "2" || !strings.Contains(got.Body.String(), `"retry_ms":1500`) {
		t.Errorf("full: %d %v %s", got.Code, got.Header(), got.Body)
	}
}

// TestChangesAreAudited: a change that the API makes itself is in the trail before it is made, with who, from where, why,
// before, after and what became of it; without a trail none is made.
//
// covers: OP16
func TestChangesAreAudited(t *testing.T) {
	w, handler := world(t, nil)
	as := api.WithRequestID(apitest.As(operate.RoleAdmin, handler))
	made := ask(as, "POST", "/v1/tokens", `{"name":"shop","role":"client"}`, "X-Request-Id", "req-1")
	var token struct {
		Token  operate.Token
		Secret string
	}
	if err := json.Unmarshal(made.Body.Bytes(), &token); err != nil || made.Code != 201 {
		t.Fatalf("%d %s", made.Code, made.Body)
	}
	e := w.Trail[1]
	if e.Action != "token.create" || e.Actor != "the-admin" || e.From != "192.0.2.1" || e.Request != "req-1" || e.Outcome != "done" || !strings.Contains(string(e.After), `"name":"shop"`) {
		t.Errorf("%+v", e)
	}
	if all := fmt.Sprintf("%s %s", e.After, ask(as, "GET", "/v1/tokens", "").Body); strings.Contains(all, token.Secret[len(token.Secret)-20:]) || strings.Contains(all, "hash") {
		t.Errorf("a secret is shown again: %s", all)
	}
	if got := ask(as, "DELETE", "/v1/tokens/"+token.Token.ID+"?reason=lost", ""); got.Code != 204 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if e := w.Trail[2]; e.Action != "token.revoke" || e.Reason != "lost" || len(e.Before) == 0 || w.Keys[token.Token.ID].Revoked.IsZero() {
		t.Errorf("%+v %+v", e, w.Keys)
	}
	for i, x := range []struct{ method, target, body, action string }{
		{"PUT", "/v1/limits/payment.charge", `{"concurrent":1,"reason":"r"}`, "limit.set"},
		{"DELETE", "/v1/limits/payment.charge?reason=r", "", "limit.remove"},
		{"POST", "/v1/pauses", `{"reason":"r"}`, "pause.set"},
		{"PUT", "/v1/agents/payment.charge/breaker", `{"state":"closed","reason":"r"}`, "breaker.closed"},
		{"PUT", "/v1/settings/views/late", `{"query":"a"}`, "view.put"},
		{"DELETE", "/v1/settings/views/late", "", "view.delete"},
		{"POST", "/v1/partitions/0/pin", `{"node":"n","reason":"r"}`, "partition.pin"},
		{"POST", "/v1/plans/order/1/deprecate", `{"reason":"r"}`, "plan.deprecate"},
		{"POST", "/v1/plans/order/1/deprecate", `{"undo":true,"reason":"r"}`, "plan.deprecate.undo"},
		{"POST", "/v1/failures/g1/notes", `{"text":"x"}`, "note.add"},
		{"POST", "/v1/books/compare", `{"reason":"r"}`, "books.compare"},
		{"PUT", "/v1/schedules/weekly", `{"type":"order","input":{"a":1},"cron":"0 9 * * 1-5","zone":"Europe/Berlin","overlap":"queue","queue":4}`, "schedule.put"},
		{"POST", "/v1/schedules/weekly/pause", `{"reason":"r"}`, "schedule.pause"},
		{"POST", "/v1/schedules/weekly/run-now", ``, "schedule.run_now"},
		{"POST", "/v1/schedules/weekly/resume", `{"reason":"r"}`, "schedule.resume"},
		{"DELETE", "/v1/schedules/weekly?reason=r", ``, "schedule.delete"},
		{"POST", "/v1/books/repair", `{"agent":"payment.charge","effect":"gone/charge/0","repair":"accept","reason":"r"}`, "books.accept"},
	} {
		if got := ask(as, x.method, x.target, x.body); got.Code >= 300 || len(w.Trail) != 4+i || w.Trail[3+i].Action != x.action || w.Trail[3+i].Outcome != "done" {
			t.Errorf("%s %s: %d %s, trail %+v", x.method, x.target, got.Code, got.Body, w.Trail[3:])
		}
	}
	pause := w.Held[0].ID
	if got := ask(as, "DELETE", "/v1/pauses/"+pause+"?reason=mended", ""); got.Code != 204 || len(w.Held) != 0 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestStoreAway: no answer says what the store said; each says to come again.
//
// covers: OP22
func TestStoreAway(t *testing.T) {
	w, handler := world(t, nil)
	w.Err = errors.New("host=10.0.0.1 password=secret")
	for _, target := range []string{"/v1/tasks/order/t-5", "/v1/tasks", "/v1/tasks/order/t-5/journal", "/v1/plans", "/v1/agents", "/v1/partitions", "/v1/failures", "/v1/failures/g1", "/v1/operations", "/v1/operations/op1",
		"/v1/pauses", "/v1/limits", "/v1/audit", "/v1/overview", "/v1/stats", "/v1/tokens", "/v1/settings/views", "/v1/counts", "/v1/books", "/v1/schedules", "/v1/schedules/nightly"} {
		got := ask(apitest.As(operate.RoleAdmin, handler), "GET", target, "")
		if got.Code != 503 || got.Header().Get("Retry-After") == "" || strings.Contains(got.Body.String(), "secret") {
			t.Errorf("%s: %d %v %s", target, got.Code, got.Header(), got.Body)
		}
	}
}

// TestExport: every list as lines of JSON or as a table, all of it, by page.
//
// covers: OP25
func TestExport(t *testing.T) {
	w, handler := world(t, nil)
	for i := range 2500 {
		w.Add(fmt.Sprintf("many-%d", i), core.StateError)
	}
	w.Tasks[7].Reason = "=cmd|' /C calc'!A0"
	server := httptest.NewServer(apitest.As(operate.RoleViewer, handler))
	defer server.Close()
	get := func(target, accept string) (string, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v %.200s", target, resp.StatusCode, err, data)
		}
		return string(data), resp.Header
	}
	for _, target := range []string{"/v1/tasks?state=error&format=ndjson", "/v1/tasks?state=error"} {
		text, header := get(target, "application/x-ndjson, */*;q=0.1")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		ids := map[string]bool{}
		for _, line := range lines {
			var task struct{ ID string }
			if err := json.Unmarshal([]byte(line), &task); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			ids[task.ID] = true
		}
		if len(lines) != 2501 || len(ids) != 2501 || header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s: %d lines, %d tasks, %v", target, len(lines), len(ids), header)
		}
	}
	text, _ := get("/v1/tasks?format=csv", "")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 2507 || rows[0][0] != "id" || strings.Contains(rows[1][slices.Index(rows[0], "input_hash")], "\"") || !strings.Contains(text, `'=cmd`) {
		t.Errorf("%d rows, %v, %v", len(rows), rows[0], err)
	}
	if text, _ := get("/v1/tasks?format=ndjson&limit=3", ""); strings.Count(text, "\n") != 3 {
		t.Errorf("limit 3: %s", text)
	}
	for target, first := range map[string]string{
		"/v1/audit": "number", "/v1/failures": "type", "/v1/operations": "id", "/v1/operations/op1/members": "ordinal", "/v1/agents": "name", "/v1/partitions": "partition", "/v1/plans": "v",
		"/v1/tasks/order/t-5/journal": "seq", "/v1/pauses": "id", "/v1/limits": "agent", "/v1/settings/views": "name", "/v1/failures/g1/notes": "number", "/v1/books": "kind", "/v1/schedules": "name",
	} {
		text, header := get(target, "text/csv")
		if rows, err := csv.NewReader(strings.NewReader(text)).ReadAll(); err != nil || len(rows) == 0 || rows[0][0] != first || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
			t.Errorf("%s: %v %v %v", target, rows, err, header)
		}
	}
	// A store that goes away on the way: the answer is cut, so that no one takes it for all.
	r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/tasks?format=ndjson", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// TestExportCutOff: an export that cannot go on says so and is cut off.
//
// covers: OP25
func TestExportCutOff(t *testing.T) {
	w, handler := world(t, nil)
	for i := range 1500 {
		w.Add(fmt.Sprintf("many-%d", i), core.StateError)
	}
	// The second page is asked for while the first is written.
	dying := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&onWrite{ResponseWriter: rw, then: func() { w.Lock(); w.Err = errors.New("gone"); w.Unlock() }}, r)
	})
	server := httptest.NewServer(apitest.As(operate.RoleViewer, dying))
	defer server.Close()
	for format, says := range map[string]string{"ndjson": `"this is not all"`, "csv": ""} {
		w.Lock()
		w.Err = nil
		w.Unlock()
		resp, err := http.Get(server.URL + "/v1/tasks?format=" + format)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || !strings.Contains(string(data), strings.Trim(says, `"`)) {
			t.Errorf("%s: %v, ends with %s", format, err, data[max(0, len(data)-200):])
		}
	}
}

// onWrite calls then after the first write.
type onWrite struct {
	http.ResponseWriter
	then func()
}

func (o *onWrite) Write(data []byte) (int, error) {
	defer o.then()
	return o.ResponseWriter.Write(data)
}

// Unwrap lets the controller find the server's writer.
func (o *onWrite) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// TestPagesHaveNoHoles: each of many tasks of one moment is seen once.
//
// covers: OP21
func TestPagesHaveNoHoles(t *testing.T) {
	w, handler := world(t, nil)
	for i := range 300 {
		w.Add(fmt.Sprintf("same-%d", i), core.StateError)
	}
	seen, after := map[string]int{}, ""
	for range 100 {
		got := ask(apitest.As(operate.RoleViewer, handler), "GET", "/v1/tasks?limit=7&after="+after, "")
		var page struct {
			Tasks []struct{ ID string }
			Next  string
		}
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			seen[task.ID]++
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != 306 || after != "" {
		t.Errorf("%d tasks, next %q", len(seen), after)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", id, n)
		}
	}
}

// events reads events of a stream.
type events struct {
	*bufio.Scanner
	resp *http.Response
}

func open(t *testing.T, url, last string) events {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return events{bufio.NewScanner(resp.Body), resp}
}

// next is the next event as its lines; empty: the stream has ended.
func (e events) next() string {
	var lines []string
	for e.Scan() {
		if e.Text() == "" {
			if text := strings.Join(lines, "\n"); !strings.HasPrefix(text, "retry") && !strings.HasPrefix(text, ":") {
				return text
			}
			lines = nil
			continue
		}
		lines = append(lines, e.Text())
	}
	return ""
}

// TestEvents: events come as they happen, go on after the last that was seen, and only so many streams are open.
func TestEvents(t *testing.T) {
	closing := make(chan struct{})
	w, handler := world(t, func(c *api.Config) { c.StreamsMax, c.Closing = 4, closing })
	server := httptest.NewServer(apitest.As(operate.RoleViewer, handler))
	defer server.Close()
	for i := range 3 {
		w.Tell(operate.Event{What: operate.EventEnded, Type: "order", Task: fmt.Sprintf("t-%d", i), Status: core.StateProcessed, At: apitest.At})
	}
	all := open(t, server.URL+"/v1/events", "1")
	if all.resp.Header.Get("Content-Type") != "text/event-stream" || all.resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", all.resp.Header)
	}
	for i := 1; i < 3; i++ {
		if got := all.next(); !strings.HasPrefix(got, fmt.Sprintf("id: %d\nevent: task\ndata: {\"event\":\"ended\",\"type\":\"order\",\"id\":\"t-%d\"", i+1, i)) {
			t.Errorf("event %q", got)
		}
	}
	one := open(t, server.URL+"/v1/tasks/order/t-2/events", "2")
	if got := one.next(); !strings.Contains(got, `"t-2"`) {
		t.Errorf("event %q", got)
	}
	over := open(t, server.URL+"/v1/events", "")
	if over.resp.StatusCode != 429 || over.resp.Header.Get("Retry-After") == "" {
		t.Errorf("a third stream of an actor who has two of four: %d %v", over.resp.StatusCode, over.resp.Header)
	}
	w.Tell(operate.Event{Type: "order", Task: "t-9", Status: core.StateError, At: apitest.At})
	if got := all.next(); !strings.Contains(got, `"t-9"`) {
		t.Errorf("event %q", got)
	}
	close(closing)
	for _, stream := range []events{all, one} {
		if got := stream.next(); !strings.HasPrefix(got, "event: dropped\n") || !strings.Contains(got, "is stopping") {
			t.Errorf("at the end: %q", got)
		}
	}
}

// writes counts what is written, and tells of each write.
type writes struct {
	*httptest.ResponseRecorder
	n     int
	wrote chan string
}

func (w *writes) Write(b []byte) (int, error) { return w.WriteString(string(b)) }

func (w *writes) WriteString(s string) (int, error) {
	w.n++
	w.wrote <- s
	return len(s), nil
}

// TestEventsLeaveTogether: what comes at about the same time is one write, and each is there once, in order.
func TestEventsLeaveTogether(t *testing.T) { synctest.Test(t, testEventsLeaveTogether) }

func testEventsLeaveTogether(t *testing.T) {
	w, handler := world(t, nil)
	for i := range 200 {
		w.Tell(operate.Event{Type: "order", Task: fmt.Sprintf("t-%d", i), Status: core.StateProcessed, At: apitest.At})
	}
	to := &writes{ResponseRecorder: httptest.NewRecorder(), wrote: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/events", nil)
		r.Header.Set("Last-Event-ID", "0")
		apitest.As(operate.RoleViewer, handler).ServeHTTP(to, r)
	}()
	<-time.After(time.Second)
	cancel()
	<-done
	close(to.wrote)
	var all strings.Builder
	for text := range to.wrote {
		all.WriteString(text)
	}
	at := 0
	for i := range 200 {
		next := strings.Index(all.String()[at:], fmt.Sprintf(`"id":"t-%d"`, i))
		if next < 0 {
			t.Fatalf("event %d is not there, or not in order", i)
		}
		at += next
	}
	if n := strings.Count(all.String(), "event: task"); n != 200 {
		t.Errorf("%d events, want 200", n)
	}
	if to.n > 6 {
		t.Errorf("%d writes for 200 events that came together", to.n)
	}
}

// TestSlowReaderIsDropped: a reader that does not keep up is let go with a reason, and holds no source up.
func TestSlowReaderIsDropped(t *testing.T) { synctest.Test(t, testSlowReader) }

func testSlowReader(t *testing.T) {
	source := &counted{ended: make(chan int)}
	w, handler := world(t, func(c *api.Config) { source.Events, c.Ports.Events = c.Ports.Events, source })
	for range 300 {
		w.Tell(operate.Event{Type: "order", Task: "t-1", Status: core.StateProcessed, At: apitest.At})
	}
	slow := &stuck{ResponseRecorder: httptest.NewRecorder(), free: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)
		r.Header.Set("Last-Event-ID", "0")
		apitest.As(operate.RoleViewer, handler).ServeHTTP(slow, r)
	}()
	if n := <-source.ended; n != 257 {
		t.Errorf("the source had sent %d events when it was let go, want one more than wait", n)
	}
	close(slow.free) // only now the first write returns
	<-done
	if text := slow.Body.String(); !strings.Contains(text, "event: dropped\n") || !strings.Contains(text, "waited for this reader") {
		t.Errorf("%d bytes end with %s", len(text), text[max(0, len(text)-300):])
	}
}

// counted tells how many events a source had sent when it ended.
type counted struct {
	operate.Events
	ended chan int
}

func (c *counted) Follow(ctx context.Context, after string, f operate.EventFilter, send func(operate.Event) error) error {
	n := 0
	err := c.Events.Follow(ctx, after, f, func(e operate.Event) error { n++; return send(e) })
	c.ended <- n
	return err
}

// stuck is a writer whose writes wait.
type stuck struct {
	*httptest.ResponseRecorder
	free chan struct{}
}

func (s *stuck) Write(data []byte) (int, error) {
	<-s.free
	return s.ResponseRecorder.Write(data)
}

func (s *stuck) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// TestLive: what is read live is told to all.
//
// covers: OP6
func TestLive(t *testing.T) {
	w := apitest.New()
	var ports api.Ports
	handler, err := w.Handler(func(c *api.Config) { ports = c.Ports })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ports.Live.Run(ctx) }()
	server := httptest.NewServer(apitest.As(operate.RoleViewer, handler))
	defer func() { server.CloseClientConnections(); server.Close(); cancel(); <-ended }()
	for range 3 {
		if got := open(t, server.URL+"/v1/live", "").next(); !strings.HasPrefix(got, "event: live\ndata: {\"overview\":{\"at\":") {
			t.Errorf("%q", got)
		}
	}
}

// TestLargeRequests: a body, an address or a header without bound is refused, and not read.
//
// covers: OP20
func TestLargeRequests(t *testing.T) {
	_, handler := world(t, nil)
	server := httptest.NewUnstartedServer(apitest.As(operate.RoleAdmin, handler))
	server.Config.MaxHeaderBytes = 64 << 10
	server.Start()
	defer server.Close()
	large := strings.Repeat("x", 10<<20)
	for _, x := range []struct {
		method, target, body string
		code                 int
	}{
		{"POST", "/v1/operations/preview", `{"selection":{"filter":{"type":"` + large + `"}},"action":"undo"}`, 413},
		{"POST", "/v1/tasks/order/t-5/edit", `{"reason":"r","input":"` + large + `"}`, 413},
		{"GET", "/v1/tasks?label=" + large, "", 431},
		{"GET", "/v1/../../etc/passwd", "", 404}, {"GET", "/v1/tasks/../../../etc/passwd", "", 404}, {"GET", "/v1/failures/..%2f..%2fetc", "", 400},
	} {
		r, err := http.NewRequestWithContext(t.Context(), x.method, server.URL+x.target, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			continue // the server hung up while the rest was sent: refused, too
		}
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != x.code {
			t.Errorf("%s %.60s: %d %.200s, want %d", x.method, x.target, resp.StatusCode, data, x.code)
		}
	}
}

// TestRequestID: the sender's id is taken if it is sane, and another made if not.
func TestRequestID(t *testing.T) {
	_, handler := world(t, nil)
	for given, kept := range map[string]bool{"req-1.a_B": true, "": false, "a b": false, "a\"b": false, strings.Repeat("x", 65): false, strings.Repeat("x", 64): true} {
		got := ask(api.WithRequestID(apitest.As(operate.RoleViewer, handler)), "GET", "/v1/plans", "", "X-Request-Id", given).Header().Get("X-Request-Id")
		if got == "" || (got == given) != kept {
			t.Errorf("id %.20q: %q", given, got)
		}
	}
}

// TestEndThatWasBefore: who listens to a task that has ended is told so, and does not wait for what was told before; the stream
// goes on, for an operator may take the task up again. Others do not learn that there is such a task.
func TestEndThatWasBefore(t *testing.T) {
	closing := make(chan struct{})
	w, handler := world(t, func(c *api.Config) { c.Closing = closing })
	w.Add("over", core.StateUndone)
	var streams []events
	for _, actor := range []operate.Actor{{Name: "desk", Role: operate.RoleViewer}, {Name: "shop", Role: operate.RoleClient, Labels: "customer=c-18"}} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(rw, r.WithContext(operate.WithActor(r.Context(), actor)))
		}))
		t.Cleanup(server.Close)
		streams = append(streams, open(t, server.URL+"/v1/tasks/order/over/events", ""))
	}
	want := "event: task\ndata: {\"event\":\"ended\",\"type\":\"order\",\"id\":\"over\",\"status\":\"undone\""
	if got := streams[0].next(); !strings.HasPrefix(got, want) || !strings.Contains(got, `"step":"charge"`) || !strings.Contains(got, `"error":"step charge: no money"`) {
		t.Errorf("%q, want %q", got, want)
	}
	close(closing)
	for _, stream := range streams {
		if got := stream.next(); !strings.HasPrefix(got, "event: dropped\n") {
			t.Errorf("afterwards %q", got)
		}
	}
}
