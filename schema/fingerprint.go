package schema

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// kindHash is a hash of failures of one kind: what varies between two of them, numbers and
// ids, is left out.
type kindHash uint64

const kindBegin kindHash = 14695981039346656037

func (h *kindHash) mix(c byte) { *h = (*h ^ kindHash(c)) * 1099511628211 }

// text mixes a text in. A word with a digit in it is a number, a time, an id or part of
// one: what varies.
func (h *kindHash) text(s string) {
	for from := 0; from < len(s); {
		to, value := from, false
		for to < len(s) && wordByte(s[to]) {
			value = value || s[to] >= '0' && s[to] <= '9'
			to++
		}
		switch {
		case to == from:
			h.mix(s[from])
			to++
		case value:
			h.mix('0')
		default:
			for i := from; i < to; i++ {
				h.mix(s[i])
			}
		}
		from = to
	}
}

// String is the hash as it is stored.
func (h kindHash) String() string { return fmt.Sprintf("%016x", uint64(h)) }

// wordByte reports whether c may stand in a number, a time or an id.
func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c == '.' || c == ':' || c == '+'
}

// fingerprint groups journal rows of failures of one kind; it is empty of a row without an
// error.
func fingerprint(r *core.Record) string {
	if r.Error == "" {
		return ""
	}
	h := kindBegin
	for i := 0; i < len(r.Kind); i++ {
		h.mix(r.Kind[i])
	}
	h.mix(byte(r.Step))
	h.mix(byte(r.Code))
	h.mix(byte(r.Code >> 8))
	h.text(r.Error)
	return h.String()
}

// failed reports whether tasks in that state are in failure groups.
func failed(s core.State) bool { return s == core.StateError || s == core.StateUndone }

// failedStep is the step that failed last of a task in error or undone, from 0; -1: there
// is none.
func failedStep(t *core.Task) int64 {
	if !failed(t.State) {
		return -1
	}
	return int64(t.FailedStep) - 1
}

// FailureFingerprint groups tasks in error or undone that failed in one step in the same
// way, by the text that says why; it is empty of all others, and of what is in no group: see ungrouped.
func FailureFingerprint(t *core.Task) string {
	if !failed(t.State) || ungrouped(t) {
		return ""
	}
	return failureOf(failedStep(t), t.Why)
}

// ungrouped reports whether a task is undone and in no failure group: what was asked for is no failure, and a child's
// undone is its parent's matter, which has the cause. Its fingerprint is stored as an empty text, not as none.
func ungrouped(t *core.Task) bool {
	return t.State == core.StateUndone && (t.Parent != 0 || t.Asked)
}

func failureOf(step int64, why string) string {
	h := kindBegin
	h.mix('t')
	h.mix(byte(step))
	h.text(why)
	return h.String()
}
