// Package procfs reads what Linux says of processes.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Parent is the field of Stat with the process that started it.
const Parent = 1

// Stat is the fields of /proc/PID/stat after the command's closing bracket, from
// 0; nil when the process has ended.
func Stat(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	// The command may hold anything, brackets too.
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// Family is a process and all that it has started, and they; nil for 0.
func Family(pid int) []int {
	if pid == 0 {
		return nil
	}
	children := map[string][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // its only error is one of the pattern
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if f := Stat(child); len(f) > Parent {
			children[f[Parent]] = append(children[f[Parent]], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[strconv.Itoa(all[i])]...)
	}
	return all
}

// Stolen is the processor time that a virtual machine wanted and its host gave to
// others, in ticks since it began; 0 where nothing tells.
func Stolen() float64 {
	const place = 8                      // after the word cpu and seven other times
	text, _ := os.ReadFile("/proc/stat") // without it nothing is known to be stolen
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) <= place {
		return 0
	}
	ticks, _ := strconv.ParseFloat(f[place], 64) // the kernel writes numbers
	return ticks
}

// PSS is the proportional set size of a process in MiB.
func PSS(pid int) (float64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "Pss:" {
			continue
		}
		kib, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		return kib / 1024, nil
	}
	return 0, fmt.Errorf("memory of process %d: no Pss in smaps_rollup", pid)
}
