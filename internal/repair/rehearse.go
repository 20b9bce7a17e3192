package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/seal"
)

const (
	rehearseBlocks = 20  // of consecutive members, of which a sample is made, spread evenly
	savedMax       = 100 // tasks with their journals in memory at a time
	reasonsMax     = 20  // different reasons that a rehearsal tells
	reasonsKept    = 500 // different reasons that it counts
	otherReasons   = "other reasons"
	playedMax      = 1000 // events of one member
)

// fate is what the core says that would become of one member now.
type fate uint8

const (
	fateRepairable fate = iota
	fateFails
	fateRefused
	fateWaiting
)

// player plays members on the pure core.
type player struct {
	cfg   *Config
	op    *operate.Operation
	store Store
	plans map[core.PlanKey]*core.Plan // version 0: the highest
	hold  Hold
	edit  *patch
	out   core.Outcome
	key   string // of a member's encrypted input, beside which the operation would put one payload for all; empty: of none
}

// newPlayer reads the plans. holds may be nil: nothing is held then.
func newPlayer(ctx context.Context, cfg *Config, op *operate.Operation, store Store, holds Holds) (*player, error) {
	p := &player{cfg: cfg, op: op, store: store, hold: func(*core.Task, *core.Step, bool) string { return "" }}
	var err error
	if p.edit, err = readPatch(op.Request.Patch); err != nil {
		return nil, err
	}
	plans, err := store.Plans(ctx)
	if unreadable := (core.UnreadablePlans{}); err != nil && !errors.As(err, &unreadable) {
		return nil, fmt.Errorf("plans: %w", err)
	}
	p.plans = core.PlansByKey(plans)
	for i := range plans {
		plan := &plans[i]
		if newest := p.plans[core.PlanKey{Name: plan.Name, Version: 0}]; newest == nil || newest.Version < plan.Version {
			p.plans[core.PlanKey{Name: plan.Name, Version: 0}] = plan
		}
	}
	if holds != nil {
		if p.hold, err = holds.Holds(ctx); err != nil {
			return nil, fmt.Errorf("what is paused and away: %w", err)
		}
	}
	return p, nil
}

// play says what would become of each member now, in their order.
func (p *player) play(ctx context.Context, members []operate.Member, at core.Instant, each func(m *operate.Member, f fate, why string)) error {
	saved, err := loadSaved(ctx, p.store, members, func(m *operate.Member, s *core.Saved) {
		f, why := p.one(m, s, at)
		each(m, f, why)
	})
	if err != nil {
		return err
	}
	for i := range members {
		if m := &members[i]; !saved[m.Ordinal] {
			each(m, fateRefused, say.Of("repair.forgotten"))
		}
	}
	return nil
}

// loadSaved reads rows with journals, few at a time, and returns the ordinals of those that are there.
func loadSaved(ctx context.Context, store Store, members []operate.Member, each func(*operate.Member, *core.Saved)) (map[int64]bool, error) {
	there := make(map[int64]bool, len(members))
	byPartition := map[int][]*operate.Member{}
	for i := range members {
		m := &members[i]
		byPartition[m.Partition] = append(byPartition[m.Partition], m)
	}
	for _, partition := range slices.Sorted(maps.Keys(byPartition)) {
		for some := range slices.Chunk(byPartition[partition], savedMax) {
			byNumber := make(map[int64]*operate.Member, len(some))
			numbers := make([]int64, 0, len(some))
			for _, m := range some {
				byNumber[m.Number] = m
				numbers = append(numbers, m.Number)
			}
			saved, err := store.Saved(ctx, partition, numbers)
			if err != nil {
				return nil, fmt.Errorf("journals of %d tasks of partition %d: %w", len(numbers), partition, err)
			}
			for i := range saved {
				if m := byNumber[saved[i].Row.Number]; m != nil {
					there[m.Ordinal] = true
					each(m, &saved[i])
				}
			}
		}
	}
	return there, nil
}

