package schema

import (
	"context"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// standingMax is how many members one call of Standing takes.
const standingMax = 1000

// standingRows is how many journal rows are read of a member after the one it was frozen at, and of its
// newest: what an operation leads to is among them.
const standingRows = 200

const (
	qStanding = `SELECT u.ordinal, t.state, t.plan_version, ` + newestSeq + `, COALESCE(t.failed_step, -1), COALESCE(t.fingerprint, ''),
	COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = t.failed_step), '') FROM `
	standingTasks = ` JOIN tasks t ON t.partition = u.partition AND t.number = u.number`

	// The rows since a member was frozen, with the names of their steps.
	qSince = `SELECT u.ordinal, j.actor, COALESCE(j.step_status, ''), j.error, j.reason,
	COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = j.step), '') FROM `
	sinceRows = standingTasks + ` JOIN journal j ON j.partition = u.partition AND j.number = u.number AND j.seq > u.seq
	AND (j.seq <= u.seq + ?1 OR j.seq > t.seq - ?1) ORDER BY u.ordinal, j.seq`
)

// Standing implements operate.OperationStore, in two statements. What is said of a task is in the order
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

// standing is where a member stands, with what is looked for in its journal.
type standing struct {
	operate.Standing
	member *operate.Member
	step   int64 // that failed; -1: none
	exact  bool  // Text is what the task's fingerprint is of
}

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

// since reads the rows since the members were frozen, the oldest first.
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
