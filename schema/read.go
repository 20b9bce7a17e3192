package schema

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// reader reads what both databases store, by the same SQL but for what Dialect names. The Dialect's functions
// have the same names here.
type reader struct {
	db     *counted
	params func(query string) string
	list   func(values any) any
	among  func(table, column string) string
	time   func(core.Instant) any
	// purged is how far purges got.
	purged purgePlaces
	plans  planSpecs

	rows    func(first int, columns ...string) string
	rowArgs func(lists ...any) []any

	tables *Tables
	// sql holds the queries that are made of tables.
	sql *queries
}

// queries are the statements that list columns of Tables, and the columns that each of them reads or writes.
type queries struct {
	active, tasks        string
	taskColumns          []Column[TaskRow]
	listed               string // see scanListed
	journal, journalPage string
	journals             string
	journalColumns       []Column[JournalRow]
	partitions, takeOver string
	claimed              []Column[PartitionRow]
	link, viewLinks      string
	viewRows, viewTasks  string
	chained              chain.Tables
	chainedTasks         []Column[TaskRow]
	chainedJournal       []Column[JournalRow]
}

// newQueries makes the queries of tables.
func newQueries(t *Tables) *queries {
	q := &queries{taskColumns: owned(t.Tasks), journalColumns: owned(t.Journal), claimed: Of(t.Partitions, claim)}
	q.tasks = `SELECT ` + asOfColumns + `, ` + selected(q.taskColumns)
	q.active = q.tasks + ` FROM tasks WHERE partition = ?1 AND number > ?2 AND state IN ('processing', 'undoing') ORDER BY number LIMIT ?3`
	q.listed = selected(q.taskColumns) + `, COALESCE(fingerprint, ''), ` + failedStepName + `, ` + parentName
	q.journal = `SELECT ` + selected(q.journalColumns)
	q.journals = `SELECT ` + asOfColumns + `, ` + selected(q.journalColumns)
	q.journalPage = q.journal + ` FROM journal WHERE partition = ?1 AND number = ?2 AND seq < ?3 ORDER BY seq DESC LIMIT ?4`
	q.partitions = `SELECT ` + selected(t.Partitions) + ` FROM partitions`
	q.takeOver = `UPDATE partitions SET ` + Join(q.claimed, "%[1]s = ?%[2]d") + fmt.Sprintf(` WHERE partition = ?%d`, len(q.claimed)+1)
	q.link = `INSERT INTO chain (` + Names(t.Chain) + `) VALUES (` + Join(t.Chain, "?%[2]d") + `)`
	q.viewLinks = `SELECT ` + selected(t.Chain) + ` FROM chain WHERE partition = ?1 AND height >= ?2 ORDER BY height LIMIT ?3`
	q.chainedTasks, q.chained.Tasks = chained('T', t.Tasks)
	q.chainedJournal, q.chained.Journal = chained('J', t.Journal)
	q.viewRows = `SELECT ` + selected(q.chainedJournal) + ` FROM journal WHERE partition = ?1 AND (number, seq) > (?2, ?5) AND number < ?3 ORDER BY number, seq LIMIT ?4`
	q.viewTasks = `SELECT ` + selected(q.chainedTasks) + ` FROM tasks WHERE partition = ?1 AND number > ?2 AND number < ?3 ORDER BY number LIMIT ?4`
	return q
}

