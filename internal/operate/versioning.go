package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
	"duly.dev/duly/internal/say"
)

// VersionStore keeps which versions of plans are deprecated.
type VersionStore interface {
	// Deprecated returns the versions that are marked.
	Deprecated(ctx context.Context) (core.Deprecations, error)
	// Deprecate marks a version, at which time; 0: it is marked no more. One that is marked already keeps its time. Error:
	// core.ErrNotFound.
	Deprecate(ctx context.Context, name string, version int64, at core.Instant) error
}

// PlanControl is how operators say which versions of plans new submissions take. Every change is in the audit trail before
// it is made.
type PlanControl interface {
	// Deprecated returns the versions that are marked.
	Deprecated(ctx context.Context) (core.Deprecations, error)
	// Deprecate marks a version, or marks it no more. left is the version that a submission takes from then on when it names
	// none; 0: none is left. Error: *Refusal, 404 for a version that is not stored, 409 for the last one of a plan of which
	// others have children.
	Deprecate(ctx context.Context, by Actor, d Deprecate) (left int64, err error)
}

// Deprecate asks that a version of a plan take no submission.
type Deprecate struct {
	Name         string
	Version      int64
	Undo         bool // it takes them again
	EvenIfCalled bool // although the steps of other plans fail then
	Reason       string
}

// EvenIfCalled is the field of a request that deprecates the last version of a plan although others have children of it.
const EvenIfCalled = "even_if_called"

// Versioning is PlanControl over the state store. All fields are required. It is safe for concurrent use.
type Versioning struct {
	Store    VersionStore
	Desk     *Desk
	Plans    func(ctx context.Context) ([]core.Plan, error)
	Announce func() error // tells every node that the plans have changed; without it they read them when they need one
	Now      func() time.Time
}

// Deprecated implements PlanControl.
func (s *Versioning) Deprecated(ctx context.Context) (core.Deprecations, error) {
	return s.Store.Deprecated(ctx)
}

// deprecatedNow is what the audit trail keeps of a version.
type deprecatedNow struct {
	Deprecated bool `json:"deprecated"`
}

// Deprecate implements PlanControl.
func (s *Versioning) Deprecate(ctx context.Context, by Actor, d Deprecate) (left int64, err error) {
	name, version, undo := d.Name, d.Version, d.Undo
	action := "plan.deprecate"
	if undo {
		action = "plan.deprecate.undo"
	}
	mark := Act{By: by, Action: action, Target: fmt.Sprintf("plan/%s/%d", core.ShortText(name, core.NameBytesMax), version), Reason: d.Reason}
	if r := checkReason(d.Reason); r != nil {
		return 0, s.Desk.Note(ctx, &mark, r)
	}
	plans, err := s.Plans(ctx)
	if _, some := errors.AsType[core.UnreadablePlans](err); err != nil && !some {
		return 0, fmt.Errorf("plans: %w", err)
	}
	marked, err := s.Store.Deprecated(ctx)
	if err != nil {
		return 0, err
	}
	there := false
	var names []string
	for i := range plans {
		p := &plans[i]
		names = append(names, p.Name)
		if p.Name != name {
			continue
		}
		there = there || p.Version == version
		if p.Version == version && !undo || p.Version != version && marked.Has(name, p.Version) {
			continue
		}
		left = max(left, p.Version)
	}
	if !there {
		says := say.Of("refuse.no-version", "name", core.QuoteShort(name), "version", version)
		if !slices.Contains(names, name) {
			says += near.Ask(name, names)
		}
		return 0, s.Desk.Note(ctx, &mark, &Refusal{Code: 404, Field: "version", Detail: says})
	}
	if callers := callersOf(name, plans); left == 0 && !undo && !d.EvenIfCalled && len(callers) > 0 {
		return 0, s.Desk.Note(ctx, &mark, &Refusal{Code: 409, Field: "version", Insist: EvenIfCalled,
			Detail: say.Of("refuse.called", "version", version, "plan", core.QuoteShort(name), "callers", core.ShortText(strings.Join(callers, ", "), core.WordsBytesMax))})
	}
	at := core.InstantOf(s.Now())
	if undo {
		at = 0
	}
	mark.Before, mark.After = deprecatedNow{marked.Has(name, version)}, deprecatedNow{!undo}
	if err := s.Desk.Change(ctx, &mark, func(ctx context.Context) error { return s.Store.Deprecate(ctx, name, version, at) }); err != nil {
		return 0, fmt.Errorf("plan %s version %d: %w", name, version, err)
	}
	_ = s.Announce() // what is stored counts, and is read when a plan is needed
	return left, nil
}

// callersOf names the steps with children of a plan. Versions that take no submission are among them: their tasks in flight have
// children yet.
func callersOf(name string, plans []core.Plan) (all []string) {
	for k := range plans {
		p := &plans[k]
		for i := range p.Steps {
			if p.Steps[i].Child == name {
				all = append(all, say.Of("version.step", "plan", p.Name, "version", p.Version, "step", p.Steps[i].Name))
			}
		}
	}
	return all
}
