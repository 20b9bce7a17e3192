package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// Only its owner continues the chain of a partition (package internal/chain). A takeover reads the last link
// while it holds the partition's row, and from then on the owner has it in memory. A commit writes the next
// link in the transaction that moves the partition's row: the link stands if and only if the commit does, and
// two owners cannot both write one at the same height. Nothing else writes links.

// chains is what a store remembers of the chains of the partitions that were taken over through it.
type chains struct {
	// kept says that takeovers and commits write links. Set once, before the first takeover.
	kept bool

	mu sync.Mutex
	// heads has the last link of each partition, as of the last commit that came through here.
	heads map[int]chainHead
	// trims has what the next link of a partition names again, before the links that named it first are
	// deleted.
	trims map[int]*trimming

	// takeovers has a lock for each partition, which its takeover holds.
	takeovers map[int]*sync.Mutex
}

// lockTakeover makes takeovers of one partition through this store wait for each other. Call done only after
// heads has the link: if another takeover fell between the end of the transaction and that, the older head
// would overwrite the newer one.
func (b *Base) lockTakeover(partition int) (done func()) {
	b.chains.mu.Lock()
	mu := b.chains.takeovers[partition]
	if mu == nil {
		if b.chains.takeovers == nil {
			b.chains.takeovers = map[int]*sync.Mutex{}
		}
		mu = &sync.Mutex{}
		b.chains.takeovers[partition] = mu
	}
	b.chains.mu.Unlock()
	mu.Lock()
	return mu.Unlock
}

// chainHead is the last link of a partition.
type chainHead struct {
	epoch, height, commit int64
	hash                  chain.Hash
}

// KeepChain switches the chain on. Call it before the first takeover.
func (b *Base) KeepChain() {
	b.chains.kept = true
	b.chains.heads, b.chains.trims = map[int]chainHead{}, map[int]*trimming{}
}

// Statements of a takeover that keeps the chain. chain_epoch is the last epoch whose owner kept it: if that
// is not the epoch before, an owner in between kept none.
const (
	qKeptUntil  = `SELECT p.chain_epoch, (SELECT COALESCE(max(c.height), 0) FROM chain c WHERE c.partition = ?1) FROM partitions p WHERE p.partition = ?1`
	qLastLink   = `SELECT linked_at, commit_id, hash FROM chain WHERE partition = ?1 AND height = ?2`
	qChainEpoch = `UPDATE partitions SET chain_epoch = epoch WHERE partition = ?1`
)

// noEpoch is an epoch that no owner has.
const noEpoch = -1

// writeTakeOver stores, in the transaction of a takeover, the partition's row, its epoch for the places of limits, and a
// link of its chain where one is due. done puts the chain's end into memory: call it after the commit.
func (b *Base) writeTakeOver(ctx context.Context, tx Tx, st *core.PartitionState, at core.Instant) (done func(), err error) {
	query, args := b.takeOver(st)
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, qTaken, st.Partition, st.Epoch); err != nil {
		return nil, fmt.Errorf("places of partition %d: %w", st.Partition, err)
	}
	return b.continueChain(ctx, tx, st, at)
}

