package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/forecast"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/scheduler"
)

const (
	forecastEvery = time.Minute        // between two savings, and two readings of what the other nodes know
	forecastPage  = 256                // rows that are saved in one transaction
	forecastKept  = 7 * 24 * time.Hour // rows that are not written any more are forgotten after it
	forecastLast  = time.Second        // of the last saving, when the node ends

	// freshFeasible and begunFeasible are how sure it must be that a task makes its deadline for it to be claimed in its
	// turn: one that has not begun costs nothing yet, one that has would be lost.
	freshFeasible = 0.9
	begunFeasible = 0.5
)

// forecasts is what a node knows of how long steps take.
type forecasts struct {
	node  string
	store operate.ForecastStore
	book  *forecast.Book
	feed  *forecast.Feed
	now   func() core.Instant

	observers *scheduler.Observers

	read     forecastRead
	restored bool
	forgotAt core.Instant

	mu    sync.Mutex
	let   map[letKey]core.Instant // when a submission was let in last to learn from it
	short atomic.Int64            // submissions that had too little time
}

// letKey is a plan, and who lets its submissions in: a door, or its owner when they come up. Of one turn for both doors would
// leave owners none.
type letKey struct {
	plan  forecast.Key
	birth bool
}

func newForecasts(n *Node) *forecasts {
	f := &forecasts{node: n.cfg.NodeName, store: n.store, book: forecast.NewBook(0), now: n.clock.instant, observers: n.observers}
	f.feed = forecast.NewFeed(f.book)
	return f
}

// learn has a scheduler show what it commits, and asks which parked tasks can make their deadlines. end ends it.
func (f *forecasts) learn(cfg *scheduler.RunConfig) (end func()) {
	cfg.Needs = f.needsAtBirth
	cfg.Left = func(plan *core.Plan, t *core.Task) (left time.Duration) {
		f.observers.Guard(f.Name(), func() { left = f.book.Left(plan, t, freshFeasible, begunFeasible, f.now()) })
		return left
	}
	return cfg.Observers.Add(f)
}

// Name implements scheduler.Observer.
func (f *forecasts) Name() string { return "forecasts" }

// Committed implements scheduler.Observer.
func (f *forecasts) Committed(c *scheduler.Committed) error {
	f.feed.Committed(c.All())
	return nil
}

const (
	admissionQuantile = 0.95
	// What was last observed so long ago, or as many of the plan's own times, is not held against a submission: one a
	// second is let in, because a plan of which all are refused would never be seen to have become faster.
	staleAfter = 10 * time.Second
	staleTimes = 2
	letEvery   = time.Second
)

// needs is how long tasks of a plan take, for a door; 0: that is not known, or one is let in to learn it. Of a plan that refuses
// by itself one may be let in: admit is asked again, with its input.
func (f *forecasts) needs(plan *core.Plan) time.Duration {
	return f.needsAs(plan, letKey{plan: keyOf(plan)}, plan.Admission == core.AdmissionRefuse)
}

// needsAtBirth is needs for the owner of a submission that has come up.
func (f *forecasts) needsAtBirth(plan *core.Plan) time.Duration {
	return f.needsAs(plan, letKey{keyOf(plan), true}, false)
}

// needsAs is needs by that turn. ahead: none is let in yet.
func (f *forecasts) needsAs(plan *core.Plan, turn letKey, ahead bool) (d time.Duration) {
	f.observers.Guard(f.Name(), func() {
		now := f.now()
		needs, newest, known := f.book.Needs(plan, admissionQuantile, now)
		if known && !(isOld(needs, newest, now) && f.letIn(turn, now, ahead)) {
			d = needs
		}
	})
	return d
}

func keyOf(plan *core.Plan) forecast.Key { return forecast.Key{Type: plan.Name, Version: plan.Version} }

// admit says why a submission of a plan with so much time left has too little; empty: it has enough, or that is not known.
func (f *forecasts) admit(now core.Instant, plan *core.Plan, left time.Duration) (why string) {
	f.observers.Guard(f.Name(), func() { why = f.tooShort(now, plan, left) })
	return why
}

