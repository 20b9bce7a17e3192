package ingest

import (
	"strings"
	"sync/atomic"

	"duly.dev/duly/internal/core"
)

// budget bounds what the door holds for one stream, from admission to answer. It is shared
// with the goroutines that bring requests, so that a full door refuses before
// anything is queued.
type budget struct {
	itemsMax, bytesMax int64
	items, bytes       atomic.Int64
}

// Of each bound high submissions may use all, normal ones seven eighths, low ones half: a spike of those leaves room.
func classShare(bound int64, class core.Class) int64 {
	switch class {
	case core.ClassNormal:
		return bound - bound/8
	case core.ClassLow:
		return bound - bound/2
	}
	return bound
}

// reserve takes room for one request, or reports false and takes none. Its labels are looked at when half is in use.
func (b *budget) reserve(bytes int64, labels string) bool {
	items, all := b.items.Add(1), b.bytes.Add(bytes)
	class := core.ClassLow
	if items > classShare(b.itemsMax, class) || all > classShare(b.bytesMax, class) {
		if class = classIn(labels); items > classShare(b.itemsMax, class) || all > classShare(b.bytesMax, class) {
			b.release(bytes)
			return false
		}
	}
	return true
}

// classIn is the class in the labels of a request, which have not been checked.
func classIn(text string) core.Class {
	if !strings.Contains(text, core.PriorityLabel) {
		return core.ClassNormal
	}
	labels, _ := core.ParseLabels(text) // what is wrong is refused later on
	return core.ClassOf(labels)
}

func (b *budget) release(bytes int64) {
	b.bytes.Add(-bytes)
	b.items.Add(-1)
}
