package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
)

// condUnread is the condition that what waits in the streams is read.
const condUnread = "unread"

// When what waits in a stream is a trouble, and how it is found.
const (
	unreadAfter = 30 * time.Second
	unreadEvery = 5 * time.Second
	unreadMost  = 64 // partitions that are asked about at a look
)

// unreadCondition is what is told of streams that are not read.
func (n *Node) unreadCondition() ground.Condition {
	w := &unreadWatch{owner: n.owning, cursors: func(ctx context.Context, partitions []int) ([]core.PartitionState, error) {
		for _, t := range n.ground.Troubles() {
			if t.Name == condDatabase || t.Name == condCommits {
				return nil, t.Reason // what is committed nowhere is read nowhere
			}
		}
		return n.store.CursorsOf(ctx, partitions, "")
	}, first: func(ctx context.Context, p int, control bool, cursor uint64) (uint64, core.Instant, error) {
		return n.conn.Unread(ctx, p, control, cursor)
	}, oldestIn: func() core.Instant { return n.conn.OldestIn() }, now: n.clock.instant}
	return ground.Condition{
		Name: condUnread, Grace: ground.AtOnce, Every: unreadEvery, Timeout: readTimeout, Each: w.look,
	}
}

// unreadWatch looks whether the streams of the partitions held here are read, whatever keeps them from it. Only one
// goroutine uses it.
type unreadWatch struct {
	owner    func() owner
	cursors  func(ctx context.Context, partitions []int) ([]core.PartitionState, error)
	first    func(ctx context.Context, partition int, control bool, cursor uint64) (seq uint64, at core.Instant, err error)
	oldestIn func() core.Instant
	now      func() core.Instant

	stand map[lane]*behind
}

// lane is a partition of the task streams, or of the control streams.
type lane struct {
	partition int
	control   bool
}

// behind is a cursor and since when it stands there.
type behind struct {
	lane
	cursor uint64
	epoch  int64
	since  core.Instant
	asked  core.Instant
	found  *ground.Found // as of the last time that it was asked; nil: nothing waited
}

// look is one look.
func (w *unreadWatch) look(ctx context.Context) (all []ground.Found) {
	own := w.owner()
	if own == nil {
		w.stand = nil
		return nil
	}
	now, snap := w.now(), own.Snapshot()
	if at := w.oldestIn(); at != 0 && now.Sub(at) > unreadAfter {
		all = append(all, ground.Found{Key: "in", Since: at.Time(), Err: fmt.Errorf("the stream endpoint: a message of %s is not brought to its partition", text(at))})
	}
	states, err := w.cursors(ctx, snap.Owned)
	if err != nil { // the database is another condition; when it is well again, what waited meanwhile has its time
		w.stand = nil
		return all
	}
	w.follow(states, snap.Owned, now)
	var stand []*behind
	for _, s := range w.stand {
		if now.Sub(s.since) <= unreadAfter || s.control && own.Waits(s.partition) || !s.control && own.Full(s.partition) && snap.InFlight > 0 {
			s.found = nil
			continue
		}
		stand = append(stand, s)
	}
	slices.SortFunc(stand, func(a, b *behind) int {
		return cmp.Or(cmp.Compare(a.asked, b.asked), cmp.Compare(a.partition, b.partition))
	})
	for i, s := range stand {
		if i < unreadMost {
			w.ask(ctx, s, now)
		}
		if s.found != nil {
			all = append(all, *s.found)
		}
	}
	return all
}

// follow takes in where the cursors of the partitions held here are.
func (w *unreadWatch) follow(states []core.PartitionState, owned []int, now core.Instant) {
	was := w.stand
	w.stand = map[lane]*behind{}
	for i := range states {
		st := &states[i]
		if !slices.Contains(owned, st.Partition) {
			continue
		}
		for _, is := range []behind{{lane: lane{st.Partition, false}, cursor: st.Cursor}, {lane: lane{st.Partition, true}, cursor: st.ControlCursor}} {
			is.epoch, is.since = st.Epoch, now
			if had := was[is.lane]; had != nil && had.cursor == is.cursor && had.epoch == is.epoch {
				is = *had
				is.since = min(is.since, now) // the clock may have been set back
			}
			w.stand[is.lane] = &is
		}
	}
}

// ask asks what waits behind a cursor that stands still.
func (w *unreadWatch) ask(ctx context.Context, s *behind, now core.Instant) {
	seq, at, err := w.first(ctx, s.partition, s.control, s.cursor)
	if err != nil {
		return // that the stream cannot be asked is another condition
	}
	s.asked, s.found = now, nil
	if seq == 0 || now.Sub(at) <= unreadAfter {
		return
	}
	key, what := fmt.Sprintf("partition %d", s.partition), "submission"
	if s.control {
		key, what = key+" control", "control message"
	}
	s.found = &ground.Found{Key: key, Since: max(at, s.since).Time(), Err: fmt.Errorf("partition %d: %s %d, of %s, is not read", s.partition, what, seq, text(at))}
}

func text(at core.Instant) string { return at.Time().UTC().Format(time.RFC3339) }
