package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
)

// world is every port of the console in memory, with tasks that have lived, and actions that do something.
type world struct {
	mu       sync.Mutex
	now      func() time.Time
	plansAll []core.Plan
	tasks    []*life // in order of number
	entries  []operate.AuditEntry
	notes    []operate.Note
	settings map[string][]byte
	ops      []*operate.Operation
	members  map[string][]operate.Member
	tokens   []operate.Token
	held     []operate.PauseView
	agentsIn []operate.Agent
	bounds   []operate.Limit
	looked   int // times that the limits were read
	parts    []operate.Partition
	channels []Channel
	compared operate.BooksView
	timed    []operate.ScheduleView
	haunting []operate.Ghost
	put      []string // channels and secrets that were stored, and channels that were deleted
	samples  []operate.Sample
	trouble  []operate.Trouble
	risky    bool  // tasks run out of time
	millions bool  // counts are those of an engine at 1,000,000 tasks
	broken   error // every read fails
	newer    core.UnreadablePlans
	subs     map[chan live.Snapshot]struct{}
	reads    int
	keys     map[string]operate.Answer
	done     []operate.Request // that were carried out
}

// life is a task with its journal.
type life struct {
	view core.View
	plan *core.Plan
	rows []core.Record
	at   core.Instant
	born []byte // its input when it was submitted
}

func (l *life) row(after time.Duration, kind core.Kind, step int, status core.StepStatus, edit func(*core.Record)) *life {
	l.at = l.at.Add(after)
	r := core.Record{Seq: int64(len(l.rows) + 1), Kind: kind, At: l.at, Actor: "node-1", State: l.view.State, Round: l.view.Round, Step: step, StepStatus: status, Next: -1}
	if step >= 0 {
		r.Attempt = l.view.Steps[step].Attempt
		l.view.Steps[step].Status, l.view.Steps[step].At = r.StepWord(), l.at
		if kind == core.KindDone || kind == core.KindUndone || kind == core.KindFailed || kind == core.KindRefused {
			l.view.Steps[step].By = "i7@" + l.view.Steps[step].Agent
			r.Actor = l.view.Steps[step].By
		}
	}
	if edit != nil {
		edit(&r)
	}
	if r.Next >= 0 {
		s := &l.view.Steps[r.Next]
		s.Attempt++
		r.NextAttempt = s.Attempt
		s.Status = core.StepRunning.String()
		if r.Undo {
			s.Status = core.StepUndoing.String()
		}
		r.Due = l.at.Add(l.plan.Steps[r.Next].CompleteBy)
	}
	l.view.State, l.view.Seq, l.view.UpdatedAt = r.State, r.Seq, l.at
	if r.State.Ended() {
		l.view.EndedAt = l.at
	} else {
		l.view.EndedAt = 0
	}
	l.rows = append(l.rows, r)
	return l
}

func next(step int) func(*core.Record) {
	return func(r *core.Record) { r.Next, r.State = step, core.StateProcessing }
}

func to(state core.State) func(*core.Record) { return func(r *core.Record) { r.State = state } }

// fails is a failed attempt that is tried again.
func (l *life) fails(after time.Duration, step, code int, text string, again time.Duration) *life {
	l.view.Failures++
	l.row(after, core.KindFailed, step, core.StepWaiting, func(r *core.Record) {
		r.Code, r.Error, r.Due, r.State = code, text, l.at.Add(again), core.StateProcessing
	})
	return l.row(again, core.KindStarted, -1, 0, next(step))
}

// ends in error after the last failed attempt of a step.
func (l *life) stops(after time.Duration, step, code int, text string) *life {
	l.view.Failures++
	l.row(after, core.KindFailed, step, core.StepFailed, func(r *core.Record) { r.Code, r.Error, r.State = code, text, core.StateError })
	l.view.FailedStep, l.view.Reason = l.plan.Steps[step].Name, text
	l.view.Steps[step].Code, l.view.Steps[step].Error = code, text
	l.view.Fingerprint = fingerprint(text)
	l.view.Sentence = fmt.Sprintf("It stands in error: step %s failed %d times, the last time with “%s”; nothing happens until someone resubmits, accepts, undoes or resolves it.", l.view.FailedStep, l.view.Steps[step].Attempt, text)
	return l
}

func fingerprint(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < '0' || r > '9' {
			b.WriteRune(r)
		}
	}
	return fmt.Sprintf("%08x", len(b.String())*2654435761%0xffffffff)
}

func chain(name string, version int64, steps ...string) core.Plan {
	p := core.Plan{Name: name, Version: version, CompleteBy: 10 * time.Minute}
	for i, s := range steps {
		step := core.Step{Name: s, Agent: s + ".v1", Undoable: i > 0, CompleteBy: 5 * time.Second}
		if i > 0 {
			step.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, step)
	}
	return p.WithDefaults()
}

// partial is a plan of n steps that are a partial order: several lines that split and meet.
func partial(name string, n int) core.Plan {
	p := core.Plan{Name: name, Version: 1, CompleteBy: time.Hour}
	for i := range n {
		step := core.Step{Name: fmt.Sprintf("step-%02d", i), Agent: "worker", Undoable: true, CompleteBy: 10 * time.Second}
		switch {
		case i == 0:
		case i%7 == 0:
			for a := max(0, i-4); a < i; a++ {
				step.After = append(step.After, a)
			}
		case i%5 == 3:
			step.After = slices.Compact([]int{max(0, i-11), i - 3})
		default:
			step.After = []int{max(0, i-2)}
		}
		p.Steps = append(p.Steps, step)
	}
	return p.WithDefaults()
}

func partitionOf(id string) int { return len(id) % 4 }

// born adds a task.
func (w *world) born(plan *core.Plan, id string, ago time.Duration, input string) *life {
	at := core.InstantOf(w.now().Add(-ago))
	l := &life{plan: plan, at: at, born: []byte(input), view: core.View{ID: id, Type: plan.Name, PlanVersion: plan.Version, Partition: partitionOf(id), Number: int64(len(w.tasks) + 1), State: core.StateProcessing,
		Input: []byte(input), CompleteBy: at.Add(plan.CompleteBy), CreatedAt: at, LockedBy: "node-1"}}
	for _, s := range plan.Steps {
		l.view.Steps = append(l.view.Steps, core.StepView{Name: s.Name, Agent: s.Agent, Status: "waiting"})
	}
	l.row(0, core.KindSubmitted, -1, 0, func(r *core.Record) { r.Next, r.State, r.Deadline = 0, core.StateProcessing, l.view.CompleteBy })
	w.tasks = append(w.tasks, l)
	return l
}

