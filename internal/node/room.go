package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// roomEvery is how often a look is taken whether the streams have room.
const roomEvery = 5 * time.Second

// keepRoom removes from the streams what every partition has committed when they fill up,
// so that a full stream is full of unfinished work. Every scheduler does it: removing up
// to a position twice is removing once.
func (n *Node) keepRoom(ctx context.Context) {
	early := map[string]bool{} // streams that had to give up what was to be kept
	failing := false
	for pause.For(ctx, roomEvery) == nil {
		if !n.conn.Connected() {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := n.makeRoom(bounded, early)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			n.log.Warn("cannot make room in a stream; trying again", "error", err)
		}
		failing = err != nil
	}
}

func (n *Node) makeRoom(ctx context.Context, early map[string]bool) error {
	for number := range max(1, n.cfg.TaskStreams) {
		for _, s := range []struct {
			make   func(context.Context, int, time.Duration, func(context.Context) (natsbus.Passed, error)) (natsbus.Room, error)
			passed func(states []core.PartitionState, number, streams int) (natsbus.Passed, error)
		}{{n.conn.MakeRoomTasks, tasksPassed}, {n.conn.MakeRoomControl, controlPassed}} {
			room, err := s.make(ctx, number, n.cfg.StreamKeep, func(ctx context.Context) (natsbus.Passed, error) {
				states, err := n.store.Cursors(ctx)
				if err == nil && len(states) != n.cfg.Partitions {
					err = fmt.Errorf("%d of %d partitions have a row", len(states), n.cfg.Partitions)
				}
				if err != nil {
					return natsbus.Passed{}, err
				}
				return s.passed(states, number, n.cfg.TaskStreams)
			})
			if err != nil {
				return err
			}
			n.tellRoom(room, early)
		}
	}
	return nil
}

func (n *Node) tellRoom(room natsbus.Room, early map[string]bool) {
	switch {
	case room.Early && !early[room.Stream]:
		early[room.Stream] = true
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
