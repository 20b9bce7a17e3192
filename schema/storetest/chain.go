package storetest

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// OpenChained gives two stores over one migrated database, of which the first keeps chains,
// and the database. All are closed when the test ends.
type OpenChained func(tb testing.TB) (chained, plain schema.Store, db *sql.DB)

// RunChained holds a store that keeps chains to all that Run asks, with journal and chains that
// fit at the end of each, and to what only such a store does.
func RunChained(t *testing.T, open OpenChained) {
	// These write behind the store; the last one's time runs for longer than the hour after which chains are looked at.
	except := []string{"view", "view without a plan", "foreign journal row", "foreign task number", "foreign end number", "purge", "purge of anything"}
	for _, c := range cases {
		if slices.Contains(except, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s, plain, db := open(t)
			r := newRig(t, s, db)
			r.calm = plain
			c.test(r)
			if !t.Failed() {
				r.fits(r.verify(func(o *chain.Options) { o.RetainDetail, o.RetainRow = time.Minute, time.Minute }))
			}
		})
	}
	RunChains(t, open)
}

// RunChains holds a store that keeps chains to what only such a store does.
func RunChains(t *testing.T, open OpenChained) {
	for _, c := range []struct {
		name string
		test func(r *chainRig)
	}{
		{"chain of commits", testChainOfCommits},
		{"chain of a batch sent twice", testChainSentTwice},
		{"chain and a taken id", testChainTakenID},
		{"chain and a lost fence", testChainFenced},
		{"chain of owners by turns", testChainOwners},
		{"chain with a foreign link", testChainForeignLink},
		{"chain of a store that has not taken over", testChainUnknownEnd},
		{"chain that begins late", testChainBegins},
		{"chain with a gap", testChainGap},
		{"chain of a database that went back", testChainWentBack},
		{"chain and retention", testChainRetention},
		{"links are taken", testChainTrim},
		{"links are taken beside a commit", testChainTrimBesideCommit},
		{"links are taken behind a large one", testChainTrimBehindLarge},
		{"planted changes", testPlanted},
		{"planted changes against heads", testPlantedHeads},
		{"a range", testChainRange},
		{"an export", testChainExport},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, plain, db := open(t)
			r := &chainRig{rig: newRig(t, s, db), plain: plain, t: t}
			r.calm = plain
			c.test(r)
		})
	}
}

// chainRig is a rig whose store keeps chains, and another that does not.
type chainRig struct {
	*rig
	plain schema.Store
	t     *testing.T
}

// later is a source as it is looked at later.
type later struct {
	chain.Source
	at core.Instant
}

func (l later) At() core.Instant { return l.at }

// verify checks all partitions, as of an hour after the suite's time begins.
func (r *rig) verify(change ...func(*chain.Options)) *chain.Report {
	r.Helper()
	o := chain.Options{Partition: -1}
	for _, c := range change {
		c(&o)
	}
	return get(chain.Verify(r.ctx, r.source(), o))(r)
}

// source is the database as it is looked at an hour after the suite's time begins.
func (r *rig) source() chain.Source {
	r.Helper()
	s := get(r.calm.Chain(r.ctx))(r)
	return later{s, start.Add(time.Hour)}
}

func (r *rig) fits(report *chain.Report) {
	r.Helper()
	for i := range report.Findings {
		r.Errorf("found: %+v", report.Findings[i])
	}
}

// heights are the last heights of the chains by partition.
func (r *rig) heights() map[int]int64 {
	r.Helper()
	return get(r.calm.ChainEnds(r.ctx))(r)
}

// heads are the heads of all chains.
func (r *rig) heads() []chain.Head {
	r.Helper()
	all := r.s.ChainHeads()
	id := get(r.calm.Installation(r.ctx, ""))(r)
	for i := range all {
		all[i].Installation, all[i].At = id, start.Add(time.Minute)
	}
	return all
}

func withHeads(all []chain.Head) func(*chain.Options) {
	return func(o *chain.Options) { o.Heads = all }
}

// history commits tasks in two partitions: group commits of several tasks, ends, and a task in
// error. It leaves heights 1 (the beginning) to 4.
func (r *chainRig) history() {
	r.Helper()
	one, two := births(1, 3), births(2, 2)
	r.write(append(one, two...)...)
	r.write(ended(one[0].Task, core.StateProcessed, 1), next(one[1].Task, false, func(_ *core.Task, rec *core.Record) { rec.Result = []byte(`"half"`) }))
	r.write(ended(two[0].Task, core.StateUndone, 1), ended(two[1].Task, core.StateError, 2))
	r.write(ended(one[2].Task, core.StateError, 2), birth(1, 4, "t1-4"), birth(2, 3, "t2-3"))
}

