package postgres_test

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema/postgres"
)

// What operators read and write, with the patience of its users: a change whose outcome is not known
// is looked for before it is made again.

func (p patient) JournalPage(ctx context.Context, partition int, number, before int64, limit int) ([]core.Record, error) {
	return retried(ctx, func() ([]core.Record, error) { return p.Store.JournalPage(ctx, partition, number, before, limit) })
}

func (p patient) Groups(ctx context.Context, f operate.GroupFilter) (operate.Groups, error) {
	return retried(ctx, func() (operate.Groups, error) { return p.Store.Groups(ctx, f) })
}

func (p patient) Group(ctx context.Context, id string) (operate.Group, error) {
	return retried(ctx, func() (operate.Group, error) { return p.Store.Group(ctx, id) })
}

func (p patient) Signals(ctx context.Context, near core.Instant, next int) (operate.Signals, error) {
	return retried(ctx, func() (operate.Signals, error) { return p.Store.Signals(ctx, near, next) })
}

func (p patient) AtRisk(ctx context.Context, before core.Instant, limit int) (tasks []core.View, more bool, err error) {
	err = retriedDo(ctx, func() error {
		tasks, more, err = p.Store.AtRisk(ctx, before, limit)
		return err
	})
	return tasks, more, err
}

func (p patient) Sample(ctx context.Context, newest int) (operate.Sample, error) {
	return retried(ctx, func() (operate.Sample, error) { return p.Store.Sample(ctx, newest) })
}

func (p patient) Joined(ctx context.Context, op operate.Operation) (operate.Count, error) {
	return retried(ctx, func() (operate.Count, error) { return p.Store.Joined(ctx, op) })
}

func (p patient) Audit(ctx context.Context, f operate.AuditFilter) (operate.AuditPage, error) {
	return retried(ctx, func() (operate.AuditPage, error) { return p.Store.Audit(ctx, f) })
}

func (p patient) Unsettled(ctx context.Context, after int64, limit int) ([]operate.AuditEntry, error) {
	return retried(ctx, func() ([]operate.AuditEntry, error) { return p.Store.Unsettled(ctx, after, limit) })
}

// Append finds an entry of unknown outcome by its key, or among those that are newer than all that
// there were.
func (p patient) Append(ctx context.Context, e operate.AuditEntry) (number int64, again *operate.AuditEntry, err error) {
	var last int64
	if err := p.db.QueryRowContext(ctx, "SELECT COALESCE(max(number), 0) FROM audit").Scan(&last); err != nil {
		return 0, nil, err
	}
	unknown := false
	err = retriedDo(ctx, func() error {
		if unknown && e.Key == "" {
			row := p.db.QueryRowContext(ctx, "SELECT COALESCE(min(number), 0) FROM audit WHERE number > $1 AND target = $2 AND request_id = $3", last, []byte(e.Target), e.Request)
			if err := row.Scan(&number); err != nil || number > 0 {
				return err
			}
		}
		number, again, err = p.Store.Append(ctx, e)
		if unknown && again != nil && again.Request == e.Request && again.Number > last {
			again = nil // its own
		}
		unknown = err != nil
		return err
	})
	return number, again, err
}

func (p patient) SetOutcome(ctx context.Context, number int64, outcome string) error {
	return retriedDo(ctx, func() error { return p.Store.SetOutcome(ctx, number, outcome) })
}

// Freeze finds one of unknown outcome that has happened. What one has left that could not end it takes away, as its
// expiry does, and freezes again.
func (p patient) Freeze(ctx context.Context, op operate.Operation, sel operate.Selection) (int64, error) {
	var frozen int64
	var there bool // before this one
	if err := p.db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM operations WHERE id = $1", op.ID).Scan(&there); err != nil {
		return 0, err
	}
	err := retriedDo(ctx, func() (err error) {
		frozen, err = p.Store.Freeze(ctx, op, sel)
		if err == nil || there || !postgres.Passing(err) {
			return err
		}
		stands := p.db.QueryRowContext(ctx, "SELECT tasks FROM operations WHERE id = $1 AND state NOT IN ('freezing', 'dropping')", op.ID)
		if stands.Scan(&frozen) == nil {
			return nil
		}
		left, failed := p.db.ExecContext(ctx, "DELETE FROM operations WHERE id = $1 AND state IN ('freezing', 'dropping')", op.ID)
		if failed != nil {
			return failed
		}
		if n, _ := left.RowsAffected(); n > 0 {
			_, failed = p.db.ExecContext(ctx, "DELETE FROM operation_members WHERE operation = $1", op.ID)
		}
		if wrong := (*pgconn.PgError)(nil); errors.As(err, &wrong) && wrong.Code == "23505" {
			return wrong // it was refused; only the taking away was not possible
		}
		return errors.Join(err, failed)
	})
	return frozen, err
}

