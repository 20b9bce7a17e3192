package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// world is a state store and what lies beside it, in memory.
type world struct {
	mu      sync.Mutex
	pauses  map[string]operate.Pause
	trail   []operate.AuditEntry
	wishes  map[int]core.Wish
	states  []core.PartitionState
	lags    map[int]uint64
	plans   []core.Plan
	waiting map[string][]operate.ParkedOf
	parked  func(operate.ParkedFilter) operate.Parked
	live    []string
	known   bool
	now     time.Time
	told    int
	failing error    // of every change
	unread  error    // of every reading
	mute    error    // of the agents
	dumb    error    // of the audit trail
	asked   int      // gatherings of agents
	names   []string // that were asked for last
	said    []operate.Instance
	more    bool

	breakers []core.Breaker
	lost     int // changes of breakers that another is made before
	absent   []operate.Absence
}

func newWorld() *world {
	return &world{
		pauses: map[string]operate.Pause{}, wishes: map[int]core.Wish{}, lags: map[int]uint64{}, waiting: map[string][]operate.ParkedOf{},
		states: []core.PartitionState{{Partition: 1, Owner: "n2", Epoch: 7}, {Partition: 0, Owner: "n1", Epoch: 4}, {Partition: 2}},
		live:   []string{"n1", "n2"}, known: true, now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		plans: []core.Plan{
			{Name: "order", Version: 1, Steps: []core.Step{{Name: "pay", Agent: "payment"}, {Name: "ship", Agent: "ship"}}},
			{Name: "order", Version: 2, Steps: []core.Step{{Name: "pay", Agent: "payment.v2"}, {Name: "ship", Agent: "ship"}}},
			{Name: "gift", Version: 1, Steps: []core.Step{{Name: "wrap", Agent: "wrap"}, {Name: "ship", Agent: "ship"}}},
		},
	}
}

func (w *world) PutPause(_ context.Context, p operate.Pause) error {
	w.pauses[p.ID] = p
	return w.failing
}

func (w *world) DeletePause(_ context.Context, id string) error {
	if _, ok := w.pauses[id]; !ok {
		return core.ErrNotFound
	}
	delete(w.pauses, id)
	return w.failing
}

func (w *world) Pauses(context.Context) ([]operate.Pause, error) {
	return slices.Collect(maps.Values(w.pauses)), w.unread
}

func (w *world) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	if i := slices.IndexFunc(w.trail, func(is operate.AuditEntry) bool { return e.Key != "" && is.Key == e.Key }); i >= 0 {
		again := w.trail[i]
		return int64(i + 1), &again, nil
	}
	w.trail = append(w.trail, e)
	return int64(len(w.trail)), nil, w.dumb
}

func (w *world) SetOutcome(_ context.Context, number int64, outcome string) error {
	w.trail[number-1].Outcome = outcome
	return nil
}

func (w *world) Wish(_ context.Context, partition int) (core.Wish, error) {
	is := w.wishes[partition]
	is.Partition = partition
	return is, w.unread
}

func (w *world) PutWish(_ context.Context, wish core.Wish) error {
	w.wishes[wish.Partition] = wish
	return w.failing
}

func (w *world) ParkedAt(context.Context) (map[string][]operate.ParkedOf, error) {
	return w.waiting, nil
}
func (w *world) Parked(_ context.Context, f operate.ParkedFilter) (operate.Parked, error) {
	return w.parked(f), nil
}

func (w *world) InFlight(context.Context) (map[int]operate.Count, error) {
	return map[int]operate.Count{0: {N: 3}, 1: {N: 4, AtLeast: true}, 2: {}}, nil
}
func (w *world) Cursors(context.Context) ([]core.PartitionState, error) { return w.states, w.unread }
func (w *world) Plans(context.Context) ([]core.Plan, error) {
	return w.plans, core.UnreadablePlans{{Name: "new", Version: 9}} // the others count
}