const (
	// An owner's query also reads epoch and last_commit of the partition's row, as of the same moment: see
	// core.AsOf. They come with each row, or in a last row of their own.
	asOfColumns = `COALESCE((SELECT epoch FROM partitions WHERE partition = ?1), 0), COALESCE((SELECT last_commit FROM partitions WHERE partition = ?1), 0)`
	asOfFound   = `) AS found UNION ALL SELECT `
	asOfRow     = `, epoch, last_commit FROM partitions WHERE partition = ?1`
	// qWaiting reads the parked tasks that wait for an agent; qNextAgent the next agent that any waits for;
	// qUntold the endings after an end number.
	qWaiting   = `SELECT number, 0, 0 FROM (SELECT number FROM tasks WHERE partition = ?1 AND waits_for = ?2 AND number > ?3 ORDER BY number LIMIT ?4` + asOfFound + `0` + asOfRow
	qNextAgent = `SELECT waits_for, 0, 0 FROM (SELECT waits_for FROM tasks WHERE partition = ?1 AND waits_for > ?2 ORDER BY waits_for LIMIT 1` + asOfFound + `''` + asOfRow
	qUntold    = `SELECT number, 0, 0 FROM (SELECT number FROM tasks WHERE partition = ?1 AND end_number > ?2 ORDER BY end_number LIMIT ?3` + asOfFound + `0` + asOfRow
	// With an owner the query goes over the rows of all partitions and returns few; without one it finds them
	// by key.
	cursorsOf    = ` WHERE partition IN (SELECT u.partition FROM `
	cursorsOwned = `) OR owner = ?2`
	unowned      = ` WHERE owner NOT IN (SELECT u.owner FROM `
	// qInstallation reads the one row of installation. qBindInstallation changes it only once.
	qInstallation     = `SELECT id, namespace FROM installation`
	qBindInstallation = `UPDATE installation SET namespace = ?1 WHERE namespace = ''`
	// Parked and active tasks have an index of their own each, with a limit for each: sorting what is overdue
	// in one go may mean sorting everything that is parked.
	overdueRows = `SELECT * FROM (` + overdueIn + `state = 'pending'` + overdueNext + `) AS parked
	UNION ALL SELECT * FROM (` + overdueIn + `state IN ('processing', 'undoing')` + overdueNext + `) AS active ORDER BY complete_by, number LIMIT ?5`
	// qOverdue also names the step whose command is overdue: the one with a command that no later row of the
	// journal ended. A late answer, or a probe that found nothing done, ends no command.
	qOverdue = `SELECT o.partition, o.number, o.complete_by, COALESCE((SELECT s.name FROM tasks t
	JOIN journal j ON j.partition = t.partition AND j.number = t.number AND j.round = t.round AND j.due < ?2
	JOIN plan_steps s ON s.plan = t.type AND s.version = t.plan_version AND s.ordinal = j.next
	WHERE t.partition = o.partition AND t.number = o.number AND NOT EXISTS (SELECT 1 FROM journal x WHERE x.partition = j.partition AND x.number = j.number
	AND x.seq > j.seq AND (x.next = j.next OR x.step = j.next AND x.kind <> 'late' AND (x.kind <> 'probed' OR x.step_status = 'done')))
	ORDER BY j.due, j.next LIMIT 1), '')
	FROM (` + overdueRows + `) AS o
	ORDER BY o.complete_by, o.number`
	// qOverduePartitions finds the partitions with anything overdue, by one statement: asking each of
	// thousands in turn would outlast the interval of the scan. The subqueries have ORDER BY and LIMIT so
	// that no database hashes all that is parked.
	qOverduePartitions = `SELECT p.partition FROM partitions p WHERE p.partition >= ?1 AND (
	` + overdueFirst + `t.state = 'pending'` + overdueLeast + ` IS NOT NULL OR ` + overdueFirst + `t.state IN ('processing', 'undoing')` + overdueLeast + ` IS NOT NULL)
	ORDER BY p.partition`
	overdueFirst = `(SELECT t.complete_by FROM tasks t WHERE t.partition = p.partition AND `
	overdueLeast = ` AND t.complete_by >= ?3 AND t.complete_by < ?2 ORDER BY t.complete_by LIMIT 1)`
	overdueIn    = `SELECT partition, number, complete_by FROM tasks WHERE `
	overdueNext  = ` AND partition = ?1 AND complete_by < ?2 AND (complete_by, number) > (?3, ?4) ORDER BY complete_by, number LIMIT ?5`

	// qCounts goes over all tasks. CountsUpTo does not.
	qCounts   = `SELECT type, state, count(*) FROM tasks GROUP BY type, state ORDER BY type, state`
	qPlans    = `SELECT name, version, spec FROM plans ORDER BY name, version`
	qPlan     = `SELECT spec FROM plans WHERE name = ?1 AND (version = ?2 OR ?2 = 0) ORDER BY version DESC LIMIT 1`
	qExisting = `SELECT partition, number, id, type, input_hash, state`
)

