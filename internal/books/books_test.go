package books

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
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

var noon = time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)

// world is a state store and the books of services, in memory.
type world struct {
	plan    core.Plan
	tasks   []core.Saved
	effects map[string]map[string]int // by agent and key: how often it was made
	silent  map[string]bool
	none    map[string]bool // agents that keep no books
	onAsk   func(agent string)
	lists   int             // pages of tasks that were read
	page    int             // what a page holds; 0: two effects, or all tasks
	heal    map[string]int  // effects that are so often there at a second look
	old     map[string]bool // effects that were made before the time of the comparison
	stuck   bool            // the next page of an agent's is the same again
}

func newWorld() *world {
	w := &world{effects: map[string]map[string]int{"warehouse": {}, "payment": {}}, silent: map[string]bool{}, none: map[string]bool{}}
	w.plan = core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "check", Agent: "account"},
		{Name: "reserve", Agent: "warehouse", Undoable: true, After: []int{0}},
		{Name: "charge", Agent: "payment", Undoable: true, After: []int{1}},
	}}.WithDefaults()
	return w
}

// run lets a task live: codes are the answers of its steps, in their order; its services keep books of it.
func (w *world) run(t *testing.T, id string, codes ...int) *core.Task {
	t.Helper()
	at := core.InstantOf(noon)
	task := core.Task{Number: int64(len(w.tasks) + 1), ID: id, Type: "order", CreatedAt: at, Input: []byte(`{}`)}
	var out core.Outcome
	core.Birth(&w.plan, &task, &core.Event{At: at}, &out)
	saved := core.Saved{Journal: slices.Clone(out.Records)}
	apply := func(ev core.Event) {
		t.Helper()
		if err := core.Apply(&w.plan, &task, &ev, &out); err != nil {
			t.Fatal(err)
		}
		saved.Journal = append(saved.Journal, out.Records...)
	}
	for len(codes) > 0 || task.State == core.StateUndoing {
		i := task.Out()
		if i < 0 {
			apply(core.Event{Kind: core.EventWake, At: task.UpdatedAt.Add(time.Minute)})
			continue
		}
		code := 0
		if task.State == core.StateProcessing {
			code, codes = codes[0], codes[1:]
		}
		step := w.plan.Steps[i]
		if key := core.Key(id, step.Name, task.Round); step.Undoable && code == 0 {
			if task.State == core.StateUndoing {
				delete(w.effects[step.Agent], key)
			} else {
				w.effects[step.Agent][key]++
			}
		}
		apply(core.Event{Kind: core.EventReply, At: task.UpdatedAt.Add(time.Millisecond), Seq: task.Steps[i].Out, Code: code, Error: "refused"})
	}
	saved.Row = task
	saved.Row.Steps = nil
	w.tasks = append(w.tasks, saved)
	return &task
}

func (w *world) Plans(context.Context) ([]core.Plan, error) { return []core.Plan{w.plan}, nil }

func (w *world) SavedIDs(_ context.Context, _ int, ids []string) (found []core.Saved, err error) {
	for _, s := range w.tasks {
		if slices.Contains(ids, s.Row.ID) {
			found = append(found, s)
		}
	}
	return found, nil
}

func (w *world) Ended(_ context.Context, since core.Instant, _ int, after string) (page core.Page, err error) {
	w.lists++
	for _, s := range w.tasks {
		if s.Row.State.Ended() && s.Row.EndedAt >= since {
			if w.page > 0 && len(page.Tasks) == w.page {
				page.Next = page.Tasks[w.page-1].ID
				return page, nil
			}
			if s.Row.ID <= after {
				continue
			}
			page.Tasks = append(page.Tasks, core.View{
				ID: s.Row.ID, Type: s.Row.Type, PlanVersion: s.Row.PlanVersion, State: s.Row.State, Round: s.Row.Round, Partition: s.Row.Partition,
				CreatedAt: s.Row.CreatedAt, EndedAt: s.Row.EndedAt,
			})
		}
	}
	return page, nil
}

