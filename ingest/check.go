package ingest

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// check refuses what could never become a task, whatever its plan, and fills
// the submission. The cheap checks come first.
func (d *Door) check(now core.Instant, req *Request, sub *core.Submission) *Refusal {
	if r := CheckNames(req.Type, req.ID); r != nil {
		return r
	}
	if r := checkSize(req, core.InputBytesMax); r != nil {
		return r
	}
	by, r := completeBy(req.CompleteBy, now)
	if r != nil {
		return r
	}
	start, r := startAt(req.StartAt, now, by)
	if r != nil {
		return r
	}
	version, err := core.ParsePlanVersion(req.Version)
	if err != nil {
		return Refuse(400, CauseVersionForm, "%v", err)
	}
	if req.ReplyTo != "" {
		if err := d.cfg.CheckReplyTo(req.ReplyTo); err != nil {
			return Refuse(400, CauseReplyTo, "reply-to %s: %v", core.QuoteShort(req.ReplyTo), err)
		}
	}
	labels, err := core.ParseLabels(req.Labels)
	if err != nil {
		return Refuse(400, CauseLabels, "%v", err)
	}
	if r := checkInput(req.Input); r != nil {
		return r
	}
	*sub = core.Submission{Type: req.Type, ID: req.ID, PlanVersion: version, Input: req.Input, CompleteBy: by, StartAt: start, ReplyTo: req.ReplyTo, Trace: core.CleanTrace(req.Trace), Labels: labels, At: now}
	if sub.Trace != req.Trace {
		d.stats.tracesDropped.Add(1)
	}
	return nil
}

// CheckNames refuses a type or an id outside its alphabet.
func CheckNames(taskType, id string) *Refusal {
	if err := core.CheckName("type", taskType); err != nil {
		return Refuse(400, CauseTypeName, "%v", err)
	}
	if err := core.CheckName("id", id); err != nil {
		return Refuse(400, CauseIDName, "%v", err)
	}
	return nil
}

// CheckTask is CheckNames for a task that there may be: it may be a child.
func CheckTask(taskType, id string) *Refusal {
	if err := core.CheckName("type", taskType); err != nil {
		return Refuse(400, CauseTypeName, "%v", err)
	}
	if err := core.CheckTaskID(id); err != nil {
		return Refuse(400, CauseIDName, "%v", err)
	}
	return nil
}

func checkSize(req *Request, limit int) *Refusal {
	if len(req.Input) > limit {
		return Refuse(413, CauseInputSize, "input of type %s has %d bytes, the limit is %d", core.QuoteShort(req.Type), len(req.Input), limit)
	}
	return nil
}

// checkInput wants JSON that every reader can hold.
func checkInput(input []byte) *Refusal {
	err := quickjson.Check("input", input)
	if err == nil {
		return nil
	}
	cause := CauseInputJSON
	if _, ok := errors.AsType[*quickjson.TextError](err); ok {
		cause = CauseInputText
	}
	return Refuse(400, cause, "%v", err)
}

// completeBy reads a submission's complete-by; the cause is told by number too.
func completeBy(value string, now core.Instant) (core.Instant, *Refusal) {
	by, err := core.ParseCompleteBy(value, now)
	if err == nil {
		return by, nil
	}
	cause := CauseCompleteByForm
	switch {
	case errors.Is(err, core.ErrCompleteByPast):
		cause = CauseCompleteByPast
	case errors.Is(err, core.ErrCompleteByFar):
		cause = CauseCompleteByFar
	}
	return 0, Refuse(400, cause, "%v", err)
}

// startAt reads a submission's start-at; the cause is told by number too.
func startAt(value string, now, completeBy core.Instant) (core.Instant, *Refusal) {
	at, err := core.ParseStartAt(value, now, completeBy)
	if err == nil {
		return at, nil
	}
	cause := CauseStartAtForm
	switch {
	case errors.Is(err, core.ErrStartAtFar):
		cause = CauseStartAtFar
	case errors.Is(err, core.ErrStartAtAfter):
		cause = CauseStartAtAfter
	}
	return 0, Refuse(400, cause, "%v", err)
}
