package scheduler

import (
	"context"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// planBook is the plans as last read. A plan version never changes, so what is
// in the book stays true; only what is missing is looked for again.
type planBook struct {
	cfg   *Config
	store Store
	tally *tally
	now   core.Instant // of the commit cycle

	byType map[string]map[int64]*core.Plan
	latest map[string]*core.Plan
	refs   map[refKey]*planRef
	readAt core.Instant
	old    bool // a change was announced

	unreadable core.UnreadablePlans // as last read: plans that a newer binary stored
	deprecated core.Deprecations    // as last read
}

type refKey struct {
	partition int
	plan      *core.Plan
}

func (b *planBook) forget(partition int) {
	for key := range b.refs {
		if key.partition == partition {
			delete(b.refs, key)
		}
	}
}

func (b *planBook) find(name string, version int64) *core.Plan {
	if version == 0 {
		return b.latest[name]
	}
	return b.byType[name][version]
}

// refuses returns the plan that a task would need and that cannot be read, or nil.
func (b *planBook) refuses(name string, version int64) *core.UnreadablePlan {
	if len(b.unreadable) == 0 {
		return nil
	}
	if version == 0 {
		version = b.deprecated.Current(b.unreadable).Newest(name)
		if newest := b.latest[name]; newest != nil && newest.Version > version {
			return nil
		}
	}
	return b.unreadable.Find(name, version)
}

// marked reports whether that version is deprecated; 0: whether the type has plans and all of them are.
func (b *planBook) marked(name string, version int64) bool {
	if version == 0 {
		return b.latest[name] == nil && len(b.byType[name]) > 0
	}
	return b.deprecated.Has(name, version)
}

func (b *planBook) read(plans []core.Plan, unreadable core.UnreadablePlans, deprecated core.Deprecations, now core.Instant) {
	b.unreadable, b.deprecated = unreadable, deprecated
	clear(b.latest)
	for i := range plans {
		p := plans[i]
		versions := b.byType[p.Name]
		if versions == nil {
			versions = map[int64]*core.Plan{}
			b.byType[p.Name] = versions
		}
		if versions[p.Version] == nil { // else keep the pointer that tasks in flight share
			versions[p.Version] = &p
		}
		if l := b.latest[p.Name]; !deprecated.Has(p.Name, p.Version) && (l == nil || l.Version < p.Version) {
			b.latest[p.Name] = versions[p.Version]
		}
	}
	b.readAt, b.old = now, false
}

// mayReread reports whether the plans may be read again for one that is missing. A version
// that a door or a task names is stored, so it is looked for at once. One that a
// submitter guessed is looked for once a cycle, which began after its submission came. A
// type alone may be a guess, and many of those are not looked up.
func (b *planBook) mayReread(version int64, guessed bool) bool {
	switch {
	case version == 0:
		return b.readAt.Elapsed(b.now, b.cfg.PlansRetry)
	case guessed:
		return b.now > b.readAt
	}
	return true
}

// of returns the plan with its agents' slots in the partition; version 0
// takes the highest that is not deprecated. nil: there is none, also after a fresh look, or it is there and cannot be
// read: unread says so. A task of that one must wait for a newer binary, and
// neither run as another version nor end as one without a plan.
func (b *planBook) of(ctx context.Context, p *partition, name string, version int64, guessed bool) (ref *planRef, unread *core.UnreadablePlan, err error) {
	plan, unread := b.find(name, version), b.refuses(name, version)
	if b.old || plan == nil && b.mayReread(version, guessed || unread != nil) && (unread == nil || b.readAt.Elapsed(b.now, b.cfg.PlansRetry)) {
		plans, err := b.store.Plans(ctx)
		unreadable, some := errors.AsType[core.UnreadablePlans](err)
		if err != nil && !some {
			return nil, nil, fmt.Errorf("plans: %w", err)
		}
		deprecated, err := b.store.Deprecated(ctx)
		if err != nil {
			return nil, nil, err
		}
		b.read(plans, unreadable, deprecated, b.now)
		plan, unread = b.find(name, version), b.refuses(name, version)
	}
	if plan == nil || unread != nil {
		return nil, unread, nil
	}
	key := refKey{p.id, plan}
	ref = b.refs[key]
	if ref == nil {
		ref = &planRef{plan: plan, stepsOf: p.stepsOf(plan), counts: b.tally.types.of(plan.Name), steps: b.tally.steps(plan)}
		b.refs[key] = ref
	}
	return ref, nil, nil
}

// unfit says why an input is none of a plan's, and with which code of HTTP that is refused; empty: it is.
func (b *planBook) unfit(ref *planRef, id string, input []byte) (code int, why string) {
	if len(input) > ref.plan.InputMax {
		return 413, fmt.Sprintf("input of task %s has %d bytes, the limit of plan %s is %d", id, len(input), ref.plan.Name, ref.plan.InputMax)
	}
	if err := ref.plan.FitsInput(input, b.cfg.CheckInput); err != nil {
		return 422, err.Error()
	}
	return 0, ""
}

// awaits reports whether what is parked in a slot waits for a plan that cannot be read here. A look costs a search of
// the plans as last read.
func (b *planBook) awaits(ctx context.Context, p *partition, slot *agentSlot) (bool, error) {
	name, version, is := core.AwaitedPlan(slot.name)
	if !is || !slot.order.waits() {
		return false, nil
	}
	ref, _, err := b.of(ctx, p, name, version, true)
	return ref == nil, err
}

// versionFor gives an event that moves a task the version of the plan that it names; why says that this node cannot read it.
func (b *planBook) versionFor(ctx context.Context, p *partition, e *entry, ev *core.Event) (why, err error) {
	to, unread, err := b.of(ctx, p, e.task.Type, ev.Version, true)
	if unread != nil {
		return fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, unread), nil
	}
	if err != nil || to == nil {
		return nil, err // the core refuses a version that is not known
	}
	ev.Plan = to.plan
	return nil, nil
}
