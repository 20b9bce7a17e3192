package repair

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
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

var resubmit = operate.Request{Action: operate.ActionResubmit}

// An operation asks in waves of 1, 5, 25, 125; a member is done when its step has passed, and the tasks that join the
// group meanwhile are counted and left alone.
//
// covers: OP2, OP3, OP4
func TestRunAsksInWaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 200, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		late := w.failing(core.PolicyError, 37, "card declined")
		w.by(tasks[100], core.EventUndo) // it changes before its turn comes
		w.set(func() {
			w.answer = func(tk *task, step string, _ bool) answer {
				if tk == tasks[50] && step == "pay" {
					return answer{code: core.CodeRefused, text: "no such account 17"}
				}
				return answer{}
			}
		})
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 198, FailedAgain: 1, Skipped: 1}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		sizes := map[int]int{}
		for _, m := range members {
			sizes[m.Wave]++
		}
		if want := fmt.Sprint(map[int]int{1: 1, 2: 5, 3: 25, 4: 125, 5: 44}); fmt.Sprint(sizes) != want {
			t.Errorf("waves %v, want %v", sizes, want)
		}
		if m := members[50]; m.Outcome != operate.OutcomeFailedAgain || m.Text != "no such account 17" || m.Fingerprint == "" {
			t.Errorf("the one that failed again: %+v", m)
		}
		if m := members[100]; m.Outcome != operate.OutcomeSkipped || !strings.Contains(m.Text, "changed since the preview") {
			t.Errorf("the one that changed: %+v", m)
		}
		for i, tk := range tasks {
			if want := map[bool]int{true: 1, false: 0}[i != 100]; tk.asked(op.ID) != want {
				t.Errorf("task %d was asked for %d times", i, tk.asked(op.ID))
			}
		}
		for _, tk := range late {
			if tk.asked(op.ID) != 0 || tk.live.State != core.StateError {
				t.Errorf("task %s joined later and was touched", tk.live.ID)
			}
		}
		shown, err := w.service().Show(t.Context(), op.ID)
		if err != nil || shown.Since.N < 37 {
			t.Errorf("since %+v, %v; want those that joined, 37", shown.Since, err)
		}
		if got.Ended.IsZero() || got.Wave != 5 {
			t.Errorf("ended %v in wave %d", got.Ended, got.Wave)
		}
	})
}

// Asked is not done: while no agent answers, nothing counts as done.
//
// covers: OP2
func TestRunCountsNothingBeforeItPassed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		w.set(func() { w.answer = func(*task, string, bool) answer { return answer{after: 5 * time.Second} } })
		defer w.runner(t.Context(), config())()
		got, _ := w.reaches(op.ID, "the first request", func(op *operate.Operation) bool { return op.Tally.Asked == 1 })
		pass(4 * time.Second)
		if got, _ = w.op(op.ID); got.Tally.Done != 0 || got.Tally.Asked != 1 {
			t.Errorf("after 4 of 5 seconds: %+v", got.Tally)
		}
		w.reaches(op.ID, "its first outcome", func(op *operate.Operation) bool { return op.Tally.Done == 1 })
		if state := tasks[0].live.State; state != core.StateProcessing {
			t.Errorf("the task is %s: its step alone must have counted", state)
		}
		w.until(op.ID, operate.OperationDone)
	})
}