const orderInput = `{"order":9007199254740993,"zip":"01067","amount":1.10,"customer":{"name":"A. Weber","api_token":"tok_live_51Hd8e2","tier":"gold"},"b":1,"a":2,"lines":[{"sku":"K-1","n":2},{"sku":"K-2","n":1}]}`

// newWorld fills a world at a time.
func newWorld(now func() time.Time) *world {
	w := &world{now: now, settings: map[string][]byte{}, members: map[string][]operate.Member{}, subs: map[chan live.Snapshot]struct{}{}, keys: map[string]operate.Answer{}, risky: true}
	order := chain("order", 1, "check", "reserve", "charge", "ship", "mail")
	order2 := order
	order2.Version, order2.Steps = 2, slices.Clone(order.Steps)
	order2.Steps[2].AttemptsMax, order2.Steps[2].CompleteBy = 5, 8*time.Second
	long := chain("onboarding", 1)
	for i := range 64 {
		long.Steps = append(long.Steps, core.Step{Name: fmt.Sprintf("stage-%02d-%s", i+1, []string{"verify", "provision", "notify-the-people-who-wait-for-it", "bill"}[i%4]), Agent: "stage.worker", Undoable: true, CompleteBy: time.Second})
		if i > 0 {
			long.Steps[i].After = []int{i - 1}
		}
	}
	long = long.WithDefaults()
	w.plansAll = []core.Plan{order, order2, partial("settlement", 20), partial("ledger", 60), long}
	o := &w.plansAll[1]
	w.born(o, "order-1001", 3*time.Hour, orderInput).row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).row(35*time.Millisecond, core.KindDone, 1, core.StepDone, next(2)).
		row(80*time.Millisecond, core.KindDone, 2, core.StepDone, next(3)).row(50*time.Millisecond, core.KindDone, 3, core.StepDone, next(4)).row(20*time.Millisecond, core.KindDone, 4, core.StepDone, to(core.StateProcessed))
	w.tasks[0].view.Steps[2].Result = []byte(`{"charge":"ch_81723","cents":110}`)
	// In error, with retries, an overdue attempt, and two rows of a node whose clock was behind.
	l := w.born(o, "order-1002", 42*time.Minute, orderInput).row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).row(35*time.Millisecond, core.KindDone, 1, core.StepDone, next(2)).
		fails(1200*time.Millisecond, 2, 503, "payment gateway: connection reset by peer", 900*time.Millisecond)
	l.view.Failures++
	l.row(8*time.Second, core.KindOverdue, 2, core.StepWaiting, func(r *core.Record) { r.Due, r.State = l.at.Add(20*time.Minute), core.StateProcessing })
	l.row(20*time.Minute, core.KindStarted, -1, 0, next(2))
	l.at -= core.Instant(3200 * time.Millisecond / time.Microsecond)
	l.stops(time.Second, 2, 422, "card 4471 declined: insufficient funds")
	l.view.Labels = []core.Label{{Key: "region", Value: "eu"}, {Key: "shop", Value: "web"}}
	// Rolled back.
	w.born(o, "order-1003", 55*time.Minute, orderInput).row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).row(35*time.Millisecond, core.KindDone, 1, core.StepDone, next(2)).
		row(60*time.Millisecond, core.KindRefused, 2, core.StepFailed, func(r *core.Record) {
			r.Code, r.Error, r.State, r.Next, r.Undo = 422, "card 9900 declined: insufficient funds", core.StateUndoing, 1, true
		}).
		row(40*time.Millisecond, core.KindUndone, 1, core.StepUndone, to(core.StateUndone))
	u := &w.tasks[2].view
	u.FailedStep, u.Reason, u.Fingerprint, u.Failures = "charge", "card 9900 declined: insufficient funds", fingerprint("card 9900 declined: insufficient funds"), 1
	u.Steps[3].Status, u.Steps[4].Status = "skipped", "skipped"
	u.Sentence = "It was undone: step charge was refused with “card 9900 declined: insufficient funds”; nothing of it is left."
	// Rollback incomplete.
	w.born(o, "order-1004", 26*time.Hour, orderInput).row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).row(35*time.Millisecond, core.KindDone, 1, core.StepDone, next(2)).
		row(35*time.Millisecond, core.KindDone, 2, core.StepDone, next(3)).
		row(60*time.Millisecond, core.KindRefused, 3, core.StepFailed, func(r *core.Record) {
			r.Code, r.Error, r.State, r.Next, r.Undo = 422, "no carrier serves zip 01067", core.StateUndoing, 2, true
		}).
		row(40*time.Millisecond, core.KindUndone, 2, core.StepUndone, func(r *core.Record) { r.Next, r.Undo = 1, true }).
		row(24*time.Hour, core.KindUndoGaveUp, 1, core.StepUndoing, func(r *core.Record) {
			r.Error, r.State, r.Reason = "stock service: timeout", core.StateError, "undo of reserve gave up after 24h"
		})
	g := &w.tasks[3].view
	g.FailedStep, g.Reason, g.Fingerprint, g.Failures = "reserve", "undo of reserve gave up after 24h", fingerprint("undo of reserve gave up after h"), 2
	g.Sentence = "It stands in error: the undo of step reserve gave up after 24 h with “stock service: timeout”; what reserve did may still be there."
	// Running, waiting, and of every plan.
	w.born(o, "order-1005", 9*time.Minute+20*time.Second, orderInput).row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1)).
		row(30*time.Millisecond, core.KindUnserved, 1, core.StepWaiting, func(r *core.Record) {
			r.Error, r.Due = "no agent takes reserve.v1", core.InstantOf(now().Add(5*time.Second))
		})
	w.tasks[4].view.Sentence = "Step reserve waits for its agent reserve.v1, which does not answer; unless it does within 40 s, the task is undone."
	w.tasks[4].view.WaitsFor = "reserve.v1"
	s := &w.plansAll[2]
	settle := w.born(s, "settle-2026-11", 30*time.Minute, `{"month":"2026-11"}`)
	for i := range 11 {
		settle.row(time.Second, core.KindDone, i, core.StepDone, next(i+1))
	}
	w.born(&w.plansAll[3], "ledger-7", 20*time.Minute, `{"n":7}`).row(time.Second, core.KindDone, 0, core.StepDone, next(1))
	deep := w.born(&w.plansAll[4], "a-very-long-id-that-uses-all-the-room-there-is-0123456789-abcdef", 5*time.Minute, `{"who":"`+strings.Repeat("x", 3000)+`"}`)
	for i := range 40 {
		deep.row(700*time.Millisecond, core.KindDone, i, core.StepDone, next(i+1))
	}
	for i := range 1240 {
		l := w.born(o, fmt.Sprintf("bulk-%05d", i), time.Duration(i+60)*time.Second, `{"order":`+strconv.Itoa(i)+`}`)
		l.row(20*time.Millisecond, core.KindDone, 0, core.StepDone, next(1))
		l.stops(50*time.Millisecond, 1, 500, fmt.Sprintf("stock: shard %d is read-only", i))
	}
	w.agentsIn = []operate.Agent{
		{Name: "charge.v1", Instances: 3, Breaker: operate.Breaker{State: core.BreakerOpen, Since: now().Add(-time.Minute), Until: now().Add(3 * time.Minute), Openings: 2, Reason: "412 of 500 calls failed"}, Waiting: operate.Count{N: 97},
			FirstDeadline: now().Add(5 * time.Minute), Steps: []operate.WaitingStep{{Type: "order", Step: "charge", Tasks: 90}, {Type: "refund", Step: "charge", Tasks: 7}}, Calls: 1_203_441, Errors: 8_812, LatencyMS: 48.2, Since: now().Add(-50 * time.Hour)},
		{Name: "check.v1", Instances: 2, Breaker: operate.Breaker{State: core.BreakerClosed, Since: now().Add(-time.Hour), Forced: true, By: "ada", Reason: "its errors are known"}, Calls: 1_900_120, LatencyMS: 3.1, Since: now().Add(-50 * time.Hour)},
		{Name: "reserve.v1", Instances: 0, Gone: true, Breaker: operate.Breaker{State: core.BreakerClosed}, Waiting: operate.Count{N: 10_000, AtLeast: true}, Unserved: operate.Count{N: 64}, AwaySince: now().Add(-20 * time.Minute), FirstDeadline: now().Add(2 * time.Minute),
			Steps: []operate.WaitingStep{{Type: "order", Step: "reserve", Tasks: 10_064}}},
		{Name: "ship.v1", Instances: 1, Breaker: operate.Breaker{State: core.BreakerTrial, Since: now().Add(-5 * time.Second), Stage: 2, Reason: "12 of 20 calls failed"}, Paused: true, Waiting: operate.Count{N: 312}, Calls: 88_000, LatencyMS: 220, Since: now().Add(-2 * time.Hour)},
		{Name: "stage.worker", Instances: -1, Breaker: operate.Breaker{State: core.BreakerClosed}},
	}
	w.bounds = []operate.Limit{
		{Agent: "charge.v1", Concurrent: 20, Rate: 1250.5, Key: "input.customer", KeyConcurrent: 2, Granted: 17, GrantedRate: 833.667, Wanted: 412, Holders: 3, Keys: 31, Revision: 4, Since: now().Add(-5 * time.Hour), By: "ada", Reason: "what the bank allows",
			BusiestKeys: []operate.KeyGranted{{Key: "acme", Holders: 2, Wanted: 88, Places: 2}, {Key: "<script>alert(1)</script>", Holders: 1, Wanted: 9, Places: 1}, {Holders: 1, Wanted: 1, Places: 1}}},
		{Agent: "retired.v0", Rate: 0.1, Revision: 1, Since: now().Add(-90 * time.Hour), By: "grace", Reason: "our contract"},
		{Agent: "ship.v1", Key: "labels.shop", KeyRate: 0.5, Wanted: 1, Holders: 1, Keys: 1, Revision: 2, Since: now().Add(-time.Hour), By: "ada", Reason: "no shop takes all", BusiestKeys: []operate.KeyGranted{{Key: "web", Holders: 1, Wanted: 1}}},
	}
	for i := range 8 {
		p := operate.Partition{Partition: i, Owner: "node-" + strconv.Itoa(i%3+1), Epoch: int64(40 + i), Lag: uint64(i * i * 31), InFlight: operate.Count{N: int64(120 * i)}}
		if i == 5 {
			p.Owner, p.InFlight = "", operate.Count{}
		}
		if i == 2 {
			p.Pinned = "node-3"
		}
		p.MayUnpin, p.MayStepDown = p.Pinned != "", p.Owner != ""
		w.parts = append(w.parts, p)
	}
	w.held = []operate.PauseView{{Pause: operate.Pause{ID: "p1", Agent: "ship.v1", At: now().Add(-10 * time.Minute), By: "ada", Reason: "carrier is down until 18:00"}, Waiting: operate.Count{N: 312}, FirstDeadline: now().Add(4 * time.Minute)}}
	w.channels = []Channel{{Name: "ops-hook", Kind: "webhook", To: "hooks.example.test/…", Events: []string{"error", "undo exhausted"}, Last: now().Add(-3 * time.Hour)}, {Name: "on-call", Kind: "mail", To: "on-call@example.test", Error: "connection refused", Last: now().Add(-time.Hour)}}
	w.tokens = []operate.Token{{ID: "t1a9", Name: "ci", Role: operate.RoleOperator, Created: now().Add(-400 * time.Hour), By: "ada", Expires: now().Add(90 * 24 * time.Hour), LastUsed: now().Add(-time.Minute)}, {ID: "t0b2", Name: "old-script", Role: operate.RoleViewer, Created: now().Add(-9000 * time.Hour), By: "grace", Revoked: now().Add(-100 * time.Hour)}}
	w.notes = []operate.Note{{Number: 1, Target: "task/order/order-1002", At: now().Add(-10 * time.Minute), By: "grace", Text: "Asked the bank; they see no hold."}}
	started := now().Add(-20 * time.Minute)
	w.ops = []*operate.Operation{
		{ID: "op-7", Action: operate.ActionResubmit, Selection: "tasks of type order in state error whose step ship failed: carrier answered 502", State: operate.OperationBraked, Why: "31 of 125 tasks of wave 4 failed again with “carrier answered 502”: more than 20 % of a wave.", Tasks: 4312,
			Tally: operate.Tally{Waiting: 4156, Asked: 3, Done: 112, FailedAgain: 39, Skipped: 2}, Since: operate.Count{N: 37}, Wave: 4, Rate: 50, BrakePct: 20, By: "ada", Reason: "carrier says it is back", Created: started, Started: started},
		{ID: "op-6", Action: operate.ActionUndo, Selection: "3 tasks that you selected", State: operate.OperationDone, Tasks: 3, Tally: operate.Tally{Done: 3}, Wave: 2, Rate: 50, BrakePct: 20, By: "grace", Reason: "sold twice", Created: started.Add(-time.Hour), Started: started.Add(-time.Hour), Ended: started.Add(-time.Hour + time.Minute)},
	}
	for i := range 156 {
		m := operate.Member{Ordinal: int64(i + 1), ID: fmt.Sprintf("bulk-%05d", i), Type: "order", Step: "ship", Wave: min(4, 1+i/30), Outcome: operate.OutcomeDone}
		switch {
		case i >= 112 && i < 151:
			m.Outcome, m.Text = operate.OutcomeFailedAgain, "carrier answered 502"
		case i >= 151 && i < 153:
			m.Outcome, m.Text = operate.OutcomeSkipped, "it had changed since the preview: someone resubmitted it"
		case i >= 153:
			m.Outcome = operate.OutcomeAsked
		}
		w.members["op-7"] = append(w.members["op-7"], m)
	}
	for i := range 120 {
		at := now().Add(-time.Duration(120-i) * time.Minute)
		w.entries = append(w.entries, operate.AuditEntry{Number: int64(i + 1), At: at, Actor: []string{"ada", "grace", "ci"}[i%3], Role: operate.RoleOperator, From: "10.0.0." + strconv.Itoa(i%9), Via: []string{"console", "http"}[i%2], Action: "resubmit", Target: fmt.Sprintf("task/order/bulk-%05d", i), Reason: "stock is writable again", Outcome: "done"})
	}
	w.entries[100].Outcome, w.entries[100].Role = "refused: your role is viewer; this needs the role operator", operate.RoleViewer
	w.entries[110].Before, w.entries[110].After, w.entries[110].Action = json.RawMessage(`{"order":1}`), json.RawMessage(`{"order":9007199254740993}`), "edit"
	for i := range 120 {
		t := now().Add(-time.Duration(120-i) * 2 * time.Second)
		created := int64(1_000_000 + i*900 + (i*i)%170)
		w.samples = append(w.samples, operate.Sample{At: t, Created: created, Ended: created - 9000 + int64((i*37)%211), Backlog: operate.Count{N: 9000 - int64((i*37)%211)}, P50MS: 40 + float64(i%9), P99MS: 310 + float64((i*13)%90)})
	}
	w.haunted()
	w.clocked()
	return w
}

