package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/console"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// drawnPlan has a step of each kind that people act on; how it fails is drawn.
func drawnPlan(r *rand.Rand) core.Plan {
	policy := []core.Policy{core.PolicyUndo, core.PolicyError, core.PolicyWait}[r.IntN(3)]
	ask := []core.AskPolicy{"", core.AskRequired}[r.IntN(2)]
	p := core.Plan{Name: "order", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "charge", Agent: "charge", Undoable: true, CompleteBy: time.Minute, AttemptsMax: 1 + r.IntN(2), OnExhausted: policy, UndoAttemptsMax: 2, KeyLasts: []time.Duration{0, 2 * time.Hour}[r.IntN(2)]},
		{Name: "approve", Kind: core.SignalStep, After: []int{0}, CompleteBy: 10 * time.Minute, Ask: ask, OnExhausted: []core.Policy{core.PolicyUndo, core.PolicyError}[r.IntN(2)]},
		{Name: "ship", Agent: "ship", After: []int{1}, Undoable: true, CompleteBy: time.Minute, OnExhausted: policy},
		{Name: "rest", Kind: core.WaitStep, After: []int{2}, For: time.Minute},
	}}
	if policy == core.PolicyWait {
		p.Steps[0].Pause, p.Steps[2].Pause = time.Minute, time.Minute
	}
	return p.WithDefaults()
}

// drawnEvent is something that may happen to a task.
func drawnEvent(r *rand.Rand, p *core.Plan, t *core.Task, at core.Instant) core.Event {
	ev := core.Event{At: at, Actor: "n1", Rand: r.Float64()}
	i := r.IntN(len(p.Steps))
	codes := []int{0, 0, 0, core.CodeAgentError, core.CodeRefused}
	switch r.IntN(14) {
	case 0, 1, 2, 3, 4:
		ev.Kind, ev.Code, ev.Result = core.EventReply, codes[r.IntN(len(codes))], []byte("1")
		for j := range t.Steps {
			if t.Steps[j].Out != 0 {
				ev.Seq = t.Steps[j].Out
			}
		}
	case 5:
		ev.Kind, ev.At = core.EventOverdue, max(at, t.NextDue(p))
	case 6:
		ev.Kind, ev.At = core.EventWake, max(at, t.NextDue(p))
	case 7, 8:
		ev.Kind, ev.Step, ev.AskToken, ev.Result = core.EventSignal, "approve", t.AskToken(p, 1), []byte("1")
		ev.Code = codes[r.IntN(len(codes))]
	case 9:
		ev.Kind = []core.EventKind{core.EventCancel, core.EventUndo}[r.IntN(2)]
	case 10:
		ev.Kind = []core.EventKind{core.EventPoison, core.EventServed, core.EventClaim}[r.IntN(3)]
	case 11:
		ev.Kind, ev.Input = []core.EventKind{core.EventResubmit, core.EventEdit}[r.IntN(2)], []byte(fmt.Sprint(i))
	case 12:
		ev.Kind, ev.Result = core.EventAccept, []byte("1")
	case 13:
		ev.Kind, ev.As = core.EventResolve, []core.State{core.StateProcessed, core.StateUndone}[r.IntN(2)]
	}
	return ev
}

// drawn are tasks as chance led them, one of each situation, by what it is.
func drawn(seed uint64) map[string]core.View {
	r := rand.New(rand.NewPCG(seed, 1))
	all := map[string]core.View{}
	var out core.Outcome
	for range 400 {
		p := drawnPlan(r)
		at := core.InstantOf(time.Now()).Add(-30 * time.Minute)
		t := &core.Task{ID: "t-1", Type: "order", Number: 1, CreatedAt: at, Parent: int64(r.IntN(8) / 7)}
		if t.Parent != 0 {
			t.ID = "t-0~part~1~0"
		}
		if r.IntN(20) == 0 {
			core.Birth(nil, t, &core.Event{At: at, Error: "no plan"}, &out)
		} else {
			core.Birth(&p, t, &core.Event{At: at}, &out)
		}
		for range r.IntN(25) {
			if t.PlanVersion == 0 {
				break
			}
			at = at.Add(time.Duration(r.Int64N(int64(time.Minute))))
			ev := drawnEvent(r, &p, t, at)
			_ = core.Apply(&p, t, &ev, &out) // what is refused changes nothing
		}
		plan := &p
		if t.PlanVersion == 0 {
			plan = nil
		}
		v := t.View(plan, nil, core.InstantOf(time.Now()))
		if r.IntN(2) == 0 {
			v.KnownBy(&p, core.InstantOf(time.Now())) // it is stored by now
		}
		name := fmt.Sprintf("%s, parent %d:", v.State, t.Parent)
		for _, s := range v.Steps {
			name += fmt.Sprintf(" %s %s asks %v", s.Name, s.Status, s.Ask != "")
		}
		all[name+fmt.Sprint(v.Possible)] = v
	}
	edited := core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "charge", Agent: "charge", OnExhausted: core.PolicyError}}}.WithDefaults()
	t := &core.Task{ID: "t-1", Type: "order", Number: 1, Earlier: make([][]byte, core.EditsMax)}
	core.Birth(&edited, t, &core.Event{At: 1}, &out)
	_ = core.Apply(&edited, t, &core.Event{Kind: core.EventReply, At: 2, Seq: 1, Code: core.CodeRefused}, &out)
	t.Earlier = make([][]byte, core.EditsMax)
	all["edited as often as it may be"] = t.View(&edited, nil, 3)
	return all
}

