package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

func testMigrateTwice(r *rig) {
	r.must(r.s.Migrate(r.ctx))
	r.must(r.s.Ping(r.ctx))
	if d := r.s.Dialect(); !slices.Contains([]string{"postgres", "cockroach", "sqlite"}, d) {
		r.Errorf("dialect %q", d)
	}
	if r.s.Version() == "" {
		r.Error("the version is empty")
	}
}

// A store with a server tells the server's time, which here is the machine's.
func testClock(r *rig) {
	clock, ok := r.s.(interface {
		Clock(ctx context.Context) (time.Time, error)
	})
	if !ok {
		return // SQLite, or wrapped by a test
	}
	before := time.Now()
	at := get(clock.Clock(r.ctx))(r)
	if at.Before(before.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		r.Errorf("the database's clock says %v, the machine's %v", at, before)
	}
}

func testPartitions(r *rig) {
	r.must(r.s.Partitions(r.ctx, partitions))
	for _, n := range []int{partitions - 1, partitions + 1} {
		if r.s.Partitions(r.ctx, n) == nil {
			r.Errorf("%d partitions were taken where %d are stored", n, partitions)
		}
	}
	var want []core.PartitionState
	for p := range partitions {
		want = append(want, core.PartitionState{Partition: p, NextNumber: 1, NextEnd: 1})
	}
	r.equal("new partitions", get(r.s.Cursors(r.ctx))(r), want)
	r.equal("two of them", get(r.s.CursorsOf(r.ctx, []int{2, 0, partitions}, ""))(r), []core.PartitionState{want[0], want[2]})
	r.equal("no others", len(get(r.s.CursorsOf(r.ctx, nil, "a"))(r)), 0)
}

func testTakeOver(r *rig) {
	want := core.PartitionState{Partition: 2, Owner: "a", Epoch: 1, NextNumber: 1, NextEnd: 1, LastCommit: 17, Stream: "s1"}
	take := func(what string, c core.Claim) {
		r.equal(what, get(r.s.TakeOver(r.ctx, 2, c))(r), want)
	}
	take("first takeover", core.Claim{Owner: "a", Commit: 17, Stream: "s1"})
	want.Owner, want.Epoch, want.LastCommit, want.Found = "b", 2, 18, core.Found{Epoch: 1, Commit: 17, Stream: "s1"}
	take("second takeover", core.Claim{Owner: "b", Commit: 18, Stream: "s1", Evidence: core.Evidence{Epoch: 1, Commit: 17}})

	want.Found = core.Found{}
	r.must(r.s.Release(r.ctx, 2, 1)) // no longer ours: nothing happens
	r.equal("after a stale release", get(r.s.Cursors(r.ctx))(r)[2], want)
	r.equal("of its owner, and another", get(r.s.CursorsOf(r.ctx, []int{0}, "b"))(r), []core.PartitionState{{NextNumber: 1, NextEnd: 1}, want})
	r.equal("none lives", len(get(r.s.Unowned(r.ctx, nil))(r)), partitions)
	r.equal("its owner lives", len(get(r.s.Unowned(r.ctx, []string{"a", "b"}))(r)), partitions-1)
	r.equal("its owner does not live", get(r.s.Unowned(r.ctx, []string{"a"}))(r)[2], want)
	r.must(r.s.Release(r.ctx, 2, 2))
	want.Owner = ""
	r.equal("after a release", get(r.s.Cursors(r.ctx))(r)[2], want)

	if _, err := r.s.TakeOver(r.ctx, partitions, core.Claim{Owner: "a"}); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("takeover of a partition that is not there: %v", err)
	}
}

// What a takeover finds outside the database changes the row in the same transaction.
func testTakeOverByGround(r *rig) {
	st := r.takeOver(1)
	st.Cursor, st.ControlCursor, st.CursorStored, st.ControlStored = 17, 18, start, start+1
	b := r.batch()
	b.Partitions = []core.PartitionWrite{r.partition(1)}
	r.taken(b)
	want := core.PartitionState{
		Partition: 1, Owner: "b", Epoch: 42, NextNumber: 1, NextEnd: 1, LastCommit: 99, Stream: "other/others", WentBackAt: start, WentBackNumber: 1, WentBackUntil: core.ReadNoMore,
		Found: core.Found{Epoch: 1, Commit: b.ID, Cursor: 17, ControlCursor: 18, WentBack: true, Until: core.ReadNoMore},
	}
	c := core.Claim{Owner: "b", Commit: 99, At: start, Stream: "other/others", End: 21, Evidence: core.Evidence{Epoch: 41, Commit: 1}}
	r.equal("takeover of a database that went back", get(r.s.TakeOver(r.ctx, 1, c))(r), want)
	want.Found = core.Found{}
	r.equal("the row", get(r.s.Cursors(r.ctx))(r)[1], want)
}

func testEmptyBatch(r *rig) {
	r.result(&core.Batch{ID: 1, Node: node}, core.CommitResult{})
}

// A write of a partition that the batch does not move would be left out without
// a word.
func testWriteWithoutPartition(r *rig) {
	b := r.batch(birth(1, 1, "a"))
	b.Writes = append(b.Writes, birth(2, 1, "b"))
	if _, err := r.s.Commit(r.ctx, b); err == nil {
		r.Error("the batch was taken")
	}
	if r.load(1, 1) != nil {
		r.Error("a part of it was written")
	}
}

