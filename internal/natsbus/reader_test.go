package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// P of these tests is the default 16; they all read partition 3.
const part = 3

// sink gathers what a reader hands out.
type sink struct {
	mu    sync.Mutex
	seqs  []uint64
	last  *TaskMessage
	lost  chan error
	gate  chan struct{} // when not nil, each message waits for one element, or for open
	open  chan struct{}
	once  sync.Once
	noAck bool
}

func newSink() *sink { return &sink{lost: make(chan error, 4), open: make(chan struct{})} }

// release ends the waiting for good.
func (s *sink) release() { s.once.Do(func() { close(s.open) }) }

func (s *sink) handle(m *TaskMessage) {
	s.mu.Lock()
	s.seqs = append(s.seqs, m.Seq)
	s.last = m
	gate, noAck := s.gate, s.noAck
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-s.open:
		}
	}
	if !noAck {
		_ = m.Ack()
	}
}

func (s *sink) got() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seqs)
}

func (s *sink) await(t *testing.T, want ...uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("messages %v", want), func() bool { return len(s.got()) >= len(want) })
	if got := s.got(); !slices.Equal(got, want) {
		t.Fatalf("handed out %v, want %v", got, want)
	}
}

// read starts a reader that the test stops.
func (s *sink) read(t *testing.T, c *Conn, epoch int64, cursor uint64, config ReadConfig) *Reader {
	t.Helper()
	r, err := c.ReadTasks(context.Background(), part, epoch, cursor, config, s.handle, func(err error) { s.lost <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.release(); r.Stop() })
	return r
}

func submission(n int) core.Submission {
	return core.Submission{Type: "order", ID: idIn(part, defaultPartitions, n), Input: []byte(strconv.Itoa(n)), At: at}
}

func publishTasks(t *testing.T, c *Conn, n int) {
	t.Helper()
	for i := range n {
		publishPack(t, c, part, submission(i))
	}
}

func upTo(n int) []uint64 {
	seqs := make([]uint64, n)
	for i := range seqs {
		seqs[i] = uint64(i + 1)
	}
	return seqs
}

// consumer is the reader's consumer as the server sees it.
func consumer(t *testing.T, c *Conn, name string) *jetstream.ConsumerInfo {
	t.Helper()
	x, err := c.js.Consumer(within(t), names.StreamTasks(), name)
	if err != nil {
		t.Fatal(err)
	}
	return x.CachedInfo()
}

