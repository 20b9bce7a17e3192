package scheduler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// newer is a plan that a newer binary has stored.
func newer(name string, version int64) core.UnreadablePlans {
	return core.UnreadablePlans{{Name: name, Version: version, CompleteBy: 30 * time.Second, Err: errors.New(`steps[0]: unknown field "loop"`)}}
}

// hideReads is a store some of whose reads fail.
type hideReads struct {
	*sim.MemStore
	partition int
	fails     error
	read      string          // the one that fails; empty: LoadIDs
	broken    map[string]bool // ids of tasks whose rows do not parse
}

// failing is the error of a read, if it is the one that fails.
func (s *hideReads) failing(p int, read string) error {
	if p == s.partition && cmp.Or(s.read, "LoadIDs") == read {
		return s.fails
	}
	return nil
}

func (s *hideReads) spoil(saved []core.Saved, err error) ([]core.Saved, error) {
	for i := range saved {
		if s.broken[saved[i].Row.ID] {
			saved[i].Journal, saved[i].Err = nil, errors.New("journal row 1: a column is cut")
		}
	}
	return saved, err
}

func (s *hideReads) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	return s.spoil(s.MemStore.LoadActive(ctx, as, after, limit))
}

func (s *hideReads) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	if err := s.failing(as.Partition, "LoadNumbers"); err != nil {
		return nil, err
	}
	return s.spoil(s.MemStore.LoadNumbers(ctx, as, numbers))
}

func (s *hideReads) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	if err := s.failing(as.Partition, "LoadIDs"); err != nil {
		return nil, err
	}
	return s.spoil(s.MemStore.LoadIDs(ctx, as, ids))
}

func (s *hideReads) Untold(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Ending, error) {
	if err := s.failing(as.Partition, "Untold"); err != nil {
		return nil, err
	}
	return s.MemStore.Untold(ctx, as, after, limit)
}

func (s *hideReads) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	if err := s.failing(as.Partition, "Children"); err != nil {
		return nil, err
	}
	return s.MemStore.Children(ctx, as, of, after, limit)
}

func (s *hideReads) Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	if err := s.failing(as.Partition, "Youngest"); err != nil {
		return nil, err
	}
	return s.MemStore.Youngest(ctx, as, of, below, limit)
}

func (s *hideReads) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	if err := s.failing(as.Partition, "ChildCounts"); err != nil {
		return core.ChildCounts{}, err
	}
	return s.MemStore.ChildCounts(ctx, as, of)
}

func fresh(id string) core.Submission {
	return core.Submission{Type: "new", ID: id, Input: []byte(`{}`)}
}

// TestUnreadablePlanAtBirth: a submission whose plan this node cannot read is a task that waits for one which can, until its
// deadline; all others go on. It begins as soon as an owner can read the plan.
//
// covers: L3
func TestUnreadablePlanAtBirth(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.adopt(1)
	r.store.Unreadable = newer("new", 3)
	r.mail.PlansChanged = true
	soon := fresh("n2")
	soon.CompleteBy = r.now.Add(5 * time.Second)
	r.tasks(0, fresh("n1"), soon, order("t1"))
	r.tasks(1, order("t2"))
	if lost := r.cycle(); len(lost) > 0 {
		t.Fatalf("lost %v", lost)
	}
	r.state("t1", core.StateProcessing)
	if other := r.store.Task(1, "t2"); other == nil || other.State != core.StateProcessing {
		t.Errorf("the other partition's task: %+v", other)
	}
	n1 := r.state("n1", core.StatePending)
	if got, want := n1.Sentence(nil, nil, r.now), "The task is waiting for a node that can read version 3 of plan new, which a newer version of Duly stored. Upgrade the schedulers; if none can read it by 1970-01-01T00:17:10Z, the task will be undone."; got != want || n1.Deadline != began.Add(30*time.Second) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := n1.Possible(nil, n1.UpdatedAt); !slices.Equal(got, []string{"cancel", "undo"}) {
		t.Errorf("possible %v", got)
	}
	for range 3 { // it costs nothing more
		r.cycle()
	}
	if n := r.store.PlansRead; n > 3 {
		t.Errorf("the plans were read %d times", n)
	}

	r.now += core.Instant(6 * time.Second / time.Microsecond)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{r.state("n1", core.StatePending).Number, r.state("n2", core.StatePending).Number}})
	r.cycle()
	r.state("n1", core.StatePending)
	if n2 := r.state("n2", core.StateUndone); !strings.Contains(n2.Why, "version 3 of plan new") {
		t.Errorf("why: %s", n2.Why)
	}

	r.start("n2") // an owner that can read it
	r.store.Unreadable = nil
	r.store.AddPlan(orderPlan("new", 3, "a"))
	r.adopt(0)
	r.cycle()
	if n1 := r.state("n1", core.StateProcessing); n1.PlanVersion != 3 || len(n1.Steps) != 1 {
		t.Errorf("begun as %+v", n1)
	}
	for _, c := range r.bus.take() {
		if c.Task == "n1" {
			r.answer(c, 0)
		}
	}
	r.cycle()
	r.state("n1", core.StateProcessed)
}

