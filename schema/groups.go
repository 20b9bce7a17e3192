package schema

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// An index of type and fingerprint holds the tasks in error or undone, and each pair of values in it is a
// failure group. A page finds the next group by one seek, and reads of a group only what it shows.

// groupKey is what the tasks of a failure group have in common.
type groupKey struct {
	state       core.State
	taskType    string
	fingerprint string
}

// failedStates returns the states that have failure groups; if want names one of them, only that one.
func failedStates(want core.State) []core.State {
	return slices.DeleteFunc([]core.State{core.StateError, core.StateUndone}, func(s core.State) bool { return want != "" && s != want })
}

// is is the condition for tasks of the group.
func (k groupKey) is(c *conditions) string {
	return stateIs(k.state, c.param) + ` AND type = ` + c.param(k.taskType) + ` AND fingerprint = ` + c.param(k.fingerprint)
}

// The lengths of a fingerprint and of the hash of a type in the id of a group.
const fingerprintBytes, typeHashBytes = 16, 8

// id names the group in a URL: its state's first letter, its fingerprint, and a hash of its type, whose name
// may be long.
func (k groupKey) id() string {
	return string(k.state[0]) + k.fingerprint + typeHash(k.taskType)
}

// typeHash is a hash of a type, for the id of a group. Two types may have the same; groupByID finds the first
// then.
func typeHash(taskType string) string {
	h := kindBegin
	for i := 0; i < len(taskType); i++ {
		h.mix(taskType[i])
	}
	return h.String()[:typeHashBytes]
}

// groupByID finds the group with an id. The id has only a hash of the type, so it looks at the types that
// have the fingerprint. Error: core.ErrNotFound, also when the group has lost its last task.
func (r *reader) groupByID(ctx context.Context, id string) (groupKey, error) {
	if len(id) != 1+fingerprintBytes+typeHashBytes {
		return groupKey{}, fmt.Errorf("failure group %s: %w", core.QuoteShort(id), core.ErrNotFound)
	}
	for _, state := range failedStates("") {
		if state[0] != id[0] {
			continue
		}
		fingerprint, hash := id[1:1+fingerprintBytes], id[1+fingerprintBytes:]
		types, err := r.typesWith(ctx, state, "", fingerprint)
		if err != nil {
			return groupKey{}, err
		}
		for _, t := range types {
			if typeHash(t) == hash {
				return groupKey{state, t, fingerprint}, nil
			}
		}
	}
	return groupKey{}, fmt.Errorf("failure group %s: %w", core.QuoteShort(id), core.ErrNotFound)
}

// groupTypesMax bounds how many types a search for a fingerprint goes through.
const groupTypesMax = 10_000

// typesWith returns the types with tasks in a state that have a fingerprint. taskType restricts it to one;
// empty: all.
func (r *reader) typesWith(ctx context.Context, state core.State, taskType, fingerprint string) ([]string, error) {
	types := []string{taskType}
	if taskType == "" {
		types = types[:0]
		// One seek for each type. Without a type the index cannot be entered by fingerprint, which comes
		// after it.
		for last := ""; len(types) < groupTypesMax; {
			next, err := r.nextType(ctx, state, last)
			if err != nil {
				return nil, err
			}
			if next == "" {
				break
			}
			types, last = append(types, next), next
		}
	}
	var with []string
	for _, t := range types {
		c := conditions{}
		is := groupKey{state, t, fingerprint}.is(&c)
		there, err := column[int64](ctx, r, `SELECT number FROM tasks WHERE `+is+` LIMIT 1`, c.args...)
		if err != nil {
			return nil, err
		}
		if len(there) > 0 {
			with = append(with, t)
		}
	}
	return with, nil
}

// nextType returns the first type after one, by name, with tasks in a state; "" when there is none.
func (r *reader) nextType(ctx context.Context, state core.State, after string) (string, error) {
	c := conditions{}
	next, err := column[string](ctx, r, groupKey{state: state, taskType: after}.nextTypeQuery(&c), c.args...)
	if err != nil || len(next) == 0 {
		return "", err
	}
	return next[0], nil
}

// nextTypeQuery seeks the next type in the index of failures.
func (k groupKey) nextTypeQuery(c *conditions) string {
	return `SELECT type FROM tasks WHERE ` + stateIs(k.state, c.param) + ` AND type > ` + c.param(k.taskType) + ` ORDER BY type LIMIT 1`
}

// nextFingerprintQuery seeks the next fingerprint of a type in the index of failures.
func (k groupKey) nextFingerprintQuery(c *conditions) string {
	return `SELECT fingerprint FROM tasks WHERE ` + stateIs(k.state, c.param) + ` AND type = ` + c.param(k.taskType) +
		` AND fingerprint > ` + c.param(k.fingerprint) + ` ORDER BY fingerprint LIMIT 1`
}