// Every row of a group commit is named by one link of its partition.
func testChainOfCommits(r *chainRig) {
	r.history()
	report := r.verify(withHeads(r.heads()))
	r.fits(report)
	r.equal("heights", r.heights(), map[int]int64{1: 4, 2: 4})
	one := report.Partitions[1]
	if one.Rows != 7 || one.Tasks != 4 || one.Purged+one.Before != 0 || one.Began != 1 || one.Heads != 1 {
		r.Errorf("checked of partition 1: %+v", one)
	}
	if report.Partitions[0].Last != 0 || !report.Proven() {
		r.Errorf("report: %+v", report)
	}
	at := r.own[1].LastCommit
	r.taken(&core.Batch{ID: at + 100, Node: node, Partitions: []core.PartitionWrite{r.partition(1)}}) // cursors alone
	r.equal("heights after a commit without tasks", r.heights(), map[int]int64{1: 4, 2: 4})
}

func testChainSentTwice(r *chainRig) {
	b := r.batch(births(1, 2)...)
	for range 3 { // the last two find everything there
		r.taken(b)
	}
	r.fits(r.verify(withHeads(r.heads())))
	r.equal("height", r.heights()[1], int64(2))
}

func testChainTakenID(r *chainRig) {
	first := birth(1, 1, "a")
	r.write(first)
	dup := core.CommitResult{Duplicates: []core.Duplicate{{Partition: 1, Number: 2, Existing: existing(first)}}}
	b := r.batch(birth(1, 2, "a"), birth(1, 3, "b"), birth(2, 1, "a"))
	r.result(b, dup)
	alone := dup
	alone.Duplicates = []core.Duplicate{{Partition: 1, Number: 4, Existing: existing(first)}}
	r.result(r.batch(birth(1, 4, "a")), alone) // a commit that writes nothing at all
	r.write(birth(1, 5, "c"))
	r.fits(r.verify(withHeads(r.heads())))
	r.equal("heights", r.heights(), map[int]int64{1: 4, 2: 2})
}

func testChainFenced(r *chainRig) {
	r.history()
	stale := r.batch(birth(1, 5, "late"), birth(2, 4, "on time"))
	get(r.s.TakeOver(r.ctx, 1, core.Claim{Owner: "successor", Commit: 900}))(r.rig)
	r.result(stale, core.CommitResult{Fenced: []int{1}})
	r.fits(r.verify(withHeads(r.heads())))
	r.equal("heights", r.heights(), map[int]int64{1: 4, 2: 5})
}

func testChainOwners(r *chainRig) {
	for turn := range int64(4) {
		r.takeOver(1)
		r.write(birth(1, turn+1, fmt.Sprint("t", turn)))
	}
	report := r.verify()
	r.fits(report)
	if is := report.Partitions[1]; is.Last != 5 || is.Began != 1 {
		r.Errorf("chain of owners by turns: %+v", is)
	}
	r.plant(`UPDATE chain SET hash = content WHERE partition = 1 AND height = 5`)
	r.takeOver(1) // an end that cannot be is no reason to stop
	r.write(birth(1, 5, "after"))
	r.first(r.verify(), chain.Finding{What: chain.BadLink, Partition: 1, Height: 5})
	r.equal("height", r.heights()[1], int64(7))
}

func testChainForeignLink(r *chainRig) {
	r.write(births(1, 1)...)
	r.plant(`INSERT INTO chain (partition, height, epoch, commit_id, kind, content, hash) SELECT partition, height + 1, epoch, 999, kind, content, hash FROM chain WHERE partition = 1 AND height = 2`)
	if _, err := r.s.Commit(r.ctx, r.batch(birth(1, 2, "b"))); !errors.Is(err, core.ErrForeignRow) {
		r.Errorf("a commit beside another of its height: %v", err)
	}
	r.nothing(1, 2)
}

func testChainUnknownEnd(r *chainRig) {
	st := get(r.plain.TakeOver(r.ctx, 1, core.Claim{Owner: node}))(r.rig)
	r.own[1] = &st
	if _, err := r.s.Commit(r.ctx, r.batch(birth(1, 1, "a"))); err == nil || !strings.Contains(err.Error(), "partition 1") {
		r.Errorf("a commit without the chain's end: %v", err)
	}
	r.nothing(1, 1)
}

