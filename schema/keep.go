package schema

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// keptMax bounds how many rows are read of a small table: tokens, settings or pauses.
const keptMax = 10_000

// SettingBytesMax is how large the document of a setting may be.
const SettingBytesMax = 64 << 10

const (
	tokenColumns = `id, name, role, hash, created_at, by_name, expires_at, revoked_at, used_at, labels`
	qPutToken    = `INSERT INTO tokens (` + tokenColumns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
	ON CONFLICT (id) DO UPDATE SET name = excluded.name, role = excluded.role, hash = excluded.hash, created_at = excluded.created_at, by_name = excluded.by_name,
	expires_at = excluded.expires_at, revoked_at = excluded.revoked_at, used_at = excluded.used_at, labels = excluded.labels`
	qToken  = `SELECT ` + tokenColumns + ` FROM tokens WHERE id = ?1`
	qTokens = `SELECT ` + tokenColumns + ` FROM tokens ORDER BY created_at, id LIMIT ?1`
	// The first revocation counts. A touch never sets used_at back, so that nodes may report in any order.
	qRevokeToken = `UPDATE tokens SET revoked_at = COALESCE(revoked_at, ?2) WHERE id = ?1`
	qTouchToken  = `UPDATE tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2)`

	qAddNote = `INSERT INTO notes (target, number, at, by_name, words) VALUES (?1, ?2, ?3, ?4, ?5)`
	qNotes   = `SELECT number, target, at, by_name, words FROM notes WHERE target = ?1 ORDER BY number DESC LIMIT ?2`

	qPutSetting    = `INSERT INTO settings (name, document) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET document = excluded.document`
	qSetting       = `SELECT document FROM settings WHERE name = ?1`
	qSettings      = `SELECT name, document FROM settings ORDER BY name LIMIT ?1`
	qDeleteSetting = `DELETE FROM settings WHERE name = ?1`

	qPutPause = `INSERT INTO pauses (id, type, step, agent, label, until_at, at, by_name, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
	ON CONFLICT (id) DO UPDATE SET type = excluded.type, step = excluded.step, agent = excluded.agent, label = excluded.label, until_at = excluded.until_at,
	at = excluded.at, by_name = excluded.by_name, reason = excluded.reason`
	qDeletePause = `DELETE FROM pauses WHERE id = ?1`
	qPauses      = `SELECT id, type, step, agent, label, until_at, at, by_name, reason FROM pauses ORDER BY at, id LIMIT ?1`
)

// querier runs queries: a reader, or the transaction of changes.
type querier interface {
	query(ctx context.Context, query string, args ...any) (rowSet, error)
}

// scanAll reads all rows of a query by scan.
func scanAll[T any](ctx context.Context, q querier, scan func(row interface{ Scan(...any) error }) (T, error), query string, args ...any) ([]T, error) {
	var found []T
	for row := range each(q.query(ctx, query, args...)) {
		v, err := scan(row)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, nil
}

// scanned is a row that each yields, or the error that ended the query.
type scanned struct {
	rows rowSet
	err  error
}

// Scan reads the row. Error: of the row, or the one that ended the query.
func (s *scanned) Scan(to ...any) error {
	if s.err != nil {
		return s.err
	}
	return s.rows.Scan(to...)
}

// each yields the rows of a query, and closes it at the end or when the loop is left. If the query fails, the
// last row's Scan returns the error; so a loop that checks each Scan needs no other check.
func each(rows rowSet, err error) iter.Seq[*scanned] {
	return func(yield func(*scanned) bool) {
		if err == nil {
			defer rows.Close()
			for row := (&scanned{rows: rows}); rows.Next(); {
				if !yield(row) {
					return
				}
			}
			err = rows.Err()
		}
		if err != nil {
			yield(&scanned{err: err})
		}
	}
}

// PutToken implements operate.TokenStore. It replaces a token that has the same id.
func (a *asked) PutToken(ctx context.Context, t operate.Token) error {
	r := a.of
	_, err := a.execOne(ctx, qPutToken, operate.CleanText(t.ID), operate.CleanText(t.Name), string(t.Role), t.Hash, r.time(core.InstantOf(t.Created)), operate.CleanText(t.By), r.when(t.Expires), r.when(t.Revoked), r.when(t.LastUsed), operate.CleanText(t.Labels))
	return about(err, "token %s", core.QuoteShort(t.ID))
}

// scanToken reads a row of tokenColumns.
func scanToken(row interface{ Scan(...any) error }) (operate.Token, error) {
	var t operate.Token
	var role string
	var created, expires, revoked, used instant
	err := row.Scan(&t.ID, &t.Name, &role, &t.Hash, &created, &t.By, &expires, &revoked, &used, &t.Labels)
	t.Role, t.Created, t.Expires, t.Revoked, t.LastUsed = operate.Role(role), created.timeOf(), expires.timeOf(), revoked.timeOf(), used.timeOf()
	return t, err
}

// TokenByID implements operate.TokenStore, also for a token that is revoked or over. Error: core.ErrNotFound.
func (a *asked) TokenByID(ctx context.Context, id string) (operate.Token, error) {
	return lookUp(ctx, a, "token", id, scanToken, qToken, operate.CleanText(id))
}

// Tokens implements operate.TokenStore, the oldest first.
func (a *asked) Tokens(ctx context.Context) ([]operate.Token, error) {
	tokens, err := scanAll(ctx, a.of, scanToken, qTokens, keptMax)
	return tokens, about(err, "tokens")
}

// RevokeToken implements operate.TokenStore. It ends the token's sessions too. A token that is revoked
// already keeps the earlier time. Error: core.ErrNotFound.
func (a *asked) RevokeToken(ctx context.Context, id string, at time.Time) error {
	var n int64
	err := a.change(ctx, func(c changes) (err error) {
		if n, err = c.exec(qRevokeToken, operate.CleanText(id), a.of.time(core.InstantOf(at))); err == nil {
			_, err = c.exec(qEndSessions, operate.CleanText(id))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", core.QuoteShort(id), err)
	}
	if n == 0 {
		return notThere("token", id)
	}
	return nil
}

// TouchToken implements operate.TokenStore. The stored time of use only moves forward.
func (a *asked) TouchToken(ctx context.Context, id string, at time.Time) error {
	_, err := a.execOne(ctx, qTouchToken, operate.CleanText(id), a.of.time(core.InstantOf(at)))
	return about(err, "use of token %s", core.QuoteShort(id))
}

// AddNote implements operate.NoteStore. It returns the note with its number.
func (a *asked) AddNote(ctx context.Context, n operate.Note) (operate.Note, error) {
	if err := core.CheckWords("text", n.Text); err != nil {
		return n, &operate.Refusal{Code: 400, Field: "text", Detail: err.Error()}
	}
	n.Target, n.By, n.Text = operate.CleanText(n.Target), operate.CleanText(n.By), operate.CleanText(n.Text)
	err := a.change(ctx, func(c changes) (err error) {
		if n.Number, err = c.nextNumber("notes"); err == nil {
			_, err = c.exec(qAddNote, n.Target, n.Number, a.of.time(core.InstantOf(n.At)), n.By, n.Text)
		}
		return err
	})
	return n, about(err, "note on %s", core.QuoteShort(n.Target))
}

func scanNote(row interface{ Scan(...any) error }) (operate.Note, error) {
	var n operate.Note
	var at instant
	err := row.Scan(&n.Number, &n.Target, &at, &n.By, &n.Text)
	n.At = at.timeOf()
	return n, err
}

// Notes implements operate.NoteStore, the newest first.
func (a *asked) Notes(ctx context.Context, target string, limit int) ([]operate.Note, error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, fmt.Errorf("notes: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	notes, err := scanAll(ctx, a.of, scanNote, qNotes, operate.CleanText(target), limit)
	return notes, about(err, "notes on %s", core.QuoteShort(target))
}

// PutSetting implements operate.SettingStore. It replaces the document of that name. Error: an
// *operate.Refusal for one that is too large.
func (a *asked) PutSetting(ctx context.Context, name string, document []byte) error {
	if len(document) > SettingBytesMax {
		return &operate.Refusal{Code: 413, Field: "document", Detail: fmt.Sprintf("document: %d bytes, want at most %d", len(document), SettingBytesMax)}
	}
	if document == nil {
		document = []byte{}
	}
	_, err := a.execOne(ctx, qPutSetting, operate.CleanText(name), document)
	return about(err, "setting %s", core.QuoteShort(name))
}

// Setting implements operate.SettingStore. Error: core.ErrNotFound.
func (a *asked) Setting(ctx context.Context, name string) ([]byte, error) {
	found, err := column[[]byte](ctx, a.of, qSetting, operate.CleanText(name))
	if err != nil {
		return nil, fmt.Errorf("setting %s: %w", core.QuoteShort(name), err)
	}
	if len(found) == 0 {
		return nil, notThere("setting", name)
	}
	return found[0], nil
}

// Settings implements operate.SettingStore: the documents by name whose name begins with prefix. It reads
// all, of which there are few.
func (a *asked) Settings(ctx context.Context, prefix string) (map[string][]byte, error) {
	found := map[string][]byte{}
	for row := range each(a.of.query(ctx, qSettings, keptMax)) {
		var name string
		var document []byte
		if err := row.Scan(&name, &document); err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
		if strings.HasPrefix(name, prefix) {
			found[name] = document
		}
	}
	return found, nil
}

// DeleteSetting implements operate.SettingStore. One that is not there is no error.
func (a *asked) DeleteSetting(ctx context.Context, name string) error {
	_, err := a.execOne(ctx, qDeleteSetting, operate.CleanText(name))
	return about(err, "setting %s", core.QuoteShort(name))
}

// PutPause implements operate.PauseStore. A pause whose id is there is replaced.
func (a *asked) PutPause(ctx context.Context, p operate.Pause) error {
	r := a.of
	_, err := a.execOne(ctx, qPutPause, operate.CleanText(p.ID), operate.CleanText(p.Type), operate.CleanText(p.Step), operate.CleanText(p.Agent), operate.CleanText(p.Label), r.when(p.Until), r.time(core.InstantOf(p.At)), operate.CleanText(p.By), operate.CleanText(p.Reason))
	return about(err, "pause %s", core.QuoteShort(p.ID))
}

// DeletePause implements operate.PauseStore. One that is not there is no error.
func (a *asked) DeletePause(ctx context.Context, id string) error {
	_, err := a.execOne(ctx, qDeletePause, operate.CleanText(id))
	return about(err, "pause %s", core.QuoteShort(id))
}

func scanPause(row interface{ Scan(...any) error }) (operate.Pause, error) {
	var p operate.Pause
	var until, at instant
	err := row.Scan(&p.ID, &p.Type, &p.Step, &p.Agent, &p.Label, &until, &at, &p.By, &p.Reason)
	p.Until, p.At = until.timeOf(), at.timeOf()
	return p, err
}

// Pauses implements operate.PauseStore, the oldest first. A pause whose time is over stays in the list until
// it is deleted.
func (a *asked) Pauses(ctx context.Context) ([]operate.Pause, error) {
	pauses, err := scanAll(ctx, a.of, scanPause, qPauses, keptMax)
	return pauses, about(err, "pauses")
}
