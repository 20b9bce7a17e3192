package ingest

import (
	"strings"
	"sync/atomic"

	"duly.dev/duly/internal/core"
)

// budget bounds the requests of one task stream from admission to answer. The goroutines that bring requests
// use it themselves, so that a full door refuses before anything is queued.
type budget struct {
	itemsMax, bytesMax int64
	items, bytes       atomic.Int64
}

// classShare is how much of a bound a priority class may use: high all of it, normal seven eighths, low half.
// So a spike of low submissions leaves room for the others.
func classShare(bound int64, class core.Class) int64 {
	switch class {
	case core.ClassNormal:
		return bound - bound/8
	case core.ClassLow:
		return bound - bound/2
	}
	return bound
}

// reserve takes room for a request. false: there is none, and nothing was taken. It reads the labels, to
// learn the class, only when half of the room is in use.
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

// classIn is the class that unchecked labels ask for. Wrong labels are refused later.
func classIn(text string) core.Class {
	if !strings.Contains(text, core.PriorityLabel) {
		return core.ClassNormal
	}
	labels, _ := core.ParseLabels(text) // what is wrong is refused later on
	return core.ClassOf(labels)
}

// release gives the room of a request back.
func (b *budget) release(bytes int64) {
	b.bytes.Add(-bytes)
	b.items.Add(-1)
}
