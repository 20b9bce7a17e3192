package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
)

// everyPage are the addresses of all pages and dialogs of the world.
var everyPage = []string{
	"", "tasks", "tasks?state=error&type=order", "tasks?type=none-such", "risk?within=24h", "risk?within=1s",
	"tasks/order/order-1001", "tasks/order/order-1002", "tasks/order/order-1003", "tasks/order/order-1004", "tasks/order/order-1005", "tasks/settlement/settle-2026-11", "tasks/ledger/ledger-7",
	"tasks/onboarding/a-very-long-id-that-uses-all-the-room-there-is-0123456789-abcdef", "tasks/order/order-1002/payload?of=input", "tasks/order/order-1002/payload?of=input&at=3",
	"tasks/order/order-1002/replay", "tasks/order/order-1002/replay?at=1", "tasks/order/order-1002/replay?at=6&ms=200&come=earlier", "tasks/order/order-1002/replay?at=6&ms=0&come=later", "tasks/order/order-1004/replay?at=6",
	"tasks/onboarding/a-very-long-id-that-uses-all-the-room-there-is-0123456789-abcdef/replay?at=30", "tasks/order/order-1002/compare", "tasks/order/order-1002/compare?with=order-1001", "tasks/order/order-1001/compare?with=ledger-7", "tasks/order/none-such", "tasks/trip/trip-1", "tasks/trip/trip-2", "tasks?parent=trip-2&state=error", "plans/trip", "tasks/room/trip-2~rooms~1", "tasks/room/trip-2~rooms~1/replay",
	"failures", "failures?state=undone", "operations", "operations/op-7", "operations/op-7?outcome=failed_again", "operations/op-6",
	"agents", "books", "books?status=accepted", "pauses", "schedules", "schedules?after=nightly", "plans", "plans/order", "plans/order?version=2&with=1", "plans/ledger", "partitions", "audit", "audit?action=edit", "settings",
}

var everyDialog = []string{
	"tasks/order/order-1002/act/resubmit", "tasks/order/order-1002/act/edit", "tasks/order/order-1002/act/accept", "tasks/order/order-1002/act/undo", "tasks/order/order-1002/act/resolve",
	"tasks/order/order-1005/act/cancel", "tasks/order/order-1005/act/extend", "operations/new?action=undo&scope=matching&filter=state%3Derror", "operations/new?action=edit&id=order/order-1002",
	"operations/op-7/change/pause", "operations/op-7/change/resume", "operations/op-7/change/rate", "operations/op-7/change/stop", "agents/check.v1/breaker", "agents/charge.v1/limit/set", "agents/retired.v0/limit/remove", "pauses/new?agent=ship.v1", "pauses/p1/lift",
	"books/compare", "books/repair?agent=charge.v1&effect=order-1004/charge/0&repair=undo", "books/repair?agent=charge.v1&effect=order-9/charge/0&repair=accept",
	"tasks/trip/trip-1/signal/approve", "tasks/room/trip-2~rooms~1/act/resubmit",
	"schedules/nightly/pause", "schedules/monthly/resume", "schedules/nightly/run-now",
	"partitions/3/pin", "partitions/3/stepdown", "settings/tokens/new", "settings/tokens/t1a9/revoke",
	"settings/alerts/new", "settings/alerts/ops-hook/edit", "settings/alerts/ops-hook/delete",
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

func post(t *testing.T, h http.Handler, path string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func newConsole(t *testing.T, cfg Config) http.Handler {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestEveryPage: each page and dialog can be made for every role, with the headers that lock it down.
//
// covers: OP20
func TestEveryPage(t *testing.T) {
	w := newWorld(time.Now)
	w.trips()
	h := newConsole(t, w.config())
	for _, role := range []operate.Role{operate.RoleViewer, operate.RoleOperator, operate.RoleAdmin} {
		for _, path := range append(append([]string{}, everyPage...), everyDialog...) {
			rec := get(t, as(role, h), Path+path)
			body := rec.Body.String()
			if rec.Code >= 500 || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
				t.Errorf("%s as %s: %d\n%.400s", path, role, rec.Code, body)
			}
			if strings.Contains(body, "ZgotmplZ") {
				t.Errorf("%s as %s: the template refused a value", path, role)
			}
			if got := rec.Header().Get("Content-Security-Policy"); got != policy || strings.Contains(got, "unsafe") {
				t.Errorf("%s: policy %q", path, got)
			}
			for _, inline := range []string{" style=", "<style", " onclick=", "javascript:", "<script>"} {
				if strings.Contains(body, inline) {
					t.Errorf("%s has %s, which the policy forbids", path, inline)
				}
			}
		}
	}
}