// TestRunIsAsOldAsItsLook: what was found absent when an operation was asked for says nothing of a do that could still act
// then, however late its owner is asked. It is told why.
func TestRunIsAsOldAsItsLook(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() {
			w.answer = func(_ *task, step string, _ bool) answer {
				if step == "pay" {
					return answer{after: -1}
				}
				return answer{}
			}
		})
		p := orders(core.PolicyError)
		p.Steps[1].KeyLasts = time.Minute
		for _, tk := range w.birth(p, 2) {
			if quiet := tk.live.Steps[1].Effect.Open; tk.live.State != core.StateError || quiet <= now() {
				t.Fatalf("%s, its do may act until %d, it is %d", tk.live.State, quiet, now())
			}
		}
		op := w.started(operate.Selection{Filter: &core.Filter{State: core.StateError}}, operate.Request{Action: operate.ActionResubmit, Found: core.ProbeAbsent})
		pass(time.Hour)
		defer w.runner(t.Context(), config())()
		_, members := w.until(op.ID, operate.OperationDone)
		if len(members) != 2 {
			t.Errorf("%d members, want 2", len(members))
		}
		for _, m := range members {
			if m.Outcome != operate.OutcomeSkipped || !strings.Contains(m.Text, "refused: its do may still act until") {
				t.Errorf("%s: %q", m.Outcome, m.Text)
			}
		}
	})
}

// An undo is done when it has ended, and failed when it gave up.
//
// covers: OP2
func TestRunUndoes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		op := w.started(operate.Selection{Filter: &core.Filter{State: core.StateError}}, operate.Request{Action: operate.ActionUndo})
		w.set(func() {
			w.answer = func(tk *task, _ string, undo bool) answer {
				if undo && tk == tasks[3] {
					return answer{code: core.CodeRefused, text: "the parcel has left"}
				}
				return answer{}
			}
		})
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 5, FailedAgain: 1}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		if m := members[3]; !strings.Contains(m.Text, "the parcel has left") {
			t.Errorf("text %q", m.Text)
		}
	})
}

// Of 5,000 planted failures half can be repaired: it stops itself within the first 31. It goes on with a wave of the
// same size.
//
// covers: OP4
func TestBrakeWithinThirtyOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 5000, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		w.set(func() {
			w.answer = func(tk *task, step string, _ bool) answer {
				if step == "pay" && (tk.live.Partition+int(tk.live.Number))%2 == 0 {
					return answer{code: core.CodeRefused, text: fmt.Sprintf("card declined for account %d", tk.live.Number)}
				}
				return answer{}
			}
		})
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationBraked)
		asked := 0
		for _, m := range members {
			if m.Outcome != operate.OutcomeWaiting {
				asked++
			}
		}
		if asked > 31 || got.Tally.Waiting != int64(5000-asked) {
			t.Errorf("%d were asked, want at most 31; tally %+v", asked, got.Tally)
		}
		if !strings.Contains(got.Why, "failed alike") || !strings.Contains(got.Why, "card declined for account") || !strings.Contains(got.Why, "20 %") {
			t.Errorf("why: %q", got.Why)
		}
		pass(time.Minute)
		if again, _ := w.op(op.ID); again.Tally.Waiting != got.Tally.Waiting {
			t.Errorf("it went on by itself: %+v", again.Tally)
		}
		size := 0
		for _, m := range members {
			if m.Wave == got.Wave {
				size++
			}
		}
		if _, err := w.service().Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationRunning}); err != nil {
			t.Fatal(err)
		}
		_, members = w.reaches(op.ID, "the next brake", func(op *operate.Operation) bool {
			return op.State == operate.OperationBraked && op.Wave > got.Wave
		})
		after := 0
		for _, m := range members {
			if m.Wave == got.Wave+1 {
				after++
			}
		}
		if after != size {
			t.Errorf("wave %d of %d tasks was followed by one of %d", got.Wave, size, after)
		}
		brakes := 0
		for _, e := range w.entries {
			if e.Action == "operation.brake" && e.Target == "operation/"+op.ID {
				brakes++
			}
		}
		if brakes != 2 {
			t.Errorf("%d brakes in the audit trail, want 2", brakes)
		}
	})
}

