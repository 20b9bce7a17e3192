package schema

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	qBreakers   = `SELECT agent, state, since, until_at, openings, stage, forced, by_name, reason, revision FROM breakers ORDER BY agent`
	qNewBreaker = `INSERT INTO breakers (agent, state, since, until_at, openings, stage, forced, by_name, reason, revision)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (agent) DO NOTHING`
	qPutBreaker = `UPDATE breakers SET state = ?2, since = ?3, until_at = ?4, openings = ?5, stage = ?6, forced = ?7, by_name = ?8, reason = ?9, revision = ?10
	WHERE agent = ?1 AND revision = ?11`
	// Each node has one row for each agent, which it overwrites. qCalls adds up the rows of nodes that
	// reported lately about the same revision.
	qReportCalls = `INSERT INTO breaker_calls (agent, node, revision, at, done, failed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
	ON CONFLICT (agent, node) DO UPDATE SET revision = excluded.revision, at = excluded.at, done = excluded.done, failed = excluded.failed`
	qCalls = `SELECT CAST(COALESCE(sum(done), 0) AS INT8), CAST(COALESCE(sum(failed), 0) AS INT8) FROM breaker_calls WHERE agent = ?1 AND revision = ?2 AND at >= ?3`
)

// Breakers implements scheduler.BreakerStore.
func (a *asked) Breakers(ctx context.Context) ([]core.Breaker, error) {
	all, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (core.Breaker, error) {
		var b core.Breaker
		var state string
		var since, until instant
		err := row.Scan(&b.Agent, &state, &since, &until, &b.Openings, &b.Stage, &b.Forced, &b.By, &b.Reason, &b.Revision)
		b.State, b.Since, b.Until = core.BreakerState(state), core.Instant(since), core.Instant(until)
		return b, err
	}, qBreakers)
	return all, about(err, "breakers")
}

// PutBreaker implements scheduler.BreakerStore. The stored row must have the revision before b's; revision 1
// makes the row. false: another node was faster, and nothing was stored.
func (a *asked) PutBreaker(ctx context.Context, b core.Breaker) (bool, error) {
	query := qNewBreaker
	args := []any{operate.CleanText(b.Agent), string(b.State), a.of.time(b.Since), a.of.whenNot0(b.Until), b.Openings, b.Stage, b.Forced, operate.CleanText(b.By), operate.CleanText(b.Reason), b.Revision}
	if b.Revision > 1 {
		query, args = qPutBreaker, append(args, b.Revision-1)
	}
	n, err := a.execOne(ctx, query, args...)
	if err != nil {
		return false, fmt.Errorf("breaker of agent %s: %w", core.QuoteShort(b.Agent), err)
	}
	return n > 0, nil
}

// ReportCalls implements scheduler.BreakerStore. It stores what this node saw, and returns the sum over the
// nodes that reported since a time under the same revision.
func (a *asked) ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (sum core.Calls, err error) {
	err = a.change(ctx, func(c changes) error {
		if _, err := c.exec(qReportCalls, operate.CleanText(agent), operate.CleanText(node), revision, a.of.time(at), calls.Done, calls.Failed); err != nil {
			return err
		}
		return c.row(qCalls, []any{operate.CleanText(agent), revision, a.of.time(since)}, &sum.Done, &sum.Failed)
	})
	return sum, about(err, "calls of agent %s", core.QuoteShort(agent))
}