// oneTask is a store of one task, and the stream of what is asked of it.
type oneTask struct {
	operate.Reader
	view  core.View
	plan  *core.Plan // that is stored
	asked int
}

func (o *oneTask) Get(context.Context, int, string) (core.View, error) { return o.view, nil }
func (o *oneTask) JournalPage(context.Context, int, int64, int64, int) ([]core.Record, error) {
	return nil, nil
}
func (o *oneTask) Plans(context.Context) ([]core.Plan, error) {
	if o.plan == nil {
		return nil, nil
	}
	return []core.Plan{*o.plan}, nil
}
func (o *oneTask) Existing(context.Context, int, []string) ([]core.Existing, error) { return nil, nil }
func (o *oneTask) Counts(context.Context) ([]core.Count, error)                     { return nil, nil }
func (o *oneTask) Cursor(context.Context, int) (uint64, error)                      { return 1, nil }
func (o *oneTask) Ask(context.Context, int, core.Control) (uint64, error)           { o.asked++; return 1, nil }
func (o *oneTask) Late(*submit.Form) *ingest.Refusal                                { return nil }
func (o *oneTask) Submit(ingest.Request)                                            {}
func (o *oneTask) Append(context.Context, operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	return 1, nil, nil
}
func (o *oneTask) SetOutcome(context.Context, int64, string) error { return nil }

// blank is a trail and a book of notes in which nothing stands.
type blank struct {
	operate.TrailReader
	operate.NoteStore
}

// Audit implements operate.TrailReader.
func (blank) Audit(context.Context, operate.AuditFilter) (operate.AuditPage, error) {
	return operate.AuditPage{}, nil
}

// Notes implements operate.NoteStore.
func (blank) Notes(context.Context, string, int) ([]operate.Note, error) { return nil, nil }