// by lets the rig use another store.
func (r *chainRig) by(s schema.Store, do func()) {
	was := r.s
	r.s = s
	do()
	r.s = was
}

// claimed takes a partition over at a time.
func (r *chainRig) claimed(p int, at core.Instant) {
	r.Helper()
	st := get(r.s.TakeOver(r.ctx, p, core.Claim{Owner: node, Commit: 10_000 + r.commit, At: at}))(r.rig)
	r.commit++
	st.NextNumber, st.NextEnd = 100, 100
	if was := r.own[p]; was != nil {
		st.NextNumber = was.NextNumber
	}
	r.own[p] = &st
}

// written is like write, and moves the next number above that of a task.
func (r *chainRig) written(w core.TaskWrite) {
	r.Helper()
	r.partition(w.Task.Partition)
	st := r.own[w.Task.Partition]
	st.NextNumber = max(st.NextNumber, w.Task.Number+1)
	r.write(w)
}

// A chain that begins on a database with rows says so, and proves what comes after.
func testChainBegins(r *chainRig) {
	old := births(1, 2)
	r.by(r.plain, func() { r.written(old[0]); r.written(old[1]) })
	since := start.Add(10 * time.Minute)
	r.claimed(1, since)
	report := r.verify()
	r.fits(report)
	if is := report.Partitions[1]; is.Before != 4 || is.Since != since || is.Last != 1 {
		r.Errorf("before the chain: %+v", is)
	}
	late := next(old[0].Task, false, func(t *core.Task, rec *core.Record) { t.UpdatedAt = since.Add(time.Second); rec.At = t.UpdatedAt })
	r.written(late)
	r.written(birth(1, 1000, "new"))
	report = r.verify()
	r.fits(report)
	if is := report.Partitions[1]; is.Before != 4 || is.Rows != 2 || is.Tasks != 1 {
		r.Errorf("after the chain began: %+v", is)
	}
	r.plant(`UPDATE journal SET kind = 'undone' WHERE partition = 1 AND number = 1 AND seq = 2`)
	r.first(r.verify(), chain.Finding{What: chain.Changed, Partition: 1, Height: 2, Table: "journal", Number: 1, Seq: 2, Task: "t1-1"})
}

