package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/cmd/duly/internal/top"
	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// engine is an engine behind the real API: what it is asked, and what it answers.
type engine struct {
	operate.Reader // of what no test asks

	t   *testing.T
	url string

	mu       sync.Mutex
	view     core.View
	doneBy   operate.Actor
	done     []operate.Request
	refuse   error
	previews int64 // tasks of a preview
	patches  []string

	migrations []string // that previews were asked for
	stay       int64    // tasks that would be refused
	op         operate.Operation
	steps      []operate.Operation // what the operation becomes, look by look
	started    []string
	changes    []operate.Change
	moves      []string
	follows    []string // places that events were asked for after
	events     []operate.Event
	pauses     []operate.Pause
	breakers   []core.Breaker
	limits     []operate.AgentLimit
	tokens     map[string]operate.Token
	trail      []operate.AuditEntry
	notes      []operate.Note

	submitted []byte // newest input
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DULY_TOKEN", "")
	e := &engine{t: t, tokens: map[string]operate.Token{}, previews: 4312}
	e.view = core.View{ID: "o-1", Type: "order", State: core.StateError, Seq: 9, Partition: 1, Number: 3, Input: []byte(`{"cents":1,"item":"lamp"}`), FailedStep: "charge",
		Reason: "card refused", Sentence: "Step charge failed for good: card refused; it waits for an operator.", CreatedAt: core.InstantOf(time.Now())}
	log := slog.New(slog.DiscardHandler)
	partition := func(string, int) int { return 1 }
	asks, err := api.NewRequests(api.RequestsConfig{Partitions: 4, PartitionOf: partition, UnknownFor: time.Millisecond}, e, e, log)
	if err != nil {
		t.Fatal(err)
	}
	first := live.New(live.Config{Reader: looked{e}, Log: log})
	handler := api.New(api.Config{Partitions: 4, PartitionOf: partition, NewID: func() string { return "x" }, Ports: api.Ports{
		Reader: e, Trail: e, Desk: e.desk(), Actions: e, Operations: e, OperationStore: operations{engine: e}, Agents: e, Partitions: e, Events: e, Pauses: e.pausing(), Breakers: e.breaking(), Limits: e.limiting(), Versions: e.versioning(), Schedules: &operate.Scheduling{Store: noSchedules{}, Now: time.Now}, Tokens: e, Notes: e, Live: first,
		AcceptLoss: func(context.Context, string) (uint64, error) { return 6, nil },
	}}, e, e, asks, log)
	gate, err := auth.New(auth.Config{Mode: auth.Token, Tokens: e, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gate.Middleware(handler))
	t.Cleanup(s.Close)
	e.url = s.URL
	return e
}

// token makes a token of a role and puts it where commands look for it.
func (e *engine) token(role operate.Role) string {
	e.t.Helper()
	_, secret, err := auth.CreateToken(e.t.Context(), e, string(role), role, "test", time.Now(), time.Time{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Setenv("DULY_TOKEN", secret)
	return secret
}

// run runs a command as the admin, and fails the test unless it ends so and says all of these.
func (e *engine) run(code int, args string, says ...string) string {
	e.t.Helper()
	return e.runWith(code, "", strings.Fields(args), says...)
}

func (e *engine) runWith(code int, in string, args []string, says ...string) string {
	e.t.Helper()
	got, out, errs := command(e.t, in, append(args, "-s", e.url)...)
	if got != code {
		e.t.Errorf("duly %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	for _, text := range says {
		if !strings.Contains(out+errs, text) {
			e.t.Errorf("duly %s does not say %q:\n%s%s", strings.Join(args, " "), text, out, errs)
		}
	}
	return out
}

// looked is what the first screen reads.
type looked struct{ *engine }

func (looked) CountsUpTo(context.Context, int) ([]core.Count, error) {
	return []core.Count{{Type: "order", State: core.StatePending, Tasks: 2}}, nil
}

func (looked) AtRisk(context.Context, core.Instant, int) ([]core.View, bool, error) {
	return nil, false, nil
}

func (looked) Sample(context.Context, int) (operate.Sample, error) { return operate.Sample{}, nil }

func (looked) Signals(context.Context, core.Instant, int) (operate.Signals, error) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return operate.Signals{Tasks: operate.Count{N: 2}, Steps: operate.Count{N: 2}, Near: operate.Count{N: 1}, Since: &since, Next: []operate.OpenSignal{}}, nil
}

// The ports.

func (*engine) Late(*submit.Form) *ingest.Refusal { return nil }

func (e *engine) Submit(r ingest.Request) {
	e.submitted = r.Input
	r.Answer(ingest.Answer{Task: r.ID, Stream: "S", Seq: 1})
}
func (e *engine) Cursor(context.Context, int) (uint64, error)            { return 9, nil }
func (e *engine) Ask(context.Context, int, core.Control) (uint64, error) { return 5, nil }
func (e *engine) Get(_ context.Context, _ int, id string) (core.View, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if id != e.view.ID {
		return core.View{}, core.ErrNotFound
	}
	return e.view, nil
}

func (e *engine) Existing(context.Context, int, []string) ([]core.Existing, error) {
	return nil, nil
}

func (e *engine) List(context.Context, core.Filter) (core.Page, error) {
	return core.Page{Tasks: []core.View{e.view}, Next: "c-2"}, nil
}

func (e *engine) JournalPage(context.Context, int, int64, int64, int) ([]core.Record, error) {
	return []core.Record{{Seq: 9, Kind: core.KindFailed, At: core.InstantOf(time.Now()), State: core.StateError, Step: -1, Error: "card refused"}}, nil
}

func (e *engine) Groups(context.Context, operate.GroupFilter) (operate.Groups, error) {
	g, err := e.Group(e.t.Context(), "g-1")
	return operate.Groups{Groups: []operate.Group{g}, All: operate.Count{N: 1}, Tasks: g.Tasks, At: time.Now()}, err
}

func (e *engine) Group(_ context.Context, id string) (operate.Group, error) {
	if id != "g-1" {
		return operate.Group{}, core.ErrNotFound
	}
	return operate.Group{GroupKey: operate.GroupKey{Type: "order", State: core.StateError, Step: "charge", Fingerprint: "f"}, ID: id,
		Tasks: operate.Count{N: 10000, AtLeast: true}, Example: "card refused", Task: "o-1", First: time.Now(), Last: time.Now()}, nil
}

func (e *engine) Plans(context.Context) ([]core.Plan, error) {
	plan := func(version int64, attempts int) core.Plan {
		p := core.Plan{Name: "order", Version: version, Steps: []core.Step{{Name: "charge", Agent: "payment.charge", Undoable: true, AttemptsMax: attempts}}}
		return p.WithDefaults()
	}
	return []core.Plan{plan(1, 3), plan(2, 5)}, nil
}

func (e *engine) Do(_ context.Context, by operate.Actor, task operate.TaskRef, r operate.Request) (operate.Answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doneBy, e.done = by, append(e.done, r)
	if e.refuse != nil {
		return operate.Answer{}, e.refuse
	}
	return operate.Answer{Type: task.Type, ID: task.ID, Action: r.Action, State: core.StateError, Outcome: "asked: it starts again", Position: "1.5", Audit: 17, Again: r.Key == "again"}, nil
}

func (e *engine) Preview(_ context.Context, _ operate.Actor, sel operate.Selection, r operate.Request) (operate.Preview, error) {
	var changes []operate.InputChange
	if bad := r.Check(time.Now()); bad != nil {
		return operate.Preview{}, bad
	}
	if len(r.Patch) > 0 {
		e.patches = append(e.patches, string(r.Action)+" "+string(r.Patch))
		changes = []operate.InputChange{{TaskRef: operate.TaskRef{Type: "order", ID: "o-1"}, Before: []byte(`{"n":12345678901234567890,"to":"USD\u001b[2J"}`), After: []byte(`{"n":12345678901234567890,"to":"EUR"}`)},
			{TaskRef: operate.TaskRef{Type: "order", ID: "o-2"}, Why: "the patch does not apply: the input is not an object"}}
	}
	if r.Action == operate.ActionMigrate {
		return e.migration(sel, r)
	}
	return operate.Preview{Changes: changes, Token: "tok-1", Selection: "group " + sel.Group, Action: r.Action, Tasks: e.previews, Expires: time.Now().Add(time.Minute),
		Sample:    []operate.Member{{Ordinal: 1, ID: "o-1", Type: "order", Step: "charge", Outcome: operate.OutcomeWaiting}},
		Rehearsal: &operate.Rehearsal{Repairable: 3900, FailedAgain: 260, Waiting: 152, Reasons: []operate.ReasonCount{{Reason: "its deadline leaves no time", Tasks: 260}}}}, nil
}

func (e *engine) Start(_ context.Context, _ operate.Actor, token string, rate, brakePct int, reason string, confirm int64) (operate.Operation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = append(e.started, fmt.Sprint(token, " ", rate, " ", brakePct, " ", reason, " ", confirm))
	e.op = operate.Operation{ID: "op-1", State: operate.OperationRunning, Action: operate.ActionResubmit, Tasks: confirm, Tally: operate.Tally{Waiting: confirm}, Wave: 1}
	return e.op, nil
}

func (e *engine) Show(ctx context.Context, id string) (operate.Operation, error) {
	return operations{engine: e}.Operation(ctx, id)
}

func (e *engine) Change(_ context.Context, _ operate.Actor, id string, change operate.Change) (operate.Operation, error) {
	e.changes = append(e.changes, change)
	return operate.Operation{ID: id, State: operate.OperationPaused, Tasks: 5, Tally: operate.Tally{Done: 2, Waiting: 3}}, e.refuse
}

// operations is the store of operations.
type operations struct {
	operate.OperationStore
	*engine
}

func (o operations) Operation(_ context.Context, id string) (operate.Operation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id != "op-1" {
		return operate.Operation{}, core.ErrNotFound
	}
	if len(o.steps) > 0 {
		o.op, o.engine.steps = o.steps[0], o.steps[1:]
	}
	return o.op, nil
}

func (o operations) Operations(context.Context, []operate.OperationState, int, string) ([]operate.Operation, string, error) {
	return []operate.Operation{{ID: "op-1", State: operate.OperationBraked, Action: operate.ActionUndo, Tasks: 5, Tally: operate.Tally{Done: 1, FailedAgain: 2, Waiting: 2}, Selection: "group g-1", By: "ops"}}, "", nil
}

func (o operations) Members(context.Context, string, operate.Outcome, int64, int) ([]operate.Member, error) {
	return []operate.Member{{Ordinal: 7, ID: "o-1", Type: "order", Step: "charge", Outcome: operate.OutcomeFailedAgain, Text: "card refused"}}, nil
}

func (e *engine) Agents(context.Context) ([]operate.Agent, error) {
	return []operate.Agent{{Name: "payment.charge", Gone: true, Waiting: operate.Count{N: 12}, Paused: true,
		Breaker:  operate.Breaker{State: core.BreakerOpen, Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Reason: "12 of 20 calls failed"},
		Unserved: operate.Count{N: 3}, FirstDeadline: time.Date(2030, 1, 2, 4, 0, 0, 0, time.UTC), Steps: []operate.WaitingStep{{Type: "order", Step: "charge", Tasks: 15}}}}, nil
}

func (e *engine) breaking() *operate.Breaking {
	return &operate.Breaking{Store: e, Desk: e.desk(), Flow: e, Announce: func() error { return nil }, Now: time.Now}
}

func (e *engine) Breakers(context.Context) ([]core.Breaker, error) { return e.breakers, nil }

func (e *engine) PutBreaker(_ context.Context, b core.Breaker) (bool, error) {
	e.breakers = []core.Breaker{b}
	return true, nil
}

func (e *engine) ReportCalls(context.Context, string, string, int64, core.Instant, core.Calls, core.Instant) (core.Calls, error) {
	return core.Calls{}, nil
}

func (e *engine) Partitions(context.Context) ([]operate.Partition, error) {
	return []operate.Partition{{Partition: 2, Owner: "n1", Epoch: 4, Lag: 7, Pinned: "n1"}}, nil
}

func (e *engine) Pin(_ context.Context, _ operate.Actor, partition int, node, reason string, _ bool) error {
	e.moves = append(e.moves, fmt.Sprint("pin ", partition, " ", node, " ", reason))
	return e.refuse
}

func (e *engine) Unpin(_ context.Context, _ operate.Actor, partition int, reason string) error {
	e.moves = append(e.moves, fmt.Sprint("unpin ", partition, " ", reason))
	return e.refuse
}

func (e *engine) StepDown(_ context.Context, _ operate.Actor, partition int, reason string) error {
	e.moves = append(e.moves, fmt.Sprint("down ", partition, " ", reason))
	return e.refuse
}

// Follow tells one event a time, and then breaks off, so that a follower must go on after it.
func (e *engine) Follow(ctx context.Context, after string, _ operate.EventFilter, send func(operate.Event) error) error {
	e.mu.Lock()
	e.follows = append(e.follows, after)
	var next *operate.Event
	if len(e.events) > 0 {
		next, e.events = &e.events[0], e.events[1:]
		if next.Status == core.StateProcessed {
			e.view.State = core.StateProcessed
		}
	}
	e.mu.Unlock()
	if next == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := send(*next); err != nil {
		return err
	}
	// The event has left when it is asked for again; a source that ends at once may overtake it.
	timer := time.NewTimer(200 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return &operate.Refusal{Code: 503, Detail: "away"}
}

func (e *engine) pausing() *operate.Pausing {
	return &operate.Pausing{Store: e, Desk: e.desk(), Flow: e, Announce: func() error { return nil }, Now: time.Now}
}

func (e *engine) ParkedAt(context.Context) (map[string][]operate.ParkedOf, error) { return nil, nil }

func (e *engine) Parked(context.Context, operate.ParkedFilter) (operate.Parked, error) {
	return operate.Parked{}, nil
}

func (e *engine) InFlight(context.Context) (map[int]operate.Count, error) { return nil, nil }

func (e *engine) PutPause(_ context.Context, p operate.Pause) error {
	e.pauses = append(e.pauses, p)
	return nil
}

func (e *engine) DeletePause(_ context.Context, id string) error {
	e.pauses = slices.DeleteFunc(e.pauses, func(p operate.Pause) bool { return p.ID == id })
	return nil
}
func (e *engine) Pauses(context.Context) ([]operate.Pause, error) { return e.pauses, nil }

func (e *engine) PutToken(_ context.Context, t operate.Token) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokens[t.ID] = t
	return nil
}

func (e *engine) TokenByID(_ context.Context, id string) (operate.Token, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.tokens[id]
	if !ok {
		return t, core.ErrNotFound
	}
	return t, nil
}

func (e *engine) Tokens(context.Context) ([]operate.Token, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []operate.Token
	for _, t := range e.tokens {
		all = append(all, t)
	}
	return all, nil
}

func (e *engine) RevokeToken(_ context.Context, id string, at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tokens[id]
	t.Revoked = at
	e.tokens[id] = t
	return nil
}
func (e *engine) TouchToken(context.Context, string, time.Time) error { return nil }

func (e *engine) desk() *operate.Desk {
	return operate.NewDesk(e, time.Now, slog.New(slog.DiscardHandler))
}

func (e *engine) Append(_ context.Context, a operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.Number = int64(len(e.trail) + 1)
	e.trail = append(e.trail, a)
	return a.Number, nil, nil
}

func (e *engine) SetOutcome(_ context.Context, number int64, outcome string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trail[number-1].Outcome = outcome
	return nil
}

func (e *engine) Audit(context.Context, operate.AuditFilter) (operate.AuditPage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return operate.AuditPage{Entries: slices.Clone(e.trail)}, nil
}

func (e *engine) AddNote(_ context.Context, n operate.Note) (operate.Note, error) {
	n.Number = 1
	e.notes = append(e.notes, n)
	return n, nil
}
func (e *engine) Notes(context.Context, string, int) ([]operate.Note, error) { return e.notes, nil }

// TestActionsOnATask: each command asks for its action with what it was given, by the actor of the token.
//
// covers: OP23, OP10, OP11, S15, T5
func TestActionsOnATask(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"cents":2,"item":"lamp"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]operate.Request{
		"task undo order o-1 --reason why":                                         {Action: operate.ActionUndo, Reason: "why"},
		"task resubmit order o-1 --step charge --if-seq 9 --key again":             {Action: operate.ActionResubmit, Step: "charge", IfSeq: 9, Key: "again"},
		"task edit order o-1 --reason why --input @" + file:                        {Action: operate.ActionEdit, Reason: "why", Input: []byte(`{"cents":2,"item":"lamp"}`), IfSeq: 9},
		"task accept order o-1 --reason why --result {\"n\":18446744073709551615}": {Action: operate.ActionAccept, Reason: "why", Result: []byte(`{"n":18446744073709551615}`)},
		"task resolve order o-1 --reason why --as undone":                          {Action: operate.ActionResolve, Reason: "why", As: core.StateUndone},
		"signal order/o-1 approve {\"by\":\"ann\"}":                                {Action: operate.ActionSignal, Step: "approve", Result: []byte(`{"by":"ann"}`)},
		"signal order/o-1 approve --refuse why":                                    {Action: operate.ActionSignal, Step: "approve", Reason: "why"},
		"task extend order o-1 --until 2036-01-02T03:04:05Z":                       {Action: operate.ActionExtend, Until: time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC)},
	} {
		said := "asked: " + string(want.Action) + " of o-1, which is error: it starts again (audit 17)"
		if want.Key == "again" {
			said = "this was requested before with this key, so nothing was done again: resubmit of o-1"
		}
		e.run(exitDone, args, said)
		got := e.done[len(e.done)-1]
		if got.Key == "" || want.Key != "" && got.Key != want.Key {
			t.Errorf("%s: key %q", args, got.Key)
		}
		want.Key, got.Key = "", ""
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: asked %v, want %v", args, got, want)
		}
		if e.doneBy.Name != "operator" || e.doneBy.Role != operate.RoleOperator {
			t.Errorf("%s: by %+v", args, e.doneBy)
		}
	}
	// What is asked is shown, and the answer says that it is for that.
	e.view.Steps = []core.StepView{{Name: "approve", Kind: core.SignalStep, Status: core.StepRunning.String(), Ask: "0.12ab"}}
	e.run(exitDone, "signal order/o-1 approve true", `Step approve asks, in round 0 of the task, about this input: {"cents":1,"item":"lamp"}`)
	if got := e.done[len(e.done)-1]; got.Ask != "0.12ab" {
		t.Errorf("the answer is to %q", got.Ask)
	}
	e.run(exitDone, "signal order/o-1 approve true --ask 0.34cd")
	if got := e.done[len(e.done)-1]; got.Ask != "0.34cd" {
		t.Errorf("the answer is to %q", got.Ask)
	}
	e.view.Steps = nil
	// What differs is shown before it is asked.
	e.run(exitDone, "task edit order o-1 --reason why --input @"+file, `-  "cents": 1,`, `+  "cents": 2,`)
	asked := len(e.done)
	for args, says := range map[string]string{
		"signal o-1 approve 1": "one of them", "signal order/o-1 approve": "one of them", "signal order/o-1 approve 1 --refuse x": "one of them", "signal order/o-1 approve {": "payload is not JSON",
		"task undo order o-1": "reason: none given", "task edit order o-1 --reason x": "input: none given", "task edit order o-1 --reason x --input {": "input is not JSON",
		"task edit order o-1 --reason x --input {\"cents\":1,\"item\":\"lamp\"}": "the new one is the old one", "task extend order o-1 --until soon": `until: "soon", want`,
		"task resolve order o-1 --reason x --as done": "--as", "task accept order o-1 --reason x": "--result", "task undo order": "<id>",
		"task undo order o-1 --reason " + strings.Repeat("x", core.WordsBytesMax+1): "want at most 1000", "op rate op-1 many --reason x": "many", "task why a b c": "3 words",
	} {
		e.run(exitUse, args, says)
	}
	if len(e.done) != asked {
		t.Error("something was asked though the command was wrong")
	}
	e.refuse = &operate.Refusal{Code: 409, Detail: `task "o-1" is processed`, Possible: []operate.Action{operate.ActionUndo}}
	e.run(exitState, "task resubmit order o-1", `task "o-1" is processed; possible now: undo (409)`)
}

