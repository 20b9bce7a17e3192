package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestSteps pins the encoding of steps, and of what someone watches; what cannot be read is refused.
func TestSteps(t *testing.T) {
	events := []StepEvent{
		{Partition: 3, ID: "o-1", Labels: "a=b,c=d", What: "step_failed", State: core.StateUndoing, Seq: 5, Step: "pay", Attempt: 2, Error: "no <money>", At: core.Instant(1_700_000_000_123_456)},
		{Partition: 0, ID: "o-2", What: "begun", State: core.StateProcessing, Seq: 1, At: core.Instant(1_700_000_000_000_000)},
	}
	data, err := EncodeSteps("order", events, 7)
	want := `{"v":1,"type":"order","lost":7,"steps":[{"partition":3,"id":"o-1","labels":"a=b,c=d","what":"step_failed","status":"undoing","seq":5,"step":"pay","attempt":2,` +
		`"error":"no \u003cmoney\u003e","at":"2023-11-14T22:13:20.123456Z"},{"partition":0,"id":"o-2","what":"begun","status":"processing","seq":1,"at":"2023-11-14T22:13:20.000000Z"}]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v\nwant %s", data, err, want)
	}
	taskType, got, lost, err := DecodeSteps(data)
	if err != nil || taskType != "order" || lost != 7 || fmt.Sprint(got) != fmt.Sprint(events) {
		t.Errorf("%s %v %d, %v", taskType, got, lost, err)
	}
	many, _ := EncodeSteps("order", make([]StepEvent, StepsMax+1), 0)
	for _, bad := range []string{``, `[]`, `{"v":2}`, `{"v":1,"lost":-1}`, `{"v":1,"steps":[{"at":"soon"}]}`, string(many)} {
		if _, _, _, err := DecodeSteps([]byte(bad)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
	if data, err := EncodeWanted(Wanted{Type: "order", Label: "a=b"}); err != nil || string(data) != `{"type":"order","label":"a=b"}` {
		t.Errorf("%s, %v", data, err)
	}
	for _, bad := range []string{``, `[]`, `{"type":"` + strings.Repeat("x", wantedBytesMax) + `"}`} {
		if _, err := DecodeWanted([]byte(bad)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
	if a, b := (Names{}).StepsSubject("order"), (Names{}).SubjectWatched(); a != "duly.steps.order" || b != "duly.watched" {
		t.Errorf("%s %s", a, b)
	}
}
