package schema

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// kindHash hashes failures so that those of one kind are equal: it leaves out numbers, times and ids, which
// vary between them. It is 64-bit FNV-1a.
type kindHash uint64

// kindBegin is the offset basis of FNV-1a.
const kindBegin kindHash = 14695981039346656037

// mix is a step of FNV-1a.
func (h *kindHash) mix(c byte) { *h = (*h ^ kindHash(c)) * 1099511628211 }

// number mixes in a step or a code, which two bytes hold.
func (h *kindHash) number(n int) {
	h.mix(byte(n))
	h.mix(byte(n >> 8))
}

// text mixes a text in. A word with a digit in it counts as a number, a time or an id, or a part of one, and
// is mixed in as one 0.
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

// String is the hash in 16 hexadecimal digits, as it is stored.
func (h kindHash) String() string { return fmt.Sprintf("%016x", uint64(h)) }

// wordByte reports whether c may stand in a number, a time or an id.
func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' || c == '.' || c == ':' || c == '+'
}

// fingerprint groups journal rows of failures of one kind. Stored with the row; empty for a row without an
// error.
func fingerprint(r *core.Record) string {
	if r.Error == "" {
		return ""
	}
	h := kindBegin
	for i := 0; i < len(r.Kind); i++ {
		h.mix(r.Kind[i])
	}
	h.number(r.Step)
	h.number(r.Code)
	h.text(r.Error)
	return h.String()
}

// failed reports whether a state puts a task into a failure group.
func failed(s core.State) bool { return s == core.StateError || s == core.StateUndone }

// failedStep is the number, from 0, of the step that failed last, of a task in error or undone. -1 when none
// failed, or in another state.
func failedStep(t *core.Task) int64 {
	if !failed(t.State) {
		return -1
	}
	return int64(t.FailedStep) - 1
}

// FailureFingerprint is equal for tasks in error or undone that failed at the same step for the same kind of
// reason. It is empty for all others, and for the undone tasks that are in no group: see ungrouped.
func FailureFingerprint(t *core.Task) string {
	if !failed(t.State) || ungrouped(t) {
		return ""
	}
	return failureOf(failedStep(t), t.Why)
}

// ungrouped reports whether an undone task is in no failure group. Somebody wanted the undo, which is no
// failure, or the task is a child, and its parent's failure is the cause. The stored fingerprint of such a
// task is an empty text, which differs from NULL.
func ungrouped(t *core.Task) bool {
	return t.State == core.StateUndone && (t.Parent != 0 || t.Asked)
}

// failureOf is the fingerprint of a failure at a step, -1 for none, with the text that says why.
func failureOf(step int64, why string) string {
	h := kindBegin
	h.mix('t')
	h.number(int(step))
	h.text(why)
	return h.String()
}
