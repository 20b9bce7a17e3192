package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

// roomRig is a task stream of 20,000 bytes, filled until it refuses.
type roomRig struct {
	t    *testing.T
	c    *Conn
	id   string
	ends []uint64 // the last position of each partition
}

func newRoomRig(t *testing.T, parts ...int) *roomRig {
	t.Helper()
	r := &roomRig{t: t, c: dial(t, serve(t, natsserver.Options{}).ClientURL()), ends: make([]uint64, defaultPartitions)}
	setUp(t, r.c, StreamConfig{MaxBytes: 20_000})
	id, err := r.c.Identity(within(t))
	if err != nil {
		t.Fatal(err)
	}
	r.id, _, _ = strings.Cut(id, "/")
	for i := 0; ; i++ {
		p := parts[i%len(parts)]
		seq, err := r.publish(p, i)
		if err != nil {
			return r
		}
		r.ends[p] = seq
	}
}

func (r *roomRig) publish(p, i int) (uint64, error) {
	type outcome struct {
		seq uint64
		err error
	}
	got := make(chan outcome, 1)
	r.c.PublishPack(p, []core.Submission{{Type: "order", ID: fmt.Sprintf("t%d", i), Input: []byte(`"` + strings.Repeat("x", 100) + `"`), At: at}},
		func(seq uint64, err error) { got <- outcome{seq, err} })
	o := receive(r.t, "an answer", got)
	return o.seq, o.err
}

func (r *roomRig) make(full time.Duration, cursors ...uint64) Room {
	r.t.Helper()
	room, err := r.c.MakeRoomTasks(within(r.t), 0, Keep{Full: full}, func(context.Context) (Passed, error) { return Passed{Stream: r.id, Cursors: byPartition(cursors)}, nil })
	if err != nil {
		r.t.Fatal(err)
	}
	return room
}

func (r *roomRig) state() jetstream.StreamState {
	r.t.Helper()
	stream, err := r.c.js.Stream(within(r.t), names.StreamTasks())
	if err != nil {
		r.t.Fatal(err)
	}
	return stream.CachedInfo().State
}

// TestRoom: from a stream that fills up goes what every partition has committed, and
// nothing else; a partition without messages does not hold it.
//
// covers: B4
func TestRoom(t *testing.T) {
	r := newRoomRig(t, 1, 2)
	all := r.state().LastSeq
	cursors := make([]uint64, defaultPartitions) // of the others: 0, without a message
	// Partition 2 has committed all, partition 1 one message.
	cursors[1], cursors[2] = 1, r.ends[2]
	if room := r.make(0, cursors...); room.Removed != 2 || !room.Tight { // 1 and 2; 3 is of partition 1
		t.Errorf("%+v, %+v", room, r.state())
	}
	if s := r.state(); s.FirstSeq != 3 || s.LastSeq != all {
		t.Errorf("%+v", s)
	}
	cursors[1] = 41
	if room := r.make(0, cursors...); room.Removed != 40 || room.Early {
		t.Errorf("%+v, %+v", room, r.state())
	}
	if s := r.state(); s.FirstSeq != 43 {
		t.Errorf("%+v", s)
	}
	if _, err := r.publish(1, 1000); err != nil {
		t.Error(err)
	}
	// Under the share nothing is asked and nothing goes.
	if room, err := r.c.MakeRoomTasks(within(t), 0, Keep{}, func(context.Context) (Passed, error) { return Passed{}, errors.New("asked") }); err != nil || room.Removed != 0 {
		t.Errorf("%+v, %v", room, err)
	}
}

// TestRoomOfAStreamThatWentBack: cursors of before a stream went back pass nothing of what it
// holds now.
//
// covers: A6, inv1
func TestRoomOfAStreamThatWentBack(t *testing.T) {
	r := newRoomRig(t, 1)
	cursors, stored := make([]uint64, defaultPartitions), make([]core.Instant, defaultPartitions)
	stream, err := r.c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(within(t), 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cursor  uint64
		stored  core.Instant
		removed uint64
	}{
		{r.ends[1] + 1, 0, 0}, {20, core.InstantOf(msg.Time) + 1, 0}, {20, core.InstantOf(msg.Time), 20},
	} {
		cursors[1], stored[1] = tt.cursor, tt.stored
		room, err := r.c.MakeRoomTasks(within(t), 0, Keep{}, func(context.Context) (Passed, error) {
			return Passed{Stream: r.id, Cursors: byPartition(cursors), Stored: byPartition(stored)}, nil
		})
		if err != nil || room.Removed != tt.removed {
			t.Errorf("cursor %d, stored %d: %+v, %v, want %d removed", tt.cursor, tt.stored, room, err, tt.removed)
		}
	}
}

// TestRoomKeeps: what is younger than is to be kept goes only while the stream is nearly
// full, the oldest first and no more than needed.
//
// covers: B4
func TestRoomKeeps(t *testing.T) {
	r := newRoomRig(t, 1)
	cursors := make([]uint64, defaultPartitions)
	cursors[1] = r.ends[1]
	before := r.state()
	room := r.make(time.Hour, cursors...)
	if after := r.state(); !room.Early || room.Tight || over(after.Bytes, 20_000, roomWanted) || !over(after.Bytes, 20_000, roomWanted-5) || before.FirstSeq != 1 {
		t.Errorf("%+v, %+v", room, after)
	}
	for i := 0; !over(r.state().Bytes, 20_000, roomWanted+5); i++ {
		if _, err := r.publish(1, 1000+i); err != nil {
			t.Fatal(err)
		}
	}
	if room := r.make(time.Hour, cursors...); room.Removed != 0 || room.Early {
		t.Errorf("not nearly full: %+v", room)
	}
	if room := r.make(0, cursors...); room.Removed == 0 || room.Early {
		t.Errorf("nothing is to be kept: %+v", room)
	}
}

// TestRoomFindsTheAge: the first message since a time is found among many.
func TestRoomFindsTheAge(t *testing.T) {
	r := newRoomRig(t, 1)
	stream, err := r.c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	last := r.state().LastSeq
	for seq := uint64(1); seq <= last; seq += 7 {
		msg, err := stream.GetMsg(within(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := r.c.firstSince(within(t), stream, msg.Time); found != seq || err != nil {
			t.Errorf("%d, %v, want %d", found, err, seq)
		}
		if found, err := r.c.firstSince(within(t), stream, msg.Time.Add(1)); found != seq+1 || err != nil {
			t.Errorf("%d, %v, want %d", found, err, seq+1)
		}
	}
}

// TestRoomOfAnotherStream: cursors of a stream that was lost say nothing about this one.
func TestRoomOfAnotherStream(t *testing.T) {
	r := newRoomRig(t, 1)
	r.id = "another"
	cursors := make([]uint64, defaultPartitions)
	cursors[1] = r.ends[1]
	if room := r.make(0, cursors...); room.Removed != 0 || !room.Tight {
		t.Errorf("%+v", room)
	}
	if _, err := r.c.MakeRoomTasks(within(t), 0, Keep{}, func(context.Context) (Passed, error) { return Passed{}, errors.New("no database") }); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("%v", err)
	}
}

// byPartition is what stands at each partition's place.
func byPartition[T any](all []T) map[int]T {
	m := map[int]T{}
	for p, v := range all {
		m[p] = v
	}
	return m
}
