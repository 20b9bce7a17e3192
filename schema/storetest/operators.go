package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
)

// RunOperators holds a store to what operators read and write, except for some of it by name.
func RunOperators(t *testing.T, open Open, except ...string) {
	for _, c := range []struct {
		name string
		test func(*rig)
	}{
		{"filters of a list", testFilters},
		{"list of one microsecond", testOneMicrosecond},
		{"list beside births", testListBesideBirths},
		{"list that is cut off", testPartialList},
		{"list by time of creation", testCreatedRange},
		{"counts of each state", testCountsOfStates},
		{"journal from its end", testJournalPage},
		{"input of a long journal", testLongJournal},
		{"groups", testGroups},
		{"groups in pages", testGroupPages},
		{"a resubmitted task leaves its group", testLeavesGroup},
		{"at risk", testAtRisk},
		{"sample", testSample},
		{"ended since", testEnded},
		{"mark", testMark},
		{"waiting for agents", testWaitingFor},
		{"audit trail", testTrail},
		{"audit trail by filter", testTrailFilters},
		{"audit key at once", testTrailKeyAtOnce},
		{"outcome with its change", testOutcomeOfAChange},
		{"old audit entries", testForgetAudit},
		{"freeze a group", testFreezeGroup},
		{"freeze a filter", testFreezeFilter},
		{"freeze by label and parent", testFreezeRelated},
		{"freeze by ids", testFreezeIDs},
		{"freeze refused", testFreezeRefused},
		{"members and tally", testMembers},
		{"operation is fenced", testOperationFenced},
		{"operations in pages", testOperationPages},
		{"expired previews", testDropExpired},
		{"standing", testStanding},
		{"tokens", testTokens},
		{"sessions", testSessions},
		{"forecasts", testForecasts},
		{"breakers", testBreakers},
		{"calls that nodes report", testReportCalls},
		{"limits", testLimits},
		{"grants", testGrants},
		{"places of partitions", testCountedPlaces},
		{"grants of keys", testKeyGrants},
		{"grants of keys end", testKeyGrantsEnd},
		{"grants of keys at once", testKeyGrantsAtOnce},
		{"open tasks", testOpenTasks},
		{"notes", testNotes},
		{"settings", testSettings},
		{"pauses", testPauses},
		{"schedules", testSchedules},
		{"schedules are fenced", testSchedulesFenced},
		{"as many schedules as may be", testSchedulesMany},
		{"books", testBooks},
		{"ghosts in pages", testGhostPages},
	} {
		if slices.Contains(except, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s, db := open(t)
			c.test(newRig(t, s, db))
		})
	}
}

// failure is the write that ends a task badly, at a time, for a text.
func failure(t *core.Task, state core.State, endNumber int64, step int, at core.Instant, text string) core.TaskWrite {
	return next(t, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.UpdatedAt, t.EndNumber, t.LockedBy, t.FailedStep, t.Why = state, at, at, endNumber, "", step+1, text
		rec.At, rec.Kind, rec.Step, rec.StepStatus, rec.Attempt, rec.Code, rec.Error = at, core.KindRefused, step, core.StepFailed, 1, 422, text
		if step < 0 {
			rec.Kind, rec.Step, rec.Reason, rec.Error = core.KindCancelled, -1, text, ""
		}
	})
}

// ends gives end numbers by partition.
type ends map[int]int64

func (e ends) next(p int) int64 {
	e[p]++
	return e[p]
}

// failures are the suite's failures of one kind: that many in each partition, one second apart.
type failures struct {
	taskType string
	state    core.State
	step     int
	text     string // with the task's number
	n        int
}

// words is the text of one task.
func (k failures) words(number int64) string {
	if !strings.Contains(k.text, "%") {
		return k.text
	}
	return fmt.Sprintf(k.text, number)
}

// fail makes failures in all partitions, and returns what was written last of each task.
func (r *rig) fail(kinds ...failures) []core.TaskWrite {
	r.Helper()
	r.must(r.s.PutPlan(r.ctx, plan()))
	var all []core.TaskWrite
	e := ends{}
	for p := range partitions {
		var born, ended []core.TaskWrite
		number := int64(0)
		for _, k := range kinds {
			for range k.n {
				number++
				w := birth(p, number, fmt.Sprintf("t%d-%d", p, number))
				w.Task.Type = k.taskType
				born = append(born, w)
				ended = append(ended, failure(w.Task, k.state, e.next(p), k.step, start.Add(time.Duration(number)*time.Minute+time.Duration(p)*time.Second), k.words(number)))
			}
		}
		r.write(born...)
		r.write(ended...)
		all = append(all, ended...)
	}
	return all
}

// someFailures are groups that differ in type, state, step and text.
var someFailures = []failures{
	{"order", core.StateError, 1, "order %d has no stock", 3},
	{"order", core.StateUndone, 1, "order %d has no stock", 2},
	{"order", core.StateUndone, 1, "card declined, try %d", 4},
	{"order", core.StateUndone, 2, "card declined, try %d", 1},
	{"order", core.StateUndone, -1, "not wanted", 1},
	{"other", core.StateError, 0, "gone since 2026-11-%02d", 2},
}

// groups reads all groups in pages.
func (r *rig) groups(f operate.GroupFilter) []operate.Group {
	r.Helper()
	var all []operate.Group
	for {
		page := get(r.s.Groups(r.ctx, f))(r)
		if len(page.Groups) > f.Limit || page.Next != "" && len(page.Groups) == 0 || page.At.IsZero() {
			r.Fatalf("page of %d groups, limit %d, next %q", len(page.Groups), f.Limit, page.Next)
		}
		all = append(all, page.Groups...)
		if page.Next == "" {
			return all
		}
		f.After = page.Next
	}
}

func fingerprintOf(k failures) string {
	return schema.FailureFingerprint(&core.Task{State: k.state, FailedStep: k.step + 1, Why: k.words(1)})
}

func testGroups(r *rig) {
	if got := r.groups(operate.GroupFilter{Limit: 10}); len(got) != 0 {
		r.Fatalf("groups of nothing: %+v", got)
	}
	r.fail(someFailures...)
	all := r.groups(operate.GroupFilter{Limit: 100})
	r.equal("groups", len(all), len(someFailures))
	first := int64(0)
	for _, k := range someFailures {
		fingerprint := fingerprintOf(k)
		i := slices.IndexFunc(all, func(g operate.Group) bool {
			return g.Type == k.taskType && g.State == k.state && g.Fingerprint == fingerprint
		})
		if i < 0 {
			r.Fatalf("no group of %+v in %+v", k, all)
		}
		g := all[i]
		last := first + int64(k.n)
		step := ""
		if k.step >= 0 && k.taskType == "order" { // no plan of the other type is known
			step = plan().Steps[k.step].Name
		}
		want := operate.Group{
			GroupKey: operate.GroupKey{Type: k.taskType, State: k.state, Step: step, Fingerprint: fingerprint}, ID: g.ID,
			Tasks: operate.Count{N: int64(k.n * partitions)}, Example: k.words(last), Task: fmt.Sprintf("t%d-%d", partitions-1, last),
			First: start.Add(time.Duration(first+1) * time.Minute).Time(), Last: start.Add(time.Duration(last)*time.Minute + (partitions-1)*time.Second).Time(),
		}
		r.equal("group", g, want)
		r.equal("the same by its id", get(r.s.Group(r.ctx, g.ID))(r), g)
		r.equal("its tasks", r.listed(core.Filter{Limit: 3, Fingerprint: fingerprint, Type: k.taskType, State: k.state}), k.n*partitions)
		first = last
	}
	get(r.s.AddNote(r.ctx, operate.Note{Target: "group/" + all[0].ID, At: start.Time(), By: "olga", Text: "known"}))(r)
	r.equal("notes", []int{r.groups(operate.GroupFilter{Limit: 100})[0].Notes, get(r.s.Group(r.ctx, all[0].ID))(r).Notes}, []int{1, 1})
	for _, id := range []string{"", "nonsense", "x" + all[0].ID[1:], all[0].ID[:17] + "00000000", strings.Repeat("e", 1000)} {
		if _, err := r.s.Group(r.ctx, id); !errors.Is(err, core.ErrNotFound) {
			r.Errorf("group %q: %v, want not found", id, err)
		}
	}
}

