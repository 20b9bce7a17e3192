package versions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
)

// life is a task that is made here, event by event.
type life struct {
	t     testing.TB
	plan  *core.Plan
	saved core.Saved
	task  *core.Task
	now   core.Instant
	out   core.Outcome
}

func birth(t testing.TB, p *core.Plan) *life {
	t.Helper()
	l := &life{t: t, plan: p, now: 1_700_000_000_000_000}
	l.task = &core.Task{ID: "t1", Type: p.Name, Number: 1, CreatedAt: l.now, Input: []byte(`{}`)}
	l.saved.Row = *l.task
	core.Birth(p, l.task, &core.Event{At: l.now, Actor: "n1"}, &l.out)
	l.keep()
	return l
}

func (l *life) keep() {
	l.saved.Journal = append(l.saved.Journal, l.out.Records...)
	row := l.saved.Row
	l.saved.Row = *l.task
	l.saved.Row.Steps, l.saved.Row.Input = nil, row.Input
}

func (l *life) event(after time.Duration, ev core.Event) *life {
	l.t.Helper()
	l.now = l.now.Add(after)
	ev.At, ev.Actor = l.now, "n1"
	if err := core.Apply(l.plan, l.task, &ev, &l.out); err != nil {
		l.t.Fatal(err)
	}
	l.keep()
	return l
}

// answer is that of the step's agent.
func (l *life) answer(after time.Duration, step string, code int) *life {
	l.t.Helper()
	return l.event(after, core.Event{Kind: core.EventReply, Seq: l.task.Steps[l.plan.StepIndex(step)].Out, Code: code, Error: "no luck", Result: []byte(`1`), Rand: 0.5})
}

func TestPlay(t *testing.T) {
	old := order(3, nil)
	done := birth(t, &old).answer(time.Second, "check", 0).answer(3*time.Second, "charge", 0).answer(time.Second, "ship", 0)
	again := birth(t, &old).answer(time.Second, "check", 0).answer(time.Second, "charge", 500)
	again.event(time.Second, core.Event{Kind: core.EventWake}).answer(time.Second, "charge", 422)
	again.answer(time.Second, "charge", 0) // its undo
	fresh := birth(t, &old)
	silent := birth(t, &old)
	silent.event(10*time.Second, core.Event{Kind: core.EventOverdue})
	cancelled := birth(t, &old).event(time.Second, core.Event{Kind: core.EventCancel, Reason: "no"}).answer(time.Second, "check", 0)
	all := map[string]*life{"done": done, "again": again, "fresh": fresh, "silent": silent, "cancelled": cancelled}
	if done.task.State != core.StateProcessed || again.task.State != core.StateUndone || cancelled.task.State != core.StateUndone {
		t.Fatal(done.task.State, again.task.State, cancelled.task.State)
	}
	for name, c := range map[string]struct {
		change func(*core.Plan)
		parts  map[string]string // by life: fate, row, what is decided
	}{
		"the same":         {nil, nil},
		"a longer backoff": {func(p *core.Plan) { p.Steps[1].Backoff, p.Steps[1].BackoffCap = 5*time.Second, time.Minute }, nil},
		"another agent": {func(p *core.Plan) { p.Steps[1].Agent = "card" }, map[string]string{
			"done": "different 2: do of charge, attempt 1, at card; the task is processing", "again": "different 2: do of charge, attempt 1, at card; the task is processing"}},
		"fewer tries": {func(p *core.Plan) { p.Steps[1].AttemptsMax = 1 }, map[string]string{
			"again": "different 3: step charge is failed; undo of charge, attempt 1, at payment; the task is undoing"}},
		"less time": {func(p *core.Plan) { p.Steps[1].CompleteBy = 2 * time.Second }, map[string]string{
			"done": "different 3: the answer comes after its complete-by, 2023-11-14T22:13:23.000000Z"}},
		"more time": {func(p *core.Plan) { p.Steps[0].CompleteBy = 20 * time.Second }, map[string]string{
			"silent": "unknown 2: it waits for the answer until 2023-11-14T22:13:40.000000Z"}},
		"a step in between": {func(p *core.Plan) {
			p.Steps = slices.Insert(p.Steps, 2, core.Step{Name: "pack", Agent: "pack", After: []int{1}, Undoable: true})
			p.Steps[3].After = []int{2}
		}, map[string]string{"done": "different 3: do of pack, attempt 1, at pack; the task is processing"}},
		"a step at the end": {func(p *core.Plan) {
			p.Steps = append(p.Steps, core.Step{Name: "mail", Agent: "mail", After: []int{2}})
		}, map[string]string{"done": "different 4: do of mail, attempt 1, at mail; the task is processing"}},
		"a step less": {func(p *core.Plan) { p.Steps = p.Steps[:2] }, map[string]string{"done": "different 3: the task is processed"}},
		"another place in the list": {func(p *core.Plan) {
			p.Steps = []core.Step{{Name: "charge", Agent: "payment", Undoable: true}, {Name: "check", Agent: "credit.check"}, {Name: "ship", Agent: "ship", After: []int{0}, Undoable: true}}
		}, map[string]string{"done": "different 1", "again": "different 1", "fresh": "different 1", "silent": "different 1", "cancelled": "different 1"}},
		"a shorter deadline": {func(p *core.Plan) {
			p.CompleteBy = 1500 * time.Millisecond
			for i := range p.Steps {
				p.Steps[i].CompleteBy, p.Steps[i].UndoCompleteBy = 1500*time.Millisecond, time.Second
			}
		}, map[string]string{"done": "different", "again": "different", "silent": "different", "cancelled": "different 3: the answer comes after its complete-by"}},
	} {
		other := order(4, c.change)
		if err := other.Validate(0); err != nil {
			t.Fatal(name, err)
		}
		for of, l := range all {
			v := play(&old, &other, &l.saved, nil)
			got, want := fmt.Sprintf("%s %d: %s", v.Fate, v.Seq, v.Is), c.parts[of]
			if want == "" {
				want = "same 0: "
			}
			if !strings.HasPrefix(got, want) || v.Fate != fateSame && v.Event == "" {
				t.Errorf("%s, %s: %s (was %s, %s), want %s", name, of, got, v.Was, v.Why, want)
			}
		}
	}
	if v := play(&old, &old, &core.Saved{}, nil); v.Fate != fateUnknown || v.Why != "its journal is forgotten" {
		t.Errorf("%+v", v)
	}
}