// one plays one member.
func (p *player) one(m *operate.Member, saved *core.Saved, at core.Instant) (fate, string) {
	plan := p.plans[core.PlanKey{Name: saved.Row.Type, Version: saved.Row.PlanVersion}]
	if saved.Row.PlanVersion == 0 {
		plan = nil
	}
	t, err := core.Replay(plan, saved)
	if err != nil {
		return fateRefused, say.Of("repair.unplayable")
	}
	if e, encrypted := seal.Of(t.Input); encrypted && (p.op.Action == operate.ActionEdit || p.op.Action == operate.ActionAccept) {
		p.key = e.Key
		return fateRefused, say.Of("repair.encrypted")
	}
	if t.Seq != m.Seq && guarded(p.op.Action) {
		return fateRefused, say.Of("repair.changed-since")
	}
	if t.PlanVersion == 0 { // its plan was unknown when it came, and may be known now
		plan = p.plans[core.PlanKey{Name: t.Type, Version: 0}]
	}
	state := t.State
	ev := event(p.op, m, at)
	if p.cfg.Evaluate != nil && plan != nil {
		ev.Ask = p.cfg.Evaluate(plan, t)
	}
	if p.edit != nil {
		if ev.Input, err = p.edit.apply(t.Input); err != nil {
			return fateRefused, err.Error()
		}
	}
	if p.op.Action == operate.ActionMigrate {
		ev.Plan = p.plans[core.PlanKey{Name: t.Type, Version: ev.Version}]
	}
	if err := t.Fits(plan, &ev, p.cfg.CheckInput, p.cfg.CheckSignal); err != nil {
		return fateRefused, core.ShortText(err.Error(), textMax)
	}
	if err := core.Apply(plan, t, &ev, &p.out); err != nil {
		return fateRefused, plain(err, t.ID, state)
	}
	if p.op.Action == operate.ActionResolve || p.op.Action == operate.ActionMigrate || plan == nil {
		return fateRepairable, ""
	}
	return p.on(plan, t, m.Step, took(plan, saved.Journal), at)
}

// on plays on until the step that had failed has passed, or the task has come to its end: each command is answered well, after
// the time that the step's newest try took in the task's journal, and children come to a good end.
func (p *player) on(plan *core.Plan, t *core.Task, failed string, took []time.Duration, at core.Instant) (fate, string) {
	undo, step := p.op.Action == operate.ActionUndo, plan.StepIndex(failed)
	due, held := p.open(plan, t, at), ""
	for range playedMax {
		switch {
		case undo && t.State == core.StateUndone, !undo && (t.State == core.StateProcessed || step >= 0 && t.Steps[step].Status == core.StepDone):
			return fateRepairable, ""
		case t.State.Ended(), t.State == core.StateUndoing && !undo:
			return fateFails, say.Of("repair.fails", "state", stateWords(t.State), "text", core.ShortText(instants.ReplaceAllString(t.Why, "…"), textMax))
		}
		for _, e := range p.out.Effects {
			ev, why := p.following(plan, t, &e, took, at)
			if held = cmp.Or(held, why); why == "" && ev.Kind != 0 {
				due = append(due, ev)
			}
		}
		if len(due) == 0 {
			return fateWaiting, cmp.Or(held, say.Of("repair.waits"))
		}
		next := 0
		for i := range due {
			if due[i].At < due[next].At {
				next = i
			}
		}
		ev := due[next]
		if due = slices.Delete(due, next, next+1); held != "" && ev.Kind == core.EventWake {
			return fateWaiting, held // until its deadline
		}
		at = max(at, ev.At)
		if ev.At, ev.Rand = at, 0.5; p.cfg.Evaluate != nil {
			ev.Ask = p.cfg.Evaluate(plan, t)
		}
		_ = core.Apply(plan, t, &ev, &p.out) // what is refused was over before
	}
	return fateWaiting, say.Of("repair.waits")
}

// open are the answers to what was out before the action, at once.
func (p *player) open(plan *core.Plan, t *core.Task, at core.Instant) (due []core.Event) {
	for i := range t.Steps {
		s, kind := &t.Steps[i], core.EventReply
		if plan.Steps[i].Kind.Parent() {
			kind = core.EventChild
		}
		if s.Out != 0 && !slices.ContainsFunc(p.out.Effects, func(e core.Effect) bool { return e.Step == i && e.Seq == s.Out }) {
			due = append(due, core.Event{Kind: kind, Seq: s.Out, Copy: s.Copy, At: at, Result: []byte("null")})
		}
	}
	return due
}

// following is the event that an effect leads to; why says what keeps it from coming.
func (p *player) following(plan *core.Plan, t *core.Task, e *core.Effect, took []time.Duration, at core.Instant) (ev core.Event, why string) {
	ev = core.Event{Seq: e.Seq, Copy: e.Copy, At: at, Result: []byte("null")}
	switch e.Kind {
	case core.EffectDo, core.EffectUndo:
		if why := p.hold(t, &plan.Steps[e.Step], e.Kind == core.EffectUndo); why != "" {
			return ev, why
		}
		if ev.Kind = core.EventReply; e.Kind == core.EffectDo {
			ev.At = at.Add(took[e.Step])
		}
		if ev.At >= e.At {
			ev = core.Event{Kind: core.EventOverdue, At: e.At}
		}
	case core.EffectChildren, core.EffectUndoChildren:
		ev.Kind = core.EventChild
	case core.EffectProbe:
		ev = core.Event{Kind: core.EventOverdue, At: e.At}
	case core.EffectWake:
		ev = core.Event{Kind: core.EventWake, At: max(at, e.At)}
	}
	return ev, ""
}