func testGroupPages(r *rig) {
	r.fail(someFailures...)
	all := r.groups(operate.GroupFilter{Limit: 100})
	for _, limit := range []int{1, 2, 3, 5, 6} {
		r.equal(fmt.Sprintf("pages of %d", limit), r.groups(operate.GroupFilter{Limit: limit}), all)
	}
	for _, c := range []struct {
		f    operate.GroupFilter
		want int
	}{
		{operate.GroupFilter{State: core.StateError}, 2},
		{operate.GroupFilter{State: core.StateUndone}, 4},
		{operate.GroupFilter{Type: "other"}, 1},
		{operate.GroupFilter{Type: "order"}, 5},
		{operate.GroupFilter{Type: "order", State: core.StateError}, 1},
		{operate.GroupFilter{Type: "third"}, 0},
	} {
		for c.f.Limit = 1; c.f.Limit < 4; c.f.Limit++ {
			got := r.groups(c.f)
			r.equal(fmt.Sprintf("groups of %+v", c.f), len(got), c.want)
			for _, g := range got {
				if c.f.Type != "" && g.Type != c.f.Type || c.f.State != "" && g.State != c.f.State {
					r.Errorf("%+v is not of %+v", g, c.f)
				}
			}
		}
	}
	for _, f := range []operate.GroupFilter{{State: core.StateUndone}, {State: core.StateError}, {State: core.StateUndone, Type: "other"}} {
		f.Limit = 100
		ranked := r.groups(f)
		slices.SortStableFunc(ranked, func(a, b operate.Group) int { return cmp.Compare(b.Tasks.N, a.Tasks.N) })
		tasks := int64(0)
		for _, g := range ranked {
			tasks += g.Tasks.N
		}
		f.Limit, f.Largest = 2, true
		largest := get(r.s.Groups(r.ctx, f))(r)
		r.equal("the largest", largest.Groups, ranked[:min(len(ranked), 2)])
		r.equal("all", []operate.Count{largest.All, largest.Tasks}, []operate.Count{{N: int64(len(ranked))}, {N: tasks}})
	}
	for _, f := range []operate.GroupFilter{{}, {Limit: operate.ListMax + 1}, {Limit: 1, State: core.StatePending}, {Limit: 1, After: "nonsense"}} {
		if _, err := r.s.Groups(r.ctx, f); err == nil {
			r.Errorf("filter %+v was taken", f)
		}
	}
}

func testLeavesGroup(r *rig) {
	all := r.fail(failures{"order", core.StateError, 1, "order %d has no stock", 1})
	group := r.groups(operate.GroupFilter{Limit: 1})[0]
	again := next(all[0].Task, true, func(t *core.Task, rec *core.Record) {
		t.State, t.EndedAt, t.EndNumber, t.FailedStep, t.Why, rec.Kind = core.StateProcessing, 0, 0, 0, "", core.KindResubmitted
	})
	r.write(again)
	r.equal("tasks of the group", get(r.s.Group(r.ctx, group.ID))(r).Tasks, operate.Count{N: partitions - 1})
	v := get(r.s.List(r.ctx, core.Filter{Limit: 10, State: core.StateProcessing}))(r).Tasks
	if len(v) != 1 || v[0].Fingerprint != "" || v[0].FailedStep != "" {
		r.Errorf("started again: %+v", v)
	}
	r.write(failure(again.Task, core.StateUndone, 9, 2, start.Add(time.Hour), "gone"))
	groups := r.groups(operate.GroupFilter{Limit: 5})
	r.equal("groups", len(groups), 2)
	r.equal("the new one", groups[1].GroupKey, operate.GroupKey{Type: "order", State: core.StateUndone, Step: "ship", Fingerprint: fingerprintOf(failures{state: core.StateUndone, step: 2, text: "gone"})})
	for i := range all[1:] {
		w := next(all[i+1].Task, true, func(t *core.Task, rec *core.Record) {
			if t.State, rec.Kind = core.StateProcessed, core.KindResolved; i == 0 { // an undo that was asked for is no failure
				t.State, t.Asked, rec.Kind = core.StateUndone, true, core.KindUndoAsked
			}
		})
		r.write(w)
	}
	r.equal("groups in the end", len(r.groups(operate.GroupFilter{Limit: 5})), 1)
	if _, err := r.s.Group(r.ctx, group.ID); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a group without tasks: %v", err)
	}
}

func testFilters(r *rig) {
	r.fail(someFailures...)
	for _, c := range []struct {
		f    core.Filter
		want int // in each partition
	}{
		{core.Filter{}, 13},
		{core.Filter{State: core.StateError}, 5},
		{core.Filter{Step: "charge"}, 9},
		{core.Filter{Step: "charge", State: core.StateUndone}, 6},
		{core.Filter{Step: "charge", Type: "other"}, 0},
		{core.Filter{Step: "ship"}, 1},
		{core.Filter{Step: "none"}, 0},
		{core.Filter{Step: "charge", State: core.StatePending}, 0},
		{core.Filter{Type: "other"}, 2},
		{core.Filter{Fingerprint: fingerprintOf(someFailures[4])}, 1},
		{core.Filter{Fingerprint: fingerprintOf(someFailures[4]), State: core.StateError}, 0},
		{core.Filter{Fingerprint: "0123456789abcdef"}, 0},
		{core.Filter{CreatedFrom: start.Add(4 * time.Second)}, 10},
		{core.Filter{CreatedTo: start.Add(4 * time.Second)}, 3},
		{core.Filter{CreatedFrom: start.Add(4 * time.Second), CreatedTo: start.Add(6 * time.Second)}, 2},
		{core.Filter{DeadlineTo: start.Add(time.Minute + 6*time.Second)}, 5},
		{core.Filter{DeadlineTo: start.Add(time.Minute + 6*time.Second), State: core.StateUndone}, 2},
		{core.Filter{PlanVersion: 1}, 13}, {core.Filter{PlanVersion: 2}, 0}, {core.Filter{MovableTo: 2}, 5}, {core.Filter{MovableTo: 1}, 0},
	} {
		for _, limit := range []int{1, 7, 1000} {
			c.f.Limit = limit
			r.equal(fmt.Sprintf("%+v", c.f), r.listed(c.f), c.want*partitions)
		}
	}
	// The same failure in two states: one list, each by its state as well.
	both := schema.FailureFingerprint(&core.Task{State: core.StateError, FailedStep: 2, Why: "order 1 has no stock"})
	for state, want := range map[core.State]int{"": 5, core.StateError: 3, core.StateUndone: 2} {
		r.equal("failures in "+string(state), r.listed(core.Filter{Limit: 2, Fingerprint: both, State: state}), want*partitions)
	}
	v := get(r.s.List(r.ctx, core.Filter{Limit: 1, Fingerprint: both, State: core.StateError}))(r).Tasks[0]
	if v.Fingerprint != both || v.FailedStep != "charge" || v.Seq != 2 {
		r.Errorf("a task in error: %+v", v)
	}
}

// testOneMicrosecond: 10,000 tasks that were created at the same time are each seen once, in pages of any
// size, with and without a filter.
func testOneMicrosecond(r *rig) {
	const n = 10_000
	for p := range partitions {
		var writes []core.TaskWrite
		for i := range int64(n / partitions) {
			w := birth(p, i+1, fmt.Sprintf("t%d-%d", p, i+1))
			w.Task.CreatedAt = start
			if i%3 == 0 {
				w.Task.Type = "other"
			}
			writes = append(writes, w)
		}
		r.write(writes...)
	}
	for _, limit := range []int{97, 1000} {
		r.equal(fmt.Sprintf("in pages of %d", limit), r.listed(core.Filter{Limit: limit}), n)
		r.equal(fmt.Sprintf("of a type, in pages of %d", limit), r.listed(core.Filter{Limit: limit, Type: "other"}), partitions*((n/partitions+2)/3))
		r.equal(fmt.Sprintf("processing, in pages of %d", limit), r.listed(core.Filter{Limit: limit, State: core.StateProcessing}), n)
	}
}

// testListBesideBirths: what is born while a list is read is not in its later pages, and moves nothing.
func testListBesideBirths(r *rig) {
	for p := range partitions {
		r.write(births(p, 10)...)
	}
	seen := map[string]bool{}
	f := core.Filter{Limit: 7}
	for page := int64(0); ; page++ {
		got := get(r.s.List(r.ctx, f))(r)
		for _, v := range got.Tasks {
			if seen[v.ID] || strings.HasPrefix(v.ID, "late") {
				r.Fatalf("%s in page %d", v.ID, page)
			}
			seen[v.ID] = true
		}
		if got.Next == "" {
			break
		}
		f.After = got.Next
		for p := range partitions {
			late := birth(p, 11+page, fmt.Sprintf("late%d-%d", p, page))
			late.Task.CreatedAt = start // older than all of them, by another clock
			r.write(late)
		}
	}
	r.equal("seen", len(seen), 10*partitions)
}

