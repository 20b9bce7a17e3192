package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// roomEvery is how often a look is taken whether the streams have room, and hold what is too old.
const roomEvery = 5 * time.Second

// defaultMaxAge is how long what was read stays in the streams unless it is configured.
const defaultMaxAge = 24 * time.Hour

// The conditions of the task and control streams.
const (
	condStreamHeld = "stream-held"
	condStreamLoss = "stream-loss"
)

// roomConditions are what is told of what streams hold and lack.
func (n *Node) roomConditions() []ground.Condition {
	return []ground.Condition{{
		Name: condStreamHeld, Shared: true,
	}, {
		Name: condStreamLoss, Shared: true, Grace: ground.AtOnce, Each: func(context.Context) []ground.Found { return n.losses() },
	}}
}

// acceptLoss ends the alert about what a stream lacks.
func (n *Node) acceptLoss(ctx context.Context, stream string) (messages uint64, err error) {
	messages, err = n.conn.AcceptLoss(ctx, stream)
	if errors.Is(err, natsbus.ErrNoStream) {
		err = fmt.Errorf("%w: %w", core.ErrNotFound, err)
	}
	return messages, err
}

func (n *Node) losses() (all []ground.Found) {
	for _, l := range n.conn.Losses() {
		all = append(all, ground.Found{Key: l.Stream, Since: l.Since, Err: errors.New(say.Of("alert.loss", "n", l.Messages, "stream", l.Stream))})
	}
	return all
}

// roomKeeper removes from the streams what every partition has committed when it is old or they fill up, so that a full
// stream is full of unfinished work.
type roomKeeper struct {
	n     *Node
	early map[string]bool // streams that had to give up what was to be kept
}

// keepRoom makes room until ctx ends. Every scheduler does it: removing up to a position twice is removing once.
func (n *Node) keepRoom(ctx context.Context) {
	k := roomKeeper{n: n, early: map[string]bool{}}
	keep := natsbus.Keep{Full: n.cfg.StreamKeep, Most: cmp.Or(n.cfg.StreamMaxAge, defaultMaxAge)}
	failing := false
	for pause.For(ctx, roomEvery) == nil {
		if !n.conn.Connected() {
			continue
		}
		err := k.makeRoom(ctx, keep)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			n.log.Warn("cannot make room in a stream; trying again", "error", err)
		}
		failing = err != nil
	}
}

// makeRoom looks at every stream.
func (k *roomKeeper) makeRoom(ctx context.Context, keep natsbus.Keep) error {
	n := k.n
	return inEach(ctx, n.cfg.TaskStreams, func(ctx context.Context, number int) error {
		return k.makeRoomIn(ctx, number, keep, n.conn.MakeRoomTasks, tasksPassed)
	}, func(ctx context.Context, number int) error {
		return k.makeRoomIn(ctx, number, keep, n.conn.MakeRoomControl, controlPassed)
	})
}

// inEach makes room in the streams with each number. What keeps one from having room, or takes long, keeps no other from it.
func inEach(ctx context.Context, streams int, makes ...func(ctx context.Context, number int) error) (failed error) {
	for number := range max(1, streams) {
		for _, one := range makes {
			bounded, cancel := context.WithTimeout(ctx, readTimeout)
			failed = errors.Join(failed, one(bounded, number))
			cancel()
		}
	}
	return failed
}

// makeRoomIn makes room in one of the streams with a number.
func (k *roomKeeper) makeRoomIn(ctx context.Context, number int, keep natsbus.Keep, makes func(context.Context, int, natsbus.Keep, func(context.Context) (natsbus.Passed, error)) (natsbus.Room, error),
	passed func(states []core.PartitionState, number, streams int) (natsbus.Passed, error),
) error {
	n := k.n
	room, err := makes(ctx, number, keep, func(ctx context.Context) (natsbus.Passed, error) {
		states, err := n.store.Cursors(ctx)
		if err == nil && len(states) != n.cfg.Partitions {
			err = fmt.Errorf("%d of %d partitions have a row", len(states), n.cfg.Partitions)
		}
		if err != nil {
			return natsbus.Passed{}, err
		}
		return passed(states, number, n.cfg.TaskStreams)
	})
	if err != nil {
		return err
	}
	n.reporters[condStreamHeld].Found(ground.Found{Key: room.Stream, Err: heldBy(&room)})
	k.tell(room)
	return nil
}

// heldBy is the error that names what keeps room from being made; nil: nothing does.
func heldBy(room *natsbus.Room) error {
	h := room.Held
	if h == nil {
		return nil
	}
	return fmt.Errorf("%s: partition %d has not read message %d, of %s", room.Stream, h.Partition, h.Seq, text(h.Since))
}

func (k *roomKeeper) tell(room natsbus.Room) {
	switch n := k.n; {
	case room.Early && !k.early[room.Stream]:
		k.early[room.Stream] = true
		n.log.Warn("a stream is nearly full of finished work: what is younger than stream-keep is removed, too, and cannot be read again after a restore of the database",
			"stream", room.Stream, "stream_keep", n.cfg.StreamKeep, "removed", room.Removed)
	case room.Removed > 0:
		n.log.Debug("room is made in a stream", "stream", room.Stream, "removed", room.Removed)
	}
}

// tasksPassed are the cursors of the task stream with a number, of so many.
func tasksPassed(states []core.PartitionState, number, streams int) (natsbus.Passed, error) {
	return passed(states, number, streams, 0, func(st *core.PartitionState) (uint64, core.Instant) { return st.Cursor, st.CursorStored })
}

// controlPassed are those of the control stream beside it.
func controlPassed(states []core.PartitionState, number, streams int) (natsbus.Passed, error) {
	return passed(states, number, streams, 1, func(st *core.PartitionState) (uint64, core.Instant) { return st.ControlCursor, st.ControlStored })
}

// passed gathers the cursors of the partitions that a stream has. The error says that they
// do not belong to one stream, as while some partitions have not been taken over since it was
// made again.
func passed(states []core.PartitionState, number, streams, part int, cursor func(*core.PartitionState) (uint64, core.Instant)) (natsbus.Passed, error) {
	all := natsbus.Passed{Cursors: map[int]uint64{}, Stored: map[int]core.Instant{}}
	for i := range states {
		st := &states[i]
		if wire.TaskStreamOf(st.Partition, streams) != number {
			continue
		}
		id := ""
		if names := strings.Split(st.Stream, "/"); part < len(names) {
			id = names[part]
		}
		if len(all.Cursors) == 0 {
			all.Stream = id
		}
		if id != all.Stream || st.Partition < 0 || st.Partition >= len(states) {
			return natsbus.Passed{}, fmt.Errorf("partition %d of stream %q, others of %q", st.Partition, id, all.Stream)
		}
		all.Cursors[st.Partition], all.Stored[st.Partition] = cursor(st)
	}
	return all, nil
}
