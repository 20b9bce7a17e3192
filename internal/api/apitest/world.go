// Package apitest is a world in memory behind the HTTP API: a door that stores everything, and every port that operators
// use. It is for tests of the API and of what asks it, and has no way into the program.
package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// Partitions of the world.
const Partitions = 4

// World is everything behind the API. Its fields may be changed before it is used, or under Lock.
type World struct {
	sync.Mutex
	Now        time.Time
	Err        error // of every reading and change, where it is not nil
	Tasks      []core.View
	Records    map[string][]core.Record // by id, the oldest first
	Plan       core.Plan
	Warning    string      // of every submission
	Later      []core.Plan // other versions of it
	FailGroups []operate.Group
	Ops        []operate.Operation
	OpMembers  map[string][]operate.Member
	Trail      []operate.AuditEntry
	Keys       map[string]operate.Token
	Notebook   []operate.Note
	Documents  map[string][]byte
	Sender     *alerts.Sender // nil: nothing is delivered here
	Level      slog.LevelVar
	Held       []operate.Pause
	Breaks     []core.Breaker
	Bounds     []operate.AgentLimit
	Timed      []operate.Schedule // by name
	Marked     core.Deprecations
	Compared   operate.BooksResult
	Haunting   []operate.Ghost
	AgentList  []operate.Agent
	Owners     []operate.Partition
	EventLog   []operate.Event
	Asked      []operate.Request // of single tasks and of operations
	Submitted  []ingest.Request
	Refuse     *operate.Refusal // of every action; nil: none
	Open       []operate.OpenSignal
	Reads      int // of the store
	schemas    jsonschema.Cache
	wake       chan struct{} // closed and made new when there are events
}

// At is the time of the world's beginning.
var At = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// New makes a world with a task in each state, a failure group, an operation and one of everything else.
func New() *World {
	w := &World{Now: At, Records: map[string][]core.Record{}, OpMembers: map[string][]operate.Member{}, Keys: map[string]operate.Token{}, Documents: map[string][]byte{}, wake: make(chan struct{})}
	w.Plan = core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "credit", Agent: "credit.check"}, {Name: "charge", Agent: "payment.charge", After: []int{0}, Undoable: true}}}.WithDefaults()
	for i, state := range []core.State{core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError} {
		w.Add(fmt.Sprintf("t-%d", i), state)
	}
	group := operate.GroupKey{Type: "order", State: core.StateError, Step: "charge", Fingerprint: "f1"}
	w.FailGroups = []operate.Group{{GroupKey: group, ID: "g1", Tasks: operate.Count{N: 1}, Example: "no money", Task: "t-5", First: At, Last: At}}
	w.Ops = []operate.Operation{{ID: "op1", Action: operate.ActionResubmit, Selection: "tasks of group g1", Group: "g1", State: operate.OperationRunning, Tasks: 2,
		Tally: operate.Tally{Done: 1, Waiting: 1}, Wave: 1, BrakePct: 20, By: "olga", Reason: "bank is back", Created: At, Started: At}}
	w.OpMembers["op1"] = []operate.Member{{Ordinal: 1, Number: 6, ID: "t-5", Type: "order", Seq: 3, Step: "charge", Wave: 1, Outcome: operate.OutcomeDone}, {Ordinal: 2, ID: "t-4", Type: "order", Outcome: operate.OutcomeWaiting}}
	w.Timed = []operate.Schedule{nightly()}
	w.AgentList = []operate.Agent{{Name: "credit.check", Instances: 2, Calls: 10, LatencyMS: 1.5, Since: At, Breaker: operate.Breaker{State: core.BreakerClosed}},
		{Name: "payment.charge", Gone: true, Breaker: operate.Breaker{State: core.BreakerOpen, Since: At, Until: At.Add(time.Minute), Openings: 1, Reason: "12 of 20 calls failed"}, Unserved: operate.Count{N: 2}, AwaySince: At,
			FirstDeadline: At.Add(time.Hour), Steps: []operate.WaitingStep{{Type: "order", Step: "charge", Tasks: 2}}}}
	for i := range Partitions {
		w.Owners = append(w.Owners, operate.Partition{Partition: i, Owner: "node-a", Epoch: 3, InFlight: operate.Count{N: 1}})
	}
	w.Compared = operate.BooksResult{Since: At.Add(-24 * time.Hour), Begun: At.Add(-time.Minute), At: At, Agents: []operate.AgentBooks{{Agent: "payment.charge", Effects: 12}},
		Effects: 12, Tasks: 4, Open: 1, Total: 2, Kinds: map[operate.GhostKind]int64{operate.GhostOfUndone: 1, operate.GhostUnknown: 1}}
	w.Haunting = []operate.Ghost{
		{Kind: operate.GhostUnknown, Agent: "payment.charge", Key: "gone/charge/0", Task: "gone", Step: "charge", Times: 1, Text: "the task is not known", Found: At, Status: operate.GhostOpen, Repairs: operate.RepairsOf(false)},
		{Kind: operate.GhostOfUndone, Agent: "payment.charge", Key: "t-4/charge/1", Task: "t-4", Type: "order", Step: "charge", State: core.StateUndone, Seq: 3, Times: 1, Text: "the effect stands", Found: At, Status: operate.GhostOpen, Repairs: operate.RepairsOf(true)},
	}
	w.Open = []operate.OpenSignal{{Type: "order", ID: "t-0", Steps: []string{"approve"}, Since: At.Add(-time.Hour), Due: At.Add(time.Minute)}}
	w.Trail = []operate.AuditEntry{{Number: 1, At: At, Actor: "olga", Role: operate.RoleOperator, Via: "http", Action: "undo", Target: "task/order/t-4", Reason: "asked by mail", Outcome: "done"}}
	return w
}