// testPartialList: a search that looked at too many tasks gives what it has, and goes on.
func testPartialList(r *rig) {
	if r.db == nil {
		return
	}
	const n = 50_000
	r.many(n)
	wanted := []int64{17, 4000, 20_000, 49_990}
	for _, number := range wanted {
		get(r.db.ExecContext(r.ctx, fmt.Sprintf(`UPDATE tasks SET type = 'rare' WHERE partition = 1 AND number = %d`, number)))(r)
	}
	f := core.Filter{Limit: 3, Type: "rare"}
	var seen []int64
	pages, partial := 0, 0
	for ; ; pages++ {
		page := get(r.s.List(r.ctx, f))(r)
		for _, v := range page.Tasks {
			seen = append(seen, v.Number)
		}
		if page.Partial != (page.Next != "" && len(page.Tasks) < f.Limit) {
			r.Fatalf("%d tasks, next %q, partial %v", len(page.Tasks), page.Next, page.Partial)
		}
		if page.Partial {
			partial++
		}
		if page.Next == "" {
			break
		}
		if pages > 20 {
			r.Fatal("it does not end")
		}
		f.After = page.Next
	}
	slices.Reverse(seen)
	r.equal("found", seen, wanted)
	if partial < 2 {
		r.Errorf("%d of %d pages were cut off: it looked at more than it may", partial, pages+1)
	}
}

// many fills partition 1 with tasks that have ended, one second apart.
func (r *rig) many(n int) {
	r.Helper()
	at := `'2030-01-01 00:00:00+00'::TIMESTAMPTZ + n.i * INTERVAL '1 second'`
	rows := fmt.Sprintf(`(SELECT generate_series(1, %d) AS i) AS n`, n)
	if r.s.Dialect() == "sqlite" {
		at = fmt.Sprintf(`%d + n.i * 1000000`, start)
		rows = fmt.Sprintf(`(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) AS n`, n)
	}
	get(r.db.ExecContext(r.ctx, fmt.Sprintf(`INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, failure_count, origin, created_at, updated_at, ended_at, end_number, commit_id)
		SELECT 1, n.i, 't' || n.i, 'order', 1, 'processed', 2, 0, 0, 0, %[1]s, %[1]s, %[1]s, n.i, 1 FROM %[2]s`, at, rows)))(r)
	get(r.db.ExecContext(r.ctx, fmt.Sprintf(`UPDATE partitions SET next_number = %[1]d, next_end = %[1]d WHERE partition = 1`, n+1)))(r)
}

// testCreatedRange: a range of time is found wherever it is, without a look at all that is newer.
func testCreatedRange(r *rig) {
	if r.db == nil {
		return
	}
	const n = 60_000
	r.many(n)
	f := core.Filter{Limit: 50, CreatedFrom: start.Add(1000 * time.Second), CreatedTo: start.Add(1020 * time.Second)}
	page := get(r.s.List(r.ctx, f))(r)
	if len(page.Tasks) != 20 || page.Tasks[0].Number != 1019 || page.Partial || page.Next != "" {
		r.Errorf("%d tasks of 20, next %q, partial %v", len(page.Tasks), page.Next, page.Partial)
	}
	f = core.Filter{Limit: 50, CreatedFrom: start.Add((n - 3) * time.Second)}
	page = get(r.s.List(r.ctx, f))(r)
	if len(page.Tasks) != 4 || page.Partial || page.Next != "" {
		r.Errorf("%d tasks of 4, next %q, partial %v", len(page.Tasks), page.Next, page.Partial)
	}
}

// testCountsOfStates: a few tasks in error are counted exactly beside many undone ones.
func testCountsOfStates(r *rig) {
	r.fail(failures{"order", core.StateUndone, 1, "declined", 9}, failures{"order", core.StateError, 1, "declined", 1})
	for _, c := range get(r.s.CountsUpTo(r.ctx, 2*partitions))(r) {
		switch c.State {
		case core.StateError:
			r.equal("in error", c, core.Count{Type: "order", State: core.StateError, Tasks: partitions})
		case core.StateUndone:
			r.equal("undone", c, core.Count{Type: "order", State: core.StateUndone, Tasks: 2 * partitions, AtLeast: true})
		}
	}
}

func testJournalPage(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	for range 24 {
		w = next(w.Task, false, func(_ *core.Task, rec *core.Record) { rec.Kind = core.KindAsked })
		r.write(w)
	}
	whole := get(r.s.Journal(r.ctx, 1, 1))(r)
	slices.Reverse(whole)
	for _, limit := range []int{1, 7, 25, 1000} {
		var all []core.Record
		for before := int64(0); ; {
			page := get(r.s.JournalPage(r.ctx, 1, 1, before, limit))(r)
			if len(page) == 0 {
				break
			}
			if len(page) > limit {
				r.Fatalf("%d rows, limit %d", len(page), limit)
			}
			all = append(all, page...)
			before = page[len(page)-1].Seq
		}
		r.equal(fmt.Sprintf("journal in pages of %d", limit), all, whole)
	}
	for _, limit := range []int{0, operate.ListMax + 1} {
		if _, err := r.s.JournalPage(r.ctx, 1, 1, 0, limit); err == nil {
			r.Errorf("limit %d was taken", limit)
		}
	}
}

// testLongJournal: a task that is read has the input that it runs with, however far behind its newest rows the row with
// that input is.
func testLongJournal(r *rig) {
	w := birth(1, 1, "a")
	r.write(w)
	r.equal("input", string(get(r.s.Get(r.ctx, 1, "a"))(r).Input), `{"n":1}`)
	asked := func(n int) {
		var rows []core.Record
		for range n {
			w = next(w.Task, false, func(_ *core.Task, rec *core.Record) { rec.Kind = core.KindAsked })
			rows = append(rows, w.Records...)
		}
		w.Records = rows
		r.write(w)
	}
	newest := func() []core.Record { return get(r.s.JournalPage(r.ctx, 1, 1, 0, operate.ListMax))(r) }
	asked(operate.ListMax + 200)
	if rows := newest(); len(rows) != operate.ListMax || rows[len(rows)-1].Seq < 100 {
		r.Fatalf("a page of %d rows goes back to row %d", len(rows), rows[len(rows)-1].Seq)
	}
	r.equal("input behind many rows", string(get(r.s.Get(r.ctx, 1, "a"))(r).Input), `{"n":1}`)
	w = next(w.Task, false, func(_ *core.Task, rec *core.Record) {
		rec.Kind, rec.Step, rec.StepStatus, rec.Input, rec.Deadline = core.KindResubmitted, -1, core.StepWaiting, []byte(`{"n":2}`), start.Add(time.Hour)
	})
	r.write(w)
	asked(operate.ListMax + 200)
	for _, row := range newest() {
		if row.Input != nil {
			r.Fatalf("row %d, which has an input, is in the newest page", row.Seq)
		}
	}
	r.equal("input of an edit behind many rows", string(get(r.s.Get(r.ctx, 1, "a"))(r).Input), `{"n":2}`)
}

func testAtRisk(r *rig) {
	var want []string
	for p := range partitions {
		var all []core.TaskWrite
		for n := int64(1); n <= 8; n++ {
			w := birth(p, n, fmt.Sprintf("t%d-%d", p, n))
			w.Task.Deadline = start.Add(time.Duration(100-n)*time.Second + time.Duration(p)*time.Millisecond)
			w.Task.Bound = start.Add(time.Duration(n) * time.Second)
			switch n % 4 {
			case 1:
				w.Task.State, w.Task.WaitsFor, w.Task.LockedBy, w.Task.Bound = core.StatePending, "payment", "", w.Task.Deadline
			case 2:
				w.Task.State = core.StateUndoing
			case 3:
				w.Task.State, w.Task.Bound, w.Task.LockedBy, w.Task.EndedAt, w.Task.EndNumber = core.StateProcessed, 0, "", start, n
			}
			all = append(all, w)
		}
		r.write(all...)
	}
	for n := 8; n >= 1; n-- {
		for p := range partitions {
			if n%4 < 2 {
				want = append(want, fmt.Sprintf("t%d-%d", p, n))
			}
		}
	}
	ids := func(tasks []core.View, more bool, err error) ([]string, bool) {
		r.must(err)
		var all []string
		for _, v := range tasks {
			all = append(all, v.ID)
		}
		return all, more
	}
	got, more := ids(r.s.AtRisk(r.ctx, start.Add(time.Hour), 100))
	r.equal("all", got, want)
	r.equal("more than all", more, false)
	got, more = ids(r.s.AtRisk(r.ctx, start.Add(time.Hour), 5))
	r.equal("some", got, want[:5])
	r.equal("more than some", more, true)
	got, more = ids(r.s.AtRisk(r.ctx, start.Add(95*time.Second+2*time.Millisecond), 100))
	r.equal("before a time", got, want[:4+2])
	r.equal("more before it", more, false)
	got, _ = ids(r.s.AtRisk(r.ctx, start, 100))
	r.equal("none", len(got), 0)
}

