package node

import (
	"os"
	"runtime/debug"
)

// What TuneMemory sets.
const (
	gcPercent   = 200
	memoryLimit = 1 << 30
)

// TuneMemory lets a process that lives for this alone spend memory on collecting
// less often: most of what passes through it is gone in a moment, so that what
// lives is small and the collector would run many times a second. Above the
// limit it collects as often as it must. GOGC and GOMEMLIMIT, where they are
// set, stand.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