func (w *world) desk() *operate.Desk {
	return operate.NewDesk(w, func() time.Time { return w.now }, slog.New(slog.DiscardHandler))
}

func (w *world) pausing() *operate.Pausing {
	return &operate.Pausing{Store: w, Desk: w.desk(), Flow: w, Announce: func() error { w.told++; return errors.New("not now") }, Now: func() time.Time { return w.now }}
}

func (w *world) partitioning() *operate.Partitioning {
	return &operate.Partitioning{
		Flow: w, Wishes: w, Desk: w.desk(), Now: func() time.Time { return w.now },
		Lags: func(context.Context) (map[int]uint64, error) { return w.lags, nil },
		Live: func() ([]string, bool) { return w.live, w.known },
	}
}

func (w *world) agents() *operate.LiveAgents {
	return &operate.LiveAgents{Flow: w, Pauses: w.Pauses, Breakers: w.Breakers, Absent: func(context.Context) ([]operate.Absence, bool, error) { return w.absent, w.more, nil }, Now: func() time.Time { return w.now }, Instances: func(_ context.Context, names []string) ([]operate.Instance, bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.names = names
		w.asked++
		return w.said, w.more, w.mute
	}}
}

// away reports whether an error is that nothing was changed, because it could not be written down.
func away(err error) bool {
	r, refused := errors.AsType[*operate.Refusal](err)
	return refused && r.Code == 503 && r.RetryMS > 0
}

var olga = operate.Actor{Name: "olga", Role: operate.RoleOperator, From: "10.0.0.1", Via: "http"}

// last is the newest entry of the trail.
func (w *world) last(t *testing.T) operate.AuditEntry {
	t.Helper()
	if len(w.trail) == 0 {
		t.Fatal("nothing is in the audit trail")
	}
	return w.trail[len(w.trail)-1]
}

// refusedWith checks that an error is a refusal with a code, a field and words, and that the audit trail has it.
func (w *world) refusedWith(t *testing.T, err error, code int, field, says string) {
	t.Helper()
	r, ok := errors.AsType[*operate.Refusal](err)
	if !ok || r.Code != code || r.Field != field || !strings.Contains(r.Detail, says) {
		t.Fatalf("got %+v, %v, want %d about %q with %q", r, err, code, field, says)
	}
	if e := w.last(t); e.Outcome != "refused: "+r.Detail || e.Actor != "olga" {
		t.Errorf("audit trail %+v", e)
	}
}

// A pause is stored with who, when and why, written down before, and told; lifting it likewise.
//
// covers: OP19, OP16
func TestSetAndLiftPause(t *testing.T) {
	w := newWorld()
	s := w.pausing()
	p, err := s.SetPause(t.Context(), olga, operate.Pause{ID: "mine", By: "somebody", Type: "order", Step: "pay", Label: "tier=gold", Until: w.now.Add(time.Hour), Reason: "the bank is down"})
	if err != nil {
		t.Fatal(err)
	}
	want := operate.Pause{ID: p.ID, By: "olga", At: w.now, Type: "order", Step: "pay", Label: "tier=gold", Until: w.now.Add(time.Hour), Reason: "the bank is down"}
	if p != want || p.ID == "mine" || w.pauses[p.ID] != want || w.told != 1 {
		t.Fatalf("set %+v, stored %+v, told %d times", p, w.pauses, w.told)
	}
	e := w.last(t)
	var after operate.Pause
	if json.Unmarshal(e.After, &after) != nil || after != want || e.Action != "pause.set" || e.Target != "pause/"+p.ID || e.Reason != "the bank is down" || e.Outcome != "done" || e.From != "10.0.0.1" || e.Via != "http" || e.Role != operate.RoleOperator {
		t.Errorf("audit trail %+v", e)
	}
	w.refusedWith(t, s.LiftPause(t.Context(), olga, p.ID, " "), 400, "reason", "empty")
	w.refusedWith(t, s.LiftPause(t.Context(), olga, "none", "r"), 404, "id", "no pause")
	if err := s.LiftPause(t.Context(), olga, p.ID, "it is back"); err != nil || len(w.pauses) != 0 || w.told != 2 {
		t.Errorf("lifted: %v, %v, told %d times", err, w.pauses, w.told)
	}
	if e := w.last(t); e.Action != "pause.lift" || e.Outcome != "done" || !strings.Contains(string(e.Before), `"tier=gold"`) {
		t.Errorf("audit trail %+v", e)
	}
}