func testSample(r *rig) {
	r.equal("of nothing", func() operate.Sample { s := get(r.s.Sample(r.ctx, 10))(r); s.At = time.Time{}; return s }(), operate.Sample{})
	e := ends{}
	for p := range 2 {
		all := births(p, 50)
		for i := 1; i < len(all); i += 2 { // it was to begin later: how long it took counts from then
			all[i].Task.StartAt = all[i].Task.CreatedAt.Add(time.Hour)
		}
		r.write(all...)
		r.own[p].NextNumber, r.own[p].NextEnd = 51, 51
		var over []core.TaskWrite
		for i := range all {
			over = append(over, next(all[i].Task, true, func(t *core.Task, _ *core.Record) {
				t.State, t.LockedBy, t.EndNumber = core.StateProcessed, "", e.next(p)
				t.EndedAt = max(t.CreatedAt, t.StartAt).Add(time.Duration(i+1) * 10 * time.Millisecond)
			}))
		}
		r.write(over...)
	}
	s := get(r.s.Sample(r.ctx, 1000))(r)
	if s.At.IsZero() || s.Created != 100 || s.Ended != 100 || s.P50MS != 250 || s.P99MS != 500 {
		r.Errorf("of all: %+v", s)
	}
	if s = get(r.s.Sample(r.ctx, 5*partitions))(r); s.P50MS != 480 || s.P99MS != 500 {
		r.Errorf("of the newest: %+v", s)
	}
}

// testEnded: whatever the pages, what ended since a time comes once, also of a task that was created long before, and in the
// order of no clock but that of ends.
func testEnded(r *rig) {
	e, since, want := ends{}, start.Add(time.Hour), 0
	for p := range partitions {
		all := births(p, 10)
		r.write(all...)
		var over []core.TaskWrite
		for i := range all {
			over = append(over, next(all[i].Task, true, func(t *core.Task, _ *core.Record) {
				t.State, t.LockedBy, t.EndNumber = []core.State{core.StateProcessed, core.StateUndone}[i%2], "", e.next(p)
				t.EndedAt = start.Add(time.Duration(i) * 20 * time.Minute)
				if i == 5 { // by a slow clock
					t.EndedAt = since.Add(-30 * time.Second)
				}
				if t.EndedAt >= since {
					want++
				}
			}))
		}
		r.write(over...)
	}
	for _, limit := range []int{1, 3, 1000} {
		seen, after := map[string]bool{}, ""
		for {
			page := get(r.s.Ended(r.ctx, since, limit, after))(r)
			for i := range page.Tasks {
				v := &page.Tasks[i]
				if seen[v.ID] || v.EndedAt < since || v.CreatedAt == 0 || v.Type != "order" || !v.State.Ended() || len(page.Tasks) > limit {
					r.Errorf("in pages of %d: %+v, seen %v", limit, v, seen[v.ID])
				}
				seen[v.ID] = true
			}
			if after = page.Next; after == "" {
				break
			}
		}
		r.equal(fmt.Sprintf("ended since, in pages of %d", limit), len(seen), want)
	}
	if _, err := r.s.Ended(r.ctx, since, 1, "nonsense"); !errors.Is(err, core.ErrCursor) {
		r.Errorf("a cursor that is none: %v", err)
	}
}

// testMark: what is read live may have changed exactly when the mark has.
func testMark(r *rig) {
	s, ok := r.s.(interface {
		Mark(ctx context.Context) (string, error)
	})
	if !ok {
		r.Fatalf("%T tells no mark", r.s)
	}
	last := ""
	changed := func(what string, want bool) {
		r.Helper()
		now := get(s.Mark(r.ctx))(r)
		if (now != last) != want {
			r.Errorf("%s: the mark has changed: %v, want %v", what, now != last, want)
		}
		last = now
	}
	changed("at first", true)
	op := r.frozen()
	changed("births, endings and a preview", true)
	get(r.s.AddNote(r.ctx, operate.Note{Target: "task/a/b", At: start.Time(), By: "olga", Text: "words"}))(r)
	changed("nothing that is read live", false)
	started := op
	started.State, started.Started, started.Epoch = operate.OperationRunning, start.Time(), op.Epoch+1
	r.must(r.s.Update(r.ctx, started, op.Epoch))
	changed("an operation starts", true)
	paused := started
	paused.State, paused.Epoch = operate.OperationPaused, started.Epoch+1
	r.must(r.s.Update(r.ctx, paused, started.Epoch))
	changed("it is paused", true)
	stopped := paused
	stopped.State, stopped.Epoch = operate.OperationStopped, paused.Epoch+1
	r.must(r.s.Update(r.ctx, stopped, paused.Epoch))
	changed("it is stopped", true)
	r.write(birth(2, 900, "t2-900"))
	changed("a commit", true)
	r.takeOver(1)
	changed("a takeover", true)
	changed("again", false)
	r.must(r.s.PutPause(r.ctx, operate.Pause{ID: "a", Agent: "ship", At: start.Time(), By: "olga", Reason: "strike"}))
	changed("a pause", true)
	r.must(r.s.DeletePause(r.ctx, "a"))
	changed("it is lifted", true)
	pools, ok := r.s.(interface{ Pools() []schema.PoolStat })
	if !ok {
		r.Fatalf("%T tells nothing of its pools", r.s)
	}
	asked := func() (n int64) {
		for _, p := range pools.Pools() {
			if p.Name == "asking" {
				n = p.Queries
			}
		}
		return n
	}
	before := asked()
	changed("once more", false)
	if n := asked() - before; n != 1 {
		r.Errorf("the mark costs %d queries, want 1", n)
	}
}

func testWaitingFor(r *rig) {
	waiting := func() map[string]operate.Count {
		counts := map[string]operate.Count{}
		for agent, all := range get(r.s.ParkedAt(r.ctx))(r) {
			for i := range all {
				counts[agent] = counts[agent].Plus(all[i].Tasks)
			}
		}
		return counts
	}
	r.equal("none", waiting(), map[string]operate.Count{})
	for p := range 2 {
		all := births(p, 5)
		for i := range all[:3+p] {
			all[i].Task.State, all[i].Task.LockedBy, all[i].Task.WaitsFor = core.StatePending, "", []string{"a", "b", "a", "a"}[i]
		}
		r.write(all...)
	}
	r.equal("waiting", waiting(), map[string]operate.Count{"a": {N: 5}, "b": {N: 2}})
	if r.db == nil {
		return
	}
	get(r.db.ExecContext(r.ctx, `DELETE FROM tasks WHERE partition = 1`))(r)
	r.many(operate.CountExactMax + 1)
	park := `UPDATE tasks SET state = 'pending', waits_for = 'c', ended_at = NULL, end_number = NULL WHERE partition = 1 AND number <= `
	get(r.db.ExecContext(r.ctx, park+fmt.Sprint(operate.CountExactMax)))(r)
	r.equal("waiting for a busy one", waiting()["c"], operate.Count{N: operate.CountExactMax})
	get(r.db.ExecContext(r.ctx, park+fmt.Sprint(operate.CountExactMax+1)))(r)
	r.equal("waiting for a busier one", waiting()["c"], operate.Count{N: operate.CountExactMax, AtLeast: true})
}

// preview is an operation that is not started.
func preview(id string) operate.Operation {
	return operate.Operation{
		ID: id, Action: operate.ActionResubmit, Selection: "a group", Request: operate.Request{Action: operate.ActionResubmit, Reason: "fixed"},
		State: operate.OperationPreview, Rate: 10, BrakePct: 20, By: "olga", Reason: "fixed", Created: start.Add(time.Hour).Time(), Expires: start.Add(2 * time.Hour).Time(),
	}
}

// members reads all members in pages.
func (r *rig) members(id string, outcome operate.Outcome, limit int) []operate.Member {
	r.Helper()
	var all []operate.Member
	for after := int64(0); ; {
		page := get(r.s.Members(r.ctx, id, outcome, after, limit))(r)
		if len(page) == 0 {
			return all
		}
		if len(page) > limit {
			r.Fatalf("%d members, limit %d", len(page), limit)
		}
		all = append(all, page...)
		after = page[len(page)-1].Ordinal
	}
}