func (w *world) read() error {
	w.reads++
	return w.broken
}

func (w *world) find(id string) *life {
	for _, l := range w.tasks {
		if l.view.ID == id {
			return l
		}
	}
	return nil
}

func (w *world) Get(_ context.Context, _ int, id string) (core.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return core.View{}, err
	}
	l := w.find(id)
	if l == nil {
		return core.View{}, core.ErrNotFound
	}
	v := l.view
	v.Steps, v.Possible = slices.Clone(v.Steps), core.PossibleIn(v.State)
	return v, nil
}

func matches(v *core.View, f *core.Filter) bool {
	if f.Label != "" && !slices.ContainsFunc(v.Labels, func(l core.Label) bool { return l.Key+"="+l.Value == f.Label }) {
		return false
	}
	asked := slices.ContainsFunc(v.Steps, func(s core.StepView) bool {
		return s.Kind == core.SignalStep && s.Status == core.StepRunning.String()
	})
	return (!f.OpenSignal || asked && !v.State.Ended()) && (f.Parent == "" || v.Parent == f.Parent) && (f.Type == "" || v.Type == f.Type) && (f.State == "" || v.State == f.State) && (f.Step == "" || v.FailedStep == f.Step) && (f.Fingerprint == "" || v.Fingerprint == f.Fingerprint) &&
		(f.CreatedFrom == 0 || v.CreatedAt >= f.CreatedFrom) && (f.CreatedTo == 0 || v.CreatedAt < f.CreatedTo) && (f.DeadlineTo == 0 || v.CompleteBy < f.DeadlineTo)
}

