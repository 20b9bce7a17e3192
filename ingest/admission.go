package ingest

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// A plan may change, and so may how long its tasks take. A submission that was accepted before under its id is never refused for
// what is so now: the task exists, and its submitter only asks again.

// tooLittleTime says why a submission has too little time; empty: it has enough, or its plan does not want to
// know.
func (d *Door) tooLittleTime(now core.Instant, sub *core.Submission, plan *core.Plan) string {
	if plan.Admission == core.AdmissionOff || d.cfg.Admit == nil {
		return ""
	}
	left := plan.CompleteBy
	if sub.CompleteBy != 0 {
		left = sub.CompleteBy.Sub(max(now, sub.StartAt))
	}
	return d.cfg.Admit(now, plan, left)
}

// refuseUnlessTask refuses a submission for what is so now, unless its id is a task already. To find that out it may have to look
// the id up, which answers later.
func (d *Door) refuseUnlessTask(now core.Instant, req *Request, sub *core.Submission, at *placement, r *Refusal) {
	switch {
	case at.again && d.fitsMessage(at):
		d.pack(now, at, req, sub)
		return
	case d.ids == nil || req.Looked || !d.fitsMessage(at):
		d.refuse(req, r)
		return
	}
	l := &lookup{req: *req, sub: *sub, where: *at, until: now.Add(d.cfg.LookMax), refusal: r}
	if len(d.lookups.waiting) >= d.cfg.LooksMax ||
		!d.ids.Look(at.partition, sub.ID, func(task *core.Existing, err error) { d.events.put(event{lookup: l, task: task, err: err}) }) {
		d.refuse(req, d.full)
		return
	}
	d.lookups.waiting = append(d.lookups.waiting, l)
}

// refuseLooked ends refuseUnlessTask when the store knows no task of the id, or did not answer.
func (d *Door) refuseLooked(l *lookup, err error) {
	if err != nil {
		d.refuse(&l.req, Refuse(503, CauseStore, "%s", say.Of("refuse.id-unknown", "why", l.refusal.Description, "id", core.QuoteShort(l.sub.ID))).After(RetryLog))
		return
	}
	d.refuse(&l.req, l.refusal)
}
