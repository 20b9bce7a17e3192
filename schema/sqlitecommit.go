package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// OR FAIL: a refused row ends the whole transaction anyway, so SQLite need not
// keep what it takes to end the statement alone.
const (
	liteFence = `UPDATE partitions SET cursor = ?, control_cursor = ?, next_number = ?, next_end = ?, told = ?, last_commit = ?, cursor_stored = ?,
		control_stored = ? WHERE partition = ? AND epoch = ? AND last_commit IN (?, ?)`
	liteBirth = `INSERT OR FAIL INTO tasks (partition, number, id, type, plan_version, input_hash, state, seq, round, locked_by, waits_for, complete_by, deadline,
		failure_count, reply_to, trace, origin, created_at, updated_at, ended_at, end_number, commit_id) VALUES `
	liteBirthRow      = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	liteBirthConflict = ` ON CONFLICT (partition, id) DO NOTHING`
	liteRow           = `UPDATE OR FAIL tasks SET plan_version = ?, state = ?, seq = ?, round = ?, locked_by = ?, waits_for = ?, complete_by = ?,
		deadline = ?, failure_count = ?, updated_at = ?, ended_at = ?, end_number = ?, commit_id = ? WHERE partition = ? AND number = ? AND seq < ?`
	liteJournal = `INSERT OR FAIL INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint,
		reason, result, quiet, next, next_attempt, undo, due, deadline, input) VALUES `
	liteJournalRow      = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	liteJournalConflict = ` ON CONFLICT DO NOTHING`
	liteJournalCommit   = `SELECT commit_id FROM journal WHERE partition = ? AND number = ? AND seq = ?`
	liteExisting        = `SELECT number, id, type, input_hash, state, commit_id FROM tasks WHERE partition = ? AND id = ?`
)

// liteCommit writes batches; its memory is kept between them. Only who has the
// store's turn may use it.
type liteCommit struct {
	conn            *liteConn
	births, journal *liteRows
	args            liteArgs
	b               *core.Batch
	res             core.CommitResult
	own             map[int]bool // partitions whose epoch is still ours
	left            map[int]bool // writes whose births were left out
	order           []int        // births, as they are written
	twice           []liteTwice  // births whose ids are others' already
	told            int          // pages written when the WAL was last told to have grown
}

// liteTwice is a duplicate and where in the batch it is.
type liteTwice struct {
	write int
	core.Duplicate
}

func newLiteCommit(conn *liteConn) *liteCommit {
	c := &liteCommit{
		conn: conn, own: map[int]bool{}, left: map[int]bool{},
		births:  newLiteRows(liteBirth, liteBirthRow, liteBirthConflict),
		journal: newLiteRows(liteJournal, liteJournalRow, liteJournalConflict),
	}
	c.births.missing, c.journal.missing = c.taken, c.standing
	return c
}

// Commit implements Store: the same as PostgreSQL's, in statements of many rows
// under BEGIN IMMEDIATE. A transaction that has begun is not given up when ctx
// ends: it is short, and its outcome would be unknown.
func (s *sqlite) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if err := complete(b); err != nil || len(b.Partitions) == 0 {
		return core.CommitResult{}, err
	}
	for i := range b.Writes {
		if t := b.Writes[i].Task; !storable(t) {
			return core.CommitResult{}, fmt.Errorf("task %d of partition %d: a text is not UTF-8 or holds a NUL: %w", t.Number, t.Partition, core.ErrRowRefused)
		}
	}
	watch := s.commits.begin()
	res, err := s.commitWatched(ctx, b, watch)
	watch.end(err, errors.Is(err, core.ErrRowRefused))
	if err != nil {
		return core.CommitResult{}, err
	}
	return res, s.reasons(ctx, res.Duplicates)
}

// commitWatched sends the batch until its outcome is known, as that of postgres.
func (s *sqlite) commitWatched(ctx context.Context, b *core.Batch, watch *commitWatch) (core.CommitResult, error) {
	var past sendings
	for try := 0; ; try++ {
		res, err := s.commitOnce(ctx, b)
		if err == nil {
			return res, nil
		}
		judged, send := s.judge(ctx, b, err, &past)
		if !send {
			return core.CommitResult{}, judged
		}
		watch.failing(judged)
		if err := errors.Join(pause(ctx, try), ctx.Err()); err != nil {
			return core.CommitResult{}, fmt.Errorf("commit %d: %w: %w", b.ID, err, judged)
		}
	}
}

func (s *sqlite) commitOnce(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if err := s.takeTurn(ctx); err != nil {
		return core.CommitResult{}, err
	}
	defer s.endTurn()
	res, err := s.commit.do(b)
	if s.commit.grown() {
		s.wal.grown()
	}
	return res, err
}

// storable holds SQLite to what PostgreSQL takes as text; its own checks stop at a
// NUL.
func storable(t *core.Task) bool {
	for _, text := range []string{t.ID, t.Type, t.ReplyTo, t.Trace, t.LockedBy, t.WaitsFor} {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return false
		}
	}
	return true
}

