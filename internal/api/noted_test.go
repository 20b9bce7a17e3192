package api_test

import (
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestCancelByDeleteIsNoted: an operator's cancellation is in the audit trail, whichever way it comes; a service's own is not,
// of which there may be any number.
//
// covers: P21
func TestCancelByDeleteIsNoted(t *testing.T) {
	w, handler := world(t, nil)
	w.Add("t-1", core.StateProcessing)
	entries := func() string {
		t.Helper()
		got := ask(apitest.As(operate.RoleViewer, handler), "GET", "/v1/audit?action=cancel", "")
		if got.Code != 200 {
			t.Fatal(got.Code, got.Body)
		}
		return got.Body.String()
	}
	for _, x := range []struct {
		role operate.Role
		want int
	}{{operate.RoleClient, 0}, {operate.RoleOperator, 1}, {operate.RoleAdmin, 2}} {
		if got := ask(apitest.As(x.role, handler), "DELETE", "/v1/tasks/order/t-1?reason=wrong+size", ""); got.Code != 202 {
			t.Fatalf("%s: %d %s", x.role, got.Code, got.Body)
		}
		text := entries()
		if n := strings.Count(text, `"target":"task/order/t-1"`); n != x.want || n != strings.Count(text, `"reason":"wrong size"`) || n > 0 && !strings.Contains(text, `"outcome":"asked: `) {
			t.Errorf("%s: %s", x.role, text)
		}
	}
}
