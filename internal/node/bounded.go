package node

import "sync"

// bounded runs a bounded number of functions at a time, each on a goroutine of its own.
type bounded struct {
	slots chan struct{} // as many as may run
	wg    sync.WaitGroup
}

func newBounded(most int) *bounded { return &bounded{slots: make(chan struct{}, most)} }

// try begins f and reports true, or false when as many run as may.
func (b *bounded) try(f func()) bool {
	select {
	case b.slots <- struct{}{}:
	default:
		return false
	}
	b.wg.Go(func() {
		defer func() { <-b.slots }()
		f()
	})
	return true
}

// wait waits for all that have begun.
func (b *bounded) wait() { b.wg.Wait() }
