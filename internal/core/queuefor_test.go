package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDeadlineFromTheTurn: where a plan's time counts from a task's turn, the row of its birth has the deadline, whatever it
// waited; a replay has the same, and so has the owner after a restart. A deadline that is named stays, and a wait that was too
// long ends it unbegun, with that reason.
func TestDeadlineFromTheTurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		span := func(name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(rt, name)) * time.Millisecond
		}
		p := stepsPlan(2)
		p.CompleteBy, p.QueueFor = 20*time.Second+span("time", time.Minute), QueueForMin+span("queue for", time.Minute)
		r := newRig(rt, p)
		r.task = &Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`)}
		wait, start, named := span("wait", 2*time.Minute), span("start", 3*time.Minute), rapid.Bool().Draw(rt, "named")
		if rapid.Bool().Draw(rt, "starts") {
			r.task.StartAt = r.now.Add(start)
		}
		r.now = r.now.Add(wait)
		want := max(r.now, r.task.StartAt).Add(p.CompleteBy)
		if named {
			want = r.now.Add(time.Hour)
			r.task.Deadline = want
		}
		missed := r.plan.MissesTurn(max(r.task.CreatedAt, r.task.StartAt), r.now)
		if since := r.now.Sub(max(birthTime, r.task.StartAt)); missed != (since > p.QueueFor) {
			rt.Fatalf("it waited %v of %v: misses its turn: %v", since, p.QueueFor, missed)
		}
		late := missed && !named
		Birth(r.plan, r.task, &Event{At: r.now, Actor: node, NoTime: late}, &r.out)
		r.commit(&Task{})
		if r.task.Deadline != want || r.journal[0].Deadline != want {
			rt.Fatalf("its deadline is %v after its turn, in the journal %v, want %v", r.task.Deadline.Sub(r.now), r.journal[0].Deadline.Sub(r.now), want.Sub(r.now))
		}
		if first := &r.journal[0]; late != (first.Reason == missedTurn) || late != (r.task.State == StateUndone) || late != first.MissesDeadline() {
			rt.Fatalf("it waited %v of %v, and is %s: %q", wait, p.QueueFor, r.task.State, first.Reason)
		}
		read, err := Replay(r.plan, &Saved{Row: r.row, Journal: r.journal})
		if err != nil || read.Deadline != want {
			rt.Fatalf("a replay has another deadline: %v, %v", read, err)
		}
	})
}

// TestWentBackMissesItsTurn: what may have run before the database went back is not said to have begun nothing.
func TestWentBackMissesItsTurn(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.QueueFor = time.Minute, time.Minute
	r := newRig(t, p)
	r.task = &Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`)}
	r.now = r.now.Add(2 * p.QueueFor)
	Birth(r.plan, r.task, &Event{Kind: EventWentBack, At: r.now, Until: r.now, Actor: node, NoTime: true}, &r.out)
	if first := &r.out.Records[0]; first.Kind != KindWentBack || first.Reason == missedTurn {
		t.Errorf("%+v", first)
	}
}

// TestUnreadFromTheTurn: so it is where the plan cannot be read yet.
func TestUnreadFromTheTurn(t *testing.T) {
	u := UnreadablePlan{Name: "order", Version: 3, CompleteBy: 30 * time.Second, QueueFor: time.Minute}
	task := Task{ID: "t1", Type: "order", Number: 1, CreatedAt: birthTime, Input: []byte(`{}`)}
	var out Outcome
	turn := birthTime.Add(50 * time.Second)
	BirthUnread(&u, &task, &Event{At: turn, Actor: node}, &out)
	if want := turn.Add(u.CompleteBy); task.Deadline != want {
		t.Errorf("its deadline is %v after its turn, want %v", task.Deadline.Sub(turn), u.CompleteBy)
	}
}