func (w *world) List(_ context.Context, f core.Filter) (core.Page, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return core.Page{}, err
	}
	before := int64(1 << 60)
	if f.After != "" {
		n, err := strconv.ParseInt(f.After, 10, 64)
		if err != nil {
			return core.Page{}, fmt.Errorf("%w: %s", core.ErrCursor, f.After)
		}
		before = n
	}
	var page core.Page
	for i := len(w.tasks) - 1; i >= 0; i-- {
		v := &w.tasks[i].view
		if v.Number >= before || !matches(v, &f) {
			continue
		}
		if len(page.Tasks) == f.Limit {
			page.Next = strconv.FormatInt(page.Tasks[f.Limit-1].Number, 10)
			break
		}
		bare := *v
		bare.Steps, bare.Sentence = nil, ""
		page.Tasks = append(page.Tasks, bare)
	}
	return page, nil
}

func (w *world) JournalPage(_ context.Context, _ int, number, before int64, limit int) ([]core.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, err
	}
	rows := w.tasks[number-1].rows
	if before > 0 {
		rows = rows[:min(int64(len(rows)), before-1)]
	}
	rows = slices.Clone(rows[max(0, len(rows)-limit):])
	slices.Reverse(rows)
	return rows, nil
}

func (w *world) CountsUpTo(context.Context, int) ([]core.Count, error) {
	return nil, errors.New("not asked by pages")
}

func (w *world) groupsAll() []operate.Group {
	by := map[operate.GroupKey]*operate.Group{}
	for _, l := range w.tasks {
		v := &l.view
		if v.State != core.StateError && v.State != core.StateUndone {
			continue
		}
		key := operate.GroupKey{Type: v.Type, State: v.State, Step: v.FailedStep, Fingerprint: v.Fingerprint}
		g := by[key]
		if g == nil {
			g = &operate.Group{GroupKey: key, ID: fmt.Sprintf("g%x", len(by)+1), First: v.EndedAt.Time()}
			g.ID = "g" + key.Fingerprint + string(key.State[:1])
			by[key] = g
		}
		g.Tasks.N++
		if t := v.EndedAt.Time(); t.After(g.Last) {
			g.Last, g.Example, g.Task = t, v.Reason, v.ID
		}
		if t := v.EndedAt.Time(); t.Before(g.First) {
			g.First = t
		}
	}
	all := make([]operate.Group, 0, len(by))
	for _, g := range by {
		for _, n := range w.notes {
			if n.Target == "group/"+g.ID {
				g.Notes++
			}
		}
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b operate.Group) int {
		return cmp.Or(cmp.Compare(b.Tasks.N, a.Tasks.N), strings.Compare(a.ID, b.ID))
	})
	return all
}