// TestSubmissionIsWhole: what belongs to a submission stands in its headers, and its input is as it was given.
func TestSubmissionIsWhole(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var got *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"id":"o-1","stream_position":"1.5"}`)
	}))
	t.Cleanup(s.Close)
	code, out, errs := command(t, `{"n":18446744073709551615, "a":1}`, "task", "submit", "order", "o-1", "-", "--complete-by", "30s", "--plan-version", "2", "-l", "region=eu", "-l", "tier=gold", "--priority", "low", "-s", s.URL)
	if code != exitDone || out != "o-1 is stored at 1.5\n" {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if got.Method != http.MethodPut || got.URL.Path != "/v1/tasks/order/o-1" || string(body) != `{"n":18446744073709551615, "a":1}` {
		t.Errorf("%s %s %s", got.Method, got.URL.Path, body)
	}
	for name, want := range map[string]string{"Duly-Complete-By": "30s", "Duly-Plan-Version": "2", "Duly-Labels": "region=eu,tier=gold,duly-priority=low"} {
		if is := got.Header.Get(name); is != want {
			t.Errorf("%s: %q, want %q", name, is, want)
		}
	}
	if code, _, errs := command(t, "{}", "task", "submit", "order", "o-1", "-", "--priority", "urgent", "-s", s.URL); code != exitUse || !strings.Contains(errs, `priority: priority "urgent", want high, normal or low`) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestLists: what is listed, in every format.
//
// covers: OP23, OP25
func TestLists(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleAdmin)
	e.run(exitDone, "pause set --agent payment.charge --until 1h --reason outage", "paused as ")
	e.run(exitDone, "note g-1 known", "noted about g-1")
	for args, says := range map[string][]string{
		"task list":              {"TYPE", "order", "o-1", "error", "more: --after c-2"},
		"task journal order o-1": {"SEQ", "failed", "card refused"},
		"plan list":              {"order", "2"},
		"failures list":          {"≥ 10,000", "charge", "card refused"},
		"op list":                {"FAILED AGAIN", "braked", "group g-1"},
		"op show op-1 --members": {"failed_again", "card refused"},
		"agents":                 {"payment.charge", "12", "yes", "BREAKER", "open until 2030-01-02T03:04:05Z: 12 of 20 calls failed", "FIRST DEADLINE", "2030-01-02T04:00:00Z", "order/charge: 15"},
		"agents list":            {"payment.charge"},
		"partitions list":        {"PINNED", "n1", "7"},
		"pause list":             {"payment.charge", "outage", "WAITING", "FIRST DEADLINE"},
		"note g-1":               {"known"},
		"audit":                  {"pause.set", "note.add", "outage", "done"},
		"token list":             {"admin"},
	} {
		e.run(exitDone, args, says...)
		var body map[string]any
		if err := json.Unmarshal([]byte(e.run(exitDone, args+" -o json")), &body); err != nil {
			t.Errorf("%s -o json: %v", args, err)
		}
		if err := yaml.Unmarshal([]byte(e.run(exitDone, args+" -o yaml")), &body); err != nil {
			t.Errorf("%s -o yaml: %v", args, err)
		}
		records, err := csv.NewReader(strings.NewReader(e.run(exitDone, args+" -o csv"))).ReadAll()
		if err != nil || len(records) < 2 {
			t.Errorf("%s -o csv: %v %v", args, records, err)
		}
	}
	e.run(exitDone, "status", "2 tasks waiting for an answer: 1 of them must be answered within 5 min", "duly list --waits signal")
	e.run(exitDone, "status -o json", `"signals":{"tasks":{"n":2}`)
	e.run(exitDone, "failures show g-1", "FINGERPRINT", "≥ 10,000")
	e.run(exitDone, "plan show order", "VERSION", "2", "payment.charge")
	e.run(exitDone, "plan show order --version 1 -o csv", "charge,payment.charge")
	e.run(exitDone, "plan show order --yaml", "name: order\nversion: 2\n", "  - name: charge\n    agent: payment.charge\n    attempts_max: 5\n")
	e.run(exitFailed, "plan diff order@1 order@2 --unified", `-      "attempts_max": 3,`, `+      "attempts_max": 5,`)
	e.run(exitFailed, "plan diff order@1", "plan order: version 2, compared with version 1", "step charge: attempts_max is 5, it was 3", "from the step's next try on")
	e.run(exitFailed, "plan diff order@1 order@2 -o json", `"what":"step_field","step":"charge","field":"attempts_max","was":3,"is":5`)
	e.run(exitDone, "plan diff order@2 order@2", "the same")
	e.run(exitUse, "plan diff order@x", `plan version "x" is not a whole number`)
	e.run(exitUse, "plan diff no/such", "is no file, and no NAME@VERSION")
	e.run(exitNotFound, "plan diff order@1 order@7", "versions stored: 1 2")
	e.run(exitDone, "plan deprecate order 1 --reason old", "plan order version 1 is deprecated; new submissions take version 2")
	e.run(exitDone, "list --plan-version 2", "PLAN VERSION")
	e.run(exitDone, "plan list", "DEPRECATED", "2026-01-02")
	e.run(exitFailed, "plan diff order@1 order@2") // the mark is no part of the plan
	e.run(exitDone, "plan deprecate order 2 --reason old", "every version is, so submissions are refused, and steps fail whose children it is for, until another is applied")
	e.run(exitDone, "plan deprecate order 1 --undo --reason again", "deprecated no more; new submissions take version 1")
	e.run(exitNotFound, "plan deprecate order 7 --reason old", "version 7")
	e.run(exitUse, "plan deprecate order 1", "reason: none given")
	e.run(exitNotFound, "plan show order --version 7", `versions stored: 1 2`)
	e.run(exitNotFound, "failures show g-2")
	e.run(exitNotFound, "why o-9", "no task")
	out := e.run(exitDone, "why o-1")
	if out != e.view.Sentence+"\n" || out != e.run(exitDone, "task why order o-1") || out != e.run(exitDone, "why order/o-1") {
		t.Errorf("why: %q", out)
	}
	if got := e.run(exitDone, "get order o-1", "order  o-1"); got != e.run(exitDone, "get o-1") || got != e.run(exitDone, "task get order/o-1") {
		t.Errorf("get by the id alone: %q", got)
	}
	e.run(exitNotFound, "get o-9", `no task "o-9" of any of`)
	e.run(exitUse, "get order o-1 o-2", "want type and id, type/id, or the id alone")
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("name: order\nversion: 3\nsteps:\n- name: charge\n  agent: payment.charge\n  attempts_max: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.run(exitDone, "plan diff "+file, "the same") // but for the version
	e.run(exitFailed, "plan diff "+file+" order@1", "version 3, compared with version 1")
	e.run(exitFailed, "plan diff order@1 "+file, "version 3, compared with version 1")
	e.run(exitNotFound, "plan show ordre", `no plan "ordre" is stored`)
}

// TestManaging: partitions, pauses, tokens and operations are changed with a reason, which the API keeps.
//
// covers: OP23, OP16, OP19
func TestManaging(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleAdmin)
	e.run(exitDone, "partitions pin 2 n1 --reason warm", "partition 2: pinned to n1")
	e.run(exitDone, "partitions unpin 2 --reason warm", "no longer pinned")
	e.run(exitDone, "partitions step-down 2 --reason hot", "asked to hand it over")
	if got := fmt.Sprint(e.moves); got != "[pin 2 n1 warm unpin 2 warm down 2 hot]" {
		t.Error(got)
	}
	e.run(exitUse, "partitions pin 2 n1", "reason: none given")
	e.run(exitDone, "accept-loss DULY_TASKS --reason purged", "DULY_TASKS: 6 missing messages accepted")
	if got := e.trail[len(e.trail)-1]; got.Action != "stream.accept_loss" || got.Target != "stream/DULY_TASKS" || got.Reason != "purged" || got.Outcome != "done" {
		t.Errorf("%+v", got)
	}
	e.run(exitUse, "accept-loss DULY_TASKS", "reason: none given")
	e.run(exitNotFound, "partitions step-down 9 --reason x", "there are 4")
	e.run(exitUse, "pause set --reason x", "nothing to pause")
	e.run(exitUse, "pause set --step charge --agent a --reason x", "step: goes with --type")
	e.run(exitDone, "pause set --type order --step charge --reason x")
	e.run(exitDone, "pause lift "+e.pauses[0].ID+" --reason over", "lifted")
	if len(e.pauses) != 0 {
		t.Error("the pause is still there")
	}
	e.run(exitDone, "agents open payment.charge --for 10m --reason down", "the circuit breaker of payment.charge is open, forced by admin, until 20")
	if b := e.breakers[0]; b.State != core.BreakerOpen || !b.Forced || b.Until == 0 || b.Reason != "down" || b.By != "admin" {
		t.Errorf("%+v", b)
	}
	e.run(exitDone, "agents close payment.charge --reason up", "the circuit breaker of payment.charge is closed, forced by admin, until it is set to auto (duly agents auto payment.charge --reason 'why')")
	e.run(exitDone, "agents close payment.charge --reason up -o json", `"state":"closed"`, `"forced":true`)
	e.run(exitDone, "agents auto payment.charge --reason up", "the circuit breaker of payment.charge opens and closes automatically again; it is closed now")
	e.run(exitState, "agents auto payment.charge --reason up", "is not forced")
	e.run(exitNotFound, "agents open paiment --reason up", "no stored plan has a step at agent")
	e.run(exitUse, "agents open payment.charge", "reason: none given")
	e.run(exitUse, "agents open payment.charge --for soon --reason x", `for: "soon"`)
	e.run(exitDone, "op pause op-1 --reason slow", "operation op-1 is paused, rate 0: done 2  failed_again 0  skipped 0  asked 0  waiting 3")
	e.run(exitDone, "op resume op-1 --reason go")
	e.run(exitDone, "op stop op-1 --reason end")
	e.run(exitDone, "op rate op-1 50 --reason calm")
	for i, want := range []operate.OperationState{operate.OperationPaused, operate.OperationRunning, operate.OperationStopped, ""} {
		if e.changes[i].State != want || e.changes[i].Reason == "" {
			t.Errorf("%+v", e.changes[i])
		}
	}
	if r := e.changes[3].Rate; r == nil || *r != 50 {
		t.Error("no rate")
	}
	secret := strings.TrimSpace(e.runWith(exitDone, "", []string{"token", "create", "ci", "--role", "viewer", "--expires", "1h"}, "it is shown this once"))
	if !strings.HasPrefix(secret, "duly_") || strings.Contains(secret, "\n") {
		t.Fatalf("%q", secret)
	}
	id := strings.Split(secret, "_")[1]
	e.run(exitDone, "token revoke "+id+" --reason gone", "is revoked")
	t.Setenv("DULY_TOKEN", secret)
	e.run(exitForbidden, "agents", "401")
}

// TestExitStatuses: every status of the table can be had, and its reason stands there.
//
// covers: OP23, OP17, OP22
func TestExitStatuses(t *testing.T) {
	e := newEngine(t)
	e.run(exitForbidden, "agents", "this needs a token")
	e.token(operate.RoleViewer)
	e.run(exitDone, "agents")
	e.run(exitForbidden, "task undo order o-1 --reason x", "has the role viewer; this needs the role operator (403)")
	e.run(exitForbidden, "token list", "needs the role admin")
	e.run(exitNotFound, "task get order o-9", "no task")
	e.run(exitUse, "list --limit 0", "limit")
	e.run(exitDone, "task list --deadline-to 10m --created-from 2h --created-to 2099-01-31T12:00:00Z", "o-1")
	e.run(exitUse, "task list --deadline-to soon", `deadline-to: "soon", want a time`)
	e.token(operate.RoleOperator)
	e.refuse = &operate.Refusal{Code: 409, Detail: "not now"}
	e.run(exitState, "task resubmit order o-1", "not now")
	e.refuse = errors.New("broken")
	e.run(exitUnreachable, "task resubmit order o-1", "(503)")
	e.url = "http://127.0.0.1:1"
	e.run(exitUnreachable, "agents", "is a node running there?")
	e.run(exitUnreachable, "task resubmit order o-1 --key k-1", "whether the resubmit was asked is not known; with --key k-1 it is carried out once")
	code, out, _ := command(t, "", "--help")
	for _, x := range exits {
		word, _, _ := strings.Cut(x.what, ":")
		if want := fmt.Sprintf("%d %s", x.code, strings.TrimSpace(word)); code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("the help does not say %q:\n%s", want, out)
		}
	}
}

// answering is a terminal on which a person types.
type answering struct{ io.Reader }

func (answering) Prompting() bool { return true }

// TestRepair: nothing is started unless the number of tasks is said; then the operation is followed to its end.
//
// covers: OP23, OP9, OP10, OP2
func TestRepair(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	e.run(exitDone, "failures preview g-1", "SELECTION", "group g-1", "REPAIRABLE    3900", "FAILED AGAIN  260", "its deadline leaves no time", "o-1", "To carry it out on these tasks: duly failures repair g-1 --preview tok-1 --reason 'why'")
	e.run(exitDone, `failures preview g-1 --patch {"to":"EUR"}`, "order o-1:", "n\": 12345678901234567890", `-  "to": "USD`, `+  "to": "EUR"`, "order o-2: the patch does not apply: the input is not an object")
	e.run(exitUse, "failures preview g-1 --patch {", "patch is not JSON")
	e.run(exitUse, "failures preview g-1 --action edit", "patch: none given")
	e.run(exitUse, `failures preview g-1 --action undo --patch {"a":1}`, "undo takes no patch")
	if got := fmt.Sprint(e.patches); got != `[edit {"to":"EUR"}]` {
		t.Errorf("patches %s", got)
	}
	e.run(exitUse, "failures repair g-1 --reason fixed", "no terminal to ask at: --yes 4312")
	e.run(exitUse, "failures repair g-1 --yes 4312", "reason: none given")
	e.run(exitState, "failures repair g-1 --reason fixed --yes 4300", "the preview has 4,312 tasks, and --yes says 4300; nothing was started")
	e.previews = 0
	e.run(exitState, "failures repair g-1 --reason fixed --yes 5", "no task any more")
	e.previews = 4312
	typed := func(answer string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"failures", "repair", "g-1", "--reason", "fixed", "-s", e.url}, streams{answering{strings.NewReader(answer)}, &out, &errs})
		return code, out.String() + errs.String()
	}
	if code, said := typed("4321\n"); code != exitState || !strings.Contains(said, `"4321" was typed; nothing was started`) {
		t.Errorf("%d %s", code, said)
	}
	if len(e.started) != 0 {
		t.Fatalf("started: %v", e.started)
	}
	running := func(done, failed, waiting int64, wave int) operate.Operation {
		return operate.Operation{ID: "op-1", State: operate.OperationRunning, Tasks: 4312, Tally: operate.Tally{Done: done, FailedAgain: failed, Waiting: waiting}, Wave: wave}
	}
	ended := running(4312, 0, 0, 5)
	ended.State = operate.OperationDone
	e.steps = []operate.Operation{running(1, 0, 4311, 1), running(6, 0, 4306, 2), ended}
	if code, said := typed("4,312\n"); code != exitDone || !strings.Contains(said, "running wave 1: done 1") || !strings.Contains(said, "running wave 2: done 6") || !strings.Contains(said, "STATE         done") {
		t.Errorf("%d %s", code, said)
	}
	braked := running(20, 11, 4281, 3)
	braked.State, braked.Why = operate.OperationBraked, "wave 3: 40 % failed alike"
	e.steps = []operate.Operation{braked}
	e.run(exitFailed, "failures repair g-1 --reason fixed --yes 4312 --rate 50 --brake 10", "braked", "wave 3: 40 % failed alike", "FAILED AGAIN  11")
	failed := ended
	failed.Tally = operate.Tally{Done: 4311, FailedAgain: 1}
	e.steps = []operate.Operation{failed}
	e.run(exitFailed, "op watch op-1", "FAILED AGAIN  1")
	e.run(exitDone, "failures repair g-1 --reason fixed --preview tok-0 --yes 17 --detach", "operation op-1 is running over 17 tasks")
	e.run(exitUse, "failures repair g-1 --reason fixed --preview tok-0 --detach", "--yes with its number")
	want := "[tok-1 0 20 fixed 4312 tok-1 50 10 fixed 4312 tok-0 0 20 fixed 17]"
	if got := fmt.Sprint(e.started); got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// TestTailAndWatch: events come once each, though the stream breaks off after each.
