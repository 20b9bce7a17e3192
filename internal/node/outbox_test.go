package node

import (
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema/postgres"
)

// TestOutboxHeaders: every header that a submission can have goes where the request endpoint puts it.
func TestOutboxHeaders(t *testing.T) {
	all := wire.SubmitHeaders("1h", "status.x", "trace", "3", "a=b")
	row := postgres.OutboxRow{Number: 7, Type: "order", Task: "o-1", Input: []byte(`{}`), Tries: 2, Headers: map[string]string{}}
	for name, values := range all {
		row.Headers[name] = values[0]
	}
	w := writtenOf(&row)
	want := ingest.Request{Type: "order", ID: "o-1", CompleteBy: "1h", ReplyTo: "status.x", Trace: "trace", Version: "3", Labels: "a=b"}
	got := w.Request
	got.Input = nil
	if w.Unfit != nil || w.Row != 7 || w.Tries != 2 || string(w.Request.Input) != `{}` || got.CompleteBy != want.CompleteBy || got.ReplyTo != want.ReplyTo ||
		got.Trace != want.Trace || got.Version != want.Version || got.Labels != want.Labels || got.Type != want.Type || got.ID != want.ID {
		t.Errorf("%+v, want %+v", w, want)
	}
}

// TestOutboxOfANewerWriter: a header that this node does not know is not left out; the row waits for a node that does.
func TestOutboxOfANewerWriter(t *testing.T) {
	row := postgres.OutboxRow{Headers: map[string]string{"Duly-Tomorrow": "x", wire.HeaderLabels: "a=b"}}
	if w := writtenOf(&row); w.Unfit == nil || !w.Unfit.Retryable() {
		t.Errorf("%+v", w)
	}
}

// TestOutboxTimeLeft: a duration is what is left of it, and nothing left is not no deadline.
func TestOutboxTimeLeft(t *testing.T) {
	for left, want := range map[time.Duration]string{90 * time.Second: "1m30s", 0: "0s", -time.Second: "-1s"} {
		if w := writtenOf(&postgres.OutboxRow{Timed: true, Left: left}); w.Request.CompleteBy != want {
			t.Errorf("%v: %q, want %q", left, w.Request.CompleteBy, want)
		}
	}
}
