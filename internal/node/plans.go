package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/plancheck"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
)

// planCache is the plans as ingest sees them, all versions of each type.
type planCache struct {
	store schema.Store
	log   *slog.Logger
	book  atomic.Pointer[planVersions]
	wg    sync.WaitGroup

	report func(error)   // takes the outcome of each reading
	stale  atomic.Bool   // the last reading failed
	fresh  time.Duration // after which keepRead reads again
	number atomic.Int64  // of changes that were not announced: schedulers learn of them by it

	mu     sync.Mutex      // one reading at a time, so that none undoes a later one
	told   map[string]bool // unreadable plans that the log has told of
	readAt time.Time       // of the last one that succeeded
}

// planVersions are the plans as of one reading. It is not changed.
type planVersions struct {
	newest map[string]*core.Plan // that are not deprecated; left out where the newest cannot be read
	marked map[core.PlanKey]bool // what is deprecated; version 0: every version of the type is
	each   map[core.PlanKey]*core.Plan
}

func newPlanCache(store schema.Store, log *slog.Logger, report func(error)) *planCache {
	c := &planCache{store: store, log: log, report: report, told: map[string]bool{}, fresh: freshEvery}
	c.book.Store(&planVersions{})
	return c
}

// Plan implements ingest.Plans.
func (c *planCache) Plan(taskType string, version int64) *core.Plan {
	book := c.book.Load()
	if version == 0 {
		return book.newest[taskType]
	}
	return book.each[core.PlanKey{Name: taskType, Version: version}]
}

// Deprecated implements ingest.Plans.
func (c *planCache) Deprecated(taskType string, version int64) bool {
	return c.book.Load().marked[core.PlanKey{Name: taskType, Version: version}]
}

// Reload implements ingest.Plans.
func (c *planCache) Reload(done func(error)) {
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		done(c.read(ctx))
	})
}

// known reports whether a plan of that type is stored, of any version.
func (c *planCache) known(ctx context.Context, taskType string) (bool, error) {
	if c.Plan(taskType, 0) != nil || c.Deprecated(taskType, 0) {
		return true, nil
	}
	err := c.read(ctx)
	if unreadable, some := errors.AsType[core.UnreadablePlans](err); some {
		err = nil
		if unreadable.Newest(taskType) != 0 {
			return true, nil
		}
	}
	return c.Plan(taskType, 0) != nil || c.Deprecated(taskType, 0), err
}

// read reads all plans. Those that cannot be read are the error, core.UnreadablePlans,
// when the others are in the cache.
func (c *planCache) read(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	plans, err := c.store.Plans(ctx)
	unreadable, some := errors.AsType[core.UnreadablePlans](err)
	failed := err
	if some {
		failed = nil
	}
	var deprecated core.Deprecations
	if failed == nil {
		deprecated, failed = c.store.Deprecated(ctx)
	}
	c.stale.Store(failed != nil)
	c.report(failed)
	if failed != nil {
		return fmt.Errorf("read plans: %w", failed)
	}
	book := &planVersions{newest: make(map[string]*core.Plan, len(plans)), marked: map[core.PlanKey]bool{}, each: core.PlansByKey(plans)}
	for i := range plans {
		p := &plans[i]
		if have := book.newest[p.Name]; !deprecated.Has(p.Name, p.Version) && (have == nil || have.Version < p.Version) {
			book.newest[p.Name] = p
		}
	}
	for _, d := range deprecated {
		book.marked[core.PlanKey{Name: d.Name, Version: d.Version}] = true
		book.marked[core.PlanKey{Name: d.Name, Version: 0}] = book.newest[d.Name] == nil
	}
	for _, u := range deprecated.Current(unreadable) { // another version must not pass for the newest
		if have := book.newest[u.Name]; have != nil && have.Version < u.Version {
			delete(book.newest, u.Name)
		}
		delete(book.marked, core.PlanKey{Name: u.Name, Version: 0}) // another node takes it
	}
	if !book.same(c.book.Load()) {
		c.book.Store(book)
	}
	c.readAt = time.Now()
	c.tell(unreadable)
	return err
}

// same reports whether two readings found the same. A stored version never changes.
func (b *planVersions) same(o *planVersions) bool {
	there := func(*core.Plan, *core.Plan) bool { return true }
	newest := func(p, q *core.Plan) bool { return p.Version == q.Version }
	return maps.EqualFunc(b.each, o.each, there) && maps.EqualFunc(b.newest, o.newest, newest) && maps.Equal(b.marked, o.marked)
}

// old reports whether the last reading was so long ago that an announcement may have been missed since.
func (c *planCache) old() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.readAt) >= c.fresh
}

// tell logs each plan that cannot be read, once. The cache is held.
func (c *planCache) tell(unreadable core.UnreadablePlans) {
	now := make(map[string]bool, len(unreadable))
	for _, u := range unreadable {
		text := u.Error()
		if now[text] = true; !c.told[text] {
			c.log.Error("ALERT: a stored plan cannot be read here; its tasks wait for a newer binary", "event", "plan-unreadable", "plan", u.Name, "version", u.Version, "error", u.Err)
		}
	}
	c.told = now
}

const (
	// staleEvery is how often plans that could not be read are read again.
	staleEvery = time.Second
	// freshEvery is how often they are read whether or not someone has announced a change: an announcement is lost where NATS
	// is away, at its sender or here.
	freshEvery = 30 * time.Second
)

