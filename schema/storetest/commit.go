package storetest

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// existing is what the store says of a task as birth made it.
func existing(w core.TaskWrite) core.Existing {
	t := w.Task
	return core.Existing{Partition: t.Partition, Number: t.Number, ID: t.ID, Type: t.Type, InputHash: t.InputHash, State: t.State}
}

func testTakenID(r *rig) {
	first := birth(1, 1, "a")
	r.write(first)
	again := birth(1, 2, "a")
	again.Task.Input, again.Task.InputHash, again.Task.Type = []byte(`{"other":1}`), []byte("other hash"), "other"
	fresh := birth(1, 3, "b")
	elsewhere := birth(2, 1, "a") // another partition, another namespace
	r.result(r.batch(again, fresh, elsewhere), core.CommitResult{
		Duplicates: []core.Duplicate{{Partition: 1, Number: 2, Existing: existing(first)}},
	})
	r.comesBack(first.Task, first.Records)
	r.comesBack(fresh.Task, fresh.Records)
	r.comesBack(elsewhere.Task, elsewhere.Records)
	r.nothing(1, 2)

	end := ended(first.Task, core.StateProcessed, 1)
	r.write(end)
	want := existing(first)
	want.State = core.StateProcessed
	r.result(r.batch(birth(1, 4, "a")), core.CommitResult{Duplicates: []core.Duplicate{{Partition: 1, Number: 4, Existing: want}}})
	r.nothing(1, 4)
}

// nothing is stored under that number, neither row nor journal.
func (r *rig) nothing(p int, number int64) {
	r.Helper()
	if got := r.load(p, number); got != nil {
		r.Fatalf("task %d of partition %d is stored: %+v", number, p, got.Row)
	}
	if got := get(r.s.Journal(r.ctx, p, number))(r); len(got) != 0 {
		r.Fatalf("task %d of partition %d has a journal: %+v", number, p, got)
	}
}

func testTakenWithinBatch(r *rig) {
	first, second, third := birth(1, 1, "a"), birth(1, 2, "a"), birth(1, 3, "a")
	second.Task.InputHash = []byte("other")
	r.result(r.batch(first, second, third, birth(1, 4, "b")), core.CommitResult{Duplicates: []core.Duplicate{
		{Partition: 1, Number: 2, Existing: existing(first)},
		{Partition: 1, Number: 3, Existing: existing(first)},
	}})
	r.comesBack(first.Task, first.Records)
	r.nothing(1, 2)
	r.nothing(1, 3)
	if r.load(1, 4) == nil {
		r.Error("the free id was not taken")
	}
}

func testSameBatchTwice(r *rig) {
	old := birth(1, 1, "old")
	r.write(old)
	st := r.own[1]
	st.Cursor, st.NextNumber, st.Told = 9, 3, 1
	b := r.batch(ended(old.Task, core.StateProcessed, 1), birth(1, 2, "new"), birth(2, 1, "elsewhere"))
	r.taken(b)
	r.taken(b)
	r.comesBack(b.Writes[0].Task, append(old.Records, b.Writes[0].Records...))
	r.comesBack(b.Writes[1].Task, b.Writes[1].Records)
	r.equal("partition", get(r.s.Cursors(r.ctx))(r)[1], *st)

	only := r.batch(births(3, 5)...) // births alone: no journal row of a task that lived before
	r.taken(only)
	r.taken(only)
}

func testSameDuplicatesTwice(r *rig) {
	old := birth(1, 1, "old")
	r.write(old)
	mine := birth(1, 3, "mine")
	b := r.batch(birth(1, 2, "old"), mine, birth(1, 4, "mine"))
	want := core.CommitResult{Duplicates: []core.Duplicate{
		{Partition: 1, Number: 2, Existing: existing(old)},
		{Partition: 1, Number: 4, Existing: existing(mine)},
	}}
	r.result(b, want)
	r.result(b, want)
	r.comesBack(mine.Task, mine.Records)
}

// An answer may be lost and a successor may take over before the batch is sent
// again: the sender is fenced, whatever had been committed, and the rows that
// stand under its commit are no foreign rows.
func testSameBatchAfterTakeover(r *rig) {
	old := birth(1, 1, "old")
	r.write(old)
	births := r.batch(birth(2, 1, "x"), birth(3, 1, "y"))
	rows := r.batch(ended(old.Task, core.StateProcessed, 1), birth(1, 2, "new"))
	r.taken(births)
	r.taken(rows)
	get(r.s.TakeOver(r.ctx, 2, core.Claim{Owner: "successor"}))(r)
	r.result(births, core.CommitResult{Fenced: []int{2}}) // 3 is still ours, and done
	get(r.s.TakeOver(r.ctx, 1, core.Claim{Owner: "successor"}))(r)
	get(r.s.TakeOver(r.ctx, 3, core.Claim{Owner: "successor"}))(r)
	r.result(births, core.CommitResult{Fenced: []int{2, 3}})
	r.result(rows, core.CommitResult{Fenced: []int{1}})
	for _, w := range append(births.Writes, rows.Writes[1]) {
		r.comesBack(w.Task, w.Records)
	}
	r.comesBack(rows.Writes[0].Task, append(old.Records, rows.Writes[0].Records...))
	r.result(r.batch(birth(1, 3, "late")), core.CommitResult{Fenced: []int{1}})
}