// query runs a query. Read the rows with each.
func (r *reader) query(ctx context.Context, query string, args ...any) (rowSet, error) {
	rows, err := r.db.QueryContext(ctx, r.params(query), args...)
	return rows, storeSilent(err)
}

// storeSilent marks an error of an unreachable database as one that stops all partitions
// (core.StoppingStore). Any other error concerns the partition that was being read.
func storeSilent(err error) error {
	if err == nil {
		return nil
	}
	_, network := errors.AsType[net.Error](err)
	if network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return core.StoppingStore(err)
	}
	return err
}

// labelsIn are the labels in a task's row. It does not check them: a newer binary may allow more, and the
// task must stay readable.
func labelsIn(text string) (labels []core.Label) {
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(one, "=")
		labels = append(labels, core.Label{Key: key, Value: value})
	}
	return labels
}

// saved reads tasks by a query, and then their journals. A row or a journal that cannot be read is an error
// of that task (Saved.Err), not of the call.
func (r *reader) saved(ctx context.Context, as core.AsOf, query string, args ...any) ([]core.Saved, error) {
	partition := as.Partition
	rows, err := r.query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("tasks of partition %d: %w", partition, err)
	}
	defer rows.Close()
	var found []core.Saved
	var of []int64
	row := TaskRow{Task: new(core.Task)}
	var epoch, commit int64
	// All rows are scanned into the same variables and copied out.
	to := append([]any{&epoch, &commit}, targets(r.sql.taskColumns, &row)...)
	for rows.Next() {
		*row.Task = core.Task{}
		err := rows.Scan(to...)
		if err := as.Check(epoch, commit); err != nil {
			return nil, err
		}
		one := core.Saved{Row: *row.Task}
		if err != nil {
			readable(rows, to)
			if one.Row = *row.Task; row.Number == 0 { // not even whose row it is
				return nil, fmt.Errorf("task row of partition %d: %w", partition, err)
			}
			one.Row.Partition = partition
			one.Err = core.StoppingTask(partition, fmt.Errorf("its row: %w", err))
		}
		found = append(found, one)
		of = append(of, row.Number)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("tasks of partition %d: %w", partition, storeSilent(err))
	}
	if len(found) == 0 {
		// Without rows nothing has said whether the partition is still the caller's. Epoch 0 is a reader that owns
		// nothing, and need not know.
		if as.Epoch == 0 {
			return nil, nil
		}
		_, err := numbers[int64](ctx, r, as, `SELECT 0`+asOfRow, partition)
		return nil, err
	}
	return found, r.journals(ctx, as, of, found)
}

// readable fills in what can be read of a row: it scans each column alone, because a scan stops at the first
// column that fails.
func readable(rows rowSet, to []any) {
	for i := range to {
		one := make([]any, len(to))
		for k := range one {
			one[k] = new(any)
		}
		one[i] = to[i]
		_ = rows.Scan(one...) // its error is what the row's scan said
	}
}