// keepRead reads the plans now, again while that fails, and from time to time, until ctx ends. changed hears when it finds
// others than before: who hears announcements reads them again by those, and need not do so twice.
func (c *planCache) keepRead(ctx context.Context, changed func()) {
	c.stale.Store(true)
	seen := c.number.Load()
	for again := true; again; again = pause.For(ctx, min(staleEvery, c.fresh)) == nil {
		if c.stale.Load() || c.old() {
			before := c.book.Load()
			bounded, cancel := context.WithTimeout(ctx, readTimeout)
			_ = c.read(bounded) // reported
			cancel()
			if c.book.Load() != before {
				c.number.Add(1)
			}
		}
		if is := c.number.Load(); is != seen {
			seen = is
			changed()
		}
	}
}

// readTimeout bounds a read that has no caller with a deadline.
const readTimeout = 5 * time.Second

// applyPlan stores a plan that came over NATS.
func (n *Node) applyPlan(spec []byte) wire.PlanAnswer {
	p, err := wire.DecodePlan(spec)
	if err != nil {
		return wire.PlanAnswer{Error: &wire.APIError{Code: 400, ErrCode: ingest.CauseBody, Description: err.Error()}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	by := operate.Actor{Name: api.ActorAt("", "nats"), Role: operate.RoleOperator, Via: "nats"} // who sent it NATS does not say
	answer := wire.PlanAnswer{Name: p.Name, Version: p.Version}
	if err := n.putPlan(ctx, by, p); err != nil {
		answer.Error = &wire.APIError{Code: 503, ErrCode: ingest.CauseStore, Description: say.Of("refuse.plan-not-stored")}
		if bad, refused := errors.AsType[*operate.Refusal](err); refused {
			answer.Error = &wire.APIError{Code: bad.Code, ErrCode: cmp.Or(bad.Cause, ingest.CauseOf(bad.Code)), Description: bad.Detail}
		}
	}
	if answer.Stored = answer.Error == nil; answer.Stored {
		p = p.WithDefaults()
		answer.Callers = n.callers(ctx, &p)
	}
	return answer
}

// callersTime bounds the look at what calls a plan that came over NATS, whose sender waits only so long.
const callersTime = 2 * time.Second

// callers are the steps whose next children are of a version that is stored, as the API gives them; nil also where they
// could not be looked at in time: what is stored stands.
func (n *Node) callers(ctx context.Context, p *core.Plan) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, callersTime)
	defer cancel()
	callers, err := api.NewChecker(n.store).Callers(ctx, p)
	if err != nil || len(callers) == 0 {
		return nil
	}
	data, _ := json.Marshal(callers) // of strings and numbers
	return data
}

// putPlan stores a plan, whichever door it came by, and tells everybody. Error: *operate.Refusal.
func (n *Node) putPlan(ctx context.Context, by operate.Actor, p core.Plan) error {
	p = p.WithDefaults()
	if err := plancheck.Check(&p, n.conn.MaxPayload()); err != nil {
		return &operate.Refusal{Code: 400, Detail: err.Error()}
	}
	if bad := n.childrenKnown(ctx, &p); bad != nil {
		return bad
	}
	put := func(ctx context.Context) error {
		err := n.store.PutPlan(ctx, p)
		if errors.Is(err, core.ErrPlanConflict) {
			return &operate.Refusal{Code: 409, Detail: err.Error()}
		}
		return err
	}
	known, err := n.planOf(ctx, p.Name, p.Version)
	if err == nil && known != nil {
		err = put(ctx) // what is stored already is no change
	} else {
		err = n.desk().Change(ctx, &operate.Act{By: by, Action: planApply, Target: fmt.Sprintf("plan/%s/%d", p.Name, p.Version), Away: true}, put)
	}
	if _, refused := errors.AsType[*operate.Refusal](err); refused {
		return err
	}
	if err != nil {
		n.log.Error("cannot store a plan", "plan", p.Name, "version", p.Version, "error", err)
		return &operate.Refusal{Code: 503, Detail: say.Of("refuse.plan-not-stored")}
	}
	if err := n.conn.AnnouncePlans(); err != nil {
		n.log.Warn("a plan is stored, but the announcement failed; nodes read it when they need it", "plan", p.Name, "error", err)
	}
	return nil
}

// planApply is what the audit trail calls a plan that is stored.
const planApply = "plan.apply"

// childrenKnown refuses a plan with a step whose children are of a type without a plan.
func (n *Node) childrenKnown(ctx context.Context, p *core.Plan) *operate.Refusal {
	looked := false
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Child == "" {
			continue
		}
		if !looked { // another node may have taken one of them just now
			looked = true
			_ = n.plans.read(ctx) // reported; known tells what that means for the child
		}
		switch known, err := n.plans.known(ctx, s.Child); {
		case err != nil:
			n.log.Error("cannot look for the plan of a child", "plan", p.Name, "child", s.Child, "error", err)
			return &operate.Refusal{Code: 503, Detail: say.Of("refuse.plans-unread")}
		case !known:
			return &operate.Refusal{Code: 400, Detail: p.UnknownChild(i).Error()}
		}
		if path := n.plans.wayBack(s.Child, p.Name, map[string]bool{}); path != nil {
			return &operate.Refusal{Code: 400, Detail: say.Of("refuse.endless", "error", core.ErrPlan, "plan", p.Name, "step", s.Name, "path", strings.Join(append([]string{p.Name}, path...), " → "))}
		}
	}
	return nil
}

// wayBack is the way from a type through the children of its newest plans to another type, both named; nil if there is
// none. Types that were seen are not looked at again, so that it ends.
func (c *planCache) wayBack(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	p := c.Plan(from, 0)
	if seen[from] || p == nil {
		return nil
	}
	seen[from] = true
	for i := range p.Steps {
		if child := p.Steps[i].Child; child != "" {
			if rest := c.wayBack(child, to, seen); rest != nil {
				return append([]string{from}, rest...)
			}
		}
	}
	return nil
}