// nextFingerprint returns the first fingerprint after k's among the tasks of its state and type. false: there
// is none.
func (r *reader) nextFingerprint(ctx context.Context, k groupKey) (string, bool, error) {
	c := conditions{}
	next, err := column[string](ctx, r, k.nextFingerprintQuery(&c), c.args...)
	if err != nil || len(next) == 0 {
		return "", false, err
	}
	return next[0], true, nil
}

// nextGroup returns the group after k in the order of state, type and fingerprint, within the filter. false:
// there is none.
func (r *reader) nextGroup(ctx context.Context, k groupKey, f operate.GroupFilter) (groupKey, bool, error) {
	for _, state := range failedStates(f.State) {
		if state < k.state {
			continue
		}
		at := k
		if state > k.state || f.Type != "" && at.taskType != f.Type {
			at = groupKey{state: state}
		}
		for {
			if at.taskType == "" || at.fingerprint == typeDone {
				next, err := r.typeAfter(ctx, at, f.Type)
				if err != nil {
					return k, false, err
				}
				if next == "" {
					break
				}
				at = groupKey{state, next, ""}
			}
			next, found, err := r.nextFingerprint(ctx, at)
			if err != nil || found {
				return groupKey{state, at.taskType, next}, found, err
			}
			at.fingerprint = typeDone
		}
	}
	return k, false, nil
}

// typeDone sorts after every fingerprint: a key with it stands at the end of its type.
const typeDone = "~"

// typeAfter returns the type after k's; with only, that one alone, once.
func (r *reader) typeAfter(ctx context.Context, k groupKey, only string) (string, error) {
	if only == "" {
		return r.nextType(ctx, k.state, k.taskType)
	}
	if k.taskType == "" {
		return only, nil
	}
	return "", nil
}

// Groups implements operate.Reader. Without Largest, pages are in the order of state, type and fingerprint.
func (a *asked) Groups(ctx context.Context, f operate.GroupFilter) (operate.Groups, error) {
	r := a.of
	if f.Limit < 1 || f.Limit > operate.ListMax {
		return operate.Groups{}, fmt.Errorf("groups: limit %d, want 1 to %d", f.Limit, operate.ListMax)
	}
	if f.State != "" && !failed(f.State) {
		return operate.Groups{}, fmt.Errorf("groups: state %s, want error or undone", core.QuoteShort(string(f.State)))
	}
	if f.Largest {
		return r.largestGroups(ctx, f)
	}
	k, err := parseGroupCursor(f.After)
	if err != nil {
		return operate.Groups{}, err
	}
	all := operate.Groups{At: time.Now().UTC()}
	for {
		next, found, err := r.nextGroup(ctx, k, f)
		if err != nil {
			return operate.Groups{}, fmt.Errorf("groups: %w", err)
		}
		if !found {
			break
		}
		// The page is full and there is another group, so the cursor is worth giving out.
		if len(all.Groups) == f.Limit {
			all.Next = groupCursor(k)
			break
		}
		g, found, err := r.group(ctx, next)
		if err != nil {
			return operate.Groups{}, fmt.Errorf("group %s: %w", next.id(), err)
		}
		if k = next; found {
			all.Groups = append(all.Groups, g)
		}
	}
	return all, r.countNotes(ctx, all.Groups)
}

// rankReads bounds the statements that rank groups, each of operate.CountExactMax+1 tasks. Groups beyond that
// are left out, and the counts say "at least".
const rankReads = 20

// ranked is a group with the number of its tasks.
type ranked struct {
	of    groupKey
	tasks operate.Count
}

// largestGroups counts the groups of a state, from the index alone, and reads the largest ones.
func (r *reader) largestGroups(ctx context.Context, f operate.GroupFilter) (operate.Groups, error) {
	all := operate.Groups{At: time.Now().UTC(), All: operate.Count{AtLeast: true}, Tasks: operate.Count{AtLeast: true}}
	var ranks []ranked
	k := groupKey{state: f.State}
	for range rankReads {
		next, whole, err := r.rank(ctx, k, f.Type)
		if err != nil {
			return all, fmt.Errorf("groups: %w", err)
		}
		if ranks = append(ranks, next...); whole {
			all.All.AtLeast, all.Tasks.AtLeast = false, false
			break
		}
		k = next[len(next)-1].of
	}
	for _, is := range ranks {
		all.All.N++
		all.Tasks.N, all.Tasks.AtLeast = all.Tasks.N+is.tasks.N, all.Tasks.AtLeast || is.tasks.AtLeast
	}
	// Stable: groups of the same size stay in index order.
	slices.SortStableFunc(ranks, func(a, b ranked) int { return cmp.Compare(b.tasks.N, a.tasks.N) })
	for _, is := range ranks[:min(len(ranks), f.Limit)] {
		g, found, err := r.group(ctx, is.of)
		if err != nil {
			return all, fmt.Errorf("group %s: %w", is.of.id(), err)
		}
		if g.Tasks = is.tasks; found { // as it was counted with the others
			all.Groups = append(all.Groups, g)
		}
	}
	return all, r.countNotes(ctx, all.Groups)
}