// continueChain reads the end of a partition's chain in the transaction of a takeover. It adds a link where
// the chain begins, where it begins again because an owner in between kept none, and where the database went
// back in time. Call done after the commit: it puts the end into memory.
func (b *Base) continueChain(ctx context.Context, tx Tx, st *core.PartitionState, at core.Instant) (done func(), err error) {
	if !b.chains.kept {
		return func() {}, nil
	}
	var epoch, height int64
	var last instant
	var hash []byte
	if err := tx.Row(ctx, qKeptUntil, st.Partition).Scan(&epoch, &height); err != nil {
		return nil, fmt.Errorf("chain of partition %d: %w", st.Partition, err)
	}
	head := chainHead{epoch: st.Epoch, height: height}
	if height > 0 {
		if err = tx.Row(ctx, qLastLink, st.Partition, height).Scan(&last, &head.commit, &hash); err != nil {
			return nil, fmt.Errorf("chain of partition %d: link %d: %w", st.Partition, height, err)
		}
	}
	// Without a link the chain begins. A hash of a wrong length means that someone changed the link: the chain
	// begins again, a check finds out, and tasks go on.
	var bad error
	if head.hash, bad = chain.HashOf(hash); bad != nil {
		epoch = noEpoch
	}
	link := chain.Link{Partition: st.Partition, Height: height + 1, Epoch: st.Epoch, Commit: st.LastCommit, At: at, Content: []byte{}}
	switch {
	case epoch != st.Found.Epoch:
		link.Kind = chain.KindBegin
		link.Content = chain.AppendBegin(link.Content, &chain.Begin{NextNumber: st.NextNumber, Since: core.Instant(last), At: at})
	case st.Found.WentBack:
		link.Kind = chain.KindWentBack
	}
	if link.Kind != 0 {
		link.Hash = link.HashAfter(head.hash)
		// This link is written only at the beginning of a chain and after the database went back; otherwise
		// the next commit's continues the chain.
		if _, err := tx.Exec(ctx, b.sql.link, Args(nil, b.tables.Chain, &link, b.time)...); err != nil {
			return nil, fmt.Errorf("chain of partition %d: link %d: %w", st.Partition, link.Height, err)
		}
		head.height, head.commit, head.hash = link.Height, link.Commit, link.Hash
	}
	if _, err := tx.Exec(ctx, qChainEpoch, st.Partition); err != nil {
		return nil, fmt.Errorf("chain of partition %d: %w", st.Partition, err)
	}
	return func() {
		b.chains.mu.Lock()
		defer b.chains.mu.Unlock()
		b.chains.heads[st.Partition] = head
		delete(b.chains.trims, st.Partition)
	}, nil
}

// Links are what a commit adds to the chains: a link for each partition in which it writes a task. Empty
// where no chain is kept.
type Links struct {
	All []chain.Link
	// heads has, for each link, the one before it.
	heads []chainHead
	// trims has, for each link, the trim that its content names; nil: none.
	trims []*trimming
	of    *Base
	batch *core.Batch
}

// Links makes the links of a batch. Error: a partition of it was not taken over through this store.
func (b *Base) Links(batch *core.Batch) (l Links, err error) {
	if !b.chains.kept || len(batch.Writes) == 0 {
		return l, nil
	}
	return b.links(batch, nil)
}

// Without makes the links anew without the births that were duplicates. It does not leave out fenced
// partitions: whoever writes the links skips those.
func (l Links) Without(duplicates []core.Duplicate) (Links, error) {
	if len(l.All) == 0 || len(duplicates) == 0 {
		return l, nil
	}
	return l.of.links(l.batch, duplicates)
}

// links makes the links of a batch, less births that turned out to be duplicates.
func (b *Base) links(batch *core.Batch, without []core.Duplicate) (Links, error) {
	l := Links{of: b, batch: batch}
	index := make(map[int]int, len(batch.Partitions))
	d := digests{of: b.sql}
	for i := range batch.Writes {
		w := &batch.Writes[i]
		if w.Birth && slices.ContainsFunc(without, func(d core.Duplicate) bool { return d.Partition == w.Task.Partition && d.Number == w.Task.Number }) {
			continue
		}
		at, ok := index[w.Task.Partition]
		if !ok {
			at = len(l.All)
			switch err := b.beginLink(&l, w.Task.Partition); {
			// The batch was sent before and came through: the chain has its link, and no second one may be
			// written.
			case errors.Is(err, errLinked):
				at = -1
			case err != nil:
				return l, fmt.Errorf("commit %d: %w", batch.ID, err)
			}
			index[w.Task.Partition] = at
		}
		if at < 0 {
			continue
		}
		d.nameRows(&l.All[at], w, batch.ID)
	}
	for i := range l.All {
		l.All[i].Hash = l.All[i].HashAfter(l.heads[i].hash)
	}
	return l, nil
}

// beginLink appends the partition's next link to l, with what it names again for a trim. Error: errLinked.
func (b *Base) beginLink(l *Links, partition int) error {
	b.chains.mu.Lock()
	defer b.chains.mu.Unlock()
	head, ok := b.chains.heads[partition]
	if !ok {
		return fmt.Errorf("chain of partition %d: its end is not known: it was not taken over here", partition)
	}
	if head.commit == l.batch.ID { // it is sent again, and its link stands
		return errLinked
	}
	link := chain.Link{Partition: partition, Height: head.height + 1, Epoch: head.epoch, Commit: l.batch.ID, Kind: chain.KindCommit}
	link.Content = make([]byte, 0, linkBytes)
	t := b.chains.trims[partition]
	if t != nil && t.named {
		t = nil
	}
	if t != nil {
		link.Content = append(link.Content, t.content...)
	}
	l.All, l.heads, l.trims = append(l.All, link), append(l.heads, head), append(l.trims, t)
	return nil
}

