package ingest

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Admission of a plan: a submission that has less time than the plan takes is refused, or its submitter is warned. What
// was accepted before under the same id is never refused: the task exists, and its submitter asks again.

// tooLittleTime says why a submission has too little time; empty: it has enough, or its plan does not ask.
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

// refuseNoTime refuses a submission that has too little time, unless it is a task already.
func (d *Door) refuseNoTime(now core.Instant, req *Request, sub *core.Submission, at placement, why string) {
	r := Refuse(422, causeNoTime, "%s", why)
	switch {
	case at.again:
		d.pack(now, &at, req, sub)
		return
	case d.ids == nil || req.Looked:
		d.refuse(req, r)
		return
	}
	l := &lookup{req: *req, sub: *sub, where: at, until: now.Add(d.cfg.LookMax), refusal: r}
	if len(d.lookups.waiting) >= d.cfg.LooksMax ||
		!d.ids.Look(at.partition, sub.ID, func(task *core.Existing, err error) { d.events.put(event{lookup: l, task: task, err: err}) }) {
		d.refuse(req, d.full)
		return
	}
	d.lookups.waiting = append(d.lookups.waiting, l)
}

// refuseUnlessTask is hasNoTime when the store has been looked at, and has no such task.
func (d *Door) refuseUnlessTask(l *lookup, err error) {
	if err != nil {
		d.refuse(&l.req, Refuse(503, CauseStore, "%s", say.Of("refuse.id-unknown", "why", l.refusal.Description, "id", core.QuoteShort(l.sub.ID))).After(RetryLog))
		return
	}
	d.refuse(&l.req, l.refusal)
}