// A wave that brakes before all of it was asked, and is let go on, leaves none of its tasks out: those that wait are of the
// next one.
func TestBrakeInTheMiddleOfAWave(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 100, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		slow := 2
		if _, err := w.service().Change(t.Context(), anna, op.ID, operate.Change{Rate: &slow}); err != nil {
			t.Fatal(err)
		}
		defer w.runner(t.Context(), config())()
		w.reaches(op.ID, "its third wave", func(op *operate.Operation) bool { return op.Wave == 3 })
		w.set(func() {
			w.answer = func(_ *task, step string, _ bool) answer {
				if step == "pay" {
					return answer{code: core.CodeRefused, text: "card declined"}
				}
				return answer{}
			}
		})
		got, members := w.until(op.ID, operate.OperationBraked)
		waits := slices.ContainsFunc(members, func(m operate.Member) bool { return m.Wave == got.Wave && m.Outcome == operate.OutcomeWaiting })
		if !waits {
			t.Fatalf("all of wave %d were asked: %+v", got.Wave, got.Tally)
		}
		w.set(func() { w.answer = func(*task, string, bool) answer { return answer{} } })
		fast := 0
		if _, err := w.service().Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationRunning, Rate: &fast}); err != nil {
			t.Fatal(err)
		}
		if got, _ = w.until(op.ID, operate.OperationDone); got.Tally.Done+got.Tally.FailedAgain != 100 {
			t.Errorf("tally %+v, want an outcome of each of 100", got.Tally)
		}
	})
}

// Failures of different kinds do not add up, and a few are no reason.
//
// covers: OP4
func TestBrakeLooksAtOneKind(t *testing.T) {
	for _, test := range []struct {
		name   string
		failed []string // fingerprints
		size   int
		want   bool
	}{
		{"none", nil, 5, false},
		{"two of five", []string{"a", "a"}, 5, false}, // too few to say
		{"three of five", []string{"a", "a", "a"}, 5, true},
		{"three of fifteen", []string{"a", "a", "a"}, 15, false}, // 20 % is not more than 20 %
		{"three of fourteen", []string{"a", "a", "a"}, 14, true},
		{"six of two kinds", []string{"a", "b", "a", "b", "a", "b"}, 15, false},
		{"all of different kinds", []string{"a", "b", "c", "d", "e"}, 5, false},
	} {
		w := wave{}
		for i := range test.size {
			it := &item{Member: operate.Member{Outcome: operate.OutcomeDone}}
			if i < len(test.failed) {
				it.Member = operate.Member{Outcome: operate.OutcomeFailedAgain, Fingerprint: test.failed[i], Text: "text of " + test.failed[i]}
			}
			w.members = append(w.members, it)
		}
		if why := w.brake(3, 20); (why != "") != test.want {
			t.Errorf("%s: %q", test.name, why)
		}
	}
}

// errKilled is what a process gets that is no more.
var errKilled = errors.New("killed")

// mortal is a world's store, control stream and audit trail for a process that dies at the given point: before or after
// the n-th of its statements and messages.
type mortal struct {
	backend
	controls Controls

	mu   sync.Mutex
	at   int // the point; 0: none
	seen int
	dead bool
	died chan struct{}
}

func dying(w *world, at int) *mortal {
	return &mortal{backend: w.db, controls: w, at: at, died: make(chan struct{})}
}

// point passes one, and reports whether the process lives.
func (m *mortal) point() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false
	}
	if m.seen++; m.seen == m.at {
		m.dead = true
		close(m.died)
	}
	return !m.dead
}

// through does something between two points.
func through[T any](m *mortal, do func() (T, error)) (none T, _ error) {
	if !m.point() {
		return none, errKilled
	}
	got, err := do()
	if !m.point() {
		return none, errKilled
	}
	return got, err
}

