package sim

import (
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"
)

// proc is a call that a process has under way: a commit cycle, a scan, the work on one
// command. It runs on a coroutine, so that the world goes on while it waits for a
// store, a service or its own processor, and so that it can be ended at any of
// these moments, as a crash ends it.
type proc struct {
	on   *coroutine
	body func()
	dead bool

	commits int
}

// coroutine runs one proc after the other: a new one would have to grow its
// stack for each.
type coroutine struct {
	next  func() (time.Duration, bool)
	stop  func()
	yield func(time.Duration) bool
	proc  *proc
}

// What a coroutine yields instead of a time: its proc has ended, or it waits for what will resume it.
const (
	idle   = -1
	awaits = -2
)

// errKilled unwinds a proc whose process has died.
var errKilled = errors.New("killed")

func (w *World) newCoroutine() *coroutine {
	c := &coroutine{}
	c.next, c.stop = iter.Pull(func(yield func(time.Duration) bool) {
		c.yield = yield
		for {
			c.proc.run()
			c.proc.dead, c.proc = true, nil
			if !yield(idle) {
				return
			}
		}
	})
	w.coroutines = append(w.coroutines, c)
	return c
}

func (p *proc) run() {
	defer func() {
		if cause := recover(); cause != nil && cause != errKilled {
			panic(fmt.Sprintf("%v\n%s", cause, debug.Stack())) // the coroutine's own stack is gone with it
		}
	}()
	p.body()
}

// start runs body until it waits for the first time.
func (w *World) start(body func()) *proc {
	var c *coroutine
	if last := len(w.idle) - 1; last >= 0 {
		c, w.idle = w.idle[last], w.idle[:last]
	} else {
		c = w.newCoroutine()
	}
	p := &proc{on: c, body: body}
	c.proc = p
	w.resume(p)
	return p
}

// resume lets a proc go on until it waits again or has ended.
func (w *World) resume(p *proc) {
	caller := w.running
	w.running = p
	d, _ := p.on.next()
	w.running = caller
	if d == idle {
		w.idle = append(w.idle, p.on)
		return
	}
	if d == awaits {
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
	if p := w.running; p.dead || !p.on.yield(d) || p.dead {
		panic(errKilled)
	}
}

// await lets the world go on until what begin was given is called, once; not before begin returns.
func (w *World) await(begin func(resume func())) {
	p := w.running
	begin(func() {
		if !p.dead {
			w.resume(p)
		}
	})
	w.wait(awaits)
}

// kill ends a proc where it stands. The one that runs ends itself, with
// panic(errKilled), when its process has been put in order.
func (w *World) kill(p *proc) {
	if p == nil || p.dead {
		return
	}
	p.dead = true
	if p != w.running {
		w.resume(p)
	}
}

// end lets nothing of the world outlive its run.
func (w *World) end() {
	for _, c := range w.coroutines {
		if c.proc != nil {
			c.proc.dead = true
		}
		c.stop()
	}
	w.events = nil
	if w.second != nil {
		_ = w.second.store.Close() // nothing of it is kept
	}
}