func consumers(t *testing.T, c *Conn) []string {
	t.Helper()
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	list := stream.ConsumerNames(within(t))
	for name := range list.Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// covers: I13
func TestReaderReadsItsPartition(t *testing.T) {
	c := ready(t)
	publishPack(t, c, part+1, core.Submission{Type: "order", ID: idIn(part+1, 16, 0), Input: []byte("1")})
	publishTasks(t, c, 5) // positions 2 to 6
	s := newSink()
	s.read(t, c, 1, 2, ReadConfig{}) // 2 is committed
	s.await(t, 3, 4, 5, 6)
	publishTasks(t, c, 1)
	s.await(t, 3, 4, 5, 6, 7)
	eventually(t, "acks", func() bool { i := consumer(t, c, "p03-e1-1"); return i.NumAckPending == 0 && i.AckFloor.Stream == 7 })
	if s.last.Subject != names.PackSubject(part) || s.last.Time <= 0 {
		t.Errorf("%+v", s.last)
	}
}

// TestTakeover: the successor need not wait for the predecessor's ack wait, gets
// everything that is not committed, and the predecessor's reader ends.
//
// covers: E12, I9, I12, I13
func TestTakeover(t *testing.T) {
	t.Parallel()
	server := serve(t, natsserver.Options{})
	c, other := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	publishTasks(t, c, 200)

	zombie := newSink()
	zombie.gate = make(chan struct{})
	zombie.read(t, c, 4, 0, ReadConfig{expiry: time.Second, heartbeat: 500 * time.Millisecond})
	zombie.await(t, 1) // it is frozen in the first message and has prefetched more

	heir := newSink()
	heir.read(t, other, 5, 0, ReadConfig{})
	heir.await(t, upTo(200)...)
	if names := consumers(t, c); !slices.Equal(names, []string{"p03-e5-1"}) {
		t.Errorf("consumers %v", names)
	}
	zombie.release()
	if err := receive(t, "the loss", zombie.lost); !errors.Is(err, errLost) {
		t.Errorf("lost with %v", err)
	}
	publishTasks(t, c, 1)
	heir.await(t, upTo(201)...)
	if n := len(zombie.got()); n > defaultPrefetch+1 {
		t.Errorf("the zombie was handed %d messages, more than it had", n)
	}
	nothing(t, "second loss", zombie.lost)
	eventually(t, "acks of the heir", func() bool { return consumer(t, c, "p03-e5-1").NumAckPending == 0 })

	if _, err := c.ReadTasks(within(t), part, 4, 0, ReadConfig{}, zombie.handle, nil); !errors.Is(err, errLost) {
		t.Errorf("a lower epoch came back: %v", err)
	}
	if names := consumers(t, c); !slices.Equal(names, []string{"p03-e5-1"}) {
		t.Errorf("consumers %v", names)
	}
}

// TestTakeoverOfAMuteReader: a reader that had no request out when its consumer
// was removed hears nothing of it; the missing heartbeat makes it look.
func TestTakeoverOfAMuteReader(t *testing.T) {
	t.Parallel()
	c := ready(t)
	publishTasks(t, c, 1)
	zombie := newSink()
	zombie.gate = make(chan struct{})
	zombie.read(t, c, 1, 0, ReadConfig{expiry: time.Second, heartbeat: 500 * time.Millisecond})
	zombie.await(t, 1)
	eventually(t, "the end of the request", func() bool { return consumer(t, c, "p03-e1-1").NumWaiting == 0 })
	heir := newSink()
	heir.read(t, c, 2, 0, ReadConfig{})
	heir.await(t, 1)
	zombie.release()
	if err := receive(t, "the loss", zombie.lost); !errors.Is(err, errLost) {
		t.Errorf("lost with %v", err)
	}
}

// TestLostDelivery: another client takes messages off our consumer, as a network
// would that loses them. The reader sees the gap and hands out all, in order.
//
// covers: E2, I5
func TestLostDelivery(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{}, 100)
	s.read(t, c, 1, 0, ReadConfig{Prefetch: 1})
	publishTasks(t, c, 10)
	s.await(t, 1)
	thief, err := c.js.Consumer(within(t), names.StreamTasks(), "p03-e1-1")
	if err != nil {
		t.Fatal(err)
	}
	stolen := 0
	for stolen < 3 {
		batch, err := thief.FetchNoWait(3 - stolen)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			stolen++
		}
	}
	for range cap(s.gate) {
		s.gate <- struct{}{}
	}
	s.await(t, upTo(10)...)
	if names := consumers(t, c); len(names) != 1 || names[0] == "p03-e1-1" {
		t.Errorf("consumers %v, want one, created again", names)
	}
	nothing(t, "loss", s.lost)
}