// A pause that is asked for again with its key is the one of the first request, also where that failed, or it was lifted
// meanwhile, or is the last that there is room for. A key of another request is refused, and a time that is over by then.
//
// covers: OP19
func TestSetPauseByKey(t *testing.T) {
	w := newWorld()
	s := w.pausing()
	for i := range operate.PausesMax - 1 {
		w.pauses[fmt.Sprint(i)] = operate.Pause{ID: fmt.Sprint(i)}
	}
	asked := operate.Pause{Type: "order", Until: w.now.Add(time.Hour), Reason: "r", Key: "k-1"}
	w.failing = errors.New("the answer is lost")
	if _, err := s.SetPause(t.Context(), olga, asked); !errors.Is(err, w.failing) {
		t.Fatal(err)
	}
	w.failing = nil
	first, err := s.SetPause(t.Context(), olga, asked)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	asked.Until = w.now.Add(time.Hour)
	again, err := s.SetPause(t.Context(), olga, asked)
	first.Key, again.Key = "", ""
	if err != nil || again != first || len(w.pauses) != operate.PausesMax || w.pauses[first.ID].At != first.At {
		t.Errorf("set %+v, again %+v, %v, stored %d", first, again, err, len(w.pauses))
	}
	if err := s.LiftPause(t.Context(), olga, first.ID, "r"); err != nil {
		t.Fatal(err)
	}
	if again, err = s.SetPause(t.Context(), olga, asked); err != nil || again != first || len(w.pauses) != operate.PausesMax-1 {
		t.Errorf("after it was lifted: %+v, %v, stored %d", again, err, len(w.pauses))
	}
	asked.Type = "gift"
	if _, err := s.SetPause(t.Context(), olga, asked); err == nil || !strings.Contains(err.Error(), "k-1") {
		t.Errorf("another pause with its key: %v", err)
	}
	asked.Key = "k-2"
	if p, err := s.SetPause(t.Context(), olga, asked); err != nil || p.ID == first.ID {
		t.Errorf("with another key: %+v, %v", p, err)
	}
	asked.Key, asked.Until, w.failing = "k-3", w.now.Add(time.Minute), errors.New("the answer is lost")
	delete(w.pauses, "0")
	if _, err := s.SetPause(t.Context(), olga, asked); !errors.Is(err, w.failing) {
		t.Fatal(err)
	}
	w.now, w.failing = w.now.Add(2*time.Minute), nil
	asked.Until = w.now.Add(time.Minute)
	_, err = s.SetPause(t.Context(), olga, asked)
	w.refusedWith(t, err, 400, "until", "has passed")
}

