package schema

import (
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// columns is a batch turned into the array parameters of the commit's
// statements. Its memory is kept between commits.
type columns struct {
	p struct{ partition, epoch, cursor, control, nextNumber, nextEnd, told []int64 }
	b taskColumnsOf // births
	r taskColumnsOf // rows to update
	j journalColumns
}

type taskColumnsOf struct {
	partition, number, planVersion, seq, round, completeBy, deadline []int64
	failures, origin, createdAt, updatedAt, endedAt, endNumber       []int64
	id, typ, state, lockedBy, waitsFor, replyTo, trace               []string
	input, hash                                                      [][]byte
}

type journalColumns struct {
	partition, number, seq, at, round, step, attempt, code []int64
	quiet, next, nextAttempt, due, deadline                []int64
	actor, kind, state, status, fingerprint                []string
	errs, reason, result                                   [][]byte
	undo, birth                                            []bool
}

func (c *columns) fill(b *core.Batch) {
	for i := range b.Partitions {
		w := &b.Partitions[i]
		c.p.partition = append(c.p.partition, int64(w.Partition))
		c.p.epoch = append(c.p.epoch, w.Epoch)
		c.p.cursor = append(c.p.cursor, int64(w.Cursor))
		c.p.control = append(c.p.control, int64(w.ControlCursor))
		c.p.nextNumber = append(c.p.nextNumber, w.NextNumber)
		c.p.nextEnd = append(c.p.nextEnd, w.NextEnd)
		c.p.told = append(c.p.told, w.Told)
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		switch {
		case w.Birth:
			c.b.add(w.Task)
			c.b.id = append(c.b.id, w.Task.ID)
			c.b.typ = append(c.b.typ, w.Task.Type)
			c.b.input = append(c.b.input, payload(w.Task.Input))
			c.b.hash = append(c.b.hash, payload(w.Task.InputHash))
			c.b.replyTo = append(c.b.replyTo, w.Task.ReplyTo)
			c.b.trace = append(c.b.trace, w.Task.Trace)
			c.b.origin = append(c.b.origin, int64(w.Task.Origin))
			c.b.createdAt = append(c.b.createdAt, int64(w.Task.CreatedAt))
		case w.Row:
			c.r.add(w.Task)
		}
		for k := range w.Records {
			c.j.add(w, &w.Records[k])
		}
	}
}

func (c *taskColumnsOf) add(t *core.Task) {
	c.partition = append(c.partition, int64(t.Partition))
	c.number = append(c.number, t.Number)
	c.planVersion = append(c.planVersion, t.PlanVersion)
	c.state = append(c.state, string(t.State))
	c.seq = append(c.seq, t.Seq)
	c.round = append(c.round, int64(t.Round))
	c.lockedBy = append(c.lockedBy, t.LockedBy)
	c.waitsFor = append(c.waitsFor, t.WaitsFor)
	c.completeBy = append(c.completeBy, int64(t.Bound))
	c.deadline = append(c.deadline, int64(t.Deadline))
	c.failures = append(c.failures, int64(t.Failures))
	c.updatedAt = append(c.updatedAt, int64(t.UpdatedAt))
	c.endedAt = append(c.endedAt, int64(t.EndedAt))
	c.endNumber = append(c.endNumber, t.EndNumber)
}

func (c *journalColumns) add(w *core.TaskWrite, r *core.Record) {
	c.partition = append(c.partition, int64(w.Task.Partition))
	c.number = append(c.number, w.Task.Number)
	c.seq = append(c.seq, r.Seq)
	c.at = append(c.at, int64(r.At))
	c.actor = append(c.actor, words(r.Actor))
	c.kind = append(c.kind, string(r.Kind))
	c.state = append(c.state, string(r.State))
	c.round = append(c.round, int64(r.Round))
	c.step = append(c.step, int64(r.Step))
	c.status = append(c.status, statusWord(r))
	c.attempt = append(c.attempt, int64(r.Attempt))
	c.code = append(c.code, int64(r.Code))
	c.errs = append(c.errs, text(r.Error))
	c.fingerprint = append(c.fingerprint, fingerprint(r))
	c.reason = append(c.reason, text(r.Reason))
	c.result = append(c.result, payload(r.Result))
	c.quiet = append(c.quiet, int64(r.Quiet))
	c.next = append(c.next, int64(r.Next))
	c.nextAttempt = append(c.nextAttempt, int64(r.NextAttempt))
	c.undo = append(c.undo, r.Undo)
	c.due = append(c.due, int64(r.Due))
	c.deadline = append(c.deadline, int64(r.Deadline))
	c.birth = append(c.birth, w.Birth)
}

// statusWord is the status of the row's step; without a step, of the zero
// status nothing is kept.
func statusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}