// TestUnreadablePlanBecomesReadable: what waits for a plan is woken by the announcement; an input that does not fit ends it
// with a cause, and a cancel does.
//
// covers: L3
func TestUnreadablePlanBecomesReadable(t *testing.T) {
	r := newRig(t, scheduler.Config{CheckInput: func(_ *core.Plan, input []byte) error {
		if string(input) != "{}" {
			return errors.New("no object without fields")
		}
		return nil
	}})
	r.store.Unreadable = newer("new", 3)
	r.mail.PlansChanged = true
	bad := fresh("n2")
	bad.Input = []byte(`{"n":1}`)
	r.tasks(0, fresh("n1"), bad, fresh("n3"))
	r.cycle()
	r.control(core.Control{Kind: core.EventCancel, ID: "n3", Type: "new", Actor: "olga", Reason: "by mistake"})
	r.cycle()
	r.state("n3", core.StateUndone)
	plan := orderPlan("new", 3, "a")
	plan.InputSchema = "{}"
	r.store.Unreadable = nil
	r.store.AddPlan(plan)
	r.mail.PlansChanged = true
	r.cycle()
	r.state("n1", core.StateProcessing)
	if n2 := r.state("n2", core.StateUndone); !strings.Contains(n2.Why, "no object without fields") {
		t.Errorf("why: %s", n2.Why)
	}
}

// TestUnreadablePlanInFlight: tasks in flight, and parked ones, whose plan a successor cannot read wait; the partition goes on,
// and so do they when it can be read.
//
// covers: L3
func TestUnreadablePlanInFlight(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	r.store.AddPlan(orderPlan("new", 3, "a"))
	r.mail.PlansChanged = true
	r.tasks(0, fresh("n1"), fresh("n2"), order("t1"))
	r.cycle()
	r.state("n2", core.StatePending)
	out := r.bus.take()
	r.start("n2")
	r.store.RemovePlan("new")
	r.store.Unreadable = newer("new", 3)
	r.adopt(0)
	r.tasks(0, order("t2"))
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 2}})
	r.cycle()
	r.logged("a stored task is left alone")
	r.start("n3")
	r.store.Unreadable = nil
	r.store.AddPlan(orderPlan("new", 3, "a"))
	r.adopt(0)
	for cmds := append(out, r.bus.take()...); len(cmds) > 0; cmds = r.bus.take() {
		for _, c := range cmds {
			r.answer(c, 0)
		}
		r.cycle()
	}
	for _, id := range []string{"n1", "n2", "t1", "t2"} {
		r.state(id, core.StateProcessed)
	}
}

// TestUnreadablePlanOfAChild: a child whose plan cannot be read waits as a submission does, and its parent for it.
//
// covers: L3
func TestUnreadablePlanOfAChild(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "new"}, scheduler.Config{})
	r.store.Unreadable = newer("new", 3)
	r.store.Unreadable[0].CompleteBy = time.Hour // its parent's step has less
	r.tasks(0, core.Submission{Type: "family", ID: "f", Input: []byte(`{}`)}, order("t1"))
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.cycle()
	child := r.state("f~kids", core.StatePending)
	if due := r.store.Task(0, "f").Steps[1].Due; child.Parent == 0 || child.WaitsFor == "" || child.Deadline != due {
		t.Fatalf("child %+v, want one that waits until %d at most", child, due)
	}
	r.state("t1", core.StateProcessing)
	r.start("n2")
	r.store.Unreadable = nil
	r.store.AddPlan(orderPlan("new", 3, "a"))
	r.adopt(0)
	for range 20 {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.cycle()
	}
	r.state("f", core.StateProcessed)
}