func (w *world) AskBooks(_ context.Context, agent string, q wire.BooksQuestion) (a wire.BooksAnswer, err error) {
	if w.onAsk != nil {
		w.onAsk(agent)
	}
	if w.none[agent] {
		return a, fmt.Errorf("agent %s: %w", agent, wire.ErrNoBooks)
	}
	if w.silent[agent] {
		return a, errors.New("no answer")
	}
	for _, key := range q.Keys {
		if times, heals := w.heal[key]; heals && w.effects[agent][key] > 0 {
			if w.effects[agent][key] = times; times == 0 {
				delete(w.effects[agent], key)
			}
		}
	}
	for key, times := range w.effects[agent] {
		if len(q.Keys) == 0 && key > q.After && !w.old[key] || slices.Contains(q.Keys, key) {
			a.Effects = append(a.Effects, wire.BooksEffect{Key: key, Times: times})
		}
	}
	slices.SortFunc(a.Effects, func(x, y wire.BooksEffect) int { return strings.Compare(x.Key, y.Key) })
	if most := cmp.Or(w.page, 2); len(q.Keys) == 0 && len(a.Effects) > most { // small pages
		a.Effects = a.Effects[:most]
		if a.Next = a.Effects[most-1].Key; w.stuck && q.After != "" {
			a.Next = q.After
		}
	}
	return a, nil
}

func (w *world) books() *Books {
	return New(w, w, 1, func(string, int) int { return 0 }, func() time.Time { return noon.Add(2 * time.Hour) })
}

func (w *world) compare(t *testing.T) *Report { return w.compareWith(t, Options{}) }

