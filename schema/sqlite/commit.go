package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// statements are the statements of a commit, with the columns that their parameters are.
type statements struct {
	of *schema.Tables
	// moved are the columns that a commit sets in partitions.
	moved []schema.Column[schema.PartitionRow]
	// tasks are the columns that a birth writes.
	tasks []schema.Column[schema.TaskRow]
	// changed are the columns that a later commit writes.
	changed []schema.Column[schema.TaskRow]

	fence, birth, row, journal, label, link string
}

// newStatements makes the statements for tables. Parameters are by position, in the order of the columns.
func newStatements(of *schema.Tables) *statements {
	s := &statements{of: of, moved: schema.Of(of.Partitions, schema.State), tasks: schema.Of(of.Tasks, schema.Key|schema.Birth|schema.State), changed: schema.Of(of.Tasks, schema.State)}
	s.fence = `UPDATE partitions SET ` + schema.Join(s.moved, "%[1]s = ?") + ` WHERE partition = ? AND epoch = ? AND last_commit IN (?, ?)`
	s.birth = insert("tasks", s.tasks) + ` ON CONFLICT (partition, id) DO NOTHING`
	s.row = `UPDATE tasks SET ` + schema.Join(s.changed, "%[1]s = ?") + ` WHERE partition = ? AND number = ? AND seq < ?`
	s.journal = insert("journal", of.Journal) + ` ON CONFLICT DO NOTHING`
	s.label = insert("labels", of.Labels) + ` ON CONFLICT DO NOTHING`
	// A link that exists is overwritten if it is from an earlier sending of this commit. Otherwise no row changes.
	s.link = insert("chain", of.Chain) + ` ON CONFLICT (partition, height) DO UPDATE SET linked_at = excluded.linked_at, content = excluded.content, hash = excluded.hash
		WHERE chain.epoch = excluded.epoch AND chain.commit_id = excluded.commit_id`
	return s
}

// insert is an INSERT of a row with all columns.
func insert[R any](table string, columns []schema.Column[R]) string {
	return `INSERT INTO ` + table + ` (` + schema.Names(columns) + `) VALUES (` + schema.Join(columns, "?") + `)`
}

const (
	existingSQL      = `SELECT number, id, type, input_hash, state, commit_id FROM tasks WHERE partition = ? AND id = ?`
	journalCommitSQL = `SELECT commit_id FROM journal WHERE partition = ? AND number = ? AND seq = ?`
)

// Commit implements [schema.Store] like PostgreSQL's fallback, with a statement for each row, under BEGIN
// IMMEDIATE.
func (s *Store) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	links, err := s.Links(b)
	if err != nil {
		return core.CommitResult{}, err
	}
	probed := false
	return s.CommitBy(ctx, b, func(ctx context.Context) (res core.CommitResult, again bool, err error) {
		res, written, err := s.commitOnce(ctx, b, links)
		if err != nil {
			again, err = s.judge(ctx, b, err, &probed)
			return res, again, err
		}
		s.Linked(written, res.Fenced)
		return res, false, nil
	})
}

// commitOnce is one try. It returns the links that were written.
func (s *Store) commitOnce(ctx context.Context, b *core.Batch, links schema.Links) (core.CommitResult, schema.Links, error) {
	c := commit{b: b, sql: s.sql, links: links, statements: map[string]*sql.Stmt{}, own: map[int]bool{}}
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		c.ctx, c.tx = ctx, tx
		return c.write()
	})
	return c.res, c.links, err
}

// commit is a transaction that writes a batch. task, record and args are here so that one row after the other
// uses their memory.
type commit struct {
	ctx    context.Context
	tx     *sql.Tx
	b      *core.Batch
	sql    *statements
	task   schema.TaskRow
	record schema.JournalRow
	args   []any
	links  schema.Links
	// statements are by their SQL. The transaction closes them.
	statements map[string]*sql.Stmt
	// own are the partitions that the fence let through.
	own map[int]bool
	res core.CommitResult
}

// exec compiles a statement once in a transaction, runs it, and returns how many rows changed.
func (c *commit) exec(query string, args ...any) (int64, error) {
	stmt := c.statements[query]
	if stmt == nil {
		var err error
		if stmt, err = c.tx.PrepareContext(c.ctx, query); err != nil {
			return 0, err
		}
		c.statements[query] = stmt
	}
	return affected(stmt.ExecContext(c.ctx, args...))
}

// execRow runs a statement with the values of a row followed by more. It refuses texts that PostgreSQL would
// not take, so that both stores refuse the same; SQLite's own checks stop at a NUL.
func execRow[R any](c *commit, query string, columns []schema.Column[R], r *R, more ...any) (int64, error) {
	c.args = append(schema.Args(c.args[:0], columns, r, dialect.Time), more...)
	for i, v := range c.args[:len(columns)] {
		if text, ok := v.(string); ok && !core.IsText(text) {
			return 0, fmt.Errorf("column %s: a text is not UTF-8 or holds a NUL: %w", columns[i].Name, core.ErrRowRefused)
		}
	}
	return c.exec(query, c.args...)
}

