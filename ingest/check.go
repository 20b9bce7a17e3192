package ingest

import (
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

// check refuses a request that can never become a task, whatever its plan, and otherwise makes the submission
// of it.
func (d *Door) check(now core.Instant, req *Request, sub *core.Submission) *Refusal {
	var bad *submit.Error
	if *sub, bad = req.Form.Read(now, d.cfg.CheckReplyTo); bad != nil {
		return RefuseForm(bad)
	}
	if sub.Trace != req.Trace {
		d.stats.tracesDropped.Add(1)
	}
	return nil
}

// causes map what is wrong with a form to the number that the answer carries.
var causes = map[error]int{
	submit.ErrHeader: CauseHeader, submit.ErrType: CauseTypeName, submit.ErrID: CauseIDName, submit.ErrSize: CauseInputSize, submit.ErrJSON: causeInputJSON,
	submit.ErrText: causeInputText, submit.ErrVersion: causeVersionForm, submit.ErrReplyTo: causeReplyTo, submit.ErrLabels: CauseLabels,
	core.ErrCompleteByForm: causeCompleteByForm, core.ErrCompleteByPast: causeCompleteByPast, core.ErrCompleteByFar: causeCompleteByFar,
	core.ErrStartAtForm: causeStartAtForm, core.ErrStartAtFar: causeStartAtFar, core.ErrStartAtAfter: causeStartAtAfter,
}

// RefuseForm is the refusal of a malformed submission. It is final: sending the same again leads to the same.
func RefuseForm(bad *submit.Error) *Refusal { return Refuse(bad.Code(), causes[bad.Cause], "%v", bad) }

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

// CheckTask is CheckNames for a task that may exist. Its id may be a child's, which no submission may use.
func CheckTask(taskType, id string) *Refusal {
	if err := core.CheckName("type", taskType); err != nil {
		return Refuse(400, CauseTypeName, "%v", err)
	}
	if err := core.CheckTaskID(id); err != nil {
		return Refuse(400, CauseIDName, "%v", err)
	}
	return nil
}

// checkSize refuses an input larger than its plan allows.
func checkSize(req *Request, limit int) *Refusal {
	if len(req.Input) > limit {
		return Refuse(413, CauseInputSize, "%s", say.Of("refuse.input-size-type", "type", core.QuoteShort(req.Type), "bytes", len(req.Input), "limit", limit))
	}
	return nil
}