func (w *world) compareWith(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := w.books().Compare(t.Context(), noon.Add(-time.Hour), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBooksClose: where every service did what the journal says, the books close, also over several pages.
func TestBooksClose(t *testing.T) {
	w := newWorld()
	for i := range 7 {
		w.run(t, fmt.Sprintf("good-%d", i), 0, 0, 0)
	}
	if task := w.run(t, "bad", 0, 0, 422); task.State != core.StateUndone {
		t.Fatalf("task bad is %s", task.State)
	}
	w.run(t, "under-way", 0, 0)
	r := w.compare(t)
	if !r.Closed || r.Effects != 15 || r.Open != 1 || r.Tasks != 7 {
		t.Errorf("report %+v", r)
	}
	if got, want := r.Sentence(), "Books closed at 14:00: the journal and the services agree on 15 effects. 1 effect of unfinished tasks will be compared once the tasks have ended."; got != want {
		t.Errorf("sentence %q, want %q", got, want)
	}
}

// TestTaskThatCannotBeRead: a task whose row or journal does not parse is told as what is not known, and the others are
// compared.
//
// covers: L21
func TestTaskThatCannotBeRead(t *testing.T) {
	w := newWorld()
	w.plan.Steps[1].OnExhausted = core.PolicySkip
	for _, id := range []string{"good", "row", "journal", "empty", "late"} {
		w.run(t, id, 0, 0, 0)
	}
	w.tasks[1].Err, w.tasks[1].Journal = errors.New("cannot read its row"), nil
	w.tasks[2].Journal = slices.Clone(w.tasks[2].Journal)
	w.tasks[2].Journal[1].Seq = 7
	w.tasks[4].Err = errors.New("cannot read its row")
	delete(w.effects["warehouse"], "late/reserve/0")
	r := w.compare(t)
	if r.Closed || r.Effects != 9 || r.Kinds[operate.GhostUnknown] != 5 || r.Kinds[operate.GhostMissing] != 1 || r.Total != 6 {
		t.Errorf("report %+v", r)
	}
	for _, g := range r.Ghosts {
		if g.Kind == operate.GhostUnknown && !strings.Contains(g.Text, "cannot be read") || g.Kind == operate.GhostMissing && g.Key != "late/reserve/0" {
			t.Errorf("ghost %+v", g)
		}
	}
}

// TestGhosts: each kind of ghost is named, with its key.
func TestGhosts(t *testing.T) {
	w := newWorld()
	w.run(t, "good", 0, 0, 0)
	w.run(t, "missing", 0, 0, 0)
	w.run(t, "doubled", 0, 0, 0)
	w.run(t, "undone", 0, 0, 422)
	delete(w.effects["payment"], "missing/charge/0")
	w.effects["payment"]["doubled/charge/0"] = 2
	w.effects["warehouse"]["undone/reserve/0"] = 1
	w.effects["warehouse"]["nobody/reserve/0"] = 1
	r := w.compare(t)
	want := map[string]operate.GhostKind{
		"missing/charge/0": operate.GhostMissing, "doubled/charge/0": operate.GhostDoubled, "undone/reserve/0": operate.GhostOfUndone, "nobody/reserve/0": operate.GhostUnknown,
	}
	for _, g := range r.Ghosts {
		if want[g.Key] != g.Kind || g.Text == "" {
			t.Errorf("ghost %+v, want %s", g, want[g.Key])
		}
		delete(want, g.Key)
	}
	for _, g := range r.Ghosts { // what mends each, and about which journal row
		undo := g.Kind != operate.GhostUnknown
		if g.Can(operate.RepairUndo) != undo || !g.Can(operate.RepairAccept) || undo == (g.Seq == 0) || g.Status != operate.GhostOpen || r.Kinds[g.Kind] != 1 {
			t.Errorf("%s: %+v", g.Kind, g)
		}
	}
	if len(want) > 0 || r.Total != 4 || r.Closed {
		t.Errorf("not named: %v; report %+v", want, r)
	}
}

// TestOldTasksAreNotMissed: of a task that ended before the time that is asked about, the agents are not asked for effects either.
func TestOldTasksAreNotMissed(t *testing.T) {
	w := newWorld()
	w.run(t, "old", 0, 0, 0)
	w.tasks[0].Row.EndedAt = core.InstantOf(noon.Add(-2 * time.Hour))
	clear(w.effects["warehouse"])
	clear(w.effects["payment"])
	w.run(t, "new", 0, 0, 0)
	if r := w.compare(t); r.Total != 0 || r.Tasks != 1 || !r.Closed {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
}

// TestTasksThatTookLong: what a task left, or should have left, at a service is found however long before the time that is
// asked about the task was created, and its effect made.
func TestTasksThatTookLong(t *testing.T) {
	w := newWorld()
	w.run(t, "missing", 0, 0, 0)
	w.run(t, "undone", 0, 0, 422)
	w.run(t, "good", 0, 0, 0)
	for i := range w.tasks {
		w.tasks[i].Row.CreatedAt = core.InstantOf(noon.Add(-72 * time.Hour))
	}
	delete(w.effects["payment"], "missing/charge/0")
	w.effects["warehouse"]["undone/reserve/0"] = 1
	for _, listed := range []bool{false, true} { // by a service that tells no times
		w.old = map[string]bool{"undone/reserve/0": !listed}
		if r := w.compare(t); r.Closed || r.Total != 2 || r.Kinds[operate.GhostMissing] != 1 || r.Kinds[operate.GhostOfUndone] != 1 || len(r.Ghosts) != 2 {
			t.Errorf("listed %v: %s: %+v", listed, r.Sentence(), r.Ghosts)
		}
	}
}

// TestCursorThatStandsStill: the books of an agent whose pages do not go on are not known.
func TestCursorThatStandsStill(t *testing.T) {
	w := newWorld()
	for i := range 7 {
		w.run(t, fmt.Sprintf("good-%d", i), 0, 0, 0)
	}
	w.stuck = true
	if r := w.compare(t); r.Closed || r.Silent() != 2 || !strings.Contains(r.Agents[0].Error, "is the same page") {
		t.Errorf("%s: %+v", r.Sentence(), r.Agents)
	}
}

// TestGhostThatGoesAway: what changed between the service's answer and the look at the task is no ghost.
func TestGhostThatGoesAway(t *testing.T) {
	w := newWorld()
	w.run(t, "undone", 0, 0, 422)
	w.effects["warehouse"]["undone/reserve/0"] = 1
	asked := 0
	w.onAsk = func(agent string) {
		if asked++; agent == "warehouse" && asked > 1 {
			delete(w.effects["warehouse"], "undone/reserve/0") // its undo arrives
		}
	}
	if r := w.compare(t); r.Total != 0 {
		t.Errorf("ghosts %+v", r.Ghosts)
	}
}

// TestSilentAgent: an agent without books does not make the others' unknown, and the books do not close.
func TestSilentAgent(t *testing.T) {
	w := newWorld()
	w.run(t, "good", 0, 0, 0)
	w.silent["payment"] = true
	r := w.compare(t)
	if r.Closed || r.Total != 0 || !strings.Contains(r.Sentence(), "because 1 of 2 agents did not answer") {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
}

// TestAcceptedStepNeedsNoEffect: what an operator accepted was done by hand, and the service need not know of it, in the round
// in which it was accepted.
func TestAcceptedStepNeedsNoEffect(t *testing.T) {
	w := newWorld()
	w.plan.Steps[2].OnExhausted = core.PolicyError
	task := w.run(t, "by-hand", 0, 0, 422)
	if task.State != core.StateError {
		t.Fatalf("task is %s", task.State)
	}
	saved := &w.tasks[0]
	full, err := core.Replay(&w.plan, saved)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(ev core.Event) {
		t.Helper()
		var out core.Outcome
		ev.At = full.UpdatedAt.Add(time.Second)
		if err := core.Apply(&w.plan, full, &ev, &out); err != nil {
			t.Fatal(err)
		}
		saved.Journal = append(saved.Journal, out.Records...)
		saved.Row.State, saved.Row.Round = full.State, full.Round
	}
	apply(core.Event{Kind: core.EventAccept, Actor: "olga", Reason: "charged by phone", Result: []byte(`{}`)})
	if r := w.compare(t); full.State != core.StateProcessed || r.Total != 0 {
		t.Errorf("task is %s, ghosts %+v", full.State, r.Ghosts)
	}
	apply(core.Event{Kind: core.EventUndo, Actor: "olga"})
	for again := false; full.State != core.StateProcessed; {
		switch i := full.Out(); {
		case full.State == core.StateUndone && !again:
			again = true
			apply(core.Event{Kind: core.EventResubmit, Actor: "olga"})
		default:
			apply(core.Event{Kind: core.EventReply, Seq: full.Steps[i].Out}) // and the service keeps nothing of it
		}
	}
	clear(w.effects["warehouse"])
	if r := w.compare(t); r.Kinds[operate.GhostMissing] != 2 {
		t.Errorf("in the next round, which was not accepted: %+v", r.Ghosts)
	}
}

// TestNoBooks: agents that keep no books are named and do not keep those of others from closing; one that kept some before
// is missed; where none keeps any, no task is looked for.
func TestNoBooks(t *testing.T) {
	w := newWorld()
	w.run(t, "good", 0, 0, 0)
	w.none["payment"] = true
	if r := w.compare(t); !r.Closed || r.Sentence() != "Books closed at 14:00: the journal and the services agree on 1 effect. 1 agent does not list effects, so nothing there is compared." {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
	if r := w.compareWith(t, Options{Kept: []string{"payment"}}); r.Closed || r.Silent() != 1 {
		t.Errorf("an agent that kept books is gone: %s: %+v", r.Sentence(), r)
	}
	w.none["warehouse"], w.lists = true, 0
	if r := w.compare(t); r.Closed || w.lists != 0 || r.Sentence() != "No agent lists its effects, as of 14:00, so there is nothing to compare." {
		t.Errorf("%s: %d pages of tasks, %+v", r.Sentence(), w.lists, r)
	}
}

// TestAgentThatFallsSilent: what an agent does not answer on the way, or makes up, is its own trouble alone.
func TestAgentThatFallsSilent(t *testing.T) {
	w := newWorld()
	w.run(t, "good", 0, 0, 0)
	asked := 0
	w.onAsk = func(agent string) {
		if agent == "payment" {
			asked++
			w.silent[agent] = asked > 1 // its pages were read; it is asked once more for those of processed tasks
		}
	}
	if r := w.compare(t); r.Closed || r.Total != 0 || r.Silent() != 1 || r.Effects != 2 {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
	w = newWorld()
	w.run(t, "good", 0, 0, 0)
	w.effects["payment"]["a b/charge/0"] = 1
	if r := w.compare(t); r.Closed || r.Total != 0 || !strings.Contains(r.Agents[0].Error, "task") {
		t.Errorf("a key that cannot be: %s: %+v", r.Sentence(), r)
	}
}

// TestAccepted: what an operator accepted is counted and not named; of another kind, or made once more, it is.
func TestAccepted(t *testing.T) {
	w := newWorld()
	w.run(t, "doubled", 0, 0, 0)
	w.effects["payment"]["doubled/charge/0"] = 2
	accepted := func(g *operate.Ghost) bool {
		return g.Key == "doubled/charge/0" && g.Kind == operate.GhostDoubled && g.Times == 2
	}
	if r := w.compareWith(t, Options{Accepted: accepted}); !r.Closed || r.Accepted != 1 || len(r.Ghosts) != 0 || !strings.HasSuffix(r.Sentence(), " 1 accepted difference is not counted.") {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
	w.effects["payment"]["doubled/charge/0"] = 3
	if r := w.compareWith(t, Options{Accepted: accepted}); r.Closed || r.Total != 1 {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
}

// TestCut: a comparison that reaches its limit of pages does not call the books closed.
func TestCut(t *testing.T) {
	w := newWorld()
	for i := range 7 {
		w.run(t, fmt.Sprintf("good-%d", i), 0, 0, 0)
	}
	if r := w.compareWith(t, Options{PagesMax: 2}); !r.Cut || r.Closed || !strings.Contains(r.Sentence(), "limit of pages") {
		t.Errorf("%s: %+v", r.Sentence(), r)
	}
}

// TestGhostOfEarlierRound: what an earlier round of a task left cannot be undone by the task, which is in a later one, and does
// not go away when the task's journal is forgotten.
func TestGhostOfEarlierRound(t *testing.T) {
	w := newWorld()
	w.run(t, "again", 0, 0, 0)
	w.effects["payment"]["again/charge/7"] = 1
	for _, journal := range [][]core.Record{w.tasks[0].Journal, nil} {
		w.tasks[0].Journal = journal
		r := w.compare(t)
		if r.Total != 1 || r.Ghosts[0].Kind != operate.GhostOfUndone || r.Ghosts[0].Can(operate.RepairUndo) {
			t.Errorf("with %d rows: %+v", len(journal), r)
		}
	}
}

// TestStepThatWasLeftOut: a processed task need not have done every step. One that was optional and refused has no effect,
// and none is wanted; and the children of a step are asked about at the agents of their own plans.
//
// covers: T10
func TestStepThatWasLeftOut(t *testing.T) {
	w := newWorld()
	w.plan.Steps[1].OnExhausted = core.PolicySkip
	if task := w.run(t, "o1", 0, core.CodeRefused, 0); task.State != core.StateProcessed || task.Steps[1].Status == core.StepDone {
		t.Fatalf("%s, step reserve is %s", task.State, task.Steps[1].Status)
	}
	if r := w.compare(t); r.Total != 0 {
		t.Errorf("%+v", r.Ghosts)
	}
	w.tasks[0].Journal, w.tasks[0].Err = nil, errors.New("a column is cut")
	if r := w.compare(t); r.Kinds[operate.GhostMissing] != 1 { // whether it was left out is not known: a person looks at it
		t.Errorf("its journal cannot be read: %+v", r.Kinds)
	}
	children := core.Plan{Steps: []core.Step{{Name: "parts", Kind: core.TaskStep, Child: "part", Undoable: true}, {Name: "pay", Agent: "payment", Undoable: true}}}
	if agents := undoableAgents([]core.Plan{children}); !slices.Equal(agents, []string{"payment"}) {
		t.Errorf("agents %q, want payment alone", agents)
	}
}
