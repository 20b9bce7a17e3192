package schema

import (
	"context"
	"fmt"
)

// Books is what a check of the books after a run needs: the state of every task, and the steps whose success
// was stored twice. Reading it goes through all tasks and the whole journal.
type Books struct {
	States    map[string]string // task id → state
	StepRows  int64             // answers to do and undo in the journal
	DoneTwice []DoneRows        // steps with more than one done row in a round
}

// DoneRows is a step of a task with more than one done row in one round. Rows from before the database went
// back in time, by a restored backup, are not counted together with those after it: the step is rightly done
// once more then.
type DoneRows struct {
	Task  string
	Step  string
	Round int
	Rows  int
}

const (
	qBooksStates = `SELECT id, state FROM tasks`
	qBooksRows   = `SELECT count(*) FROM journal WHERE kind IN ('done', 'undone')`
	// After the database went back in time a step is rightly done once more. So rows are grouped by the
	// number of went_back rows before them (life), which the query computes only for steps that have more
	// than one done row.
	qBooksTwice = `SELECT id, name, round, count(*) FROM (
	SELECT t.id, ps.name, j.round, (SELECT count(*) FROM journal b
		WHERE b.partition = j.partition AND b.number = j.number AND b.kind = 'went_back' AND b.seq < j.seq) AS life
	FROM (SELECT partition, number, step, round FROM journal WHERE kind = 'done' GROUP BY partition, number, step, round HAVING count(*) > 1) AS more
	JOIN journal j ON j.partition = more.partition AND j.number = more.number AND j.step = more.step AND j.round = more.round AND j.kind = 'done'
	JOIN tasks t ON t.partition = j.partition AND t.number = j.number
	JOIN plan_steps ps ON ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = j.step) AS twice
	GROUP BY id, name, round, life HAVING count(*) > 1`
)

// Books implements Store.
func (r *reader) Books(ctx context.Context) (Books, error) {
	a := Books{States: map[string]string{}}
	for row := range each(r.query(ctx, qBooksStates)) {
		var id, state string
		if err := row.Scan(&id, &state); err != nil {
			return a, fmt.Errorf("books: tasks: %w", err)
		}
		a.States[id] = state
	}
	count, err := column[int64](ctx, r, qBooksRows)
	if err != nil {
		return a, fmt.Errorf("books: journal: %w", err)
	}
	a.StepRows = count[0]
	return a, r.doneTwice(ctx, &a)
}

// doneTwice fills in a.DoneTwice.
func (r *reader) doneTwice(ctx context.Context, a *Books) error {
	for row := range each(r.query(ctx, qBooksTwice)) {
		var d DoneRows
		if err := row.Scan(&d.Task, &d.Step, &d.Round, &d.Rows); err != nil {
			return fmt.Errorf("books: journal: %w", err)
		}
		a.DoneTwice = append(a.DoneTwice, d)
	}
	return nil
}
