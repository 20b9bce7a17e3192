package node

import (
	"testing"
	"testing/fstest"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// The budget follows the least of what bounds the process.
func TestMemoryBudget(t *testing.T) {
	meminfo := "MemTotal:        8388608 kB\nMemFree:          100 kB\n" // 8 GiB
	for name, x := range map[string]struct {
		asked int64
		files map[string]string
		want  int64
	}{
		"asked for":           {1 << 30, map[string]string{"proc/meminfo": meminfo}, 1 << 30},
		"the machine":         {0, map[string]string{"proc/meminfo": meminfo}, 4 << 30},
		"nothing said":        {0, nil, memoryUnknown},
		"nonsense":            {0, map[string]string{"proc/meminfo": "MemTotal: x kB", "sys/fs/cgroup/memory.max": "-3"}, memoryUnknown},
		"container, v2":       {0, map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "536870912\n"}, 256 << 20},
		"no limit, v2":        {0, map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "max\n"}, 4 << 30},
		"container, v1":       {0, map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, 512 << 20},
		"no limit, v1":        {0, map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4 << 30},
		"a service, v2":       {0, map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/duly.service\n", "sys/fs/cgroup/system.slice/duly.service/memory.max": "2147483648\n"}, 1 << 30},
		"the slice above, v2": {0, map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/duly.service\n", "sys/fs/cgroup/system.slice/duly.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "1073741824\n"}, 512 << 20},
		"a service, v1":       {0, map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "3:cpu:/x\n4:memory:/duly\n", "sys/fs/cgroup/memory/duly/memory.limit_in_bytes": "2147483648\n"}, 1 << 30},
		"next to nothing":     {0, map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "1000000\n"}, config.MemoryLeast},
	} {
		root := fstest.MapFS{}
		for file, text := range x.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := budgetOf(x.asked, root); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}

// Each stream's share of the door has room for a low submission of the largest input.
func TestDoorBytes(t *testing.T) {
	for _, x := range []struct {
		budget  int64
		streams int
		want    int64
	}{
		{1 << 40, 1, ingest.DefaultBytesMax}, {1 << 40, wire.TaskStreamsMax, ingest.DefaultBytesMax}, {128 << 20, wire.TaskStreamsMax, 16 << 20},
		{config.MemoryLeast, 1, config.MemoryLeast / 8}, {config.MemoryLeast, wire.TaskStreamsMax, wire.TaskStreamsMax * 2 * (core.InputBytesMax + 16<<10)},
	} {
		if got := doorBytes(x.budget, x.streams); got != x.want {
			t.Errorf("budget %d, %d streams: %d, want %d", x.budget, x.streams, got, x.want)
		}
	}
}