func only(m *mortal, do func() error) error {
	_, err := through(m, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (m *mortal) Operations(ctx context.Context, states []operate.OperationState, limit int, after string) (ops []operate.Operation, next string, err error) {
	ops, err = through(m, func() ([]operate.Operation, error) {
		ops, _, err := m.backend.Operations(ctx, states, limit, after)
		return ops, err
	})
	return ops, "", err
}

func (m *mortal) Members(ctx context.Context, operation string, outcome operate.Outcome, after int64, limit int) ([]operate.Member, error) {
	return through(m, func() ([]operate.Member, error) { return m.backend.Members(ctx, operation, outcome, after, limit) })
}

func (m *mortal) Standing(ctx context.Context, members []operate.Member) ([]operate.Standing, error) {
	return through(m, func() ([]operate.Standing, error) { return m.backend.Standing(ctx, members) })
}

func (m *mortal) Cursors(ctx context.Context) ([]core.PartitionState, error) {
	return through(m, func() ([]core.PartitionState, error) { return m.backend.Cursors(ctx) })
}

func (m *mortal) Saved(ctx context.Context, partition int, numbers []int64) ([]core.Saved, error) {
	return through(m, func() ([]core.Saved, error) { return m.backend.Saved(ctx, partition, numbers) })
}

func (m *mortal) Update(ctx context.Context, op operate.Operation, was int64) error {
	return only(m, func() error { return m.backend.Update(ctx, op, was) })
}

func (m *mortal) SetMembers(ctx context.Context, op operate.Operation, was int64, members []operate.Member) error {
	return only(m, func() error { return m.backend.SetMembers(ctx, op, was, members) })
}

func (m *mortal) Ask(ctx context.Context, partition int, c core.Control) (uint64, error) {
	return through(m, func() (uint64, error) { return m.controls.Ask(ctx, partition, c) })
}

func (m *mortal) Append(ctx context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	n, err := through(m, func() (int64, error) {
		n, _, err := m.backend.Append(ctx, e)
		return n, err
	})
	return n, nil, err
}

// killed runs one operation over a few tasks of a type of their own, with a kill at a point, and says what it came to and
// how many points there were.
func killed(ctx context.Context, t failer, w *world, cfg Config, r operate.Request, at int) (result string, points int) {
	t.Helper()
	plan := orders(core.PolicyError)
	plan.Name = fmt.Sprintf("order-%d", at)
	first := len(w.tasks)
	tasks := w.failingOf(plan, 40, "card declined", 0)
	place := func(number int64, partition int) int { return int(number-1)*partitions + partition - first }
	w.by(tasks[3], core.EventUndo)
	w.settle()
	w.set(func() {
		w.answer = func(tk *task, step string, _ bool) answer {
			if step == "pay" && place(tk.live.Number, tk.live.Partition)/4%4 == 1 {
				return answer{code: core.CodeRefused, text: "no such account"}
			}
			return answer{after: 30 * time.Millisecond}
		}
	})
	op := w.started(operate.Selection{Filter: &core.Filter{Type: plan.Name, Step: "pay"}}, r)
	w.by(tasks[20], core.EventUndo)
	m := dying(w, at)
	stop := start(ctx, NewRunner(cfg, m, m, operate.NewDesk(m, cfg.Now, quiet), leads(true), nil, func(error) {}, quiet))
	for { // it brakes in the third wave, and goes on
		got, _ := w.reaches(op.ID, "its end", func(op *operate.Operation) bool {
			select {
			case <-m.died:
				m.died = nil
				stop()
				stop = w.runner(ctx, cfg)
			default:
			}
			return op.State == operate.OperationDone || op.State == operate.OperationBraked && op.Tally.Asked == 0
		})
		if got.State == operate.OperationDone {
			break
		}
		if _, err := w.service().Change(ctx, anna, op.ID, operate.Change{State: operate.OperationRunning}); err != nil {
			t.Fatalf("resume: %v", err)
		}
	}
	stop()
	w.settle()
	got, members := w.op(op.ID)
	result = fmt.Sprintf("%+v", got.Tally)
	slices.SortFunc(members, func(a, b operate.Member) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Partition, b.Partition))
	})
	for _, mb := range members {
		result += fmt.Sprintf("\n%d %s %q", place(mb.Number, mb.Partition), mb.Outcome, mb.Text)
	}
	for i, tk := range tasks {
		if n := tk.asked(op.ID); n > 1 {
			t.Errorf("killed at point %d: task %d was asked for %d times", at, i, n)
		} else if got, want := string(tk.live.Input), inputAfter(w, first+i, n, r.Patch); got != want {
			t.Errorf("killed at point %d: task %d was asked for %d times and has the input %s, want %s", at, i, n, got, want)
		}
	}
	return result, m.seen
}

