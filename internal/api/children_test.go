package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// A task shows the kinds of its steps, what became of their children, and its own parent.
func TestTaskOfTasks(t *testing.T) {
	v := core.View{ID: "o-1~rows~7", Type: "batch", State: core.StatePending, Parent: "o-1", ParentType: "order",
		Ancestors: []core.TaskName{{Type: "order", ID: "o-1"}, {Type: "day", ID: "monday"}}, Steps: []core.StepView{
			{Name: "charge", Agent: "pay", Status: "done"},
			{Name: "approve", Kind: core.SignalStep, Status: "running"},
			{Name: "rows", Kind: core.EachStep, Child: "row", Count: 9, Status: "running", Children: core.ChildCounts{Born: 6, Running: 2, Done: 2, Undone: 1, Error: 1}},
		}}
	data, err := EncodeTask(&v)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"parent":{"id":"o-1","type":"order"},"parents":[{"id":"o-1","type":"order"},{"id":"monday","type":"day"}]`, `{"name":"charge","agent":"pay","status"`, `"name":"approve","kind":"signal"`,
		`"kind":"each","agent":"","children":{"link":"/v1/tasks?parent=o-1~rows~7","type":"row","count":9,"born":6,"running":2,"processed":2,"undone":1,"error":1}`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the task is %s, want in it %s", data, want)
		}
	}
}

// A list can be of one task's children.
func TestFilterByParent(t *testing.T) {
	if f, bad := filterOf(httptest.NewRequest("GET", "/v1/tasks?parent=o-1~rows~7", nil)); bad != nil || f.Parent != "o-1~rows~7" {
		t.Errorf("the filter is %+v, %+v", f, bad)
	}
	if _, bad := filterOf(httptest.NewRequest("GET", "/v1/tasks?parent=o%2F1", nil)); bad == nil || bad.Code != 400 || !strings.Contains(bad.Description, "query parameter parent") {
		t.Errorf("a parent that is no id: %+v, want a refusal that names it", bad)
	}
}
