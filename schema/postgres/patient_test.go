package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// patient does what the users of a store do when the server or the connection
// fails: it calls again. Commit is not among what is called again, because its
// own word is that it comes back with the outcome.
type patient struct {
	Store schema.Store
	db    *sql.DB // without the faults
}

// Unwrap is the store without the patience.
func (p patient) Unwrap() schema.Store { return p.Store }

// calls is how often something is called before it counts as broken.
const calls = 100

func retried[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := call()
		if err == nil || !postgres.Passing(err) {
			return v, err
		}
		if n == calls {
			return v, fmt.Errorf("called %d times: %w", n, err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

func retriedDo(ctx context.Context, call func() error) error {
	_, err := retried(ctx, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (p patient) Migrate(ctx context.Context) error {
	return retriedDo(ctx, func() error { return p.Store.Migrate(ctx) })
}

func (p patient) Ping(ctx context.Context) error {
	return retriedDo(ctx, func() error { return p.Store.Ping(ctx) })
}

func (p patient) Partitions(ctx context.Context, n int) error {
	return retriedDo(ctx, func() error { return p.Store.Partitions(ctx, n) })
}

func (p patient) Installation(ctx context.Context, namespace string) (string, error) {
	return retried(ctx, func() (string, error) { return p.Store.Installation(ctx, namespace) })
}

func (p patient) Bind(ctx context.Context, namespace string) error {
	return retriedDo(ctx, func() error { return p.Store.Bind(ctx, namespace) })
}

// Renew looks whether one of unknown outcome has happened.
func (p patient) Renew(ctx context.Context, was string) (string, error) {
	id := func() (id string, err error) {
		err = p.db.QueryRowContext(ctx, "SELECT id FROM installation").Scan(&id)
		return id, err
	}
	before, err := id()
	if err != nil {
		return "", err
	}
	return retried(ctx, func() (string, error) {
		renewed, err := p.Store.Renew(ctx, was)
		if err == nil || !postgres.Passing(err) {
			return renewed, err
		}
		if now, readErr := id(); readErr == nil && now != before {
			return now, nil
		}
		return "", err
	})
}

// TakeOver looks whether a takeover of unknown outcome has happened: a second one
// would do no harm, but the suite counts epochs.
func (p patient) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	before, err := p.state(ctx, partition)
	if err != nil {
		return before, err
	}
	return retried(ctx, func() (core.PartitionState, error) {
		st, err := p.Store.TakeOver(ctx, partition, c)
		if err == nil || !postgres.Passing(err) {
			return st, err
		}
		now, stateErr := p.state(ctx, partition)
		if stateErr == nil && now.Owner == c.Owner && now.Epoch > before.Epoch {
			is := before
			is.Take(c)
			now.Found = is.Found
			return now, nil
		}
		return st, err
	})
}

// state is the partition as it stands; without one, the zero state.
func (p patient) state(ctx context.Context, partition int) (core.PartitionState, error) {
	all, err := p.Cursors(ctx)
	for i := range all {
		if all[i].Partition == partition {
			return all[i], err
		}
	}
	return core.PartitionState{}, err
}

func (p patient) Release(ctx context.Context, partition int, epoch int64) error {
	return retriedDo(ctx, func() error { return p.Store.Release(ctx, partition, epoch) })
}

// Purge counts itself what the tries touched: after one of unknown outcome the
// next does not find it any more.
func (p patient) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	before, err := p.unpurged(ctx, partition)
	if err != nil {
		return 0, err
	}
	// One of unknown outcome may have happened: another would take the next ones,
	// which does no harm, but the suite counts.
	return retried(ctx, func() (int, error) {
		touched, err := p.Store.Purge(ctx, partition, epoch, detail, row, limit)
		if err == nil || !postgres.Passing(err) {
			return touched, err
		}
		if now, nowErr := p.unpurged(ctx, partition); nowErr == nil && now < before {
			return before - now, nil
		}
		return touched, err
	})
}

// unpurged falls by one for each task whose details, its journal, are forgotten, and by one for each whose row is.
func (p patient) unpurged(ctx context.Context, partition int) (n int, err error) {
	err = p.db.QueryRowContext(ctx, `SELECT count(*) + count(*) FILTER (WHERE EXISTS (SELECT 1 FROM journal j WHERE j.partition = t.partition AND j.number = t.number))
		FROM tasks t WHERE t.partition = $1`, partition).Scan(&n)
	return n, err
}

func (p patient) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	return retried(ctx, func() ([]core.Saved, error) { return p.Store.LoadActive(ctx, as, after, limit) })
}

func (p patient) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	return retried(ctx, func() ([]core.Saved, error) { return p.Store.LoadNumbers(ctx, as, numbers) })
}

func (p patient) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	return retried(ctx, func() ([]core.Saved, error) { return p.Store.LoadIDs(ctx, as, ids) })
}