// Add stores a task of the plan.
func (w *World) Add(id string, state core.State) {
	number := int64(len(w.Tasks) + 1)
	at := core.InstantOf(At)
	v := core.View{ID: id, Type: w.Plan.Name, PlanVersion: 1, Partition: PartitionOf(id, Partitions), Number: number, State: state, Round: 1, Seq: 3,
		Input: []byte(`{"cents":1999}`), InputHash: core.HashInput(w.Plan.Name, []byte(`{"cents":1999}`)), CreatedAt: at, UpdatedAt: at, CompleteBy: at.Add(time.Minute),
		Labels: []core.Label{{Key: "customer", Value: "c-17"}}, Sentence: "the world says that it is " + string(state), Possible: possible[state],
		Steps: []core.StepView{{Name: "credit", Agent: "credit.check", Status: "done", Attempt: 1}, {Name: "charge", Agent: "payment.charge", Status: "failed", Attempt: 3, Code: 422, Error: "no money"}}}
	if state == core.StateError || state == core.StateUndone {
		v.FailedStep, v.Reason, v.Fingerprint, v.EndedAt = "charge", "step charge: no money", "f1", at
	}
	w.Tasks = append(w.Tasks, v)
	w.Records[id] = []core.Record{
		{Seq: 1, Kind: core.KindSubmitted, At: at, State: core.StateProcessing, Round: 1, Step: -1, Next: 0, NextAttempt: 1},
		{Seq: 2, Kind: core.KindDone, At: at.Add(time.Second), State: core.StateProcessing, Round: 1, Step: 0, StepStatus: core.StepDone, Attempt: 1, Result: []byte(`{"points":700}`), Next: 1, NextAttempt: 1},
		{Seq: 3, Kind: core.KindRefused, At: at.Add(2 * time.Second), State: state, Round: 1, Step: 1, StepStatus: core.StepFailed, Attempt: 1, Code: 422, Error: "no money", Next: -1},
	}
}

// PartitionOf is the partition of an id here.
func PartitionOf(id string, partitions int) int {
	sum := 0
	for _, c := range []byte(core.RootID(id)) {
		sum += int(c)
	}
	return sum % partitions
}

// Ports are all of the world's.
func (w *World) Ports(l *live.Live) api.Ports {
	return api.Ports{Reader: w, Trail: w, Desk: w.desk(), Actions: w, Operations: w, OperationStore: w, Agents: w, Partitions: w, Events: w, Pauses: w.pausing(), Breakers: w.breaking(), Limits: w.limiting(), Versions: w.versioning(), Tokens: w, Notes: w, Settings: w, Live: l,
		Books: &operate.Bookkeeping{Store: w, Settings: w, Desk: w.desk(), Actions: w, Now: w.now}, Schedules: w.scheduling(), Alerts: &alerts.Book{Store: w, Sender: func() *alerts.Sender { return w.Sender }}, Level: &w.Level, AcceptLoss: acceptLoss, PutPlan: w.putPlan}
}

// putPlan stores a version of a plan.
func (w *World) putPlan(_ context.Context, _ operate.Actor, p core.Plan) error {
	return w.do(func() error {
		w.Later = append(w.Later, p.WithDefaults())
		return nil
	})
}

// acceptLoss knows one stream, which lacks three messages.
func acceptLoss(_ context.Context, stream string) (uint64, error) {
	if stream != "TASKS" {
		return 0, core.ErrNotFound
	}
	return 3, nil
}

// Deliver makes what tests channels; they may lead to this machine.
func (w *World) Deliver() (err error) {
	w.Sender, err = alerts.New(alerts.Config{Store: w, Source: nothing{}, Leads: func() bool { return false }, Log: slog.New(slog.DiscardHandler), AllowLocal: true})
	return err
}

// nothing is a source without alerts.
type nothing struct{}

// Read implements alerts.Source.
func (nothing) Read(ctx context.Context, _ func(alerts.Message)) error {
	<-ctx.Done()
	return nil
}

