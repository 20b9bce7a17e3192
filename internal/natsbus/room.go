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
}

// When room is made, in hundredths of a stream's bound.
const (
	roomWanted = 80 // over it goes what every cursor has passed and is older than is to be kept
	roomTight  = 95 // over it goes what is younger, too, until roomWanted is met
)

// MakeRoomTasks removes from the task stream with a number what all its partitions have committed, when
// it is over a share of its bound: what is older than keep, and if that is not enough,
// the oldest of the rest. passed is asked only then. An empty Room: nothing was done.
func (c *Conn) MakeRoomTasks(ctx context.Context, number int, keep time.Duration, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamTasksAt(number), c.names.TasksPattern, keep, passed)
}

// MakeRoomControl does the same with the control stream.
func (c *Conn) MakeRoomControl(ctx context.Context, number int, keep time.Duration, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamControlAt(number), c.names.ControlSubject, keep, passed)
}

func (c *Conn) makeRoom(ctx context.Context, name string, subject func(int) string, keep time.Duration, passed func(context.Context) (Passed, error)) (Room, error) {
	stream, err := c.stream(ctx, name)
	if err != nil {
		return Room{}, fmt.Errorf("room in %s: %w", name, err)
	}
	info := stream.CachedInfo()
	state, bound := &info.State, info.Config.MaxBytes
	if bound <= 0 || state.Msgs == 0 || !over(state.Bytes, bound, roomWanted) {
		return Room{}, nil
	}
	room := Room{Stream: name, Tight: over(state.Bytes, bound, roomTight)}
	kept, err := c.firstSince(ctx, stream, time.Now().Add(-keep))
	if err != nil {
		return room, fmt.Errorf("room in %s: %w", name, err)
	}
	to := kept
	if room.Tight {
		// As many of the oldest as bring it under roomWanted, if they are all alike.
		each := max(1, state.Bytes/state.Msgs)
		to = max(to, state.FirstSeq+(state.Bytes-uint64(bound)/100*roomWanted)/each+1)
	}
	if to = min(to, state.LastSeq+1); to <= state.FirstSeq {
		return room, nil
	}
	all, err := passed(ctx)
	if err != nil {
		return room, fmt.Errorf("room in %s: %w", name, err)
	}
	if all.Stream != streamID(info) {
		return room, nil // cursors of another stream: its owners have not seen yet that this one is new
	}
	for p, cursor := range all.Cursors {
		if cursor > state.LastSeq || !c.isAt(ctx, stream, cursor, all.Stored[p]) {
			return room, nil // it went back, and its owner has not seen that yet
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
			return room, fmt.Errorf("room in %s: partition %d: %w", name, p, err)
		}
		to = min(to, msg.Sequence)
	}
	if to <= state.FirstSeq {
		return room, nil
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return room, fmt.Errorf("room in %s: %w", name, err)
	}
	room.Removed, room.Early = to-state.FirstSeq, to > kept
	if info, err = stream.Info(ctx); err == nil {
		room.Tight = over(info.State.Bytes, bound, roomTight)
	}
	return room, nil
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
