package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	// A limit has a revision, which each change raises and names. claims counts claims, see qLockLimit.
	qLimits = `SELECT agent, concurrent, rate_milli, key_expr, key_concurrent, key_rate_milli, revision, at, by_name, reason FROM limits
	ORDER BY agent LIMIT ?1`
	qNewLimit = `INSERT INTO limits (agent, concurrent, rate_milli, key_expr, key_concurrent, key_rate_milli, revision, claims, at, by_name, reason)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10) ON CONFLICT (agent) DO NOTHING`
	qPutLimit = `UPDATE limits SET concurrent = ?2, rate_milli = ?3, key_expr = ?4, key_concurrent = ?5, key_rate_milli = ?6, revision = ?7, at = ?8,
	by_name = ?9, reason = ?10 WHERE agent = ?1 AND revision = ?11`
	qDeleteLimit = `DELETE FROM limits WHERE agent = ?1`
	qLimitWas    = `SELECT concurrent, rate_milli, key_expr FROM limits WHERE agent = ?1`
	qDropGrants  = `DELETE FROM limit_grants WHERE agent = ?1`
	qDropKeys    = `DELETE FROM key_grants WHERE agent = ?1`
	// qLockLimit locks the row of a limit until the transaction ends, and so makes other claims wait.
	qLockLimit = `UPDATE limits SET claims = claims + 1 WHERE agent = ?1 RETURNING concurrent, rate_milli, key_expr, key_concurrent, key_rate_milli, revision, claims`
	qGrants    = `SELECT holder, wanted, places, rate_milli, until_at FROM limit_grants WHERE agent = ?1 ORDER BY holder LIMIT ?2`
	qGranted   = `SELECT agent, CAST(count(*) AS INT8), CAST(sum(wanted) AS INT8), CAST(sum(places) AS INT8), CAST(sum(rate_milli) AS INT8) FROM limit_grants
	WHERE until_at > ?1 AND (wanted > 0 OR places > 0 OR rate_milli > 0) AND agent IN (SELECT agent FROM limits) GROUP BY agent`
	qPutGrant = `INSERT INTO limit_grants (agent, holder, wanted, places, rate_milli, until_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
	ON CONFLICT (agent, holder) DO UPDATE SET wanted = excluded.wanted, places = excluded.places, rate_milli = excluded.rate_milli, until_at = excluded.until_at`
	qForgetGrants = `DELETE FROM limit_grants WHERE agent = ?1 AND holder IN (SELECT u.holder FROM `
	// A takeover enters its epoch. The committer that has counted what the partition's commands have out enters that
	// epoch as counted, and its holder. See core.Counting.
	qTaken   = `INSERT INTO limit_partitions (partition, epoch) VALUES (?1, ?2) ON CONFLICT (partition) DO UPDATE SET epoch = excluded.epoch`
	qCount   = `UPDATE limit_partitions SET counted = epoch, holder = ?1 WHERE (partition, epoch) IN (SELECT u.partition, u.epoch FROM `
	qCounted = `SELECT partition, epoch, counted, holder FROM limit_partitions`
)

// AgentLimits implements operate.LimitStore.
func (a *asked) AgentLimits(ctx context.Context) ([]operate.AgentLimit, error) {
	all, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (operate.AgentLimit, error) {
		var l operate.AgentLimit
		var at instant
		err := row.Scan(&l.Agent, &l.Concurrent, &l.RateMilli, &l.Key, &l.KeyConcurrent, &l.KeyRateMilli, &l.Revision, &at, &l.By, &l.Reason)
		l.At = at.timeOf()
		return l, err
	}, qLimits, core.LimitsMax)
	return all, about(err, "limits")
}

// Limits implements scheduler.LimitStore.
func (a *asked) Limits(ctx context.Context) ([]core.Limit, error) {
	all, err := a.AgentLimits(ctx)
	limits := make([]core.Limit, len(all))
	for i := range all {
		limits[i] = all[i].Limit
	}
	return limits, err
}

// PutLimit implements operate.LimitStore. The stored limit must have the revision before l's; revision 1
// makes it. false: another change was faster. If the limit now bounds something that was free before, the
// grants of that are deleted and holders claim anew.
func (a *asked) PutLimit(ctx context.Context, l operate.AgentLimit) (stored bool, err error) {
	at := a.of.time(core.InstantOf(l.At))
	query := qNewLimit
	args := []any{operate.CleanText(l.Agent), l.Concurrent, l.RateMilli, operate.CleanText(l.Key), l.KeyConcurrent, l.KeyRateMilli, l.Revision, at, operate.CleanText(l.By), operate.CleanText(l.Reason)}
	if l.Revision > 1 {
		query, args = qPutLimit, append(args, l.Revision-1)
	}
	err = a.change(ctx, func(c changes) error {
		var was core.Limit
		if err := c.row(qLimitWas, []any{operate.CleanText(l.Agent)}, &was.Concurrent, &was.RateMilli, &was.Key); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		n, err := c.exec(query, args...)
		if stored = n > 0; err != nil || !stored {
			return err
		}
		inAll, keys := l.StartsOver(&was)
		return c.dropGrants(l.Agent, inAll, keys)
	})
	if err != nil {
		return false, fmt.Errorf("limit of agent %s: %w", core.QuoteShort(l.Agent), err)
	}
	return stored, nil
}