// rank counts the tasks of the groups after one, in index order, as far as one statement goes. whole: these
// were all. Otherwise the last group returned is complete, or there is one group that has more than can be
// counted.
func (r *reader) rank(ctx context.Context, after groupKey, only string) (all []ranked, whole bool, err error) {
	c := conditions{}
	query := after.rankQuery(&c, only)
	read := int64(0)
	for row := range each(r.query(ctx, query, c.args...)) {
		is := ranked{of: groupKey{state: after.state}}
		if err := row.Scan(&is.of.taskType, &is.of.fingerprint, &is.tasks.N); err != nil {
			return nil, false, err
		}
		read += is.tasks.N
		is.tasks = countUpTo(is.tasks.N)
		all = append(all, is)
	}
	if whole = read <= operate.CountExactMax; !whole && len(all) > 1 {
		all = all[:len(all)-1] // the next read begins with it
	}
	return all, whole, nil
}

// rankQuery counts the tasks of each group after k in index order; only: of that type of task, empty: of all. It reads
// CountExactMax+1 tasks at most, so the last group may be counted in part.
func (k groupKey) rankQuery(c *conditions, only string) string {
	is := stateIs(k.state, c.param)
	if only != "" {
		is += ` AND type = ` + c.param(only)
	}
	return `SELECT type, fingerprint, count(*) FROM (SELECT type, fingerprint FROM tasks WHERE ` + is + ` AND (type, fingerprint) > (` + c.param(k.taskType) + `, ` + c.param(k.fingerprint) +
		`) AND fingerprint > '' ORDER BY type, fingerprint LIMIT ` + c.param(operate.CountExactMax+1) + `) AS counted GROUP BY type, fingerprint ORDER BY type, fingerprint`
}

// Group implements operate.Reader.
func (a *asked) Group(ctx context.Context, id string) (operate.Group, error) {
	r := a.of
	k, err := r.groupByID(ctx, id)
	if err != nil {
		return operate.Group{}, err
	}
	g, found, err := r.group(ctx, k)
	if err != nil {
		return g, fmt.Errorf("group %s: %w", id, err)
	}
	if !found {
		return g, fmt.Errorf("failure group %s: %w", id, core.ErrNotFound)
	}
	one := []operate.Group{g}
	err = r.countNotes(ctx, one)
	return one[0], err
}

// group reads what a page shows of a group. false: its last task has left it.
func (r *reader) group(ctx context.Context, k groupKey) (operate.Group, bool, error) {
	c := conditions{}
	query := r.groupQuery(&c, k)
	g := operate.Group{GroupKey: operate.GroupKey{Type: k.taskType, State: k.state, Fingerprint: k.fingerprint}, ID: k.id()}
	var partition, number, step int64
	var newest, oldest instant
	err := r.db.QueryRowContext(ctx, r.params(query), c.args...).Scan(&partition, &number, &g.Task, &step, &newest, &g.Step, &oldest, &g.Tasks.N)
	if errors.Is(err, sql.ErrNoRows) {
		return g, false, nil
	}
	if err != nil {
		return g, false, err
	}
	g.Tasks = countUpTo(g.Tasks.N)
	g.First, g.Last = core.Instant(oldest).Time(), core.Instant(newest).Time()
	g.Example, err = r.example(ctx, partition, number, step, k.fingerprint)
	return g, true, err
}

// groupQuery reads the newest task of a group, the time of its oldest, and how many there are up to the
// bound.
func (r *reader) groupQuery(c *conditions, k groupKey) string {
	is := k.is(c)
	return `SELECT partition, number, id, COALESCE(failed_step, -1), ended_at, ` + failedStepName + `, (SELECT min(ended_at) FROM tasks WHERE ` + is + `),
	(SELECT count(*) FROM (SELECT number FROM tasks WHERE ` + is + ` LIMIT ` + c.param(operate.CountExactMax+1) + `) AS counted)
	FROM tasks WHERE ` + is + ` AND ended_at >= ` + c.param(r.time(1)) + ` ORDER BY ended_at DESC LIMIT 1`
}

