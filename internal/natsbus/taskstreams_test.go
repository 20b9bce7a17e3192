package natsbus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// TestTaskStreams: each partition has its task and control stream of several, from any
// publisher; what comes to the stream endpoint gets there, with the time when it was first
// stored; the streams together have the configured size.
func TestTaskStreams(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	config := StreamConfig{Partitions: 8, TaskStreams: 3, MaxBytes: 300 * mebibyte, ControlBytes: 30 * mebibyte}
	setUp(t, c, config)
	setUp(t, c, config)
	info := func(name string) *jetstream.StreamInfo {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo()
	}
	for n := range 3 {
		if tasks, control := info(names.StreamTasksAt(n)), info(names.StreamControlAt(n)); tasks.Config.MaxBytes != 100*mebibyte || control.Config.MaxBytes != 10*mebibyte {
			t.Errorf("%s has %d bytes, %s %d", tasks.Config.Name, tasks.Config.MaxBytes, control.Config.Name, control.Config.MaxBytes)
		}
	}
	for p := range 8 {
		publishPack(t, c, p, core.Submission{Type: "x", ID: "a"})
		if _, err := c.PublishControl(within(t), p, &core.Control{Kind: core.EventCancel, ID: "a", Type: "x"}); err != nil {
			t.Fatal(err)
		}
		if end, err := c.TasksEnd(within(t), p); err != nil || end != uint64(p/3+1) {
			t.Errorf("partition %d ends at %d, %v", p, end, err)
		}
	}
	for n, want := range []uint64{3, 3, 2} {
		if tasks, control := info(names.StreamTasksAt(n)).State.Msgs, info(names.StreamControlAt(n)).State.Msgs; tasks != want || control != want {
			t.Errorf("stream %d has %d and %d messages, want %d", n, tasks, control, want)
		}
	}
	// Headers that a server acts on are about the stream endpoint alone.
	first, err := c.js.Publish(within(t), "duly.in.x.order-1", []byte("1"), jetstream.WithExpectStream(names.StreamIn()), jetstream.WithMsgID("m"))
	if err != nil || first.Stream != names.StreamIn() {
		t.Fatalf("%+v, %v", first, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.ForwardIn(ctx) }()
	p := wire.PartitionOf("order-1", 8)
	stream, err := c.js.Stream(within(t), c.StreamTasks(p))
	if err != nil {
		t.Fatal(err)
	}
	var msg *jetstream.RawStreamMsg
	eventually(t, "it is in the stream of its partition", func() bool {
		msg, err = stream.GetLastMsgForSubject(within(t), names.TasksPattern(p))
		return err == nil && strings.HasSuffix(msg.Subject, ".x.order-1")
	})
	if at := wire.StoredAt(wire.Header(msg.Header), core.InstantOf(msg.Time)); at == 0 || at > core.InstantOf(msg.Time) || msg.Header.Get(wire.HeaderStored) == "" {
		t.Errorf("stored at %v, in its stream at %v: %v", at.Time(), msg.Time, msg.Header)
	}
	eventually(t, "it has left the other", func() bool { return info(names.StreamIn()).State.Msgs == 0 })
	stop()
	<-ended
}

// TestTaskStreamsNumber: nodes that say different numbers of task streams are refused with
// both numbers, at the start, at a takeover and while they run.
func TestTaskStreamsNumber(t *testing.T) {
	url := serve(t, natsserver.Options{}).ClientURL()
	c := dial(t, url)
	setUp(t, c, StreamConfig{Partitions: 8, TaskStreams: 3})
	for _, n := range []int{0, 1, 2, 4} {
		_, err := dial(t, url).Setup(within(t), StreamConfig{Partitions: 8, TaskStreams: n})
		if want := "task streams are 3, want " + string(rune('0'+max(1, n))) + " (--task-streams)"; !errors.Is(err, errSettings) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", n, err, want)
		}
	}
	for _, n := range []int{17, 9} {
		if _, err := c.Setup(within(t), StreamConfig{Partitions: 8, TaskStreams: n}); err == nil || errors.Is(err, errSettings) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if home, err := c.Home(within(t), 4); err != nil || strings.Count(home.Identity, "/") != 1 || len(home.Others) != 0 {
		t.Errorf("%+v, %v", home, err)
	}
	if _, err := c.BeginChange(within(t), "", 2, 7); !errors.Is(err, errSettings) {
		t.Errorf("another number of partitions: %v", err)
	}
	change, err := c.BeginChange(within(t), "", 2, 8)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Home(within(t), 0); !errors.Is(err, errSettings) || !strings.Contains(err.Error(), "the change from 3 to 2 task streams is not finished, want 3") {
		t.Errorf("a takeover while they are changed: %v", err)
	}
	if err := change.Prepare(within(t)); err != nil {
		t.Fatal(err)
	}
	if left, err := change.Finish(within(t), time.Hour); err != nil || len(left) != 0 { // nothing was in them
		t.Errorf("%v, %v", left, err)
	}
	setUp(t, dial(t, url), StreamConfig{Partitions: 8, TaskStreams: 2})
	c.guardOnce(within(t))
	if found := trouble(c, names.StreamTasks()); found == nil || !strings.Contains(found.Err.Error(), "task streams are 2, want 3") {
		t.Errorf("%+v", found)
	}
}
