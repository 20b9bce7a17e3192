package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestFollowEvents: events of a type and a status come in order, those of one message each with a place of its own; who
// comes again after a place has all that follows, once; a place that is not there is told.
func TestFollowEvents(t *testing.T) {
	c := ready(t)
	tell(t, c, ending("a", core.StateUndone), ending("b", core.StateUndone), ending("c", core.StateUndone))
	tell(t, c, ending("d", core.StateError))
	if _, err := c.js.Publish(within(t), names.EventSubject("order", "undone"), []byte("no event")); err != nil {
		t.Fatal(err)
	}
	tell(t, c, ending("e", core.StateUndone))
	enough := errors.New("enough")
	follow := func(taskType string, status core.State, after EventPlace, last string) (ids []string, places []EventPlace) {
		t.Helper()
		err := c.FollowEvents(within(t), taskType, status, after, func(at EventPlace, e core.Ending) error {
			ids, places = append(ids, e.ID), append(places, at)
			if e.ID == last {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatalf("after %v: %v %v", after, ids, err)
		}
		return ids, places
	}
	for _, x := range []struct {
		after EventPlace
		want  []string
	}{
		{EventPlace{1, -1}, []string{"a", "b", "c", "d", "e"}}, {EventPlace{1, 0}, []string{"b", "c", "d", "e"}}, {EventPlace{1, 2}, []string{"d", "e"}}, {EventPlace{2, 0}, []string{"e"}},
	} {
		if ids, _ := follow("", "", x.after, "e"); !slices.Equal(ids, x.want) {
			t.Errorf("after %v: %v, want %v", x.after, ids, x.want)
		}
	}
	ids, places := follow("order", core.StateUndone, EventPlace{1, -1}, "e")
	if !slices.Equal(ids, []string{"a", "b", "c", "e"}) || places[1] != (EventPlace{1, 1}) || places[3].Seq != 4 {
		t.Errorf("%v at %v", ids, places)
	}
	for _, gone := range []EventPlace{{99, 0}} {
		if err := c.FollowEvents(within(t), "", "", gone, nil); !errors.Is(err, ErrGone) {
			t.Errorf("after %v: %v", gone, err)
		}
	}
}

// TestFollowEventsFromNow: without a place only what is new comes, until the reader ends.
func TestFollowEventsFromNow(t *testing.T) {
	c := ready(t)
	tell(t, c, ending("old", core.StateError))
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.FollowEvents(ctx, "", "", EventPlace{}, func(_ EventPlace, e core.Ending) error {
			got <- e.ID
			return nil
		})
	}()
	// When the reader has begun is not told: an ending is told again until one comes.
	n := 0
	eventually(t, "a new event", func() bool {
		n++
		tell(t, c, ending(fmt.Sprint("new-", n), core.StateError))
		return len(got) > 0
	})
	if first := <-got; first == "old" {
		t.Error("what was before came")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestFollowEventsOfABusyStream: nor does one read on from its position in a stream that was made again and has grown past it,
// as if it had read what came before.
func TestFollowEventsOfABusyStream(t *testing.T) {
	t.Parallel()
	c := ready(t)
	tell(t, c, ending("a", core.StateUndone))
	busy, quit := make(chan error, 1), make(chan struct{})
	remake := func() error {
		if err := c.js.DeleteStream(within(t), names.StreamEvents()); err != nil {
			return err
		}
		if _, err := c.Setup(within(t), *c.config.Load()); err != nil {
			return err
		}
		for n := 0; ; n++ {
			done := make(chan error, 1)
			c.PublishEndings([]core.Ending{ending(fmt.Sprint("new-", n), core.StateError)}, func(err error) { done <- err })
			if err := <-done; err != nil {
				return err
			}
			if n < 5 {
				continue
			}
			select {
			case <-quit:
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := c.FollowEvents(ctx, "", "", EventPlace{1, -1}, func(_ EventPlace, e core.Ending) error {
		if e.ID == "a" {
			go func() { busy <- remake() }()
		}
		return nil
	})
	if !errors.Is(err, errOtherStream) {
		t.Errorf("it ends with %v, want %v", err, errOtherStream)
	}
	close(quit)
	if err := <-busy; err != nil {
		t.Error(err)
	}
}

// TestFollowEventsOfAnotherStream: a reader does not wait for its position in a stream that was made again.
func TestFollowEventsOfAnotherStream(t *testing.T) {
	t.Parallel()
	c := ready(t)
	tell(t, c, ending("a", core.StateUndone))
	tell(t, c, ending("b", core.StateError))
	seen := 0
	err := c.FollowEvents(within(t), "", "", EventPlace{1, -1}, func(EventPlace, core.Ending) error {
		if seen++; seen < 2 {
			return nil
		}
		if err := c.js.DeleteStream(within(t), names.StreamEvents()); err != nil {
			return err
		}
		_, err := c.Setup(within(t), *c.config.Load())
		return err
	})
	if !errors.Is(err, errOtherStream) || seen != 2 {
		t.Errorf("after %d events: %v", seen, err)
	}
}
