package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	auditColumns = `number, at, actor, role, from_addr, via, action, target, reason, was, is_now, COALESCE(became, outcome), COALESCE(request_key, ''), request_id`
	// outcome says how far the action is; became is its final outcome, NULL until there is one. An entry is
	// never changed but for these two.
	qAppend = `INSERT INTO audit (number, at, actor, role, from_addr, via, action, target, reason, was, is_now, outcome, request_key, request_id, became)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)`
	qAuditKey     = `SELECT ` + auditColumns + ` FROM audit WHERE request_key = ?1`
	qSetOutcome   = `UPDATE audit SET became = ?2 WHERE number = ?1 AND became IS NULL`
	qSetAsked     = `UPDATE audit SET outcome = ?2 WHERE number = ?1 AND became IS NULL`
	qAuditOutcome = `SELECT COALESCE(became, '') FROM audit WHERE number = ?1`
	qUnsettled    = `SELECT ` + auditColumns + ` FROM audit WHERE became IS NULL AND number > ?1 ORDER BY number LIMIT ?2`
)

const (
	// auditChunk is how many entries of a target are read at a time.
	auditChunk = 1000
	// auditSkewMax is how far the times of neighbouring entries may be out of order.
	auditSkewMax = time.Hour
)

// Append implements operate.Trail. Numbers are in the order of commits. If there is an entry with e's key
// already, it stores nothing and returns that one as again.
func (a *asked) Append(ctx context.Context, e operate.AuditEntry) (number int64, again *operate.AuditEntry, err error) {
	err = a.change(ctx, func(c changes) (err error) {
		// This locks the row of the numbers, so that no other entry with this key can come between the look
		// and the insert.
		if number, err = c.nextNumber("audit"); err != nil {
			return err
		}
		if again, err = c.auditEntry(e.Key); err != nil {
			return err
		}
		if again != nil {
			return errStands
		}
		outcome, became := operate.CleanText(e.Outcome), any(nil)
		if operate.IsSettled(outcome) {
			became = outcome
		}
		_, err = c.exec(qAppend, number, a.of.time(core.InstantOf(e.At)), operate.CleanText(e.Actor), string(e.Role), operate.CleanText(e.From), operate.CleanText(e.Via), operate.CleanText(e.Action), []byte(e.Target),
			operate.CleanText(e.Reason), someBytes(e.Before), someBytes(e.After), outcome, someText(operate.CleanText(e.Key)), operate.CleanText(e.Request), became)
		return err
	})
	if again != nil && errors.Is(err, errStands) {
		return again.Number, again, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("audit entry %s of %s: %w", e.Action, core.QuoteShort(e.Target), err)
	}
	return number, nil, nil
}

// errStands rolls back a transaction whose entry exists already, so that no number is used up.
var errStands = errors.New("there already")

// someText is s as a parameter; an empty one is NULL.
func someText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// auditEntry reads the entry with a key; nil: there is none.
func (c changes) auditEntry(key string) (*operate.AuditEntry, error) {
	if key == "" {
		return nil, nil
	}
	e, err := scanAudit(c.tx.QueryRowContext(c.ctx, c.r.params(qAuditKey), operate.CleanText(key)))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &e, nil
}

// scanAudit reads a row of auditColumns.
func scanAudit(row interface{ Scan(...any) error }) (operate.AuditEntry, error) {
	var e operate.AuditEntry
	var at instant
	var role string
	var target, before, after []byte
	err := row.Scan(&e.Number, &at, &e.Actor, &role, &e.From, &e.Via, &e.Action, &target, &e.Reason, &before, &after, &e.Outcome, &e.Key, &e.Request)
	e.At, e.Role, e.Target, e.Before, e.After = at.timeOf(), operate.Role(role), string(target), before, after
	return e, err
}

// SetOutcome implements operate.Trail. Errors: those of settle.
func (a *asked) SetOutcome(ctx context.Context, number int64, outcome string) error {
	err := a.change(ctx, func(c changes) error { return c.settle(number, operate.CleanText(outcome)) })
	return about(err, "outcome of audit entry %d", number)
}

// settle writes the final outcome of an entry; or, before that, that its action was asked for and where the
// answer will be. An entry gets one final outcome only. Errors: core.ErrNotFound; operate.Settled with the
// outcome that it has, if that is another.
func (c changes) settle(number int64, outcome string) error {
	query := qSetAsked
	if operate.IsSettled(outcome) {
		query = qSetOutcome
	}
	n, err := c.exec(query, number, outcome)
	if err != nil || n > 0 {
		return err
	}
	var has string
	err = c.row(qAuditOutcome, []any{number}, &has)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return core.ErrNotFound
	case err == nil && has != outcome:
		return operate.Settled(has)
	}
	return err
}

// Unsettled implements operate.Unsettled, the oldest first.
func (a *asked) Unsettled(ctx context.Context, after int64, limit int) ([]operate.AuditEntry, error) {
	all, err := scanAll(ctx, a.of, scanAudit, qUnsettled, after, limit)
	return all, about(err, "audit entries without an outcome")
}

