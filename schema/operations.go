package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// The states of an operation's row beside operate's: 'freezing' until all members are stored, and 'dropping'
// while they are deleted. Readers see neither.
const (
	operationColumns = `id, state, why, action, selection, failure_group, request, rehearsal, tasks, waiting, asked, done, failed_again, skipped, wave, rate, brake,
	by_name, reason, created_at, started_at, ended_at, expires_at, epoch`
	seen        = `state NOT IN ('freezing', 'dropping')`
	qOperation  = `SELECT ` + operationColumns + ` FROM operations WHERE id = ?1 AND ` + seen
	qOperations = `SELECT ` + operationColumns + ` FROM operations WHERE ` + seen
	// The tally begins with 0; qFrozen sets it with the state, when all members are there.
	qFreeze = `INSERT INTO operations (id, state, why, action, selection, failure_group, request, rehearsal, tasks, waiting, asked, done, failed_again, skipped, wave, rate,
	brake, by_name, reason, created_at, started_at, ended_at, expires_at, epoch)
	VALUES (?1, 'freezing', ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, 0, 0, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) ON CONFLICT (id) DO NOTHING`
	qFrozen = `UPDATE operations SET state = ?2, tasks = ?3, waiting = ?3 WHERE id = ?1 AND state = 'freezing'`
	qUpdate = `UPDATE operations SET state = ?3, why = ?4, rehearsal = ?5, wave = ?6, rate = ?7, brake = ?8, by_name = ?9, reason = ?10, started_at = ?11, ended_at = ?12,
	expires_at = ?13, epoch = ?14 WHERE id = ?1 AND epoch = ?2 AND ` + seen
	qTally = `UPDATE operations SET waiting = waiting + ?2, asked = asked + ?3, done = done + ?4, failed_again = failed_again + ?5, skipped = skipped + ?6 WHERE id = ?1`

	// qExpire marks what is to be deleted, also a Freeze that was cut off. The deletion may take several
	// transactions.
	qExpire = `UPDATE operations SET state = 'dropping' WHERE state IN ('preview', 'freezing') AND expires_at < ?1 OR state IN ('stopped', 'done') AND ended_at < ?2`
	qToDrop = `SELECT id FROM operations WHERE state = 'dropping' ORDER BY id LIMIT ?1`
	qDrop   = `DELETE FROM operation_members WHERE operation = ?1 AND ordinal <= (SELECT min(m.ordinal) + ?2 FROM operation_members m WHERE m.operation = ?1)`
	qGone   = `DELETE FROM operations WHERE id = ?1 AND state = 'dropping'`
)

// dropPage is how many members one transaction deletes.
const dropPage = 5000

// Operation implements operate.OperationStore. It leaves Since empty: Joined tells that.
func (a *asked) Operation(ctx context.Context, id string) (operate.Operation, error) {
	return lookUp(ctx, a, "operation", id, scanOperation, qOperation, operate.CleanText(id))
}

// scanOperation reads a row of operationColumns.
func scanOperation(row interface{ Scan(...any) error }) (operate.Operation, error) {
	var op operate.Operation
	var state, action string
	var request, rehearsal []byte
	var created, started, ended, expires instant
	t := &op.Tally
	err := row.Scan(&op.ID, &state, &op.Why, &action, &op.Selection, &op.Group, &request, &rehearsal, &op.Tasks, &t.Waiting, &t.Asked, &t.Done, &t.FailedAgain, &t.Skipped,
		&op.Wave, &op.Rate, &op.BrakePct, &op.By, &op.Reason, &created, &started, &ended, &expires, &op.Epoch)
	if err != nil {
		return op, err
	}
	op.State, op.Action = operate.OperationState(state), operate.Action(action)
	op.Created, op.Started, op.Ended, op.Expires = created.timeOf(), started.timeOf(), ended.timeOf(), expires.timeOf()
	if err := json.Unmarshal(request, &op.Request); err != nil {
		return op, fmt.Errorf("request of operation %s: %w", op.ID, err)
	}
	if rehearsal != nil {
		if err := json.Unmarshal(rehearsal, &op.Rehearsal); err != nil {
			return op, fmt.Errorf("rehearsal of operation %s: %w", op.ID, err)
		}
	}
	return op, nil
}