// journals reads the journals of tasks into into.
func (r *reader) journals(ctx context.Context, as core.AsOf, numbers []int64, into []core.Saved) error {
	partition := as.Partition
	at := make(map[int64]*core.Saved, len(into))
	for i := range into {
		at[into[i].Row.Number] = &into[i]
	}
	rows, err := r.query(ctx, r.sql.journals+r.among("journal", "number")+` ORDER BY number, seq`, partition, r.list(numbers))
	if err != nil {
		return fmt.Errorf("journal of partition %d: %w", partition, err)
	}
	defer rows.Close()
	row := JournalRow{Record: new(core.Record)}
	var epoch, commit int64
	to := append([]any{&epoch, &commit}, targets(r.sql.journalColumns, &row)...)
	for rows.Next() {
		row.Number = 0
		err := row.scan(rows, to)
		if err := as.Check(epoch, commit); err != nil {
			return err
		}
		s := at[row.Number]
		switch {
		case err != nil && s == nil:
			return fmt.Errorf("journal row of partition %d: %w", partition, err)
		case err != nil:
			s.Err = cmp.Or(s.Err, core.StoppingTask(partition, fmt.Errorf("journal row %d: %w", len(s.Journal)+1, err)))
		}
		if s != nil && s.Err == nil {
			rec := *row.Record
			switch {
			case rec.Seq > 1: // an edit's: from that row on
				rec.Input = row.Input
			case row.Input != nil:
				s.Row.Input = row.Input
			}
			s.Journal = append(s.Journal, rec)
			s.Commits = append(s.Commits, row.Commit)
		}
	}
	return storeSilent(rows.Err())
}

// scan scans a journal row into to, the targets of r, and refuses a format that this binary does not know.
func (r *JournalRow) scan(row interface{ Scan(...any) error }, to []any) error {
	err := row.Scan(to...)
	if err == nil && r.Format > journalFormat {
		err = fmt.Errorf("row %d of task number %d has format %d, this binary knows up to %d: use a newer binary", r.Seq, r.Number, r.Format, journalFormat)
	}
	return err
}

// stepStatus is the status with a name; "" is the zero status, which a record without a step has.
func stepStatus(word string) core.StepStatus {
	for s := core.StepWaiting; s <= core.StepSkipped; s++ {
		if s.String() == word {
			return s
		}
	}
	return core.StepWaiting
}

// LoadActive implements Store. An owner that takes a partition over loads its tasks by it, page by page.
func (r *reader) LoadActive(ctx context.Context, as core.AsOf, afterNumber int64, limit int) ([]core.Saved, error) {
	return r.saved(ctx, as, r.sql.active, as.Partition, afterNumber, limit)
}

// LoadNumbers implements Store, by number. A number that has no row is left out.
func (r *reader) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	return r.saved(ctx, as, r.sql.tasks+r.among("tasks", "number")+` ORDER BY number`, as.Partition, r.list(numbers))
}

// LoadIDs implements Store, by number. An id that has no row is left out.
func (r *reader) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	return r.saved(ctx, as, r.sql.tasks+r.among("tasks", "id")+` ORDER BY number`, as.Partition, r.list(ids))
}

