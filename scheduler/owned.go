package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// owned holds the partitions of a shard.
type owned struct {
	partitions map[int]*partition
	// ordered caches them by number; reorder says that the cache is out of date.
	ordered []*partition
	reorder bool
}

// put adds a partition.
func (o *owned) put(p *partition) { o.partitions[p.id], o.reorder = p, true }

// remove forgets a partition.
func (o *owned) remove(partition int) {
	delete(o.partitions, partition)
	o.reorder = true
}

// inOrder returns the partitions by number, so that a simulated run can be repeated exactly.
func (o *owned) inOrder() []*partition {
	if len(o.ordered) != len(o.partitions) || o.reorder {
		o.ordered, o.reorder = o.ordered[:0], false
		for _, p := range o.partitions {
			o.ordered = append(o.ordered, p)
		}
		slices.SortFunc(o.ordered, func(a, b *partition) int { return a.id - b.id })
	}
	return o.ordered
}

// inFlight returns a task in flight with its partition. Either may be nil.
func (o *owned) inFlight(partition int, number int64) (*partition, *entry) {
	p := o.partitions[partition]
	if p == nil {
		return nil, nil
	}
	return p, p.tasks[number]
}

// stored returns the task of a committed write. nil: the commit left it out, or the database refused its row
// and the entry holds a replacement in error.
func (o *owned) stored(w *core.TaskWrite) *entry {
	_, e := o.inFlight(w.Task.Partition, w.Task.Number)
	if e != nil && e.task != w.Task {
		return nil
	}
	return e
}

// planOf implements committedPlans: stored is whether the commit took the write; plan is its task's, nil if it is not known.
func (o *owned) planOf(w *core.TaskWrite) (plan *core.Plan, stored bool) {
	e := o.stored(w)
	if e == nil {
		return nil, false
	}
	return e.plan.known(), true
}

// Load returns how many tasks of the partition are in flight, counting endings that are not published yet.
// The reader takes no submission while it is InFlight or more.
func (o *owned) Load(partition int) int {
	p := o.partitions[partition]
	if p == nil {
		return 0
	}
	return len(p.tasks) + int(p.nextEnd-1-p.published.through)
}

// Owns returns the partition's epoch; ok is false if the shard does not hold the partition.
func (o *owned) Owns(partition int) (epoch int64, ok bool) {
	p := o.partitions[partition]
	if p == nil {
		return 0, false
	}
	return p.epoch, true
}

// LastCommit returns the newest commit of a partition that the shard knows of; 0: it does not hold the
// partition.
func (o *owned) LastCommit(partition int) int64 {
	p := o.partitions[partition]
	if p == nil {
		return 0
	}
	return p.last
}

// busy reports whether the partition has tasks in flight, endings that are not
// published, or a cursor that is not committed.
func (o *owned) busy(partition int) bool {
	p := o.partitions[partition]
	return p != nil && (o.Load(partition) > 0 || p.write() != p.saved)
}

// Unsaved reports whether some partition's cursors or publishedThrough have moved since its row was last
// committed.
func (o *owned) Unsaved() bool {
	for _, p := range o.partitions {
		if p.write() != p.saved {
			return true
		}
	}
	return false
}

// issued takes note that a commit wrote these rows: the tasks are stored, and commands may be answered under
// the rows.
func (o *owned) issued(writes []core.TaskWrite, commit int64) {
	for i := range writes {
		w := &writes[i]
		if len(w.Records) == 0 {
			continue
		}
		if _, e := o.inFlight(w.Task.Partition, w.Task.Number); e != nil {
			e.issued(w.Records[0].Seq, commit)
			e.round.stored = true
		}
	}
}

// standing returns the writes of a batch that can still be committed after part of it was refused: without
// the partitions that are fenced, and without children that were taken back together with their parent.
func (o *owned) standing(writes []core.TaskWrite, fenced []int) []core.TaskWrite {
	kept := writes[:0:0]
	for i := range writes {
		w := &writes[i]
		if slices.Contains(fenced, w.Task.Partition) {
			continue
		}
		if w.Birth && w.Task.Parent != 0 {
			if _, e := o.inFlight(w.Task.Partition, w.Task.Number); e == nil {
				continue
			}
		}
		kept = append(kept, *w)
	}
	return kept
}