func testPoison(r *rig) {
	old := birth(1, 1, "old")
	r.write(old)
	poisons := map[string]func(*core.Task){
		"NUL in the id":         func(t *core.Task) { t.ID = "a\x00b" },
		"NUL in the type":       func(t *core.Task) { t.Type = "\x00" },
		"id that is not UTF-8":  func(t *core.Task) { t.ID = "a\xff" },
		"type that is not UTF8": func(t *core.Task) { t.Type = "\xc3\x28" },
		"NUL in the subject":    func(t *core.Task) { t.ReplyTo = "a\x00" },
		"NUL in the trace":      func(t *core.Task) { t.Trace = "a\x00" },
		"trace that is not UTF": func(t *core.Task) { t.Trace = "\xff\xfe" },
	}
	number := int64(2)
	for name, spoil := range poisons {
		good, bad := birth(1, number, core.Key("good", "", int(number))), birth(1, number+1, core.Key("bad", "", int(number)))
		number += 2
		spoil(bad.Task)
		end := ended(old.Task, core.StateProcessed, 1)
		if _, err := r.s.Commit(r.ctx, r.batch(good, bad, end)); !errors.Is(err, core.ErrRowRefused) {
			r.Fatalf("%s: %v, want it refused", name, err)
		}
		r.comesBack(old.Task, old.Records) // nothing of the batch is there
		r.nothing(1, good.Task.Number)
		r.nothing(1, bad.Task.Number)
		r.write(good) // one bad thing stays one
	}
	row := ended(old.Task, core.StateProcessed, 1)
	row.Task.WaitsFor = "a\x00"
	if _, err := r.s.Commit(r.ctx, r.batch(row)); !errors.Is(err, core.ErrRowRefused) {
		r.Errorf("NUL in an update: %v, want it refused", err)
	}
	r.comesBack(old.Task, old.Records)
}

// What people and agents say never breaks a batch.
func testWordsOfPeople(r *rig) {
	w := birth(1, 1, "a")
	w.Records[0].Reason, w.Records[0].Error, w.Records[0].Result = "why\x00\xff", "\x00failed\xc3\x28", []byte("\x00\xff")
	r.write(w)
	r.comesBack(w.Task, w.Records)
	second := next(w.Task, false, func(_ *core.Task, rec *core.Record) { rec.Actor = "ol\x00ga \xff" })
	r.write(second)
	if got := r.load(1, 1).Journal[1].Actor; got == "" {
		r.Error("the name of the actor is lost")
	}
}

func testForeignRow(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	r.write(next(w.Task, false, func(*core.Task, *core.Record) {}))
	b := r.batch(birth(2, 1, "b"), next(w.Task, true, func(t *core.Task, _ *core.Record) { t.Failures = 8 }))
	if _, err := r.s.Commit(r.ctx, b); !errors.Is(err, core.ErrForeignRow) {
		r.Fatalf("a second row under one number: %v, want a foreign row", err)
	}
	r.nothing(2, 1)
	if got := r.load(1, 1); len(got.Journal) != 2 || got.Row.Failures != 0 {
		r.Errorf("something of the batch is stored: %+v", got)
	}
}

func testForeignNumber(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	_, err := r.s.Commit(r.ctx, r.batch(birth(1, 1, "b"), birth(1, 2, "c")))
	if !errors.Is(err, core.ErrForeignRow) || errors.Is(err, core.ErrRowRefused) {
		r.Fatalf("a second task under one number: %v, want a foreign row", err)
	}
	r.comesBack(w.Task, w.Records)
	r.nothing(1, 2)
}

func testForeignEndNumber(r *rig) {
	a, b := birth(1, 1, "a"), birth(1, 2, "b")
	r.write(a, b)
	r.write(ended(a.Task, core.StateProcessed, 1))
	_, err := r.s.Commit(r.ctx, r.batch(ended(b.Task, core.StateProcessed, 1)))
	if !errors.Is(err, core.ErrForeignRow) || errors.Is(err, core.ErrRowRefused) {
		r.Fatalf("a second ending under one number: %v, want a foreign row", err)
	}
	r.comesBack(b.Task, b.Records)
}

// testManyBirths: large commits, one after the other.
func testManyBirths(r *rig) {
	all := births(1, 5000)
	r.write(all[:2500]...)
	r.write(all[2500:]...)
	for _, number := range []int64{1, 2500, 2501, 5000} {
		saved := r.load(1, number)
		if saved == nil || saved.Row.ID != all[number-1].Task.ID {
			r.Errorf("task %d: %+v", number, saved)
		}
	}
}