// numbers reads a column of numbers or names. The row with a zero value is the partition's own, which
// as.Check compares.
func numbers[T int64 | string](ctx context.Context, r *reader, as core.AsOf, query string, args ...any) (all []T, _ error) {
	var none T
	for row := range each(r.query(ctx, query, args...)) {
		var v T
		var epoch, commit int64
		err := row.Scan(&v, &epoch, &commit)
		if err == nil && v == none {
			err = as.Check(epoch, commit)
		}
		if err != nil {
			return nil, err
		}
		if v != none {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all, nil
}

// column reads all rows of a query of one column.
func column[T any](ctx context.Context, r *reader, query string, args ...any) ([]T, error) {
	return ScanColumn[T](r.query(ctx, query, args...))
}

// ScanColumn reads and closes the rows of a query of one column.
func ScanColumn[T any](rows rowSet, err error) (all []T, _ error) {
	for row := range each(rows, err) {
		var v T
		if err := row.Scan(&v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Cursors implements Store.
func (r *reader) Cursors(ctx context.Context) ([]core.PartitionState, error) {
	return r.partitions(ctx, r.sql.partitions+` ORDER BY partition`)
}

// CursorsOf implements Store.
func (r *reader) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	numbers := make([]int64, len(partitions))
	for i, p := range partitions {
		numbers[i] = int64(p)
	}
	query, args := r.sql.partitions+cursorsOf+r.rows(1, `partition INT8`), r.rowArgs(numbers)
	if owner == "" {
		query += `)`
	} else {
		query, args = query+cursorsOwned, append(args, owner)
	}
	return r.partitions(ctx, query+` ORDER BY partition`, args...)
}

// Unowned implements Store.
func (r *reader) Unowned(ctx context.Context, live []string) ([]core.PartitionState, error) {
	return r.partitions(ctx, r.sql.partitions+unowned+r.rows(1, `owner TEXT`)+`) ORDER BY partition`, r.rowArgs(live)...)
}

// partitions reads partition rows.
func (r *reader) partitions(ctx context.Context, query string, args ...any) ([]core.PartitionState, error) {
	all, err := scanAll(ctx, r, r.scanPartition, query, args...)
	return all, about(err, "partitions")
}

// scanPartition reads a partition's row. It leaves Found empty: Take fills that in.
func (r *reader) scanPartition(row interface{ Scan(...any) error }) (core.PartitionState, error) {
	var p PartitionRow
	err := row.Scan(targets(r.tables.Partitions, &p)...)
	return p.PartitionState, err
}

// takeOver is the statement that writes a partition's row for its new owner.
func (r *reader) takeOver(st *core.PartitionState) (query string, args []any) {
	p := PartitionRow{PartitionState: *st}
	return r.sql.takeOver, append(Args(nil, r.sql.claimed, &p, r.time), st.Partition)
}

// checkInstallation refuses a namespace other than the one that the installation is bound to.
func checkInstallation(id, bound, namespace string, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("installation of this database: %w", err)
	}
	if bound != "" && bound != namespace {
		return "", fmt.Errorf("namespace: %q, but this database is of installation %s, which uses namespace %q", namespace, id, bound)
	}
	return id, nil
}

// Installation implements Store. It binds nothing: see Bind.
func (r *reader) Installation(ctx context.Context, namespace string) (string, error) {
	var id, bound string
	err := r.db.QueryRowContext(ctx, qInstallation).Scan(&id, &bound)
	return checkInstallation(id, bound, namespace, err)
}

// Overdue implements Store. It asks only the partitions that have anything overdue, and stops when limit is
// reached.
func (r *reader) Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	partitions, err := column[int](ctx, r, qOverduePartitions, after.Partition, r.time(now), r.time(since))
	if err != nil {
		return nil, fmt.Errorf("partitions: %w", err)
	}
	var all []core.Due
	for _, p := range partitions {
		// A page goes on in the partition where the one before ended; in all later ones at the beginning.
		from := core.Due{Partition: p, Bound: since} // with number 0, below every task's
		if p == after.Partition && after.Bound >= since {
			from = after
		}
		for row := range each(r.query(ctx, qOverdue, p, r.time(now), r.time(from.Bound), from.Number, limit-len(all))) {
			var d core.Due
			var bound instant
			if err := row.Scan(&d.Partition, &d.Number, &bound, &d.Step); err != nil {
				return nil, fmt.Errorf("overdue tasks of partition %d: %w", p, err)
			}
			d.Bound = core.Instant(bound)
			all = append(all, d)
		}
		if len(all) >= limit {
			break
		}
	}
	return all, nil
}

// Counts implements Store. It goes over all tasks; CountsUpTo is for pages.
func (r *reader) Counts(ctx context.Context) ([]core.Count, error) {
	var all []core.Count
	for row := range each(r.query(ctx, qCounts)) {
		var c core.Count
		var state string
		if err := row.Scan(&c.Type, &state, &c.Tasks); err != nil {
			return nil, fmt.Errorf("counts: %w", err)
		}
		c.State = core.State(state)
		all = append(all, c)
	}
	return all, nil
}

// Journal implements Store: all rows of a task in order. JournalPage is for pages.
func (r *reader) Journal(ctx context.Context, partition int, number int64) ([]core.Record, error) {
	saved := []core.Saved{{Row: core.Task{Number: number}}}
	err := r.journals(ctx, core.AsOf{Partition: partition}, []int64{number}, saved)
	return saved[0].Journal, errors.Join(err, saved[0].Err)
}
