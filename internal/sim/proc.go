package sim

import (
	"errors"
	"iter"
	"time"
)

// proc is a call that a process has under way: a turn, a scan, the work on one
// command. It is a coroutine, so that the world goes on while it waits for a
// store, a service or its own processor, and so that it can be ended at any of
// these moments, as a crash ends it.
type proc struct {
	next  func() (time.Duration, bool)
	stop  func()
	yield func(time.Duration) bool
	dead  bool
}

// errKilled unwinds a proc whose process has died.
var errKilled = errors.New("killed")

// start runs body until it waits for the first time.
func (w *World) start(body func()) *proc {
	p := &proc{}
	p.next, p.stop = iter.Pull(func(yield func(time.Duration) bool) {
		p.yield = yield
		defer func() {
			if cause := recover(); cause != nil && cause != errKilled {
				panic(cause)
			}
		}()
		body()
	})
	w.procs[p] = true
	w.resume(p)
	return p
}

func (w *World) resume(p *proc) {
	caller := w.running
	w.running = p
	d, waits := p.next()
	w.running = caller
	if !waits {
		p.dead = true
		delete(w.procs, p)
		return
	}
	w.after(d, func() {
		if !p.dead {
			w.resume(p)
		}
	})
}

// wait lets the world go on for d before the proc that calls it goes on.
func (w *World) wait(d time.Duration) {
	if p := w.running; p.dead || !p.yield(d) {
		panic(errKilled)
	}
}

// kill ends a proc where it stands. The one that runs ends itself, with
// panic(errKilled), when its process has been put in order.
func (w *World) kill(p *proc) {
	if p == nil || p.dead {
		return
	}
	p.dead = true
	delete(w.procs, p)
	if p != w.running {
		p.stop()
	}
}

// end lets nothing of the world outlive its run.
func (w *World) end() {
	for p := range w.procs {
		w.kill(p)
	}
	w.events = nil
}