// Journals of stormy worlds, of chains and of graphs, come out the same against their own version under another number: what
// cannot be said is little, and nothing is called different.
func TestPlayOfStorms(t *testing.T) {
	for name, graph := range map[string]bool{"chains": false, "graphs": true} {
		fates, why := map[Fate]int{}, []string{}
		for seed := range uint64(100) {
			cfg := sim.Draw(seed)
			cfg.Graph = graph
			w := sim.New(cfg)
			_ = w.Run() // whether the world was well is for its own tests; here its journals count
			plans, err := w.Store.Plans(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			numbers := make([]int64, 2000)
			for i := range numbers {
				numbers[i] = int64(i)
			}
			for partition := range cfg.Partitions {
				all, err := w.Store.LoadNumbers(t.Context(), core.AsOf{Partition: partition}, numbers)
				if err != nil {
					t.Fatal(err)
				}
				for i := range all {
					for k := range plans {
						if plans[k].Name != all[i].Row.Type || plans[k].Version != all[i].Row.PlanVersion {
							continue
						}
						other := plans[k]
						other.Version++
						v := play(&plans[k], &other, &all[i], nil)
						switch {
						case v.Fate == fateDifferent:
							t.Errorf("seed %d, task %s: %+v", seed, all[i].Row.ID, v)
						case v.Fate == fateUnknown && (v.Seq == 0 || strings.Contains(v.Why, "went_back") || strings.Contains(v.Why, "did not begin") || all[i].Journal[v.Seq-1].Kind == core.KindPoisoned):
							continue // they cannot be said by anyone
						case v.Fate == fateUnknown:
							why = append(why, fmt.Sprintf("seed %d, task %s: %+v", seed, all[i].Row.ID, v))
						}
						fates[v.Fate]++
					}
				}
			}
		}
		const least = 90 // of 100; where steps begin side by side at one instant, or gates hold some back, journals say less
		if n := fates[fateSame] + fates[fateUnknown]; n < 100 || fates[fateSame]*100 < n*least {
			t.Errorf("%s: %v\n%s", name, fates, strings.Join(why, "\n"))
		}
	}
}

// BenchmarkPlay plays a task of three steps with one failure: a million should take minutes at most.
func BenchmarkPlay(b *testing.B) {
	old, other := order(3, nil), order(4, nil)
	l := birth(b, &old).answer(time.Second, "check", 0).answer(time.Second, "charge", 500)
	l.event(time.Second, core.Event{Kind: core.EventWake}).answer(time.Second, "charge", 0).answer(time.Second, "ship", 0)
	for b.Loop() {
		if v := play(&old, &other, &l.saved, nil); v.Fate != fateSame {
			b.Fatal(v)
		}
	}
}

// TestEveryKindIsPlayed: each kind of row is played, or is one that does not say all that happened.
//
// covers: L5
func TestEveryKindIsPlayed(t *testing.T) {
	var not []core.Kind
	for _, kind := range core.Kinds() {
		if strange(&core.Record{Kind: kind}, 1) != "" {
			not = append(not, kind)
		}
	}
	if want := []core.Kind{core.KindAsked, core.KindMigrated, core.KindWentBack}; !slices.Equal(not, want) {
		t.Errorf("not played: %v, want %v", not, want)
	}
}