// Handler is the API over the world, without authentication before it.
func (w *World) Handler(change func(*api.Config)) (http.Handler, error) {
	log := slog.New(slog.DiscardHandler)
	l := live.New(live.Config{Reader: w, Operations: w, Agents: w, Pauses: w.pausing(), Limits: w.limiting(), Now: w.now, Log: log})
	asks, err := api.NewRequests(api.RequestsConfig{Partitions: Partitions, PartitionOf: PartitionOf, UnknownFor: time.Millisecond, Desk: w.desk()}, w, w, log)
	if err != nil {
		return nil, err
	}
	cfg := api.Config{Partitions: Partitions, PartitionOf: PartitionOf, NewID: func() string { return "new-1" }, Ports: w.Ports(l), Now: w.now}
	if change != nil {
		change(&cfg)
	}
	return api.New(cfg, w, w, asks, log), nil
}

// As lets everyone in as an actor of that role.
func As(role operate.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		actor := operate.Actor{Name: "the-" + string(role), Role: role, From: "192.0.2.1", Via: "http"}
		next.ServeHTTP(rw, r.WithContext(operate.WithActor(r.Context(), actor)))
	})
}

// Token stores a token of that role and returns what its holder shows.
func (w *World) Token(role operate.Role) string {
	t, text, err := auth.NewToken("the-"+string(role), role, "test", At, time.Time{})
	if err != nil {
		panic(err) // a role that is not one
	}
	w.Lock()
	defer w.Unlock()
	w.Keys[t.ID] = t
	return text
}

// Tell adds an event.
func (w *World) Tell(e operate.Event) {
	w.Lock()
	defer w.Unlock()
	e.ID = strconv.Itoa(len(w.EventLog) + 1)
	w.EventLog = append(w.EventLog, e)
	close(w.wake)
	w.wake = make(chan struct{})
}

func (w *World) now() time.Time {
	w.Lock()
	defer w.Unlock()
	return w.Now
}

// do calls f under the lock unless the world is away.
func (w *World) do(f func() error) error {
	w.Lock()
	defer w.Unlock()
	w.Reads++
	if w.Err != nil {
		return w.Err
	}
	return f()
}

// Late implements api.Submitter.
func (w *World) Late(*submit.Form) *ingest.Refusal { return nil }

// Submit implements api.Submitter.
func (w *World) Submit(r ingest.Request) {
	w.Lock()
	w.Submitted = append(w.Submitted, r)
	seq := uint64(len(w.Submitted))
	var state core.State // of the task that it is already
	var differs *ingest.Refusal
	if i := slices.IndexFunc(w.Tasks, func(t core.View) bool { return t.ID == r.ID }); i >= 0 {
		state = w.Tasks[i].State
		if t := &w.Tasks[i]; len(t.InputHash) > 0 {
			differs = ingest.Differs(r.ID, r.Type, t.Type, r.Input, t.InputHash)
		}
	}
	w.Unlock()
	if r.Type != w.Plan.Name {
		r.Answer(ingest.Answer{Task: r.ID, Err: ingest.Refuse(404, ingest.CauseTypeUnknown, "type %s is unknown", core.QuoteShort(r.Type))})
		return
	}
	if differs != nil {
		r.Answer(ingest.Answer{Task: r.ID, Err: differs})
		return
	}
	r.Answer(ingest.Answer{Task: r.ID, Stream: "TASKS", Seq: seq, Partition: PartitionOf(r.ID, Partitions), State: state, Warning: w.Warning})
}

// Ask implements api.Controls.
func (w *World) Ask(context.Context, int, core.Control) (uint64, error) { return 1, nil }

// Get implements operate.Reader.
func (w *World) Get(_ context.Context, _ int, id string) (v core.View, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.Tasks, func(t core.View) bool { return t.ID == id })
		if i < 0 {
			return fmt.Errorf("task %s: %w", id, core.ErrNotFound)
		}
		v = w.Tasks[i]
		return nil
	})
	return v, err
}

// Existing implements api.Reader.
func (w *World) Existing(_ context.Context, _ int, ids []string) (found []core.Existing, err error) {
	err = w.do(func() error {
		for i := range w.Tasks {
			if t := &w.Tasks[i]; slices.Contains(ids, t.ID) {
				found = append(found, core.Existing{Partition: t.Partition, Number: t.Number, ID: t.ID, Type: t.Type, InputHash: t.InputHash, State: t.State})
			}
		}
		return nil
	})
	return found, err
}

