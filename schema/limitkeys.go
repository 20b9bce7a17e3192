package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	qKeyGrants      = `SELECT key, holder, wanted, places, rate_milli, until_at FROM key_grants WHERE agent = ?1 AND key IN (SELECT u.key FROM `
	keyGrantsWhere  = `) ORDER BY key, holder`
	qPutKeyGrants   = `INSERT INTO key_grants (agent, key, holder, wanted, places, rate_milli, until_at) SELECT CAST(?1 AS TEXT), u.key, u.holder, u.wanted, u.places, u.rate_milli, u.until_at FROM `
	putKeyGrantsEnd = ` WHERE TRUE ON CONFLICT (agent, key, holder) DO UPDATE SET wanted = excluded.wanted, places = excluded.places, rate_milli = excluded.rate_milli, until_at = excluded.until_at`
	qDropKeyGrants  = `DELETE FROM key_grants WHERE agent = ?1 AND (key, holder) IN (SELECT u.key, u.holder FROM `
	// qForgetKeys deletes grants of keys that nobody claims any more.
	qForgetKeys = `DELETE FROM key_grants WHERE agent = ?1 AND (key, holder) IN (SELECT key, holder FROM key_grants WHERE agent = ?1 AND until_at < ?2
	ORDER BY until_at LIMIT ?3)`
	// qBusiestKeys ranks the keys of each agent by what is wanted beyond what was given.
	qBusiestKeys = `SELECT agent, keys, key, holders, wanted, places FROM (
	SELECT agent, key, CAST(count(*) AS INT8) AS holders, CAST(sum(wanted) AS INT8) AS wanted, CAST(sum(places) AS INT8) AS places,
	row_number() OVER (PARTITION BY agent ORDER BY sum(wanted) - sum(places) DESC, sum(wanted) DESC, key) AS nth, CAST(count(*) OVER (PARTITION BY agent) AS INT8) AS keys
	FROM key_grants WHERE until_at > ?1 AND agent IN (SELECT agent FROM limits WHERE key_expr <> '') GROUP BY agent, key) AS b
	WHERE nth <= ?2 ORDER BY agent, nth`
)

const (
	forgetEvery = 64   // claims of a limit
	forgetMax   = 2000 // grants at a time
)

// grantScope is what a grant shares in: the limit of an agent as a whole, or one key of it.
type grantScope struct {
	keyed bool
	// key is the key as it is stored.
	key string
}

// scopeOf is what a grant shares in.
func scopeOf(g *core.Grant) grantScope {
	if !g.Keyed {
		return grantScope{}
	}
	return grantScope{true, operate.CleanText(g.Key)}
}

// keyGrant names a row of an agent in key_grants.
type keyGrant struct{ key, holder string }