func testCursorsAlone(r *rig) {
	st := r.takeOver(3)
	st.Cursor, st.ControlCursor, st.NextNumber, st.NextEnd, st.Told = 100, 200, 30, 20, 19
	st.CursorStored, st.ControlStored = start, start+1
	b := r.batch()
	b.Partitions = []core.PartitionWrite{r.partition(3)}
	r.taken(b)
	want := *st
	r.equal("partition", get(r.s.Cursors(r.ctx))(r)[3], want)
	st.Cursor, st.Told, st.CursorStored, st.ControlStored = 1<<62, 20, 0, start+2
	b.ID, b.Partitions = b.ID+1, []core.PartitionWrite{r.partition(3)}
	r.taken(b)
	r.equal("partition", get(r.s.Cursors(r.ctx))(r)[3], *st)
	next := get(r.s.TakeOver(r.ctx, 3, core.Claim{Owner: "b", Commit: 77}))(r)
	r.equal("what a takeover keeps", [2]core.Instant{next.CursorStored, next.ControlStored}, [2]core.Instant{0, start + 2})
	r.equal("partition of others", get(r.s.Cursors(r.ctx))(r)[0], core.PartitionState{NextNumber: 1, NextEnd: 1})
}

// A row that is already further on is not set back.
func testLowerSeq(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	third := next(w.Task, true, func(t *core.Task, _ *core.Record) { t.Failures = 3 })
	third.Task.Seq, third.Records[0].Seq = 3, 3
	r.write(third)
	second := next(w.Task, true, func(t *core.Task, _ *core.Record) { t.Failures = 2 })
	r.write(second)
	got := r.load(1, 1)
	if got.Row.Seq != 3 || got.Row.Failures != 3 {
		r.Errorf("row has seq %d and %d failures, want 3 and 3", got.Row.Seq, got.Row.Failures)
	}
	if len(got.Journal) != 3 {
		r.Errorf("%d journal rows, want 3", len(got.Journal))
	}
}

// Who writes a beat knows the one before.
func testPairing(r *rig) {
	s, ok := r.s.(interface {
		Pairing(ctx context.Context) (schema.Pairing, error)
		Pair(ctx context.Context, p schema.Pairing, last string) (bool, error)
	})
	if !ok {
		return // SQLite, or wrapped by a test
	}
	r.equal("a new database", get(s.Pairing(r.ctx))(r), schema.Pairing{})
	first, second := schema.Pairing{NATS: "one", UsedBy: "a", Beat: "1"}, schema.Pairing{NATS: "two", UsedBy: "b", Beat: "2"}
	for _, c := range []struct {
		to   schema.Pairing
		last string
		want bool
		now  schema.Pairing
	}{{first, "", true, first}, {second, "", false, first}, {second, "1", true, second}, {first, "1", false, second}} {
		if ok := get(s.Pair(r.ctx, c.to, c.last))(r); ok != c.want {
			r.Errorf("%+v over beat %q: %t", c.to, c.last, ok)
		}
		r.equal("afterwards", get(s.Pairing(r.ctx))(r), c.now)
	}
}

// An installation keeps its id, and the namespace that it was bound to first; to be asked for
// its id binds it to none.
func testInstallation(r *rig) {
	id := get(r.s.Installation(r.ctx, "prod"))(r)
	if len(id) < 32 || get(r.s.Installation(r.ctx, "duly"))(r) != id {
		r.Fatalf("the installation's id is %q at first, and another later", id)
	}
	r.must(r.s.Bind(r.ctx, "duly"))
	r.must(r.s.Bind(r.ctx, "duly"))
	r.equal("the id when it is bound", get(r.s.Installation(r.ctx, "duly"))(r), id)
	if err := r.s.Bind(r.ctx, "prod"); err == nil || !strings.Contains(err.Error(), `uses namespace "duly"`) {
		r.Errorf("bound to another namespace: %v", err)
	}
	if _, err := r.s.Installation(r.ctx, "prod"); err == nil || !strings.Contains(err.Error(), `uses namespace "duly"`) {
		r.Errorf("another namespace: %v", err)
	}
}

// A copy of a database becomes another installation, in any namespace, if its operator knows which
// one it was.
func testRenew(r *rig) {
	r.must(r.s.Bind(r.ctx, "duly"))
	id := get(r.s.Installation(r.ctx, "duly"))(r)
	for _, wrong := range []string{"", id + "x", "00000000000000000000000000000000"} {
		if _, err := r.s.Renew(r.ctx, wrong); err == nil || !strings.Contains(err.Error(), id) {
			r.Errorf("renewed as %q: %v, want an error that names %s", wrong, err, id)
		}
	}
	r.equal("the id after refusals", get(r.s.Installation(r.ctx, "duly"))(r), id)
	other := get(r.s.Renew(r.ctx, id))(r)
	if other == id || len(other) < 32 {
		r.Errorf("%q instead of %q", other, id)
	}
	r.must(r.s.Bind(r.ctx, "staging"))
	r.equal("the id afterwards", get(r.s.Installation(r.ctx, "staging"))(r), other)
	if _, err := r.s.Installation(r.ctx, "duly"); err == nil || !strings.Contains(err.Error(), `uses namespace "staging"`) {
		r.Errorf("the namespace before: %v", err)
	}
	if s, ok := r.s.(interface {
		Pairing(ctx context.Context) (schema.Pairing, error)
		Pair(ctx context.Context, p schema.Pairing, last string) (bool, error)
	}); ok {
		get(s.Pair(r.ctx, schema.Pairing{NATS: "n", UsedBy: "u", Beat: "b"}, ""))(r)
		other = get(r.s.Renew(r.ctx, other))(r)
		r.equal("the pairing of a copy", get(s.Pairing(r.ctx))(r), schema.Pairing{})
	}
	if _, err := r.s.Renew(r.ctx, id); err == nil || !strings.Contains(err.Error(), other) {
		r.Errorf("renewed twice: %v, want an error that names %s", err, other)
	}
}