// What cannot be is refused with the field and the limit, and written down. Nothing is stored without a trail.
//
// covers: OP19, OP16
func TestPauseRefused(t *testing.T) {
	w := newWorld()
	s := w.pausing()
	ok := operate.Pause{Type: "order", Reason: "r"}
	for field, change := range map[string]func(*operate.Pause){
		"type":   func(p *operate.Pause) { p.Type = "a b" },
		"step":   func(p *operate.Pause) { p.Step = "a b" },
		"agent":  func(p *operate.Pause) { p.Agent = "a..b" },
		"label":  func(p *operate.Pause) { p.Label = "gold" },
		"until":  func(p *operate.Pause) { p.Until = w.now },
		"reason": func(p *operate.Pause) { p.Reason = strings.Repeat("r", core.WordsBytesMax+1) },
	} {
		p := ok
		change(&p)
		_, err := s.SetPause(t.Context(), olga, p)
		w.refusedWith(t, err, 400, field, "")
	}
	_, err := s.SetPause(t.Context(), olga, operate.Pause{Step: "pay", Reason: "r"})
	w.refusedWith(t, err, 400, "step", "type")
	_, err = s.SetPause(t.Context(), olga, operate.Pause{Until: w.now.Add(core.DurationMax + 1), Reason: "r"})
	w.refusedWith(t, err, 400, "until", "more than")
	if len(w.pauses) != 0 || w.told != 0 {
		t.Errorf("stored %v, told %d times", w.pauses, w.told)
	}
	w.failing = errors.New("no disk")
	if _, err := s.SetPause(t.Context(), olga, ok); !errors.Is(err, w.failing) || w.last(t).Outcome != "failed: no disk" || w.told != 0 {
		t.Errorf("a store that fails: %v, %+v", err, w.last(t))
	}
	w.failing, w.dumb, w.pauses = nil, errors.New("no trail"), map[string]operate.Pause{}
	if _, err := s.SetPause(t.Context(), olga, ok); !away(err) || len(w.pauses) > 0 {
		t.Errorf("a trail that cannot be written: %v, stored %v", err, w.pauses)
	}
}

// There are a thousand pauses at most; those that are over make room.
//
// covers: OP19
func TestPausesAreBounded(t *testing.T) {
	w := newWorld()
	s := w.pausing()
	for i := range operate.PausesMax {
		id := fmt.Sprint(i)
		w.pauses[id] = operate.Pause{ID: id, Type: "order"}
	}
	_, err := s.SetPause(t.Context(), olga, operate.Pause{Reason: "r"})
	w.refusedWith(t, err, 409, "", "limit is 1000")
	over := w.pauses["7"]
	over.Until = w.now
	w.pauses["7"] = over
	if _, err := s.SetPause(t.Context(), olga, operate.Pause{Reason: "r"}); err != nil || len(w.pauses) != operate.PausesMax {
		t.Errorf("with one that is over: %v, %d pauses", err, len(w.pauses))
	}
}

// Each pause shows what waits behind it and until when the first can wait; those that are over are not shown.
//
// covers: OP19
func TestPausesShowWhatWaits(t *testing.T) {
	w := newWorld()
	gold := core.Label{Key: "tier", Value: "gold"}
	all := []struct {
		pause operate.Pause
		want  operate.ParkedFilter // empty agents: nothing is asked
	}{
		{operate.Pause{ID: "a", Type: "order"}, operate.ParkedFilter{Type: "order", Agents: []string{"payment", "ship", "payment.v2"}}},
		{operate.Pause{ID: "b", Type: "order", Step: "pay"}, operate.ParkedFilter{Type: "order", Agents: []string{"payment", "payment.v2"}}},
		{operate.Pause{ID: "c", Agent: "ship", Label: "tier=gold"}, operate.ParkedFilter{Label: gold, Agents: []string{"ship"}}},
		{operate.Pause{ID: "d"}, operate.ParkedFilter{Agents: []string{"payment", "ship", "payment.v2", "wrap"}}},
		{operate.Pause{ID: "e", Type: "none"}, operate.ParkedFilter{}},
	}
	for i, c := range all {
		c.pause.At = w.now.Add(-time.Duration(i) * time.Minute)
		w.pauses[c.pause.ID] = c.pause
	}
	w.pauses["over"] = operate.Pause{ID: "over", Until: w.now}
	var asked []operate.ParkedFilter
	w.parked = func(f operate.ParkedFilter) operate.Parked {
		asked = append(asked, f)
		return operate.Parked{Tasks: operate.Count{N: int64(len(f.Agents)), AtLeast: f.Type == ""}, First: core.InstantOf(w.now.Add(time.Hour))}
	}
	views, err := w.pausing().Pauses(t.Context())
	if err != nil || len(views) != len(all) {
		t.Fatalf("%+v, %v", views, err)
	}
	for i, v := range views {
		c := all[i]
		if n := int64(len(c.want.Agents)); v.ID != c.pause.ID || v.Waiting != (operate.Count{N: n, AtLeast: n > 0 && c.want.Type == ""}) || (n > 0) != v.FirstDeadline.Equal(w.now.Add(time.Hour)) {
			t.Errorf("pause %s: %+v", c.pause.ID, v)
		}
		if len(c.want.Agents) > 0 && !slices.ContainsFunc(asked, func(f operate.ParkedFilter) bool { return reflect.DeepEqual(f, c.want) }) {
			t.Errorf("pause %s: asked %+v, want %+v", c.pause.ID, asked, c.want)
		}
	}
	if len(asked) != len(all)-1 {
		t.Errorf("asked %d times", len(asked))
	}
}

