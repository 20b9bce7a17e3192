package natsbus

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// forwardedSize is the largest message of the server of TestForwardLargest.
const forwardedSize = 64 << 10

// TestForwardLargest: the largest messages that NATS takes at the stream endpoint get to their partitions, and one that
// cannot is a dead letter; none keeps those behind it.
//
// covers: L17
func TestForwardLargest(t *testing.T) {
	t.Parallel()
	s := serve(t, natsserver.Options{MaxPayload: forwardedSize})
	c := dial(t, s.ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8, TaskStreams: 2})
	for id, header := range map[string]nats.Header{"bare": nil, "header": {wire.HeaderReplyTo: {"_INBOX.x"}}, "small": {}} {
		msg := &nats.Msg{Subject: "duly.in.x." + id, Header: header, Data: make([]byte, forwardedSize)}
		for _, v := range header {
			msg.Data = msg.Data[:forwardedSize-len("NATS/1.0\r\n"+wire.HeaderReplyTo+": \r\n\r\n")-len(v[0])]
		}
		if id == "small" {
			msg.Data = msg.Data[:10]
		}
		if _, err := c.js.PublishMsg(within(t), msg); err != nil {
			t.Fatal(err)
		}
	}
	publishCompact(t, strings.TrimPrefix(s.ClientURL(), "nats://"), "duly.in.x.compact")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.ForwardIn(ctx) }()
	defer func() { stop(); <-ended }()
	info := func(name string) jetstream.StreamState {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State
	}
	eventually(t, "all have left the stream endpoint", func() bool { return info(names.StreamIn()).Msgs == 0 })
	if n := info(names.StreamTasksAt(0)).Msgs + info(names.StreamTasksAt(1)).Msgs; n != 3 || info(names.StreamDead()).Msgs != 1 {
		t.Errorf("%d messages and %d dead letters, want 3 and 1", n, info(names.StreamDead()).Msgs)
	}
	for id, timed := range map[string]bool{"bare": false, "header": false, "small": true} {
		p := wire.PartitionOf(id, 8)
		stream, err := c.js.Stream(within(t), c.StreamTasks(p))
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(within(t), 1, jetstream.WithGetMsgSubject(fmt.Sprintf("duly.tasks.%d.x.%s", p, id)))
		if err != nil || (msg.Header.Get(wire.HeaderStored) != "") != timed {
			t.Errorf("%s: %v, %v", id, msg, err)
		}
	}
}

// TestForwardPastAStreamThatIsAway: what the stream endpoint has for a task stream that takes nothing, however much, keeps
// nothing back that is for another.
func TestForwardPastAStreamThatIsAway(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{SyncOff: true}).ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8, TaskStreams: 2})
	if err := c.js.DeleteStream(within(t), names.StreamTasksAt(1)); err != nil {
		t.Fatal(err)
	}
	of := func(stream, n int) (ids []string) {
		for i := 0; len(ids) < n; i++ {
			if id := fmt.Sprint("t", i); wire.TaskStreamOf(wire.PartitionOf(id, 8), 2) == stream {
				ids = append(ids, id)
			}
		}
		return ids
	}
	has := func(name string) uint64 {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Msgs
	}
	const away = 1200 // more than a consumer has out, unless it is told
	for _, id := range of(1, away) {
		if err := c.nc.Publish("duly.in.x."+id, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "they are at the stream endpoint", func() bool { return has(names.StreamIn()) == away })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.ForwardIn(ctx) }()
	defer func() { stop(); <-ended }()
	// Not before all of them are out, so that the next comes behind them.
	eventually(t, "they are with the forwarder", func() bool {
		consumer, err := c.js.Consumer(within(t), names.StreamIn(), wire.ConsumerForward)
		return err == nil && consumer.CachedInfo().NumAckPending >= 1000
	})
	if _, err := c.js.Publish(within(t), "duly.in.x."+of(0, 1)[0], []byte("1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other's is in its stream", func() bool { return has(names.StreamTasksAt(0)) == 1 })
	if n := has(names.StreamIn()); n != away {
		t.Errorf("%d messages wait for the stream that is away, want %d", n, away)
	}
}

// publishCompact publishes, as some clients do, a message of the largest size with a header of the least.
func publishCompact(t *testing.T, addr, subject string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	header := "NATS/1.0\r\nA:b\r\n\r\n"
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":true,\"headers\":true}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(header), forwardedSize, header, strings.Repeat("x", forwardedSize-len(header))); err != nil {
		t.Fatal(err)
	}
	for all, b := "", make([]byte, 4096); !strings.Contains(all, "PONG"); {
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		all += string(b[:n])
	}
}

// TestMoveLargest: a full pack gets to another stream when the number of task streams changes.
//
// covers: L17
func TestMoveLargest(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{MaxPayload: forwardedSize}).ClientURL())
	setUp(t, c, StreamConfig{Partitions: 8})
	if _, err := c.js.Publish(within(t), names.PackSubject(1), make([]byte, forwardedSize)); err != nil {
		t.Fatal(err)
	}
	change, err := c.BeginChange(within(t), "", 2, 8)
	if err == nil {
		err = change.Prepare(within(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	if moved, err := change.Move(within(t), &core.PartitionState{Partition: 1}); err != nil || moved.Messages != 1 {
		t.Errorf("%+v, %v", moved, err)
	}
}