func (p patient) Operation(ctx context.Context, id string) (operate.Operation, error) {
	return retried(ctx, func() (operate.Operation, error) { return p.Store.Operation(ctx, id) })
}

func (p patient) Operations(ctx context.Context, states []operate.OperationState, limit int, after string) (ops []operate.Operation, next string, err error) {
	err = retriedDo(ctx, func() error {
		ops, next, err = p.Store.Operations(ctx, states, limit, after)
		return err
	})
	return ops, next, err
}

func (p patient) Update(ctx context.Context, op operate.Operation, was int64) error {
	return p.fenced(ctx, op, func() error { return p.Store.Update(ctx, op, was) })
}

func (p patient) SetMembers(ctx context.Context, op operate.Operation, was int64, members []operate.Member) error {
	return p.fenced(ctx, op, func() error { return p.Store.SetMembers(ctx, op, was, members) })
}

// fenced makes a change that raises an operation's epoch: one of unknown outcome that has happened
// fences the next try.
func (p patient) fenced(ctx context.Context, op operate.Operation, change func() error) error {
	unknown := false
	return retriedDo(ctx, func() error {
		err := change()
		if unknown && errors.Is(err, operate.ErrFenced) {
			if is, readErr := p.Operation(ctx, op.ID); readErr == nil && is.Epoch == op.Epoch {
				return nil
			}
		}
		unknown = err != nil
		return err
	})
}

func (p patient) Members(ctx context.Context, operation string, outcome operate.Outcome, after int64, limit int) ([]operate.Member, error) {
	return retried(ctx, func() ([]operate.Member, error) { return p.Store.Members(ctx, operation, outcome, after, limit) })
}