// Killed before or after any statement or message, an operation comes to the same: no member is lost, and none is asked
// for twice.
//
// covers: OP4, OP2
func TestKillAtEveryPoint(t *testing.T) { killAtEveryPoint(t, resubmit, nil) }

// killAtEveryPoint runs an operation once without a kill, and once with one at each point.
func killAtEveryPoint(t *testing.T, r operate.Request, input func(int) string) {
	t.Helper()
	once := func(at int) (result string, points int) {
		bubble(t, func(t *testing.T, w *world) {
			w.input = input
			result, points = killed(t.Context(), t, w, config(), r, at)
		})
		return result, points
	}
	want, points := once(0)
	if points < 60 || !strings.Contains(want, "done") || !strings.Contains(want, "failed_again") || !strings.Contains(want, "skipped") {
		t.Fatalf("%d points, and this came of it: %s", points, want)
	}
	for at := 1; at <= points; at++ {
		if got, _ := once(at); got != want {
			t.Fatalf("killed at point %d of %d it came to\n%s\nwant\n%s", at, points, got, want)
		}
	}
}

// A second runner takes the operation over; what the first one would still write is refused, and what it still asks for
// changes nothing twice.
//
// covers: OP4
func TestSecondRunnerTakesOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 40, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		stuck := &stalling{world: w, release: make(chan struct{})}
		var lead sync.Mutex
		first := true
		stopFirst := start(t.Context(), NewRunner(config(), w, stuck, w.desk(), leading(func() bool { lead.Lock(); defer lead.Unlock(); return first }), nil, func(error) {}, quiet))
		w.reaches(op.ID, "a request", func(op *operate.Operation) bool { return op.Tally.Asked > 0 })
		pass(time.Second) // the first one hangs with its message
		stop := w.runner(t.Context(), config())
		w.until(op.ID, operate.OperationDone)
		lead.Lock()
		first = false
		lead.Unlock()
		close(stuck.release)
		pass(2 * time.Second)
		stopFirst()
		stop()
		if got, _ := w.op(op.ID); got.Tally != (operate.Tally{Done: 40}) || got.State != operate.OperationDone {
			t.Errorf("%s with %+v", got.State, got.Tally)
		}
		for i, tk := range tasks {
			if n := tk.asked(op.ID); n != 1 {
				t.Errorf("task %d was asked for %d times", i, n)
			}
		}
	})
}

type leading func() bool

func (l leading) Leads() bool { return l() }

// stalling keeps messages back until it is released.
type stalling struct {
	*world
	release chan struct{}
}

func (s *stalling) Ask(ctx context.Context, partition int, c core.Control) (uint64, error) {
	<-s.release
	return s.world.Ask(context.WithoutCancel(ctx), partition, c)
}

// A message that is lost with its stream is sent again.
//
// covers: OP2
func TestLostMessageIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		lost := 0
		w.set(func() { w.drop = func(core.Control) bool { lost++; return lost <= 2 } })
		defer w.runner(t.Context(), config())()
		if got, _ := w.until(op.ID, operate.OperationDone); got.Tally.Done != 6 {
			t.Errorf("tally %+v", got.Tally)
		}
	})
}

// While owners read nothing, messages about the same tasks do not pile up; when they read again, all are done.
func TestUnreadMessagesDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		w.set(func() { w.deaf = true })
		defer w.runner(t.Context(), config())()
		pass(10 * time.Minute)
		w.set(func() {
			if n := len(w.queue); n > 30 {
				t.Errorf("%d messages about 6 tasks", n)
			}
			w.deaf = false
		})
		if got, _ := w.until(op.ID, operate.OperationDone); got.Tally.Done != 6 {
			t.Errorf("tally %+v", got.Tally)
		}
	})
}