// write writes the batch: the fence first, then the tasks of the partitions that it let through, then their
// links.
func (c *commit) write() error {
	for i := range c.b.Partitions {
		if err := c.fence(&c.b.Partitions[i]); err != nil {
			return fmt.Errorf("partition %d: %w", c.b.Partitions[i].Partition, err)
		}
	}
	for i := range c.b.Writes {
		w := &c.b.Writes[i]
		if !c.own[w.Task.Partition] {
			continue
		}
		if err := c.writeTask(w); err != nil {
			return fmt.Errorf("task %s: %w", w.Task.ID, err)
		}
	}
	return c.writeLinks()
}

// writeLinks writes the links of the partitions that are ours.
func (c *commit) writeLinks() (err error) {
	if c.links, err = c.links.Without(c.res.Duplicates); err != nil {
		return err
	}
	for i := range c.links.All {
		l := &c.links.All[i]
		if !c.own[l.Partition] {
			continue
		}
		n, err := execRow(c, c.sql.link, c.sql.of.Chain, l)
		if err == nil && n == 0 {
			err = core.ErrForeignRow
		}
		if err != nil {
			return fmt.Errorf("link %d of partition %d: %w", l.Height, l.Partition, err)
		}
	}
	return nil
}

// fence moves a partition if its row is as its owner left it. Otherwise it reports the partition as fenced.
func (c *commit) fence(p *core.PartitionWrite) error {
	row := schema.NewPartitionRow(p, c.b.ID)
	n, err := execRow(c, c.sql.fence, c.sql.moved, &row, p.Partition, p.Epoch, p.After, c.b.ID)
	if err != nil {
		return err
	}
	if n == 0 {
		c.res.Fenced = append(c.res.Fenced, p.Partition)
		return nil
	}
	c.own[p.Partition] = true
	return nil
}

// writeTask writes a task's row and journal rows. For a birth whose id another task has it writes nothing and
// reports the duplicate.
func (c *commit) writeTask(w *core.TaskWrite) error {
	t := w.Task
	c.task = schema.NewTaskRow(t, c.b.ID)
	switch {
	case w.Birth:
		n, err := execRow(c, c.sql.birth, c.sql.tasks, &c.task)
		if err != nil {
			return err
		}
		if n == 0 {
			// A duplicate has no journal rows and no labels.
			if ours, err := c.bornBefore(t); err != nil || !ours {
				return err
			}
		}
		if err := c.writeLabels(t); err != nil {
			return err
		}
	case w.Row:
		if _, err := execRow(c, c.sql.row, c.sql.changed, &c.task, t.Partition, t.Number, t.Seq); err != nil { // none, where it is further on already
			return err
		}
	}
	for i := range w.Records {
		if err := c.writeRecord(w, i); err != nil {
			return fmt.Errorf("journal row %d: %w", w.Records[i].Seq, err)
		}
	}
	return nil
}

// writeLabels stores a new task's labels. Those that exist are from an earlier sending of this batch.
func (c *commit) writeLabels(t *core.Task) error {
	for _, l := range t.Labels {
		if _, err := execRow(c, c.sql.label, c.sql.of.Labels, &schema.LabelRow{Label: l, Partition: t.Partition, Number: t.Number}); err != nil {
			return fmt.Errorf("label %s: %w", l.Key, err)
		}
	}
	return nil
}

// bornBefore finds out who has the id of a birth: the same birth, by an earlier sending of this batch, or
// another task.
func (c *commit) bornBefore(t *core.Task) (ours bool, err error) {
	e := core.Existing{Partition: t.Partition}
	var state string
	var commit int64
	if err := c.tx.QueryRowContext(c.ctx, existingSQL, t.Partition, t.ID).Scan(&e.Number, &e.ID, &e.Type, &e.InputHash, &state, &commit); err != nil {
		return false, fmt.Errorf("neither inserted nor there: %w", err)
	}
	if commit == c.b.ID && e.Number == t.Number {
		return true, nil
	}
	e.State = core.State(state)
	c.res.Duplicates = append(c.res.Duplicates, core.Duplicate{Partition: t.Partition, Number: t.Number, Existing: e})
	return false, nil
}

// writeRecord writes a journal row. A row that exists must be from an earlier sending of this batch:
// core.ErrForeignRow otherwise.
func (c *commit) writeRecord(w *core.TaskWrite, record int) error {
	c.record = schema.NewJournalRow(w, record, c.b.ID)
	n, err := execRow(c, c.sql.journal, c.sql.of.Journal, &c.record)
	if err != nil || n > 0 {
		return err
	}
	var commit int64
	err = c.tx.QueryRowContext(c.ctx, journalCommitSQL, w.Task.Partition, w.Task.Number, w.Records[record].Seq).Scan(&commit)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("neither inserted nor there")
	}
	if err == nil && commit != c.b.ID {
		return core.ErrForeignRow
	}
	return err
}
