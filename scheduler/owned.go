package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// owned are the partitions that a shard holds.
type owned struct {
	partitions map[int]*partition
	ordered    []*partition // the same by number, as of reorder
	reorder    bool
}

// put takes a partition in.
func (o *owned) put(p *partition) { o.partitions[p.id], o.reorder = p, true }

// remove lets a partition go.
func (o *owned) remove(partition int) {
	delete(o.partitions, partition)
	o.reorder = true
}

// inOrder returns the partitions by number, so that a run can be repeated.
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

// inFlight is a task in flight with its partition; nil: it is not.
func (o *owned) inFlight(partition int, number int64) (*partition, *entry) {
	p := o.partitions[partition]
	if p == nil {
		return nil, nil
	}
	return p, p.tasks[number]
}

// stored is the task of a write; nil: the commit left it out, or the database refused its row, and the task is another one,
// in error.
func (o *owned) stored(w *core.TaskWrite) *entry {
	_, e := o.inFlight(w.Task.Partition, w.Task.Number)
	if e != nil && e.task != w.Task {
		return nil
	}
	return e
}

// planOf is for observers.
func (o *owned) planOf(w *core.TaskWrite) (plan *core.Plan, stored bool) {
	e := o.stored(w)
	if e == nil {
		return nil, false
	}
	return e.plan.known(), true
}

// Load is how many tasks of the partition are in flight, counting endings that
// are not published yet; no submission is read when it reaches InFlight.
func (o *owned) Load(partition int) int {
	p := o.partitions[partition]
	if p == nil {
		return 0
	}
	return len(p.tasks) + int(p.nextEnd-1-p.published.through)
}

// Owns reports whether the shard holds the partition, and its epoch.
func (o *owned) Owns(partition int) (epoch int64, ok bool) {
	p := o.partitions[partition]
	if p == nil {
		return 0, false
	}
	return p.epoch, true
}

// LastCommit is the newest commit of a partition that the shard knows of; 0: it does
// not hold the partition.
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

// Unsaved reports whether a cursor or a publishedThrough waits for a commit.
func (o *owned) Unsaved() bool {
	for _, p := range o.partitions {
		if p.write() != p.saved {
			return true
		}
	}
	return false
}

// issued notes which commit wrote the rows that issue commands, and that the tasks are stored.
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

// standing are the writes of a batch without births that were taken back, and without those of partitions that were let go.
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