// Audit implements operate.Trail. A call reads lookMax entries at most: a page may be short or empty and
// still have a next one.
func (a *asked) Audit(ctx context.Context, f operate.AuditFilter) (operate.AuditPage, error) {
	var page operate.AuditPage
	if f.Limit < 1 || f.Limit > operate.ListMax {
		return page, fmt.Errorf("audit: limit %d, want 1 to %d", f.Limit, operate.ListMax)
	}
	below := int64(math.MaxInt64)
	if f.After != "" {
		var err error
		if below, err = cursorNumber(f.After); err != nil {
			return page, fmt.Errorf("audit: %w", err)
		}
	}
	from, to, err := a.of.auditRange(ctx, f)
	if err != nil {
		return page, fmt.Errorf("audit: %w", err)
	}
	// The range of time, or the page before, leaves nothing.
	if below = min(below, to); below <= from {
		return page, nil
	}
	found, few, err := a.of.auditTarget(ctx, f)
	if err != nil {
		return page, fmt.Errorf("audit: %w", err)
	}
	// floor is down to where this call reads.
	floor := from
	if few {
		page.Entries, err = a.of.auditOf(ctx, f, from, below, found)
	} else {
		if f.Target != "" || (f.Actor == "") == (f.Action == "") { // no index has just these entries in order, so others are passed over
			floor = max(from, below-lookMax)
		}
		page.Entries, err = a.of.auditEntries(ctx, f, floor, below, nil)
	}
	if err != nil {
		return page, fmt.Errorf("audit: %w", err)
	}
	switch {
	case len(page.Entries) > f.Limit:
		page.Entries = page.Entries[:f.Limit]
		page.Next = fmt.Sprint(page.Entries[f.Limit-1].Number)
	case floor > from:
		page.Next = fmt.Sprint(floor)
	}
	return page, nil
}

// Queries for the numbers where a range of time begins and ends.
const (
	qAuditFrom = `SELECT number FROM audit WHERE at >= ?1 ORDER BY at, number LIMIT 1`
	qAuditLast = `SELECT COALESCE(max(number), 0) FROM audit`
	qAuditHas  = `SELECT number FROM audit WHERE `
)

// auditRange returns the range of numbers, from one up to below another, in which a filter's times can be.
func (r *reader) auditRange(ctx context.Context, f operate.AuditFilter) (from, to int64, err error) {
	last, err := column[int64](ctx, r, qAuditLast)
	if err != nil {
		return 0, 0, err
	}
	from, to = 1, last[0]+1
	at := func(t time.Time) (int64, error) {
		n, err := column[int64](ctx, r, qAuditFrom, r.time(core.InstantOf(t)))
		if err != nil || len(n) == 0 {
			return to, err
		}
		return n[0], nil
	}
	if !f.From.IsZero() {
		if from, err = at(f.From.Add(-auditSkewMax)); err != nil {
			return 0, 0, err
		}
	}
	if !f.To.IsZero() {
		if to, err = at(f.To.Add(auditSkewMax)); err != nil {
			return 0, 0, err
		}
	}
	return from, to, nil
}

// auditTarget returns the numbers of a target's entries if they are few (under lookMax). Are they many,
// walking the trail finds them soon enough.
func (r *reader) auditTarget(ctx context.Context, f operate.AuditFilter) (found []int64, few bool, err error) {
	if f.Target == "" {
		return nil, false, nil
	}
	var c conditions
	c.ofTarget(f)
	found, err = column[int64](ctx, r, qAuditHas+c.String()+` LIMIT `+c.param(lookMax), c.args...)
	return found, len(found) < lookMax, err
}

// ofTarget adds the condition of a filter's target.
func (c *conditions) ofTarget(f operate.AuditFilter) {
	if f.Whole {
		c.add(`target = %s`, []byte(f.Target))
		return
	}
	c.prefixed(`target`, f.Target)
}

// auditOf reads the entries with given numbers that pass the filter, the newest first, up to f.Limit+1.
func (r *reader) auditOf(ctx context.Context, f operate.AuditFilter, from, below int64, numbers []int64) ([]operate.AuditEntry, error) {
	slices.Sort(numbers)
	slices.Reverse(numbers)
	var all []operate.AuditEntry
	for some := range slices.Chunk(numbers, auditChunk) {
		if some[len(some)-1] >= below {
			continue
		}
		entries, err := r.auditEntries(ctx, f, from, below, some)
		if err != nil {
			return nil, err
		}
		if all = append(all, entries...); len(all) > f.Limit {
			return all[:f.Limit+1], nil
		}
	}
	return all, nil
}

// auditEntries reads entries with numbers from one up to below another that pass the filter, the newest
// first, up to f.Limit+1; with only, those of them alone.
func (r *reader) auditEntries(ctx context.Context, f operate.AuditFilter, from, below int64, only []int64) ([]operate.AuditEntry, error) {
	var c conditions
	c.add(`number >= %s`, from)
	c.add(`number < %s`, below)
	// One more than a page, to know whether there is a next one.
	limit := c.param(f.Limit + 1)
	if f.Actor != "" {
		c.add(`actor = %s`, operate.CleanText(f.Actor))
	}
	if f.Action != "" {
		c.add(`action = %s`, operate.CleanText(f.Action))
	}
	if f.Target != "" && only == nil {
		c.ofTarget(f)
	}
	if !f.From.IsZero() {
		c.add(`at >= %s`, r.time(core.InstantOf(f.From)))
	}
	if !f.To.IsZero() {
		c.add(`at < %s`, r.time(core.InstantOf(f.To)))
	}
	if only != nil {
		c.where = append(c.where, `number IN (SELECT u.number FROM `+r.rows(len(c.args)+1, `number INT8`)+`)`)
		c.args = append(c.args, r.rowArgs(only)...)
	}
	return scanAll(ctx, r, scanAudit, `SELECT `+auditColumns+` FROM audit WHERE `+c.String()+` ORDER BY number DESC LIMIT `+limit, c.args...)
}
