package node

import (
	"duly.dev/duly/internal/config"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// What TuneMemory sets.
const gcPercent = 200

// memoryUnknown is the budget where the machine does not say.
const memoryUnknown = 1 << 30

// TuneMemory lets a process that lives for this alone spend memory on collecting
// less often: most of what passes through it is gone in a moment, so that what
// lives is small and the collector would run many times a second. Above the
// limit it collects as often as it must: bytes, or half of what there is. GOGC and
// GOMEMLIMIT, where they are set, stand.
func TuneMemory(bytes int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budgetOf(bytes, os.DirFS("/")))
	}
}

// budget is how many bytes the node may use.
func (n *Node) budget() int64 { return budgetOf(n.cfg.Memory, os.DirFS("/")) }

// budgetOf is what was asked for, or half of what there is.
func budgetOf(asked int64, root fs.FS) int64 {
	if asked > 0 {
		return asked
	}
	there := min(machineMemory(root), groupMemory(root))
	if there == math.MaxInt64 {
		return memoryUnknown
	}
	return max(there/2, config.MemoryLeast)
}

// machineMemory is what the machine has, or MaxInt64.
func machineMemory(root fs.FS) int64 {
	data, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n, err := strconv.ParseInt(f[1], 10, 53); err == nil && n > 0 {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// groupMemory is what the process's control groups allow, of either version, or MaxInt64.
// Each group is bounded by those above it; in a container its own is at the root.
func groupMemory(root fs.FS) int64 {
	least := min(memoryIn(root, "sys/fs/cgroup/memory.max"), memoryIn(root, "sys/fs/cgroup/memory/memory.limit_in_bytes"))
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case f[0] == "0" && f[1] == "":
		case strings.Contains(","+f[1]+",", ",memory,"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + f[2]); group != "/"; group = path.Dir(group) {
			least = min(least, memoryIn(root, dir+group+"/"+file))
		}
	}
	return least
}

// memoryIn reads a limit; max, none, or what is no number is MaxInt64. Version 1 says
// that there is none by a number near the largest.
func memoryIn(root fs.FS, file string) int64 {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n <= 0 || n >= 1<<62 {
		return math.MaxInt64
	}
	return n
}
