package core

import (
	"errors"
	"testing"
)

// A late answer says nothing once the database went back: in the time that is lost the step may have come further.
//
// covers: S13, inv7
func TestLateAfterWentBack(t *testing.T) {
	for _, code := range []int{0, CodeRefused} {
		p := stepsPlan(1)
		p.Steps[0].AttemptsMax = 1
		r := newRig(t, p)
		r.birth(0)
		do := r.task.Steps[0].Out
		r.late()
		r.must(Event{Kind: EventWentBack, Until: r.now})
		if err := r.apply(Event{Kind: EventReply, Seq: do, Code: code, Error: text(code), Result: []byte("1")}); !errors.Is(err, ErrStale) {
			t.Errorf("code %d: %v, want a stale event", code, err)
		}
	}
}
