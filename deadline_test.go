package duly_test

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
)

// TestDeadlinePlan is the plan of docs/guide/deadlines.md; a reserve that leaves no time is refused.
func TestDeadlinePlan(t *testing.T) {
	pay := duly.NewStep[int, int]("pay", "payment")
	ship := duly.NewStep[int, int]("ship", "parcel")
	plan := duly.NewPlan("order", 1, pay, ship).With(
		duly.TaskCompleteBy(10*time.Second), duly.UndoReserve(2*time.Second), duly.Admission(duly.AdmissionRefuse))
	if _, err := plan.Spec(); err != nil {
		t.Fatal(err)
	}
	_, err := duly.NewPlan("order", 1, pay, ship).With(duly.TaskCompleteBy(time.Second), duly.UndoReserve(time.Minute)).Spec()
	if err == nil || !strings.Contains(err.Error(), "undo_reserve") {
		t.Errorf("a reserve longer than the task: %v", err)
	}
}