func (w *world) Groups(_ context.Context, f operate.GroupFilter) (operate.Groups, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return operate.Groups{}, err
	}
	out := operate.Groups{At: w.now()}
	skip, _ := strconv.Atoi(f.After)
	for _, g := range w.groupsAll() {
		if f.Type != "" && g.Type != f.Type || f.State != "" && g.State != f.State {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(out.Groups) == f.Limit {
			at, _ := strconv.Atoi(f.After)
			out.Next = strconv.Itoa(at + f.Limit)
			break
		}
		out.Groups = append(out.Groups, g)
	}
	return out, nil
}

func (w *world) Group(_ context.Context, id string) (operate.Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return operate.Group{}, err
	}
	for _, g := range w.groupsAll() {
		if g.ID == id {
			return g, nil
		}
	}
	return operate.Group{}, core.ErrNotFound
}

func (w *world) AtRisk(_ context.Context, before core.Instant, limit int) ([]core.View, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, false, err
	}
	all := w.nearest(before)
	return all[:min(len(all), limit)], len(all) > limit, nil
}

// nearest are the unfinished tasks whose deadline is before a time, by it.
func (w *world) nearest(before core.Instant) (all []core.View) {
	for _, l := range w.tasks {
		if w.risky && !l.view.State.Ended() && l.view.CompleteBy < before {
			all = append(all, l.view)
		}
	}
	slices.SortFunc(all, func(a, b core.View) int { return int(a.CompleteBy - b.CompleteBy) })
	return all
}

// largest are the failure groups in error, as a store ranks them.
func (w *world) largest() operate.Groups {
	out := operate.Groups{At: w.now()}
	for _, g := range w.groupsAll() {
		if g.State == core.StateError {
			out.Groups = append(out.Groups, g)
			out.All.N, out.Tasks.N = out.All.N+1, out.Tasks.N+g.Tasks.N
		}
	}
	return out
}

func (w *world) Signals(_ context.Context, near core.Instant, next int) (s operate.Signals, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return s, err
	}
	return w.openSignals(near, next), nil
}

func (w *world) openSignals(near core.Instant, next int) (s operate.Signals) {
	for _, l := range w.tasks {
		if l.view.State.Ended() {
			continue
		}
		o := operate.OpenSignal{Type: l.view.Type, ID: l.view.ID}
		for i := range l.view.Steps {
			if st := &l.view.Steps[i]; st.Kind == core.SignalStep && st.Status == core.StepRunning.String() {
				o.Steps, o.Since, o.Due = append(o.Steps, st.Name), st.At.Time(), st.Due.Time()
			}
		}
		if len(o.Steps) == 0 {
			continue
		}
		s.Tasks.N++
		s.Steps.N += int64(len(o.Steps))
		if core.InstantOf(o.Due) < near {
			s.Near.N++
		}
		if s.Since == nil || o.Since.Before(*s.Since) {
			s.Since = &o.Since
		}
		s.Next = append(s.Next, o)
	}
	slices.SortFunc(s.Next, func(a, b operate.OpenSignal) int { return a.Due.Compare(b.Due) })
	s.Next = s.Next[:min(len(s.Next), next)]
	return s
}

func (w *world) Sample(context.Context, int) (operate.Sample, error) { return operate.Sample{}, nil }
func (w *world) Plans(context.Context) ([]core.Plan, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, err
	}
	if len(w.newer) > 0 {
		return slices.Clone(w.plansAll), w.newer
	}
	return slices.Clone(w.plansAll), nil
}
func (w *world) Cursors(context.Context) ([]core.PartitionState, error) { return nil, nil }

// The audit trail, notes and settings.

func (w *world) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(e), nil, nil
}

func (w *world) append(e operate.AuditEntry) int64 {
	e.Number = int64(len(w.entries) + 1)
	w.entries = append(w.entries, e)
	return e.Number
}

func (w *world) SetOutcome(_ context.Context, number int64, outcome string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries[number-1].Outcome = outcome
	return nil
}

func (w *world) Audit(_ context.Context, f operate.AuditFilter) (operate.AuditPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return operate.AuditPage{}, err
	}
	before := int64(1 << 60)
	if f.After != "" {
		before, _ = strconv.ParseInt(f.After, 10, 64)
	}
	var page operate.AuditPage
	for i := len(w.entries) - 1; i >= 0; i-- {
		e := &w.entries[i]
		if e.Number >= before || f.Actor != "" && e.Actor != f.Actor || f.Action != "" && e.Action != f.Action || !strings.HasPrefix(e.Target, f.Target) || f.Whole && e.Target != f.Target {
			continue
		}
		if len(page.Entries) == f.Limit {
			page.Next = strconv.FormatInt(page.Entries[f.Limit-1].Number, 10)
			break
		}
		page.Entries = append(page.Entries, *e)
	}
	return page, nil
}

func (w *world) AddNote(_ context.Context, n operate.Note) (operate.Note, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.Number = int64(len(w.notes) + 1)
	w.notes = append(w.notes, n)
	return n, nil
}

func (w *world) Notes(_ context.Context, target string, _ int) ([]operate.Note, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []operate.Note
	for i := len(w.notes) - 1; i >= 0; i-- {
		if w.notes[i].Target == target {
			all = append(all, w.notes[i])
		}
	}
	return all, nil
}

func (w *world) PutSetting(_ context.Context, name string, document []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settings[name] = document
	return nil
}

func (w *world) Setting(_ context.Context, name string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.settings[name]
	if !ok {
		return nil, core.ErrNotFound
	}
	return d, nil
}

func (w *world) Settings(_ context.Context, prefix string) (map[string][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]byte{}
	for name, d := range w.settings {
		if strings.HasPrefix(name, prefix) {
			all[name] = d
		}
	}
	return all, nil
}

func (w *world) DeleteSetting(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.settings, name)
	return nil
}

// Actions.

func refuse(code int, field, format string, args ...any) error {
	return &operate.Refusal{Code: code, Field: field, Detail: fmt.Sprintf(format, args...)}
}