// TestRequestAboutAnUnreadTask: a signal for a task whose plan this owner cannot read waits for one that can, and so does its
// cursor; others are applied meanwhile.
//
// covers: L3
func TestRequestAboutAnUnreadTask(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := core.Plan{Name: "new", Version: 3, Steps: []core.Step{{Name: "ask", Kind: core.SignalStep}}}
	r.store.AddPlan(plan)
	r.mail.PlansChanged = true
	r.tasks(0, fresh("n1"), order("t1"))
	r.cycle()
	r.start("n2")
	r.store.RemovePlan("new")
	r.store.Unreadable = newer("new", 3)
	r.adopt(0)
	r.tasks(0, fresh("n2"))
	r.cycle()
	first := r.control(core.Control{Kind: core.EventSignal, ID: "n1", Step: "ask", Result: []byte(`"yes"`), Actor: "olga"})
	r.control(core.Control{Kind: core.EventSignal, ID: "n2", Step: "ask", Result: []byte(`"yes"`), Actor: "olga"})
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "olga"})
	mail := slices.Clone(r.mail.Controls)
	r.cycle()
	r.flush()
	r.state("t1", core.StateUndoing)
	if at := r.store.Partition(0).ControlCursor; at != first-1 {
		t.Errorf("the cursor is at %d, want %d", at, first-1)
	}
	r.start("n3")
	r.store.Unreadable = nil
	r.store.AddPlan(plan)
	r.adopt(0)
	r.cycle()
	r.mail.Controls = mail
	r.cycle()
	r.state("n1", core.StateProcessed)
	r.state("n2", core.StateProcessed)
}

// TestRequestAboutAnUnreadTaskHasAnEnd: where no node comes that can read the plan, a request does not hold its cursor for ever.
//
// covers: L3
func TestRequestAboutAnUnreadTaskHasAnEnd(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.store.Unreadable = newer("new", 3)
	r.mail.PlansChanged = true
	r.tasks(0, fresh("n1"))
	r.cycle()
	pos := r.control(core.Control{Kind: core.EventSignal, ID: "n1", Step: "ask", Result: []byte(`"yes"`), Actor: "olga"})
	r.cycle()
	r.flush()
	if at := r.store.Partition(0).ControlCursor; at >= pos {
		t.Fatalf("the cursor is at %d, and the request %d has not been applied", at, pos)
	}
	for range 3 {
		r.now = max(r.now, r.shard.NextWake())
		r.flush()
	}
	if at := r.store.Partition(0).ControlCursor; at != pos {
		t.Errorf("the cursor is at %d, want %d", at, pos)
	}
}

// TestReadErrorStopsItsPartition: a read that fails for one partition drops that one, with what the round had of it; the
// others commit in the same round.
//
// covers: L3
func TestReadErrorStopsItsPartition(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	store := &hideReads{MemStore: r.store, partition: 1}
	r.reads = store
	r.start("n1")
	for p := range 3 {
		r.adopt(p)
	}
	for p := range 3 {
		r.tasks(p, order("t"+string(rune('0'+p))))
	}
	r.cycle()
	cmds := r.bus.take()
	store.fails = errors.New("page 17 is damaged")
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Partition: 1, Pos: 101, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "t1", Actor: "olga"}},
		scheduler.ControlMail{Partition: 0, Pos: 100, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "t0", Actor: "olga"}}, // behind it in the batch
		scheduler.ControlMail{Partition: 1, Pos: 102, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "absent", Actor: "olga"}})
	r.answer(cmds[0], 0)
	r.answer(cmds[2], 0)
	for p := range 3 {
		r.tasks(p, order("u"+string(rune('0'+p))))
	}
	lost, err := r.try(false)
	if !slices.Equal(lost, []int{1}) || err == nil || !strings.Contains(err.Error(), "page 17 is damaged") {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if a, b := r.store.Task(0, "t0"), r.store.Task(2, "t2"); a.State != core.StateUndoing || a.Seq != 3 || b.Steps[0].Status != core.StepDone {
		t.Errorf("the others: %+v, %+v", a, b)
	}
	if r.store.Task(0, "u0") == nil || r.store.Task(2, "u2") == nil || r.store.Task(1, "u1") != nil || r.store.Task(1, "t1").State != core.StateProcessing {
		t.Error("stored is not what belongs to the partitions that are held")
	}
	store.fails = nil
	r.adopt(1)
	if _, err := r.try(false); err != nil {
		t.Fatal(err)
	}
	// Where the store says itself that it is not about one partition, nothing is known of any.
	store.fails = core.StoppingStore(errors.New("the database does not answer"))
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Partition: 1, Pos: 103, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "absent", Actor: "olga"}})
	if lost, err := r.try(false); len(lost) != 3 || err == nil {
		t.Errorf("lost %v, %v, want all", lost, err)
	}
}

