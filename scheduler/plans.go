package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// planBook caches the plans as last read from the store. A version of a plan never changes, so the cache is never wrong; it
// is read again only when a plan is missing or a change was announced.
type planBook struct {
	cfg   *Config
	store Store
	tally *tally
	now   core.Instant // of the commit cycle

	// byType holds every readable version by the type's name and version; latest the highest that is not
	// deprecated.
	byType map[string]map[int64]*core.Plan
	latest map[string]*core.Plan
	// refs holds a planRef for each plan used in a partition.
	refs   map[refKey]*planRef
	readAt core.Instant
	// old is whether a change was announced since the last read.
	old bool

	// unreadable are plans that a newer version of Duly stored; deprecated are versions that only those who
	// name them get.
	unreadable core.UnreadablePlans
	deprecated core.Deprecations
}

type refKey struct {
	partition int
	plan      *core.Plan
}

// forget drops the planRefs of a partition that is let go.
func (b *planBook) forget(partition int) {
	for key := range b.refs {
		if key.partition == partition {
			delete(b.refs, key)
		}
	}
}

// find looks in the cache alone. Version 0 stands for the highest that is not deprecated.
func (b *planBook) find(name string, version int64) *core.Plan {
	if version == 0 {
		return b.latest[name]
	}
	return b.byType[name][version]
}

// refuses returns the plan that a task of this type and version needs and that this node cannot read; nil:
// there is none. With version 0 an unreadable version counts only if it is newer than the newest readable
// one.
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

// bearing reports whether some version of a type that can be read here has a step with one child.
func (b *planBook) bearing(name string) bool {
	for _, plan := range b.byType[name] {
		if slices.ContainsFunc(plan.Steps, func(step core.Step) bool { return step.Kind == core.TaskStep }) {
			return true
		}
	}
	return false
}

// marked reports whether a version is deprecated; for version 0, whether the type has plans and all are
// deprecated.
func (b *planBook) marked(name string, version int64) bool {
	if version == 0 {
		return b.latest[name] == nil && len(b.byType[name]) > 0
	}
	return b.deprecated.Has(name, version)
}

// read replaces the cache. Plans that are known already keep their pointer, which tasks in flight share.
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
		if versions[p.Version] == nil { // tasks in flight share the pointer of a known plan
			versions[p.Version] = &p
		}
		if l := b.latest[p.Name]; !deprecated.Has(p.Name, p.Version) && (l == nil || l.Version < p.Version) {
			b.latest[p.Name] = versions[p.Version]
		}
	}
	b.readAt, b.old = now, false
}

// mayReread reports whether the plans may be read again for one that is missing, since anybody can submit
// guesses. A version that ingest or a task names was stored, so it is read at once. A version that a
// submitter guessed is read for once a cycle. A type without a version may be a guess too, and is read for
// only every PlansRetry.
func (b *planBook) mayReread(version int64, guessed bool) bool {
	switch {
	case version == 0:
		return b.readAt.Elapsed(b.now, b.cfg.PlansRetry)
	case guessed:
		return b.now > b.readAt
	}
	return true
}

// of returns the plan with its agents' slots in the partition. Version 0 takes the highest that is not
// deprecated. guessed: the version comes from a submitter and was not checked. ref is nil if there is no such
// plan even after reading again, or if it exists and this node cannot read it: unread is set then, and a task
// of it must wait for a newer Duly, neither run as another version nor end as a task without a plan.
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

// unfit says why a plan does not take an input, and with which HTTP status it is refused; empty: it takes it.
func (b *planBook) unfit(ref *planRef, id string, input []byte) (code int, why string) {
	if len(input) > ref.plan.InputMax {
		return 413, fmt.Sprintf("input of task %s has %d bytes, the limit of plan %s is %d", id, len(input), ref.plan.Name, ref.plan.InputMax)
	}
	if err := ref.plan.FitsInput(input, b.cfg.CheckInput); err != nil {
		return 422, err.Error()
	}
	return 0, ""
}

// awaits reports whether what is parked in a slot waits for a plan that this node still cannot read. (Tasks
// whose plan is unreadable are parked at a made-up agent that names the plan.)
func (b *planBook) awaits(ctx context.Context, p *partition, slot *agentSlot) (bool, error) {
	name, version, is := core.AwaitedPlan(slot.name)
	if !is || !slot.order.waits() {
		return false, nil
	}
	ref, _, err := b.of(ctx, p, name, version, true)
	return ref == nil, err
}

// versionFor fills an event that moves a task to another version with that plan. why says that this node
// cannot read it; a version that does not exist is left to the core to refuse.
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