func testFreezeGroup(r *rig) {
	all := r.fail(someFailures...)
	i := slices.IndexFunc(all, func(w core.TaskWrite) bool { return w.Task.Number == 6 })
	group := operate.Group{}
	for _, g := range r.groups(operate.GroupFilter{Limit: 10}) {
		if g.Fingerprint == schema.FailureFingerprint(all[i].Task) && g.State == core.StateUndone {
			group = g
		}
	}
	op := preview("op")
	op.Group = group.ID
	op.Rehearsal = &operate.Rehearsal{Repairable: 3, Reasons: []operate.ReasonCount{{Reason: "no time", Tasks: 1}}}
	r.equal("members", get(r.s.Freeze(r.ctx, op, operate.Selection{Group: group.ID}))(r), int64(4*partitions))
	want := op
	want.Tasks, want.Tally.Waiting = 4*partitions, 4*partitions
	r.equal("operation", get(r.s.Operation(r.ctx, "op"))(r), want)
	var members []operate.Member
	for n := range int64(4) { // by their deadlines, whatever partition they are in
		for p := range partitions {
			members = append(members, operate.Member{
				Ordinal: int64(len(members) + 1), Partition: p, Number: n + 6, ID: fmt.Sprintf("t%d-%d", p, n+6), Type: "order", Seq: 2, Step: "charge", Outcome: operate.OutcomeWaiting,
			})
		}
	}
	for _, limit := range []int{1, 5, 1000} {
		r.equal("members", r.members("op", "", limit), members)
		r.equal("members that wait", r.members("op", operate.OutcomeWaiting, limit), members)
		r.equal("members that are done", len(r.members("op", operate.OutcomeDone, limit)), 0)
	}
	if _, err := r.s.Freeze(r.ctx, op, operate.Selection{Group: group.ID}); err == nil {
		r.Error("an id was taken twice")
	}
	r.equal("joined, of none", get(r.s.Joined(r.ctx, want))(r), operate.Count{})
	// One fails again, one more fails for the first time: one has joined.
	again := next(all[i].Task, true, func(t *core.Task, rec *core.Record) { t.State, rec.Kind = core.StateProcessing, core.KindResubmitted })
	later := birth(0, 99, "late")
	r.write(again, later)
	r.write(failure(again.Task, core.StateUndone, 90, 1, op2(op, time.Second), "card declined, try 9"), failure(later.Task, core.StateUndone, 91, 1, op2(op, time.Second), "card declined, try 1"))
	r.equal("joined", get(r.s.Joined(r.ctx, want))(r), operate.Count{N: 1})
	r.equal("members afterwards", r.members("op", "", 1000), members)
}

// op2 is a time after an operation was made.
func op2(op operate.Operation, later time.Duration) core.Instant {
	return core.InstantOf(op.Created.Add(later))
}

func testFreezeFilter(r *rig) {
	r.fail(someFailures...)
	for i, c := range []struct {
		f    core.Filter
		want int64
	}{
		{core.Filter{State: core.StateError}, 5},
		{core.Filter{}, 13},
		{core.Filter{Type: "other"}, 2},
		{core.Filter{State: core.StateUndone, Step: "charge"}, 6},
		{core.Filter{Fingerprint: fingerprintOf(someFailures[4])}, 1},
		{core.Filter{State: core.StateProcessed}, 0},
		{core.Filter{CreatedTo: start.Add(4 * time.Second)}, 3},
		{core.Filter{PlanVersion: 1}, 13}, {core.Filter{PlanVersion: 2}, 0},
		{core.Filter{Type: "order", MovableTo: 2}, 3}, {core.Filter{MovableTo: 1}, 0}, {core.Filter{MovableTo: 2, State: core.StateUndone}, 0},
	} {
		id := fmt.Sprint("op", i)
		r.equal(fmt.Sprintf("%+v", c.f), get(r.s.Freeze(r.ctx, preview(id), operate.Selection{Filter: &c.f}))(r), c.want*partitions)
		r.equal("operation", get(r.s.Operation(r.ctx, id))(r).Tasks, c.want*partitions)
		r.equal("members", len(r.members(id, "", 1000)), int(c.want*partitions))
	}
	// Of a task that has not ended, the newest journal row is newer than its row.
	w := birth(1, 50, "running")
	r.write(w)
	r.write(next(w.Task, false, func(_ *core.Task, rec *core.Record) { rec.Kind = core.KindAsked }))
	r.equal("running", get(r.s.Freeze(r.ctx, preview("running"), operate.Selection{Filter: &core.Filter{State: core.StateProcessing}}))(r), int64(1))
	r.equal("its newest row", r.members("running", "", 1)[0].Seq, int64(2))
	if r.db == nil {
		return
	}
	// More than a page of either kind.
	get(r.db.ExecContext(r.ctx, `DELETE FROM tasks`))(r)
	const n = 45_000
	r.many(n)
	r.equal("many, by numbers", get(r.s.Freeze(r.ctx, preview("many"), operate.Selection{Filter: &core.Filter{State: core.StateProcessed}}))(r), int64(n))
	get(r.db.ExecContext(r.ctx, `UPDATE tasks SET state = 'error' WHERE partition = 1 AND number < 12346`))(r)
	r.equal("many, by an index", get(r.s.Freeze(r.ctx, preview("indexed"), operate.Selection{Filter: &core.Filter{State: core.StateError}}))(r), int64(12_345))
	last := get(r.s.Members(r.ctx, "indexed", "", 12_344, 10))(r)
	if len(last) != 1 || last[0].Ordinal != 12_345 || last[0].Number != 12_345 {
		r.Errorf("the last member: %+v", last)
	}
}

func testFreezeIDs(r *rig) {
	r.fail(someFailures...)
	refs := []operate.TaskRef{{Type: "order", ID: "t0-1"}, {Type: "order", ID: "t3-2"}, {Type: "other", ID: "t1-12"}, {Type: "other", ID: "t0-2"}, {Type: "order", ID: "none"}}
	r.equal("members", get(r.s.Freeze(r.ctx, preview("op"), operate.Selection{IDs: refs}))(r), int64(3))
	var ids []string
	for _, m := range r.members("op", "", 10) {
		ids = append(ids, m.Type+" "+m.ID)
	}
	slices.Sort(ids)
	r.equal("which", ids, []string{"order t0-1", "order t3-2", "other t1-12"})
}

func testFreezeRefused(r *rig) {
	r.fail(someFailures[0])
	group := r.groups(operate.GroupFilter{Limit: 1})[0].ID
	for _, sel := range []operate.Selection{
		{}, {Group: group, Filter: &core.Filter{}}, {IDs: make([]operate.TaskRef, operate.ListMax+1)}, {Group: group, IDs: []operate.TaskRef{{Type: "order", ID: "t0-1"}}},
	} {
		var refused *operate.Refusal
		if _, err := r.s.Freeze(r.ctx, preview("op"), sel); !errors.As(err, &refused) || refused.Field != "selection" {
			r.Errorf("%+v: %v", sel, err)
		}
	}
	if _, err := r.s.Freeze(r.ctx, preview("op"), operate.Selection{Group: "e0123456789abcdef01234567"}); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a group that is not there: %v", err)
	}
	if _, err := r.s.Operation(r.ctx, "op"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("an operation that was refused: %v", err)
	}
	if r.db != nil { // one that fails on its way leaves nothing
		get(r.db.ExecContext(r.ctx, `INSERT INTO operation_members (operation, ordinal, partition, number, id, type, seq, step, wave, outcome) VALUES ('op', -5, 9, 9, 'x', 'x', 1, '', 0, 'waiting')`))(r)
		if _, err := r.s.Freeze(r.ctx, preview("op"), operate.Selection{Group: group}); err == nil {
			r.Error("a member was there, and was frozen again")
		}
		r.equal("members that are left", len(r.members("op", "", 100)), 0)
		r.equal("frozen afterwards", get(r.s.Freeze(r.ctx, preview("op"), operate.Selection{Group: group}))(r), int64(3*partitions))
		return
	}
	ops, _, err := r.s.Operations(r.ctx, nil, 10, "")
	if err != nil || len(ops) != 0 {
		r.Errorf("%d operations, %v", len(ops), err)
	}
}

// frozen is an operation over ten tasks.
func (r *rig) frozen() operate.Operation {
	r.Helper()
	r.fail(failures{"order", core.StateError, 1, "order %d has no stock", 5})
	get(r.s.Freeze(r.ctx, preview("op"), operate.Selection{Filter: &core.Filter{State: core.StateError}}))(r)
	return get(r.s.Operation(r.ctx, "op"))(r)
}