//
// covers: OP23
func TestTailAndWatch(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleViewer)
	e.view.State = core.StateProcessing
	e.events = []operate.Event{
		{ID: "1", Type: "order", Task: "o-1", Status: core.StateProcessing, Step: "charge", At: time.Now()},
		{ID: "2", Type: "order", Task: "o-1", Status: core.StateProcessed, At: time.Now()},
	}
	out := e.run(exitDone, "task watch order o-1", "processing", "processed", "reconnecting")
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, out)
	}
	if got := fmt.Sprint(e.follows); got != "[ 1]" {
		t.Errorf("events were asked for after %s", got)
	}
	e.view.State = core.StateUndone
	e.run(exitFailed, "task watch order o-1", "undone")
	e.run(exitNotFound, "task watch order o-9")

	e.follows = nil
	e.events = []operate.Event{{ID: "8", Type: "order", Task: "o-1", Status: core.StateProcessing, Error: "x\x1b[2J", At: time.Now()}, {ID: "9", Type: "order", Task: "o-2", Status: core.StateUndone, At: time.Now()}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &until2{cancel: cancel, lines: 2}
	var errs bytes.Buffer
	if code := run(ctx, []string{"tail", "--since", "7", "-s", e.url}, streams{strings.NewReader(""), w, &errs}); code != exitDone || !strings.Contains(errs.String(), "it goes on with --since 9") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if got := w.String(); !strings.Contains(got, "o-1  processing  x\uFFFD[2J") || !strings.Contains(got, "o-2  undone") || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	if got := fmt.Sprint(e.follows[:2]); got != "[7 8]" {
		t.Errorf("events were asked for after %s", got)
	}
}