// text is a person's or an agent's words as bytes; none is NULL.
func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// payload is bytes as stored: none is NULL, because SQLite's driver reads no bytes
// back as NULL.
func payload(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// words makes a name that comes from outside fit for a column of text, so that no
// name can keep a task from being written.
func words(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func (c *columns) commitArgs(id int64) []any {
	p, b, j := &c.p, &c.b, &c.j
	return []any{
		id, p.partition, p.epoch, p.cursor, p.control, p.nextNumber, p.nextEnd, p.told,
		some(b.partition), some(b.number), some(b.id), some(b.typ), some(b.planVersion), some(b.input), some(b.hash), some(b.state), some(b.seq), some(b.round),
		some(b.lockedBy), some(b.waitsFor), some(b.completeBy), some(b.deadline), some(b.failures), some(b.replyTo), some(b.trace), some(b.origin),
		some(b.createdAt), some(b.updatedAt), some(b.endedAt), some(b.endNumber),
		some(j.partition), some(j.number), some(j.seq), some(j.at), some(j.actor), some(j.kind), some(j.state), some(j.round), some(j.step), some(j.status),
		some(j.attempt), some(j.code), some(j.errs), some(j.fingerprint), some(j.reason), some(j.result), some(j.quiet), some(j.next), some(j.nextAttempt),
		some(j.undo), some(j.due), some(j.deadline), some(j.birth),
	}
}

func (c *columns) rowArgs(id int64, own []int64) []any {
	r := &c.r
	return []any{
		id, r.partition, r.number, r.planVersion, r.state, r.seq, r.round, r.lockedBy, r.waitsFor, r.completeBy, r.deadline,
		r.failures, r.updatedAt, r.endedAt, r.endNumber, own,
	}
}

// some makes an empty array of nil, which would be NULL.
func some[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// reset empties the columns and keeps their memory, but not what they point at.
func (c *columns) reset() {
	clear(c.b.input)
	clear(c.b.hash)
	clear(c.j.errs)
	clear(c.j.reason)
	clear(c.j.result)
	for _, s := range []*[]int64{
		&c.p.partition, &c.p.epoch, &c.p.cursor, &c.p.control, &c.p.nextNumber, &c.p.nextEnd, &c.p.told,
		&c.j.partition, &c.j.number, &c.j.seq, &c.j.at, &c.j.round, &c.j.step, &c.j.attempt, &c.j.code,
		&c.j.quiet, &c.j.next, &c.j.nextAttempt, &c.j.due, &c.j.deadline,
	} {
		*s = (*s)[:0]
	}
	for _, s := range []*[]string{&c.j.actor, &c.j.kind, &c.j.state, &c.j.status, &c.j.fingerprint} {
		*s = (*s)[:0]
	}
	for _, s := range []*[][]byte{&c.j.errs, &c.j.reason, &c.j.result} {
		*s = (*s)[:0]
	}
	c.j.undo, c.j.birth = c.j.undo[:0], c.j.birth[:0]
	c.b.reset()
	c.r.reset()
}

func (c *taskColumnsOf) reset() {
	for _, s := range []*[]int64{
		&c.partition, &c.number, &c.planVersion, &c.seq, &c.round, &c.completeBy, &c.deadline,
		&c.failures, &c.origin, &c.createdAt, &c.updatedAt, &c.endedAt, &c.endNumber,
	} {
		*s = (*s)[:0]
	}
	for _, s := range []*[]string{&c.id, &c.typ, &c.state, &c.lockedBy, &c.waitsFor, &c.replyTo, &c.trace} {
		*s = (*s)[:0]
	}
	c.input, c.hash = c.input[:0], c.hash[:0]
}