func (w *world) Do(_ context.Context, by operate.Actor, task operate.TaskRef, r operate.Request) (operate.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.keys[r.Key]; ok && r.Key != "" {
		a.Again = true
		return a, nil
	}
	l := w.find(task.ID)
	if l == nil {
		return operate.Answer{}, refuse(404, "", "no such task")
	}
	e := operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, From: by.From, Via: by.Via, Action: string(r.Action), Target: "task/" + task.Type + "/" + task.ID, Reason: r.Reason, Outcome: "asked"}
	if !slices.Contains(core.PossibleIn(l.view.State), string(r.Action)) {
		e.Outcome = "refused"
		w.append(e)
		return operate.Answer{}, &operate.Refusal{Code: 409, Detail: fmt.Sprintf("The task is %s: it cannot be asked to %s.", l.view.State, r.Action), Possible: operate.Possible(by, &core.View{Possible: core.PossibleIn(l.view.State)})}
	}
	if r.IfSeq != 0 && r.IfSeq != l.view.Seq {
		return operate.Answer{}, refuse(409, "", "The task has moved on since this dialog was opened: its newest journal row is %d, not %d.", l.view.Seq, r.IfSeq)
	}
	if r.Action == operate.ActionEdit && !bytes.Contains(r.Input, []byte("order")) {
		return operate.Answer{}, refuse(422, "input", "The input has no member order, which the plan requires.")
	}
	if r.Action == operate.ActionEdit {
		e.Before, e.After = l.view.Input, r.Input
		l.view.Input = r.Input
	}
	w.done = append(w.done, r)
	w.apply(l, r, by.Name)
	a := operate.Answer{Type: task.Type, ID: task.ID, Action: r.Action, State: l.view.State, Outcome: "its owner carries it out", Audit: w.append(e)}
	if r.Key != "" {
		w.keys[r.Key] = a
	}
	return a, nil
}

// apply does to a task what was asked, at once.
func (w *world) apply(l *life, r operate.Request, by string) {
	l.at = core.InstantOf(w.now())
	who := func(state core.State) func(*core.Record) {
		return func(rec *core.Record) { rec.Actor, rec.Reason, rec.State = by, r.Reason, state }
	}
	switch r.Action {
	case operate.ActionResubmit, operate.ActionEdit, operate.ActionAccept:
		l.row(0, core.KindResubmitted, -1, 0, func(rec *core.Record) { who(core.StateProcessing)(rec); rec.Input = r.Input })
		l.view.CompleteBy = l.at.Add(l.plan.CompleteBy)
		l.view.Sentence, l.view.Reason, l.view.Fingerprint = "It was resubmitted by "+by+" and runs.", "", ""
	case operate.ActionUndo, operate.ActionCancel:
		l.row(0, core.KindUndoAsked, -1, 0, who(core.StateUndoing))
		for i := len(l.view.Steps) - 1; i >= 0; i-- {
			if s := l.view.Steps[i].Status; s == "done" || s == "failed" {
				l.row(time.Millisecond, core.KindUndone, i, core.StepUndone, nil)
			}
		}
		l.row(time.Millisecond, core.KindUndone, 0, core.StepUndone, to(core.StateUndone))
		l.view.Sentence = "It was undone because " + by + " asked for it."
	case operate.ActionResolve:
		l.row(0, core.KindResolved, -1, 0, who(r.As))
	case operate.ActionExtend:
		l.row(0, core.KindExtended, -1, 0, who(l.view.State))
		l.view.CompleteBy = core.InstantOf(r.Until)
	}
}

// Operations.

func (w *world) Freeze(context.Context, operate.Operation, operate.Selection) (int64, error) {
	return 0, nil
}
func (w *world) Operation(_ context.Context, id string) (operate.Operation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.ops {
		if op.ID == id {
			return *op, nil
		}
	}
	return operate.Operation{}, core.ErrNotFound
}

func (w *world) Operations(_ context.Context, states []operate.OperationState, limit int, _ string) ([]operate.Operation, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, "", err
	}
	var all []operate.Operation
	for i := len(w.ops) - 1; i >= 0; i-- {
		if slices.Contains(states, w.ops[i].State) && len(all) < limit {
			all = append(all, *w.ops[i])
		}
	}
	return all, "", nil
}
func (w *world) Update(context.Context, operate.Operation, int64) error { return nil }
func (w *world) Members(_ context.Context, op string, outcome operate.Outcome, after int64, limit int) ([]operate.Member, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []operate.Member
	for _, m := range w.members[op] {
		if m.Ordinal > after && (outcome == "" || m.Outcome == outcome) && len(all) < limit {
			all = append(all, m)
		}
	}
	return all, nil
}
func (w *world) SetMembers(context.Context, operate.Operation, int64, []operate.Member) error {
	return nil
}
func (w *world) DropExpired(context.Context, time.Time) (int, error) { return 0, nil }
func (w *world) Standing(context.Context, []operate.Member) ([]operate.Standing, error) {
	return nil, nil
}
func (w *world) Saved(_ context.Context, partition int, numbers []int64) ([]core.Saved, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, err
	}
	var all []core.Saved
	for _, n := range numbers {
		l := w.tasks[n-1]
		v := &l.view
		all = append(all, core.Saved{Journal: slices.Clone(l.rows), Row: core.Task{ID: v.ID, Type: v.Type, PlanVersion: v.PlanVersion, Partition: partition, Number: v.Number, State: v.State, LockedBy: v.LockedBy, WaitsFor: v.WaitsFor, Input: l.born, CreatedAt: v.CreatedAt}})
	}
	return all, nil
}

func (w *world) selected(sel operate.Selection) []*life {
	var all []*life
	var group operate.GroupKey
	for _, g := range w.groupsAll() {
		if g.ID == sel.Group {
			group = g.GroupKey
		}
	}
	for _, l := range w.tasks {
		v := &l.view
		switch {
		case sel.Group != "":
			if (operate.GroupKey{Type: v.Type, State: v.State, Step: v.FailedStep, Fingerprint: v.Fingerprint}) == group {
				all = append(all, l)
			}
		case sel.Filter != nil:
			if matches(v, sel.Filter) {
				all = append(all, l)
			}
		case slices.Contains(sel.IDs, operate.TaskRef{Type: v.Type, ID: v.ID}):
			all = append(all, l)
		}
	}
	return all
}

