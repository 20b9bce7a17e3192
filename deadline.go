package duly

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends at a time, with its parent, or when it is
// cancelled. It is context.WithDeadline for handlers that mostly end long before:
// there is a timer, and a link to the parent, only from the first call
// of Done. Between two services' calls that is most of what a command costs.
type deadline struct {
	context.Context // the parent: its values
	at              time.Time

	mu     sync.Mutex
	err    error         // why it ended; nil: it has not, or Err was not called since
	done   chan struct{} // nil until the first call of Done
	timer  *time.Timer
	unlink func() bool        // from the parent
	after  map[*func()]func() // what contexts made from this one want called at its end
}

// withDeadline makes one. cancel must be called, as context.WithDeadline's.
func withDeadline(parent context.Context, at time.Time) (ctx context.Context, cancel context.CancelFunc) {
	if before, ok := parent.Deadline(); ok && !at.Before(before) {
		return context.WithCancel(parent) // it has the timer already
	}
	d := &deadline{Context: parent, at: at}
	return d, func() {
		if d.Err() == nil { // else its time was over before, without a timer to say so
			d.finish(context.Canceled)
		}
	}
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	if d.done != nil {
		defer d.mu.Unlock()
		return d.done
	}
	done := make(chan struct{})
	d.done = done
	if d.err != nil {
		close(done)
		d.mu.Unlock()
		return done
	}
	// Both may fire at once, on goroutines of their own, and wait for the lock.
	d.timer = time.AfterFunc(time.Until(d.at), func() { d.finish(context.DeadlineExceeded) })
	d.unlink = context.AfterFunc(d.Context, func() { d.finish(d.Context.Err()) })
	d.mu.Unlock()
	return done
}

// Err implements context.Context. What has ended by the clock or with the parent
// has ended, whether or not a timer has fired.
func (d *deadline) Err() error {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err = d.Context.Err(); err == nil && !time.Now().Before(d.at) {
		err = context.DeadlineExceeded
	}
	if err == nil {
		return nil
	}
	d.finish(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err // of who was first
}

// finish ends the context with err, if it has not ended before.
func (d *deadline) finish(err error) {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err = err
	if d.done != nil {
		close(d.done)
	}
	if d.timer != nil {
		d.timer.Stop()
		d.unlink()
	}
	after := d.after
	d.after = nil
	d.mu.Unlock()
	for _, f := range after {
		go f() // as context.AfterFunc has it
	}
}

// AfterFunc is what package context looks for before it spends a goroutine on a
// context made from this one.
func (d *deadline) AfterFunc(f func()) (stop func() bool) {
	d.Done() // from now on the timer runs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		go f()
		return func() bool { return false }
	}
	key := &f
	if d.after == nil {
		d.after = map[*func()]func(){}
	}
	d.after[key] = f
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		_, waits := d.after[key]
		delete(d.after, key)
		return waits
	}
}