// errLinked says that the batch is being sent again and its link in this partition already stands.
var errLinked = errors.New("it is linked already")

// linkBytes is room for the content of most links.
const linkBytes = 256

// digests computes the digests of the rows of a commit, with memory that it uses again for each row.
type digests struct {
	chain.Hasher
	of      *queries
	row     chain.Row
	task    TaskRow
	journal JournalRow
}

// nameRows appends to a link the number, the seq and the digest of every row that a write stores.
func (d *digests) nameRows(l *chain.Link, w *core.TaskWrite, commit int64) {
	for k := range w.Records {
		d.journal = NewJournalRow(w, k, commit)
		e := chain.Entry{Number: w.Task.Number, Seq: d.journal.Seq, Digest: digest(d, d.of.chained.Journal, d.of.chainedJournal, &d.journal)}
		l.Content = chain.AppendEntry(l.Content, &e, false)
		l.At = max(l.At, d.journal.At)
	}
	if !w.Birth && (!w.Row || len(w.Records) == 0) { // a row is written only where its seq rises
		return
	}
	d.task = TaskRow{Task: w.Task, Commit: commit} // no digest covers its open signals
	e := chain.Entry{Number: w.Task.Number, Seq: w.Task.Seq, Task: true, Digest: digest(d, d.of.chained.Tasks, d.of.chainedTasks, &d.task)}
	if w.Task.State == core.StateProcessed || w.Task.State == core.StateUndone {
		e.EndedAt = w.Task.EndedAt
	}
	l.Content = chain.AppendEntry(l.Content, &e, false)
}

// digest is the digest of a row of a table.
func digest[R any](d *digests, table *chain.Table, columns []Column[R], r *R) chain.Digest {
	d.row.Table, d.row.Values = table, d.row.Values[:0]
	for i := range columns {
		d.row.Values = append(d.row.Values, columns[i].value(r))
	}
	return d.Row(&d.row)
}

// Linked puts the links of a commit that came through into memory, less those of partitions that were fenced.
func (b *Base) Linked(l Links, fenced []int) {
	if len(l.All) == 0 {
		return
	}
	b.chains.mu.Lock()
	defer b.chains.mu.Unlock()
	for i := range l.All {
		link := &l.All[i]
		if slices.Contains(fenced, link.Partition) || b.chains.heads[link.Partition] != l.heads[i] {
			continue // it was taken over meanwhile
		}
		b.chains.heads[link.Partition] = chainHead{epoch: link.Epoch, height: link.Height, commit: link.Commit, hash: link.Hash}
		// A trim that was planned while the commit was under way is not in its link.
		if t := l.trims[i]; t != nil {
			t.named = true
		}
	}
}

// ChainHeads returns the last links of the partitions that were taken over here, as of their last commits
// here; none where no chain is kept. It leaves Installation and At empty.
func (b *Base) ChainHeads() []chain.Head {
	b.chains.mu.Lock()
	defer b.chains.mu.Unlock()
	var all []chain.Head
	for p, h := range b.chains.heads {
		if h.height > 0 {
			all = append(all, chain.Head{Partition: p, Height: h.height, Epoch: h.epoch, Commit: h.commit, Hash: h.hash})
		}
	}
	slices.SortFunc(all, func(a, b chain.Head) int { return a.Partition - b.Partition })
	return all
}

// ChainEnds returns by partition the height of its last link. A partition without a chain is missing.
func (a *asked) ChainEnds(ctx context.Context) (map[int]int64, error) {
	partitions, err := column[int](ctx, a.of, `SELECT partition FROM partitions`)
	if err != nil {
		return nil, fmt.Errorf("chains: %w", err)
	}
	ends := map[int]int64{}
	for _, p := range partitions {
		height, err := column[int64](ctx, a.of, qChainEnd, p)
		if err != nil {
			return nil, fmt.Errorf("chain of partition %d: %w", p, err)
		}
		if len(height) > 0 {
			ends[p] = height[0]
		}
	}
	return ends, nil
}