// testMembers: the tally is that of the members at any moment, and adds up to the frozen total.
func testMembers(r *rig) {
	op := r.frozen()
	members := r.members("op", "", 100)
	set := func(wave int, outcome operate.Outcome, text string, which ...int) {
		r.Helper()
		var some []operate.Member
		for _, i := range which {
			members[i].Wave, members[i].Outcome, members[i].Text = wave, outcome, text
			if outcome == operate.OutcomeFailedAgain {
				members[i].Fingerprint = "0123456789abcdef"
			}
			some = append(some, members[i])
		}
		was := op.Epoch
		op.Epoch++
		op.Wave = wave
		op.State = operate.OperationRunning
		r.must(r.s.SetMembers(r.ctx, op, was, some))
		got := get(r.s.Operation(r.ctx, "op"))(r)
		var want operate.Tally
		for _, m := range members {
			switch m.Outcome {
			case operate.OutcomeWaiting:
				want.Waiting++
			case operate.OutcomeAsked:
				want.Asked++
			case operate.OutcomeDone:
				want.Done++
			case operate.OutcomeFailedAgain:
				want.FailedAgain++
			case operate.OutcomeSkipped:
				want.Skipped++
			}
		}
		r.equal("tally", got.Tally, want)
		r.equal("sum", got.Tally.Total(), got.Tasks)
		r.equal("wave and state", fmt.Sprint(got.Wave, got.State, got.Epoch), fmt.Sprint(wave, operate.OperationRunning, op.Epoch))
	}
	set(1, operate.OutcomeAsked, "", 0, 1, 2)
	set(1, operate.OutcomeDone, "", 0)
	set(1, operate.OutcomeDone, "", 0)
	set(2, operate.OutcomeFailedAgain, "no stock \x00\xff", 1)
	members[1].Text = "no stock \uFFFD\uFFFD"
	set(2, operate.OutcomeSkipped, "it changed", 2, 3)
	set(3, operate.OutcomeAsked, "", 4)
	r.equal("members", r.members("op", "", 3), members)
	r.equal("skipped", r.members("op", operate.OutcomeSkipped, 1), members[2:4])
	bad := members[5]
	bad.Outcome = "lost"
	for what, some := range map[string][]operate.Member{
		"outcome": {bad}, "twice": {members[5], members[5]}, "not there": {{Ordinal: 999, Outcome: operate.OutcomeDone}},
	} {
		changed := op
		changed.Epoch++
		if err := r.s.SetMembers(r.ctx, changed, op.Epoch, some); err == nil {
			r.Errorf("%s: was taken", what)
		}
		r.equal("the epoch after "+what, get(r.s.Operation(r.ctx, "op"))(r).Epoch, op.Epoch)
	}
}

func testOperationFenced(r *rig) {
	op := r.frozen()
	changed := op
	changed.State, changed.Why, changed.Wave, changed.Rate, changed.BrakePct, changed.Reason = operate.OperationBraked, "too many failed", 3, 7, 9, "another"
	changed.Started, changed.Ended, changed.Epoch = start.Add(time.Hour).Time(), start.Add(2*time.Hour).Time(), 5
	changed.Rehearsal = &operate.Rehearsal{FailedAgain: 4, Sampled: 4}
	r.must(r.s.Update(r.ctx, changed, op.Epoch))
	r.equal("changed", get(r.s.Operation(r.ctx, "op"))(r), changed)
	stale := changed
	stale.State, stale.Epoch = operate.OperationDone, 6
	one := r.members("op", "", 1)
	one[0].Outcome = operate.OutcomeDone
	for what, err := range map[string]error{
		"update": r.s.Update(r.ctx, stale, op.Epoch), "members": r.s.SetMembers(r.ctx, stale, op.Epoch, one), "not there": r.s.Update(r.ctx, operate.Operation{ID: "none"}, 0),
	} {
		if !errors.Is(err, operate.ErrFenced) {
			r.Errorf("%s by a stale runner: %v", what, err)
		}
	}
	r.equal("still", get(r.s.Operation(r.ctx, "op"))(r), changed)
	r.equal("members still", len(r.members("op", operate.OutcomeWaiting, 100)), int(op.Tasks))
	if _, err := r.s.Operation(r.ctx, "none"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("an operation that is not there: %v", err)
	}
}

func testOperationPages(r *rig) {
	r.fail(someFailures[0])
	var want []string
	for i := range 9 {
		op := preview(fmt.Sprint("op", i))
		op.Created = start.Add(time.Duration(i/3) * time.Second).Time() // ties
		if i%2 == 0 {
			op.State = operate.OperationRunning
		}
		get(r.s.Freeze(r.ctx, op, operate.Selection{Filter: &core.Filter{State: core.StateUndone}}))(r)
		want = append([]string{op.ID}, want...)
	}
	for _, limit := range []int{1, 2, 4, 9} {
		for _, states := range [][]operate.OperationState{nil, {operate.OperationRunning}, {operate.OperationRunning, operate.OperationPreview}, {operate.OperationDone}} {
			var got []string
			for after := ""; ; {
				ops, next, err := r.s.Operations(r.ctx, states, limit, after)
				r.must(err)
				if len(ops) > limit {
					r.Fatalf("%d operations, limit %d", len(ops), limit)
				}
				for i := range ops {
					got = append(got, ops[i].ID)
				}
				if next == "" {
					break
				}
				after = next
			}
			wanted := want
			switch {
			case len(states) == 1 && states[0] == operate.OperationRunning:
				wanted = []string{"op8", "op6", "op4", "op2", "op0"}
			case len(states) == 1:
				wanted = nil
			}
			r.equal(fmt.Sprintf("operations in %v, pages of %d", states, limit), got, wanted)
		}
	}
	if _, _, err := r.s.Operations(r.ctx, nil, 5, "nonsense"); !errors.Is(err, core.ErrCursor) {
		r.Errorf("a cursor that is none: %v", err)
	}
}

func testDropExpired(r *rig) {
	op := r.frozen()
	started := preview("started")
	get(r.s.Freeze(r.ctx, started, operate.Selection{Filter: &core.Filter{State: core.StateError}}))(r)
	started = get(r.s.Operation(r.ctx, "started"))(r)
	started.State = operate.OperationRunning
	r.must(r.s.Update(r.ctx, started, started.Epoch))
	drop := func(at time.Time, want int) {
		r.Helper()
		r.equal("dropped", get(r.s.DropExpired(r.ctx, at))(r), want)
	}
	drop(op.Expires, 0)
	if r.db != nil { // a freeze that was cut off, of which nothing was ever seen
		get(r.db.ExecContext(r.ctx, `UPDATE operations SET state = 'freezing' WHERE id = 'op'`))(r)
		if _, err := r.s.Operation(r.ctx, "op"); !errors.Is(err, core.ErrNotFound) {
			r.Errorf("an operation that is being frozen: %v", err)
		}
	}
	drop(op.Expires.Add(time.Second), 1)
	drop(op.Expires.Add(time.Second), 0)
	started.State, started.Ended, started.Epoch = operate.OperationDone, op.Expires, started.Epoch+1
	r.must(r.s.Update(r.ctx, started, started.Epoch-1))
	drop(op.Expires.Add(operate.OperationFor), 0)
	r.equal("members of the dropped one", len(r.members("op", "", 100)), 0)
	r.equal("members of the started one", len(r.members("started", "", 100)), int(op.Tasks))
	drop(op.Expires.Add(operate.OperationFor+time.Second), 1)
	r.equal("members of one that ended long ago", len(r.members("started", "", 100)), 0)
	if _, err := r.s.Operation(r.ctx, "op"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a dropped operation: %v", err)
	}
}

