package ingest

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// unknown holds requests of types that no plan has. Before one is refused the plans are read again: its plan
// may have been stored a moment ago. There is one reading at a time, and ReloadPause between two, however
// many unknown types are asked for.
type unknown struct {
	waiting []waiter
	reading bool
	// readers numbers the readings, so that an answer to one that was given up is dropped.
	readers int
	// reloadAt is when the last reading began.
	reloadAt core.Instant
	// upTo is how many of waiting came before that.
	upTo int
}

// waiter is one of them.
type waiter struct {
	req Request
	sub core.Submission
}

// wait keeps a request until the plans have been read again. It refuses it if too many wait.
func (d *Door) wait(req *Request, sub *core.Submission) {
	u := &d.unknown
	if len(u.waiting) >= d.cfg.UnknownMax {
		d.refuse(req, Refuse(429, causeUnknownMany, "%s", say.Of("refuse.unknown-many", "type", core.QuoteShort(req.Type), "n", d.cfg.UnknownMax)).After(d.cfg.ReloadPause))
		return
	}
	u.waiting = append(u.waiting, waiter{req: *req, sub: *sub})
}

// reload begins a reading if a request waits for it and ReloadPause is over.
func (u *unknown) reload(d *Door, now core.Instant) {
	if len(u.waiting) == 0 || u.reading || !u.may(&d.cfg, now) {
		return
	}
	u.reading, u.reloadAt, u.upTo = true, now, len(u.waiting)
	u.readers++
	number := uint64(u.readers)
	d.plans.Reload(func(err error) { d.events.put(event{flight: number, err: err}) })
}

// may reports whether ReloadPause is over.
func (u *unknown) may(cfg *Config, now core.Instant) bool {
	return u.reloadAt == 0 || u.reloadAt.Add(cfg.ReloadPause) <= now
}

// read takes the outcome of a reading, unless that was given up.
func (u *unknown) read(d *Door, now core.Instant, e *event) {
	if u.reading && e.flight == uint64(u.readers) {
		u.finish(d, now, e.err)
	}
}

// finish decides about the requests that came before the reading began. For later ones the plans may have
// changed since.
func (u *unknown) finish(d *Door, now core.Instant, err error) {
	unreadable, some := errors.AsType[core.UnreadablePlans](err)
	done := u.waiting[:u.upTo]
	for i := range done {
		w := &done[i]
		plan := d.planOf(w.req.Type, w.sub.PlanVersion)
		switch {
		case plan != nil:
			d.accept(now, &w.req, &w.sub, plan)
		case (err == nil || some) && d.plans.Deprecated(w.req.Type, w.sub.PlanVersion):
			at := d.place(&w.sub)
			d.refuseUnlessTask(now, &w.req, &w.sub, &at, Refuse(409, causeDeprecated, "%s", core.DeprecatedPlan(w.req.Type, w.sub.PlanVersion)))
		case err != nil && (!some || concerns(unreadable, w)):
			why := "the plans could not be read"
			if some {
				why += ": " + unreadable.Error()
			}
			d.refuse(&w.req, Refuse(503, CausePlans, "%s", say.Of("refuse.plan-unknown", "type", core.QuoteShort(w.req.Type), "why", why)).After(RetryLog))
		case w.sub.PlanVersion != 0:
			d.refuse(&w.req, Refuse(404, CauseVersionUnknown, "%s", say.Of("refuse.version-unknown", "type", core.QuoteShort(w.req.Type), "version", w.sub.PlanVersion)))
		default:
			d.refuse(&w.req, Refuse(404, CauseTypeUnknown, "%s", say.Of("refuse.type-unknown", "type", core.QuoteShort(w.req.Type))))
		}
	}
	n := copy(u.waiting, u.waiting[u.upTo:])
	clear(u.waiting[n:])
	u.waiting, u.upTo, u.reading = u.waiting[:n], 0, false
}

// concerns reports whether the plan that a request needs is stored but unreadable for this binary. Then it is
// not refused for good: another node may read it.
func concerns(unreadable core.UnreadablePlans, w *waiter) bool {
	if w.sub.PlanVersion == 0 {
		return unreadable.Newest(w.req.Type) != 0
	}
	return unreadable.Find(w.req.Type, w.sub.PlanVersion) != nil
}

var errPlansLate = errors.New("no answer in time")

// expire gives up a reading that takes longer than ReloadMax.
func (u *unknown) expire(d *Door, now core.Instant) {
	if u.reading && u.reloadAt.Add(d.cfg.ReloadMax) <= now {
		u.finish(d, now, errPlansLate)
	}
}

// due is when expire or reload has something to do; 0: nobody waits.
func (u *unknown) due(cfg *Config) core.Instant {
	switch {
	case u.reading:
		return u.reloadAt.Add(cfg.ReloadMax)
	case len(u.waiting) == 0:
		return 0
	}
	return u.reloadAt.Add(cfg.ReloadPause)
}

// close refuses all requests that wait.
func (u *unknown) close(d *Door) {
	for i := range u.waiting {
		d.refuse(&u.waiting[i].req, stopping())
	}
	*u = unknown{reloadAt: u.reloadAt, readers: u.readers}
}
