package repair

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestPreviewsCountWhatIsDone: of drawn tasks of drawn plans, whatever has become of them, each action comes to what its
// preview has counted, member by member, when agents answer well and as fast as before.
//
// covers: O7, OP3
func TestPreviewsCountWhatIsDone(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				(&drawn{T: t, w: w, r: rand.New(rand.NewPCG(seed, 52)), seen: seen}).run()
			})
		})
	}
	for _, action := range []operate.Action{operate.ActionUndo, operate.ActionResubmit, operate.ActionEdit, operate.ActionAccept, operate.ActionResolve, operate.ActionMigrate} {
		if seen[string(action)+" "+string(operate.OutcomeDone)] == 0 || seen[string(action)+" "+string(operate.OutcomeSkipped)] == 0 {
			t.Errorf("%s: drawn were %v", action, seen)
		}
	}
	if seen["undo failed_again"] == 0 {
		t.Errorf("no undo gives up: %v", seen)
	}
}

// drawn is one world with drawn plans and tasks.
type drawn struct {
	*testing.T
	w    *world
	r    *rand.Rand
	seen map[string]int
}

func (d *drawn) one(in int) bool { return d.r.IntN(in) == 0 }

// plan draws a plan: steps one after the other or beside each other, checks, waits, conditions, policies, and times.
func (d *drawn) plan(name string) core.Plan {
	p := core.Plan{Name: name, Version: 1, CompleteBy: []time.Duration{6 * time.Second, 2 * time.Minute}[d.r.IntN(2)]}
	for i := range 2 + d.r.IntN(3) {
		s := core.Step{Name: string(rune('a' + i)), Agent: "agent", Undoable: !d.one(4), AttemptsMax: 1 + d.r.IntN(2), Backoff: 100 * time.Millisecond,
			OnExhausted: []core.Policy{core.PolicyUndo, core.PolicyError, core.PolicyError, core.PolicySkip}[d.r.IntN(4)]}
		if i > 0 && !d.one(4) {
			s.After = []int{d.r.IntN(i)}
		}
		switch {
		case d.one(8):
			s = core.Step{Name: s.Name, Kind: core.WaitStep, For: 3 * time.Second, After: s.After}
		case d.one(4):
			s.When = "asked of the test"
		case d.one(4) && s.Undoable:
			s.KeyLasts = time.Minute
		}
		p.Steps = append(p.Steps, s)
	}
	return p.WithDefaults()
}

// conditions answers all of them alike.
type conditions struct{ core.Asker }

func (conditions) When(int) (bool, error) { return true, nil }

// answers draws what agents say of each task's steps, always the same of one.
func (d *drawn) answers() func(*task, string, bool) answer {
	said, r := map[string]answer{}, rand.New(rand.NewPCG(d.r.Uint64(), 53)) // the world's own: it draws beside the test
	return func(t *task, step string, undo bool) answer {
		key := fmt.Sprint(t.live.ID, step, undo)
		a, is := said[key]
		if !is {
			a = answer{after: time.Duration(r.IntN(6)) * 1370 * time.Millisecond}
			switch r.IntN(8) {
			case 0, 1:
				a.code, a.text = core.CodeRefused, "declined"
			case 2:
				a.code, a.text = 500, "broken"
			case 3:
				a.after = -1
			}
			said[key] = a
		}
		return a
	}
}

// well answers as fast as before.
func well(t *task, step string, undo bool) answer {
	if undo {
		return answer{}
	}
	return answer{after: took(t.plan, t.Journal)[t.plan.StepIndex(step)]}
}