// doors are the API and the console before the task, as a reader of a role sees them.
func (o *oneTask) doors(t *testing.T, role operate.Role) func(method, path, body string) (int, string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	desk := operate.NewDesk(o, time.Now, log)
	partition := func(string, int) int { return 0 }
	asks, err := api.NewRequests(api.RequestsConfig{Partitions: 1, PartitionOf: partition, Desk: desk, UnknownFor: time.Millisecond,
		Plan: func(context.Context, string, int64) (*core.Plan, error) { return o.plan, nil }}, o, o, log)
	if err != nil {
		t.Fatal(err)
	}
	actions := api.NewActions(asks)
	faces := http.NewServeMux()
	face := api.New(api.Config{Partitions: 1, PartitionOf: partition, NewID: func() string { return "x" }, Ports: api.Ports{Reader: o, Desk: desk, Actions: actions}}, o, o, asks, log)
	faces.Handle("/", face)
	face, err = console.New(console.Config{PartitionOf: func(string) int { return 0 }, Reader: o, Actions: actions, Desk: desk, Trail: blank{}, Notes: blank{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	faces.Handle(console.Path, face)
	return func(method, path, body string) (int, string) {
		r := httptest.NewRequestWithContext(operate.WithActor(t.Context(), operate.Actor{Name: "olga", Role: role, Via: "http"}), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		faces.ServeHTTP(w, r)
		data, _ := io.ReadAll(w.Body)
		return w.Code, string(data)
	}
}

// bodies are the ways in which an action can be asked for; one that is possible is taken in one of them.
func bodies(action operate.Action, v *core.View) []string {
	switch action {
	case operate.ActionUndo:
		return []string{`{"reason":"r"}`, `{"reason":"r","found":"done"}`}
	case operate.ActionResubmit:
		return []string{`{}`, `{"found":"absent"}`}
	case operate.ActionEdit:
		return []string{`{"reason":"r","input":{}}`, `{"reason":"r","input":{},"found":"absent"}`}
	case operate.ActionAccept:
		return []string{`{"reason":"r","result":1}`}
	case operate.ActionResolve:
		return []string{`{"reason":"r","as":"undone"}`}
	case operate.ActionExtend:
		return []string{fmt.Sprintf(`{"until":%q}`, time.Now().Add(20*time.Hour).UTC().Format(time.RFC3339))}
	case operate.ActionSignal:
		all := []string{`{"step":"approve","result":1}`}
		for _, s := range v.Steps {
			all = append(all, fmt.Sprintf(`{"step":%q,"result":1,"ask":%q}`, s.Name, s.Ask))
		}
		return all
	}
	return []string{`{}`}
}

// TestWhatIsPossibleIsTaken: of each situation of a task, each action and each role, the API lists what it takes and the
// console lets press the same.
//
// covers: O5
func TestWhatIsPossibleIsTaken(t *testing.T) {
	actions := []operate.Action{operate.ActionCancel, operate.ActionUndo, operate.ActionResubmit, operate.ActionEdit, operate.ActionAccept, operate.ActionResolve, operate.ActionExtend, operate.ActionSignal}
	situations, taken, refused := drawn(1), map[operate.Action]int{}, 0
	states := map[core.State]bool{}
	o := &oneTask{}
	doors := map[operate.Role]func(method, path, body string) (int, string){}
	for _, role := range []operate.Role{operate.RoleClient, operate.RoleViewer, operate.RoleOperator, operate.RoleAdmin} {
		doors[role] = o.doors(t, role)
	}
	for name, v := range situations {
		states[v.State] = true
		o.view, o.plan = v, v.Plan()
		if o.plan == nil && slices.Contains(v.Possible, "resubmit") {
			stored := drawnPlan(rand.New(rand.NewPCG(1, 1)))
			o.plan = &stored
		}
		for role, door := range doors {
			var shown struct {
				Possible []operate.Action `json:"possible"`
			}
			if code, body := door("GET", "/v1/tasks/order/"+v.ID, ""); code != 200 || json.Unmarshal([]byte(body), &shown) != nil {
				t.Fatalf("%s, %s: %d %s", name, role, code, body)
			}
			code, page := door("GET", console.Path+"tasks/order/"+v.ID, "")
			if role != operate.RoleClient && code != 200 {
				t.Fatalf("%s, %s: the page is %d", name, role, code)
			}
			for _, a := range actions {
				is := false
				ways := bodies(a, &v)
				for _, body := range ways {
					code, says := door("POST", "/v1/tasks/order/"+v.ID+"/"+string(a), body)
					is = is || code == 202 && !strings.Contains(says, "nothing changes")
				}
				if role == operate.RoleClient && a == operate.ActionCancel {
					code, says := door("DELETE", "/v1/tasks/order/"+v.ID, "")
					is = code == 202 && !strings.Contains(says, "nothing changes")
				}
				if a == operate.ActionCancel && v.State == core.StateError {
					is = false // it is an undo there, and called so
				}
				if listed := slices.Contains(shown.Possible, a); listed != is {
					t.Errorf("%s, %s: %s is listed: %v, and taken: %v", name, role, a, listed, is)
				}
				link := console.Path + "tasks/order/" + v.ID + "/act/" + string(a) + `"`
				if a == operate.ActionSignal {
					link = console.Path + "tasks/order/" + v.ID + "/signal/approve" + `"`
				}
				if pressed := strings.Contains(page, link); role != operate.RoleClient && pressed != is {
					t.Errorf("%s, %s: %s can be pressed: %v, and is taken: %v", name, role, a, pressed, is)
				}
				code, _ := door("GET", strings.TrimSuffix(link, `"`), "")
				if role != operate.RoleClient && (code == 200) != is {
					t.Errorf("%s, %s: the dialog of %s is %d, and it is taken: %v", name, role, a, code, is)
				}
				if is {
					taken[a]++
				} else {
					refused++
				}
			}
		}
	}
	t.Logf("%d situations, taken %v, refused %d", len(situations), taken, refused)
	if len(states) != 6 || len(taken) != len(actions) || len(situations) < 40 {
		t.Errorf("%d situations in the states %v, taken %v: too few were drawn", len(situations), states, taken)
	}
}
