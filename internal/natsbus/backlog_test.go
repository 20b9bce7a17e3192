package natsbus

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// TestBacklog: what a reader's handler has no room for stays with the server,
// and counts.
//
// covers: I4
func TestBacklog(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{})
	s.read(t, c, 1, 0, ReadConfig{Prefetch: 1})
	t.Cleanup(func() { close(s.gate) }) // before the reader is stopped, which waits for its handler
	publishTasks(t, c, 20)
	eventually(t, "a backlog on the one partition that is read", func() bool {
		backlog, err := c.Backlog(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return len(backlog) == 1 && backlog[part] >= 10
	})
}

// TestBacklogWithASilentStream: what the other task streams say is there, soon, beside an error that names the one that does
// not answer.
//
// covers: I4
func TestBacklogWithASilentStream(t *testing.T) {
	c := dial(t, serveMuted(t, "$JS.API.CONSUMER.LIST."+names.StreamTasksAt(1)))
	setUp(t, c, StreamConfig{Partitions: 6, TaskStreams: 3})
	for p := range 6 {
		stream, err := c.js.Stream(within(t), c.StreamTasks(p))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.CreateConsumer(within(t), jetstream.ConsumerConfig{Name: wire.ConsumerName(p, 1, 1), FilterSubjects: names.TasksSubjects(p)}); err != nil {
			t.Fatal(err)
		}
		for range p + 1 {
			publishPack(t, c, p, core.Submission{Type: "x", ID: "a"})
		}
	}
	began := time.Now()
	backlog, err := c.Backlog(within(t))
	if want := map[int]int64{0: 1, 2: 3, 3: 4, 5: 6}; !maps.Equal(backlog, want) {
		t.Errorf("%v, want %v", backlog, want)
	}
	if err == nil || !strings.Contains(err.Error(), names.StreamTasksAt(1)+":") || strings.Contains(err.Error(), names.StreamTasksAt(2)) {
		t.Errorf("error %v, want one that names %s alone", err, names.StreamTasksAt(1))
	}
	if d := time.Since(began); d > patience/2 {
		t.Errorf("after %v", d)
	}
}