// Operations implements operate.OperationStore. The cursor is the time and the id of the page's last
// operation.
func (a *asked) Operations(ctx context.Context, states []operate.OperationState, limit int, after string) (ops []operate.Operation, next string, err error) {
	if limit < 1 || limit > operate.ListMax {
		return nil, "", fmt.Errorf("operations: limit %d, want 1 to %d", limit, operate.ListMax)
	}
	c := conditions{}
	query := qOperations
	if after != "" {
		at, id, _ := strings.Cut(after, ".")
		created, err := cursorNumber(at)
		if err != nil {
			return nil, "", fmt.Errorf("operations: %w", err)
		}
		query += ` AND (created_at, id) < (` + c.param(a.of.time(core.Instant(created))) + `, ` + c.param(operate.CleanText(id)) + `)`
	}
	if len(states) > 0 {
		list := make([]string, len(states))
		for i, s := range states {
			list[i] = c.param(string(s))
		}
		query += ` AND state IN (` + strings.Join(list, ", ") + `)`
	}
	ops, err = scanAll(ctx, a.of, scanOperation, query+` ORDER BY created_at DESC, id DESC LIMIT `+c.param(limit+1), c.args...)
	if err != nil {
		return nil, "", fmt.Errorf("operations: %w", err)
	}
	if len(ops) > limit {
		ops = ops[:limit]
		last := &ops[limit-1]
		next = fmt.Sprintf("%d.%s", core.InstantOf(last.Created), last.ID)
	}
	return ops, next, nil
}

// rehearsalOf is an operation's rehearsal as it is stored; NULL for none.
func rehearsalOf(op *operate.Operation) (any, error) {
	if op.Rehearsal == nil {
		return nil, nil
	}
	b, err := json.Marshal(op.Rehearsal)
	return b, err
}

// Update implements operate.OperationStore. It does not write the tally, which follows the members and is
// changed by SetMembers alone. was is the epoch that the row must have. Error: operate.ErrFenced.
func (a *asked) Update(ctx context.Context, op operate.Operation, was int64) error {
	err := a.change(ctx, func(c changes) error { return c.update(&op, was) })
	return about(err, "operation %s", op.ID)
}

// update writes an operation's row if its epoch is still was.
func (c changes) update(op *operate.Operation, was int64) error {
	rehearsal, err := rehearsalOf(op)
	if err != nil {
		return err
	}
	n, err := c.exec(qUpdate, op.ID, was, string(op.State), operate.CleanText(op.Why), rehearsal, op.Wave, op.Rate, op.BrakePct, operate.CleanText(op.By), operate.CleanText(op.Reason),
		c.r.when(op.Started), c.r.when(op.Ended), c.r.time(core.InstantOf(op.Expires)), op.Epoch)
	if err == nil && n == 0 {
		return operate.ErrFenced
	}
	return err
}

const (
	memberColumns = `ordinal, partition, number, id, type, seq, step, wave, outcome, COALESCE(words, ''), COALESCE(fingerprint, '')`
	qMembers      = `SELECT ` + memberColumns + ` FROM operation_members WHERE operation = ?1 AND ordinal > ?2 ORDER BY ordinal LIMIT ?3`
	qMembersOf    = `SELECT ` + memberColumns + ` FROM operation_members WHERE operation = ?1 AND ordinal > ?2 AND outcome = ?4 ORDER BY ordinal LIMIT ?3`
)

// membersMax is how many members a call takes or returns.
const membersMax = 10_000

// Members implements operate.OperationStore, by ordinal.
func (a *asked) Members(ctx context.Context, operation string, outcome operate.Outcome, after int64, limit int) ([]operate.Member, error) {
	if limit < 1 || limit > membersMax {
		return nil, fmt.Errorf("members: limit %d, want 1 to %d", limit, membersMax)
	}
	query, args := qMembers, []any{operate.CleanText(operation), after, limit}
	if outcome != "" {
		query, args = qMembersOf, append(args, string(outcome))
	}
	members, err := scanAll(ctx, a.of, scanMember, query, args...)
	return members, about(err, "members of operation %s", core.QuoteShort(operation))
}

// scanMember reads a row of memberColumns.
func scanMember(row interface{ Scan(...any) error }) (operate.Member, error) {
	var m operate.Member
	var outcome string
	err := row.Scan(&m.Ordinal, &m.Partition, &m.Number, &m.ID, &m.Type, &m.Seq, &m.Step, &m.Wave, &outcome, &m.Text, &m.Fingerprint)
	m.Outcome = operate.Outcome(outcome)
	return m, err
}