func (c *liteCommit) do(b *core.Batch) (core.CommitResult, error) {
	c.b, c.res, c.twice = b, core.CommitResult{}, nil
	defer func() { c.b = nil }()
	clear(c.own)
	clear(c.left)
	c.births.reset()
	c.journal.reset()
	err := c.conn.transact(c.write)
	return c.res, err
}

// grown reports, now and then, that the WAL has grown.
func (c *liteCommit) grown() bool {
	const step = liteRound / 8
	n := c.conn.written()
	if n-c.told < step {
		return false
	}
	c.told = n
	return true
}

// write writes the batch: all births before the journal, because a birth that
// finds its id taken leaves its journal rows out.
func (c *liteCommit) write() error {
	if err := c.fence(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := c.writeBirths(); err != nil {
		return fmt.Errorf("births: %w", err)
	}
	for i := range c.b.Writes {
		w := &c.b.Writes[i]
		if !c.own[w.Task.Partition] || c.left[i] {
			continue
		}
		if w.Row && !w.Birth {
			if err := c.update(w.Task); err != nil {
				return fmt.Errorf("task %s: %w", w.Task.ID, err)
			}
		}
		for k := range w.Records {
			c.journal.addRecord(c.b.ID, w.Task, &w.Records[k], inputOf(w, k))
			if err := c.journal.end(c.conn, i, k); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
		}
	}
	if err := c.journal.flush(c.conn); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// fence moves the partitions whose row is as their owner left it.
func (c *liteCommit) fence() error {
	for i := range c.b.Partitions {
		w := &c.b.Partitions[i]
		c.args.reset()
		for _, v := range [...]int64{int64(w.Cursor), int64(w.ControlCursor), w.NextNumber, w.NextEnd, w.Told, c.b.ID} {
			c.args.int(v)
		}
		c.args.intOr(int64(w.CursorStored), 0)
		c.args.intOr(int64(w.ControlStored), 0)
		for _, v := range [...]int64{int64(w.Partition), w.Epoch, w.After, c.b.ID} {
			c.args.int(v)
		}
		n, err := c.conn.exec(liteFence, &c.args)
		if err != nil {
			return err
		}
		if n == 0 {
			c.res.Fenced = append(c.res.Fenced, w.Partition)
		} else {
			c.own[w.Partition] = true
		}
	}
	return nil
}

// writeBirths writes births in the order of their ids, so each page of the index of
// ids is gone to once, however random the ids are.
func (c *liteCommit) writeBirths() error {
	c.order = c.order[:0]
	for i := range c.b.Writes {
		if w := &c.b.Writes[i]; w.Birth && c.own[w.Task.Partition] {
			c.order = append(c.order, i)
		}
	}
	slices.SortFunc(c.order, func(i, k int) int {
		a, b := c.b.Writes[i].Task, c.b.Writes[k].Task
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), strings.Compare(a.ID, b.ID), cmp.Compare(i, k))
	})
	for _, i := range c.order {
		c.births.addTask(c.b.ID, c.b.Writes[i].Task)
		if err := c.births.end(c.conn, i, 0); err != nil {
			return err
		}
	}
	if err := c.births.flush(c.conn); err != nil {
		return err
	}
	slices.SortFunc(c.twice, func(a, b liteTwice) int { return cmp.Compare(a.write, b.write) })
	for _, d := range c.twice {
		c.res.Duplicates = append(c.res.Duplicates, d.Duplicate)
	}
	return nil
}

// taken finds out whose the ids of births are: ours, now or by an earlier sending
// of this batch, or another task's.
func (c *liteCommit) taken(births []liteSource) error {
	for _, from := range births {
		t := c.b.Writes[from.write].Task
		var e core.Existing
		var commit int64
		c.args.reset()
		c.args.int(int64(t.Partition))
		c.args.text(t.ID)
		found, err := c.conn.row(liteExisting, &c.args, func(r liteFound) {
			e = core.Existing{Partition: t.Partition, Number: r.int(0), ID: r.text(1), Type: r.text(2), InputHash: r.blob(3), State: core.State(r.text(4))}
			commit = r.int(5)
		})
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("task %s: neither inserted nor there", t.ID)
		}
		if commit != c.b.ID || e.Number != t.Number {
			c.left[from.write] = true
			c.twice = append(c.twice, liteTwice{from.write, core.Duplicate{Partition: t.Partition, Number: t.Number, Existing: e}})
		}
	}
	return nil
}

// standing checks that journal rows stand under our commit: as they do when this
// batch was sent before.
func (c *liteCommit) standing(rows []liteSource) error {
	for _, from := range rows {
		w := &c.b.Writes[from.write]
		seq := w.Records[from.record].Seq
		var commit int64
		c.args.reset()
		c.args.int(int64(w.Task.Partition))
		c.args.int(w.Task.Number)
		c.args.int(seq)
		found, err := c.conn.row(liteJournalCommit, &c.args, func(r liteFound) { commit = r.int(0) })
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("row %d of task %s: neither inserted nor there", seq, w.Task.ID)
		}
		if commit != c.b.ID {
			return fmt.Errorf("row %d of task %s: %w", seq, w.Task.ID, core.ErrForeignRow)
		}
	}
	return nil
}
