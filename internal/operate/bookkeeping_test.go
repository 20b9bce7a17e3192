package operate_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// shelf is a state store with one ghost, in memory.
type shelf struct {
	operate.BooksStore
	operate.SettingStore
	*world
	last     operate.BooksResult
	ghost    *operate.Ghost
	settings map[string][]byte
	asked    []operate.Request
	refuse   *operate.Refusal
	full     bool
	keys     map[string]int64
}

func newShelf() *shelf {
	w := newWorld()
	s := &shelf{world: w, settings: map[string][]byte{}, keys: map[string]int64{}}
	s.last = operate.BooksResult{Begun: w.now.Add(-time.Minute), At: w.now, Agents: []operate.AgentBooks{{Agent: "payment", Effects: 3}}, Effects: 3, Total: 1}
	s.ghost = &operate.Ghost{Kind: operate.GhostOfUndone, Agent: "payment", Key: "o-1/pay/0", Task: "o-1", Type: "order", Step: "pay", State: core.StateUndone, Seq: 9, Times: 1, Text: "it stands",
		Status: operate.GhostOpen, Repairs: operate.RepairsOf(true)}
	return s
}

func (s *shelf) books() *operate.Bookkeeping {
	return &operate.Bookkeeping{Store: s, Settings: s, Desk: operate.NewDesk(s, func() time.Time { return s.now }, slog.New(slog.DiscardHandler)), Actions: s, Now: func() time.Time { return s.now }}
}

func (s *shelf) LastBooks(context.Context) (operate.BooksResult, error) {
	if s.last.At.IsZero() {
		return s.last, core.ErrNotFound
	}
	return s.last, nil
}

func (s *shelf) Ghost(_ context.Context, agent, key string) (operate.Ghost, error) {
	if s.ghost == nil || s.ghost.Agent != agent || s.ghost.Key != key {
		return operate.Ghost{}, core.ErrNotFound
	}
	return *s.ghost, nil
}

func (s *shelf) DecideGhost(_ context.Context, g operate.Ghost) error {
	if s.full {
		return &operate.Refusal{Code: 409, Detail: "too many are accepted"}
	}
	if s.ghost == nil {
		return core.ErrNotFound
	}
	*s.ghost = g
	return nil
}

func (s *shelf) Setting(_ context.Context, name string) ([]byte, error) {
	if d, ok := s.settings[name]; ok {
		return d, nil
	}
	return nil, core.ErrNotFound
}

func (s *shelf) PutSetting(_ context.Context, name string, document []byte) error {
	s.settings[name] = document
	return s.failing
}

func (s *shelf) Do(_ context.Context, _ operate.Actor, task operate.TaskRef, r operate.Request) (operate.Answer, error) {
	s.asked = append(s.asked, r)
	if s.refuse != nil {
		return operate.Answer{}, s.refuse
	}
	return operate.Answer{Type: task.Type, ID: task.ID, Action: r.Action, Outcome: "asked", Audit: 41, Again: len(s.asked) > 1}, nil
}

func (s *shelf) Append(ctx context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	if n, again := s.keys[e.Key]; again && e.Key != "" {
		return n, &s.trail[n-1], nil
	}
	n, _, err := s.world.Append(ctx, e)
	s.trail[n-1].Number = n
	s.keys[e.Key] = n
	return n, nil, err
}

// An undo reaches the task's owner with the step and the journal row that the comparison saw; a ghost of a processed task
// has the whole task undone.
//
// covers: OP10, OP16
func TestRepairByUndo(t *testing.T) {
	s := newShelf()
	request := operate.RepairRequest{Agent: "payment", Effect: "o-1/pay/0", Repair: operate.RepairUndo, Reason: "the customer complained", Key: "k1"}
	answer, err := s.books().Repair(t.Context(), olga, request)
	if err != nil || answer.Audit != 41 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if want := (operate.Request{Action: operate.ActionUndo, Step: "pay", Reason: "the customer complained", IfSeq: 9, Key: "k1"}); len(s.asked) != 1 || s.asked[0].Step != want.Step || s.asked[0].IfSeq != want.IfSeq ||
		s.asked[0].Key != want.Key || s.asked[0].Action != want.Action || s.asked[0].Reason != want.Reason {
		t.Fatalf("asked %+v", s.asked)
	}
	if g := s.ghost; g.Status != operate.GhostAsked || g.By != "olga" || !g.Decided.Equal(s.now) || g.Repair != operate.RepairUndo || g.Audit != 41 {
		t.Errorf("%+v", g)
	}
	s.ghost.Status, s.ghost.State = operate.GhostOpen, core.StateProcessed
	if _, err := s.books().Repair(t.Context(), olga, request); err != nil || s.asked[1].Step != "" {
		t.Errorf("of a processed task: %+v, %v", s.asked, err)
	}
	s.refuse = &operate.Refusal{Code: 409, Detail: "it has changed since"}
	s.ghost.Status = operate.GhostOpen
	if _, err := s.books().Repair(t.Context(), olga, request); !errors.Is(err, s.refuse) || s.ghost.Status != operate.GhostOpen {
		t.Errorf("refused by the owner: %v, the ghost is %s", err, s.ghost.Status)
	}
}