const (
	qOutcomes   = `SELECT m.ordinal, m.outcome FROM operation_members m WHERE m.operation = ?1 AND m.ordinal IN (SELECT u.ordinal FROM `
	qSetMembers = `UPDATE operation_members SET wave = u.wave, outcome = u.outcome, words = u.words, fingerprint = u.fingerprint FROM `
	setWhere    = ` WHERE operation_members.operation = ?1 AND operation_members.ordinal = u.ordinal`
)

// SetMembers implements operate.OperationStore. The same transaction changes the tally by what the members
// change, so that it always adds up; op.Tally is not looked at.
func (a *asked) SetMembers(ctx context.Context, op operate.Operation, was int64, members []operate.Member) error {
	if len(members) > membersMax {
		return fmt.Errorf("operation %s: %d members, want at most %d", op.ID, len(members), membersMax)
	}
	err := a.change(ctx, func(c changes) error {
		if err := c.update(&op, was); err != nil || len(members) == 0 {
			return err
		}
		return c.setMembers(op.ID, members)
	})
	return about(err, "operation %s", op.ID)
}

// setMembers writes the outcomes of members and the tally.
func (c changes) setMembers(operation string, members []operate.Member) error {
	n := len(members)
	ordinals, waves := make([]int64, n), make([]int64, n)
	outcomes, texts, fingerprints := make([]string, n), make([]string, n), make([]string, n)
	to := make(map[int64]operate.Outcome, n)
	for i := range members {
		m := &members[i]
		if new(operate.Tally).Of(m.Outcome) == nil {
			return fmt.Errorf("member %d: outcome %s is none", m.Ordinal, core.QuoteShort(string(m.Outcome)))
		}
		ordinals[i], waves[i], outcomes[i], texts[i], fingerprints[i] = m.Ordinal, int64(m.Wave), string(m.Outcome), operate.CleanText(m.Text), operate.CleanText(m.Fingerprint)
		to[m.Ordinal] = m.Outcome
	}
	// The tally would be changed twice for it.
	if len(to) < n {
		return errors.New("a member is named twice")
	}
	delta, err := c.delta(operation, ordinals, to)
	if err != nil {
		return err
	}
	changed, err := c.exec(qSetMembers+c.r.rows(2, `ordinal INT8`, `wave INT8`, `outcome TEXT`, `words TEXT`, `fingerprint TEXT`)+setWhere,
		append([]any{operation}, c.r.rowArgs(ordinals, waves, outcomes, texts, fingerprints)...)...)
	if err != nil {
		return err
	}
	if int(changed) != n {
		return fmt.Errorf("%d of %d members are there", changed, n)
	}
	_, err = c.exec(qTally, operation, delta.Waiting, delta.Asked, delta.Done, delta.FailedAgain, delta.Skipped)
	return err
}

// delta is by how much the tally changes when the members get the outcomes in to.
func (c changes) delta(operation string, ordinals []int64, to map[int64]operate.Outcome) (operate.Tally, error) {
	var delta operate.Tally
	for row := range each(c.query(c.ctx, qOutcomes+c.r.rows(2, `ordinal INT8`)+`)`, append([]any{operation}, c.r.rowArgs(ordinals)...)...)) {
		var ordinal int64
		var outcome string
		if err := row.Scan(&ordinal, &outcome); err != nil {
			return delta, err
		}
		if from := delta.Of(operate.Outcome(outcome)); from != nil {
			*from--
		}
		// A member that keeps its outcome is counted down and up again.
		*delta.Of(to[ordinal])++
	}
	return delta, nil
}

// DropExpired implements operate.OperationStore. If it is cut off, the next call goes on; it also removes
// what a Freeze that was cut off left.
func (a *asked) DropExpired(ctx context.Context, now time.Time) (int, error) {
	if _, err := a.execOne(ctx, qExpire, a.of.time(core.InstantOf(now)), a.of.time(core.InstantOf(now.Add(-operate.OperationFor)))); err != nil {
		return 0, fmt.Errorf("expired previews: %w", err)
	}
	ids, err := column[string](ctx, a.of, qToDrop, operate.ListMax)
	if err != nil {
		return 0, fmt.Errorf("expired previews: %w", err)
	}
	for i, id := range ids {
		if err := a.drop(ctx, id); err != nil {
			return i, fmt.Errorf("expired preview %s: %w", id, err)
		}
	}
	return len(ids), nil
}

// drop deletes an operation in the state 'dropping': its members in pages, then its row.
func (a *asked) drop(ctx context.Context, id string) error {
	for {
		n, err := a.execOne(ctx, qDrop, id, dropPage)
		if err != nil {
			return err
		}
		if n == 0 {
			_, err = a.execOne(ctx, qGone, id)
			return err
		}
	}
}