func (w *world) Preview(_ context.Context, by operate.Actor, sel operate.Selection, r operate.Request) (operate.Preview, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	chosen := w.selected(sel)
	op := &operate.Operation{ID: fmt.Sprintf("op-%d", len(w.ops)+10), Action: r.Action, Selection: fmt.Sprintf("%d tasks, frozen", len(chosen)), Group: sel.Group, Request: r, State: operate.OperationPreview, Tasks: int64(len(chosen)), By: by.Name, Reason: r.Reason, Created: w.now(), Tally: operate.Tally{Waiting: int64(len(chosen))}}
	w.ops = append(w.ops, op)
	p := operate.Preview{Token: op.ID, Selection: op.Selection, Action: r.Action, Tasks: op.Tasks, Expires: w.now().Add(operate.PreviewFor)}
	for i, l := range chosen {
		m := operate.Member{Ordinal: int64(i + 1), ID: l.view.ID, Type: l.view.Type, Step: l.view.FailedStep, Outcome: operate.OutcomeWaiting}
		w.members[op.ID] = append(w.members[op.ID], m)
		if i < 10 {
			p.Sample = append(p.Sample, m)
		}
	}
	if len(r.Patch) > 0 {
		p.Changes = []operate.InputChange{{TaskRef: operate.TaskRef{Type: "order", ID: "order-1001"}, Before: []byte(`{"a":1}`), After: []byte(`{"a":1,"currency":"EUR"}`)},
			{TaskRef: operate.TaskRef{Type: "order", ID: "order-1002"}, Why: "the patch does not apply: the input is not an object"}}
	}
	n := op.Tasks
	p.Rehearsal = &operate.Rehearsal{Repairable: n - n/10 - n/20, FailedAgain: n / 10, Waiting: n / 20, Reasons: []operate.ReasonCount{{Reason: "the deadline leaves no time", Tasks: n / 10}, {Reason: "agent ship.v1 is paused", Tasks: n / 20}}}
	return p, nil
}

func (w *world) Start(_ context.Context, by operate.Actor, token string, rate, brake int, reason string, confirm int64) (operate.Operation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.ops {
		if op.ID != token {
			continue
		}
		if op.Tasks > 100 && confirm != op.Tasks {
			return *op, refuse(400, "confirm", "the number is another")
		}
		op.State, op.Rate, op.BrakePct, op.Reason, op.Started, op.Ended, op.Wave = operate.OperationDone, rate, brake, reason, w.now(), w.now(), 6
		op.Tally = operate.Tally{Done: op.Tasks}
		for i := range w.members[op.ID] {
			m := &w.members[op.ID][i]
			m.Outcome, m.Wave = operate.OutcomeDone, 1
			w.apply(w.find(m.ID), op.Request, "operation/"+op.ID)
		}
		w.append(operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, From: by.From, Via: by.Via, Action: "operation.start", Target: "operation/" + op.ID, Reason: reason, Outcome: "done"})
		return *op, nil
	}
	return operate.Operation{}, refuse(404, "token", "There is no such preview, or it has expired: make a new one.")
}

func (w *world) Show(ctx context.Context, id string) (operate.Operation, error) {
	op, err := w.Operation(ctx, id)
	if op.Group != "" {
		op.Since.N = 2
	}
	return op, err
}

func (w *world) Change(_ context.Context, _ operate.Actor, id string, change operate.Change) (operate.Operation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.ops {
		if op.ID == id {
			if change.State != "" {
				op.State, op.Why = change.State, change.Reason
			}
			if change.Rate != nil {
				op.Rate = *change.Rate
			}
			return *op, nil
		}
	}
	return operate.Operation{}, core.ErrNotFound
}

// What runs, and is settled.

type agents struct{ *world }

func (a agents) Agents(context.Context) ([]operate.Agent, error) { return a.agentsIn, a.broken }

// Force is operate.BreakerControl.
func (w *world) Force(_ context.Context, by operate.Actor, f operate.ForceBreaker) (operate.Breaker, error) {
	if bad := f.Check(w.now()); bad != nil {
		return operate.Breaker{}, bad
	}
	i := slices.IndexFunc(w.agentsIn, func(a operate.Agent) bool { return a.Name == f.Agent })
	if i < 0 {
		return operate.Breaker{}, refuse(404, "agent", "There is no such agent.")
	}
	w.append(operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "breaker." + string(f.State), Target: "agent/" + f.Agent, Reason: f.Reason, Outcome: "done"})
	b := &w.agentsIn[i].Breaker
	*b = operate.Breaker{State: core.BreakerState(f.State), Since: w.now(), Until: f.Until, Forced: true, By: by.Name, Reason: f.Reason}
	if f.State == operate.BreakerAuto {
		b.State, b.Forced = core.BreakerClosed, false
	}
	return *b, nil
}

// Limits is operate.LimitControl.
func (w *world) Limits(context.Context) ([]operate.Limit, error) {
	w.looked++
	return slices.Clone(w.bounds), w.broken
}

// SetLimit is operate.LimitControl.
func (w *world) SetLimit(_ context.Context, by operate.Actor, l operate.SetLimit) (operate.Limit, error) {
	e := operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "limit.set", Target: "agent/" + l.Agent, Reason: l.Reason, Outcome: "done"}
	if bad := l.Check(); bad != nil {
		e.Outcome = "refused: " + bad.Detail
		w.append(e)
		return operate.Limit{}, bad
	}
	w.append(e)
	is := operate.Limit{Agent: l.Agent, Concurrent: l.Concurrent, Rate: l.Rate, Key: l.Key, KeyConcurrent: l.KeyConcurrent, KeyRate: l.KeyRate, Revision: 1, Since: w.now(), By: by.Name, Reason: l.Reason}
	w.bounds = append(slices.DeleteFunc(w.bounds, func(l operate.Limit) bool { return l.Agent == is.Agent }), is)
	return is, nil
}

// RemoveLimit is operate.LimitControl.
func (w *world) RemoveLimit(_ context.Context, by operate.Actor, agent, reason string) error {
	i := slices.IndexFunc(w.bounds, func(l operate.Limit) bool { return l.Agent == agent })
	if i < 0 {
		return refuse(404, "agent", "agent %q has no limit", agent)
	}
	w.append(operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "limit.remove", Target: "agent/" + agent, Reason: reason, Outcome: "done"})
	w.bounds = slices.Delete(w.bounds, i, i+1)
	return nil
}

func (w *world) Partitions(context.Context) ([]operate.Partition, error) { return w.parts, w.broken }
func (w *world) Pin(_ context.Context, by operate.Actor, p int, node, reason string, anyway bool) error {
	e := operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "partition.pin", Target: fmt.Sprintf("partition/%d", p), Reason: reason, Outcome: "done"}
	if node == "nobody" && !anyway {
		e.Outcome = "refused: no such node"
		w.append(e)
		return &operate.Refusal{Code: 422, Field: "node", Detail: "There is no node nobody.", Insist: operate.EvenIfUnknown}
	}
	w.append(e)
	w.parts[p].Pinned = node
	return nil
}
func (w *world) Unpin(_ context.Context, _ operate.Actor, p int, _ string) error {
	w.parts[p].Pinned = ""
	return nil
}
func (w *world) StepDown(context.Context, operate.Actor, int, string) error { return nil }

