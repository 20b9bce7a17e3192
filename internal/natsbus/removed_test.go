package natsbus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// TestNoAge: what waits to be read, brought on or asked for does not grow too old, and an age that a stream has is taken from it.
//
// covers: L2
func TestNoAge(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	config := StreamConfig{TaskStreams: 2}
	queues := []string{names.StreamTasksAt(0), names.StreamTasksAt(1), names.StreamControlAt(0), names.StreamControlAt(1), names.StreamIn()}
	for _, when := range []string{"made", "changed"} {
		setUp(t, c, config)
		for _, name := range queues {
			stream, err := c.js.Stream(within(t), name)
			if err != nil {
				t.Fatal(err)
			}
			is := stream.CachedInfo().Config
			if is.MaxAge != 0 {
				t.Errorf("%s, %s: age %v", name, when, is.MaxAge)
			}
			is.MaxAge, is.Duplicates = time.Hour, time.Minute
			if _, err := c.js.UpdateStream(within(t), is); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// passAll lets every cursor pass all of a stream, of which what is older than that goes.
func passAll(t *testing.T, c *Conn, most time.Duration) Room {
	t.Helper()
	stream, err := c.stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	all := Passed{Stream: streamID(stream.CachedInfo()), Cursors: map[int]uint64{part: stream.CachedInfo().State.LastSeq}}
	room, err := c.MakeRoomTasks(within(t), 0, Keep{Most: most}, func(context.Context) (Passed, error) { return all, nil })
	if err != nil {
		t.Fatal(err)
	}
	return room
}

// TestLosses: what Duly itself removes is no loss, also for a node that has not seen it, and whatever else removes is,
// until an operator accepts it; what a stream that is new or from a backup holds is none.
//
// covers: L2
func TestLosses(t *testing.T) {
	purge := func(t *testing.T, c *Conn, opts ...jetstream.StreamPurgeOpt) {
		stream, err := c.stream(within(t), names.StreamTasks())
		if err == nil {
			err = stream.Purge(within(t), opts...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again := func(t *testing.T, c *Conn, change func(*jetstream.StreamConfig)) {
		stream, err := c.stream(within(t), names.StreamTasks())
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		change(&config)
		if err := c.js.DeleteStream(within(t), config.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := c.js.CreateStream(within(t), config); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		do   func(t *testing.T, c *Conn)
		lost uint64
	}{
		"nothing":        {func(*testing.T, *Conn) {}, 0},
		"purged by hand": {func(t *testing.T, c *Conn) { purge(t, c) }, 6},
		"its beginning":  {func(t *testing.T, c *Conn) { purge(t, c, jetstream.WithPurgeSequence(8)) }, 3},
		"one in the middle": {func(t *testing.T, c *Conn) {
			s, _ := c.stream(within(t), names.StreamTasks())
			_ = s.DeleteMsg(within(t), 7)
		}, 1},
		"room is made": {func(t *testing.T, c *Conn) { passAll(t, c, time.Nanosecond) }, 0},
		"room after a purge": {func(t *testing.T, c *Conn) {
			purge(t, c, jetstream.WithPurgeSequence(8))
			passAll(t, c, time.Nanosecond)
		}, 3},
		"an empty one": {func(t *testing.T, c *Conn) { again(t, c, func(*jetstream.StreamConfig) {}) }, 0},
		"an empty one of its own": {func(t *testing.T, c *Conn) {
			again(t, c, func(s *jetstream.StreamConfig) { s.Metadata[metaStream] = "other" })
		}, 0},
		"one that begins later": {func(t *testing.T, c *Conn) {
			again(t, c, func(s *jetstream.StreamConfig) { s.Metadata[metaStream], s.FirstSeq = "other", 21 })
		}, 20},
		"one from an older backup": {func(t *testing.T, c *Conn) { again(t, c, func(*jetstream.StreamConfig) {}); publishTasks(t, c, 8) }, 0},
		"its age had removed some": {func(t *testing.T, c *Conn) {
			s, _ := c.stream(within(t), names.StreamTasks())
			config := s.CachedInfo().Config
			config.MaxAge = time.Hour
			if _, err := c.js.UpdateStream(within(t), config); err != nil {
				t.Fatal(err)
			}
			purge(t, c, jetstream.WithPurgeSequence(8)) // stands for the age
			setUp(t, c, StreamConfig{})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t)
			publishTasks(t, c, 4)
			passAll(t, c, time.Nanosecond)
			publishTasks(t, c, 6) // 5 to 10 are there
			c.guardOnce(within(t))
			tt.do(t, c)
			fresh := dial(t, c.nc.ConnectedUrl())
			setUp(t, fresh, StreamConfig{})
			for who, of := range map[string]*Conn{"node": c, "another": fresh} {
				of.guardOnce(within(t))
				of.guardOnce(within(t))
				if all := of.Losses(); len(all) > 1 || (len(all) == 1) != (tt.lost > 0) || len(all) == 1 && (all[0].Messages != tt.lost || all[0].Stream != names.StreamTasks()) {
					t.Errorf("%s: %+v, want %d", who, all, tt.lost)
				}
			}
			if n, err := dial(t, c.nc.ConnectedUrl()).AcceptLoss(within(t), names.StreamTasks()); err != nil || n != tt.lost {
				t.Errorf("accepted %d, %v", n, err)
			}
			for who, of := range map[string]*Conn{"node": c, "another": fresh} {
				if of.guardOnce(within(t)); len(of.Losses()) != 0 {
					t.Errorf("%s: accepted, and %+v", who, of.Losses())
				}
			}
		})
	}
}

// TestFirstIsOfNow: the first message after a cursor is found although Guard has not looked since it came.
func TestFirstIsOfNow(t *testing.T) {
	c := ready(t)
	c.guardOnce(within(t))
	publishTasks(t, c, 1)
	if seq, _, err := c.Unread(within(t), part, false, 0); seq != 0 || err != nil {
		t.Fatalf("Guard has looked: %d, %v", seq, err)
	}
	if seq, at, err := c.First(within(t), part, false, 0); seq != 1 || at == 0 || err != nil {
		t.Errorf("%d of %d, %v", seq, at, err)
	}
	if seq, _, err := c.First(within(t), part, false, 1); seq != 0 || err != nil {
		t.Errorf("after it: %d, %v", seq, err)
	}
}

// TestRemovedSurvivesItsBucket: a node that lives writes again how far was removed; one that begins cannot know, and says so.
//
// covers: L2
func TestRemovedSurvivesItsBucket(t *testing.T) {
	for what, lives := range map[string]bool{"it looks after the streams": true, "it removes more": true, "it is gone": false} {
		c := ready(t)
		publishTasks(t, c, 4)
		passAll(t, c, time.Nanosecond)
		if err := c.js.DeleteStream(within(t), wire.BucketStream(names.BucketPartitions())); err != nil {
			t.Fatal(err)
		}
		setUp(t, c, StreamConfig{})
		publishTasks(t, c, 1)
		switch what {
		case "it removes more":
			passAll(t, c, time.Nanosecond)
		case "it looks after the streams":
			c.guardOnce(within(t))
		}
		fresh := dial(t, c.nc.ConnectedUrl())
		setUp(t, fresh, StreamConfig{})
		fresh.guardOnce(within(t))
		if all := fresh.Losses(); (len(all) == 0) != lives {
			t.Errorf("%s: %+v", what, all)
		}
	}
}

// TestRoomByAge: what every cursor has passed goes when it is too old, however empty the stream is; what is unread stays, and
// its partition is named.
//
// covers: L2
func TestRoomByAge(t *testing.T) {
	c := ready(t)
	publishTasks(t, c, 4)
	if room := passAll(t, c, time.Hour); room.Removed != 0 || room.Held != nil {
		t.Errorf("young: %+v", room)
	}
	stream, err := c.stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	all := Passed{Stream: streamID(stream.CachedInfo()), Cursors: map[int]uint64{part: 2, part + 1: 0}}
	room, err := c.MakeRoomTasks(within(t), 0, Keep{Most: time.Nanosecond}, func(context.Context) (Passed, error) { return all, nil })
	if err != nil || room.Removed != 2 || room.Early || room.Tight || room.Held == nil || room.Held.Partition != part || room.Held.Seq != 3 || room.Held.Since == 0 {
		t.Errorf("%+v, %v", room, err)
	}
	if room := passAll(t, c, time.Nanosecond); room.Removed != 2 || room.Held != nil {
		t.Errorf("%+v", room)
	}
}

// TestRoomNamesWhoHoldsIt: a stream that fills up with what one partition has not read names it before it is full.
//
// covers: L2
func TestRoomNamesWhoHoldsIt(t *testing.T) {
	r := newRoomRig(t, 1, 2)
	r.make(0, byCursor(r, 2*21)...) // down to some 80 %
	for i := 0; !over(r.state().Bytes, 20_000, roomWanted+5); i++ {
		if _, err := r.publish(2, 1000+i); err != nil {
			t.Fatal(err)
		}
	}
	cursors := make([]uint64, defaultPartitions)
	cursors[2] = r.state().LastSeq
	room := r.make(time.Hour, cursors...)
	if room.Held == nil || room.Held.Partition != 1 || room.Tight || room.Removed != 0 {
		t.Errorf("%+v", room)
	}
}

// byCursor are cursors that have all passed a position.
func byCursor(r *roomRig, at uint64) []uint64 {
	cursors := make([]uint64, defaultPartitions)
	for p, end := range r.ends {
		cursors[p] = min(end, at)
	}
	return cursors
}

// TestBegins: how far a task stream reaches back is known while it can be looked at.
//
// covers: L2
func TestBegins(t *testing.T) {
	c := ready(t)
	if _, known := c.Begins(part); known {
		t.Error("known before it was looked at")
	}
	c.guardOnce(within(t))
	if at, known := c.Begins(part); at != 0 || !known {
		t.Errorf("empty: %v, %v", at, known)
	}
	publishTasks(t, c, 1)
	c.guardOnce(within(t))
	if at, known := c.Begins(part); at == 0 || !known {
		t.Errorf("%v, %v", at, known)
	}
	if err := c.js.DeleteStream(within(t), names.StreamTasks()); err != nil {
		t.Fatal(err)
	}
	err := c.inspect(within(t), c.config.Load(), c.config.Load().resources(names)[0])
	if _, known := c.Begins(part); known || err == nil {
		t.Errorf("known of a lost stream: %v", err)
	}
}