// took is how long the newest answered try of each step took.
func took(plan *core.Plan, journal []core.Record) []time.Duration {
	times, left := make([]time.Duration, len(plan.Steps)), make([]core.Instant, len(plan.Steps))
	for i := range journal {
		r := &journal[i]
		switch r.Kind {
		case core.KindDone, core.KindFailed, core.KindRefused:
			if r.Step >= 0 && left[r.Step] != 0 {
				times[r.Step] = r.At.Sub(left[r.Step])
			}
		}
		if r.Next >= 0 && !r.Undo {
			left[r.Next] = r.At
		}
	}
	return times
}

// instants are those of a reason, which each task has another of.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)

// plain is the reason of a refusal without the task's id and times, so that many tasks share it.
func plain(err error, id string, state core.State) string {
	text := err.Error()
	if _, after, found := strings.Cut(text, fmt.Sprintf("task %s is %s: ", id, state)); found {
		text = after
	}
	return core.ShortText(instants.ReplaceAllString(text, "…"), textMax)
}

// rehearse plays an operation's members, or a sample of them, within a bounded time.
func rehearse(ctx context.Context, cfg *Config, op *operate.Operation, store Store, holds Holds) (*operate.Rehearsal, error) {
	p, err := newPlayer(ctx, cfg, op, store, holds)
	if err != nil {
		return nil, err
	}
	var r operate.Rehearsal
	reasons := map[string]int64{}
	played := int64(0)
	each := func(_ *operate.Member, f fate, why string) {
		played++
		*[...]*int64{&r.Repairable, &r.FailedAgain, &r.Refused, &r.Waiting}[f]++
		if _, known := reasons[why]; why != "" && (known || len(reasons) < reasonsKept) {
			reasons[why]++
		} else if why != "" {
			reasons[otherReasons]++
		}
	}
	began := cfg.Now()
	for _, b := range blocks(op.Tasks, int64(cfg.RehearseMax)) {
		for after := b.after; after < b.to; {
			if cfg.Now().Sub(began) >= cfg.RehearseFor {
				break
			}
			limit := min(b.to-after, pageMax)
			members, err := store.Members(ctx, op.ID, "", after, int(limit))
			if err != nil {
				return nil, fmt.Errorf("members of operation %s: %w", op.ID, err)
			}
			if len(members) == 0 {
				break
			}
			if err := p.play(ctx, members, core.InstantOf(cfg.Now()), each); err != nil {
				return nil, err
			}
			if p.key != "" {
				return nil, bad("action", "%s", say.Of("refuse.encrypted", "key", core.QuoteShort(p.key), "action", op.Action, "command", op.Action))
			}
			after = members[len(members)-1].Ordinal
		}
	}
	if played < op.Tasks {
		r.Sampled = played
	}
	r.Reasons = topReasons(reasons)
	return &r, nil
}

// block is the members with ordinals above after, up to to.
type block struct{ after, to int64 }

// blocks spreads a sample of at most most members evenly over all.
func blocks(all, most int64) []block {
	if all <= most {
		return []block{{0, all}}
	}
	n := min(rehearseBlocks, most)
	size := most / n
	var list []block
	for i := range n {
		after := i * all / n
		list = append(list, block{after, after + size})
	}
	return list
}

// topReasons are the reasons of most members, and the others added up.
func topReasons(by map[string]int64) []operate.ReasonCount {
	var all []operate.ReasonCount
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		all = append(all, operate.ReasonCount{Reason: reason, Tasks: by[reason]})
	}
	slices.SortStableFunc(all, func(a, b operate.ReasonCount) int { return cmp.Compare(b.Tasks, a.Tasks) })
	if len(all) <= reasonsMax {
		return all
	}
	other := operate.ReasonCount{Reason: otherReasons}
	for _, r := range all[reasonsMax-1:] {
		other.Tasks += r.Tasks
	}
	return append(all[:reasonsMax-1], other)
}

// pageMax is how many members one statement reads.
const pageMax = operate.ListMax

// DefaultRehearse are the defaults of Config.RehearseMax and RehearseFor.
const (
	defaultRehearseMax = 20_000
	defaultRehearseFor = 10 * time.Second
)