// Operations go on, and new ones are found, while the clock is set back.
//
// covers: OP2
func TestClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		var back atomic.Int64
		cfg := config()
		cfg.Now = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		defer w.runner(t.Context(), cfg)()
		pass(time.Second)
		back.Store(int64(time.Hour))
		from := time.Now()
		w.set(func() { w.deaf = true })
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		pass(5 * time.Second) // it looks, and nothing has become of them yet
		w.set(func() { w.deaf = false })
		w.reaches(op.ID, "its second wave", func(op *operate.Operation) bool { return op.Wave == 2 })
		back.Store(int64(2 * time.Hour))
		if got, _ := w.until(op.ID, operate.OperationDone); got.Tally.Done != 6 {
			t.Errorf("tally %+v", got.Tally)
		}
		if took := time.Since(from); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A control stream that is away is asked again, and told about.
func TestControlStreamAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		away := &awayFor{world: w, n: 3}
		var mu sync.Mutex
		told := 0
		report := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil && strings.Contains(err.Error(), "stream away") {
				told++
			}
		}
		defer start(t.Context(), NewRunner(config(), w, away, w.desk(), leads(true), nil, report, quiet))()
		if got, _ := w.until(op.ID, operate.OperationDone); got.Tally.Done != 6 {
			t.Errorf("tally %+v", got.Tally)
		}
		mu.Lock()
		defer mu.Unlock()
		if told == 0 {
			t.Error("nothing was reported")
		}
	})
}

type awayFor struct {
	*world
	n int
}

func (a *awayFor) Ask(ctx context.Context, partition int, c core.Control) (uint64, error) {
	a.mu.Lock()
	a.n--
	gone := a.n >= 0
	a.mu.Unlock()
	if gone {
		return 0, errors.New("stream away")
	}
	return a.world.Ask(ctx, partition, c)
}

// What its owner refuses is skipped with the core's reason.
//
// covers: OP2
func TestRefusedIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		w.set(func() {
			w.answer = func(_ *task, _ string, undo bool) answer {
				if undo {
					return answer{code: core.CodeRefused, text: "too late"}
				}
				return answer{}
			}
		})
		w.by(tasks[2], core.EventUndo) // its undo gives up: it cannot be resubmitted
		pass(time.Second)
		op := w.started(operate.Selection{Filter: &core.Filter{State: core.StateError}}, resubmit)
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 5, Skipped: 1}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		if m := members[2]; m.Text != "refused: its undo has begun: finish the undo before a resubmit" {
			t.Errorf("text %q", m.Text)
		}
	})
}

// A task whose owner does nothing though the core would allow it, as one that cannot read its plan, is asked a few times
// and then skipped; one whose owner does so once is not.
func TestOwnerThatDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		times := map[*task]int{}
		w.set(func() {
			w.ignore = func(tk *task) bool { times[tk]++; return tk == tasks[2] || tk == tasks[4] && times[tk] == 1 }
		})
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		w.mu.Lock()
		defer w.mu.Unlock()
		if want := (operate.Tally{Done: 5, Skipped: 1}); got.Tally != want || members[2].Text != "the scheduler that owns the task was asked 3 times and changed nothing" || times[tasks[2]] != 3 {
			t.Errorf("tally %+v, want %+v; %+v, asked %d times", got.Tally, want, members[2], times[tasks[2]])
		}
	})
}

// A wave whose tasks get no outcome is left after its time, the next is no larger, and there is a bound to how many are
// out.
//
// covers: OP4
func TestWaveWithoutOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 100, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		var mu sync.Mutex
		silent := true
		w.set(func() {
			w.answer = func(tk *task, step string, _ bool) answer {
				mu.Lock()
				defer mu.Unlock()
				if silent && step == "pay" && tk != tasks[0] {
					return answer{after: 8 * time.Second}
				}
				return answer{}
			}
		})
		cfg := config()
		cfg.WaveFor, cfg.Outstanding = 2*time.Second, 12
		defer w.runner(t.Context(), cfg)()
		got, members := w.reaches(op.ID, "its bound", func(op *operate.Operation) bool { return strings.Contains(op.Why, "the next wave is waiting") })
		sizes := map[int]int{}
		for _, m := range members {
			sizes[m.Wave]++
		}
		if sizes[2] != 5 || sizes[3] != 5 || sizes[4] != 5 || got.Tally.Asked != 15 {
			t.Errorf("waves %v, tally %+v", sizes, got.Tally)
		}
		mu.Lock()
		silent = false
		mu.Unlock()
		if got, _ = w.until(op.ID, operate.OperationDone); got.Tally.Done != 100 || got.Why != "" {
			t.Errorf("tally %+v, why %q", got.Tally, got.Why)
		}
	})
}