// Freeze implements operate.OperationStore. It stores the members in pages; readers see the operation when
// all of them are there.
func (a *asked) Freeze(ctx context.Context, op operate.Operation, sel operate.Selection) (int64, error) {
	tasks, err := a.freeze(ctx, &op, sel)
	if err != nil {
		return 0, fmt.Errorf("operation %s: %w", op.ID, err)
	}
	return tasks, nil
}

// freeze is Freeze without the id in the errors.
func (a *asked) freeze(ctx context.Context, op *operate.Operation, sel operate.Selection) (int64, error) {
	r := a.of
	pages, err := r.selected(ctx, sel)
	if err != nil {
		return 0, err
	}
	// Without a state or an expiry of its own it is a preview for a while.
	if op.State == "" {
		op.State = operate.OperationPreview
	}
	if op.Expires.IsZero() {
		op.Expires = op.Created.Add(operate.PreviewFor)
	}
	// The row comes first, as 'freezing': whatever is cut off from here on is found by it and deleted when it
	// expires.
	request, err := json.Marshal(op.Request)
	if err != nil {
		return 0, err
	}
	rehearsal, err := rehearsalOf(op)
	if err != nil {
		return 0, err
	}
	n, err := a.execOne(ctx, qFreeze, operate.CleanText(op.ID), operate.CleanText(op.Why), string(op.Action), operate.CleanText(op.Selection), operate.CleanText(op.Group), request, rehearsal, op.Wave, op.Rate, op.BrakePct,
		operate.CleanText(op.By), operate.CleanText(op.Reason), r.time(core.InstantOf(op.Created)), r.when(op.Started), r.when(op.Ended), r.time(core.InstantOf(op.Expires)), op.Epoch)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("there is one of that id")
	}
	tasks, err := a.fillMembers(ctx, op.ID, pages)
	if err == nil {
		err = a.orderMembers(ctx, op.ID, tasks)
	}
	if err == nil {
		n, err = a.execOne(ctx, qFrozen, op.ID, string(op.State), tasks)
	}
	if err == nil && n == 0 {
		err = errors.New("its preview expired before it was complete")
	}
	if err != nil {
		// The connection may have broken after the last commit went through.
		stands, left := a.unfreeze(op.ID)
		if stands {
			return tasks, nil
		}
		return 0, errors.Join(err, left)
	}
	return tasks, nil
}

// unfreezeMax bounds how long a Freeze that failed cleans up. The rest goes when it expires.
const unfreezeMax = 10 * time.Second

// unfreeze deletes what a failed Freeze left. stands: the last commit went through after all, and only its
// answer was lost.
func (a *asked) unfreeze(id string) (stands bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), unfreezeMax)
	defer cancel()
	n, err := a.execOne(ctx, `UPDATE operations SET state = 'dropping' WHERE id = ?1 AND state = 'freezing'`, id)
	if err != nil {
		return false, err
	}
	if n == 0 {
		if _, err := a.Operation(ctx, id); !errors.Is(err, core.ErrNotFound) {
			return err == nil, err // its members are not to be touched
		}
	}
	return false, a.drop(ctx, id)
}

// frozenPage selects the tasks of one partition, to be frozen in pages in the order of their numbers.
type frozenPage struct {
	partition int64
	// of are the sources. One statement reads them all: a task that went from one to another between two
	// statements would be frozen twice, or not at all.
	of []source
	// filter adds the conditions that the source does not ensure.
	filter func(c *conditions)
	// step, above 0, makes a page a range of that many numbers; 0: a page is freezePage tasks.
	step int64
	// last is the partition's highest number, for the end of the ranges.
	last int64
}

const (
	// freezePage is how many tasks a page has at most.
	freezePage = 5000
	// freezeStep is how many numbers a page goes over where no index has just what is selected. On SQLite a commit
	// waits for a page.
	freezeStep = 5000
	// sourcesMax is how many sources a statement reads; SQLite takes 500.
	sourcesMax = 400
)

