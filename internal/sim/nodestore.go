package sim

import (
	"context"
	"errors"
	"time"

	"duly.dev/duly/internal/core"
)

// errFault is what a fault answers.
var errFault = errors.New("fault")

// nodeStore is the state store as a node sees it: a network away, slow at times,
// with answers that get lost. The node may die before and after each call.
type nodeStore struct {
	tables
	n *node
}

// reach is the way to the store.
func (s nodeStore) reach() error {
	w := s.n.w
	s.n.point()
	if w.fault(ReadSlow) {
		w.wait(w.upTo(300 * time.Millisecond))
	}
	if w.unreachable() || w.fault(ReadFails) {
		return errFault
	}
	return nil
}

// read asks the store for something.
func read[T any](s nodeStore, ask func() (T, error)) (T, error) {
	if err := s.reach(); err != nil {
		var none T
		return none, err
	}
	return ask()
}

// Release gives a partition up after its drain.
func (s nodeStore) Release(ctx context.Context, p int, epoch int64) error {
	_, err := read(s, func() (struct{}, error) { return struct{}{}, s.tables.Release(ctx, p, epoch) })
	if err == nil {
		s.n.w.note(Released)
	}
	return err
}

// TakeOver may have happened though the caller hears of a failure.
func (s nodeStore) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	st, err := read(s, func() (core.PartitionState, error) {
		if s.n.w.during(s.n.w.refusing) {
			return core.PartitionState{}, errFault
		}
		return s.tables.TakeOver(ctx, p, c)
	})
	if err == nil && st.Found.WentBack {
		s.n.w.noticed[p] = append(s.n.w.noticed[p], s.n.w.now)
	}
	if err == nil && s.n.w.fault(TakeoverFails) {
		err = errFault
	}
	return st, err
}

func (s nodeStore) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	return read(s, func() ([]core.Saved, error) { return s.tables.LoadNumbers(ctx, as, numbers) })
}

func (s nodeStore) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	return read(s, func() ([]core.Saved, error) { return s.tables.LoadIDs(ctx, as, ids) })
}

func (s nodeStore) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	return read(s, func() ([]core.Saved, error) { return s.tables.LoadActive(ctx, as, after, limit) })
}

func (s nodeStore) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	return read(s, func() ([]int64, error) { return s.tables.Waiting(ctx, as, agent, after, limit) })
}

func (s nodeStore) Untold(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Ending, error) {
	return read(s, func() ([]core.Ending, error) { return s.tables.Untold(ctx, as, after, limit) })
}

func (s nodeStore) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	return read(s, func() ([]core.PartitionState, error) { return s.tables.CursorsOf(ctx, partitions, owner) })
}

// Commit takes its time: the world goes on between the moment it leaves, the
// moment it is decided, and the moment its caller hears of it.
func (s nodeStore) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	w, n := s.n.w, s.n
	n.point()
	s.countCommit(b)
	if w.fault(CommitFails) {
		return core.CommitResult{}, errFault
	}
	for w.during(w.refusing) { // it tries again until the outcome is known
		w.wait(20 * time.Millisecond)
		n.point()
	}
	fenced := s.fenced(b)
	s.travel()
	if s.fenced(b) > fenced {
		w.note(ZombieCommit)
	}
	res, err := w.commit(ctx, b)
	if err == nil && w.fault(CommitAnswerLost) {
		s.travel()
		res, err = w.commit(ctx, b)
	}
	if err == nil && w.fault(TakeoverAtCommit) {
		if o := w.nodes[w.rand.IntN(len(w.nodes))]; o != n {
			o.isolate()
			w.wait(w.upTo(20 * time.Millisecond))
		}
	}
	n.point()
	if err == nil && w.fault(CommitCutOff) {
		return core.CommitResult{}, errFault
	}
	return res, err
}

// commitsMost is more commits than one step of a committer makes: it has an end.
const commitsMost = 2000

func (s nodeStore) countCommit(b *core.Batch) {
	p := s.n.w.running
	if p.commits++; p.commits <= commitsMost {
		return
	}
	id := ""
	if len(b.Writes) > 0 {
		id = b.Writes[0].Task.ID
	}
	s.n.w.wrong(b.Partitions[0].Partition, id, "node %s has committed %d times in one step, and has not come to its end", s.n.name, p.commits)
	p.dead = true
	panic(errKilled)
}

func (s nodeStore) travel() {
	w := s.n.w
	if w.fault(CommitSlow) {
		w.wait(w.upTo(800 * time.Millisecond))
	} else if w.storm {
		w.wait(w.upTo(3 * time.Millisecond))
	}
}

// fenced is how many partitions of the batch are not ours now.
func (s nodeStore) fenced(b *core.Batch) int {
	n := 0
	for i := range b.Partitions {
		if s.MemStore.fenced(&b.Partitions[i], b.ID) {
			n++
		}
	}
	return n
}

// refusedOf says which rows of a task the database cannot hold; 0 or above 5: none.
func (w *World) refusedOf(id string) uint32 { return w.hashOf("row of "+id) % 32 }

// refuseRow is the database that cannot hold what a few tasks bring: the first row of
// some, the second result of others, any row of a third kind; storm or calm.
func (w *World) refuseRow(t *core.TaskWrite) bool {
	if len(t.Records) == 0 { // its bound moves
		return false
	}
	last := &t.Records[len(t.Records)-1]
	switch w.refusedOf(t.Task.ID) {
	case 1, 2:
		if t.Birth && last.Kind == core.KindSubmitted {
			w.note(RowRefused)
			return true
		}
	case 3, 4:
		if last.Kind == core.KindDone && last.Step == 1 {
			w.note(RowRefused)
			w.asks.refused[t.Task.ID] = true
			return true
		}
	case 5:
		w.note(ShapeRefused)
		return t.Birth
	}
	return false
}
