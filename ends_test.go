package duly_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// ends reads ends from a position on until one is of the task last, and returns them and where to go on.
func (r *rig) ends(t *testing.T, after uint64, last string) (all []string, position uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for end, err := range r.Ends(ctx, "order", after) {
		if err != nil {
			t.Fatal(err)
		}
		all, position = append(all, end.Task+" "+string(end.State)), end.Position
		if end.Task == last {
			break
		}
	}
	return all, position
}

func (r *rig) js(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A submitter that was away reads what it has missed, and only that, from the position that it kept; one that stops within a
// message reads the message again.
//
// covers: S25
func TestEndsFromThePositionThatWasKept(t *testing.T) {
	r := newRig(t)
	for _, end := range []string{"a processed", "b undone", "c error"} { // each state has a message of its own, in any order
		r.tell(t, end)
	}
	got, position := r.ends(t, 0, "c")
	if !slices.Contains(got, "a processed") || !slices.Contains(got, "b undone") || !slices.Contains(got, "c error") {
		t.Fatalf("from the beginning: %v", got)
	}
	if err := r.conn.PublishRefusals(t.Context(), []core.Status{{ID: "e", Type: "order", Status: core.StatusRefused, Code: 409, Error: "taken", At: 1}}); err != nil {
		t.Fatal(err)
	}
	r.tell(t, "f processed", "g processed")
	if got, _ := r.ends(t, position, "g"); !slices.Equal(got, []string{"e refused", "f processed", "g processed"}) {
		t.Errorf("from the position that was kept: %v", got)
	}
	_, within := r.ends(t, position, "f")
	if got, _ := r.ends(t, within, "g"); !slices.Equal(got, []string{"f processed", "g processed"}) {
		t.Errorf("after a stop within a message: %v", got)
	}
}

// The same with a NATS client and no more, as the page of the protocol says.
//
// covers: S25
func TestEndsWithAPlainClient(t *testing.T) {
	r := newRig(t)
	r.tell(t, "a processed")
	_, position := r.ends(t, 0, "a")
	r.tell(t, "b undone")
	consumer, err := r.js(t).CreateConsumer(t.Context(), "DULY_EVENTS", jetstream.ConsumerConfig{
		FilterSubject: "duly.events.order.*", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1, AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	var event struct{ ID, Status string }
	if err := json.Unmarshal(msg.Data(), &event); err != nil || event.ID != "b" || event.Status != "undone" {
		t.Errorf("%s: %v", msg.Data(), err)
	}
}

// TestEndsOfAStreamThatIsMadeAgain: a reader does not wait for a position that the stream which was made again has not got to:
// it tells that ends were missed, and reads on.
func TestEndsOfAStreamThatIsMadeAgain(t *testing.T) {
	r := newRig(t)
	for _, end := range []string{"a processed", "b undone", "c error"} {
		r.tell(t, end)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, missed := map[string]bool{}, false
	for end, err := range r.Ends(ctx, "order", 0) {
		if errors.Is(err, duly.ErrMissed) && len(seen) == 3 && end.Position == 0 {
			missed = true
			r.tell(t, "d processed")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen[end.Task] = true; end.Task == "d" {
			break
		}
		if len(seen) < 3 {
			continue
		}
		name := wire.Names{}.StreamEvents()
		if err := r.js(t).DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := r.js(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{"duly.events.*.*"}}); err != nil {
			t.Fatal(err)
		}
	}
	if !missed || !seen["d"] {
		t.Errorf("missed %t, seen %v", missed, seen)
	}
}

// What the stream no longer has, or never had, is told, with where the loop goes on.
//
// covers: S25
func TestEndsThatWereMissed(t *testing.T) {
	r := newRig(t)
	stream, err := r.js(t).Stream(t.Context(), wire.Names{}.StreamEvents())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r.tell(t, fmt.Sprintf("t%d undone", i))
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		after  uint64
		missed bool
		ends   int
	}{{0, false, 2}, {2, true, 2}, {3, false, 2}, {4, false, 1}, {1000, true, 2}} {
		missed, seen := false, 0
		for end, err := range r.Ends(t.Context(), "order", x.after) {
			if errors.Is(err, duly.ErrMissed) {
				if missed = true; end.Position != 3 {
					t.Errorf("after %d: it goes on from %d, want 3", x.after, end.Position)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if seen++; end.Task == "t4" {
				break
			}
		}
		if missed != x.missed || seen != x.ends {
			t.Errorf("after %d: missed %v with %d ends, want %v with %d", x.after, missed, seen, x.missed, x.ends)
		}
	}
}

// A loop that took so long that the stream has removed what came next is told so, and goes on with what is there.
//
// covers: S25
func TestEndsMissedInTheLoop(t *testing.T) {
	r := newRig(t)
	stream, err := r.js(t).Stream(t.Context(), wire.Names{}.StreamEvents())
	if err != nil {
		t.Fatal(err)
	}
	const all = 1500 // more than a reader holds
	for i := range 3 {
		r.tell(t, fmt.Sprintf("t%d undone", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, missed := 0, 0
	for end, err := range r.Ends(ctx, "order", 0) {
		if errors.Is(err, duly.ErrMissed) {
			if missed++; end.Position != all-1 {
				t.Errorf("it goes on from %d, want %d", end.Position, all-1)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen++; end.Task == fmt.Sprintf("t%d", all-1) {
			break
		}
		if end.Task != "t1" {
			continue
		}
		for i := 3; i < all; i++ {
			r.tell(t, fmt.Sprintf("t%d undone", i))
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(all)); err != nil {
			t.Fatal(err)
		}
		<-time.After(1100 * time.Millisecond)
	}
	if missed != 1 || seen >= all {
		t.Errorf("missed %d times, with %d ends", missed, seen)
	}
}

// A client without the right to read events is told so, and one that ends its context gets its error.
func TestEndsEnd(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithoutEvents())
	told := 0
	for end, err := range r.Ends(t.Context(), "order", 0) {
		if told++; err == nil {
			t.Errorf("%+v", end)
		}
	}
	r = newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for end, err := range r.Ends(ctx, "order", 0) {
		if told++; !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", end, err)
		}
	}
	if told != 2 {
		t.Errorf("%d errors are told, want one each", told)
	}
}
