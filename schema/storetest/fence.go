package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"duly.dev/duly/internal/core"
)

func testStaleEpoch(r *rig) {
	old := birth(1, 1, "old")
	r.write(old)
	b := r.batch(birth(1, 2, "a"), ended(old.Task, core.StateProcessed, 1), birth(2, 1, "b"))
	b.Partitions = append(b.Partitions, r.partition(3))
	b.Partitions[0].Cursor, b.Partitions[1].Cursor, b.Partitions[2].Cursor = 7, 7, 7
	for _, p := range []int{1, 3} { // the epoch alone tells them apart
		get(r.s.TakeOver(r.ctx, p, core.Claim{Owner: "successor", Commit: r.own[p].LastCommit}))(r)
	}
	r.result(b, core.CommitResult{Fenced: []int{1, 3}})
	r.comesBack(old.Task, old.Records)
	r.nothing(1, 2)
	if r.load(2, 1) == nil {
		r.Error("the partition that is still ours was left out")
	}
	for p, want := range map[int]uint64{1: 0, 2: 7, 3: 0} {
		if got := get(r.s.Cursors(r.ctx))(r)[p].Cursor; got != want {
			r.Errorf("cursor of partition %d is %d, want %d", p, got, want)
		}
	}
	b.ID, b.Partitions[1].Epoch = b.ID+1, b.Partitions[1].Epoch+1 // not begun yet: not ours either
	r.result(b, core.CommitResult{Fenced: []int{1, 2, 3}})
}

// A database that went back has the owner's epoch, and not its last commit: the
// partition is left out. The same batch again finds itself.
func testStaleCommit(r *rig) {
	r.takeOver(1)
	r.takeOver(2)
	b := r.batch(birth(1, 1, "a"), birth(2, 1, "b"))
	b.Partitions[0].After++ // a commit that the database does not have
	b.Partitions[0].Cursor, b.Partitions[1].Cursor = 7, 7
	r.result(b, core.CommitResult{Fenced: []int{1}})
	r.nothing(1, 1)
	for p, want := range map[int]core.PartitionState{1: *r.own[1], 2: {Cursor: 7, LastCommit: b.ID}} {
		if got := get(r.s.Cursors(r.ctx))(r)[p]; got.Cursor != want.Cursor || got.LastCommit != want.LastCommit {
			r.Errorf("partition %d has cursor %d and commit %d, want %d and %d", p, got.Cursor, got.LastCommit, want.Cursor, want.LastCommit)
		}
	}
	again := r.batch(birth(2, 2, "c"))
	r.taken(again)
	r.taken(again) // its answer was lost: the row's last commit is its own
	later := r.batch(birth(2, 3, "d"))
	r.taken(later)
	r.result(again, core.CommitResult{Fenced: []int{2}}) // another came between
}

// A birth in a partition that is no longer ours is fenced, not a duplicate, even
// where its id is taken.
func testStaleEpochAndTakenID(r *rig) {
	r.write(birth(1, 1, "a"), birth(2, 1, "b"))
	b := r.batch(birth(1, 2, "a"), birth(2, 2, "b"))
	get(r.s.TakeOver(r.ctx, 1, core.Claim{Owner: "successor"}))(r)
	r.result(b, core.CommitResult{
		Fenced:     []int{1},
		Duplicates: []core.Duplicate{{Partition: 2, Number: 2, Existing: existing(birth(2, 1, "b"))}},
	})
}

// Two owners by turns: what the first still has in hand is left out.
func testOwnersByTurns(r *rig) {
	zombie := r.takeOver(1)
	inHand := core.Batch{ID: 1001, Node: "zombie", Partitions: []core.PartitionWrite{r.partition(1)}, Writes: births(1, 3)}
	inHand.Partitions[0].NextNumber = 4
	if zombie.NextNumber != 1 {
		r.Fatalf("next number %d", zombie.NextNumber)
	}
	r.takeOver(1)
	b := r.batch(birth(1, 1, "successor's"))
	b.Partitions[0].NextNumber = 2
	r.taken(b)
	r.result(&inHand, core.CommitResult{Fenced: []int{1}})
	r.taken(b)
	st := r.takeOver(1)
	if st.NextNumber != 2 || st.Epoch != 3 {
		r.Errorf("next number %d and epoch %d, want 2 and 3", st.NextNumber, st.Epoch)
	}
}

// Owners that take one partition from each other all the time never overwrite
// each other: each commit moves the cursor by what it wrote, on top of what its
// takeover found.
func testOwnersAtOnce(r *rig) {
	const owners, rounds = 4, 12
	var wg sync.WaitGroup
	errs := make([]error, owners)
	for o := range owners {
		wg.Go(func() { errs[o] = r.contend(o, rounds) })
	}
	wg.Wait()
	r.must(errors.Join(errs...))
	st := get(r.s.TakeOver(r.ctx, 0, core.Claim{Owner: "auditor"}))(r)
	saved := get(r.s.LoadActive(r.ctx, core.AsOf{Partition: 0}, 0, 100_000))(r)
	if len(saved) == 0 || int64(len(saved)) != st.NextNumber-1 || st.Cursor != uint64(len(saved)) {
		r.Fatalf("%d tasks, next number %d, cursor %d", len(saved), st.NextNumber, st.Cursor)
	}
	for i := range saved {
		if s := &saved[i]; s.Row.Number != int64(i+1) || len(s.Journal) != 1 {
			r.Fatalf("task number %d at place %d with %d journal rows", s.Row.Number, i, len(s.Journal))
		}
	}
}

// contend takes partition 0 and commits births of its own until another owner
// has taken it, and then again.
func (r *rig) contend(owner, rounds int) error {
	for round := range rounds {
		st, err := r.s.TakeOver(r.ctx, 0, core.Claim{Owner: fmt.Sprint(owner)})
		if err != nil {
			return err
		}
		for n := range rounds {
			id := int64(owner*1_000_000 + round*1000 + n + 1)
			fenced, err := r.grow(&st, id)
			if err != nil {
				return err
			}
			if fenced {
				break
			}
		}
	}
	return nil
}

// grow commits three births on top of st.
func (r *rig) grow(st *core.PartitionState, id int64) (bool, error) {
	b := core.Batch{ID: id, Node: st.Owner}
	for k := range int64(3) {
		b.Writes = append(b.Writes, birth(0, st.NextNumber+k, fmt.Sprintf("o%d-%d", id, k)))
	}
	st.NextNumber += 3
	st.Cursor += 3
	b.Partitions = []core.PartitionWrite{{Partition: 0, Epoch: st.Epoch, After: st.LastCommit, Cursor: st.Cursor, NextNumber: st.NextNumber, NextEnd: st.NextEnd}}
	res, err := r.s.Commit(context.WithoutCancel(r.ctx), &b)
	if err != nil {
		return false, err
	}
	if len(res.Duplicates) > 0 {
		return false, fmt.Errorf("batch %d has duplicates: %+v", id, res.Duplicates)
	}
	st.LastCommit = id
	return len(res.Fenced) > 0, nil
}
