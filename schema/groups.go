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

// Failure groups are the values of an index on tasks in error or undone. A page goes from one
// group to the next by a seek each, and reads of each what it shows; no other task is read.

// groupKey is what the tasks of a group have in common.
type groupKey struct {
	state       core.State
	taskType    string
	fingerprint string
}

// failedStates are the states that have failure groups, or the one of them that is wanted; ""
// wants both.
func failedStates(want core.State) []core.State {
	return slices.DeleteFunc([]core.State{core.StateError, core.StateUndone}, func(s core.State) bool { return want != "" && s != want })
}

// is the condition that tasks are of the group.
func (k groupKey) is(c *conditions) string {
	return stateIs(k.state, c.param) + ` AND type = ` + c.param(k.taskType) + ` AND fingerprint = ` + c.param(k.fingerprint)
}

// fingerprintBytes is the length of a fingerprint, typeHashBytes that of a type's hash.
const fingerprintBytes, typeHashBytes = 16, 8

// id names the group in a URL: the letter of its state, its fingerprint, and a hash of its type.
func (k groupKey) id() string {
	return string(k.state[0]) + k.fingerprint + typeHash(k.taskType)
}

func typeHash(taskType string) string {
	h := kindBegin
	for i := 0; i < len(taskType); i++ {
		h.mix(taskType[i])
	}
	return h.String()[:typeHashBytes]
}

// groupByID finds the group of an id, if it has tasks. Error: core.ErrNotFound.
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

// groupTypesMax bounds the types that are looked through.
const groupTypesMax = 10_000

// typesWith are the types that have tasks in a state with a fingerprint; of one type alone, if
// it is not empty.
func (r *reader) typesWith(ctx context.Context, state core.State, taskType, fingerprint string) ([]string, error) {
	types := []string{taskType}
	if taskType == "" {
		types = types[:0]
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

// nextType is the first type after one that has tasks in a state; "" where there is none.
func (r *reader) nextType(ctx context.Context, state core.State, after string) (string, error) {
	c := conditions{}
	next, err := column[string](ctx, r, groupKey{state: state, taskType: after}.nextTypeQuery(&c), c.args...)
	if err != nil || len(next) == 0 {
		return "", err
	}
	return next[0], nil
}

func (k groupKey) nextTypeQuery(c *conditions) string {
	return `SELECT type FROM tasks WHERE ` + stateIs(k.state, c.param) + ` AND type > ` + c.param(k.taskType) + ` ORDER BY type LIMIT 1`
}

func (k groupKey) nextFingerprintQuery(c *conditions) string {
	return `SELECT fingerprint FROM tasks WHERE ` + stateIs(k.state, c.param) + ` AND type = ` + c.param(k.taskType) +
		` AND fingerprint > ` + c.param(k.fingerprint) + ` ORDER BY fingerprint LIMIT 1`
}

// nextFingerprint is the first of a type after one, "" before all; false where there is none.
func (r *reader) nextFingerprint(ctx context.Context, k groupKey) (string, bool, error) {
	c := conditions{}
	next, err := column[string](ctx, r, k.nextFingerprintQuery(&c), c.args...)
	if err != nil || len(next) == 0 {
		return "", false, err
	}
	return next[0], true, nil
}

// nextGroup is the group after one, in the order of state, type and fingerprint.
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

// typeDone is a fingerprint after all others of a type.
const typeDone = "~"

// typeAfter is the type after that of a group, or the only one that is wanted.
func (r *reader) typeAfter(ctx context.Context, k groupKey, only string) (string, error) {
	if only == "" {
		return r.nextType(ctx, k.state, k.taskType)
	}
	if k.taskType == "" {
		return only, nil
	}
	return "", nil
}

// Groups implements operate.Reader. The order is that of state, type and fingerprint.
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

// rankReads bounds the reads that rank groups, each of operate.CountExactMax+1 tasks: what comes after them is left out.
const rankReads = 20

// ranked is a group and how many tasks it has.
type ranked struct {
	of    groupKey
	tasks operate.Count
}

// largestGroups ranks all groups of a state, by an index alone, and reads the first of them.
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

// rank counts the groups after one, in their order. Where not all could be read the last is one that was read whole, or up
// to the bound of what is counted.
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

// group reads what is shown of a group; false, if it has no tasks any more.
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

// groupQuery asks for the newest task of a group, and for the oldest time and the number of all.
func (r *reader) groupQuery(c *conditions, k groupKey) string {
	is := k.is(c)
	return `SELECT partition, number, id, COALESCE(failed_step, -1), ended_at, ` + failedStepName + `, (SELECT min(ended_at) FROM tasks WHERE ` + is + `),
	(SELECT count(*) FROM (SELECT number FROM tasks WHERE ` + is + ` LIMIT ` + c.param(operate.CountExactMax+1) + `) AS counted)
	FROM tasks WHERE ` + is + ` AND ended_at >= ` + c.param(r.time(1)) + ` ORDER BY ended_at DESC LIMIT 1`
}

// countUpTo is a count that was read up to one more than is counted exactly.
func countUpTo(n int64) operate.Count {
	if n > operate.CountExactMax {
		return operate.Count{N: operate.CountExactMax, AtLeast: true}
	}
	return operate.Count{N: n}
}

// exampleRows is how many journal rows of a task are looked at for the text that grouped it. What
// comes after its failure, such as undos, are fewer.
const exampleRows = 200

const qTexts = `SELECT error, reason FROM journal WHERE partition = ?1 AND number = ?2 AND (error IS NOT NULL OR reason IS NOT NULL) ORDER BY seq DESC LIMIT ?3`

// example is the text that a task is in its group for: the newest that has the fingerprint. It is
// empty where the journal is forgotten.
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

// groupCursor is where a page of groups ended.
func groupCursor(k groupKey) string {
	b, _ := json.Marshal([]string{string(k.state), k.taskType, k.fingerprint}) // texts always can be
	return base64.RawURLEncoding.EncodeToString(b)
}

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

// Joined implements Store.
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
	n := countUpTo(ended - members)
	n.AtLeast = n.AtLeast || ended == lookMax
	return n, nil
}

// countNotes fills in how many notes each group has.
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

// cursorNumber reads a cursor that is a number, as those of the audit trail are.
func cursorNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: %s is none of this list", core.ErrCursor, core.QuoteShort(s))
	}
	return n, nil
}