// DeleteLimit implements operate.LimitStore. The grants go with it.
func (a *asked) DeleteLimit(ctx context.Context, agent string) error {
	err := a.change(ctx, func(c changes) error {
		if _, err := c.exec(qDeleteLimit, operate.CleanText(agent)); err != nil {
			return err
		}
		return c.dropGrants(agent, true, true)
	})
	return about(err, "limit of agent %s", core.QuoteShort(agent))
}

// dropGrants deletes the grants of an agent's limit: those of the limit as a whole, of its keys, or both.
func (c changes) dropGrants(agent string, inAll, keys bool) (err error) {
	if inAll {
		_, err = c.exec(qDropGrants, operate.CleanText(agent))
	}
	if keys && err == nil {
		_, err = c.exec(qDropKeys, operate.CleanText(agent))
	}
	return err
}

// grantsMax bounds how many grants of a limit are read. Each committer of a node has one, and so have earlier
// lives of nodes until theirs end.
const grantsMax = 100_000

// scanGrant reads a row of limit_grants.
func scanGrant(row interface{ Scan(...any) error }) (core.Grant, error) {
	var g core.Grant
	var until instant
	err := row.Scan(&g.Holder, &g.Wanted, &g.Places, &g.RateMilli, &until)
	g.Until = core.Instant(until)
	return g, err
}

// Grants implements operate.LimitStore.
func (a *asked) Grants(ctx context.Context, agent string) ([]core.Grant, error) {
	all, err := scanAll(ctx, a.of, scanGrant, qGrants, operate.CleanText(agent), grantsMax)
	return all, about(err, "grants of agent %s", core.QuoteShort(agent))
}

// Granted implements operate.LimitStore.
func (a *asked) Granted(ctx context.Context, now core.Instant) (map[string]operate.Granted, error) {
	type sum struct {
		agent string
		operate.Granted
	}
	all, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (sum, error) {
		var s sum
		err := row.Scan(&s.agent, &s.Holders, &s.Wanted, &s.Places, &s.RateMilli)
		return s, err
	}, qGranted, a.of.time(now))
	if err != nil {
		return nil, fmt.Errorf("grants: %w", err)
	}
	sums := make(map[string]operate.Granted, len(all))
	for _, s := range all {
		sums[s.agent] = s.Granted
	}
	if err := a.busiestKeys(ctx, now, sums); err != nil {
		return nil, err
	}
	return sums, nil
}

// CountPlaces implements scheduler.LimitStore.
func (a *asked) CountPlaces(ctx context.Context, holder string, all []core.Counting) error {
	partitions, epochs := make([]int64, len(all)), make([]int64, len(all))
	for i, c := range all {
		partitions[i], epochs[i] = int64(c.Partition), c.Epoch
	}
	query := qCount + a.of.rows(2, `partition INT8`, `epoch INT8`) + `)`
	_, err := a.execOne(ctx, query, append([]any{operate.CleanText(holder)}, a.of.rowArgs(partitions, epochs)...)...)
	return about(err, "places of %d partitions", len(all))
}

// Counted implements scheduler.LimitStore.
func (a *asked) Counted(ctx context.Context) ([]core.Counting, error) {
	all, err := scanAll(ctx, a.of, scanCounting, qCounted)
	return all, about(err, "who counts the places of partitions")
}

// scanCounting reads a row of limit_partitions.
func scanCounting(row interface{ Scan(...any) error }) (c core.Counting, err error) {
	err = row.Scan(&c.Partition, &c.Epoch, &c.Counted, &c.Holder)
	return c, err
}

// holders returns whose grants count, see core.Holders. Read grants after it: a holder claims before it
// counts.
func (c changes) holders() (map[string]bool, error) {
	all, err := scanAll(c.ctx, c, scanCounting, qCounted)
	return core.Holders(all), err
}

// grants reads all grants of an agent's limit as a whole, also those that have ended.
func (c changes) grants(agent string) ([]core.Grant, error) {
	return scanAll(c.ctx, c, scanGrant, qGrants, operate.CleanText(agent), grantsMax)
}