// List implements operate.Reader: the cursor is a number.
func (w *World) List(_ context.Context, f core.Filter) (page core.Page, err error) {
	err = w.do(func() error {
		before := int64(1 << 60)
		if f.After != "" {
			if before, err = strconv.ParseInt(f.After, 10, 64); err != nil {
				return fmt.Errorf("list: %w", core.ErrCursor)
			}
		}
		for _, v := range slices.Backward(w.Tasks) {
			label := f.Label == "" || slices.ContainsFunc(v.Labels, func(l core.Label) bool { return l.Key+"="+l.Value == f.Label })
			open := !f.OpenSignal || slices.ContainsFunc(w.Open, func(o operate.OpenSignal) bool { return o.ID == v.ID })
			if v.Number >= before || !label || !open || cmp.Or(f.Type, v.Type) != v.Type || cmp.Or(f.State, v.State) != v.State || cmp.Or(f.PlanVersion, v.PlanVersion) != v.PlanVersion || cmp.Or(f.Step, v.FailedStep) != v.FailedStep ||
				cmp.Or(f.Fingerprint, v.Fingerprint) != v.Fingerprint || v.CreatedAt < f.CreatedFrom || f.CreatedTo != 0 && v.CreatedAt >= f.CreatedTo || f.DeadlineTo != 0 && v.CompleteBy >= f.DeadlineTo {
				continue
			}
			if len(page.Tasks) == f.Limit {
				page.Next = strconv.FormatInt(page.Tasks[f.Limit-1].Number, 10)
				return nil
			}
			v.Steps, v.Input, v.Sentence = nil, nil, ""
			page.Tasks = append(page.Tasks, v)
		}
		return nil
	})
	return page, err
}

// JournalPage implements operate.Reader.
func (w *World) JournalPage(_ context.Context, _ int, number, before int64, limit int) (page []core.Record, err error) {
	err = w.do(func() error {
		for _, v := range w.Tasks {
			if v.Number != number {
				continue
			}
			for _, r := range slices.Backward(w.Records[v.ID]) {
				if (before == 0 || r.Seq < before) && len(page) < limit {
					page = append(page, r)
				}
			}
		}
		return nil
	})
	return page, err
}

// CountsUpTo implements operate.Reader.
func (w *World) CountsUpTo(context.Context, int) (counts []core.Count, err error) {
	err = w.do(func() error {
		for _, v := range w.Tasks {
			i := slices.IndexFunc(counts, func(c core.Count) bool { return c.Type == v.Type && c.State == v.State })
			if i < 0 {
				counts, i = append(counts, core.Count{Type: v.Type, State: v.State}), len(counts)
			}
			counts[i].Tasks++
		}
		return nil
	})
	return counts, err
}

// Cursor implements api.Reader.
func (w *World) Cursor(context.Context, int) (uint64, error) {
	return 0, w.do(func() error { return nil })
}

// Groups implements operate.Reader: the cursor is the id of a group.
func (w *World) Groups(_ context.Context, f operate.GroupFilter) (page operate.Groups, err error) {
	page.At = w.now()
	err = w.do(func() error {
		for _, g := range w.FailGroups {
			if g.ID <= f.After || cmp.Or(f.Type, g.Type) != g.Type || cmp.Or(f.State, g.State) != g.State {
				continue
			}
			page.All.N, page.Tasks.N = page.All.N+1, page.Tasks.N+g.Tasks.N
			if len(page.Groups) == f.Limit {
				page.Next = page.Groups[f.Limit-1].ID
				return nil
			}
			page.Groups = append(page.Groups, g)
		}
		return nil
	})
	return page, err
}

// Group implements operate.Reader.
func (w *World) Group(_ context.Context, id string) (g operate.Group, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.FailGroups, func(g operate.Group) bool { return g.ID == id })
		if i < 0 {
			return fmt.Errorf("failure group %s: %w", id, core.ErrNotFound)
		}
		g = w.FailGroups[i]
		return nil
	})
	return g, err
}

// AtRisk implements operate.Reader.
func (w *World) AtRisk(_ context.Context, before core.Instant, limit int) (tasks []core.View, more bool, err error) {
	err = w.do(func() error {
		for _, v := range w.Tasks {
			if !v.State.Ended() && v.CompleteBy < before && len(tasks) < limit {
				tasks = append(tasks, v)
			}
		}
		return nil
	})
	return tasks, false, err
}

// Signals implements operate.Reader.
func (w *World) Signals(_ context.Context, near core.Instant, next int) (s operate.Signals, err error) {
	err = w.do(func() error {
		s.Next = w.Open[:min(len(w.Open), next)]
		for i := range w.Open {
			o := &w.Open[i]
			s.Tasks.N++
			s.Steps.N += int64(len(o.Steps))
			if core.InstantOf(o.Due) < near {
				s.Near.N++
			}
			if s.Since == nil || o.Since.Before(*s.Since) {
				s.Since = &o.Since
			}
		}
		return nil
	})
	return s, err
}

// Sample implements operate.Reader.
func (w *World) Sample(context.Context, int) (s operate.Sample, err error) {
	at := w.now()
	err = w.do(func() error {
		s = operate.Sample{At: at, Created: int64(len(w.Tasks)), Ended: 3, P50MS: 12, P99MS: 80}
		return nil
	})
	return s, err
}