// TestWatchAsksAgain: a read after an event that is refused for a moment is made again.
//
// covers: OP23
func TestWatchAsksAgain(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleViewer)
	e.view.State = core.StateProcessing
	e.events = []operate.Event{{ID: "1", Type: "order", Task: "o-1", Status: core.StateProcessed, At: time.Now()}}
	node, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	through, reads := httputil.NewSingleHostReverseProxy(node), 0
	through.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/o-1") {
			if reads++; reads == 2 {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	e.url = front.URL
	e.run(exitDone, "task watch order o-1", "processing", "processed")
	if reads != 3 {
		t.Errorf("%d reads", reads)
	}
}

// TestKeyOfAChange: a command whose answer is lost says the key that it sent, under which the change is asked for again.
//
// covers: OP23
func TestKeyOfAChange(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	keys := make(chan string, 1)
	lost := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(lost.Close)
	for _, args := range []string{"schedule run-now nightly", "pause set --type order --reason outage", "books --repair accept --effect e --agent a --reason r", "task undo order o-1 --reason r"} {
		code, _, errs := command(t, "", append(strings.Fields(args), "-s", lost.URL)...)
		key := <-keys
		if code != exitUnreachable || key == "" || !strings.Contains(errs, "with --key "+key+" it is carried out once") {
			t.Errorf("duly %s: exit %d, key %q\n%s", args, code, key, errs)
			continue
		}
		_, _, _ = command(t, "", append(strings.Fields(args), "--key", key, "-s", lost.URL)...)
		if again := <-keys; again != key {
			t.Errorf("duly %s: keys %q and %q", args, key, again)
		}
	}
}