// qChainEnd reads the height of the last link.
const qChainEnd = `SELECT height FROM chain WHERE partition = ?1 ORDER BY height DESC LIMIT 1`

// Retention of links. A chain only loses links at its old end, in two steps. When the oldest links are older
// than what is kept of tasks, the next commit's link names again the rows in them of tasks that still have a
// journal, and says up to which height it has done so. Once that link is committed the older ones are
// deleted. So a partition without commits keeps its links.

// trimming is a trim of a partition's links between its two steps.
type trimming struct {
	// below is the height below which links are deleted in the second step.
	below int64
	// content is what the next link has to name again.
	content []byte
	// named says that a committed link has named it, so that the deletion may follow.
	named bool
}

const (
	// trimLeast is how many old links there must be for a trim to begin. trimMost is how many links one trim
	// deletes at most, and trimBytes how much content it reads for that.
	trimLeast = 64
	trimMost  = 1024
	trimBytes = 1 << 20
)

const (
	qOldLinks = `SELECT height, linked_at, content, hash FROM chain WHERE partition = ?1 AND height >= ?2 ORDER BY height LIMIT ?3`
	qOldEdge  = `SELECT linked_at FROM chain WHERE partition = ?1 AND height = (SELECT min(x.height) FROM chain x WHERE x.partition = ?1) + ?2`
	qLiving   = `SELECT DISTINCT number`
	qTrim     = `DELETE FROM chain WHERE partition = ?1 AND height < ?2 AND EXISTS (SELECT 1 FROM partitions p WHERE p.partition = ?1 AND p.epoch = ?3)`
)

// TrimChain takes the next step in trimming a partition's links, for tasks that ended before detail; 0: none
// are forgotten, so nothing is trimmed. A purge calls it. It does nothing when another owner has the
// partition.
func (b *Base) TrimChain(ctx context.Context, partition int, epoch int64, detail core.Instant) error {
	if !b.chains.kept || detail == 0 {
		return nil
	}
	b.chains.mu.Lock()
	head, ours := b.chains.heads[partition]
	t := b.chains.trims[partition]
	named := t != nil && t.named
	b.chains.mu.Unlock()
	switch {
	case !ours || head.epoch != epoch:
		return nil
	case t == nil:
		return b.planTrim(ctx, partition, head, detail)
	case !named:
		return nil
	}
	if _, err := b.writer.ExecContext(ctx, b.params(qTrim), partition, t.below, epoch); err != nil {
		return fmt.Errorf("chain of partition %d: links below %d: %w", partition, t.below, err)
	}
	b.setTrim(partition, head.epoch, nil)
	return nil
}

// setTrim stores or ends a trim, unless the partition was taken over meanwhile.
func (b *Base) setTrim(partition int, epoch int64, t *trimming) {
	b.chains.mu.Lock()
	defer b.chains.mu.Unlock()
	if b.chains.heads[partition].epoch != epoch {
		return
	}
	if t == nil {
		delete(b.chains.trims, partition)
		return
	}
	b.chains.trims[partition] = t
}

// planTrim prepares the first step: it finds out which links are old enough, and which tasks in them still
// have a journal.
func (b *Base) planTrim(ctx context.Context, partition int, head chainHead, detail core.Instant) error {
	edge, err := column[instant](ctx, &b.running.reader, qOldEdge, partition, trimLeast)
	if err != nil {
		return fmt.Errorf("chain of partition %d: %w", partition, err)
	}
	if len(edge) == 0 || core.Instant(edge[0]) >= detail {
		return nil
	}
	old, err := b.readOldLinks(ctx, partition, detail)
	if err != nil || old.last.Height == 0 {
		return err
	}
	living, err := b.living(ctx, partition, old.entries)
	if err != nil {
		return err
	}
	// The content says first up to where links are left out, and the hash there, which the chain goes on
	// from; then what of them still counts.
	t := &trimming{below: old.last.Height}
	t.content = chain.AppendTrim(t.content, &chain.Trim{Height: old.last.Height, Hash: old.last.Hash})
	for i := range old.begins {
		t.content = chain.AppendBegin(t.content, &old.begins[i])
	}
	for i := range old.entries {
		if e := &old.entries[i]; living[e.Number] {
			t.content = chain.AppendEntry(t.content, e, true)
		}
	}
	b.setTrim(partition, head.epoch, t)
	return nil
}

