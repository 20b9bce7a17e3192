package schema

import (
	"context"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// standingMax is how many members a call of Standing takes.
const standingMax = 1000

// standingRows bounds the journal rows that are read of a member: that many after the one at which it was
// frozen, and as many of its newest. What the operation led to is among them.
const standingRows = 200

const (
	// The rows of the members' tasks. A member that is missing in the result has no row any more.
	qStanding = `SELECT u.ordinal, t.state, t.plan_version, ` + newestSeq + `, COALESCE(t.failed_step, -1), COALESCE(t.fingerprint, ''),
	COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = t.failed_step), '') FROM `
	standingTasks = ` JOIN tasks t ON t.partition = u.partition AND t.number = u.number`

	// The rows since a member was frozen, with the names of their steps.
	qSince = `SELECT u.ordinal, j.actor, COALESCE(j.step_status, ''), j.error, j.reason,
	COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = j.step), '') FROM `
	sinceRows = standingTasks + ` JOIN journal j ON j.partition = u.partition AND j.number = u.number AND j.seq > u.seq
	AND (j.seq <= u.seq + ?1 OR j.seq > t.seq - ?1) ORDER BY u.ordinal, j.seq`
)

// Standing implements operate.OperationStore, by two statements for all members. The results are in the order
// of the members.
func (a *asked) Standing(ctx context.Context, members []operate.Member) ([]operate.Standing, error) {
	if len(members) == 0 {
		return nil, nil
	}
	if len(members) > standingMax {
		return nil, fmt.Errorf("standing: %d members, want at most %d", len(members), standingMax)
	}
	r := a.of
	n := len(members)
	places, partitions, numbers, seqs := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	all := make([]standing, n)
	for i := range members {
		m := &members[i]
		places[i], partitions[i], numbers[i], seqs[i] = int64(i), int64(m.Partition), m.Number, m.Seq
		all[i] = standing{Standing: operate.Standing{Ordinal: m.Ordinal, Missing: true}, member: m, step: -1}
	}
	columns := []string{`ordinal INT8`, `partition INT8`, `number INT8`, `seq INT8`}
	// places is the index into members, by which both statements tell whose a row is: ordinals need not be
	// unique in a call.
	lists := r.rowArgs(places, partitions, numbers, seqs)
	if err := r.standingRows(ctx, all, qStanding+r.rows(1, columns...)+standingTasks, lists); err != nil {
		return nil, fmt.Errorf("standing of %d tasks: %w", n, err)
	}
	if err := r.since(ctx, all, qSince+r.rows(2, columns...)+sinceRows, append([]any{standingRows}, lists...)); err != nil {
		return nil, fmt.Errorf("journals of %d tasks: %w", n, err)
	}
	result := make([]operate.Standing, n)
	for i := range all {
		result[i] = all[i].Standing
	}
	return result, nil
}

// standing is the result for a member while its journal is being read.
type standing struct {
	operate.Standing
	member *operate.Member
	// step is the number of the step that failed; -1: none.
	step int64
	// exact says that Text is the very text that the task's fingerprint is made of.
	exact bool
}

// standingRows fills in what the tasks' rows say.
func (r *reader) standingRows(ctx context.Context, all []standing, query string, args []any) error {
	for row := range each(r.query(ctx, query, args...)) {
		var i int
		var state string
		var version, seq, step int64
		var fingerprint, name string
		if err := row.Scan(&i, &state, &version, &seq, &step, &fingerprint, &name); err != nil {
			return err
		}
		s := &all[i]
		s.Missing, s.State, s.PlanVersion, s.Seq, s.step, s.Fingerprint, s.Step = false, core.State(state), version, seq, step, fingerprint, name
	}
	return nil
}

// since goes over the journal rows since the members were frozen, the oldest first.
func (r *reader) since(ctx context.Context, all []standing, query string, args []any) error {
	for row := range each(r.query(ctx, query, args...)) {
		var i int
		var actor, status, step string
		var text, reason []byte
		if err := row.Scan(&i, &actor, &status, &text, &reason, &step); err != nil {
			return err
		}
		all[i].add(actor, status, step, text, reason)
	}
	return nil
}

// add takes in one journal row: whether the operation asked for something, whether its step has passed since,
// and why the task failed.
func (s *standing) add(actor, status, step string, text, reason []byte) {
	if by := operate.OperationActor(s.member.Operation); actor == by || s.member.Operation == "" && strings.HasPrefix(actor, by) {
		s.Asked, s.AskedBy = true, actor
	}
	if step != "" && step == s.member.Step && status == core.StepDone.String() {
		s.Passed = true
	}
	for _, t := range [][]byte{text, reason} {
		if len(t) > 0 && failureOf(s.step, string(t)) == s.Fingerprint {
			s.Text, s.exact = string(t), true
		}
	}
	if len(text) > 0 && !s.exact {
		s.Text = string(text)
	}
}

// Saved implements operate.OperationStore.
func (a *asked) Saved(ctx context.Context, partition int, numbers []int64) ([]core.Saved, error) {
	if len(numbers) > standingMax {
		return nil, fmt.Errorf("saved: %d tasks, want at most %d", len(numbers), standingMax)
	}
	return a.of.LoadNumbers(ctx, core.AsOf{Partition: partition}, numbers)
}
