package schema

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// settingBooks is the setting with the newest result of a comparison of the books.
const settingBooks = "books.result"

// booksBytesMax is how large a result may be. It has a line for each agent of the plans.
const booksBytesMax = 1 << 20

const (
	ghostColumns = `agent, effect, kind, task, type, step, state, seq, times, made_at, words, found_at, status, undoable, again, repair, by_name, decided_at, reason, audit`
	qPutGhost    = `INSERT INTO ghosts (` + ghostColumns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)`
	qGhosts      = `SELECT ` + ghostColumns + ` FROM ghosts`
	qGhost       = qGhosts + ` WHERE agent = ?1 AND effect = ?2`
	qGhostsAll   = qGhosts + ` ORDER BY agent, effect LIMIT ?1`
	qDropGhosts  = `DELETE FROM ghosts WHERE status <> 'accepted' OR decided_at < ?1`
	qDropGhost   = `DELETE FROM ghosts WHERE agent = ?1 AND effect = ?2`
	qAccepted    = `SELECT count(*) FROM ghosts WHERE status = 'accepted'`
	qDecideGhost = `UPDATE ghosts SET status = ?3, repair = ?4, by_name = ?5, decided_at = ?6, reason = ?7, audit = ?8 WHERE agent = ?1 AND effect = ?2`
)

// scanGhost reads a row of ghostColumns.
func scanGhost(row interface{ Scan(...any) error }) (operate.Ghost, error) {
	var g operate.Ghost
	var kind, state, status, repair string
	var made, found, decided instant
	var undoable, again int64
	err := row.Scan(&g.Agent, &g.Key, &kind, &g.Task, &g.Type, &g.Step, &state, &g.Seq, &g.Times, &made, &g.Text, &found, &status, &undoable, &again, &repair, &g.By, &decided, &g.Reason, &g.Audit)
	g.Kind, g.State, g.Status, g.Repair = operate.GhostKind(kind), core.State(state), operate.GhostStatus(status), operate.Repair(repair)
	g.Made, g.Found, g.Decided, g.Again, g.Repairs = made.timeOf(), found.timeOf(), decided.timeOf(), again != 0, operate.RepairsOf(undoable != 0)
	return g, err
}

// putGhost stores a ghost that is not stored yet.
func (c changes) putGhost(g *operate.Ghost) error {
	r := c.r
	_, err := c.exec(qPutGhost, operate.CleanText(g.Agent), operate.CleanText(g.Key), string(g.Kind), operate.CleanText(g.Task), operate.CleanText(g.Type), operate.CleanText(g.Step), string(g.State), g.Seq, int64(g.Times), r.when(g.Made),
		operate.CleanText(g.Text), r.time(core.InstantOf(g.Found)), string(g.Status), bit(g.Can(operate.RepairUndo)), bit(g.Again), string(g.Repair), operate.CleanText(g.By), r.when(g.Decided), operate.CleanText(g.Reason), g.Audit)
	return err
}

// ghostKey names a ghost: an effect at an agent.
type ghostKey struct{ agent, effect string }

// PutBooks implements operate.BooksStore. It keeps the stored result if that is newer.
func (a *asked) PutBooks(ctx context.Context, result operate.BooksResult, ghosts []operate.Ghost) error {
	if len(ghosts) > operate.GhostsMax {
		return fmt.Errorf("books: %d ghosts, the limit is %d", len(ghosts), operate.GhostsMax)
	}
	document, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("books: %w", err)
	}
	if len(document) > booksBytesMax {
		return fmt.Errorf("books: the result has %d bytes, the limit is %d", len(document), booksBytesMax)
	}
	err = a.change(ctx, func(c changes) error {
		was, err := c.books()
		if err != nil || was.At.After(result.At) {
			return err
		}
		if _, err := c.exec(qPutSetting, settingBooks, document); err != nil {
			return err
		}
		return c.replaceGhosts(&result, ghosts)
	})
	return about(err, "books")
}

// books reads the stored result; the zero result when there is none.
func (c changes) books() (operate.BooksResult, error) {
	var r operate.BooksResult
	var document []byte
	err := c.row(qSetting, []any{settingBooks}, &document)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(document, &r)
}

// replaceGhosts replaces the open ghosts by those of a new comparison. An acceptance stands if the ghost is
// still the same, and an undo that somebody asked for after the comparison began stays asked for. If the undo
// was asked for earlier and the ghost is still there, it is open again.
func (c changes) replaceGhosts(result *operate.BooksResult, ghosts []operate.Ghost) error {
	before, err := c.ghosts()
	if err != nil {
		return err
	}
	if _, err := c.exec(qDropGhosts, c.r.time(core.InstantOf(result.At.Add(-operate.GhostAcceptedFor)))); err != nil {
		return err
	}
	put := make(map[ghostKey]bool, len(ghosts))
	for i := range ghosts {
		g := ghosts[i]
		key := ghostKey{operate.CleanText(g.Agent), operate.CleanText(g.Key)}
		// What a service changed meanwhile may have been found on two pages.
		if put[key] {
			continue
		}
		put[key] = true
		g.Found, g.Status = result.At, operate.GhostOpen
		if was, there := before[key]; there {
			if was.Status == operate.GhostAccepted {
				// Accepted was this very finding: another kind or number of calls is a new one, for a person
				// to look at.
				if was.Kind == g.Kind && was.Times == g.Times {
					continue // it was accepted while the comparison ran
				}
				if _, err := c.exec(qDropGhost, operate.CleanText(g.Agent), operate.CleanText(g.Key)); err != nil {
					return err
				}
			} else if was.Kind == g.Kind {
				g.Found, g.Repair, g.By, g.Decided, g.Reason, g.Audit = was.Found, was.Repair, was.By, was.Decided, was.Reason, was.Audit
				if was.Status == operate.GhostAsked && was.Decided.After(result.Begun) {
					g.Status = was.Status
				}
				g.Again = g.Repair == operate.RepairUndo && g.Status == operate.GhostOpen
			}
		}
		if err := c.putGhost(&g); err != nil {
			return err
		}
	}
	return nil
}

// ghosts reads all stored ghosts.
func (c changes) ghosts() (map[ghostKey]operate.Ghost, error) {
	all := map[ghostKey]operate.Ghost{}
	for row := range each(c.query(c.ctx, qGhostsAll, operate.GhostsMax+operate.GhostsAcceptedMax)) {
		g, err := scanGhost(row)
		if err != nil {
			return nil, err
		}
		all[ghostKey{g.Agent, g.Key}] = g
	}
	return all, nil
}

// LastBooks implements operate.BooksStore. Error: core.ErrNotFound when there was no comparison yet.
func (a *asked) LastBooks(ctx context.Context) (operate.BooksResult, error) {
	var r operate.BooksResult
	document, err := a.Setting(ctx, settingBooks)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(document, &r); err != nil {
		return r, fmt.Errorf("books: %w", err)
	}
	return r, nil
}

// Ghosts implements operate.BooksStore. The cursor is the agent and the key of the page's last ghost with a
// space between; neither holds one.
func (a *asked) Ghosts(ctx context.Context, statuses []operate.GhostStatus, limit int, after string) (ghosts []operate.Ghost, next string, err error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, "", fmt.Errorf("ghosts: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	c := conditions{}
	var where []string
	if after != "" {
		agent, key, ok := strings.Cut(after, " ")
		if !ok {
			return nil, "", fmt.Errorf("ghosts: %w: %s, want an agent and a key", core.ErrCursor, core.QuoteShort(after))
		}
		where = append(where, `(agent, effect) > (`+c.param(operate.CleanText(agent))+`, `+c.param(operate.CleanText(key))+`)`)
	}
	if len(statuses) > 0 {
		list := make([]string, len(statuses))
		for i, s := range statuses {
			list[i] = c.param(string(s))
		}
		where = append(where, `status IN (`+strings.Join(list, ", ")+`)`)
	}
	query := qGhosts
	if len(where) > 0 {
		query += ` WHERE ` + strings.Join(where, ` AND `)
	}
	ghosts, err = scanAll(ctx, a.of, scanGhost, query+` ORDER BY agent, effect LIMIT `+c.param(limit+1), c.args...)
	if err != nil {
		return nil, "", fmt.Errorf("ghosts: %w", err)
	}
	if len(ghosts) > limit {
		ghosts = slices.Clip(ghosts[:limit])
		next = ghosts[limit-1].Agent + " " + ghosts[limit-1].Key
	}
	return ghosts, next, nil
}

// Ghost implements operate.BooksStore.
func (a *asked) Ghost(ctx context.Context, agent, key string) (operate.Ghost, error) {
	return lookUp(ctx, a, "ghost", key, scanGhost, qGhost, operate.CleanText(agent), operate.CleanText(key))
}

// DecideGhost implements operate.BooksStore. Errors: core.ErrNotFound; an *operate.Refusal when too many are
// accepted.
func (a *asked) DecideGhost(ctx context.Context, g operate.Ghost) error {
	err := a.change(ctx, func(c changes) error {
		if g.Status == operate.GhostAccepted {
			var accepted int64
			if err := c.row(qAccepted, nil, &accepted); err != nil {
				return err
			}
			if accepted >= operate.GhostsAcceptedMax {
				return &operate.Refusal{Code: 409, Detail: fmt.Sprintf("%d ghosts are accepted, the limit is %d: repair the services", accepted, operate.GhostsAcceptedMax)}
			}
		}
		n, err := c.exec(qDecideGhost, operate.CleanText(g.Agent), operate.CleanText(g.Key), string(g.Status), string(g.Repair), operate.CleanText(g.By), c.r.when(g.Decided), operate.CleanText(g.Reason), g.Audit)
		if err == nil && n == 0 {
			return core.ErrNotFound
		}
		return err
	})
	return about(err, "ghost %s", core.QuoteShort(g.Key))
}

// SavedIDs implements operate.BooksStore.
func (a *asked) SavedIDs(ctx context.Context, partition int, ids []string) ([]core.Saved, error) {
	return a.of.LoadIDs(ctx, core.AsOf{Partition: partition}, ids)
}