func testStanding(r *rig) {
	r.must(r.s.PutPlan(r.ctx, plan()))
	all := r.fail(failures{"order", core.StateError, 1, "order %d has no stock", 5})
	r.equal("frozen", get(r.s.Freeze(r.ctx, preview("op"), operate.Selection{Filter: &core.Filter{State: core.StateError}}))(r), int64(5*partitions))
	var members []operate.Member
	for _, m := range r.members("op", "", 100) { // of the first partition, and one more
		if m.Partition == 0 || len(members) == 5 {
			m.Ordinal = int64(len(members) + 1)
			members = append(members, m)
		}
		if len(members) == 6 {
			break
		}
	}
	asked := func(w core.TaskWrite) core.TaskWrite {
		w = next(w.Task, true, func(t *core.Task, rec *core.Record) {
			t.State, t.EndedAt, t.EndNumber, t.FailedStep, t.Why = core.StateProcessing, 0, 0, 0, ""
			rec.Kind, rec.Actor, rec.Step, rec.StepStatus = core.KindResubmitted, "operation/op", 1, core.StepWaiting
		})
		r.write(w)
		return w
	}
	done := func(w core.TaskWrite, step int) core.TaskWrite {
		w = next(w.Task, false, func(_ *core.Task, rec *core.Record) {
			rec.Step, rec.StepStatus, rec.Attempt = step, core.StepDone, 1
		})
		r.write(w)
		return w
	}
	asked(all[1])                                                                                                    // and is under way
	done(asked(all[2]), 1)                                                                                           // has passed, and goes on
	r.write(failure(done(asked(all[3]), 0).Task, core.StateError, 90, 1, start.Add(time.Hour), "order 9 is broken")) // failed again, in another way
	r.write(next(all[4].Task, true, func(t *core.Task, rec *core.Record) {                                           // settled by a person
		t.State, rec.Kind, rec.Actor = core.StateProcessed, core.KindResolved, "olga"
	}))
	members[5].Number = 999
	fp := func(text string) string {
		return schema.FailureFingerprint(&core.Task{State: core.StateError, FailedStep: 2, Why: text})
	}
	by := "operation/op"
	want := []operate.Standing{
		{Ordinal: 1, State: core.StateError, PlanVersion: 1, Seq: 2, Step: "charge", Fingerprint: fp("order 1 has no stock")},
		{Ordinal: 2, State: core.StateProcessing, PlanVersion: 1, Seq: 3, Asked: true, AskedBy: by},
		{Ordinal: 3, State: core.StateProcessing, PlanVersion: 1, Seq: 4, Asked: true, AskedBy: by, Passed: true},
		{Ordinal: 4, State: core.StateError, PlanVersion: 1, Seq: 5, Step: "charge", Fingerprint: fp("order 1 is broken"), Text: "order 9 is broken", Asked: true, AskedBy: by},
		{Ordinal: 5, State: core.StateProcessed, PlanVersion: 1, Seq: 3},
		{Ordinal: 6, Missing: true},
	}
	r.equal("standing", get(r.s.Standing(r.ctx, members))(r), want)
	slices.Reverse(members)
	slices.Reverse(want)
	r.equal("standing, in the order of the members", get(r.s.Standing(r.ctx, members))(r), want)
	r.equal("of none", len(get(r.s.Standing(r.ctx, nil))(r)), 0)
	if _, err := r.s.Standing(r.ctx, make([]operate.Member, 1001)); err == nil {
		r.Error("more than 1,000 members were taken")
	}
	r.equal("of as many as may be", len(get(r.s.Standing(r.ctx, slices.Repeat(members[:1], 1000)))(r)), 1000)
	saved := get(r.s.Saved(r.ctx, 0, []int64{1, 3}))(r)
	if len(saved) != 2 || len(saved[1].Journal) != 4 {
		r.Errorf("saved: %+v", saved)
	}
}

func testTokens(r *rig) {
	t := operate.Token{ID: "abc", Name: "ci", Role: operate.RoleOperator, Hash: []byte{0, 1, 0xff}, Created: start.Time(), By: "olga", Labels: "tenant=acme"}
	r.must(r.s.PutToken(r.ctx, t))
	other := t
	other.ID, other.Created, other.Expires, other.Role = "def", start.Add(time.Second).Time(), start.Add(time.Hour).Time(), operate.RoleViewer
	r.must(r.s.PutToken(r.ctx, other))
	r.equal("token", get(r.s.TokenByID(r.ctx, "abc"))(r), t)
	r.equal("tokens", get(r.s.Tokens(r.ctx))(r), []operate.Token{t, other})
	r.must(r.s.TouchToken(r.ctx, "abc", start.Add(2*time.Second).Time()))
	r.must(r.s.TouchToken(r.ctx, "abc", start.Add(time.Second).Time())) // of another node, which comes late
	t.LastUsed = start.Add(2 * time.Second).Time()
	r.must(r.s.RevokeToken(r.ctx, "abc", start.Add(3*time.Second).Time()))
	r.must(r.s.RevokeToken(r.ctx, "abc", start.Add(4*time.Second).Time()))
	t.Revoked = start.Add(3 * time.Second).Time()
	r.equal("revoked", get(r.s.TokenByID(r.ctx, "abc"))(r), t)
	for what, err := range map[string]error{
		"token": func() error { _, err := r.s.TokenByID(r.ctx, "none"); return err }(), "revoke": r.s.RevokeToken(r.ctx, "none", start.Time()),
	} {
		if !errors.Is(err, core.ErrNotFound) {
			r.Errorf("%s that is not there: %v", what, err)
		}
	}
}

func testSessions(r *rig) {
	s := operate.Session{ID: "QUJD-_", Data: []byte{0, 1, 0xff}, Expires: start.Add(time.Hour).Time()}
	r.must(r.s.PutSession(r.ctx, s, start.Time()))
	r.equal("session", get(r.s.SessionByID(r.ctx, s.ID))(r), s)
	s.Data = []byte("other")
	r.must(r.s.PutSession(r.ctx, s, start.Time()))
	r.equal("session once more", get(r.s.SessionByID(r.ctx, s.ID))(r), s)
	// What is over goes when another begins, and no sooner than that.
	over := operate.Session{ID: "over", Data: []byte("x"), Expires: start.Add(time.Minute).Time()}
	r.must(r.s.PutSession(r.ctx, over, start.Time()))
	later := operate.Session{ID: "later", Data: []byte("y"), Expires: start.Add(time.Hour).Time()}
	r.must(r.s.PutSession(r.ctx, later, start.Add(time.Minute-1).Time()))
	r.equal("not over yet", get(r.s.SessionByID(r.ctx, "over"))(r), over)
	r.equal("ids", slices.Sorted(slices.Values(get(r.s.SessionIDs(r.ctx))(r))), []string{s.ID, "later", "over"})
	r.must(r.s.PutSession(r.ctx, later, over.Expires))
	gone := func(id string) {
		r.Helper()
		if _, err := r.s.SessionByID(r.ctx, id); !errors.Is(err, core.ErrNotFound) {
			r.Errorf("session %s: %v", id, err)
		}
	}
	gone("over")
	r.must(r.s.DeleteSession(r.ctx, s.ID))
	r.must(r.s.DeleteSession(r.ctx, s.ID))
	gone(s.ID)
	r.equal("the other", get(r.s.SessionByID(r.ctx, "later"))(r), later)
	if err := r.s.PutSession(r.ctx, operate.Session{ID: "big", Data: make([]byte, 5000), Expires: later.Expires}, start.Time()); err == nil {
		r.Error("a session of 5000 bytes is taken")
	}
	testSessionsOfOne(r)
	// Too many are refused, also where many begin at once.
	if r.db == nil {
		return
	}
	rows := fmt.Sprintf(`(SELECT generate_series(1, %d) AS i) AS n`, operate.SessionsMax-1)
	if r.s.Dialect() == "sqlite" {
		rows = fmt.Sprintf(`(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) AS n`, operate.SessionsMax-1)
	}
	get(r.db.ExecContext(r.ctx, `INSERT INTO sessions (id, data, expires_at, owner) SELECT 'f' || n.i, s.data, s.expires_at, 'f' || n.i FROM sessions s, `+rows+` WHERE s.id = 'later'`))(r)
	get(r.db.ExecContext(r.ctx, `DELETE FROM sessions WHERE id = 'f1'`))(r)
	if begun, refused := r.begin(2*operate.SessionsEach, func(i int) string { return fmt.Sprint("many-", i) }); begun != 1 || refused != 2*operate.SessionsEach-1 {
		r.Errorf("of one that there is room for %d sessions began and %d were refused", begun, refused)
	}
}