// Plans implements operate.Reader.
func (w *World) Plans(context.Context) ([]core.Plan, error) {
	return append([]core.Plan{w.Plan}, w.Later...), w.do(func() error { return nil })
}

// Cursors implements operate.Reader.
func (w *World) Cursors(context.Context) ([]core.PartitionState, error) {
	return nil, w.do(func() error { return nil })
}

// Append implements operate.Trail.
func (w *World) Append(_ context.Context, e operate.AuditEntry) (number int64, again *operate.AuditEntry, err error) {
	err = w.do(func() error {
		e.Number = int64(len(w.Trail) + 1)
		number = e.Number
		w.Trail = append(w.Trail, e)
		return nil
	})
	return number, nil, err
}

// SetOutcome implements operate.Trail.
func (w *World) SetOutcome(_ context.Context, number int64, outcome string) error {
	return w.do(func() error {
		w.Trail[number-1].Outcome = outcome
		return nil
	})
}

// Audit implements operate.Trail: the cursor is a number.
func (w *World) Audit(_ context.Context, f operate.AuditFilter) (page operate.AuditPage, err error) {
	err = w.do(func() error {
		before := int64(1 << 60)
		if f.After != "" {
			if before, err = strconv.ParseInt(f.After, 10, 64); err != nil {
				return fmt.Errorf("audit: %w", core.ErrCursor)
			}
		}
		for _, e := range slices.Backward(w.Trail) {
			if e.Number >= before || cmp.Or(f.Actor, e.Actor) != e.Actor || cmp.Or(f.Action, e.Action) != e.Action || !strings.HasPrefix(e.Target, f.Target) || f.Whole && e.Target != f.Target ||
				!f.From.IsZero() && e.At.Before(f.From) || !f.To.IsZero() && !e.At.Before(f.To) {
				continue
			}
			if len(page.Entries) == f.Limit {
				page.Next = strconv.FormatInt(page.Entries[f.Limit-1].Number, 10)
				return nil
			}
			page.Entries = append(page.Entries, e)
		}
		return nil
	})
	return page, err
}

// Do implements operate.Actions.
func (w *World) Do(_ context.Context, by operate.Actor, task operate.TaskRef, r operate.Request) (a operate.Answer, err error) {
	err = w.do(func() error {
		if w.Refuse != nil {
			return w.Refuse
		}
		if bad := r.CheckOne(w.Now); bad != nil {
			return bad
		}
		w.Asked = append(w.Asked, r)
		w.Trail = append(w.Trail, operate.AuditEntry{Number: int64(len(w.Trail) + 1), At: w.Now, Actor: by.Name, Role: by.Role, From: by.From, Via: by.Via, Action: string(r.Action),
			Target: "task/" + task.Type + "/" + task.ID, Reason: r.Reason, Outcome: "asked", Key: r.Key})
		a = operate.Answer{Type: task.Type, ID: task.ID, Action: r.Action, State: core.StateError, Outcome: "asked: it starts again", Position: "1.7", Audit: int64(len(w.Trail))}
		return nil
	})
	return a, err
}

// Preview implements operate.Operations.
func (w *World) Preview(_ context.Context, _ operate.Actor, _ operate.Selection, r operate.Request) (p operate.Preview, err error) {
	err = w.do(func() error {
		if bad := r.Check(w.Now); bad != nil {
			return bad
		}
		w.Asked = append(w.Asked, r)
		p = operate.Preview{Token: "preview-1", Selection: "1 task", Action: r.Action, Tasks: 1, Expires: w.Now.Add(operate.PreviewFor)}
		return nil
	})
	return p, err
}

// Start implements operate.Operations.
func (w *World) Start(_ context.Context, by operate.Actor, _ string, rate, brakePct int, reason string, _ int64) (op operate.Operation, err error) {
	err = w.do(func() error {
		op = operate.Operation{ID: fmt.Sprintf("op%d", len(w.Ops)+1), Action: operate.ActionResubmit, State: operate.OperationRunning, Tasks: 1, Tally: operate.Tally{Waiting: 1},
			Rate: rate, BrakePct: brakePct, By: by.Name, Reason: reason, Created: w.Now, Started: w.Now}
		w.Ops = append(w.Ops, op)
		return nil
	})
	return op, err
}

// Show implements operate.Operations: one task has joined the group of each.
func (w *World) Show(ctx context.Context, id string) (operate.Operation, error) {
	op, err := w.Operation(ctx, id)
	if errors.Is(err, core.ErrNotFound) {
		return op, &operate.Refusal{Code: 404, Detail: err.Error()}
	}
	op.Since = operate.Count{N: 1}
	return op, err
}