// ClaimGrants implements scheduler.LimitStore. One transaction works at a time on an agent's grants, because
// it begins by locking the limit's row. It divides the limit by what is stored, stores the result, and
// deletes what has ended.
func (a *asked) ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) (all []core.ClaimedGrant, err error) {
	if len(mine) > core.ClaimsMax {
		return nil, fmt.Errorf("grants of agent %s: %d are claimed, the most is %d", core.QuoteShort(agent), len(mine), core.ClaimsMax)
	}
	err = a.change(ctx, func(c changes) error {
		l := core.Limit{Agent: agent}
		var claims int64
		switch err := c.row(qLockLimit, []any{operate.CleanText(agent)}, &l.Concurrent, &l.RateMilli, &l.Key, &l.KeyConcurrent, &l.KeyRateMilli, &l.Revision, &claims); {
		case errors.Is(err, sql.ErrNoRows):
			return notThere("limit of agent", agent)
		case err != nil:
			return err
		}
		holders, err := c.holders()
		if err != nil {
			return err
		}
		stored, err := c.storedGrants(agent, mine, holders)
		if err != nil {
			return err
		}
		rows := keyRows(stored, now)
		if all, err = c.claim(&l, now, mine, stored, rows); err != nil {
			return err
		}
		if err := c.putKeyGrants(agent, rows); err != nil {
			return err
		}
		if over := endedGrants(stored[grantScope{}], now); len(over) > 0 {
			query := qForgetGrants + a.of.rows(2, `holder TEXT`) + `)`
			if _, err := c.exec(query, append([]any{operate.CleanText(agent)}, a.of.rowArgs(over)...)...); err != nil {
				return err
			}
		}
		// Once in many claims, so that claiming stays cheap.
		if claims%forgetEvery == 0 {
			_, err = c.exec(qForgetKeys, operate.CleanText(agent), a.of.time(now), forgetMax)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("grants of agent %s: %w", core.QuoteShort(agent), err)
	}
	return all, nil
}

// claim answers the claims one after the other, each with those before it counted in. It stores grants of the
// limit as a whole, and notes in rows what has to become of grants of keys.
func (c changes) claim(l *core.Limit, now core.Instant, mine []core.Grant, stored map[grantScope][]core.Grant, rows map[keyGrant]keyRow) ([]core.ClaimedGrant, error) {
	all := make([]core.ClaimedGrant, len(mine))
	for i := range mine {
		of := scopeOf(&mine[i])
		name := keyGrant{of.key, operate.CleanText(mine[i].Holder)}
		// The limit has no keys any more: the committer has not heard of that yet, and gets nothing for the
		// key.
		if of.keyed && l.Key == "" {
			none := mine[i]
			none.Places, none.RateMilli = 0, 0
			all[i] = core.ClaimedGrant{Limit: *l, Grant: none, Fair: none, First: true}
			rows[name] = keyRow{was: rows[name].was}
			continue
		}
		all[i] = l.Claim(now, mine[i], stored[of])
		got := all[i].Grant
		got.Holder = name.holder
		// The next claim divides what this one has left.
		stored[of] = append(slices.DeleteFunc(stored[of], func(o core.Grant) bool { return o.Holder == got.Holder }), got)
		if of.keyed {
			rows[name] = keyRow{was: rows[name].was, keep: !got.Idle(), is: got}
			continue
		}
		if _, err := c.exec(qPutGrant, operate.CleanText(l.Agent), got.Holder, got.Wanted, got.Places, got.RateMilli, c.r.time(got.Until)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// endedGrants returns the holders whose grants of the limit as a whole have ended. This holder's own were
// just renewed.
func endedGrants(stored []core.Grant, now core.Instant) (holders []string) {
	for i := range stored {
		if stored[i].Until < now {
			holders = append(holders, stored[i].Holder)
		}
	}
	return holders
}

// keyRow is what has to become of a row of key_grants.
type keyRow struct {
	// was says that the row is stored; stays, that it need not change.
	was, stays bool
	// keep says that the row is to be stored as is.
	keep bool
	is   core.Grant
}

// keyRows returns the stored grants of keys: those that have ended are to be deleted, the others stay.
func keyRows(stored map[grantScope][]core.Grant, now core.Instant) map[keyGrant]keyRow {
	rows := map[keyGrant]keyRow{}
	for of, grants := range stored {
		for i := range grants {
			if of.keyed {
				rows[keyGrant{of.key, grants[i].Holder}] = keyRow{was: true, stays: grants[i].Until >= now}
			}
		}
	}
	return rows
}

// storedGrants reads the grants that share a scope with one of mine, by scope. A grant whose holder is none
// of holders, the nodes that count places now, is marked as ended; unless nobody is known to count.
func (c changes) storedGrants(agent string, mine []core.Grant, holders map[string]bool) (map[grantScope][]core.Grant, error) {
	stored, err := c.readGrants(agent, mine)
	for _, grants := range stored {
		core.EndGrants(grants, mine, holders)
	}
	return stored, err
}

// readGrants reads the grants of every scope in mine, those of keys by one statement.
func (c changes) readGrants(agent string, mine []core.Grant) (map[grantScope][]core.Grant, error) {
	stored := map[grantScope][]core.Grant{}
	var keys []string
	for i := range mine {
		of := scopeOf(&mine[i])
		if _, known := stored[of]; known {
			continue
		}
		stored[of] = nil
		if of.keyed {
			keys = append(keys, of.key)
			continue
		}
		var err error
		if stored[of], err = c.grants(agent); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return stored, nil
	}
	query, args := c.r.keyGrants(agent, keys)
	for row := range each(c.query(c.ctx, query, args...)) {
		g := core.Grant{Keyed: true}
		var until instant
		if err := row.Scan(&g.Key, &g.Holder, &g.Wanted, &g.Places, &g.RateMilli, &until); err != nil {
			return nil, err
		}
		g.Until = core.Instant(until)
		of := grantScope{true, g.Key}
		stored[of] = append(stored[of], g)
	}
	return stored, nil
}

// keyGrants is the query for an agent's grants of some keys.
func (r *reader) keyGrants(agent string, keys []string) (query string, args []any) {
	return qKeyGrants + r.rows(2, `key TEXT`) + keyGrantsWhere, append([]any{operate.CleanText(agent)}, r.rowArgs(keys)...)
}

// dropKeyGrants is the statement that deletes an agent's grants of keys by holder.
func (r *reader) dropKeyGrants(agent string, keys, holders []string) (query string, args []any) {
	return qDropKeyGrants + r.rows(2, `key TEXT`, `holder TEXT`) + `)`, append([]any{operate.CleanText(agent)}, r.rowArgs(keys, holders)...)
}

// putKeyGrants writes what rows say: one statement stores, and one deletes.
func (c changes) putKeyGrants(agent string, rows map[keyGrant]keyRow) error {
	var keys, holders, gone, goneHolders []string
	var wanted, places, rates []int64
	var until []core.Instant
	for name, row := range rows {
		switch {
		case row.keep:
			keys, holders, wanted, places = append(keys, name.key), append(holders, name.holder), append(wanted, int64(row.is.Wanted)), append(places, int64(row.is.Places))
			rates, until = append(rates, row.is.RateMilli), append(until, row.is.Until)
		case row.was && !row.stays:
			gone, goneHolders = append(gone, name.key), append(goneHolders, name.holder)
		}
	}
	if len(gone) > 0 {
		query, args := c.r.dropKeyGrants(agent, gone, goneHolders)
		if _, err := c.exec(query, args...); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := c.exec(qPutKeyGrants+c.r.rows(2, `key TEXT`, `holder TEXT`, `wanted INT8`, `places INT8`, `rate_milli INT8`, `until_at TIMESTAMPTZ`)+putKeyGrantsEnd,
		append([]any{operate.CleanText(agent)}, c.r.rowArgs(keys, holders, wanted, places, rates, until)...)...)
	return err
}

// busiestKeys adds to each agent's sums how many keys have grants, and the keys with the most unmet demand.
func (a *asked) busiestKeys(ctx context.Context, now core.Instant, sums map[string]operate.Granted) error {
	type row struct {
		agent string
		keys  int64
		operate.KeyGranted
	}
	all, err := scanAll(ctx, a.of, func(from interface{ Scan(...any) error }) (r row, err error) {
		err = from.Scan(&r.agent, &r.keys, &r.Key, &r.Holders, &r.Wanted, &r.Places)
		return r, err
	}, qBusiestKeys, a.of.time(now), operate.BusiestKeysMax)
	if err != nil {
		return fmt.Errorf("grants of keys: %w", err)
	}
	for i := range all {
		sum := sums[all[i].agent]
		sum.Keys, sum.Busiest = all[i].keys, append(sum.Busiest, all[i].KeyGranted)
		sums[all[i].agent] = sum
	}
	return nil
}
