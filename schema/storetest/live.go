package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// live is a partition with tasks that really run: the core decides, the store
// keeps, and every so often what the store has kept must replay to what is live.
type live struct {
	*rig
	plan    core.Plan
	now     core.Instant
	tasks   []*core.Task
	out     core.Outcome
	nextEnd int64
}

func testReplay(r *rig) {
	tb, round := r.TB, int64(0)
	r.must(r.s.PutPlan(r.ctx, plan()))
	check := func(t *rapid.T) {
		r.TB = t
		// Another batch of ids each time, in the same partition.
		l := &live{rig: r, plan: plan(), now: start, nextEnd: round*1000 + 1}
		l.born(round*1000, rapid.IntRange(1, 4).Draw(t, "tasks"))
		round++
		for range rapid.IntRange(1, 30).Draw(t, "turns") {
			l.turn(t)
		}
		l.compare()
	}
	rapid.Check(tb, check)
	r.TB = tb
}

func (l *live) born(base int64, n int) {
	l.Helper()
	var writes []core.TaskWrite
	for i := range int64(n) {
		t := &core.Task{
			Partition: 1, Number: base + i + 1, ID: fmt.Sprintf("t%d", base+i), Type: l.plan.Name, Input: []byte(`{}`), InputHash: []byte{1}, CreatedAt: l.now,
		}
		core.Birth(&l.plan, t, &core.Event{At: l.now, Actor: node, Node: node}, &l.out)
		l.tasks = append(l.tasks, t)
		writes = append(writes, core.TaskWrite{Task: t, Birth: true, Records: append([]core.Record(nil), l.out.Records...)})
	}
	l.write(writes...)
}

// turn lets one event happen to some of the tasks and commits what it led to.
func (l *live) turn(t *rapid.T) {
	l.now = l.now.Add(time.Duration(rapid.IntRange(0, 8_000).Draw(t, "ms")) * time.Millisecond)
	var writes []core.TaskWrite
	for _, task := range l.tasks {
		ev := l.event(t, task)
		if core.Apply(&l.plan, task, &ev, &l.out) != nil || len(l.out.Records) == 0 && !l.out.Row {
			continue
		}
		if task.State.Ended() && task.EndNumber == 0 {
			task.EndNumber = l.nextEnd
			l.nextEnd++
		}
		writes = append(writes, core.TaskWrite{Task: task, Row: l.out.Row, Records: append([]core.Record(nil), l.out.Records...)})
	}
	if len(writes) > 0 {
		l.write(writes...)
	}
}

func (l *live) event(t *rapid.T, task *core.Task) core.Event {
	ev := core.Event{
		At: l.now, Actor: "operator", Node: node, Rand: rapid.Float64Range(0, 0.999).Draw(t, "jitter"), Reason: rapid.SampledFrom([]string{"", "words"}).Draw(t, "reason"),
		Full: core.StepSetIn([]byte{rapid.ByteRange(0, 7).Draw(t, "full")}),
	}
	kinds := []core.EventKind{
		core.EventReply, core.EventReply, core.EventReply, core.EventReply, core.EventUnserved, core.EventWake, core.EventWake, core.EventClaim, core.EventOverdue,
		core.EventOverdue, core.EventCancel, core.EventUndo, core.EventResubmit, core.EventResolve, core.EventExtend, core.EventPoison, core.EventWentBack,
		core.EventAccept, core.EventEdit,
	}
	ev.Kind = rapid.SampledFrom(kinds).Draw(t, "event")
	if i := task.Out(); i >= 0 {
		ev.Seq = task.Steps[i].Out
	}
	switch ev.Kind {
	case core.EventReply:
		ev.Code = rapid.SampledFrom([]int{0, 0, 0, 0, 422, 500}).Draw(t, "code")
		if ev.Code != 0 {
			ev.Error = "no such order 17"
		} else {
			ev.Result = fmt.Appendf(nil, "%d", ev.Seq)
		}
	case core.EventResolve:
		ev.As = rapid.SampledFrom([]core.State{core.StateProcessed, core.StateUndone}).Draw(t, "as")
	case core.EventExtend, core.EventResubmit:
		ev.Until = l.now.Add(time.Minute)
	case core.EventAccept:
		ev.Result = fmt.Appendf(nil, `"by hand %d"`, task.Seq)
	case core.EventEdit:
		ev.Input = fmt.Appendf(nil, `{"edit":%d}`, task.Seq)
	case core.EventWentBack:
		ev.Until = l.now
	}
	return ev
}

// compare replays what is stored and compares it with what is live.
func (l *live) compare() {
	l.Helper()
	for _, task := range l.tasks {
		saved := l.load(task.Partition, task.Number)
		got, err := core.Replay(&l.plan, saved)
		l.must(err)
		want := *task
		want.Steps = append([]core.StepState(nil), task.Steps...)
		for i := range want.Steps { // not journalled
			got.Steps[i], want.Steps[i] = got.Steps[i].Journalled(), want.Steps[i].Journalled()
		}
		got.Bound, want.Bound = 0, 0 // the row's may lag: it is a bound
		l.equal("task "+task.ID, *got, want)
		l.sameSteps(&want, saved.Journal)
		l.sameOverdue(got)
	}
}

// sameOverdue compares the step that a scan names with that of a replayed task.
func (l *live) sameOverdue(task *core.Task) {
	l.Helper()
	if task.State.Ended() {
		return
	}
	want, first := "", l.now.Add(time.Second)
	for i := range task.Steps {
		if s := &task.Steps[i]; s.Out != 0 && s.Due < first {
			want, first = l.plan.Steps[i].Name, s.Due
		}
	}
	for _, d := range get(l.s.Overdue(l.ctx, 0, l.now.Add(time.Second), core.Due{}, 1000))(l.rig) {
		if d.Number == task.Number && d.Partition == task.Partition {
			l.equal("overdue step of "+task.ID, d.Step, want)
		}
	}
}

// sameSteps compares the view `steps` with what is live, as far as that is stored.
func (l *live) sameSteps(task *core.Task, journal []core.Record) {
	l.Helper()
	if l.db == nil {
		return
	}
	rows := get(l.db.QueryContext(l.ctx, `SELECT ordinal, name, status, attempt, COALESCE(code, 0), error, undo_attempt, COALESCE(undo_code, 0), undo_error
		FROM steps WHERE task = '`+task.ID+`' ORDER BY ordinal`))(l.rig)
	defer rows.Close()
	n, want := 0, task.View(&l.plan, journal, l.now).Steps
	for ; rows.Next(); n++ {
		var ordinal int
		var text, undoText []byte
		var got core.StepView
		l.must(rows.Scan(&ordinal, &got.Name, &got.Status, &got.Attempt, &got.Code, &text, &got.Undo.Attempt, &got.Undo.Code, &undoText))
		got.Error, got.Undo.Error = string(text), string(undoText)
		w := &want[n]
		l.equal(fmt.Sprintf("step %d of task %s (%s) in the view", n, task.ID, task.State), got, core.StepView{Name: w.Name, Status: w.Status, Attempt: w.Attempt, Code: w.Code, Error: w.Error,
			Undo: core.Tries{Attempt: w.Undo.Attempt, Code: w.Undo.Code, Error: w.Undo.Error}})
		l.equal("its ordinal", ordinal, n)
	}
	l.must(rows.Err())
	if n != len(l.plan.Steps) {
		l.Fatalf("task %s: the view shows %d steps of %d", task.ID, n, len(l.plan.Steps))
	}
}