// selected returns what to freeze for a selection, by partition and source. Error: *operate.Refusal for a
// selection that is wrong.
func (r *reader) selected(ctx context.Context, sel operate.Selection) ([]frozenPage, error) {
	partitions, err := r.lastNumbers(ctx)
	if err != nil {
		return nil, err
	}
	var of []source
	filter, step, together := func(*conditions) {}, int64(0), sourcesMax
	switch {
	case (sel.Group != "") && sel.Filter == nil && len(sel.IDs) == 0:
		k, err := r.groupByID(ctx, sel.Group)
		if err != nil {
			return nil, err
		}
		of = append(of, func(c *conditions) fromWhere { return inTasks(k.is(c)) })
	case sel.Filter != nil && sel.Group == "" && len(sel.IDs) == 0:
		f := *sel.Filter
		if f.Parent != "" {
			var partition int64
			if partition, of, err = r.childSources(ctx, f.Parent); err != nil {
				return nil, err
			}
			partitions = slices.DeleteFunc(partitions, func(p lastNumber) bool { return p.partition != partition })
		} else if of, err = r.sources(ctx, f); err != nil {
			return nil, err
		}
		filter = func(c *conditions) {
			r.filters(c, f)
			labelIs(c, f.Label)
		}
		// No index has just what these filters select. Pages of numbers bound how many rows a statement goes
		// over, however few it finds.
		if f.Parent == "" && f.Fingerprint == "" && f.Step == "" && (f.State == "" && f.MovableTo == 0 || f.State == core.StateProcessed) {
			step = freezeStep
		}
	case len(sel.IDs) > 0 && len(sel.IDs) <= operate.ListMax && sel.Group == "" && sel.Filter == nil:
		// An id is one of a type: of the same id with another type nothing is selected.
		byType := map[string][]string{}
		for _, ref := range sel.IDs {
			byType[ref.Type] = append(byType[ref.Type], ref.ID)
		}
		for taskType, ids := range byType {
			of = append(of, func(c *conditions) fromWhere { return inTasks(r.named(c, taskType, ids)) })
		}
		together = 1 // a task keeps its type
	default:
		return nil, &operate.Refusal{Code: 400, Field: "selection", Detail: fmt.Sprintf("selection: want one of group, filter and ids, and at most %d ids, have %d", operate.ListMax, len(sel.IDs))}
	}
	var pages []frozenPage
	for _, p := range partitions {
		for some := range slices.Chunk(of, together) {
			pages = append(pages, frozenPage{partition: p.partition, of: some, filter: filter, step: step, last: p.number})
		}
	}
	return pages, nil
}

// named is the condition that a task is of a type and has one of the ids.
func (r *reader) named(c *conditions, taskType string, ids []string) string {
	is := `type = ` + c.param(taskType) + ` AND id IN (SELECT u.id FROM ` + r.rows(len(c.args)+1, `id TEXT`) + `)`
	c.args = append(c.args, r.rowArgs(ids)...)
	return is
}

// lastNumber is a partition with the highest number of its tasks.
type lastNumber struct{ partition, number int64 }

// lastNumbers returns the highest number of a task in each partition.
func (r *reader) lastNumbers(ctx context.Context) ([]lastNumber, error) {
	return scanAll(ctx, r, func(row interface{ Scan(...any) error }) (p lastNumber, err error) {
		return p, row.Scan(&p.partition, &p.number)
	}, `SELECT p.partition, (SELECT COALESCE(max(t.number), 0) FROM tasks t WHERE t.partition = p.partition) FROM partitions p ORDER BY p.partition`)
}

// fillMembers stores the members of an operation and returns how many there are. They get the ordinals -1, -2
// … as they are found; orderMembers gives them the final ones.
func (a *asked) fillMembers(ctx context.Context, operation string, pages []frozenPage) (int64, error) {
	total := int64(0)
	for i := range pages {
		p := &pages[i]
		for after := int64(0); ; {
			to, most := int64(math.MaxInt64), freezePage
			if p.step > 0 {
				to, most = after+p.step, int(p.step)
			}
			n, last, err := a.fillPage(ctx, operation, p, after, to, most, total)
			if err != nil {
				return 0, fmt.Errorf("members of partition %d: %w", p.partition, err)
			}
			// Freeze fails then, and unfreeze deletes what is there.
			if total += n; total > operate.MembersMax {
				return 0, &operate.Refusal{Code: 400, Field: "selection", Detail: fmt.Sprintf("selection: more than %d tasks, want at most that many", operate.MembersMax)}
			}
			if p.step > 0 {
				if after = to; after >= p.last {
					break
				}
				continue
			}
			if after = last; n < int64(most) {
				break
			}
		}
	}
	return total, nil
}

const (
	qFound = `SELECT m.ordinal, (SELECT t.deadline FROM tasks t WHERE t.partition = m.partition AND t.number = m.number) FROM operation_members m
	WHERE m.operation = ?1 AND m.ordinal < ?2 ORDER BY m.ordinal DESC LIMIT ?3`
	qPlace = `UPDATE operation_members SET ordinal = u.place FROM `
	isHere = ` WHERE operation_members.operation = ?1 AND operation_members.ordinal = u.ordinal`
)

