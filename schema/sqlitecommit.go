package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

const (
	liteFence = `UPDATE partitions SET cursor = ?3, control_cursor = ?4, next_number = ?5, next_end = ?6, told = ?7 WHERE partition = ?1 AND epoch = ?2`
	liteBirth = `INSERT INTO tasks (partition, number, id, type, plan_version, input, input_hash, state, seq, round, locked_by, waits_for, complete_by, deadline,
		failure_count, reply_to, trace, origin, created_at, updated_at, ended_at, end_number, commit_id)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULLIF(?11, ''), NULLIF(?12, ''), NULLIF(?13, 0), NULLIF(?14, 0), ?15, NULLIF(?16, ''), NULLIF(?17, ''), ?18,
		?19, ?20, NULLIF(?21, 0), NULLIF(?22, 0), ?23) ON CONFLICT (partition, id) DO NOTHING`
	liteRow = `UPDATE tasks SET plan_version = ?3, state = ?4, seq = ?5, round = ?6, locked_by = NULLIF(?7, ''), waits_for = NULLIF(?8, ''), complete_by = NULLIF(?9, 0),
		deadline = NULLIF(?10, 0), failure_count = ?11, updated_at = ?12, ended_at = NULLIF(?13, 0), end_number = NULLIF(?14, 0), commit_id = ?15
		WHERE partition = ?1 AND number = ?2 AND seq < ?5`
	liteJournal = `INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint, reason,
		result, quiet, next, next_attempt, undo, due, deadline)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, NULLIF(?10, -1), NULLIF(?11, ''), ?12, NULLIF(?13, 0), ?14, NULLIF(?15, ''), ?16, ?17, NULLIF(?18, 0),
		NULLIF(?19, -1), NULLIF(?20, 0), ?21, NULLIF(?22, 0), NULLIF(?23, 0)) ON CONFLICT DO NOTHING`
	liteJournalCommit = `SELECT commit_id FROM journal WHERE partition = ?1 AND number = ?2 AND seq = ?3`
	liteExisting      = `SELECT partition, number, id, type, input_hash, state, commit_id FROM tasks WHERE partition = ?1 AND id = ?2`
)

// sqliteStatements are the prepared statements of one commit.
type sqliteStatements struct{ fence, birth, row, journal *sql.Stmt }

// Commit implements Store: the same as PostgreSQL's, in single statements under
// BEGIN IMMEDIATE.
func (s *sqlite) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if err := complete(b); err != nil || len(b.Partitions) == 0 {
		return core.CommitResult{}, err
	}
	for i := range b.Writes {
		if t := b.Writes[i].Task; !storable(t) {
			return core.CommitResult{}, fmt.Errorf("task %d of partition %d: a text is not UTF-8 or holds a NUL: %w", t.Number, t.Partition, core.ErrRowRefused)
		}
	}
	st, err := s.prepare(ctx)
	if err != nil {
		return core.CommitResult{}, err
	}
	var res core.CommitResult
	err = s.run(ctx, func(tx *sql.Tx) error {
		res = core.CommitResult{}
		return s.write(ctx, tx, st.in(ctx, tx), b, &res)
	})
	switch {
	case foreign(err):
		err = fmt.Errorf("%w: %w", core.ErrForeignRow, err)
	case refused(err):
		err = fmt.Errorf("%w: %w", core.ErrRowRefused, err)
	}
	if err != nil {
		return core.CommitResult{}, err
	}
	return res, s.reasons(ctx, res.Duplicates)
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

func (s *sqlite) write(ctx context.Context, tx *sql.Tx, st sqliteStatements, b *core.Batch, res *core.CommitResult) error {
	own := make(map[int]bool, len(b.Partitions))
	for i := range b.Partitions {
		w := &b.Partitions[i]
		r, err := st.fence.ExecContext(ctx, w.Partition, w.Epoch, int64(w.Cursor), int64(w.ControlCursor), w.NextNumber, w.NextEnd, w.Told)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			res.Fenced = append(res.Fenced, w.Partition)
		} else {
			own[w.Partition] = true
		}
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		if !own[w.Task.Partition] {
			continue
		}
		if err := s.writeTask(ctx, tx, st, b, w, res); err != nil {
			return fmt.Errorf("task %s: %w", w.Task.ID, err)
		}
	}
	return nil
}

