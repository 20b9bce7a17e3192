package ingest

import "sync/atomic"

// budget bounds what the door holds, from admission to answer. It is shared
// with the goroutines that bring requests, so that a full door refuses before
// anything is queued.
type budget struct {
	itemsMax, bytesMax int64
	items, bytes       atomic.Int64
}

// reserve takes room for one request, or reports false and takes none.
func (b *budget) reserve(bytes int64) bool {
	if b.items.Add(1) > b.itemsMax {
		b.items.Add(-1)
		return false
	}
	if b.bytes.Add(bytes) > b.bytesMax {
		b.bytes.Add(-bytes)
		b.items.Add(-1)
		return false
	}
	return true
}

func (b *budget) release(bytes int64) {
	b.bytes.Add(-bytes)
	b.items.Add(-1)
}
