package sim

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/supervisor"
)

// addSupervisors makes two of them: in the storm none may lead, or both, and a
// clock may be fast.
func (w *World) addSupervisors() {
	for i := range 2 {
		s := supervisor.New(supervisor.Config{Slack: 10 * time.Millisecond, AskAgain: time.Second}, w.Store, askBus{w}, lease{w, i})
		w.every(100*time.Millisecond, func() {
			at := w.now
			if w.fault(0.1) {
				at = at.Add(w.upTo(slow))
			}
			_, _ = s.Tick(context.Background(), at) // what a fault left undone, the next tick does
		})
	}
}

// lease is the leadership as one supervisor sees it.
type lease struct {
	w *World
	i int
}

func (l lease) Renew(context.Context) (bool, error) {
	if l.w.fault(0.1) {
		return false, errFault
	}
	return l.i == 0 && !l.w.fault(0.2) || l.w.fault(0.2), nil
}

func (lease) Release(context.Context) error { return nil }

// askBus is the control stream as a supervisor sees it.
type askBus struct{ w *World }

func (b askBus) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	if b.w.fault(0.05) {
		return 0, errFault
	}
	seq := b.w.append(&b.w.controls, message{partition: partition, control: c})
	if b.w.fault(0.05) {
		return 0, errFault
	}
	return seq, nil
}