func (p patient) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	return retried(ctx, func() ([]int64, error) { return p.Store.Waiting(ctx, as, agent, after, limit) })
}

func (p patient) WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error) {
	return retried(ctx, func() ([]string, error) { return p.Store.WaitingAgents(ctx, as) })
}

func (p patient) Untold(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Ending, error) {
	return retried(ctx, func() ([]core.Ending, error) { return p.Store.Untold(ctx, as, after, limit) })
}

func (p patient) Cursors(ctx context.Context) ([]core.PartitionState, error) {
	return retried(ctx, func() ([]core.PartitionState, error) { return p.Store.Cursors(ctx) })
}

func (p patient) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	return retried(ctx, func() ([]core.PartitionState, error) { return p.Store.CursorsOf(ctx, partitions, owner) })
}

func (p patient) Unowned(ctx context.Context, live []string) ([]core.PartitionState, error) {
	return retried(ctx, func() ([]core.PartitionState, error) { return p.Store.Unowned(ctx, live) })
}

func (p patient) Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	return retried(ctx, func() ([]core.Due, error) { return p.Store.Overdue(ctx, since, now, after, limit) })
}

func (p patient) PutPlan(ctx context.Context, plan core.Plan) error {
	return retriedDo(ctx, func() error { return p.Store.PutPlan(ctx, plan) })
}

func (p patient) Plans(ctx context.Context) ([]core.Plan, error) {
	return retried(ctx, func() ([]core.Plan, error) { return p.Store.Plans(ctx) })
}

func (p patient) Get(ctx context.Context, partition int, id string) (core.View, error) {
	return retried(ctx, func() (core.View, error) { return p.Store.Get(ctx, partition, id) })
}

func (p patient) Existing(ctx context.Context, partition int, ids []string) ([]core.Existing, error) {
	return retried(ctx, func() ([]core.Existing, error) { return p.Store.Existing(ctx, partition, ids) })
}

func (p patient) List(ctx context.Context, f core.Filter) (core.Page, error) {
	return retried(ctx, func() (core.Page, error) { return p.Store.List(ctx, f) })
}

func (p patient) Counts(ctx context.Context) ([]core.Count, error) {
	return retried(ctx, func() ([]core.Count, error) { return p.Store.Counts(ctx) })
}

func (p patient) CountsUpTo(ctx context.Context, most int) ([]core.Count, error) {
	return retried(ctx, func() ([]core.Count, error) { return p.Store.CountsUpTo(ctx, most) })
}

func (p patient) CheckVersion(ctx context.Context) error {
	return retriedDo(ctx, func() error { return p.Store.CheckVersion(ctx) })
}

func (p patient) Journal(ctx context.Context, partition int, number int64) ([]core.Record, error) {
	return retried(ctx, func() ([]core.Record, error) { return p.Store.Journal(ctx, partition, number) })
}

func (p patient) Books(ctx context.Context) (schema.Books, error) {
	return retried(ctx, func() (schema.Books, error) { return p.Store.Books(ctx) })
}