// TestRedelivery: what comes again is not handed out again; what was
// acknowledged is acknowledged again.
//
// covers: E2, I5, I9
func TestRedelivery(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.noAck = true
	r := s.read(t, c, 1, 0, ReadConfig{AckWait: 200 * time.Millisecond})
	publishTasks(t, c, 1)
	s.await(t, 1)
	again := func(what string) {
		t.Helper()
		before := consumer(t, c, "p03-e1-1").Delivered.Consumer
		eventually(t, what, func() bool { return consumer(t, c, "p03-e1-1").Delivered.Consumer >= before+2 })
		s.await(t, 1)
	}
	again("redelivery of what is in hand")
	r.acked(s.last) // the ack itself is lost on the way
	eventually(t, "the reader's own ack", func() bool { return consumer(t, c, "p03-e1-1").NumAckPending == 0 })
	s.await(t, 1)
	publishTasks(t, c, 1)
	s.await(t, 1, 2)
	if err := s.last.Ack(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ack", func() bool { return consumer(t, c, "p03-e1-1").NumAckPending == 0 })
}

// TestBackpressure: a handler that blocks keeps the rest in the stream; neither
// the connection nor the consumer suffers.
//
// covers: E15, I4
func TestBackpressure(t *testing.T) {
	t.Parallel()
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{}, 1000)
	s.read(t, c, 1, 0, ReadConfig{Prefetch: 4, expiry: time.Second, heartbeat: 500 * time.Millisecond})
	publishTasks(t, c, 3)
	s.await(t, 1)
	// Longer than request and heartbeat live: the server drops the request.
	eventually(t, "the end of the request", func() bool { return consumer(t, c, "p03-e1-1").NumWaiting == 0 })
	publishTasks(t, c, 47)
	if d := consumer(t, c, "p03-e1-1").Delivered.Stream; d > 9 {
		t.Errorf("%d messages were delivered to a handler that blocks, prefetch 4", d)
	}
	if _, err := c.nc.RTT(); err != nil || !c.Connected() {
		t.Errorf("the connection suffers: %v", err)
	}
	for range 50 {
		s.gate <- struct{}{}
	}
	s.await(t, upTo(50)...)
	if n := c.Dropped(); n != 0 {
		t.Errorf("%d dropped", n)
	}
	if names := consumers(t, c); !slices.Equal(names, []string{"p03-e1-1"}) {
		t.Errorf("consumers %v: waiting is no reason to create one again", names)
	}
}

// covers: E15, I16, D7, inv2
func TestAckPendingHoldsTheServer(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.noAck = true
	s.read(t, c, 1, 0, ReadConfig{AckPending: 5})
	publishTasks(t, c, 20)
	s.await(t, upTo(5)...)
	eventually(t, "five in hand", func() bool { return consumer(t, c, "p03-e1-1").NumAckPending == 5 })
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if err := last.Ack(); err != nil {
		t.Fatal(err)
	}
	s.await(t, upTo(6)...)
}

// TestReconnect: the server goes and comes back with what it had; nothing is
// handed out twice or left out.
//
// covers: E1
func TestReconnect(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, natsserver.Options{Dir: dir})
	u, err := url.Parse(first.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, first.ClientURL())
	setUp(t, c, StreamConfig{})
	s := newSink()
	s.noAck = true // and the acks of what is in hand are never sent
	s.read(t, c, 1, 0, ReadConfig{})
	publishTasks(t, c, 10)
	s.await(t, upTo(10)...)
	hears := c.Hears()
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnect", func() bool { return !c.Connected() })
	if now := c.Hears(); hears == 0 || now != 0 {
		t.Errorf("hears %d, and %d without a server", hears, now)
	}
	serve(t, natsserver.Options{Dir: dir, Port: port})
	eventually(t, "reconnect", c.Connected)
	if now := c.Hears(); now == 0 || now == hears {
		t.Errorf("hears %d as before, and answers may have been lost", now)
	}
	eventually(t, "a pack stored", func() bool {
		got := make(chan error, 1)
		c.PublishPack(part, []core.Submission{submission(0)}, func(_ uint64, err error) { got <- err })
		return receive(t, "the outcome", got) == nil
	})
	s.await(t, upTo(11)...)
	nothing(t, "loss", s.lost)
}

// TestRemovedConsumer: an operator's mistake is mended.
//
// covers: E12
func TestRemovedConsumer(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.read(t, c, 1, 0, ReadConfig{})
	publishTasks(t, c, 3)
	s.await(t, 1, 2, 3)
	if err := c.js.DeleteConsumer(within(t), names.StreamTasks(), "p03-e1-1"); err != nil {
		t.Fatal(err)
	}
	publishTasks(t, c, 1)
	s.await(t, 1, 2, 3, 4)
	if names := consumers(t, c); !slices.Equal(names, []string{"p03-e1-1"}) && !slices.Equal(names, []string{"p03-e1-2"}) {
		t.Errorf("consumers %v", names)
	}
	nothing(t, "loss", s.lost)
}