// An accepted ghost is remembered with who, when and why, once for one key.
//
// covers: OP10, OP16
func TestRepairByAccept(t *testing.T) {
	s := newShelf()
	request := operate.RepairRequest{Agent: "payment", Effect: "o-1/pay/0", Repair: operate.RepairAccept, Reason: "paid back", Key: "k1"}
	answer, err := s.books().Repair(t.Context(), olga, request)
	if err != nil || answer.Again || s.ghost.Status != operate.GhostAccepted || s.ghost.Reason != "paid back" || len(s.asked) != 0 {
		t.Fatalf("%+v, %+v, %v", answer, s.ghost, err)
	}
	if e := s.newest(t); e.Action != "books.accept" || e.Target != "effect/payment/o-1/pay/0" || e.Outcome != "done" || e.Reason != "paid back" || e.Actor != "olga" || !strings.Contains(string(e.Before), `"kind":"effect_of_undone"`) {
		t.Errorf("audit trail %+v", e)
	}
	again, err := s.books().Repair(t.Context(), olga, request)
	if err != nil || !again.Again || again.Audit != answer.Audit || len(s.trail) != 1 {
		t.Errorf("the same key again: %+v, %v, %d entries", again, err, len(s.trail))
	}
	s.full = true
	request.Key = "k2"
	if _, err := s.books().Repair(t.Context(), olga, request); err == nil || !strings.HasPrefix(s.newest(t).Outcome, "refused: too many") {
		t.Errorf("one too many: %v, %+v", err, s.newest(t))
	}
}

func (s *shelf) newest(t *testing.T) operate.AuditEntry { return s.world.last(t) }

// What cannot be is refused with the field, and written down; nothing is asked.
//
// covers: OP16, OP17
func TestRepairRefused(t *testing.T) {
	viewer := olga
	viewer.Role = operate.RoleViewer
	ok := operate.RepairRequest{Agent: "payment", Effect: "o-1/pay/0", Repair: operate.RepairUndo, Reason: "r"}
	for name, x := range map[string]struct {
		by     operate.Actor
		change func(*shelf, *operate.RepairRequest)
		code   int
		field  string
	}{
		"role":         {viewer, func(*shelf, *operate.RepairRequest) {}, 403, ""},
		"repair":       {olga, func(_ *shelf, r *operate.RepairRequest) { r.Repair = "burn" }, 400, "repair"},
		"no reason":    {olga, func(_ *shelf, r *operate.RepairRequest) { r.Reason = " " }, 400, "reason"},
		"no ghost":     {olga, func(_ *shelf, r *operate.RepairRequest) { r.Effect = "o-2/pay/0" }, 404, "key"},
		"not undoable": {olga, func(s *shelf, _ *operate.RepairRequest) { s.ghost.Repairs = operate.RepairsOf(false) }, 409, "repair"},
	} {
		s, r := newShelf(), ok
		x.change(s, &r)
		_, err := s.books().Repair(t.Context(), x.by, r)
		bad, is := errors.AsType[*operate.Refusal](err)
		if !is || bad.Code != x.code || bad.Field != x.field || len(s.asked) != 0 || s.ghost.Status != operate.GhostOpen {
			t.Errorf("%s: %+v, asked %+v", name, err, s.asked)
		}
		if e := s.newest(t); !strings.HasPrefix(e.Outcome, "refused: ") || e.Actor != "olga" {
			t.Errorf("%s: audit trail %+v", name, e)
		}
	}
}

// A comparison is asked for once, in the audit trail, and shown until a result answers it.
//
// covers: OP16
func TestCompareNow(t *testing.T) {
	s := newShelf()
	v, err := s.books().Compare(t.Context(), olga, "after the outage")
	if err != nil || v.Asked == nil || v.Asked.By != "olga" || v.Sentence != s.last.Sentence() {
		t.Fatalf("%+v, %v", v, err)
	}
	if e := s.newest(t); e.Action != "books.compare" || e.Outcome != "done" || e.Reason != "after the outage" {
		t.Errorf("audit trail %+v", e)
	}
	s.last.Answers = v.Asked.ID
	if v, err = s.books().Books(t.Context()); err != nil || v.Asked != nil {
		t.Errorf("answered: %+v, %v", v.Asked, err)
	}
	s.last = operate.BooksResult{}
	if v, err = s.books().Books(t.Context()); err != nil || v.Sentence != "The journal and the services have not been compared yet; duly books --now compares them." || v.Class() != "calm" {
		t.Errorf("before any: %+v, %v", v, err)
	}
	viewer := olga
	viewer.Role = operate.RoleViewer
	if _, err := s.books().Compare(t.Context(), viewer, ""); err == nil {
		t.Error("a viewer asked for a comparison")
	}
}