// DropExpired counts itself what the tries took away.
func (p patient) DropExpired(ctx context.Context, now time.Time) (int, error) {
	count := func() (n int, err error) {
		err = p.db.QueryRowContext(ctx, "SELECT count(*) FROM operations").Scan(&n)
		return n, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	if err := retriedDo(ctx, func() error { _, err := p.Store.DropExpired(ctx, now); return err }); err != nil {
		return 0, err
	}
	after, err := count()
	return before - after, err
}

func (p patient) Standing(ctx context.Context, members []operate.Member) ([]operate.Standing, error) {
	return retried(ctx, func() ([]operate.Standing, error) { return p.Store.Standing(ctx, members) })
}

func (p patient) Saved(ctx context.Context, partition int, numbers []int64) ([]core.Saved, error) {
	return retried(ctx, func() ([]core.Saved, error) { return p.Store.Saved(ctx, partition, numbers) })
}

func (p patient) PutToken(ctx context.Context, t operate.Token) error {
	return retriedDo(ctx, func() error { return p.Store.PutToken(ctx, t) })
}

func (p patient) TokenByID(ctx context.Context, id string) (operate.Token, error) {
	return retried(ctx, func() (operate.Token, error) { return p.Store.TokenByID(ctx, id) })
}

func (p patient) Tokens(ctx context.Context) ([]operate.Token, error) {
	return retried(ctx, func() ([]operate.Token, error) { return p.Store.Tokens(ctx) })
}

func (p patient) RevokeToken(ctx context.Context, id string, at time.Time) error {
	return retriedDo(ctx, func() error { return p.Store.RevokeToken(ctx, id, at) })
}

func (p patient) TouchToken(ctx context.Context, id string, at time.Time) error {
	return retriedDo(ctx, func() error { return p.Store.TouchToken(ctx, id, at) })
}

// AddNote looks whether a note of unknown outcome is there.
func (p patient) AddNote(ctx context.Context, n operate.Note) (added operate.Note, err error) {
	unknown := false
	err = retriedDo(ctx, func() error {
		if unknown {
			newest, err := p.Notes(ctx, n.Target, 1)
			if err != nil {
				return err
			}
			if len(newest) == 1 && newest[0].Text == n.Text && newest[0].At.Equal(n.At) {
				added = newest[0]
				return nil
			}
		}
		added, err = p.Store.AddNote(ctx, n)
		unknown = err != nil
		return err
	})
	return added, err
}

func (p patient) Notes(ctx context.Context, target string, limit int) ([]operate.Note, error) {
	return retried(ctx, func() ([]operate.Note, error) { return p.Store.Notes(ctx, target, limit) })
}

func (p patient) PutSetting(ctx context.Context, name string, document []byte) error {
	return retriedDo(ctx, func() error { return p.Store.PutSetting(ctx, name, document) })
}

func (p patient) Setting(ctx context.Context, name string) ([]byte, error) {
	return retried(ctx, func() ([]byte, error) { return p.Store.Setting(ctx, name) })
}

func (p patient) Settings(ctx context.Context, prefix string) (map[string][]byte, error) {
	return retried(ctx, func() (map[string][]byte, error) { return p.Store.Settings(ctx, prefix) })
}

func (p patient) DeleteSetting(ctx context.Context, name string) error {
	return retriedDo(ctx, func() error { return p.Store.DeleteSetting(ctx, name) })
}

func (p patient) PutPause(ctx context.Context, pause operate.Pause) error {
	return retriedDo(ctx, func() error { return p.Store.PutPause(ctx, pause) })
}

func (p patient) DeletePause(ctx context.Context, id string) error {
	return retriedDo(ctx, func() error { return p.Store.DeletePause(ctx, id) })
}

func (p patient) Pauses(ctx context.Context) ([]operate.Pause, error) {
	return retried(ctx, func() ([]operate.Pause, error) { return p.Store.Pauses(ctx) })
}

// ForgetAudit counts what is gone: an answer that is lost says nothing.
func (p patient) ForgetAudit(ctx context.Context, before core.Instant, most int) (int, error) {
	count := func() (n int, err error) {
		return n, p.db.QueryRowContext(ctx, "SELECT count(*) FROM audit").Scan(&n)
	}
	was, err := count()
	if err != nil {
		return 0, err
	}
	unknown := false
	err = retriedDo(ctx, func() error {
		if unknown {
			if now, err := count(); err != nil || now < was {
				return err
			}
		}
		_, err := p.Store.ForgetAudit(ctx, before, most)
		unknown = err != nil
		return err
	})
	if err != nil {
		return 0, err
	}
	now, err := count()
	return was - now, err
}

func (p patient) PutSession(ctx context.Context, s operate.Session, now time.Time) error {
	return retriedDo(ctx, func() error { return p.Store.PutSession(ctx, s, now) })
}

func (p patient) SessionByID(ctx context.Context, id string) (operate.Session, error) {
	return retried(ctx, func() (operate.Session, error) { return p.Store.SessionByID(ctx, id) })
}

func (p patient) SessionIDs(ctx context.Context) ([]string, error) {
	return retried(ctx, func() ([]string, error) { return p.Store.SessionIDs(ctx) })
}

func (p patient) DeleteSession(ctx context.Context, id string) error {
	return retriedDo(ctx, func() error { return p.Store.DeleteSession(ctx, id) })
}

func (p patient) PutBooks(ctx context.Context, r operate.BooksResult, ghosts []operate.Ghost) error {
	return retriedDo(ctx, func() error { return p.Store.PutBooks(ctx, r, ghosts) })
}

func (p patient) LastBooks(ctx context.Context) (operate.BooksResult, error) {
	return retried(ctx, func() (operate.BooksResult, error) { return p.Store.LastBooks(ctx) })
}

func (p patient) Ghosts(ctx context.Context, statuses []operate.GhostStatus, limit int, after string) (ghosts []operate.Ghost, next string, err error) {
	err = retriedDo(ctx, func() error {
		ghosts, next, err = p.Store.Ghosts(ctx, statuses, limit, after)
		return err
	})
	return ghosts, next, err
}

func (p patient) Ghost(ctx context.Context, agent, key string) (operate.Ghost, error) {
	return retried(ctx, func() (operate.Ghost, error) { return p.Store.Ghost(ctx, agent, key) })
}

func (p patient) DecideGhost(ctx context.Context, g operate.Ghost) error {
	return retriedDo(ctx, func() error { return p.Store.DecideGhost(ctx, g) })
}

func (p patient) SavedIDs(ctx context.Context, partition int, ids []string) ([]core.Saved, error) {
	return retried(ctx, func() ([]core.Saved, error) { return p.Store.SavedIDs(ctx, partition, ids) })
}

func (p patient) Ended(ctx context.Context, since core.Instant, limit int, after string) (core.Page, error) {
	return retried(ctx, func() (core.Page, error) { return p.Store.Ended(ctx, since, limit, after) })
}

// PutSchedule finds one of unknown outcome that has happened: it fences the next try.
func (p patient) PutSchedule(ctx context.Context, s operate.Schedule, was int64) error {
	unknown := false
	return retriedDo(ctx, func() error {
		err := p.Store.PutSchedule(ctx, s, was)
		if unknown && errors.Is(err, operate.ErrFenced) {
			if is, readErr := p.ScheduleByName(ctx, s.Name); readErr == nil && is.Revision == s.Revision && reflect.DeepEqual(is, s) {
				return nil
			}
		}
		unknown = unknown || err != nil && postgres.Passing(err)
		return err
	})
}

// DeleteSchedule finds one of unknown outcome that has happened.
func (p patient) DeleteSchedule(ctx context.Context, name string, was int64) error {
	unknown := false
	return retriedDo(ctx, func() error {
		err := p.Store.DeleteSchedule(ctx, name, was)
		if unknown && errors.Is(err, operate.ErrFenced) {
			if _, readErr := p.ScheduleByName(ctx, name); errors.Is(readErr, core.ErrNotFound) {
				return nil
			}
		}
		unknown = unknown || err != nil && postgres.Passing(err)
		return err
	})
}

func (p patient) ScheduleByName(ctx context.Context, name string) (operate.Schedule, error) {
	return retried(ctx, func() (operate.Schedule, error) { return p.Store.ScheduleByName(ctx, name) })
}

func (p patient) Schedules(ctx context.Context, limit int, after string) ([]operate.Schedule, error) {
	return retried(ctx, func() ([]operate.Schedule, error) { return p.Store.Schedules(ctx, limit, after) })
}

func (p patient) DueSchedules(ctx context.Context, now time.Time, limit int, after string) ([]operate.Schedule, error) {
	return retried(ctx, func() ([]operate.Schedule, error) { return p.Store.DueSchedules(ctx, now, limit, after) })
}

func (p patient) ScheduleTasks(ctx context.Context) ([]operate.ScheduleTask, error) {
	return retried(ctx, func() ([]operate.ScheduleTask, error) { return p.Store.ScheduleTasks(ctx) })
}

func (p patient) SaveForecasts(ctx context.Context, node string, rows []operate.ForecastRow) error {
	return retriedDo(ctx, func() error { return p.Store.SaveForecasts(ctx, node, rows) })
}

func (p patient) Forecasts(ctx context.Context) ([]operate.ForecastRow, error) {
	return retried(ctx, func() ([]operate.ForecastRow, error) { return p.Store.Forecasts(ctx) })
}

func (p patient) ForgetForecasts(ctx context.Context, before core.Instant) error {
	return retriedDo(ctx, func() error { return p.Store.ForgetForecasts(ctx, before) })
}

func (p patient) OpenTasks(ctx context.Context, most int) (operate.OpenSample, error) {
	return retried(ctx, func() (operate.OpenSample, error) { return p.Store.OpenTasks(ctx, most) })
}

func (p patient) Breakers(ctx context.Context) ([]core.Breaker, error) {
	return retried(ctx, func() ([]core.Breaker, error) { return p.Store.Breakers(ctx) })
}

// PutBreaker is called once: whether a change was stored whose answer is lost, its caller finds out by reading.
func (p patient) PutBreaker(ctx context.Context, b core.Breaker) (bool, error) {
	return p.Store.PutBreaker(ctx, b)
}

func (p patient) ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error) {
	return retried(ctx, func() (core.Calls, error) { return p.Store.ReportCalls(ctx, agent, node, revision, at, calls, since) })
}

