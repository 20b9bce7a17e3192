package natsbus

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire"
)

// TestServerClock: the server's time is within what its answer took.
//
// covers: B9
func TestServerClock(t *testing.T) {
	c := ready(t)
	got, err := c.ServerClock(within(t), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if got.Time.Before(got.Asked.Add(-time.Millisecond)) || got.Time.After(got.Asked.Add(got.Travel+time.Millisecond)) {
		t.Errorf("%+v: the server on this machine has another time", got)
	}
}

// TestHolder: who holds a key, since when, and that it renews it.
//
// covers: A9
func TestHolder(t *testing.T) {
	c := ready(t)
	if h, err := c.Holder(within(t), wire.KeyLeader); h != nil || err != nil {
		t.Fatalf("%+v %v, want no holder", h, err)
	}
	l := newLease(t, c, wire.KeyLeader, "a")
	renew(t, l, true)
	first, err := c.Holder(within(t), wire.KeyLeader)
	if err != nil || first.Value != "a" || time.Since(first.Since).Abs() > time.Minute {
		t.Fatalf("%+v %v", first, err)
	}
	renew(t, l, true)
	if again, err := c.Holder(within(t), wire.KeyLeader); err != nil || again.Revision <= first.Revision || !again.Since.Equal(first.Since) {
		t.Errorf("%+v %v after %+v", again, err, first)
	}
}

// TestEndByBoundsStop: a callback that does not return holds an end up no longer than that may take.
//
// covers: B8
func TestEndByBoundsStop(t *testing.T) {
	c := ready(t)
	release, entered := make(chan struct{}), make(chan struct{})
	defer close(release)
	s, err := c.subscribe("ends.test", "", func(*nats.Msg) {
		close(entered)
		<-release
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nc.Publish("ends.test", nil); err != nil {
		t.Fatal(err)
	}
	<-entered
	c.EndBy(time.Now().Add(100 * time.Millisecond))
	began := time.Now()
	s.Stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Stop took %v", took)
	}
}

// TestTriesAreOneTrouble: one of many that works again is not all of them.
func TestTriesAreOneTrouble(t *testing.T) {
	var last error
	reports := 0
	tr := tries{failed: map[string]map[any]error{}, report: func(_ string, err error) { last = err; reports++ }}
	away := errors.New("away")
	tr.note(TroubleReaders, 1, nil)
	if reports != 0 {
		t.Error("what never failed is reported")
	}
	tr.note(TroubleReaders, 1, away)
	tr.note(TroubleReaders, 2, away)
	if last == nil || last.Error() != "2 of them, for one: away" {
		t.Error(last)
	}
	tr.note(TroubleReaders, 1, nil)
	if !errors.Is(last, away) {
		t.Error(last)
	}
	tr.note(TroubleReaders, 2, nil)
	if last != nil {
		t.Error(last)
	}
}