func TestRewoundStream(t *testing.T) {
	c := ready(t)
	publishTasks(t, c, 3)
	_, err := c.ReadTasks(within(t), part, 1, 4, ReadConfig{}, func(*TaskMessage) {}, nil)
	if !errors.Is(err, ErrRewound) {
		t.Errorf("cursor 4 of 3: %v", err)
	}
	s := newSink()
	s.read(t, c, 1, 3, ReadConfig{})
	publishTasks(t, c, 1)
	s.await(t, 4)
}

// TestReaderKnowsTheMessageAtItsCursor: a stream that went back while it had no reader, and
// has grown past the cursor since, has another message there.
//
// covers: A6, inv1
func TestReaderKnowsTheMessageAtItsCursor(t *testing.T) {
	c := ready(t)
	s := newSink()
	r := s.read(t, c, 1, 0, ReadConfig{})
	publishTasks(t, c, 3)
	s.await(t, 1, 2, 3)
	r.Stop()
	s.mu.Lock()
	stored := s.last.Time
	s.mu.Unlock()
	for _, other := range []core.Instant{stored - 1, stored + 1} {
		_, err := c.ReadTasks(within(t), part, 2, 3, ReadConfig{Stored: other}, func(*TaskMessage) {}, nil)
		if !errors.Is(err, ErrRewound) {
			t.Errorf("message 3 of %d, was of %d: %v", stored, other, err)
		}
	}
	next := newSink()
	next.read(t, c, 2, 3, ReadConfig{Stored: stored})
	publishTasks(t, c, 1)
	next.await(t, 4)
	// A message that has gone says nothing.
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(within(t)); err != nil {
		t.Fatal(err)
	}
	last := newSink()
	last.read(t, c, 3, 3, ReadConfig{Stored: stored + 1})
	publishTasks(t, c, 1)
	last.await(t, 5)
}

// TestStopWaits: after Stop nothing is handed out, and a call that is on has
// come back.
func TestStopWaits(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{})
	r := s.read(t, c, 1, 0, ReadConfig{})
	publishTasks(t, c, 20)
	s.await(t, 1)
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.Stop() }()
	nothing(t, "stop while the handler is busy", stopped)
	s.release()
	receive(t, "stop", stopped)
	n := len(s.got())
	publishTasks(t, c, 1)
	if got := len(s.got()); got != n {
		t.Error("handed out after Stop")
	}
	nothing(t, "loss", s.lost)
}

func TestControl(t *testing.T) {
	c := ready(t)
	want := core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 2, 3}, Actor: "supervisor"}
	seq, err := c.PublishControl(within(t), part, &want)
	if err != nil || seq != 1 {
		t.Fatalf("%d, %v", seq, err)
	}
	if _, err := c.PublishControl(within(t), part+1, &want); err != nil {
		t.Fatal(err)
	}
	got := make(chan core.Control, 2)
	r, err := c.ReadControl(within(t), part, 1, 0, ReadConfig{}, func(m *TaskMessage) {
		control, err := wire.DecodeControl(m.Data)
		if err != nil || m.Seq != 1 {
			t.Errorf("%d: %v", m.Seq, err)
		}
		got <- control
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	if c := receive(t, "control message", got); c.Kind != want.Kind || !slices.Equal(c.Numbers, want.Numbers) || c.Actor != want.Actor {
		t.Errorf("%+v", c)
	}
}

// TestLargeMessage: one that is larger than what a request allows comes all the
// same.
func TestLargeMessage(t *testing.T) {
	c := ready(t)
	large := submission(0)
	large.Input = make([]byte, 100<<10)
	publishPack(t, c, part, submission(1))
	publishPack(t, c, part, large, large)
	publishPack(t, c, part, submission(2))
	if _, err := c.js.CreateConsumer(within(t), names.StreamTasks(), jetstream.ConsumerConfig{Durable: "x"}); err != nil {
		t.Fatal(err)
	}
	p, err := newPuller(c.nc, names.StreamTasks(), "x", ReadConfig{}.withDefaults(), 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for i := range 3 {
		m, err := p.next(within(t), nil)
		if err != nil || (len(m.Data) > 100<<10) != (i == 1) {
			t.Fatalf("%d: %v", i+1, err)
		}
	}
}
