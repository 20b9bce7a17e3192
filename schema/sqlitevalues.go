package schema

import "duly.dev/duly/internal/core"

// The values of the commit's statements, in the order of their parameters.

func (r *liteRows) addTask(commit int64, t *core.Task) {
	r.int(int64(t.Partition))
	r.int(t.Number)
	r.text(t.ID)
	r.text(t.Type)
	r.int(t.PlanVersion)
	r.blob(t.InputHash)
	r.text(string(t.State))
	r.int(t.Seq)
	r.int(int64(t.Round))
	r.textOr(t.LockedBy)
	r.textOr(t.WaitsFor)
	r.intOr(int64(t.Bound), 0)
	r.intOr(int64(t.Deadline), 0)
	r.int(int64(t.Failures))
	r.textOr(t.ReplyTo)
	r.textOr(t.Trace)
	r.int(int64(t.Origin))
	r.int(int64(t.CreatedAt))
	r.int(int64(t.UpdatedAt))
	r.intOr(int64(t.EndedAt), 0)
	r.intOr(t.EndNumber, 0)
	r.int(commit)
}

func (r *liteRows) addRecord(commit int64, t *core.Task, rec *core.Record, input []byte) {
	r.int(int64(t.Partition))
	r.int(t.Number)
	r.int(rec.Seq)
	r.int(int64(rec.At))
	r.text(words(rec.Actor))
	r.int(commit)
	r.int(int64(formatOf(input)))
	r.text(string(rec.Kind))
	r.text(string(rec.State))
	r.int(int64(rec.Round))
	r.intOr(int64(rec.Step), -1)
	r.textOr(statusWord(rec))
	r.int(int64(rec.Attempt))
	r.intOr(int64(rec.Code), 0)
	r.words(rec.Error)
	r.textOr(fingerprint(rec))
	r.words(rec.Reason)
	r.blob(rec.Result)
	r.intOr(int64(rec.Quiet), 0)
	r.intOr(int64(rec.Next), -1)
	r.intOr(int64(rec.NextAttempt), 0)
	r.bool(rec.Undo)
	r.intOr(int64(rec.Due), 0)
	r.intOr(int64(rec.Deadline), 0)
	r.blob(input)
}

// update writes a task's row, unless it is already further on.
func (c *liteCommit) update(t *core.Task) error {
	a := &c.args
	a.reset()
	a.int(t.PlanVersion)
	a.text(string(t.State))
	a.int(t.Seq)
	a.int(int64(t.Round))
	a.textOr(t.LockedBy)
	a.textOr(t.WaitsFor)
	a.intOr(int64(t.Bound), 0)
	a.intOr(int64(t.Deadline), 0)
	a.int(int64(t.Failures))
	a.int(int64(t.UpdatedAt))
	a.intOr(int64(t.EndedAt), 0)
	a.intOr(t.EndNumber, 0)
	a.int(c.b.ID)
	a.int(int64(t.Partition))
	a.int(t.Number)
	a.int(t.Seq)
	_, err := c.conn.exec(liteRow, a)
	return err
}
