package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

func ending(id string, state core.State) core.Ending {
	return core.Ending{Partition: 3, EndNumber: 9, ID: id, Type: "order", State: state, Seq: 12, Step: "charge", Error: "card", CreatedAt: at - 1, At: at}
}

// tell stores endings and waits until the stream has them.
func tell(t *testing.T, c *Conn, endings ...core.Ending) {
	t.Helper()
	done := make(chan error, 1)
	c.PublishEndings(endings, func(err error) { done <- err })
	if err := receive(t, "the stream's word", done); err != nil {
		t.Fatal(err)
	}
}

// readErrors reads until end is called, which waits for it.
func readErrors(t *testing.T, c *Conn, take func(core.Ending) error) (end func()) {
	t.Helper()
	return readErrorsDone(t, c, func(e core.Ending, done func(error)) { done(take(e)) })
}

func readErrorsDone(t *testing.T, c *Conn, take func(e core.Ending, done func(error))) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = c.ReadErrors(ctx, take) })
	return func() {
		cancel()
		if wg.Wait(); err != nil {
			t.Errorf("reading ended with %v", err)
		}
	}
}

// TestReadErrors: what ended in error reaches a reader, also what ended before
// there was a reader; what it does not take comes again; what cannot be decoded is
// skipped; two readers share.
//
// covers: S14
func TestReadErrors(t *testing.T) {
	t.Parallel()
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	tell(t, c, ending("before", core.StateError), ending("fine", core.StateProcessed), ending("back", core.StateUndone))
	if _, err := c.js.Publish(within(t), names.EventSubject("order", "error"), []byte("no event")); err != nil {
		t.Fatal(err)
	}
	got := make(chan core.Ending, 100)
	again := map[string]int{}
	end := readErrors(t, c, func(e core.Ending) error {
		if again[e.ID]++; e.ID == "twice" && again[e.ID] == 1 {
			return errors.New("the pager is down")
		}
		got <- e
		return nil
	})
	if e := receive(t, "what ended before", got); e.ID != "before" || e.State != core.StateError || e.Step != "charge" || e.Error != "card" || e.At != at {
		t.Errorf("%+v", e)
	}
	tell(t, c, ending("twice", core.StateError))
	if e := receive(t, "what was not taken", got); e.ID != "twice" {
		t.Errorf("%+v", e)
	}
	end()
	if again["twice"] != 2 || again["before"] != 1 || again["fine"]+again["back"] != 0 {
		t.Errorf("calls: %v", again)
	}
	tell(t, c, ending("without a reader", core.StateError))
	first, second := make(chan core.Ending, 100), make(chan core.Ending, 100)
	endFirst := readErrors(t, c, func(e core.Ending) error { first <- e; return nil })
	defer endFirst()
	endSecond := readErrors(t, dial(t, server.ClientURL()), func(e core.Ending) error { second <- e; return nil })
	defer endSecond()
	tell(t, c, ending("shared", core.StateError))
	eventually(t, "two endings at two readers", func() bool { return len(first)+len(second) == 2 })
	eventually(t, "that all are taken", func() bool {
		consumer, err := c.js.Consumer(within(t), names.StreamEvents(), wire.ConsumerAlerts)
		if err != nil {
			t.Fatal(err)
		}
		info := consumer.CachedInfo()
		return info.NumAckPending == 0 && info.NumPending == 0
	})
	if len(first)+len(second) != 2 {
		t.Error("an ending came to both")
	}
}

// TestReadErrorsThatAreHeld: a message is acknowledged when all its endings are done with, and not when they were taken.
func TestReadErrorsThatAreHeld(t *testing.T) {
	c := ready(t)
	tell(t, c, ending("one", core.StateError), ending("two", core.StateError))
	dones := make(chan func(error), 10)
	stop := readErrorsDone(t, c, func(_ core.Ending, done func(error)) { dones <- done })
	defer stop()
	one, two := receive(t, "the first", dones), receive(t, "the second", dones)
	open := func() int {
		consumer, err := c.js.Consumer(within(t), names.StreamEvents(), wire.ConsumerAlerts)
		if err != nil {
			t.Fatal(err)
		}
		return consumer.CachedInfo().NumAckPending
	}
	one(nil)
	if err := c.nc.Flush(); err != nil || open() != 1 {
		t.Errorf("%d messages are open, %v", open(), err)
	}
	two(nil)
	eventually(t, "the message is acknowledged", func() bool { return open() == 0 })
}

