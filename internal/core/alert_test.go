package core

import (
	"fmt"
	"strings"
	"testing"
)

func TestAlertIsCut(t *testing.T) {
	a := Alert{Text: strings.Repeat("t", alertTextMax+1), Error: strings.Repeat("é", alertTextMax)}
	for n := range alertAttrsMax + 5 {
		a.Attrs = append(a.Attrs, AlertAttr{fmt.Sprint("a", n), strings.Repeat("v", AlertAttrMax+1)})
	}
	short := a.Short()
	if len(short.Text) > alertTextMax+3 || len(short.Error) > alertTextMax+3 || len(short.Attrs) != alertAttrsMax || len(short.Attrs[0].Value) > AlertAttrMax+3 {
		t.Errorf("%d %d %d", len(short.Text), len(short.Error), len(short.Attrs))
	}
	if len(a.Attrs[0].Value) != AlertAttrMax+1 {
		t.Error("the alert itself was changed")
	}
	if same := (Alert{Text: "t", Attrs: []AlertAttr{{"a", "b"}}}).Short(); same.Text != "t" || same.Attrs[0] != (AlertAttr{"a", "b"}) {
		t.Errorf("%+v", same)
	}
}

// TestUndoGaveUp: what a task in error says of an undo that gave up is told from other texts.
func TestUndoGaveUp(t *testing.T) {
	task := &Task{Steps: []StepState{{}, {Left: "refused"}}}
	if text := task.left(&Plan{Steps: []Step{{Name: "pay"}, {Name: "send"}}}); !UndoGaveUp(text) || !UndoGaveUp(cut(text)) {
		t.Errorf("%q", text)
	}
	for _, other := range []string{"", "the undo", "the card is refused", "no agent takes the undo"} {
		if UndoGaveUp(other) {
			t.Errorf("%q", other)
		}
	}
}

func TestTraceSampled(t *testing.T) {
	const begin = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	for flags, want := range map[string]bool{"00": false, "01": true, "02": false, "03": true, "0a": false, "0b": true, "0f": true, "fe": false} {
		if got := TraceSampled(begin + flags); got != want {
			t.Errorf("flags %s: %v", flags, got)
		}
	}
	if TraceSampled("") || TraceSampled(begin) {
		t.Error("what is no traceparent is sampled")
	}
	if !TraceSampled("01-" + begin[3:] + "01-more") {
		t.Error("a later version is not read")
	}
}