type load struct {
	mu   sync.Mutex
	over bool
}

func (l *load) Overloaded() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.over }
func (l *load) set(over bool)    { l.mu.Lock(); defer l.mu.Unlock(); l.over = over }

// The rate and the pace of all operations hold, and nothing is asked while the engine is overloaded.
//
// covers: OP4
func TestPace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 6000, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		asked := func() int64 { op, _ := w.op(op.ID); return op.Tasks - op.Tally.Waiting }
		rate := func(n int) {
			if _, err := w.service().Change(t.Context(), anna, op.ID, operate.Change{Rate: &n}); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Second) // it is read again
		}
		l := &load{}
		cfg := config()
		cfg.Pace = 200
		defer start(t.Context(), NewRunner(cfg, w, w, w.desk(), leads(true), l, func(error) {}, quiet))()
		w.reaches(op.ID, "its fifth wave", func(op *operate.Operation) bool { return op.Wave >= 5 })
		before := asked()
		pass(5 * time.Second)
		if n := asked() - before; n < 700 || n > 1100 {
			t.Errorf("%d in 5 seconds at a pace of 200", n)
		}
		rate(20)
		before = asked()
		pass(5 * time.Second)
		if n := asked() - before; n < 80 || n > 110 {
			t.Errorf("%d in 5 seconds at a rate of 20", n)
		}
		rate(400) // an operator may say more than the pace
		before = asked()
		pass(2 * time.Second)
		if n := asked() - before; n < 500 || n > 900 {
			t.Errorf("%d in 2 seconds at a rate of 400", n)
		}
		rate(0)
		l.set(true)
		pass(time.Second)
		before = asked()
		pass(5 * time.Second)
		if n := asked() - before; n != 0 {
			t.Errorf("%d were asked while the engine was overloaded", n)
		}
		l.set(false)
		pass(time.Second)
		if n := asked() - before; n < 1 || n > 110 {
			t.Errorf("%d in the first second after it, want a part of the pace", n)
		}
		before = asked()
		pass(9 * time.Second)
		if n := asked() - before; n < 900 {
			t.Errorf("%d in the next 9 seconds: the pace does not come back", n)
		}
	})
}

// What failed while a process led is no trouble of it when another leads.
func TestTroubleEndsWithTheLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		var lead, fails atomic.Bool
		lead.Store(true)
		away := &awayFor{world: w, n: 1 << 30}
		report := func(err error) { fails.Store(err != nil) }
		defer start(t.Context(), NewRunner(config(), w, away, w.desk(), leading(lead.Load), nil, report, quiet))()
		pass(10 * time.Second)
		if !fails.Load() {
			t.Fatal("nothing is reported while it leads")
		}
		lead.Store(false)
		pass(10 * time.Second)
		if fails.Load() {
			t.Error("what failed is still reported when it leads no more")
		}
	})
}

// A process that does not lead runs nothing.
func TestWithoutTheLeadNothingRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		defer start(t.Context(), NewRunner(config(), w, w, w.desk(), leads(false), nil, func(error) {}, quiet))()
		pass(time.Minute)
		if got, _ := w.op(op.ID); got.Tally.Waiting != 3 || got.Epoch != op.Epoch {
			t.Errorf("%+v in epoch %d", got.Tally, got.Epoch)
		}
		if w.rows["messages"] != 0 {
			t.Error("it asked")
		}
		synctest.Wait()
	})
}