// until2 ends a command after so many lines.
type until2 struct {
	bytes.Buffer
	cancel context.CancelFunc
	lines  int
}

// Write implements io.Writer.
func (w *until2) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if bytes.Count(w.Bytes(), []byte("\n")) >= w.lines {
		w.cancel()
	}
	return n, err
}

// TestWordsAreTheAPIs: every column of every table is a member of what the API answers, by its own description; the words
// for actions, roles, states and outcomes that flags take are the API's; why is the sentence of the core.
//
// covers: OP23, OP1
func TestWordsAreTheAPIs(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleViewer)
	resp, err := http.Get(e.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	member := func(schema map[string]any, name string) map[string]any {
		for range 4 { // references, and what lists are of
			if ref, ok := schema["$ref"].(string); ok {
				schema = doc.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
			}
			if items, ok := schema["items"].(map[string]any); ok {
				schema = items
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		found, _ := properties[name].(map[string]any)
		return found
	}
	for schema, columns := range map[string][][]string{
		"Task": {taskColumns, taskListColumns}, "Accepted": {submittedColumns}, "Cancelled": {cancelledColumns}, "Record": {journalColumns}, "Answer": {answerColumns},
		"Plan": {planListColumns}, "PlanStep": {planColumns}, "Group": {groupColumns, groupFields, top.FailureColumns}, "Preview": {previewFields}, "Rehearsal": {rehearsalFields},
		"ReasonCount": {reasonColumns}, "Member": {memberColumns}, "Operation": {opColumns, opFields, top.OperationColumns}, "Agent": {agentColumns, top.AgentColumns}, "Breaker": {breakerFields},
		"Partition": {partitionColumns}, "Pause": {pauseColumns}, "PauseView": {pauseListColumns}, "AuditEntry": {auditColumns, auditRecord}, "Token": {tokenColumns}, "Note": {noteColumns}, "Ghost": {ghostColumns}, "ScheduleView": {scheduleColumns, scheduleFields}, "ScheduleRun": {scheduleRunFields}, "Limit": {limitColumns}, "KeyGranted": {limitKeyColumns},
	} {
		if doc.Components.Schemas[schema] == nil {
			t.Errorf("the API describes no %s", schema)
			continue
		}
		for _, list := range columns {
			for _, column := range show.Paths(list) {
				is := doc.Components.Schemas[schema]
				for name := range strings.SplitSeq(column, ".") {
					if is = member(is, name); is == nil {
						t.Errorf("%s has no %s", schema, column)
						break
					}
				}
			}
		}
	}
	words := func(what string, flag any, api map[string]any) {
		t.Helper()
		var all []string
		enum, _ := api["enum"].([]any)
		for _, word := range enum {
			all = append(all, fmt.Sprint(word))
		}
		for _, word := range strings.Split(fmt.Sprint(flag), ",") {
			if !slices.Contains(all, word) {
				t.Errorf("%s: %q is none of the API's %q", what, word, all)
			}
		}
	}
	body := func(path, method string) map[string]any {
		content, _ := doc.Paths[path][method]["requestBody"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)
		schema, _ := content["schema"].(map[string]any)
		return schema
	}
	words("failures repair --action", "resubmit,edit,undo,accept,resolve", member(body("/v1/operations/preview", "post"), "action"))
	words("token create --role", "client,viewer,operator,admin", member(body("/v1/tokens", "post"), "role"))
	words("op pause, resume, stop", "paused,running,stopped", member(body("/v1/operations/{operation}", "patch"), "state"))
	for _, action := range []string{"cancel", "undo", "resubmit", "edit", "accept", "resolve", "extend"} {
		if doc.Paths["/v1/tasks/{type}/{id}/"+action]["post"] == nil {
			t.Errorf("the API has no %s", action)
		}
		if code, out, _ := command(t, "", "task", action, "--help"); code != 0 || !strings.Contains(out, "duly task "+action) {
			t.Errorf("there is no duly task %s", action)
		}
	}
	if got := e.run(exitDone, "why order o-1"); got != e.view.Sentence+"\n" {
		t.Errorf("why: %q", got)
	}
}
