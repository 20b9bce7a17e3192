package supervisor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is when the tests begin.
const epoch = core.Instant(1_700_000_000_000_000)

// world is a store, a control stream and a lease in memory, with owners that
// read when told to.
type world struct {
	mu      sync.Mutex
	rows    []core.Due // in the scan's order
	asked   map[int][]core.Control
	cursors map[int]uint64 // what the owners have read
	offset  uint64         // of positions in the control stream

	holder   string
	until    core.Instant
	ttl      time.Duration
	now      func() core.Instant
	queries  int
	since    core.Instant // of the last query
	limitMax int
	released int

	scanErr, askErr, cursorErr, renewErr error
}

func newWorld(partitions int) *world {
	w := &world{asked: map[int][]core.Control{}, cursors: map[int]uint64{}, ttl: 6 * time.Second}
	for p := range partitions {
		w.cursors[p] = 0
	}
	return w
}

// add makes n tasks of a partition overdue, numbered from first and behind all
// that were added to it before.
func (w *world) add(partition int, first int64, n int) {
	var rows []core.Due
	for i := range int64(n) {
		rows = append(rows, core.Due{Partition: partition, Number: first + i, Bound: w.behind(partition) + core.Instant(1+i)})
	}
	end, _ := slices.BinarySearchFunc(w.rows, core.Due{Partition: partition + 1}, inOrder)
	w.rows = slices.Insert(w.rows, end, rows...)
}

// behind is the last bound of a partition.
func (w *world) behind(partition int) core.Instant {
	end, _ := slices.BinarySearchFunc(w.rows, core.Due{Partition: partition + 1}, inOrder)
	if end > 0 && w.rows[end-1].Partition == partition {
		return w.rows[end-1].Bound
	}
	return epoch.Add(-time.Hour)
}

func inOrder(a, b core.Due) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Bound, b.Bound), cmp.Compare(a.Number, b.Number))
}

func (w *world) Overdue(_ context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries++
	w.since = since
	w.limitMax = max(w.limitMax, limit)
	if w.scanErr != nil {
		return nil, w.scanErr
	}
	var found []core.Due
	from, _ := slices.BinarySearchFunc(w.rows, after, inOrder)
	for _, d := range w.rows[from:] {
		if len(found) == limit {
			break
		}
		if inOrder(d, after) > 0 && d.Bound >= since && d.Bound < now {
			found = append(found, d)
		}
	}
	return found, nil
}

func (w *world) Cursors(context.Context) ([]core.PartitionState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []core.PartitionState
	for p := range len(w.cursors) {
		all = append(all, core.PartitionState{Partition: p, ControlCursor: w.cursors[p]})
	}
	return all, w.cursorErr
}

func (w *world) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.askErr != nil {
		return 0, w.askErr
	}
	w.asked[partition] = append(w.asked[partition], c)
	return w.offset + uint64(len(w.asked[partition])), nil
}

// read lets the owner of a partition act on everything it was asked: what was
// overdue is no longer. It returns how many different tasks that were.
func (w *world) read(partition int) int {
	gone := map[int64]bool{}
	for _, c := range w.asked[partition][w.cursors[partition]:] {
		for _, n := range c.Numbers {
			gone[n] = true
		}
	}
	from, _ := slices.BinarySearchFunc(w.rows, core.Due{Partition: partition}, inOrder)
	to, _ := slices.BinarySearchFunc(w.rows, core.Due{Partition: partition + 1}, inOrder)
	before := len(w.rows)
	kept := slices.DeleteFunc(slices.Clone(w.rows[from:to]), func(d core.Due) bool { return gone[d.Number] })
	w.rows = slices.Replace(w.rows, from, to, kept...)
	w.cursors[partition] = uint64(len(w.asked[partition]))
	return before - len(w.rows)
}

func (w *world) numbers(partition int) []int64 {
	var all []int64
	for _, c := range w.asked[partition] {
		all = append(all, c.Numbers...)
	}
	return all
}

// lease is one supervisor's view of the world's lease.
type lease struct {
	w    *world
	name string
}

func (l lease) Renew(context.Context) (bool, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.renewErr != nil {
		return false, l.w.renewErr
	}
	now := epoch
	if l.w.now != nil {
		now = l.w.now()
	}
	if l.w.holder != "" && l.w.holder != l.name && now < l.w.until {
		return false, nil
	}
	l.w.holder, l.w.until = l.name, now.Add(l.w.ttl)
	return true, nil
}

func (l lease) Release(context.Context) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.released++
	if l.w.holder == l.name {
		l.w.holder = ""
	}
	return nil
}

// always is a lease that everybody holds: what two leaders believe.
type always struct{}

func (always) Renew(context.Context) (bool, error) { return true, nil }
func (always) Release(context.Context) error       { return nil }

func mustTick(t *testing.T, s *Supervisor, now core.Instant) Report {
	t.Helper()
	rep, err := s.Tick(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}