func (d *drawn) run() {
	w, cfg := d.w, config()
	cfg.Evaluate = func(*core.Plan, *core.Task) core.Asker { return conditions{} }
	w.set(func() { w.answer, w.asker = d.answers(), conditions{} })
	var plans []core.Plan
	for i := range 2 {
		plans = append(plans, d.plan(fmt.Sprintf("plan%d", i)))
		w.begin(plans[i], 4)
	}
	pass(time.Duration(d.r.IntN(100)) * time.Second)
	for _, t := range w.tasks {
		if d.one(5) {
			w.set(func() { _ = w.apply(t, core.Event{Kind: core.EventUndo, Actor: "olga"}) })
		}
	}
	pass(time.Duration(d.r.IntN(15)) * 5 * time.Second)
	w.set(func() { w.answer = well })
	pass(time.Minute) // what was out has been answered

	request := d.request(&plans[0])
	sel := operate.Selection{}
	for _, t := range w.tasks {
		sel.IDs = append(sel.IDs, operate.TaskRef{Type: t.live.Type, ID: t.live.ID})
	}
	s := NewService(cfg, w.db, w.desk(), w.db, nil, w.db, quiet)
	p, err := s.Preview(d.Context(), anna, sel, request)
	if err != nil {
		d.Fatal(err)
	}
	fates, states := d.fates(&cfg, p.Token), map[int64]core.State{}
	for i, t := range w.tasks {
		states[int64(i+1)] = t.live.State
	}
	op, err := s.Start(d.Context(), anna, p.Token, 0, 100, "drawn", p.Tasks)
	if err != nil {
		d.Fatal(err)
	}
	stop := w.runner(d.Context(), cfg)
	defer stop()
	pass(150 * time.Second)
	op, members := w.op(op.ID)
	for i := range members {
		m := &members[i]
		if d.seen[string(request.Action)+" "+string(m.Outcome)]++; m.Outcome != fates[m.Ordinal].outcome {
			t := w.task(m.Partition, m.Number)
			d.Errorf("%s of %s, which was %s, is %s (%s), and the preview said %s (%s); its journal:%s", request.Action, m.ID, states[m.Ordinal], m.Outcome, m.Text, fates[m.Ordinal].outcome, fates[m.Ordinal].why, journalOf(t))
		}
	}
	r := p.Rehearsal
	if got := op.Tally; got.Done != r.Repairable || got.FailedAgain != r.FailedAgain || got.Skipped != r.Refused || got.Asked != r.Waiting {
		d.Errorf("%s came to %+v, and its preview said %+v", request.Action, got, *r)
	}
}

// request draws an action.
func (d *drawn) request(p *core.Plan) operate.Request {
	switch d.r.IntN(6) {
	case 0:
		return operate.Request{Action: operate.ActionResubmit}
	case 1:
		return operate.Request{Action: operate.ActionEdit, Input: []byte(`{"again":1}`)}
	case 2:
		return operate.Request{Action: operate.ActionAccept, Result: []byte(`{"by":"hand"}`)}
	case 3:
		return operate.Request{Action: operate.ActionResolve, As: core.StateUndone}
	case 4:
		next := *p
		next.Version = 2
		d.w.set(func() { d.w.store(next) })
		return operate.Request{Action: operate.ActionMigrate, Version: 2}
	}
	return operate.Request{Action: operate.ActionUndo}
}

// expected is what a preview has counted a member as.
type expected struct {
	outcome operate.Outcome
	why     string
}

// fates are what the rehearsal of a preview says of each member.
func (d *drawn) fates(cfg *Config, token string) map[int64]expected {
	op, members := d.w.op(token)
	p, err := newPlayer(d.Context(), cfg, &op, d.w.db, nil)
	if err != nil {
		d.Fatal(err)
	}
	all := map[int64]expected{}
	err = p.play(d.Context(), members, now(), func(m *operate.Member, f fate, why string) {
		all[m.Ordinal] = expected{map[fate]operate.Outcome{fateRepairable: operate.OutcomeDone, fateFails: operate.OutcomeFailedAgain, fateRefused: operate.OutcomeSkipped, fateWaiting: operate.OutcomeAsked}[f], why}
	})
	if err != nil {
		d.Fatal(err)
	}
	return all
}

func journalOf(t *task) (text string) {
	for _, r := range t.Journal {
		text += fmt.Sprintf("\n\t%d %s %s step %d %s try %d next %d undo %v: %d %s %s", r.Seq, r.At.Time().Format("04:05.000"), r.Kind, r.Step, r.StepStatus, r.Attempt, r.Next, r.Undo, r.Code, r.Error, r.State)
	}
	return text
}