// oldLinks is the content of the oldest links of a partition, taken together.
type oldLinks struct {
	// last is the newest of them, without content.
	last    chain.Link
	entries []chain.Entry
	begins  []chain.Begin
}

// beginsMax bounds how many beginnings of the chain are named again. Further ones are merged into one.
const beginsMax = 32

// begin adds beginnings of the chain that a link tells of.
func (o *oldLinks) begin(all []chain.Begin) {
	for _, b := range all {
		if n := len(o.begins); n >= beginsMax {
			last := &o.begins[n-1]
			last.NextNumber, last.Since, last.At = max(last.NextNumber, b.NextNumber), min(last.Since, b.Since), max(last.At, b.At)
			continue
		}
		o.begins = append(o.begins, b)
	}
}

// readOldLinks reads links from the oldest one on, while they are older than before and trimMost and
// trimBytes allow. The oldest one does not count: if it was made by an earlier trim, its content may exceed trimBytes.
func (b *Base) readOldLinks(ctx context.Context, partition int, before core.Instant) (old oldLinks, err error) {
	first, size := true, 0
	for row := range each(b.query(ctx, qOldLinks, partition, 0, trimMost)) {
		var height int64
		var at instant
		var content, hash []byte
		if err := row.Scan(&height, &at, &content, &hash); err != nil {
			return old, fmt.Errorf("chain of partition %d: %w", partition, err)
		}
		// Links are in the order of time, so the rest is younger still.
		if core.Instant(at) >= before || size >= trimBytes {
			break
		}
		says, err := chain.DecodeContent(content)
		if err == nil {
			old.last.Hash, err = chain.HashOf(hash)
		}
		if err != nil {
			return old, fmt.Errorf("chain of partition %d: link %d: %w", partition, height, err)
		}
		old.last.Height = height
		if !first || height == 1 { // what lives of the first one that is left is named by a later link already
			size += len(content)
			old.entries = append(append(old.entries, says.Entries...), says.Carried...)
			old.begin(says.Begins)
		}
		first = false
	}
	return old, nil
}

// living returns which tasks of entries still have rows in the journal.
func (b *Base) living(ctx context.Context, partition int, entries []chain.Entry) (map[int64]bool, error) {
	var numbers []int64
	for i := range entries {
		numbers = append(numbers, entries[i].Number)
	}
	slices.Sort(numbers)
	living := map[int64]bool{}
	for some := range slices.Chunk(slices.Compact(numbers), livingPage) {
		found, err := column[int64](ctx, &b.running.reader, qLiving+b.among("journal", "number"), partition, b.list(some))
		if err != nil {
			return nil, fmt.Errorf("chain of partition %d: living tasks: %w", partition, err)
		}
		for _, n := range found {
			living[n] = true
		}
	}
	return living, nil
}

// livingPage is how many tasks one statement asks for.
const livingPage = 1000

// Chain opens the journal and its chain for a check, as of now. Each View of the source is a transaction that
// must be closed.
func (a *asked) Chain(ctx context.Context) (chain.Source, error) {
	s := &chainSource{r: a.of, options: a.snapshot, at: core.InstantOf(time.Now())}
	if err := a.of.db.QueryRowContext(ctx, qInstallation).Scan(&s.installation, new(string)); err != nil {
		return nil, fmt.Errorf("installation of this database: %w", err)
	}
	var err error
	if s.partitions, err = column[int](ctx, a.of, `SELECT partition FROM partitions ORDER BY partition`); err != nil {
		return nil, fmt.Errorf("partitions: %w", err)
	}
	return s, nil
}

// chainSource implements chain.Source.
type chainSource struct {
	r            *reader
	options      *sql.TxOptions
	installation string
	at           core.Instant
	partitions   []int
}

// Installation implements chain.Source.
func (s *chainSource) Installation() string { return s.installation }

// At implements chain.Source.
func (s *chainSource) At() core.Instant { return s.at }