// TestReadsOfChildrenStopTheirPartition: so does each read of the children of a step, and the family goes on when the
// partition is taken over.
//
// covers: L3
func TestReadsOfChildrenStopTheirPartition(t *testing.T) {
	for _, read := range []string{"ChildCounts", "Children", "Youngest"} {
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 1, AttemptsMax: 2}, scheduler.Config{})
		store := &hideReads{MemStore: r.store, partition: 1, read: read, fails: errors.New("page 17 is damaged")}
		r.reads = store
		r.start("n1")
		r.adopt(0)
		r.adopt(1)
		r.tasks(1, core.Submission{Type: "family", ID: "f", Input: list(2)})
		refused, cancelled := false, false
		for n := 0; ; n++ {
			lost, err := r.try(false)
			if err != nil {
				if !slices.Equal(lost, []int{1}) || store.fails == nil {
					t.Fatalf("%s: lost %v, %v", read, lost, err)
				}
				store.fails = nil
				r.adopt(1)
			}
			for _, c := range r.bus.take() {
				code := 0
				if c.Step == "go" && !refused { // the step is tried again, and with it this child
					refused, code = true, core.CodeRefused
				}
				r.answer(c, code)
			}
			is := r.store.Task(1, "f")
			if is.State == core.StateUndone {
				break
			}
			if is.Steps[1].Status == core.StepDone && !cancelled {
				cancelled = true
				r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{Partition: 1, Pos: 1, At: r.now, Control: core.Control{Kind: core.EventCancel, ID: "f", Actor: "olga"}})
			}
			if r.now = max(r.now, r.shard.NextWake()); n > 200 {
				t.Fatalf("%s: it does not come to an end:\n%s", read, r.store.History(1, "f"))
			}
		}
		if !cancelled || store.fails != nil {
			t.Errorf("%s: undone after a cancel: %v; the read has failed: %v", read, cancelled, store.fails == nil)
		}
	}
}

// TestRefusedRowOfAPartitionThatCannotBeRead: where the task of a refused row cannot be read its partition is dropped; the
// batch's other rows are committed.
//
// covers: L3
func TestRefusedRowOfAPartitionThatCannotBeRead(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	store := &hideReads{MemStore: r.store, partition: 1, read: "LoadNumbers"}
	r.reads = store
	r.start("n1")
	for p := range 2 {
		r.adopt(p)
		r.tasks(p, order(fmt.Sprint("t", p)))
	}
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == "t1" }
	store.fails = errors.New("page 17 is damaged")
	lost, err := r.try(false)
	if !slices.Equal(lost, []int{1}) || err == nil || !strings.Contains(err.Error(), "page 17 is damaged") {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if a, b := r.store.Task(0, "t0"), r.store.Task(1, "t1"); a.Steps[0].Status != core.StepDone || b.Steps[0].Status != core.StepRunning {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestTaskThatDoesNotParse: of a takeover, of what is parked and of a request, a task that does not parse is left alone.
//
// covers: L3
func TestTaskThatDoesNotParse(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 2})
	store := &hideReads{MemStore: r.store, partition: -1, broken: map[string]bool{}}
	r.reads = store
	r.start("n1")
	r.adopt(0)
	r.tasks(0, order("t1"), order("t2"), order("t3"), order("t4"))
	r.cycle()
	r.bus.take()
	store.broken = map[string]bool{"t1": true, "t3": true}
	r.start("n2")
	r.adopt(0)
	r.control(core.Control{Kind: core.EventCancel, ID: "t3", Actor: "olga"})
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1, 3}})
	for range 20 {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.cycle()
	}
	r.logged("a stored task is left alone")
	for _, id := range []string{"t2", "t4"} {
		r.state(id, core.StateProcessed)
	}
	r.state("t1", core.StateProcessing)
	r.state("t3", core.StatePending)
}

// TestRequestsAboutAnUnreadTask: however many requests about a task whose plan cannot be read come at a time, none is lost.
//
// covers: L3
func TestRequestsAboutAnUnreadTask(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := core.Plan{Name: "new", Version: 3, Steps: []core.Step{{Name: "ask", Kind: core.SignalStep}, {Name: "confirm", Kind: core.SignalStep, After: []int{0}}}}
	r.store.AddPlan(plan)
	r.mail.PlansChanged = true
	r.tasks(0, fresh("n1"))
	r.cycle()
	r.start("n2")
	r.store.RemovePlan("new")
	r.store.Unreadable = newer("new", 3)
	r.adopt(0)
	r.tasks(0, fresh("n2"))
	r.cycle()
	for _, id := range []string{"n1", "n2"} {
		for _, step := range []string{"ask", "confirm"} {
			r.control(core.Control{Kind: core.EventSignal, ID: id, Step: step, Result: []byte(`"yes"`), Actor: "olga"})
		}
	}
	r.cycle()
	r.flush()
	r.store.Unreadable = nil
	r.store.AddPlan(plan)
	r.mail.PlansChanged = true
	for range 5 {
		r.now = r.now.Add(time.Second)
		r.cycle()
		r.flush()
	}
	r.state("n1", core.StateProcessed)
	r.state("n2", core.StateProcessed)
}