// orderMembers gives the members that fillMembers stored the ordinals 1, 2 …: those with the earliest
// deadline first, so that what was promised first is asked first. Members of the same deadline stay as they
// were found. It holds 16 bytes for each member in memory.
func (a *asked) orderMembers(ctx context.Context, operation string, tasks int64) error {
	type found struct{ ordinal, due int64 }
	all := make([]found, 0, tasks)
	for below := int64(0); int64(len(all)) < tasks; below = all[len(all)-1].ordinal {
		page, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (f found, err error) {
			due := instant(0)
			err = row.Scan(&f.ordinal, &due)
			if f.due = int64(due); due == 0 {
				f.due = math.MaxInt64
			}
			return f, err
		}, qFound, operation, below, freezePage)
		if err != nil {
			return fmt.Errorf("deadlines: %w", err)
		}
		if len(page) == 0 {
			return fmt.Errorf("%d of %d members are there", len(all), tasks)
		}
		all = append(all, page...)
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.due, b.due) })
	ordinals, places := make([]int64, 0, freezePage), make([]int64, 0, freezePage)
	// The old ordinals are negative and the new ones positive, so that no two members have the same
	// meanwhile.
	placed := int64(0)
	for page := range slices.Chunk(all, freezePage) {
		ordinals, places = ordinals[:0], places[:0]
		for i := range page {
			placed++
			ordinals, places = append(ordinals, page[i].ordinal), append(places, placed)
		}
		err := a.change(ctx, func(c changes) error {
			n, err := c.exec(qPlace+c.r.rows(2, `ordinal INT8`, `place INT8`)+isHere, append([]any{operation}, c.r.rowArgs(ordinals, places)...)...)
			if err == nil && int(n) != len(page) {
				err = fmt.Errorf("%d of %d members are there", n, len(page))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("order of the members: %w", err)
		}
	}
	return nil
}

// newestSeq selects the seq of a task's newest journal row. Only the row of a task that has ended is sure to
// have it.
const newestSeq = `CASE WHEN t.state IN ('processed', 'undone', 'error') THEN t.seq
	ELSE COALESCE((SELECT max(j.seq) FROM journal j WHERE j.partition = t.partition AND j.number = t.number), t.seq) END`

// fillPage stores a page of members after so many that are stored already. It returns how many it stored and
// the number of the last task.
func (a *asked) fillPage(ctx context.Context, operation string, p *frozenPage, after, to int64, most int, before int64) (n, last int64, err error) {
	c := conditions{args: []any{p.partition}}
	c.where = append(c.where, `partition = ?1`)
	head := `INSERT INTO operation_members (operation, ordinal, partition, number, id, type, seq, step, wave, outcome)
	SELECT CAST(` + c.param(operation) + ` AS TEXT), -(` + c.param(before) + ` + row_number() OVER (ORDER BY t.number)), t.partition, t.number, t.id, t.type, ` + newestSeq + `,
	COALESCE((SELECT ps.name FROM plan_steps ps WHERE ps.plan = t.type AND ps.version = t.plan_version AND ps.ordinal = t.failed_step), ''), 0, 'waiting'
	FROM (`
	c.add(`number > %s`, after)
	c.add(`number <= %s`, to)
	limit := c.param(most)
	p.filter(&c)
	parts := make([]string, len(p.of))
	for i, is := range p.of {
		in := is(&c)
		parts[i] = `SELECT partition, number, id, type, plan_version, state, seq, failed_step FROM ` + in.from + ` WHERE ` + in.where + ` AND ` + c.String() + ` ORDER BY number LIMIT ` + limit
		if len(p.of) > 1 {
			parts[i] = fmt.Sprintf(`SELECT * FROM (%s) AS part%d`, parts[i], i)
		}
	}
	query := head + strings.Join(parts, ` UNION ALL `)
	if len(p.of) > 1 {
		query += ` ORDER BY number LIMIT ` + limit
	}
	query += `) AS t`
	err = a.change(ctx, func(ch changes) error {
		if n, err = ch.exec(query, c.args...); err != nil || n == 0 {
			return err
		}
		return ch.row(`SELECT number FROM operation_members WHERE operation = ?1 AND ordinal = ?2`, []any{operation, -(before + n)}, &last)
	})
	return n, last, err
}
