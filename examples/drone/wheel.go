package drone

import (
	"sync"
	"time"
)

// wheelStep is the resolution of the services' clock: a call takes its time and
// up to one step more.
const wheelStep = time.Millisecond

// wheel wakes calls whose time has come, all of one step together. Thousands of
// calls at work would otherwise each have a timer, and the program would spend
// more on those than on the calls. Its goroutine lives while a call sleeps.
type wheel struct {
	mu    sync.Mutex
	began time.Time
	steps map[int64][]func() // what is to be called at the end of each, from began
	next  int64              // the first step that has not been woken
	awake bool               // there is a goroutine
}

// sleep returns after d.
func (w *wheel) sleep(d time.Duration) {
	over := make(chan struct{})
	w.call(d, func() { close(over) })
	<-over
}

// call calls f after d, on the wheel's goroutine: f does not block.
func (w *wheel) call(d time.Duration, f func()) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.awake {
		w.began, w.next, w.steps, w.awake = now, 0, map[int64][]func(){}, true
		go w.run()
	}
	step := max(w.next, int64((now.Add(d).Sub(w.began)+wheelStep-1)/wheelStep))
	w.steps[step] = append(w.steps[step], f)
}

// run wakes the calls of each step that is over, until none sleeps.
func (w *wheel) run() {
	tick := time.NewTicker(wheelStep)
	defer tick.Stop()
	for {
		<-tick.C
		w.mu.Lock()
		for over := int64(time.Since(w.began) / wheelStep); w.next <= over; {
			calls := w.steps[w.next]
			delete(w.steps, w.next)
			w.next++
			w.mu.Unlock()
			for _, f := range calls {
				f()
			}
			w.mu.Lock()
		}
		if len(w.steps) == 0 {
			w.awake = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}
