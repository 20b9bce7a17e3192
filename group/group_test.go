package group_test

import (
	"testing"
)

// TestOnce: every message takes effect once and in order, by any rule, with members that come and go.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	a := w.run("a", nil)
	last := w.publish(5000, byCustomer)
	b := w.run("b", nil)
	w.await("both have partitions", func() bool { return len(w.owners()) == 2 })
	last = w.publish(5000, byCustomer)
	w.right(last)
	if err := a.end(); err != nil {
		t.Error(err)
	}
	last = w.publish(5000, byCustomer)
	w.right(last)
	if err := b.end(); err != nil {
		t.Error(err)
	}
}
