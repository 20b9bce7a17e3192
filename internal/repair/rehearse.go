package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
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
	fateUndone
	fateRefused
	fateWaiting
)

// player plays members on the pure core.
type player struct {
	cfg   *Config
	op    *operate.Operation
	store Store
	plans map[planKey]*core.Plan // version 0: the highest
	hold  Hold
	edit  *patch
	out   core.Outcome
	key   string // of a member's encrypted input, beside which the operation would put one payload for all; empty: of none
}

type planKey struct {
	name    string
	version int64
}

// newPlayer reads the plans. holds may be nil: nothing is held then.
func newPlayer(ctx context.Context, cfg *Config, op *operate.Operation, store Store, holds Holds) (*player, error) {
	p := &player{cfg: cfg, op: op, store: store, plans: map[planKey]*core.Plan{}, hold: func(*core.Task, *core.Step, bool) string { return "" }}
	var err error
	if p.edit, err = readPatch(op.Request.Patch); err != nil {
		return nil, err
	}
	plans, err := store.Plans(ctx)
	if unreadable := (core.UnreadablePlans{}); err != nil && !errors.As(err, &unreadable) {
		return nil, fmt.Errorf("plans: %w", err)
	}
	for i := range plans {
		plan := &plans[i]
		p.plans[planKey{plan.Name, plan.Version}] = plan
		if newest := p.plans[planKey{plan.Name, 0}]; newest == nil || newest.Version < plan.Version {
			p.plans[planKey{plan.Name, 0}] = plan
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
			each(m, fateRefused, "the task is forgotten")
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
	for _, partition := range sortedKeys(byPartition) {
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
	plan := p.plans[planKey{saved.Row.Type, saved.Row.PlanVersion}]
	if saved.Row.PlanVersion == 0 {
		plan = nil
	}
	t, err := core.Replay(plan, saved)
	if err != nil {
		return fateRefused, "its journal cannot be replayed"
	}
	if e, encrypted := seal.Of(t.Input); encrypted && (p.op.Action == operate.ActionEdit || p.op.Action == operate.ActionAccept) {
		p.key = e.Key
		return fateRefused, "its payloads are encrypted"
	}
	if t.Seq != m.Seq && guarded(p.op.Action) {
		return fateRefused, "changed since the preview"
	}
	if t.PlanVersion == 0 { // its plan was unknown when it came, and may be known now
		plan = p.plans[planKey{t.Type, 0}]
	}
	state := t.State
	ev := event(p.op, m, at)
	if p.edit != nil {
		if ev.Input, err = p.edit.apply(t.Input); err != nil {
			return fateRefused, err.Error()
		}
	}
	if p.op.Action == operate.ActionMigrate {
		ev.Plan = p.plans[planKey{t.Type, ev.Version}]
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

// on plays on until the step that had failed has passed, or the undo has ended: each command is answered well, after
// the time that the step's newest try took in the task's journal.
func (p *player) on(plan *core.Plan, t *core.Task, failed string, took []time.Duration, at core.Instant) (fate, string) {
	undo, step := p.op.Action == operate.ActionUndo, plan.StepIndex(failed)
	for range playedMax {
		back := t.State == core.StateUndoing || t.State == core.StateUndone
		switch {
		case back && !undo:
			return fateUndone, "its deadline leaves no time: it would be undone"
		case t.State.Ended(), !undo && step >= 0 && t.Steps[step].Status == core.StepDone:
			return fateRepairable, ""
		}
		ev, why := p.following(plan, t, took, at)
		if why != "" {
			return fateWaiting, why
		}
		at = ev.At
		if err := core.Apply(plan, t, &ev, &p.out); err != nil {
			break
		}
	}
	return fateWaiting, "it would wait"
}

// following is the event that comes after the present effects; why says what keeps it from coming.
func (p *player) following(plan *core.Plan, t *core.Task, took []time.Duration, at core.Instant) (ev core.Event, why string) {
	ev.Rand = 0.5
	for _, e := range p.out.Effects {
		switch e.Kind {
		case core.EffectDo, core.EffectUndo:
			s := &plan.Steps[e.Step]
			if why := p.hold(t, s, e.Kind == core.EffectUndo); why != "" {
				return ev, why
			}
			ev.Kind, ev.Seq, ev.Copy, ev.At, ev.Result = core.EventReply, e.Seq, e.Copy, at, []byte("null")
			if e.Kind == core.EffectDo {
				ev.At = at.Add(took[e.Step])
			}
			if ev.At >= e.At {
				ev.Kind, ev.At = core.EventOverdue, e.At
			}
			return ev, ""
		case core.EffectWake:
			ev.Kind, ev.At = core.EventWake, max(at, e.At)
		}
	}
	if ev.Kind == 0 {
		return ev, "it would wait"
	}
	return ev, ""
}

// took is how long the newest answered try of each step took.
func took(plan *core.Plan, journal []core.Record) []time.Duration {
	times, left := make([]time.Duration, len(plan.Steps)), make([]core.Instant, len(plan.Steps))
	for i := range journal {
		r := &journal[i]
		switch r.Kind {
		case core.KindDone, core.KindFailed, core.KindRefused, core.KindOverdue:
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
		*[...]*int64{&r.Repairable, &r.Undone, &r.Refused, &r.Waiting}[f]++
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
				return nil, bad("action", "there are tasks whose payloads are encrypted, with key %s, and an encrypted payload is of one task: %s them one by one, by `duly task %s` with --payload-keys", core.QuoteShort(p.key), op.Action, op.Action)
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
	for _, reason := range sortedKeys(by) {
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// pageMax is how many members one statement reads.
const pageMax = operate.ListMax

// DefaultRehearse are the defaults of Config.RehearseMax and RehearseFor.
const (
	DefaultRehearseMax = 20_000
	DefaultRehearseFor = 10 * time.Second
)