// Partitions show their owners, their lag, and what operators want of them, also where it counts for nothing.
func TestPartitions(t *testing.T) {
	w := newWorld()
	w.lags = map[int]uint64{0: 12, 1: 0}
	w.wishes = map[int]core.Wish{0: {Node: "n2"}, 1: {Node: "gone", Avoid: "n1", Until: core.InstantOf(w.now) + 1}, 2: {Avoid: "n2", Until: core.InstantOf(w.now)}}
	w.states = append(w.states, core.PartitionState{Partition: 3, Owner: "dead", Epoch: 1})
	got, err := w.partitioning().Partitions(t.Context())
	want := []operate.Partition{
		{Partition: 0, Owner: "n1", Epoch: 4, Lag: 12, Pinned: "n2", InFlight: operate.Count{N: 3}, MayUnpin: true, MayStepDown: true},
		{Partition: 1, Owner: "n2", Epoch: 7, Pinned: "gone", PinIgnored: true, InFlight: operate.Count{N: 4, AtLeast: true}, SteppedDown: "n1", SteppedDownUntil: (core.InstantOf(w.now) + 1).Time(), MayUnpin: true, MayStepDown: true},
		{Partition: 2, LagUnknown: true, MayUnpin: true},
		{Partition: 3, Owner: "dead", Epoch: 1, OwnerGone: true, LagUnknown: true, MayStepDown: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	w.known = false
	got, err = w.partitioning().Partitions(t.Context())
	if err != nil || got[1].PinIgnored || got[3].OwnerGone {
		t.Errorf("while the live nodes are not known: %+v, %v", got, err)
	}
}

// Pins and step-downs are written down and stored; what cannot be is refused.
//
// covers: OP16
func TestMovePartitions(t *testing.T) {
	w := newWorld()
	s := w.partitioning()
	ctx := t.Context()
	w.refusedWith(t, s.Pin(ctx, olga, 9, "n1", "r", false), 404, "partition", "no partition 9: there are 3")
	w.refusedWith(t, s.Pin(ctx, olga, -1, "n1", "r", false), 404, "partition", "no partition -1")
	w.refusedWith(t, s.Pin(ctx, olga, 0, "a b", "r", false), 400, "node", "want A")
	w.refusedWith(t, s.Pin(ctx, olga, 0, "n1", "", false), 400, "reason", "empty")
	w.refusedWith(t, s.Unpin(ctx, olga, 0, "r"), 409, "", "not pinned")
	w.refusedWith(t, s.StepDown(ctx, olga, 2, "r"), 409, "", "no owner")
	if all, err := s.Partitions(ctx); err != nil || all[0].MayUnpin || all[2].MayStepDown {
		t.Fatalf("what is refused is offered: %+v, %v", all, err)
	}
	if len(w.wishes) > 0 {
		t.Fatalf("stored %v", w.wishes)
	}
	if err := s.Pin(ctx, olga, 0, "later", "a node to come", true); err != nil || w.wishes[0] != (core.Wish{Node: "later"}) {
		t.Fatalf("pinned to a node that is not live: %v, %+v", err, w.wishes)
	}
	if e := w.last(t); e.Action != "partition.pin" || e.Target != "partition/0" || e.Outcome != "done" || string(e.After) != `{"node":"later"}` {
		t.Errorf("audit trail %+v", e)
	}
	if err := s.StepDown(ctx, olga, 0, "it is hot"); err != nil || w.wishes[0] != (core.Wish{Node: "later", Avoid: "n1", Until: core.InstantOf(w.now.Add(operate.StepDownFor))}) {
		t.Fatalf("stepped down: %v, %+v", err, w.wishes)
	}
	if err := s.Unpin(ctx, olga, 0, "as it was"); err != nil || w.wishes[0] != (core.Wish{}) {
		t.Fatalf("unpinned: %v, %+v", err, w.wishes)
	}
	if err := s.Pin(ctx, olga, 0, "n1", "stay", false); err != nil {
		t.Fatal(err)
	}
	w.refusedWith(t, s.StepDown(ctx, olga, 0, "r"), 409, "", "pinned to n1")
	w.wishes, w.live = map[int]core.Wish{}, []string{"n1"}
	w.refusedWith(t, s.StepDown(ctx, olga, 0, "r"), 409, "", "no node other than n1")
	w.known = false
	w.refusedWith(t, s.StepDown(ctx, olga, 0, "r"), 503, "", "not known yet")
}

// TestLiveAgentsCut: steps that are left out, and those that were counted up to a bound, are said to be.
//
// covers: O11
func TestLiveAgentsCut(t *testing.T) {
	w := newWorld()
	waiting := func(steps int) (all []operate.WaitingStep) {
		for i := range steps {
			all = append(all, operate.WaitingStep{Type: "order", Step: fmt.Sprint("step", i), Tasks: 1})
		}
		return all
	}
	w.waiting = map[string][]operate.ParkedOf{"ship": {{Type: "order", Version: 1, Parked: operate.Parked{Tasks: operate.Count{N: 10_000, AtLeast: true}}}}}
	w.absent = []operate.Absence{
		{Agent: "payment", Since: w.now, Tasks: 40, Steps: waiting(operate.WaitingStepsMax)},
		{Agent: "payment.v2", Since: w.now, Tasks: 40, Steps: waiting(operate.WaitingStepsMax + 1)},
		{Agent: "wrap", Since: w.now, Tasks: 40, Steps: waiting(2), More: true},
	}
	got, err := w.agents().Agents(t.Context())
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct {
		steps int
		more  bool
	}{{operate.WaitingStepsMax, false}, {operate.WaitingStepsMax, true}, {1, true}, {2, true}} {
		if a := &got[i]; len(a.Steps) != want.steps || a.StepsMore != want.more || a.Steps[0].AtLeast != (a.Name == "ship") {
			t.Errorf("%s: %d steps, more %v, %+v; want %+v", a.Name, len(a.Steps), a.StepsMore, a.Steps[0], want)
		}
	}
}

// Agents are those that plans name and that tasks wait for; who asks within two seconds shares one look.
func TestLiveAgents(t *testing.T) {
	w := newWorld()
	s := w.agents()
	at := func(minutes int) core.Instant { return core.InstantOf(w.now.Add(time.Duration(minutes) * time.Minute)) }
	of := func(taskType string, version, n int64, first core.Instant) operate.ParkedOf {
		return operate.ParkedOf{Type: taskType, Version: version, Parked: operate.Parked{Tasks: operate.Count{N: n}, First: first}}
	}
	w.waiting = map[string][]operate.ParkedOf{"ship": {of("order", 1, 2, at(9)), of("order", 2, 2, at(7)), of("gift", 1, 1, at(8))}, "old": {of("gone", 1, 9_000, 0), of("gone", 2, 9_000, 0)}}
	w.absent = []operate.Absence{
		{Agent: "payment", Since: w.now.Add(-time.Minute), Tasks: 2, First: at(3).Time(), Steps: []operate.WaitingStep{{Type: "order", Step: "pay", Tasks: 2}}},
		{Agent: "payment", Since: w.now.Add(-time.Hour), Tasks: 1, First: at(5).Time(), Steps: []operate.WaitingStep{{Type: "order", Step: "pay", Tasks: 1}}},
		{Agent: "ship", Since: w.now, Tasks: 1, First: at(6).Time(), Steps: []operate.WaitingStep{{Type: "gift", Step: "ship", Tasks: 1}}},
	}
	w.breakers = []core.Breaker{
		{Agent: "ship", State: core.BreakerOpen, Since: at(-3), Until: at(2), Openings: 2, Reason: "9 of 10 calls failed", Revision: 4},
		{Agent: "left", State: core.BreakerClosed, Since: at(-9), Revision: 2},
	}
	w.pauses["p"] = operate.Pause{Agent: "ship"}
	w.pauses["of a type"] = operate.Pause{Agent: "wrap", Type: "order"}
	w.pauses["over"] = operate.Pause{Agent: "payment", Until: w.now}
	closed := operate.Breaker{State: core.BreakerClosed}
	w.said = []operate.Instance{
		{Agent: "ship", Started: w.now, Calls: 10, Errors: 1, Busy: time.Second, Messages: 8},
		{Agent: "ship", Started: w.now.Add(-time.Hour), Calls: 5, Errors: 2, Busy: time.Second, Messages: 2},
		{Agent: "wrap", Started: w.now},
	}
	want := []operate.Agent{
		{Name: "old", Waiting: operate.Count{N: 10_000, AtLeast: true}, Breaker: closed},
		{Name: "payment", Gone: true, Breaker: closed, Unserved: operate.Count{N: 3}, AwaySince: w.now.Add(-time.Hour), FirstDeadline: at(3).Time(), Steps: []operate.WaitingStep{{Type: "order", Step: "pay", Tasks: 3}}},
		{Name: "payment.v2", Breaker: closed},
		{Name: "ship", Instances: 2, Waiting: operate.Count{N: 5}, Paused: true, Calls: 15, Errors: 3, LatencyMS: 200, Since: w.now.Add(-time.Hour),
			Breaker:  operate.Breaker{State: core.BreakerOpen, Since: at(-3).Time(), Until: at(2).Time(), Openings: 2, Reason: "9 of 10 calls failed"},
			Unserved: operate.Count{N: 1}, AwaySince: w.now, FirstDeadline: at(6).Time(), Steps: []operate.WaitingStep{{Type: "order", Step: "ship", Tasks: 4}, {Type: "gift", Step: "ship", Tasks: 2}}},
		{Name: "wrap", Instances: 1, Since: w.now, Breaker: closed},
	}
	for i := range want {
		if want[i].Steps == nil {
			want[i].Steps = []operate.WaitingStep{}
		}
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := s.Agents(context.Background()); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	wg.Wait()
	if w.asked != 1 || !slices.Equal(w.names, []string{"old", "payment", "payment.v2", "ship", "wrap"}) {
		t.Errorf("%d requests for ten callers, the last for %q", w.asked, w.names)
	}
	s.Forget()
	all := w.said
	w.said = w.said[:2] // wrap has left, old and payment.v2 never announced themselves
	if left, err := s.Agents(t.Context()); err != nil || left[0].Gone || left[2].Gone || left[3].Gone || !left[4].Gone || left[4].Name != "wrap" {
		t.Errorf("when one has left: %+v, %v", left, err)
	}
	w.asked--
	s.Forget()
	w.said, w.more = all[2:], true
	w.pauses["everything"] = operate.Pause{}
	got, err := s.Agents(t.Context())
	if slices.ContainsFunc(got, func(a operate.Agent) bool { return !a.Paused }) {
		t.Errorf("when everything is paused: %+v", got)
	}
	if err != nil || w.asked != 2 || got[3].Name != "ship" || got[3].Instances != -1 || got[4].Instances != 1 || !got[4].Unserved.AtLeast || !got[4].StepsMore || !got[4].InstancesMore {
		t.Errorf("when there may be others: %+v, %v", got, err)
	}
	w.now = w.now.Add(operate.AgentsFresh)
	w.mute = errors.New("no server")
	for range 2 { // a failure is not kept
		if _, err := s.Agents(t.Context()); !errors.Is(err, w.mute) {
			t.Errorf("without a server: %v", err)
		}
	}
	if w.asked != 4 {
		t.Errorf("asked %d times", w.asked)
	}
}

// TestLiveAgentsAfterClockSetBack: what was seen serves no longer than it is fresh, also where the clock was set back since.
func TestLiveAgentsAfterClockSetBack(t *testing.T) {
	w := newWorld()
	agents := w.agents()
	for i, at := range []time.Time{w.now, w.now.Add(-time.Hour)} {
		w.now = at
		if _, err := agents.Agents(t.Context()); err != nil || w.asked != i+1 {
			t.Errorf("at %v: asked %d times, want %d: %v", at, w.asked, i+1, err)
		}
	}
}

// TestAgentsThatDoNotServeAStep: tasks at a step that an agent does not serve are told as its own, and on the first screen; the
// agent is not gone for that, whether or not it announces itself.
//
// covers: OP19
func TestAgentsThatDoNotServeAStep(t *testing.T) {
	w := newWorld()
	w.absent = []operate.Absence{
		{Agent: "payment", Since: w.now.Add(-time.Hour), Tasks: 3, First: w.now.Add(time.Hour), Steps: []operate.WaitingStep{{Type: "order", Step: "pay", Tasks: 3, NotServed: true}}},
		{Agent: "payment", Since: w.now, Tasks: 2, Steps: []operate.WaitingStep{{Type: "order", Step: "pay", Tasks: 2, NotServed: true}}},
		{Agent: "wrap", Since: w.now, Tasks: 1, Steps: []operate.WaitingStep{{Type: "gift", Step: "wrap", Tasks: 1, NotServed: true}}},
		{Agent: "ship", Since: w.now, Tasks: 7, Steps: []operate.WaitingStep{{Type: "gift", Step: "ship", Tasks: 7}}},
	}
	w.said = []operate.Instance{{Agent: "payment", Started: w.now}}
	got, err := w.agents().Agents(t.Context())
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	pay, ship, wrap := got[0], got[2], got[3]
	if pay.Gone || pay.Unserved.N != 5 || !pay.AwaySince.Equal(w.now.Add(-time.Hour)) || len(pay.Steps) != 1 || pay.Steps[0].Word() != "order/pay (not served)" || wrap.Gone || !ship.Gone {
		t.Errorf("%+v", got)
	}
	var says []string
	for _, n := range operate.FlowNeeds(w.now, got, nil, nil) {
		for _, l := range n.Lines {
			says = append(says, fmt.Sprint(n.Title, " | ", l.Text, " | ", l.Tasks))
		}
	}
	want := []string{"1 agent gone: 7 tasks wait | ship: no instance answers | 7", "2 agents do not serve a step: 6 tasks wait | payment does not serve order/pay | 5", "2 agents do not serve a step: 6 tasks wait | wrap does not serve gift/wrap | 1"}
	if !slices.Equal(says, want) {
		t.Errorf("got\n%q\nwant\n%q", says, want)
	}
}
