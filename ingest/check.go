package ingest

import (
	"errors"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// check refuses what could never become a task, whatever its plan, and fills
// the submission. The cheap checks come first.
func (d *Door) check(now core.Instant, req *Request, sub *core.Submission) *Refusal {
	if err := core.CheckName("type", req.Type); err != nil {
		return refusal(400, CauseTypeName, "%v", err)
	}
	if err := core.CheckName("id", req.ID); err != nil {
		return refusal(400, CauseIDName, "%v", err)
	}
	if r := checkSize(req, core.InputBytesMax); r != nil {
		return r
	}
	by, r := completeBy(req.CompleteBy, now)
	if r != nil {
		return r
	}
	if req.ReplyTo != "" {
		if err := d.cfg.CheckReplyTo(req.ReplyTo); err != nil {
			return refusal(400, CauseReplyTo, "reply-to %s: %v", short(req.ReplyTo), err)
		}
	}
	if r := checkInput(req.Input); r != nil {
		return r
	}
	*sub = core.Submission{Type: req.Type, ID: req.ID, Input: req.Input, CompleteBy: by, ReplyTo: req.ReplyTo, Trace: req.Trace, At: now}
	if !validTrace(req.Trace) {
		sub.Trace = ""
		d.stats.tracesDropped.Add(1)
	}
	return nil
}

func checkSize(req *Request, limit int) *Refusal {
	if len(req.Input) > limit {
		return refusal(413, CauseInputSize, "input of type %s has %d bytes, the limit is %d", short(req.Type), len(req.Input), limit)
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
	return refusal(400, cause, "%v", err)
}

// completeBy reads RFC 3339, or a duration from now. Empty is 0.
func completeBy(value string, now core.Instant) (core.Instant, *Refusal) {
	if value == "" {
		return 0, nil
	}
	var by core.Instant
	if d, err := time.ParseDuration(value); err == nil {
		by = now.Add(d)
	} else if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
		by = core.InstantOf(t)
	} else {
		return 0, refusal(400, CauseCompleteByForm, "complete-by %s is neither RFC 3339 nor a duration such as 30s", short(value))
	}
	switch {
	case by <= now:
		return 0, refusal(400, CauseCompleteByPast, "complete-by %s has passed: now is %s", short(value), now.Time().Format(timeLayout))
	case by > now.Add(core.DurationMax):
		return 0, refusal(400, CauseCompleteByFar, "complete-by %s is more than %v from now, %s", short(value), core.DurationMax, now.Time().Format(timeLayout))
	}
	return by, nil
}

// timeLayout is RFC 3339 with microseconds, the resolution of core.Instant.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// Lengths of a W3C traceparent: version 00, and what a later one may have.
const (
	traceBytes    = 55
	traceBytesMax = 128
)

// validTrace accepts the shape of W3C trace context: version, trace id, parent
// id and flags in lower-case hex, neither id all zero; empty is fine.
func validTrace(trace string) bool {
	if trace == "" {
		return true
	}
	if len(trace) < traceBytes || len(trace) > traceBytesMax || trace[2] != '-' || trace[35] != '-' || trace[52] != '-' {
		return false
	}
	version, id, parent, flags := trace[:2], trace[3:35], trace[36:52], trace[53:55]
	if !isHex(version) || !isHex(id) || !isHex(parent) || !isHex(flags) || version == "ff" || isZero(id) || isZero(parent) {
		return false
	}
	if version == "00" || len(trace) == traceBytes {
		return len(trace) == traceBytes
	}
	return trace[traceBytes] == '-' && isHexOrDash(trace[traceBytes:])
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if !hexByte(s[i]) {
			return false
		}
	}
	return true
}

func isHexOrDash(s string) bool {
	for i := 0; i < len(s); i++ {
		if !hexByte(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

func hexByte(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func isZero(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '0' {
			return false
		}
	}
	return true
}
