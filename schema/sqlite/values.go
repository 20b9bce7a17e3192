package sqlite

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// The values of the commit's statements, in the order of their parameters.

func birthArgs(t *core.Task, commit int64) []any {
	open := t.OpenSignals()
	return []any{
		t.Partition, t.Number, t.ID, t.Type, t.PlanVersion, blob(t.InputHash), string(t.State), t.Seq, t.Round, nullIf(t.LockedBy, ""), nullIf(t.WaitsFor, ""),
		instant(t.Bound), instant(t.Deadline), t.Failures, nullIf(t.ReplyTo, ""), nullIf(t.Trace, ""), nullIf(core.FormatLabels(t.Labels), ""), int64(t.Origin), int64(t.CreatedAt), int64(t.UpdatedAt),
		instant(t.EndedAt), nullIf(t.EndNumber, 0), nullIf(schema.FailedStep(t), -1), fingerprint(t), commit,
		nullIf(int64(open.Steps), 0), instant(open.Since), instant(open.Due),
		instant(t.StartAt), ofChild(t, t.Parent), ofChild(t, int64(t.ParentStep)), ofChild(t, int64(t.ChildIndex)),
	}
}

func rowArgs(t *core.Task, commit int64) []any {
	open := t.OpenSignals()
	return []any{
		t.PlanVersion, string(t.State), t.Seq, t.Round, nullIf(t.LockedBy, ""), nullIf(t.WaitsFor, ""), instant(t.Bound), instant(t.Deadline), t.Failures,
		int64(t.UpdatedAt), instant(t.EndedAt), nullIf(t.EndNumber, 0), nullIf(schema.FailedStep(t), -1), fingerprint(t),
		commit, nullIf(int64(open.Steps), 0), instant(open.Since), instant(open.Due), t.Partition, t.Number, t.Seq,
	}
}

func recordArgs(w *core.TaskWrite, record int, commit int64) []any {
	t, r, input := w.Task, &w.Records[record], schema.InputOf(w, record)
	return []any{
		t.Partition, t.Number, r.Seq, int64(r.At), schema.Words(r.Actor), commit, schema.JournalFormat, string(r.Kind), string(r.State), r.Round,
		nullIf(r.Step, -1), nullIf(schema.StatusWord(r), ""), r.Attempt, nullIf(r.Code, 0), blob([]byte(r.Error)), nullIf(schema.Fingerprint(r), ""),
		blob([]byte(r.Reason)), blob(r.Result), instant(r.EffectsPossibleUntil), nullIf(r.Next, -1), nullIf(r.NextAttempt, 0), r.Undo, instant(r.Due), instant(r.Deadline), blob(input),
	}
}

// nullIf is NULL for the value that stands for none.
func nullIf[T comparable](v, none T) any {
	if v == none {
		return nil
	}
	return v
}

// fingerprint is what groups a failure: an empty text for a task that is in no group whatever failed.
func fingerprint(t *core.Task) any {
	if schema.Ungrouped(t) {
		return ""
	}
	return nullIf(schema.FailureFingerprint(t), "")
}

// ofChild is NULL where the task is no child.
func ofChild(t *core.Task, v int64) any {
	if t.Parent == 0 {
		return nil
	}
	return v
}

func instant(i core.Instant) any { return nullIf(int64(i), 0) }

// blob is NULL for no bytes, because readers take no bytes for NULL.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