// What owners wrote that keep no chain is told apart from what nobody wrote.
func testChainGap(r *chainRig) {
	r.claimed(1, start)
	a := birth(1, 1, "a")
	r.written(a)
	var b core.TaskWrite
	r.by(r.plain, func() {
		r.claimed(1, start.Add(time.Minute))
		b = birth(1, 2, "b")
		r.written(b)
		r.written(next(a.Task, false, func(*core.Task, *core.Record) {}))
	})
	r.claimed(1, start.Add(20*time.Minute))
	c := birth(1, 2000, "c")
	r.written(c)
	report := r.verify()
	r.fits(report)
	if is := report.Partitions[1]; is.Began != 2 || is.Before != 3 || is.Rows != 2 {
		r.Errorf("with a gap: %+v", is)
	}
	// A row of after the gap that no link names is none of those.
	r.plant(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		SELECT partition, number, 9, at, actor, commit_id, format, kind, state, round, attempt, undo FROM journal WHERE partition = 1 AND number = 2000`)
	r.first(r.verify(), chain.Finding{What: chain.Inserted, Partition: 1, Table: "journal", Number: 2000, Seq: 9, Task: "c"})
}

// A database that was restored, and goes on, has another chain than the heads of before.
func testChainWentBack(r *chainRig) {
	r.history()
	kept := r.heads()
	first := r.heads()
	r.write(birth(1, 5, "lost"))
	after := r.heads()
	r.plant(`DELETE FROM journal WHERE partition = 1 AND number = 5`)
	r.plant(`DELETE FROM tasks WHERE partition = 1 AND number = 5`)
	r.plant(`DELETE FROM chain WHERE partition = 1 AND height = 5`)
	found := r.verify(withHeads(after))
	r.first(found, chain.Finding{What: chain.Truncated, Partition: 1, Height: 5})
	if !strings.Contains(found.Findings[0].Text, "ends at height 4") {
		r.Errorf("a restored database: %s", found.Findings[0].Text)
	}
	st := get(r.s.TakeOver(r.ctx, 1, core.Claim{Owner: node, Commit: 950, At: start.Add(30 * time.Minute), WentBack: true}))(r.rig)
	r.own[1] = &st
	r.write(birth(1, 5, "again"))
	r.fits(r.verify(withHeads(kept)))
	found = r.verify(withHeads(append(first, after...)))
	r.first(found, chain.Finding{What: chain.BadHead, Partition: 1, Height: 5})
	if text := found.Findings[0].Text; !strings.Contains(text, "height 4 fits") || !strings.Contains(text, "had gone back") {
		r.Errorf("a database that went on after a restore: %s", text)
	}
}

// Retention leaves a chain that fits, and what goes too early is found.
func testChainRetention(r *chainRig) {
	r.history()
	r.own[1].Told, r.own[2].Told = 2, 2
	r.write(birth(1, 5, "tells"), birth(2, 4, "tells"))
	kept := func(detail, row time.Duration) func(*chain.Options) {
		return func(o *chain.Options) { o.RetainDetail, o.RetainRow = detail, row }
	}
	for _, p := range []int{1, 2} {
		get(r.s.Purge(r.ctx, p, r.own[p].Epoch, start.Add(time.Hour), 0, 100))(r.rig)
	}
	report := r.verify(kept(10*time.Minute, 20*time.Minute), withHeads(r.heads()))
	r.fits(report)
	if is := report.Partitions[1]; is.Purged != 2 {
		r.Errorf("after retention: %+v", is)
	}
	r.first(r.verify(kept(2*time.Hour, 2*time.Hour)), chain.Finding{What: chain.Removed, Partition: 1, Height: 2, Table: "journal", Number: 1, Seq: 1, Task: "t1-1"})
	r.first(r.verify(), chain.Finding{What: chain.Removed, Partition: 1, Height: 2, Table: "journal", Number: 1, Seq: 1, Task: "t1-1"})
	get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, start.Add(time.Hour), start.Add(time.Hour), 100))(r.rig)
	r.fits(r.verify(kept(10*time.Minute, 20*time.Minute)))
	// A task in error is not for retention, however old it is.
	r.plant(`DELETE FROM journal WHERE partition = 1 AND number = 3`)
	r.first(r.verify(kept(10*time.Minute, 20*time.Minute)), chain.Finding{What: chain.Removed, Partition: 1, Height: 2, Table: "journal", Number: 3, Seq: 1, Task: "t1-3"})
}

// oldLinks commits a task that goes on, which it returns, and 79 that end: enough links for a trim.
func (r *chainRig) oldLinks() core.TaskWrite {
	r.Helper()
	stays := birth(1, 1, "stays")
	r.written(stays)
	for n := int64(2); n <= 80; n++ {
		w := birth(1, n, fmt.Sprint("t", n))
		w.Task.CreatedAt, w.Task.UpdatedAt, w.Records[0].At = start, start, start
		r.written(w)
		r.own[1].Told = n - 2
		r.written(ended(w.Task, core.StateProcessed, n-1))
	}
	r.own[1].Told = 79
	return stays
}

// Linker is a store that shows the two halves of a commit: its links are made, and stand.
type Linker interface {
	Links(b *core.Batch) (schema.Links, error)
	Linked(l schema.Links, fenced []int)
}

// A commit whose link was made before a trim was planned, and that ends after that, has not named what lives.
func testChainTrimBesideCommit(r *chainRig) {
	r.oldLinks()
	s := r.s.(Linker)
	purge := func() { get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, start.Add(30*time.Minute), 0, 100))(r.rig) }
	links := get(s.Links(r.batch(birth(1, 500, "under way"))))(r.rig)
	purge() // looks what lives
	s.Linked(links, nil)
	purge()
	report := r.verify(func(o *chain.Options) { o.RetainDetail, o.RetainRow = 40*time.Minute, 0 })
	r.fits(report)
	if got := report.Partitions[1].First; got != 1 {
		r.Errorf("links went before a commit said so: the first is %d", got)
	}
}

// A link that names more than a trim reads holds up none of those behind it.
func testChainTrimBehindLarge(r *chainRig) {
	large := births(1, 25_000)
	for i := range large {
		t := large[i].Task
		t.CreatedAt, t.UpdatedAt, large[i].Records[0].At = start, start, start
	}
	r.partition(1)
	r.own[1].NextNumber = 25_001
	r.write(large...)
	one := large[0]
	commit := func() {
		r.Helper()
		one = next(one.Task, false, func(*core.Task, *core.Record) {})
		r.written(one)
	}
	for range 70 {
		commit()
	}
	purge := func() { get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, start.Add(30*time.Minute), 0, 100))(r.rig) }
	for range 2 {
		purge() // looks what lives
		commit()
		purge() // takes what that has named again
	}
	report := r.verify(func(o *chain.Options) { o.RetainDetail, o.RetainRow = 40*time.Minute, 0 })
	r.fits(report)
	if got := report.Partitions[1].First; got < 70 {
		r.Errorf("the first link that is left is %d", got)
	}
}

// Old links go when all that they name is forgotten, or named again.
func testChainTrim(r *chainRig) {
	stays := r.oldLinks()
	old := r.heads()
	r.written(next(stays.Task, true, func(t *core.Task, _ *core.Record) { t.State = core.StateUndoing }))
	purge := func() { get(r.s.Purge(r.ctx, 1, r.own[1].Epoch, start.Add(30*time.Minute), 0, 100))(r.rig) }
	kept := func(o *chain.Options) { o.RetainDetail, o.RetainRow = 40*time.Minute, 0 }
	first := func() int64 { r.Helper(); return r.verify(kept).Partitions[1].First }
	purge() // looks what lives
	purge()
	r.fits(r.verify(kept))
	if got := first(); got != 1 {
		r.Fatalf("links went before a commit said so: the first is %d", got)
	}
	young := birth(1, 500, "young")
	r.written(young)
	r.fits(r.verify(kept))
	purge() // takes them
	report := r.verify(kept, withHeads(append(old, r.heads()...)))
	r.fits(report)
	is := report.Partitions[1]
	if is.First < 100 || is.HeadsOld+is.Heads != 2 || is.Rows != 3 {
		r.Fatalf("after links were taken: %+v", is)
	}
	// What lives is still proven, whoever takes over.
	r.takeOver(1)
	r.own[1].NextNumber, r.own[1].NextEnd = 501, 80
	r.written(birth(1, 501, "younger"))
	purge()
	r.written(birth(1, 502, "youngest"))
	purge()
	r.fits(r.verify(kept))
	r.plant(`UPDATE journal SET actor = 'mallory' WHERE partition = 1 AND number = 1 AND seq = 1`)
	r.first(r.verify(kept), chain.Finding{What: chain.Changed, Partition: 1, Height: r.naming(1), Table: "journal", Number: 1, Seq: 1, Task: "stays"})
	r.plant(`UPDATE journal SET actor = 'node-1' WHERE partition = 1 AND number = 1 AND seq = 1`)
	r.fits(r.verify(kept))
	// Links that no later one lets go are missed.
	r.plant(`DELETE FROM chain WHERE partition = 1 AND height = (SELECT min(height) FROM chain WHERE partition = 1)`)
	r.first(r.verify(kept), chain.Finding{What: chain.BadLink, Partition: 1, Height: first()})
}

// naming is the height of the first link that names a task and is not the first that is kept.
func (r *chainRig) naming(number int64) (height int64) {
	r.Helper()
	view := get(r.source().View(r.ctx, 1))(r.rig)
	first := true
	r.must(view.Links(r.ctx, 0, func(l *chain.Link) error {
		c, err := chain.DecodeContent(l.Content)
		for _, e := range append(c.Entries, c.Carried...) {
			if height == 0 && !first && e.Number == number {
				height = l.Height
			}
		}
		first = false
		return err
	}))
	r.must(view.Close())
	return height
}

// plant changes the database behind the store.
func (r *chainRig) plant(statements ...string) {
	r.Helper()
	for _, s := range statements {
		res := get(r.db.ExecContext(r.ctx, s))(r.rig)
		if n := get(res.RowsAffected())(r.rig); n == 0 {
			r.Fatalf("nothing was changed by %s", s)
		}
	}
}

// first checks what was found first, but for its text and commit.
func (r *chainRig) first(report *chain.Report, want chain.Finding) {
	r.Helper()
	if report.Fits() {
		r.Errorf("nothing was found, want %+v", want)
		return
	}
	got := report.Findings[0]
	if got.Text == "" || got.Table != "" && got.Commit == 0 {
		r.Errorf("a finding without text or commit: %+v", got)
	}
	got.Text, got.Commit = "", 0
	if got != want {
		r.Errorf("found first %+v, want %+v", got, want)
	}
	if report.Proven() || !strings.Contains(report.Sentence(), "does not fit") {
		r.Errorf("the report says %q", report.Sentence())
	}
}

// copyRow inserts a copy of a journal row under another key.
const copyRow = `INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint,
	reason, result, quiet, next, next_attempt, undo, due, deadline, input)
	SELECT %s, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint, reason, result, quiet, next, next_attempt,
	undo, due, deadline, input FROM journal WHERE partition = 1 AND number = 1 AND seq = 1`

// planted are changes of each kind to what history leaves, and what has to be found first.
var planted = []struct {
	name       string
	statements []string
	want       chain.Finding
}{
	{"a journal row changed", []string{`UPDATE journal SET state = 'undone' WHERE partition = 1 AND number = 1 AND seq = 2`},
		chain.Finding{What: chain.Changed, Partition: 1, Height: 3, Table: "journal", Number: 1, Seq: 2, Task: "t1-1"}},
	{"a result removed", []string{`UPDATE journal SET result = NULL WHERE partition = 1 AND number = 2 AND seq = 2`},
		chain.Finding{What: chain.Changed, Partition: 1, Height: 3, Table: "journal", Number: 2, Seq: 2, Task: "t1-2"}},
	{"an input changed", []string{`UPDATE journal SET input = reason, reason = input WHERE partition = 2 AND number = 1 AND seq = 1`},
		chain.Finding{What: chain.Changed, Partition: 2, Height: 2, Table: "journal", Number: 1, Seq: 1, Task: "t2-1"}},
	{"a row of another commit", []string{`UPDATE journal SET commit_id = commit_id + 1 WHERE partition = 2 AND number = 3`},
		chain.Finding{What: chain.Changed, Partition: 2, Height: 4, Table: "journal", Number: 3, Seq: 1, Task: "t2-3"}},
	{"a journal row removed", []string{`DELETE FROM journal WHERE partition = 1 AND number = 2 AND seq = 1`},
		chain.Finding{What: chain.Removed, Partition: 1, Height: 2, Table: "journal", Number: 2, Seq: 1, Task: "t1-2"}},
	{"all of a task removed", []string{`DELETE FROM journal WHERE partition = 1 AND number = 4`, `DELETE FROM tasks WHERE partition = 1 AND number = 4`},
		chain.Finding{What: chain.Removed, Partition: 1, Height: 4, Table: "journal", Number: 4, Seq: 1}},
	{"a journal row inserted", []string{fmt.Sprintf(copyRow, "partition, number, 9")},
		chain.Finding{What: chain.Inserted, Partition: 1, Table: "journal", Number: 1, Seq: 9, Task: "t1-1"}},
	{"a task inserted", []string{fmt.Sprintf(copyRow, "partition, 77, seq")},
		chain.Finding{What: chain.Inserted, Partition: 1, Table: "journal", Number: 77, Seq: 1}},
	{"journal rows in another order", []string{`UPDATE journal SET seq = 3 - seq + 100 WHERE partition = 1 AND number = 1`, `UPDATE journal SET seq = seq - 100 WHERE partition = 1 AND number = 1`},
		chain.Finding{What: chain.Changed, Partition: 1, Height: 2, Table: "journal", Number: 1, Seq: 1, Task: "t1-1"}},
	{"a task moved to another partition", []string{`UPDATE journal SET partition = 0 WHERE partition = 2 AND number = 3`, `UPDATE tasks SET partition = 0 WHERE partition = 2 AND number = 3`},
		chain.Finding{What: chain.Inserted, Partition: 0, Table: "tasks", Number: 3, Seq: 1, Task: "t2-3"}},
	{"the end of a task's row", []string{`UPDATE tasks SET state = 'processed' WHERE partition = 2 AND number = 1`},
		chain.Finding{What: chain.Changed, Partition: 2, Height: 3, Table: "tasks", Number: 1, Seq: 2, Task: "t2-1"}},
	{"the id of a task", []string{`UPDATE tasks SET id = 'other' WHERE partition = 1 AND number = 4`},
		chain.Finding{What: chain.Changed, Partition: 1, Height: 4, Table: "tasks", Number: 4, Seq: 1, Task: "other"}},
	{"the row of a task removed", []string{`DELETE FROM tasks WHERE partition = 2 AND number = 2`},
		chain.Finding{What: chain.Removed, Partition: 2, Height: 3, Table: "tasks", Number: 2, Seq: 2}},
	{"a link removed", []string{`DELETE FROM chain WHERE partition = 1 AND height = 3`},
		chain.Finding{What: chain.BadLink, Partition: 1, Height: 3}},
	{"the first link removed", []string{`DELETE FROM chain WHERE partition = 1 AND height = 1`},
		chain.Finding{What: chain.BadLink, Partition: 1, Height: 2}},
	{"a link changed", []string{`UPDATE chain SET commit_id = commit_id + 1 WHERE partition = 2 AND height = 2`},
		chain.Finding{What: chain.BadLink, Partition: 2, Height: 2}},
	{"links exchanged", []string{`UPDATE chain SET height = -height WHERE partition = 1 AND height IN (2, 3)`, `UPDATE chain SET height = 5 + height WHERE partition = 1 AND height < 0`},
		chain.Finding{What: chain.BadLink, Partition: 1, Height: 2}},
	{"a link of another partition", []string{`DELETE FROM chain WHERE partition = 2 AND height = 3`, `INSERT INTO chain (partition, height, epoch, commit_id, linked_at, kind, content, hash)
		SELECT 2, height, epoch, commit_id, linked_at, kind, content, hash FROM chain WHERE partition = 1 AND height = 3`},
		chain.Finding{What: chain.BadLink, Partition: 2, Height: 3}},
}

// Whatever is changed behind Duly's back is found, and named first.
func testPlanted(r *chainRig) {
	r.history()
	for _, c := range planted {
		r.t.Run(c.name, func(t *testing.T) {
			in := *r
			in.rig = &rig{TB: t, ctx: r.ctx, s: r.s, calm: r.calm, db: r.db, own: r.own, commit: r.commit}
			in.fits(in.verify())
			undo := in.saved()
			in.plant(c.statements...)
			in.first(in.verify(), c.want)
			undo()
			in.fits(in.verify())
		})
	}
}

// saved keeps the tables that are changed, and returns what brings them back.
func (r *chainRig) saved() func() {
	r.Helper()
	tables := []string{"journal", "tasks", "chain"}
	for _, t := range tables {
		get(r.db.ExecContext(r.ctx, `CREATE TABLE kept_`+t+` AS SELECT * FROM `+t))(r.rig)
	}
	return func() {
		r.Helper()
		for _, t := range tables {
			for _, s := range []string{`DELETE FROM ` + t, `INSERT INTO ` + t + ` SELECT * FROM kept_` + t, `DROP TABLE kept_` + t} {
				get(r.db.ExecContext(r.ctx, s))(r.rig)
			}
		}
	}
}

// What the chain alone cannot show, heads that are kept elsewhere do: an end that is cut off, and
// a chain that was made again.
func testPlantedHeads(r *chainRig) {
	r.history()
	public, key, err := ed25519.GenerateKey(nil)
	r.must(err)
	signed := r.heads()
	for i := range signed {
		signed[i].Sign(key)
	}
	held := func(all ...chain.Head) func(*chain.Options) {
		return func(o *chain.Options) { o.Heads, o.Key = all, public }
	}
	report := r.verify(held(signed...))
	r.fits(report)
	if !strings.Contains(report.Sentence(), "2 signed heads") {
		r.Errorf("with signed heads: %s", report.Sentence())
	}
	forged, unsigned, foreign := signed[0], signed[0], signed[0]
	forged.Height++
	unsigned.Signature = ""
	foreign.Installation = "another"
	for _, h := range []chain.Head{forged, unsigned, foreign} {
		r.first(r.verify(held(h)), chain.Finding{What: chain.BadHead, Partition: 1, Height: h.Height})
	}
	undo := r.saved()
	r.plant(`DELETE FROM journal WHERE partition = 2 AND commit_id = 4`, `DELETE FROM tasks WHERE partition = 2 AND number = 3`, `DELETE FROM chain WHERE partition = 2 AND height = 4`)
	r.fits(r.verify()) // which is what heads are for
	r.first(r.verify(held(signed...)), chain.Finding{What: chain.Truncated, Partition: 2, Height: 4})
	undo()
	undo = r.saved()
	r.plant(`UPDATE journal SET actor = 'mallory' WHERE partition = 1 AND number = 2 AND seq = 2`)
	r.remake(1, 3)
	r.first(r.verify(), chain.Finding{What: chain.BadLink, Partition: 1, Height: 4}) // the next one does not follow
	undo()
	r.plant(`UPDATE journal SET actor = 'mallory' WHERE partition = 1 AND number = 4`)
	r.remake(1, 4)
	r.fits(r.verify())
	r.first(r.verify(held(signed...)), chain.Finding{What: chain.BadHead, Partition: 1, Height: 4})
}

// remake makes a link fit the rows as they are now, as one could who may write the database.
func (r *chainRig) remake(partition int, height int64) {
	r.Helper()
	view := get(r.source().View(r.ctx, partition))(r.rig)
	var before, link chain.Link
	r.must(view.Links(r.ctx, 0, func(l *chain.Link) error {
		switch l.Height {
		case height - 1:
			before = *l
		case height:
			link = *l
		}
		return nil
	}))
	content := get(chain.DecodeContent(link.Content))(r.rig)
	link.Content = nil
	var h chain.Hasher
	for i := range content.Entries {
		e := &content.Entries[i]
		if !e.Task {
			r.must(view.Rows(r.ctx, e.Number, e.Number+1, func(row *chain.Row) error {
				if row.Int("seq") == e.Seq {
					e.Digest = h.Row(row)
				}
				return nil
			}))
		}
		link.Content = chain.AppendEntry(link.Content, e, false)
	}
	r.must(view.Close())
	hash := link.HashAfter(before.Hash)
	get(r.db.ExecContext(r.ctx, `UPDATE chain SET content = $1, hash = $2 WHERE partition = $3 AND height = $4`, link.Content, hash[:], partition, height))(r.rig)
}

func testChainRange(r *chainRig) {
	r.history()
	r.write(birth(1, 5000, "far"), birth(1, 9000, "farther"))
	r.plant(`DELETE FROM journal WHERE partition = 1 AND number = 5000`, `UPDATE journal SET actor = 'mallory' WHERE partition = 1 AND number = 9000`)
	r.plant(`UPDATE journal SET state = 'undone' WHERE partition = 1 AND number = 1 AND seq = 2`, `DELETE FROM journal WHERE partition = 2 AND number = 3`)
	part := func(partition int, from, to int64) func(*chain.Options) {
		return func(o *chain.Options) { o.Partition, o.From, o.To = partition, from, to }
	}
	r.fits(r.verify(part(1, 4, 4)))
	r.first(r.verify(part(1, 4, 0)), chain.Finding{What: chain.Removed, Partition: 1, Height: 5, Table: "journal", Number: 5000, Seq: 1, Task: "far"})
	r.fits(r.verify(part(1, 1, 2)))
	r.fits(r.verify(part(2, 1, 3)))
	r.first(r.verify(part(1, 3, 3)), chain.Finding{What: chain.Changed, Partition: 1, Height: 3, Table: "journal", Number: 1, Seq: 2, Task: "t1-1"})
	r.first(r.verify(part(2, 4, 4)), chain.Finding{What: chain.Removed, Partition: 2, Height: 4, Table: "journal", Number: 3, Seq: 1, Task: "t2-3"})
	// However few rows are held at a time, the same is found.
	whole, small := r.verify(), r.verify(func(o *chain.Options) { o.EntriesMax = 1 })
	r.equal("report with little memory", small, whole)
	if len(whole.Findings) != 4 {
		r.Errorf("found: %+v", whole.Findings)
	}
}

func testChainExport(r *chainRig) {
	r.history()
	r.write(next(birth(1, 4, "t1-4").Task, false, func(_ *core.Task, rec *core.Record) {
		rec.Kind, rec.Error, rec.Reason, rec.Code = core.KindFailed, "\xff\x00 not text", "so", 500
	}))
	f := &memoryFile{}
	r.must(chain.Export(r.ctx, r.source(), -1, f))
	whole := f.data
	check := func(data []byte) (*chain.Report, error) {
		file, err := chain.OpenFile(context.Background(), strings.NewReader(string(data)), schema.Columns().Chained())
		if err != nil {
			return nil, err
		}
		return chain.Verify(r.ctx, file, chain.Options{Partition: -1, Heads: r.heads()})
	}
	report := get(check(whole))(r.rig)
	r.fits(report)
	r.equal("report of the export", report, r.verify(withHeads(r.heads())))
	if _, err := check(whole[:len(whole)-14]); err == nil || !strings.Contains(err.Error(), "cut off") {
		r.Errorf("an export without its end: %v", err)
	}
	changed := strings.Replace(string(whole), `"kind":"done"`, `"kind":"asked"`, 1)
	r.first(get(check([]byte(changed)))(r.rig), chain.Finding{What: chain.Changed, Partition: 1, Height: 3, Table: "journal", Number: 1, Seq: 2, Task: "t1-1"})
}

// memoryFile is what an export is written to.
type memoryFile struct{ data []byte }

func (m *memoryFile) Write(b []byte) (int, error) {
	m.data = append(m.data, b...)
	return len(b), nil
}