// Change implements operate.Operations.
func (w *World) Change(_ context.Context, _ operate.Actor, id string, c operate.Change) (op operate.Operation, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.Ops, func(op operate.Operation) bool { return op.ID == id })
		if i < 0 {
			return &operate.Refusal{Code: 404, Detail: "no operation " + id}
		}
		w.Ops[i].State = cmp.Or(c.State, w.Ops[i].State)
		if c.Rate != nil {
			w.Ops[i].Rate = *c.Rate
		}
		op = w.Ops[i]
		return nil
	})
	return op, err
}

// Operation implements operate.OperationStore.
func (w *World) Operation(_ context.Context, id string) (op operate.Operation, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.Ops, func(op operate.Operation) bool { return op.ID == id })
		if i < 0 {
			return fmt.Errorf("operation %s: %w", id, core.ErrNotFound)
		}
		op = w.Ops[i]
		return nil
	})
	return op, err
}

// Operations implements operate.OperationStore: the cursor is an id.
func (w *World) Operations(_ context.Context, states []operate.OperationState, limit int, after string) (ops []operate.Operation, next string, err error) {
	err = w.do(func() error {
		for _, op := range slices.Backward(w.Ops) {
			if after != "" && op.ID >= after || len(states) > 0 && !slices.Contains(states, op.State) {
				continue
			}
			if len(ops) == limit {
				next = ops[limit-1].ID
				return nil
			}
			ops = append(ops, op)
		}
		return nil
	})
	return ops, next, err
}

// Members implements operate.OperationStore.
func (w *World) Members(_ context.Context, operation string, outcome operate.Outcome, after int64, limit int) (members []operate.Member, err error) {
	err = w.do(func() error {
		for _, m := range w.OpMembers[operation] {
			if m.Ordinal > after && cmp.Or(outcome, m.Outcome) == m.Outcome && len(members) < limit {
				members = append(members, m)
			}
		}
		return nil
	})
	return members, err
}

var errUnused = errors.New("apitest: the API does not call this")

// Freeze implements operate.OperationStore; the API does not call it.
func (w *World) Freeze(context.Context, operate.Operation, operate.Selection) (int64, error) {
	return 0, errUnused
}

// Update implements operate.OperationStore; the API does not call it.
func (w *World) Update(context.Context, operate.Operation, int64) error { return errUnused }

// SetMembers implements operate.OperationStore; the API does not call it.
func (w *World) SetMembers(context.Context, operate.Operation, int64, []operate.Member) error {
	return errUnused
}

// DropExpired implements operate.OperationStore; the API does not call it.
func (w *World) DropExpired(context.Context, time.Time) (int, error) { return 0, errUnused }

// Standing implements operate.OperationStore; the API does not call it.
func (w *World) Standing(context.Context, []operate.Member) ([]operate.Standing, error) {
	return nil, errUnused
}

// Saved implements operate.OperationStore.
func (w *World) Saved(_ context.Context, _ int, numbers []int64) (all []core.Saved, err error) {
	err = w.do(func() error {
		for _, v := range w.Tasks {
			if slices.Contains(numbers, v.Number) {
				row := core.Task{Partition: v.Partition, Number: v.Number, ID: v.ID, Type: v.Type, PlanVersion: v.PlanVersion, Input: v.Input, State: v.State, CreatedAt: v.CreatedAt}
				all = append(all, core.Saved{Row: row, Journal: slices.Clone(w.Records[v.ID])})
			}
		}
		return nil
	})
	return all, err
}

// Agents implements operate.Agents.
func (w *World) Agents(context.Context) (all []operate.Agent, err error) {
	err = w.do(func() error { all = slices.Clone(w.AgentList); return nil })
	return all, err
}

// Partitions implements operate.Partitions.
func (w *World) Partitions(context.Context) (all []operate.Partition, err error) {
	err = w.do(func() error { all = slices.Clone(w.Owners); return nil })
	return all, err
}

// Pin implements operate.Partitions.
func (w *World) Pin(ctx context.Context, by operate.Actor, partition int, node, reason string, _ bool) error {
	return w.moved(ctx, by, "partition.pin", partition, reason, func(p *operate.Partition) { p.Pinned = node })
}

// Unpin implements operate.Partitions.
func (w *World) Unpin(ctx context.Context, by operate.Actor, partition int, reason string) error {
	return w.moved(ctx, by, "partition.unpin", partition, reason, func(p *operate.Partition) { p.Pinned = "" })
}

// StepDown implements operate.Partitions.
func (w *World) StepDown(ctx context.Context, by operate.Actor, partition int, reason string) error {
	return w.moved(ctx, by, "partition.step_down", partition, reason, func(p *operate.Partition) { p.Epoch++ })
}