// begin begins sessions at once, each of the owner that is told, and counts those that began and those that were too many.
func (r *rig) begin(n int, owner func(int) string) (begun, refused int64) {
	r.Helper()
	var wg sync.WaitGroup
	var taken, turned atomic.Int64
	for i := range n {
		wg.Go(func() {
			err := r.s.PutSession(r.ctx, operate.Session{ID: fmt.Sprint(owner(i), "/", i), Owner: owner(i), Data: []byte("x"), Expires: start.Add(time.Hour).Time()}, start.Time())
			if bad, is := errors.AsType[*operate.Refusal](err); is && bad.Code == 429 {
				turned.Add(1)
			} else if r.must(err); err == nil {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	return taken.Load(), turned.Load()
}

// testSessionsOfOne: one owner, a token or a person, has few, however many begin at once, and those of a token end with it.
func testSessionsOfOne(r *rig) {
	r.Helper()
	r.must(r.s.PutToken(r.ctx, operate.Token{ID: "abc", Name: "ci", Role: operate.RoleViewer, Hash: []byte{0}, Created: start.Time()}))
	for _, owner := range []string{"abc", operate.PersonOwner("abc")} {
		if begun, refused := r.begin(2*operate.SessionsEach, func(int) string { return owner }); begun != operate.SessionsEach || refused != operate.SessionsEach {
			r.Errorf("of %s %d sessions began and %d were refused", owner, begun, refused)
		}
	}
	left := func(owner string) (ids []string) {
		for i := range 2 * operate.SessionsEach {
			id := fmt.Sprint(owner, "/", i)
			if _, err := r.s.SessionByID(r.ctx, id); err == nil {
				ids = append(ids, id)
			} else if !errors.Is(err, core.ErrNotFound) {
				r.Error(err)
			}
		}
		return ids
	}
	r.must(r.s.RevokeToken(r.ctx, "abc", start.Time()))
	r.equal("sessions of a revoked token", len(left("abc")), 0)
	r.equal("those of another", len(left(operate.PersonOwner("abc"))), operate.SessionsEach)
	if r.db != nil { // as docs/operations/security.md has it
		get(r.db.ExecContext(r.ctx, `DELETE FROM sessions WHERE owner = 'person:abc'`))(r)
	}
	for _, id := range left(operate.PersonOwner("abc")) {
		r.must(r.s.DeleteSession(r.ctx, id))
	}
	r.equal("sessions of a person that are left", len(left(operate.PersonOwner("abc"))), 0)
}

func testNotes(r *rig) {
	var want []operate.Note
	for i := range 5 {
		n := get(r.s.AddNote(r.ctx, operate.Note{Target: "task/order/1", At: start.Add(time.Duration(i) * time.Second).Time(), By: "olga", Text: fmt.Sprint("note ", i)}))(r)
		want = append([]operate.Note{n}, want...)
	}
	get(r.s.AddNote(r.ctx, operate.Note{Target: "task/order/10", At: start.Time(), By: "olga", Text: "of another"}))(r)
	r.equal("notes", get(r.s.Notes(r.ctx, "task/order/1", 100))(r), want)
	r.equal("the newest", get(r.s.Notes(r.ctx, "task/order/1", 2))(r), want[:2])
	if want[0].Number <= want[1].Number || want[0].Text != "note 4" {
		r.Errorf("notes: %+v", want)
	}
	var refused *operate.Refusal
	if _, err := r.s.AddNote(r.ctx, operate.Note{Target: "task/order/1", Text: strings.Repeat("x", core.WordsBytesMax+1)}); !errors.As(err, &refused) {
		r.Errorf("a note that is too long: %v", err)
	}
}

func testSettings(r *rig) {
	big := []byte(strings.Repeat("x", schema.SettingBytesMax))
	r.must(r.s.PutSetting(r.ctx, "view/a", []byte(`{"a":1}`)))
	r.must(r.s.PutSetting(r.ctx, "view/a", []byte(`{"a":2}`)))
	r.must(r.s.PutSetting(r.ctx, "view/b", big))
	r.must(r.s.PutSetting(r.ctx, "channel/a", nil))
	r.equal("setting", string(get(r.s.Setting(r.ctx, "view/a"))(r)), `{"a":2}`)
	r.equal("settings", get(r.s.Settings(r.ctx, "view/"))(r), map[string][]byte{"view/a": []byte(`{"a":2}`), "view/b": big})
	r.equal("all", len(get(r.s.Settings(r.ctx, ""))(r)), 3)
	r.must(r.s.DeleteSetting(r.ctx, "view/a"))
	r.must(r.s.DeleteSetting(r.ctx, "view/a"))
	if _, err := r.s.Setting(r.ctx, "view/a"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a setting that is not there: %v", err)
	}
	var refused *operate.Refusal
	if err := r.s.PutSetting(r.ctx, "view/c", append(big, 'x')); !errors.As(err, &refused) || refused.Field != "document" {
		r.Errorf("a document that is too large: %v", err)
	}
}

func testPauses(r *rig) {
	a := operate.Pause{ID: "a", Type: "order", Step: "charge", Until: start.Add(time.Hour).Time(), At: start.Time(), By: "olga", Reason: "payment is down"}
	b := operate.Pause{ID: "b", Agent: "ship", Label: "tenant=x", At: start.Add(time.Second).Time(), By: "olga", Reason: "strike"}
	r.must(r.s.PutPause(r.ctx, b))
	r.must(r.s.PutPause(r.ctx, a))
	r.equal("pauses", get(r.s.Pauses(r.ctx))(r), []operate.Pause{a, b})
	a.Until = time.Time{}
	r.must(r.s.PutPause(r.ctx, a))
	r.equal("changed", get(r.s.Pauses(r.ctx))(r), []operate.Pause{a, b})
	r.must(r.s.DeletePause(r.ctx, "a"))
	r.must(r.s.DeletePause(r.ctx, "a"))
	r.equal("left", get(r.s.Pauses(r.ctx))(r), []operate.Pause{b})
}

// testForecasts: a node's rows replace its earlier ones and no other's, and those that are not written any more go.
func testForecasts(r *rig) {
	s := r.s
	row := func(node, step string, after time.Duration, data string) operate.ForecastRow {
		return operate.ForecastRow{Node: node, Type: "order", Version: 2, Step: step, At: start.Add(after), Data: []byte(data)}
	}
	r.must(s.SaveForecasts(r.ctx, "n1", []operate.ForecastRow{row("n1", "a", 0, "1"), row("n1", "b", time.Second, "\x00\xff")}))
	r.must(s.SaveForecasts(r.ctx, "n2", []operate.ForecastRow{row("n2", "a", 2*time.Second, "2")}))
	r.must(s.SaveForecasts(r.ctx, "n1", []operate.ForecastRow{row("n1", "a", 3*time.Second, "3")}))
	r.must(s.SaveForecasts(r.ctx, "n1", nil))
	want := []operate.ForecastRow{row("n1", "a", 3*time.Second, "3"), row("n2", "a", 2*time.Second, "2"), row("n1", "b", time.Second, "\x00\xff")}
	r.equal("rows, the newest first", get(s.Forecasts(r.ctx))(r), want)
	r.must(s.ForgetForecasts(r.ctx, start.Add(2*time.Second)))
	r.equal("those that are kept", get(s.Forecasts(r.ctx))(r), want[:2])
	if err := s.SaveForecasts(r.ctx, "n1", []operate.ForecastRow{row("n1", "big", 0, strings.Repeat("x", operate.ForecastBytesMax+1))}); err == nil {
		r.Error("a row over the limit is taken")
	}
}

// testOpenTasks: a sample of the unfinished tasks stands for all of them, with how far their steps are.
func testOpenTasks(r *rig) {
	s := r.s
	r.equal("of nothing", get(s.OpenTasks(r.ctx, 10))(r), operate.OpenSample{})
	for p := range partitions {
		all := births(p, 40)
		for i := range all {
			if t := all[i].Task; i%2 == 0 {
				t.State, t.WaitsFor, t.LockedBy, t.Bound = core.StatePending, "payment", "", t.Deadline
				all[i].Records[0].Next, all[i].Records[0].NextAttempt, all[i].Records[0].Due = -1, 0, 0
			}
		}
		r.write(all...)
		r.own[p].NextNumber, r.own[p].NextEnd = 41, 3
		r.write(next(all[1].Task, false, func(_ *core.Task, rec *core.Record) {
			rec.Step, rec.StepStatus, rec.Attempt, rec.Next, rec.NextAttempt, rec.Due = 0, core.StepDone, 1, 1, 1, start.Add(time.Hour)
		}), ended(all[3].Task, core.StateProcessed, 1), ended(all[5].Task, core.StateUndone, 2))
	}
	for _, most := range []int{1000, 16} {
		got := get(s.OpenTasks(r.ctx, most))(r)
		r.equal("how many there are", got.All, int64(38*partitions))
		weight, parked, second := 0.0, 0.0, 0
		for _, t := range got.Tasks {
			weight += t.Weight
			if t.State == core.StatePending {
				parked += t.Weight
				r.equal("steps of a parked one", len(t.Steps), 0)
			}
			if len(t.Steps) == 2 {
				second++
				r.equal("the first step", t.Steps[0].Status, core.StepDone)
				r.equal("the second step", t.Steps[1], operate.OpenStep{Step: 1, Status: core.StepRunning, Began: t.Steps[1].At, At: t.Steps[1].At, Due: start.Add(time.Hour)})
			}
		}
		r.equal("for how many the sample stands", int64(weight+0.5), got.All)
		r.equal("for how many parked ones", int64(parked+0.5), int64(20*partitions))
		if most == 1000 {
			r.equal("all of them", int64(len(got.Tasks)), got.All)
			r.equal("those at the second step", second, partitions)
		} else if len(got.Tasks) > most+2*partitions {
			r.Errorf("%d tasks were read, want about %d", len(got.Tasks), most)
		}
	}
}
