package core

// Wish is where operators want a partition to be.
type Wish struct {
	Partition int
	Node      string  // that it is pinned to; empty: none
	Avoid     string  // node that has stepped down; empty: none
	Until     Instant // after this the node may own it again
}

// Avoids reports whether the partition is not to be that node's now.
func (w *Wish) Avoids(node string, now Instant) bool {
	return w.Avoid != "" && w.Avoid == node && now < w.Until
}