// moved writes the audit entry and changes a partition.
func (w *World) moved(ctx context.Context, by operate.Actor, action string, partition int, reason string, change func(*operate.Partition)) error {
	e := operate.AuditEntry{At: w.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: action, Target: fmt.Sprintf("partition/%d", partition), Reason: reason}
	number, _, err := w.Append(ctx, e)
	if err != nil {
		return err
	}
	if err := w.do(func() error { change(&w.Owners[partition]); return nil }); err != nil {
		return err
	}
	return w.SetOutcome(ctx, number, "done")
}

func (w *World) desk() *operate.Desk {
	return operate.NewDesk(w, w.now, slog.New(slog.DiscardHandler))
}

// pausing is operate.PauseControl over the pauses of the world.
func (w *World) pausing() *operate.Pausing {
	return &operate.Pausing{Store: w, Desk: w.desk(), Flow: w, Announce: func() error { return nil }, Now: w.now}
}

// breaking is operate.BreakerControl over the breakers of the world.
func (w *World) breaking() *operate.Breaking {
	return &operate.Breaking{Store: w, Desk: w.desk(), Flow: w, Announce: func() error { return nil }, Now: w.now}
}

// Breakers implements operate.BreakerStore.
func (w *World) Breakers(context.Context) (all []core.Breaker, err error) {
	err = w.do(func() error { all = slices.Clone(w.Breaks); return nil })
	return all, err
}

// PutBreaker implements operate.BreakerStore.
func (w *World) PutBreaker(_ context.Context, b core.Breaker) (stored bool, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.Breaks, func(is core.Breaker) bool { return is.Agent == b.Agent })
		switch {
		case i < 0 && b.Revision == 1:
			w.Breaks, stored = append(w.Breaks, b), true
		case i >= 0 && w.Breaks[i].Revision == b.Revision-1:
			w.Breaks[i], stored = b, true
		}
		return nil
	})
	return stored, err
}

// ReportCalls implements operate.BreakerStore: nothing is called.
func (w *World) ReportCalls(context.Context, string, string, int64, core.Instant, core.Calls, core.Instant) (core.Calls, error) {
	return core.Calls{}, nil
}

// ParkedAt implements operate.FlowReader: nothing is.
func (w *World) ParkedAt(context.Context) (map[string][]operate.ParkedOf, error) {
	return nil, nil
}

// Parked implements operate.FlowReader: nothing is.
func (w *World) Parked(context.Context, operate.ParkedFilter) (operate.Parked, error) {
	return operate.Parked{}, nil
}

// InFlight implements operate.FlowReader: nothing is.
func (w *World) InFlight(context.Context) (map[int]operate.Count, error) {
	return map[int]operate.Count{}, nil
}

