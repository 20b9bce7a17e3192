package api_test

import (
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/replay"
)

// TestExportTask: a task comes as a file that package replay opens; one whose journal is forgotten says so.
//
// covers: OP25
func TestExportTask(t *testing.T) {
	w, handler := world(t, nil)
	as := apitest.As(operate.RoleViewer, handler)
	got := ask(as, "GET", "/v1/tasks/order/t-5/export", "")
	plan, saved, err := replay.Decode(got.Body.Bytes())
	if got.Code != 200 || err != nil || plan == nil || saved.Row.ID != "t-5" || len(saved.Journal) != len(w.Records["t-5"]) {
		t.Errorf("%d %s: %v", got.Code, got.Body, err)
	}
	delete(w.Records, "t-5")
	if got = ask(as, "GET", "/v1/tasks/order/t-5/export", ""); got.Code != 404 || !strings.Contains(got.Body.String(), "journal of task") {
		t.Errorf("without a journal: %d %s", got.Code, got.Body)
	}
	if got = ask(as, "GET", "/v1/tasks/order/none/export", ""); got.Code != 404 {
		t.Errorf("unknown: %d %s", got.Code, got.Body)
	}
}
