package api_test

import (
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestConditions: what was decided of a condition comes with the value of each of its terms at the row that decided.
func TestConditions(t *testing.T) {
	w, handler := world(t, nil)
	w.Plan.Steps[1].When = "results.credit.points > 500 && input.cents < 5000"
	as := apitest.As(operate.RoleViewer, handler)
	const path = "/v1/tasks/order/t-5/conditions"
	want := `{"conditions":[{"step":"charge","when":"results.credit.points > 500 && input.cents < 5000","holds":true,"row":2,"at":"2026-01-31T12:00:01`
	got := ask(as, "GET", path, "")
	if body := got.Body.String(); got.Code != 200 || !strings.HasPrefix(strings.TrimSpace(body), want) || !strings.Contains(body, `{"term":"results.credit.points","value":"700"}`) {
		t.Errorf("%d %s", got.Code, body)
	}
	w.Records["t-5"][1].Next, w.Records["t-5"][1].Kind = -1, core.KindDone
	w.Records["t-5"] = append(w.Records["t-5"][:2:2], core.Record{Seq: 3, Kind: core.KindSkipped, At: core.InstantOf(apitest.At), State: core.StateProcessing, Round: 1, Step: 1, StepStatus: core.StepSkipped, Next: -1})
	if got = ask(as, "GET", path, ""); !strings.Contains(got.Body.String(), `"holds":false,"row":3`) {
		t.Errorf("skipped: %d %s", got.Code, got.Body)
	}
	w.Records["t-5"] = w.Records["t-5"][:1]
	if got = ask(as, "GET", path, ""); got.Code != 200 || strings.Contains(got.Body.String(), "holds") || !strings.Contains(got.Body.String(), `"terms":[]`) {
		t.Errorf("before it was asked: %d %s", got.Code, got.Body)
	}
	delete(w.Records, "t-5")
	if got = ask(as, "GET", path, ""); got.Code != 404 || !strings.Contains(got.Body.String(), "journal of task") {
		t.Errorf("without a journal: %d %s", got.Code, got.Body)
	}
	w.Plan.Steps[1].When = ""
	w.Add("t-9", core.StateError)
	if got = ask(as, "GET", "/v1/tasks/order/t-9/conditions", ""); got.Code != 200 || strings.TrimSpace(got.Body.String()) != `{"conditions":[]}` {
		t.Errorf("a plan without conditions: %d %s", got.Code, got.Body)
	}
	w.Tasks[0].Seq = 20_001
	if got = ask(as, "GET", "/v1/tasks/order/t-0/conditions", ""); got.Code != 422 || !strings.Contains(got.Body.String(), "at most 20000") {
		t.Errorf("a long journal: %d %s", got.Code, got.Body)
	}
}
