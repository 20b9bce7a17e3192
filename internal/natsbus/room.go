package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
)

// Passed is how far the partitions have committed.
type Passed struct {
	// Stream identifies the stream that all cursors belong to.
	Stream  string
	Cursors map[int]uint64 // by partition
	// Stored is when the stream stored the messages at the cursors; 0: not known.
	Stored map[int]core.Instant
}

// Room is what was removed from a stream, and what kept more from being removed.
type Room struct {
	Stream string
	// Removed counts messages that were removed.
	Removed uint64
	// Early is whether some of the removed messages were younger than they should be kept.
	Early bool
	// Tight is whether the stream is still nearly full, with messages that no cursor has passed.
	Tight bool
	// Held is the unread message that keeps later ones from being removed.
	Held *Held
}

// Held is the oldest message of a stream that its partition has not passed.
type Held struct {
	Partition int
	Seq       uint64
	Since     core.Instant // when the stream took it
}

// Keep is how long messages stay in a stream after every cursor has passed them, for a database that is
// restored from a backup.
type Keep struct {
	// Full applies while the stream is above roomWanted.
	Full time.Duration
	// Most applies however much room there is; 0: no limit.
	Most time.Duration
}

// When messages are removed, in hundredths of a stream's bound.
const (
	roomWanted = 80 // above it what every cursor has passed is removed once it is older than Keep.Full
	roomTight  = 95 // above it younger messages are removed as well, down to roomWanted

	agedEvery = time.Minute // how often messages older than Keep.Most are removed; more often if that is short
	agedPart  = 16
)

// MakeRoomTasks removes from a task stream what all its partitions have committed and is older than it should
// be kept; if the stream is nearly full and that is not enough, also the oldest of the rest. It calls passed,
// which reads the cursors, only if there is something to remove.
func (c *Conn) MakeRoomTasks(ctx context.Context, number int, keep Keep, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamTasksAt(number), c.names.TasksPattern, keep, passed)
}

// MakeRoomControl is MakeRoomTasks for a control stream.
func (c *Conn) MakeRoomControl(ctx context.Context, number int, keep Keep, passed func(context.Context) (Passed, error)) (Room, error) {
	return c.makeRoom(ctx, c.names.StreamControlAt(number), c.names.ControlSubject, keep, passed)
}

// makeRoom removes messages from the stream with that name; subject returns the filter of one partition.
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
	w, err := c.planPurge(ctx, stream, keep)
	if err != nil || w.most <= state.FirstSeq {
		return room, err
	}
	room.Tight = w.tight
	all, err := passed(ctx)
	if err != nil || all.Stream != streamID(info) {
		return room, err // cursors of another stream: its owners have not seen yet that this one is new
	}
	to, err := c.passedUpTo(ctx, stream, subject, w.most, &all, &room)
	if to = min(to, w.to); err != nil || to <= state.FirstSeq {
		return room, err
	}
	if err := c.changeRemoved(ctx, name, streamID(info), func(r removed) removed { return r.observe(state, to-1) }); err != nil {
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

// purgePlan says which messages of a stream should go, provided that every cursor has passed them. Fields are
// positions.
type purgePlan struct {
	// kept: what is before it is older than it should be kept.
	kept uint64
	// to: what is before it should go.
	to uint64
	// most: what is before it should have been passed by now. An unread message before it is reported.
	most uint64
	// tight is whether the stream is above roomTight.
	tight bool
}

// planPurge computes what should go from a stream.
func (c *Conn) planPurge(ctx context.Context, stream jetstream.Stream, keep Keep) (w purgePlan, err error) {
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

// passedUpTo returns the position before which every cursor has passed everything, at most most. It notes in
// room whose unread message is there.
func (c *Conn) passedUpTo(ctx context.Context, stream jetstream.Stream, subject func(int) string, most uint64, all *Passed, room *Room) (to uint64, err error) {
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

// isAt reports whether the message at a cursor is the one that was stored then. One that cannot be read
// counts as the same.
func (c *Conn) isAt(ctx context.Context, stream jetstream.Stream, cursor uint64, stored core.Instant) bool {
	if cursor == 0 || stored == 0 || stream.CachedInfo().State.FirstSeq > cursor {
		return true
	}
	msg, err := stream.GetMsg(ctx, cursor)
	return err != nil || core.InstantOf(msg.Time) == stored
}

// over reports whether bytes are more than hundredths/100 of a bound.
func over(bytes uint64, bound int64, hundredths uint64) bool {
	return bytes > uint64(bound)/100*hundredths
}

// firstSince returns the position of the first message stored at that time or later, or one after the last.
// It searches by bisection.
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
