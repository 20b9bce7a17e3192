package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/operate"
)

// TestTrailIsNotFilled: what roles do not allow is in the audit trail, in few and short entries of each actor, whatever
// face it was tried at; another actor's is there beside a flood.
//
// covers: P11
func TestTrailIsNotFilled(t *testing.T) {
	n, faces, handler := faced(t, nil)
	viewer, service := tokenOf(t, n, operate.RoleViewer), tokenOf(t, n, operate.RoleClient)
	long := strings.Repeat("x", 6000)
	post := func(token, path string) {
		t.Helper()
		r := httptest.NewRequest("POST", path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Fatalf("%.40s: %d %s", path, w.Code, w.Body)
		}
	}
	for i := range 300 {
		post(viewer, fmt.Sprintf("/console/tasks/order/%d%s/notes", i, long))
		post(viewer, fmt.Sprintf("/v1/tasks/order/%d%s/undo", i, long))
	}
	post(service, "/v1/tasks/order/o-1/undo")
	page, err := faces.ports.Trail.Audit(t.Context(), operate.AuditFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	of, bytes := map[string]int{}, 0
	for _, e := range page.Entries {
		of[e.Actor]++
		bytes += len(e.Target) + len(e.Outcome) + len(e.Action) + len(e.Reason) + len(e.Request)
	}
	if few := of["some-viewer"]; few < 10 || few > 60 || bytes > 60*1000 || of["some-client"] != 1 {
		t.Errorf("entries %v with %d bytes", of, bytes)
	}
}
