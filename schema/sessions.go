package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	qPutSession     = `INSERT INTO sessions (id, data, expires_at, owner) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at`
	qCountSessions  = `SELECT count(*), count(CASE WHEN owner = ?1 THEN 1 END) FROM sessions WHERE id <> ?2`
	qSession        = `SELECT id, data, expires_at, owner FROM sessions WHERE id = ?1`
	qSessionIDs     = `SELECT id FROM sessions LIMIT ?1`
	qDeleteSession  = `DELETE FROM sessions WHERE id = ?1`
	qEndSessions    = `DELETE FROM sessions WHERE owner = ?1`
	qSessionsEnded  = `DELETE FROM sessions WHERE id IN (SELECT s.id FROM sessions s WHERE s.expires_at <= ?1 ORDER BY s.expires_at, s.id LIMIT ?2)`
	sessionBytesMax = 4 << 10
	sessionsPage    = 1000
)

// PutSession implements operate.SessionStore. It deletes some expired sessions on the way.
func (a *asked) PutSession(ctx context.Context, s operate.Session, now time.Time) error {
	if len(s.Data) > sessionBytesMax {
		return fmt.Errorf("session: it has %d bytes, the limit is %d", len(s.Data), sessionBytesMax)
	}
	err := a.change(ctx, func(c changes) error {
		// Sign-ins alone clean up, some expired sessions each: nobody else needs them gone.
		if _, err := c.exec(qSessionsEnded, a.of.time(core.InstantOf(now)), sessionsPage); err != nil {
			return err
		}
		id, owner := operate.CleanText(s.ID), operate.CleanText(s.Owner)
		if _, err := c.nextNumber("sessions"); err != nil { // locks a row, so that one transaction at a time counts the sessions
			return err
		}
		var all, own int64
		if err := c.row(qCountSessions, []any{owner, id}, &all, &own); err != nil {
			return err
		}
		switch {
		case own >= operate.SessionsEach:
			return &operate.Refusal{Code: 429, Detail: fmt.Sprintf("there are %d sessions of this token or person, the limit; sign out of one of them", own)}
		case all >= operate.SessionsMax:
			return &operate.Refusal{Code: 429, Detail: fmt.Sprintf("there are %d sessions, the limit; one ends within hours", all)}
		}
		_, err := c.exec(qPutSession, id, s.Data, a.of.time(core.InstantOf(s.Expires)), owner)
		return err
	})
	return about(err, "session")
}

// scanSession reads a row of sessions.
func scanSession(row interface{ Scan(...any) error }) (operate.Session, error) {
	var s operate.Session
	var expires instant
	err := row.Scan(&s.ID, &s.Data, &expires, &s.Owner)
	s.Expires = expires.timeOf()
	return s, err
}

// SessionByID implements operate.SessionStore. It may return one that has expired. Error: core.ErrNotFound,
// without the id, which is a secret.
func (a *asked) SessionByID(ctx context.Context, id string) (operate.Session, error) {
	s, err := scanSession(a.of.db.QueryRowContext(ctx, a.of.params(qSession), operate.CleanText(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("session: %w", core.ErrNotFound)
	}
	return s, about(err, "session")
}

// SessionIDs implements operate.SessionStore.
func (a *asked) SessionIDs(ctx context.Context) ([]string, error) {
	ids, err := column[string](ctx, a.of, qSessionIDs, 2*operate.SessionsMax) // beside those that are over
	return ids, about(err, "ids of sessions")
}

// DeleteSession implements operate.SessionStore.
func (a *asked) DeleteSession(ctx context.Context, id string) error {
	_, err := a.execOne(ctx, qDeleteSession, operate.CleanText(id))
	return about(err, "session")
}

// qForgetAudit deletes the oldest audit entries before a time, up to a number.
const qForgetAudit = `DELETE FROM audit WHERE number IN (SELECT a.number FROM audit a WHERE a.at < ?1 ORDER BY a.at, a.number LIMIT ?2)`

// ForgetAudit implements Store. Entries keep their numbers, and a deleted entry's number is not used again.
func (a *asked) ForgetAudit(ctx context.Context, before core.Instant, most int) (int, error) {
	n, err := a.execOne(ctx, qForgetAudit, a.of.time(before), most)
	if err != nil {
		return 0, fmt.Errorf("audit entries before %s: %w", before.Time().Format(time.RFC3339), err)
	}
	return int(n), nil
}
