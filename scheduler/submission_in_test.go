package scheduler

import (
	"reflect"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestTaskHasEveryFieldOfItsSubmission: what a submission says is in its task, and in the dead letter of one that cannot be
// stored.
func TestTaskHasEveryFieldOfItsSubmission(t *testing.T) {
	sub := core.Submission{Type: "order", ID: "o-1", PlanVersion: 3, Input: []byte(`{}`), CompleteBy: 9, StartAt: 8, ReplyTo: "_INBOX.me", Trace: "t", Labels: []core.Label{{Key: "a", Value: "b"}}, At: 7}
	got := submissionOf(taskOf(&sub))
	for i := range reflect.TypeFor[core.Submission]().NumField() {
		name := reflect.TypeFor[core.Submission]().Field(i).Name
		sent, is := reflect.ValueOf(sub).Field(i), reflect.ValueOf(got).Field(i)
		if name == "Unchecked" { // it is checked when its task is made
			continue
		}
		if sent.IsZero() || !reflect.DeepEqual(sent.Interface(), is.Interface()) {
			t.Errorf("%s comes as %v, sent %v", name, is, sent)
		}
	}
}
