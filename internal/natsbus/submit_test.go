package natsbus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// TestPartitionAsTheServer holds our hash against the server's own transform.
//
// covers: S26, I8, I13, T9
func TestPartitionAsTheServer(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	const partitions = 7
	setUp(t, c, StreamConfig{Partitions: partitions})
	ids := []string{"x", "order-1", "A-B_c", strings.Repeat("z", 64), "0", "delivery-7f3a"}
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("t%d-%x", i, i*7919))
	}
	for _, id := range ids {
		if _, err := c.js.Publish(within(t), names.InSubject("order", id), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		msg, err := stream.GetMsg(within(t), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("duly.tasks.%d.order.%s", wire.PartitionOf(id, partitions), id); msg.Subject != want {
			t.Fatalf("the server put %s at %s, we would at %s", id, msg.Subject, want)
		}
	}
}

// TestStreamEndpoint goes from a JetStream publish to the decoded submission.
//
// covers: S17
func TestStreamEndpoint(t *testing.T) {
	c := ready(t)
	ids := []string{idIn(3, 16, 0), idIn(3, 16, 1), idIn(3, 16, 2), idIn(3, 16, 3)}
	for i, m := range []*nats.Msg{
		{Data: []byte(`{"a": 1}`), Header: submitHeaders("90s", "_INBOX.me", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", "")},
		{Data: []byte(`{"a":`)},
		{Data: []byte(`1`), Header: submitHeaders("", "duly.do.payment", "", "", "")},
		{Data: []byte(`2`), Header: submitHeaders("2001-01-01T00:00:00Z", "", "", "", "")},
	} {
		m.Subject = names.InSubject("order", ids[i])
		if _, err := c.js.PublishMsg(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan wire.Decoded, 8)
	decoder := wire.TaskDecoder{Partitions: 16}
	times := make(chan core.Instant, 8)
	r, err := c.ReadTasks(within(t), 3, 1, 0, ReadConfig{}, func(m *TaskMessage) {
		d, err := decoder.Decode(m.Subject, m.Header, m.Data, m.Time)
		if err != nil {
			t.Error(err)
		}
		times <- m.Time
		got <- d
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	first, stored := receive(t, "a submission", got), receive(t, "its time", times)
	want := []core.Submission{{Type: "order", ID: ids[0], Unchecked: true, Input: []byte(`{"a": 1}`), CompleteBy: stored.Add(90 * time.Second), ReplyTo: "_INBOX.me", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", At: stored}}
	if !reflect.DeepEqual(first.Submissions, want) || len(first.Refused) > 0 {
		t.Errorf("got %+v", first)
	}
	for i, text := range []string{"not JSON", "reserved", "has passed"} {
		d := receive(t, "a refusal", got)
		if len(d.Refused) != 1 || len(d.Submissions) != 0 || !strings.Contains(d.Refused[0].Error, text) || d.Refused[0].Code != 400 ||
			d.Refused[0].ID != ids[i+1] || d.Refused[0].Status != core.StatusRefused {
			t.Errorf("want a refusal with %q, got %+v", text, d)
		}
	}
}

// TestRequestEndpoint: every JetStream client's publish works against the request endpoint,
// because its answers have the form of a PubAck.
//
// covers: S17
func TestRequestEndpoint(t *testing.T) {
	server := serve(t, natsserver.Options{})
	ingest, client := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	sub, err := ingest.ServeSubmit(func(r *SubmitRequest) {
		if string(r.Input) == "no" {
			r.Reject(429, 10077, "full: \"later\"", time.Second)
			return
		}
		r.Accept(names.StreamTasks(), 42, wire.PartitionOf(r.ID, 16), "")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()

	ack, err := client.js.Publish(within(t), names.SubmitSubject("order", "o-1"), []byte(`{"a":1}`))
	if err != nil || ack.Stream != names.StreamTasks() || ack.Sequence != 42 {
		t.Fatalf("Publish: %+v, %v", ack, err)
	}
	for i := range 100 {
		future, err := client.js.PublishAsync(names.SubmitSubject("order", fmt.Sprint("o-", i)), []byte(`1`))
		if err != nil {
			t.Fatal(err)
		}
		if i == 99 {
			receive(t, "PubAck of PublishAsync", future.Ok())
		}
	}
	_, err = client.js.Publish(within(t), names.SubmitSubject("order", "o-1"), []byte("no"))
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.Code != 429 || api.ErrorCode != 10077 || api.Description != `full: "later"` {
		t.Fatalf("refusal as PubAck: %v", err)
	}
	_, err = client.js.Publish(within(t), "duly.submit.or$der.o-1", []byte("1"))
	if !errors.As(err, &api) || api.Code != 400 {
		t.Fatalf("bad type: %v", err)
	}
	old, err := client.nc.JetStream() // the older API of the library parses by itself
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := old.Publish(names.SubmitSubject("order", "o-1"), []byte("1")); err != nil || ack.Sequence != 42 {
		t.Fatalf("older Publish: %+v, %v", ack, err)
	}
}

func TestSubmitWithoutReply(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	got := make(chan *SubmitRequest, 1)
	sub, err := c.ServeSubmit(func(r *SubmitRequest) {
		r.Accept(names.StreamTasks(), 1, 1, "") // goes nowhere
		got <- r
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	m := &nats.Msg{Subject: names.SubmitSubject("order", "o-1"), Data: []byte("7"), Header: submitHeaders("5s", "status.a", "not a trace", "7", "")}
	if err := c.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	r := receive(t, "the submission", got)
	if r.HasReply || r.Type != "order" || r.ID != "o-1" || string(r.Input) != "7" || r.CompleteBy != "5s" || r.ReplyTo != "status.a" || r.Trace != "not a trace" || r.Version != "7" {
		t.Errorf("%+v", r)
	}
}

func TestPublishPack(t *testing.T) {
	c := ready(t)
	s := core.Submission{Type: "order", ID: idIn(3, 16, 0), Input: []byte("1"), At: at}
	if a, b := publishPack(t, c, 3, s), publishPack(t, c, 3, s, s); b != a+1 {
		t.Errorf("positions %d and %d", a, b)
	}
	for _, n := range []int{0, wire.PackItemsMax + 1} {
		called := 0
		c.PublishPack(3, make([]core.Submission, n), func(_ uint64, err error) {
			called++
			if err == nil || errors.Is(err, errBusy) {
				t.Errorf("%d items: %v", n, err)
			}
		})
		if called != 1 {
			t.Errorf("%d items: done was called %d times", n, called)
		}
	}
}

// TestPublishPackBusy: everything that can pass by itself is errBusy.
//
// covers: inv1
func TestPublishPackBusy(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dialWith(t, Options{URL: server.ClientURL(), PacksMax: 2, AckTimeout: 300 * time.Millisecond})
	s := core.Submission{Type: "order", ID: idIn(3, 16, 0), Input: make([]byte, 600), At: at}
	publish := func() error {
		got := make(chan error, 2)
		c.PublishPack(3, []core.Submission{s}, func(_ uint64, err error) { got <- err })
		return receive(t, "the outcome of a pack", got)
	}
	busy := func(what string, err, cause error) {
		t.Helper()
		var b *BusyError
		if !errors.Is(err, errBusy) || !errors.As(err, &b) || b.Retry <= 0 || cause != nil && !errors.Is(err, cause) {
			t.Errorf("%s: %v", what, err)
		}
	}
	busy("no stream", publish(), nats.ErrNoStreamResponse)

	if _, err := c.Setup(within(t), StreamConfig{MaxBytes: 1500}); err != nil {
		t.Fatal(err)
	}
	var err error
	var wire *wire.APIError
	eventually(t, "the word of a full stream", func() bool { // a busy machine's answer may come too late
		err = publish()
		return errors.As(err, &wire)
	})
	busy("full stream", err, nil)
	if wire.ErrCode != 10077 {
		t.Errorf("full stream: %v", err)
	}

	// A mute stream: a subscription takes the message and does not answer.
	sub, err := c.nc.Subscribe("mute.>", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	got := make(chan error, 1)
	c.acks.publish("mute.x", nil, nil, func(_ uint64, err error) { got <- err })
	err = receive(t, "a time-out", got)
	busy("time-out", err, nats.ErrTimeout)
	var b *BusyError
	if errors.As(err, &b); !b.Unknown {
		t.Error("after a time-out the message may be stored")
	}

	c.packs.Store(2) // two packs are under way
	busy("window", publish(), errPacksFull)
	c.packs.Store(0)

	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnect", func() bool { return !c.Connected() })
	busy("no server", publish(), nil)
	if n := c.packs.Load(); n != 0 {
		t.Errorf("%d packs are still counted", n)
	}
	c.Close()
	if err := publish(); !errors.Is(err, ErrClosed) || errors.Is(err, errBusy) {
		t.Errorf("closed: %v", err)
	}
}

// TestAcksOnDisconnect: a publish that waits for its confirmation fails at once when
// the connection that would bring it is gone.
//
// covers: E1
func TestAcksOnDisconnect(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dialWith(t, Options{URL: server.ClientURL(), AckTimeout: time.Hour})
	sub, err := c.nc.Subscribe("mute", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	got := make(chan error, 10)
	for range cap(got) {
		c.acks.publish("mute", nil, nil, func(_ uint64, err error) { got <- err })
	}
	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	for range cap(got) {
		var b *BusyError
		if err := receive(t, "the outcome", got); !errors.As(err, &b) || !b.Unknown {
			t.Errorf("%v", err)
		}
	}
}

// TestAcksOnce: done is called once whatever happens at the same time.
func TestAcksOnce(t *testing.T) {
	c := ready(t)
	const n = 500
	var mu sync.Mutex
	calls := map[int]int{}
	s := []core.Submission{{Type: "order", ID: idIn(3, 16, 0), Input: []byte("1"), At: at}}
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		c.PublishPack(3, s, func(uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			if calls[i]++; calls[i] == 1 {
				all.Done()
			}
		})
		if i == n/2 {
			all.Go(func() { c.acks.failAll(&BusyError{Err: context.Canceled}) })
		}
	}
	c.acks.close()
	all.Wait()
	for i, k := range calls {
		if k != 1 {
			t.Errorf("done of %d was called %d times", i, k)
		}
	}
}

// TestPubAckErrors sorts the stream's words: busy, or never.
//
// covers: inv1
func TestPubAckErrors(t *testing.T) {
	for text, busy := range map[string]bool{
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`:                   true,
		`{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`:                        true,
		`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`: true,
		`{"error":{"code":500,"err_code":10118,"description":"stream is offline"}}`:                        true,
		`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`:     false,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}`:                      false,
		`{}`: false, `x`: false, `{"stream":"","seq":1}`: false,
	} {
		_, err := decodePubAck(&nats.Msg{Data: []byte(text)})
		if err == nil || isBusy(err) != busy {
			t.Errorf("%s: %v, want busy %v", text, err, busy)
		}
		if _, said := errors.AsType[*wire.APIError](err); said != strings.Contains(text, "error") {
			t.Errorf("%s: %v, want what the stream said in it", text, err)
		}
	}
	if seq, err := decodePubAck(&nats.Msg{Data: []byte(`{"stream":"DULY_TASKS","seq":9,"duplicate":true}`)}); err != nil || seq != 9 {
		t.Errorf("%d, %v", seq, err)
	}
}

func FuzzPubAck(f *testing.F) {
	f.Add([]byte(`{"stream":"DULY_TASKS","seq":77}`))
	f.Add([]byte(`{"error":{"code":429,"err_code":10077,"description":"full"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if seq, err := decodePubAck(&nats.Msg{Data: data}); err == nil && seq == 0 {
			t.Fatal("confirmed without a position")
		}
	})
}