// prepare compiles the commit's statements, once: not when the store is opened,
// because before Migrate there are no tables, and not within a transaction, which
// holds the writer's only connection.
func (s *sqlite) prepare(ctx context.Context) (sqliteStatements, error) {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared.journal != nil {
		return s.prepared, nil
	}
	var st sqliteStatements
	for _, p := range []struct {
		into  **sql.Stmt
		query string
	}{{&st.fence, liteFence}, {&st.birth, liteBirth}, {&st.row, liteRow}, {&st.journal, liteJournal}} {
		stmt, err := s.writer.PrepareContext(ctx, p.query) // closed with the writer
		if err != nil {
			return st, fmt.Errorf("prepare: %w", err)
		}
		*p.into = stmt
	}
	s.prepared = st
	return st, nil
}

// in binds the statements to a transaction.
func (st sqliteStatements) in(ctx context.Context, tx *sql.Tx) sqliteStatements {
	return sqliteStatements{
		fence: tx.StmtContext(ctx, st.fence), birth: tx.StmtContext(ctx, st.birth),
		row: tx.StmtContext(ctx, st.row), journal: tx.StmtContext(ctx, st.journal),
	}
}

func (s *sqlite) writeTask(ctx context.Context, tx *sql.Tx, st sqliteStatements, b *core.Batch, w *core.TaskWrite, res *core.CommitResult) error {
	t := w.Task
	if w.Birth {
		r, err := st.birth.ExecContext(ctx, t.Partition, t.Number, t.ID, t.Type, t.PlanVersion, payload(t.Input), payload(t.InputHash), string(t.State), t.Seq, t.Round,
			t.LockedBy, t.WaitsFor, int64(t.Bound), int64(t.Deadline), t.Failures, t.ReplyTo, t.Trace, int64(t.Origin),
			int64(t.CreatedAt), int64(t.UpdatedAt), int64(t.EndedAt), t.EndNumber, b.ID)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			return s.taken(ctx, tx, b, w, res)
		}
	} else if w.Row {
		if _, err := st.row.ExecContext(ctx, t.Partition, t.Number, t.PlanVersion, string(t.State), t.Seq, t.Round, t.LockedBy, t.WaitsFor, int64(t.Bound),
			int64(t.Deadline), t.Failures, int64(t.UpdatedAt), int64(t.EndedAt), t.EndNumber, b.ID); err != nil {
			return err
		}
	}
	for i := range w.Records {
		if err := writeRecord(ctx, tx, st, b.ID, t, &w.Records[i]); err != nil {
			return err
		}
	}
	return nil
}

// taken finds out whose the id of a birth is: ours by an earlier sending of this
// batch, or another task's.
func (s *sqlite) taken(ctx context.Context, tx *sql.Tx, b *core.Batch, w *core.TaskWrite, res *core.CommitResult) error {
	var e core.Existing
	var state string
	var commit int64
	err := tx.QueryRowContext(ctx, liteExisting, w.Task.Partition, w.Task.ID).Scan(&e.Partition, &e.Number, &e.ID, &e.Type, &e.InputHash, &state, &commit)
	if err != nil {
		return err
	}
	e.State = core.State(state)
	if commit != b.ID || e.Number != w.Task.Number {
		res.Duplicates = append(res.Duplicates, core.Duplicate{Partition: e.Partition, Number: w.Task.Number, Existing: e})
	}
	return nil
}

func writeRecord(ctx context.Context, tx *sql.Tx, st sqliteStatements, commit int64, t *core.Task, r *core.Record) error {
	done, err := st.journal.ExecContext(ctx, t.Partition, t.Number, r.Seq, int64(r.At), words(r.Actor), commit, string(r.Kind), string(r.State), r.Round,
		r.Step, statusWord(r), r.Attempt, r.Code, text(r.Error), fingerprint(r), text(r.Reason), payload(r.Result), int64(r.Quiet),
		r.Next, r.NextAttempt, r.Undo, int64(r.Due), int64(r.Deadline))
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 1 {
		return err
	}
	var have int64
	if err := tx.QueryRowContext(ctx, liteJournalCommit, t.Partition, t.Number, r.Seq).Scan(&have); err != nil {
		return err
	}
	if have != commit {
		return fmt.Errorf("journal row %d: %w", r.Seq, core.ErrForeignRow)
	}
	return nil
}
