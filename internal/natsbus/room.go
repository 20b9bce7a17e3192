package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
)

// Passed is how far the partitions have come, as committed.
type Passed struct {
	Stream  string               // id of the stream that all the cursors belong to
	Cursors map[int]uint64       // by partition
	Stored  map[int]core.Instant // when the stream took the messages there; 0: not known
}

// Room is what was done about a stream that has little room.
type Room struct {
	Stream  string
	Removed uint64 // messages
	Early   bool   // some of them were younger than is to be kept
	Tight   bool   // it is still nearly full: of what no cursor has passed
	Held    *Held  // what is unread keeps more from being removed
}

// Held is the oldest message of a stream that its partition has not passed.
type Held struct {
	Partition int
	Seq       uint64
	Since     core.Instant // when the stream took it
}

// Keep is how long what every cursor has passed stays in a stream, for a database that is restored.
type Keep struct {
	Full time.Duration // where the stream is over a share of its bound
	Most time.Duration // however much room there is; 0: as long as there is
}

// When room is made, in hundredths of a stream's bound.
const (
	roomWanted = 80 // over it goes what every cursor has passed and is older than is to be kept
	roomTight  = 95 // over it goes what is younger, too, until roomWanted is met

	agedEvery = time.Minute // what is too old goes so often, more often where little is kept
	agedPart  = 16
)

// MakeRoomTasks removes from the task stream with a number what all its partitions have committed: what is older than is
// to be kept, and where it is nearly full and that is not enough, the oldest of the rest. passed is asked only when there
// is such a message.
func (c *Conn) MakeRoomTasks(ctx context.Context, number int, keep Keep, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamTasksAt(number), c.names.TasksPattern, keep, passed)
}

// MakeRoomControl does the same with the control stream.
func (c *Conn) MakeRoomControl(ctx context.Context, number int, keep Keep, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamControlAt(number), c.names.ControlSubject, keep, passed)
}

func (c *Conn) makeRoom(ctx context.Context, name string, subject func(int) string, keep Keep, passed func(context.Context) (Passed, error)) (room Room, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("room in %s: %w", name, err)
		}
	}()
	room.Stream = name
	stream, err := c.stream(ctx, name)
	if err != nil {
		return room, err
	}
	info := stream.CachedInfo()
	state, bound := &info.State, info.Config.MaxBytes
	w, err := c.wanted(ctx, stream, keep)
	if err != nil || w.most <= state.FirstSeq {
		return room, err
	}
	room.Tight = w.tight
	all, err := passed(ctx)
	if err != nil || all.Stream != streamID(info) {
		return room, err // cursors of another stream: its owners have not seen yet that this one is new
	}
	to, err := c.unread(ctx, stream, subject, w.most, &all, &room)
	if to = min(to, w.to); err != nil || to <= state.FirstSeq {
		return room, err
	}
	if err := c.record(ctx, name, streamID(info), func(r removed) removed { return r.found(state, to-1) }); err != nil {
		return room, err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return room, err
	}
	room.Removed, room.Early = to-state.FirstSeq, to > w.kept
	if info, err := stream.Info(ctx); err == nil {
		room.Tight = bound > 0 && over(info.State.Bytes, bound, roomTight)
	}
	return room, nil
}

// want is what is to go from a stream, if it has been passed.
type want struct {
	kept  uint64 // what is before it is older than is to be kept
	to    uint64 // what is before it is to go
	most  uint64 // what is before it should have been passed by now
	tight bool
}

// wanted says what is to go from a stream.
func (c *Conn) wanted(ctx context.Context, stream jetstream.Stream, keep Keep) (w want, err error) {
	info := stream.CachedInfo()
	state, bound := &info.State, info.Config.MaxBytes
	if state.Msgs == 0 {
		return w, nil
	}
	w.kept = state.FirstSeq
	if keep.Most > 0 && time.Since(state.FirstTime) > keep.Most+min(agedEvery, keep.Most/agedPart) {
		if w.kept, err = c.firstSince(ctx, stream, time.Now().Add(-keep.Most)); err != nil {
			return w, err
		}
	}
	w.to, w.most = w.kept, w.kept
	if bound <= 0 || !over(state.Bytes, bound, roomWanted) {
		return w, nil
	}
	kept, err := c.firstSince(ctx, stream, time.Now().Add(-keep.Full))
	if err != nil {
		return w, err
	}
	w.kept = max(w.kept, kept)
	// As many of the oldest as bring it under roomWanted, if they are all alike.
	each := max(1, state.Bytes/state.Msgs)
	under := min(state.FirstSeq+(state.Bytes-uint64(bound)/100*roomWanted)/each+1, state.LastSeq+1)
	w.to, w.tight = w.kept, over(state.Bytes, bound, roomTight)
	w.most = max(w.kept, under)
	if w.tight {
		w.to = w.most
	}
	return w, nil
}

// unread is the position up to which, and not including it, every cursor has passed, or most. It says in room whose
// message is there.
func (c *Conn) unread(ctx context.Context, stream jetstream.Stream, subject func(int) string, most uint64, all *Passed, room *Room) (to uint64, err error) {
	last := stream.CachedInfo().State.LastSeq
	to = most
	for p, cursor := range all.Cursors {
		if cursor > last || !c.isAt(ctx, stream, cursor, all.Stored[p]) {
			return 0, nil // it went back, and its owner has not seen that yet
		}
		if cursor+1 >= to {
			continue
		}
		// The cursor of a partition without messages stands still; what counts is the
		// first message that it has not passed.
		msg, err := stream.GetMsg(ctx, cursor+1, jetstream.WithGetMsgSubject(subject(p)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("partition %d: %w", p, err)
		}
		if msg.Sequence < to {
			to = msg.Sequence
			room.Held = &Held{Partition: p, Seq: to, Since: core.InstantOf(msg.Time)}
		}
	}
	return to, nil
}

// isAt reports whether the message at a cursor is the one that the stream took then. A
// message that cannot be read counts as the same.
func (c *Conn) isAt(ctx context.Context, stream jetstream.Stream, cursor uint64, stored core.Instant) bool {
	if cursor == 0 || stored == 0 || stream.CachedInfo().State.FirstSeq > cursor {
		return true
	}
	msg, err := stream.GetMsg(ctx, cursor)
	return err != nil || core.InstantOf(msg.Time) == stored
}

// over reports whether so many bytes are more than that many hundredths of a bound.
func over(bytes uint64, bound int64, hundredths uint64) bool {
	return bytes > uint64(bound)/100*hundredths
}

// firstSince is the position of the first message stored at that time or later, or the
// one after the last.
func (c *Conn) firstSince(ctx context.Context, stream jetstream.Stream, at time.Time) (uint64, error) {
	state := stream.CachedInfo().State
	if !state.FirstTime.Before(at) {
		return state.FirstSeq, nil
	}
	if state.LastTime.Before(at) {
		return state.LastSeq + 1, nil
	}
	// Its messages have no holes: a message that has gone meanwhile was before the first.
	low, high := state.FirstSeq, state.LastSeq // low is before at, high is not
	for high-low > 1 {
		middle := low + (high-low)/2
		msg, err := stream.GetMsg(ctx, middle)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Time.Before(at):
			low = middle
		case err != nil:
			return 0, fmt.Errorf("message %d: %w", middle, err)
		default:
			high = middle
		}
	}
	return high, nil
}
