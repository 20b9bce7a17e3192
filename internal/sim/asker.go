package sim

import (
	"context"

	"duly.dev/duly/internal/core"
)

// ask is the supervisor: it finds tasks whose bound has passed and asks their
// owner about them. In the storm it may be away, and its clock fast.
func (w *World) ask() {
	if w.fault(0.2) {
		return
	}
	at := w.now
	if w.fault(0.1) {
		at = at.Add(w.upTo(slow))
	}
	for p := range w.cfg.Partitions {
		due, err := w.Store.Due(context.Background(), p, at, 1000)
		if err != nil || len(due) == 0 {
			continue
		}
		c := core.Control{Kind: core.EventOverdue, Actor: "supervisor"}
		for _, d := range due {
			c.Numbers = append(c.Numbers, d.Number)
		}
		w.append(&w.controls, message{partition: p, control: c})
	}
}

// meddle is the last thing the storm leaves on a partition: every owner is asked
// once more, so that consumers that missed a message notice.
func (w *World) meddle(p int) {
	w.append(&w.controls, message{partition: p, control: core.Control{}})
}