// TestReadErrorsBesideManyThatAreHeld: a reader that holds many endings to tell them together gets the next ones.
func TestReadErrorsBesideManyThatAreHeld(t *testing.T) {
	c := ready(t)
	many := make([]core.Ending, 1_500)
	for i := range many { // of many types: each is a message of its own
		many[i] = ending("one", core.StateError)
		many[i].Type = fmt.Sprint("order-", i)
	}
	tell(t, c, many...)
	taken := make(chan string, len(many))
	stop := readErrorsDone(t, c, func(e core.Ending, _ func(error)) { taken <- e.Type })
	defer stop()
	for seen := map[string]bool{}; len(seen) < len(many); {
		is := receive(t, "an ending", taken)
		if seen[is] {
			t.Fatalf("%d of %d endings came before one came again", len(seen), len(many))
		}
		seen[is] = true
	}
}

// TestReadErrorsEndsAtOnce: an end while it begins is no error.
func TestReadErrorsEndsAtOnce(t *testing.T) {
	c := ready(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.ReadErrors(ctx, func(core.Ending, func(error)) {}); err != nil {
		t.Error(err)
	}
}

// TestReadErrorsFails: a consumer that is gone is an error, not silence.
func TestReadErrorsFails(t *testing.T) {
	c := ready(t)
	taken, failed := make(chan struct{}, 10), make(chan error, 1)
	go func() {
		failed <- c.ReadErrors(within(t), func(core.Ending, func(error)) { taken <- struct{}{} })
	}()
	tell(t, c, ending("one", core.StateError))
	receive(t, "the first", taken)
	if err := c.js.DeleteConsumer(within(t), names.StreamEvents(), wire.ConsumerAlerts); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "an error", failed); !errors.Is(err, jetstream.ErrConsumerDeleted) || !strings.Contains(err.Error(), wire.ConsumerAlerts) {
		t.Errorf("got %v", err)
	}
	if err := c.js.DeleteStream(within(t), names.StreamEvents()); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadErrors(within(t), func(core.Ending, func(error)) {}); err == nil || !strings.Contains(err.Error(), wire.ConsumerAlerts) {
		t.Errorf("without a stream: %v", err)
	}
}

// TestAlertsAreKept: an alert is stored once however often it is published, and comes until it is done: to the next reader
// as well, also of the time without one. What cannot be decoded is skipped.
func TestAlertsAreKept(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	alert := func(id string) core.Alert {
		return core.Alert{ID: id, Name: "streams", Node: "n1", Phase: core.AlertOnce, Severity: core.SeverityWarning, Text: "text", At: at}
	}
	if _, err := c.js.Publish(within(t), names.AlertSubject("streams"), []byte("no alert")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "a", "b"} {
		if err := c.PublishAlert(within(t), alert(id)); err != nil {
			t.Fatal(err)
		}
	}
	// reads gives what a reader gets, until n have come; those in done are ended.
	reads := func(n int, done ...string) (ids []string) {
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		got := make(chan *AlertMessage, 10)
		ended := make(chan error, 1)
		go func() { ended <- c.ReadAlerts(ctx, 20, func(m *AlertMessage) { got <- m }) }()
		for range n {
			m := receive(t, "an alert", got)
			ids = append(ids, m.Alert.ID)
			if err := m.Working(); err != nil {
				t.Error(err)
			}
			if slices.Contains(done, m.Alert.ID) {
				if err := m.Done(); err != nil {
					t.Error(err)
				}
			}
		}
		cancel()
		if err := receive(t, "the end", ended); err != nil {
			t.Error(err)
		}
		if err := c.nc.Flush(); err != nil {
			t.Error(err)
		}
		return ids
	}
	if ids := reads(2, "a"); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("%q", ids)
	}
	if err := c.PublishAlert(within(t), alert("c")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad one is out of the way", func() bool {
		info, err := c.js.Consumer(within(t), names.StreamAlerts(), wire.ConsumerDelivery)
		return err == nil && info.CachedInfo().NumAckPending <= 1
	})
	if ids := reads(1, "c"); !slices.Equal(ids, []string{"c"}) {
		t.Errorf("%q", ids)
	}
	if info, err := c.js.Stream(within(t), names.StreamAlerts()); err != nil || info.CachedInfo().State.Msgs != 4 || info.CachedInfo().Config.MaxBytes != alertsBytes {
		t.Errorf("%+v, %v", info.CachedInfo(), err)
	}
	// One that another reader did not end comes again after its time.
	consumer, err := c.js.Consumer(within(t), names.StreamAlerts(), wire.ConsumerDelivery)
	if err != nil {
		t.Fatal(err)
	}
	if config := consumer.CachedInfo().Config; config.AckWait != deliveryAckWait || config.MaxDeliver != -1 || config.MaxAckPending != 20 {
		t.Errorf("%+v", config)
	}
	if pending := consumer.CachedInfo().NumAckPending; pending != 1 {
		t.Errorf("%d alerts are not done, want b", pending)
	}
}
