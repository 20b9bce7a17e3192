package node

import "sync"

// bounded runs a bounded number of functions at a time, each on a goroutine of its own.
type bounded struct {
	slots  chan struct{} // as many as may run
	common chan struct{} // of those that many may ask for
	wg     sync.WaitGroup
}

// newBounded leaves a quarter for what is not common.
func newBounded(most int) *bounded {
	return &bounded{slots: make(chan struct{}, most), common: make(chan struct{}, most-most/4)}
}

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

// tryCommon is try for what leaves room for the rest: requests of submitters, however many, do not keep out those of
// operators.
func (b *bounded) tryCommon(f func()) bool {
	select {
	case b.common <- struct{}{}:
	default:
		return false
	}
	begun := b.try(func() {
		defer func() { <-b.common }()
		f()
	})
	if !begun {
		<-b.common
	}
	return begun
}

// wait waits for all that have begun.
func (b *bounded) wait() { b.wg.Wait() }