// Follow implements operate.Events: an id is a number.
func (w *World) Follow(ctx context.Context, after string, f operate.EventFilter, send func(operate.Event) error) error {
	w.Lock()
	at := len(w.EventLog)
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n > at {
			w.Unlock()
			return &operate.Refusal{Code: 400, Detail: "event " + after + " is not there any more"}
		}
		at = n
	}
	w.Unlock()
	for {
		w.Lock()
		news, wake := slices.Clone(w.EventLog[at:]), w.wake
		w.Unlock()
		for _, e := range news {
			at++
			if !f.Selects(&e) {
				continue
			}
			if err := send(e); err != nil {
				return err
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// PutToken implements operate.TokenStore.
func (w *World) PutToken(_ context.Context, t operate.Token) error {
	return w.do(func() error { w.Keys[t.ID] = t; return nil })
}

// TokenByID implements operate.TokenStore.
func (w *World) TokenByID(_ context.Context, id string) (t operate.Token, err error) {
	err = w.do(func() error {
		var ok bool
		if t, ok = w.Keys[id]; !ok {
			return fmt.Errorf("token %s: %w", id, core.ErrNotFound)
		}
		return nil
	})
	return t, err
}

// Tokens implements operate.TokenStore.
func (w *World) Tokens(context.Context) (all []operate.Token, err error) {
	err = w.do(func() error {
		for _, t := range w.Keys {
			all = append(all, t)
		}
		slices.SortFunc(all, func(x, y operate.Token) int { return cmp.Compare(x.Name, y.Name) })
		return nil
	})
	return all, err
}

// RevokeToken implements operate.TokenStore.
func (w *World) RevokeToken(_ context.Context, id string, at time.Time) error {
	return w.do(func() error {
		t := w.Keys[id]
		t.Revoked = at
		w.Keys[id] = t
		return nil
	})
}

// TouchToken implements operate.TokenStore.
func (w *World) TouchToken(_ context.Context, id string, at time.Time) error {
	return w.do(func() error {
		t := w.Keys[id]
		t.LastUsed = at
		w.Keys[id] = t
		return nil
	})
}

// AddNote implements operate.NoteStore.
func (w *World) AddNote(_ context.Context, n operate.Note) (operate.Note, error) {
	err := w.do(func() error {
		n.Number = int64(len(w.Notebook) + 1)
		w.Notebook = append(w.Notebook, n)
		return nil
	})
	return n, err
}

// Notes implements operate.NoteStore.
func (w *World) Notes(_ context.Context, target string, limit int) (notes []operate.Note, err error) {
	err = w.do(func() error {
		for _, n := range w.Notebook {
			if n.Target == target && len(notes) < limit {
				notes = append(notes, n)
			}
		}
		return nil
	})
	return notes, err
}

// PutSetting implements operate.SettingStore.
func (w *World) PutSetting(_ context.Context, name string, document []byte) error {
	return w.do(func() error { w.Documents[name] = slices.Clone(document); return nil })
}

// Setting implements operate.SettingStore.
func (w *World) Setting(_ context.Context, name string) (document []byte, err error) {
	err = w.do(func() error {
		var ok bool
		if document, ok = w.Documents[name]; !ok {
			return fmt.Errorf("setting %s: %w", name, core.ErrNotFound)
		}
		return nil
	})
	return document, err
}

// Settings implements operate.SettingStore.
func (w *World) Settings(_ context.Context, prefix string) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := w.do(func() error {
		for name, document := range w.Documents {
			if strings.HasPrefix(name, prefix) {
				all[name] = document
			}
		}
		return nil
	})
	return all, err
}

// DeleteSetting implements operate.SettingStore.
func (w *World) DeleteSetting(_ context.Context, name string) error {
	return w.do(func() error { delete(w.Documents, name); return nil })
}

// PutPause implements operate.PauseStore.
func (w *World) PutPause(_ context.Context, p operate.Pause) error {
	return w.do(func() error { w.Held = append(w.Held, p); return nil })
}

// DeletePause implements operate.PauseStore.
func (w *World) DeletePause(_ context.Context, id string) error {
	return w.do(func() error {
		w.Held = slices.DeleteFunc(w.Held, func(p operate.Pause) bool { return p.ID == id })
		return nil
	})
}

// Pauses implements operate.PauseStore.
func (w *World) Pauses(context.Context) (all []operate.Pause, err error) {
	err = w.do(func() error { all = slices.Clone(w.Held); return nil })
	return all, err
}

// PutBooks implements operate.BooksStore.
func (w *World) PutBooks(_ context.Context, r operate.BooksResult, ghosts []operate.Ghost) error {
	return w.do(func() error { w.Compared, w.Haunting = r, ghosts; return nil })
}

// LastBooks implements operate.BooksStore.
func (w *World) LastBooks(context.Context) (r operate.BooksResult, err error) {
	err = w.do(func() error { r = w.Compared; return nil })
	return r, err
}

// Ghosts implements operate.BooksStore.
func (w *World) Ghosts(_ context.Context, statuses []operate.GhostStatus, limit int, after string) (page []operate.Ghost, next string, err error) {
	err = w.do(func() error {
		for _, g := range w.Haunting {
			switch {
			case len(statuses) > 0 && !slices.Contains(statuses, g.Status) || g.Agent+" "+g.Key <= after:
			case len(page) == limit:
				next = page[limit-1].Agent + " " + page[limit-1].Key
				return nil
			default:
				page = append(page, g)
			}
		}
		return nil
	})
	return page, next, err
}

// haunt finds a ghost; nil: there is none.
func (w *World) haunt(agent, key string) *operate.Ghost {
	for i := range w.Haunting {
		if g := &w.Haunting[i]; g.Agent == agent && g.Key == key {
			return g
		}
	}
	return nil
}

// Ghost implements operate.BooksStore.
func (w *World) Ghost(_ context.Context, agent, key string) (g operate.Ghost, err error) {
	err = w.do(func() error {
		found := w.haunt(agent, key)
		if found == nil {
			return fmt.Errorf("ghost %s: %w", key, core.ErrNotFound)
		}
		g = *found
		return nil
	})
	return g, err
}

// DecideGhost implements operate.BooksStore.
func (w *World) DecideGhost(_ context.Context, g operate.Ghost) error {
	return w.do(func() error {
		found := w.haunt(g.Agent, g.Key)
		if found == nil {
			return fmt.Errorf("ghost %s: %w", g.Key, core.ErrNotFound)
		}
		*found = g
		return nil
	})
}

// SavedIDs implements operate.BooksStore.
func (w *World) SavedIDs(context.Context, int, []string) ([]core.Saved, error) { return nil, nil }

// possible is what may be asked of a task by its state, as the core has it.
var possible = map[core.State][]string{
	core.StatePending: {"cancel", "undo", "extend"}, core.StateProcessing: {"cancel", "undo", "extend"},
	core.StateProcessed: {"undo"}, core.StateUndoing: {"undo"}, core.StateUndone: {"resubmit", "edit"},
	core.StateError: {"resubmit", "edit", "accept", "resolve", "undo"},
}
