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
	mu      sync.Mutex
	began   time.Time
	buckets map[int64][]chan struct{} // by step, from began
	next    int64                     // the first step that has not been woken
	awake   bool                      // there is a goroutine
	free    []chan struct{}           // of calls that do not sleep any more
}

// sleep returns after d.
func (w *wheel) sleep(d time.Duration) {
	w.mu.Lock()
	var wake chan struct{}
	if n := len(w.free); n > 0 {
		wake, w.free = w.free[n-1], w.free[:n-1]
	} else {
		wake = make(chan struct{}, 1)
	}
	now := time.Now()
	if !w.awake {
		w.began, w.next, w.buckets, w.awake = now, 0, map[int64][]chan struct{}{}, true
		go w.run()
	}
	step := max(w.next, int64((now.Add(d).Sub(w.began)+wheelStep-1)/wheelStep))
	w.buckets[step] = append(w.buckets[step], wake)
	w.mu.Unlock()
	<-wake
	w.mu.Lock()
	w.free = append(w.free, wake)
	w.mu.Unlock()
}

// run wakes the calls of each step that is over, until none sleeps.
func (w *wheel) run() {
	tick := time.NewTicker(wheelStep)
	defer tick.Stop()
	for {
		<-tick.C
		w.mu.Lock()
		for over := int64(time.Since(w.began) / wheelStep); w.next <= over; w.next++ {
			for _, wake := range w.buckets[w.next] {
				wake <- struct{}{} // it has room for one
			}
			delete(w.buckets, w.next)
		}
		if len(w.buckets) == 0 {
			w.awake = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}