// countUpTo makes a count of one that stopped at operate.CountExactMax+1.
func countUpTo(n int64) operate.Count {
	if n > operate.CountExactMax {
		return operate.Count{N: operate.CountExactMax, AtLeast: true}
	}
	return operate.Count{N: n}
}

// exampleRows is how many of a task's newest journal rows example reads. A failure is followed by fewer, such
// as undos.
const exampleRows = 200

// qTexts reads the texts of failures in a task's journal, the newest first.
const qTexts = `SELECT error, reason FROM journal WHERE partition = ?1 AND number = ?2 AND (error IS NOT NULL OR reason IS NOT NULL) ORDER BY seq DESC LIMIT ?3`

// example finds the text that put a task into its group: the newest in its journal with the group's
// fingerprint. If none has it, it returns the newest error; empty when the journal is forgotten.
func (r *reader) example(ctx context.Context, partition, number, step int64, fingerprint string) (string, error) {
	newest := ""
	for row := range each(r.query(ctx, qTexts, partition, number, exampleRows)) {
		var text, reason []byte
		if err := row.Scan(&text, &reason); err != nil {
			return "", err
		}
		for _, t := range [][]byte{text, reason} {
			if len(t) > 0 && failureOf(step, string(t)) == fingerprint {
				return string(t), nil
			}
		}
		if newest == "" {
			newest = string(text)
		}
	}
	return newest, nil
}

// groupCursor is the cursor of a page of groups that ended with k.
func groupCursor(k groupKey) string {
	b, _ := json.Marshal([]string{string(k.state), k.taskType, k.fingerprint}) // texts always can be
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseGroupCursor reads what groupCursor wrote; "" is the beginning. Error: core.ErrCursor.
func parseGroupCursor(s string) (groupKey, error) {
	if s == "" {
		return groupKey{}, nil
	}
	var k []string
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil || len(k) != 3 || !failed(core.State(k[0])) {
		return groupKey{}, fmt.Errorf("groups: %w: %s is none of groups", core.ErrCursor, core.QuoteShort(s))
	}
	return groupKey{core.State(k[0]), k[1], k[2]}, nil
}

// Joined implements Store. It counts the tasks that entered the group after the operation was made and are
// none of its members.
func (a *asked) Joined(ctx context.Context, op operate.Operation) (operate.Count, error) {
	r := a.of
	if op.Group == "" {
		return operate.Count{}, nil
	}
	k, err := r.groupByID(ctx, op.Group)
	if errors.Is(err, core.ErrNotFound) {
		return operate.Count{}, nil
	}
	if err != nil {
		return operate.Count{}, err
	}
	c := conditions{}
	query := `SELECT count(*), count(m.operation) FROM (SELECT partition, number FROM tasks WHERE ` + k.is(&c) + ` AND ended_at >= ` + c.param(r.time(core.InstantOf(op.Created))) +
		` ORDER BY ended_at DESC LIMIT ` + c.param(lookMax) + `) AS t
	LEFT JOIN operation_members m ON m.operation = ` + c.param(op.ID) + ` AND m.partition = t.partition AND m.number = t.number`
	var ended, members int64
	if err := r.db.QueryRowContext(ctx, r.params(query), c.args...).Scan(&ended, &members); err != nil {
		return operate.Count{}, fmt.Errorf("tasks that joined group %s: %w", op.Group, err)
	}
	// The query reads lookMax tasks at most, so if it read as many there may be more.
	n := countUpTo(ended - members)
	n.AtLeast = n.AtLeast || ended == lookMax
	return n, nil
}

// countNotes fills in how many notes each group has, by one statement.
func (r *reader) countNotes(ctx context.Context, groups []operate.Group) error {
	if len(groups) == 0 {
		return nil
	}
	targets := make([]string, len(groups))
	at := make(map[string]int, len(groups))
	for i := range groups {
		targets[i] = "group/" + groups[i].ID
		at[targets[i]] = i
	}
	for row := range each(r.query(ctx, `SELECT n.target, count(*) FROM `+r.rows(1, `target TEXT`)+` JOIN notes n ON n.target = u.target GROUP BY n.target`, r.rowArgs(targets)...)) {
		var target string
		var n int
		if err := row.Scan(&target, &n); err != nil {
			return fmt.Errorf("notes of groups: %w", err)
		}
		groups[at[target]].Notes = n
	}
	return nil
}

// cursorNumber reads a cursor that is a number above 0. Error: core.ErrCursor.
func cursorNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: %s is none of this list", core.ErrCursor, core.QuoteShort(s))
	}
	return n, nil
}