func (p patient) AgentLimits(ctx context.Context) ([]operate.AgentLimit, error) {
	return retried(ctx, func() ([]operate.AgentLimit, error) { return p.Store.AgentLimits(ctx) })
}

func (p patient) Limits(ctx context.Context) ([]core.Limit, error) {
	return retried(ctx, func() ([]core.Limit, error) { return p.Store.Limits(ctx) })
}

// PutLimit is called once, as PutBreaker.
func (p patient) PutLimit(ctx context.Context, l operate.AgentLimit) (bool, error) {
	return p.Store.PutLimit(ctx, l)
}

func (p patient) DeleteLimit(ctx context.Context, agent string) error {
	return retriedDo(ctx, func() error { return p.Store.DeleteLimit(ctx, agent) })
}

func (p patient) Grants(ctx context.Context, agent string) ([]core.Grant, error) {
	return retried(ctx, func() ([]core.Grant, error) { return p.Store.Grants(ctx, agent) })
}

func (p patient) Granted(ctx context.Context, now core.Instant) (map[string]operate.Granted, error) {
	return retried(ctx, func() (map[string]operate.Granted, error) { return p.Store.Granted(ctx, now) })
}

func (p patient) ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error) {
	return retried(ctx, func() ([]core.ClaimedGrant, error) { return p.Store.ClaimGrants(ctx, agent, now, mine) })
}

func (p patient) CountPlaces(ctx context.Context, holder string, all []core.Counting) error {
	return retriedDo(ctx, func() error { return p.Store.CountPlaces(ctx, holder, all) })
}

func (p patient) Counted(ctx context.Context) ([]core.Counting, error) {
	return retried(ctx, func() ([]core.Counting, error) { return p.Store.Counted(ctx) })
}
