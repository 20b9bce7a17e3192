package bus

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
)

func TestSetupTwice(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	config := StreamConfig{Partitions: 8, MaxAge: time.Hour, MaxBytes: 1 << 30, EventsAge: 2 * time.Hour, DuplicateWindow: 5 * time.Second, Lease: 3 * time.Second, SyncAlways: true}
	first := setUp(t, c, config)
	if first.Sync != SyncAlways || !strings.HasPrefix(first.Identity, "DULY_TASKS@20") {
		t.Errorf("%+v", first)
	}
	if again := setUp(t, c, config); again != first {
		t.Errorf("%+v, first %+v", again, first)
	}
	if easy := setUp(t, c, StreamConfig{}); easy.Identity != first.Identity || easy.Sync != SyncUnknown {
		t.Errorf("%+v", easy)
	}
	if id, err := c.Identity(within(t)); err != nil || id != first.Identity {
		t.Errorf("%s, %v", id, err)
	}
	stream, err := c.js.Stream(within(t), StreamTasks)
	if err != nil {
		t.Fatal(err)
	}
	s := stream.CachedInfo().Config
	if s.Retention != jetstream.LimitsPolicy || s.Storage != jetstream.FileStorage || s.Discard != jetstream.DiscardNew || s.MaxAge != time.Hour || s.MaxBytes != 1<<30 ||
		s.Duplicates != 5*time.Second || s.SubjectTransform.Destination != "duly.tasks.{{partition(8,2)}}.{{wildcard(1)}}.{{wildcard(2)}}" {
		t.Errorf("%+v", s)
	}
	if err := c.js.DeleteStream(within(t), StreamTasks); err != nil {
		t.Fatal(err)
	}
	if anew := setUp(t, c, config); anew.Identity == first.Identity {
		t.Error("a stream made again has the identity of the one before")
	}
}

// TestSetupDifferences: what exists otherwise is told in full and left alone.
func TestSetupDifferences(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8, MaxAge: time.Hour, Lease: 3 * time.Second})
	_, err := c.Setup(within(t), StreamConfig{Partitions: 16, MaxAge: 2 * time.Hour, MaxBytes: 5000, DuplicateWindow: time.Second, Lease: 6 * time.Second})
	if !errors.Is(err, ErrSettings) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"DULY_TASKS: partitions is 8, want 16", "DULY_TASKS: subject transform is duly.in.*.* to duly.tasks.{{partition(8,2)}}",
		"DULY_TASKS: max age is 1h0m0s, want 2h0m0s", "DULY_CONTROL: max age is 1h0m0s, want 2h0m0s", "DULY_TASKS: max bytes is -1, want 5000",
		"DULY_EVENTS: duplicate window is 20s, want 1s", "DULY_NODES: lease is 3s, want 6s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "DULY_CONTROL: max bytes") || strings.Contains(err.Error(), "DULY_EVENTS: max age") {
		t.Errorf("not asked for: %v", err)
	}
	setUp(t, c, StreamConfig{Partitions: 8, MaxAge: time.Hour, Lease: 3 * time.Second}) // unchanged
}

// TestSetupForeignStream: a stream that somebody made by hand under our name.
func TestSetupForeignStream(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	_, err := c.js.CreateStream(within(t), jetstream.StreamConfig{Name: StreamTasks, Subjects: []string{"duly.in.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Setup(within(t), StreamConfig{})
	if !errors.Is(err, ErrSettings) {
		t.Fatal(err)
	}
	for _, want := range []string{"retention is WorkQueue, want Limits", "storage is Memory, want File", "discard is DiscardOld, want DiscardNew",
		"subjects is [duly.in.>], want [duly.in.*.* duly.tasks.*.pack]", "partitions is none", "wire version is , want 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if _, err := c.Setup(within(t), StreamConfig{Partitions: PartitionsMax + 1}); err == nil || errors.Is(err, ErrSettings) {
		t.Errorf("too many partitions: %v", err)
	}
}