func (w *world) Pauses(context.Context) ([]operate.PauseView, error) { return w.held, w.broken }
func (w *world) SetPause(_ context.Context, by operate.Actor, p operate.Pause) (operate.Pause, error) {
	w.append(operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "pause.set", Target: "pause/x", Reason: p.Reason, Outcome: "done"})
	p.ID = fmt.Sprintf("p%d", len(w.held)+1)
	w.held = append(w.held, operate.PauseView{Pause: p})
	return p, nil
}
func (w *world) LiftPause(_ context.Context, _ operate.Actor, id, _ string) error {
	w.held = slices.DeleteFunc(w.held, func(h operate.PauseView) bool { return h.ID == id })
	return nil
}

func (w *world) Tokens(context.Context) ([]operate.Token, error) { return w.tokens, w.broken }
func (w *world) PutToken(_ context.Context, t operate.Token) error {
	w.tokens = append(w.tokens, t)
	return nil
}
func (w *world) TokenByID(context.Context, string) (operate.Token, error) {
	return operate.Token{}, core.ErrNotFound
}
func (w *world) TouchToken(context.Context, string, time.Time) error { return nil }
func (w *world) RevokeToken(_ context.Context, id string, at time.Time) error {
	for i := range w.tokens {
		if w.tokens[i].ID == id {
			w.tokens[i].Revoked = at
		}
	}
	return nil
}

func (w *world) Channels(context.Context) ([]Channel, error) { return w.channels, w.broken }
func (w *world) Test(_ context.Context, name string) error {
	if name == "on-call" {
		return refuse(503, "", "connection refused")
	}
	return nil
}

func (w *world) Document(_ context.Context, name string) ([]byte, error) {
	if !slices.ContainsFunc(w.channels, func(c Channel) bool { return c.Name == name }) {
		return nil, refuse(404, "", "no channel %s", name)
	}
	return []byte(`{"kind":"webhook","url":"https://hooks.example.test/duly"}`), w.broken
}

func (w *world) Check(name string, document []byte) ([]byte, error) {
	if !json.Valid(document) {
		return nil, refuse(422, "document", "channel %s: no JSON", name)
	}
	return document, nil
}

func (w *world) Put(_ context.Context, name string, document []byte, secret *string) error {
	if strings.Contains(string(document), "ftp:") {
		return refuse(400, "document", "url: want https://host/…")
	}
	w.put = append(w.put, name+" "+string(document))
	if secret != nil {
		w.put = append(w.put, *secret)
	}
	return w.broken
}

func (w *world) Delete(_ context.Context, name string) error {
	w.put = append(w.put, "deleted "+name)
	return w.broken
}

// Live.

type liveWorld struct{ *world }

func (w liveWorld) Current(context.Context) (live.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return live.Snapshot{}, w.broken
	}
	return w.snapshot(), nil
}

func (w *world) snapshot() live.Snapshot {
	o := operate.Overview{At: w.now(), Troubles: w.trouble}
	counts := map[core.State]int64{}
	for _, l := range w.tasks {
		counts[l.view.State]++
	}
	for _, s := range states {
		switch {
		case s == core.StatePending && counts[core.StateProcessing] > 0:
			o.Counts = append(o.Counts, operate.StateCount{State: s, Tasks: operate.Count{N: 10_000, AtLeast: true}})
		case counts[s] > 0:
			o.Counts = append(o.Counts, operate.StateCount{State: s, Tasks: operate.Count{N: counts[s]}})
		}
	}
	near := core.InstantOf(w.now().Add(live.DefaultRisk))
	o.Signals = w.openSignals(near, operate.NeedLinesMax)
	groups := w.largest()
	if w.millions {
		groups.Tasks = operate.Count{N: 100_000}
		for i := range o.Counts {
			o.Counts[i].Tasks = operate.Count{N: 1_000_000, AtLeast: i%2 == 1}
		}
	}
	for _, op := range w.ops {
		if op.State == operate.OperationBraked || op.State == operate.OperationPaused || op.State == operate.OperationRunning {
			o.Operations = append(o.Operations, *op)
		}
	}
	var pauses []operate.PauseView
	for _, h := range w.held {
		pauses = append(pauses, operate.PauseView{Pause: h.Pause, Waiting: h.Waiting})
	}
	soon := w.nearest(near)
	o.Errors, o.Groups, o.AtRisk = groups.Tasks, groups.All, operate.Count{N: int64(len(soon))}
	o.Needs = slices.Concat(operate.TroubleNeeds(o.At, o.Troubles), operate.ErrorNeeds(o.At, groups), operate.OperationNeeds(o.At, o.Operations),
		operate.DeadlineNeeds(o.At, live.DefaultRisk, soon, false), operate.AnswerNeeds(o.At, live.DefaultRisk, &o.Signals), operate.FlowNeeds(o.At, w.agentsIn, pauses, w.bounds))
	operate.SortNeeds(o.Needs)
	return live.Snapshot{Overview: o, Sample: w.samples[len(w.samples)-1]}
}

func (w liveWorld) Samples() []operate.Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.samples)
}

func (w liveWorld) Subscribe(ctx context.Context) <-chan live.Snapshot {
	c := make(chan live.Snapshot, 1)
	w.mu.Lock()
	w.subs[c] = struct{}{}
	c <- w.snapshot()
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, c)
		close(c)
	})
	return c
}

// tell gives every listener what there is now.
func (w *world) tell(trouble string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.snapshot()
	s.Trouble = trouble
	for c := range w.subs {
		select {
		case <-c:
		default:
		}
		c <- s
	}
}

func (w *world) listeners() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// config is a console that serves everything of a world.
func (w *world) config() Config {
	desk := operate.NewDesk(w, w.now, slog.New(slog.DiscardHandler))
	return Config{PartitionOf: partitionOf, Reader: w, Trail: w, Desk: desk, Operations: w, Notes: w, Settings: w, Actions: w, Repairs: w, Live: liveWorld{w}, Agents: agents{w}, Books: ledger{w}, Forecaster: chances{}, Versions: &operate.Versioning{Store: &planMarks{}, Desk: desk, Plans: w.Plans, Announce: func() error { return nil }, Now: w.now}, Schedules: timetable{w}, Partitions: w, Pauses: w, Breakers: w, Limits: w, Tokens: w, Alerts: w, Version: "v0-test", Now: w.now, Log: slog.New(slog.DiscardHandler)}
}

// as serves a handler to an actor.
func as(role operate.Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(rw, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: "ada", Role: role, From: "192.0.2.7", Via: "http"})))
	})
}