// Partitions implements chain.Source.
func (s *chainSource) Partitions() []int { return s.partitions }

// LeftOut implements chain.Source.
func (s *chainSource) LeftOut() []int { return nil }

// View implements chain.Source.
func (s *chainSource) View(ctx context.Context, partition int) (chain.View, error) {
	tx, err := s.r.db.BeginTx(ctx, s.options)
	if err != nil {
		return nil, fmt.Errorf("partition %d: %w", partition, err)
	}
	return &chainView{s.r, tx, partition}, nil
}

// chainView implements chain.View: a partition as of one moment.
type chainView struct {
	r         *reader
	tx        *sql.Tx
	partition int
}

// Close implements chain.View.
func (v *chainView) Close() error {
	if err := v.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Rows per statement, so that none runs long.
const (
	linksPage = 256
	rowsPage  = 512
)

// paged calls page until it returns fewer rows than a full page.
func paged(full int, page func() (int, error)) error {
	for {
		n, err := page()
		if err != nil || n < full {
			return err
		}
	}
}

// read passes every row of a query to scan. what is for errors.
func (v *chainView) read(ctx context.Context, what, query string, args []any, scan func(*sql.Rows) error) (err error) {
	rows, err := v.tx.QueryContext(ctx, v.r.params(query), args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		if err == nil {
			err = rows.Err()
		}
	}
	return about(err, "%s of partition %d", what, v.partition)
}

// Links implements chain.View.
func (v *chainView) Links(ctx context.Context, from int64, yield func(*chain.Link) error) error {
	return paged(linksPage, func() (int, error) {
		var page []chain.Link
		err := v.read(ctx, "chain", v.r.sql.viewLinks, []any{v.partition, from, linksPage}, func(rows *sql.Rows) error {
			var l chain.Link
			err := rows.Scan(targets(v.r.tables.Chain, &l)...)
			page = append(page, l)
			return err
		})
		for i := range page {
			if err == nil {
				err = yield(&page[i])
			}
			from = page[i].Height + 1
		}
		return len(page), err
	})
}

// Rows implements chain.View.
func (v *chainView) Rows(ctx context.Context, low, high int64, yield func(*chain.Row) error) error {
	return rowsOf(ctx, v, "journal", v.r.sql.viewRows, v.r.sql.chained.Journal, v.r.sql.chainedJournal, low, high, yield)
}

// Tasks implements chain.View.
func (v *chainView) Tasks(ctx context.Context, low, high int64, yield func(*chain.Row) error) error {
	return rowsOf(ctx, v, "tasks", v.r.sql.viewTasks, v.r.sql.chained.Tasks, v.r.sql.chainedTasks, low, high, yield)
}

// maxSeq is above every seq: paging past it continues with the next task.
const maxSeq = 1<<63 - 1

// rowsOf yields the rows of a table with numbers from low up to below high, in pages, with their values as
// they are stored.
func rowsOf[R any](ctx context.Context, v *chainView, what, query string, table *chain.Table, columns []Column[R], low, high int64, yield func(*chain.Row) error) error {
	number, seq := low-1, int64(maxSeq)
	return paged(rowsPage, func() (int, error) {
		var page []chain.Row
		args := []any{v.partition, number, high, rowsPage}
		if table == v.r.sql.chained.Journal {
			args = append(args, seq)
		}
		err := v.read(ctx, what, query, args, func(rows *sql.Rows) error {
			r := chain.Row{Table: table, Values: make([]chain.Value, len(columns))}
			page = append(page, r)
			return rows.Scan(stored(columns, r.Values)...)
		})
		for i := range page {
			if err == nil {
				err = yield(&page[i])
			}
			number, seq = page[i].Int("number"), page[i].Int("seq")
		}
		return len(page), err
	})
}

// stored returns scan targets that take the columns' values unchanged, where Field.Into would interpret them.
func stored[R any](columns []Column[R], values []chain.Value) []any {
	to := make([]any, len(columns))
	for i := range columns {
		switch columns[i].Type {
		case Text:
			to[i] = &values[i].Text
		case Bytes:
			to[i] = &values[i].Bytes
		default:
			to[i] = (*instant)(&values[i].Int)
		}
	}
	return to
}