func (f *forecasts) tooShort(now core.Instant, plan *core.Plan, left time.Duration) string {
	needs, newest, known := f.book.Needs(plan, admissionQuantile, now)
	if !known || left-plan.UndoReserve >= needs {
		return ""
	}
	if isOld(needs, newest, now) && f.letIn(letKey{plan: keyOf(plan)}, now, false) {
		return ""
	}
	f.short.Add(1)
	reserve := ""
	if plan.UndoReserve > 0 {
		reserve = say.Of("refuse.late-reserve", "time", say.Rounded(plan.UndoReserve))
	}
	return say.Of("refuse.late", "plan", plan.Name, "needs", say.Rounded(needs), "left", say.Rounded(left), "reserve", reserve, "enough", say.Rounded((needs+plan.UndoReserve)*21/20))
}

// isOld reports whether what is known of a plan is, or is of a time that has yet to come: of a clock that was set back since.
func isOld(needs time.Duration, newest, now core.Instant) bool {
	return now.Sub(newest).Abs() > max(staleAfter, staleTimes*needs)
}

// letIn reports whether a submission is let in to learn from it. ahead: whether one would be.
func (f *forecasts) letIn(turn letKey, now core.Instant, ahead bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, was := f.let[turn]; was && !last.Elapsed(now, letEvery) {
		return false
	}
	if ahead {
		return true
	}
	if f.let == nil || len(f.let) >= forecastPage {
		f.let = map[letKey]core.Instant{}
	}
	f.let[turn] = now
	return true
}

// keepForecasts saves what this node has learned and reads what the others have, until ctx ends.
func (n *Node) keepForecasts(ctx context.Context) {
	f := n.forecasts
	for {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := errors.Join(f.load(bounded), f.save(bounded, n.cfg.Has(config.RoleScheduler)))
		cancel()
		if err != nil && ctx.Err() == nil {
			n.log.Debug("forecasts are not kept; this is tried again", "error", err)
		}
		if pause.For(ctx, forecastEvery) != nil {
			break
		}
	}
	bounded, cancel := n.ending(ctx, forecastLast)
	defer cancel()
	if err := f.save(bounded, n.cfg.Has(config.RoleScheduler)); err != nil {
		n.log.Debug("the last forecasts are not kept", "error", err)
	}
}

// load reads what the other nodes know, and at first what an earlier life of this one knew.
func (f *forecasts) load(ctx context.Context) error {
	all, err := f.store.Forecasts(ctx)
	if err != nil {
		return err
	}
	var own, others []forecast.Row
	for i := range all {
		row := forecast.Row{Key: forecast.Key{Type: all[i].Type, Version: all[i].Version, Step: all[i].Step}, At: all[i].At, Data: all[i].Data}
		if all[i].Node == f.node {
			own = append(own, row)
		} else {
			others = append(others, row)
		}
	}
	if !f.restored {
		f.restored = true
		err = f.book.Restore(own)
	}
	return errors.Join(err, f.book.Others(others))
}

// save writes what has changed, and now and then forgets what no node writes any more.
func (f *forecasts) save(ctx context.Context, owner bool) error {
	if !owner || !f.restored { // else an earlier life's rows would be written over by less
		return nil
	}
	for {
		changed := f.book.Changed(forecastPage)
		if len(changed) == 0 {
			break
		}
		rows := make([]operate.ForecastRow, len(changed))
		for i, r := range changed {
			rows[i] = operate.ForecastRow{Node: f.node, Type: r.Type, Version: r.Version, Step: r.Step, At: r.At, Data: r.Data}
		}
		if err := f.store.SaveForecasts(ctx, f.node, rows); err != nil {
			return err
		}
	}
	now := f.now()
	if !f.forgotAt.Elapsed(now, forecastKept/24) {
		return nil
	}
	f.forgotAt = now
	return f.store.ForgetForecasts(ctx, now.Add(-forecastKept))
}
