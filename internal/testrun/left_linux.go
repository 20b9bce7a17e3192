package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// adopt makes this process the parent of processes whose own has ended, so that strays are found at the end of the run.
func adopt() {
	const setChildSubreaper = 36 // of prctl(2)
	// A kernel without it only hides strays.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// process is one process that descends from this one.
type process struct {
	pid, parent int
	zombie      bool
	command     string
}

// descendants are the processes below this one, but for those that have ended.
func descendants() (below []process) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	var all []process
	for _, path := range stats {
		if p, ok := read(path); ok {
			all = append(all, p)
		}
	}
	family := []int{os.Getpid()}
	for i := 0; i < len(family); i++ {
		for _, p := range all {
			if p.parent == family[i] {
				family = append(family, p.pid)
				if !p.zombie {
					below = append(below, p)
				}
			}
		}
	}
	return below
}

// read reads a process of a file of /proc; false: it is gone.
func read(path string) (process, bool) {
	text, err := os.ReadFile(path)
	// The name stands in parentheses and may hold anything.
	end := bytes.LastIndexByte(text, ')')
	if err != nil || end < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(text[end+1:]))
	pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	if err != nil || len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, false
	}
	line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // empty of one that has ended
	return process{pid, parent, fields[0] == "Z", string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))}, true
}

// endStrays kills what descends from this process, again until nothing does, and tells what was there.
func endStrays() (strays []string) {
	for range 100 {
		below := descendants()
		if len(below) == 0 {
			return strays
		}
		for _, p := range below {
			if told := fmt.Sprintf("process %d: %s", p.pid, p.command); !slices.Contains(strays, told) {
				strays = append(strays, told)
			}
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(20 * time.Millisecond)
	}
	return append(strays, "processes that cannot be ended")
}

// atWork names the tests that run, or else the last programs that were started.
func atWork() (names []string) {
	var others []string
	for _, p := range descendants() {
		program, _, _ := strings.Cut(p.command, " ")
		if name := filepath.Base(program); strings.HasSuffix(name, ".test") {
			names = append(names, strings.TrimSuffix(name, ".test"))
		} else if name != "." {
			others = append(others, name)
		}
	}
	if len(names) == 0 {
		names = others[max(0, len(others)-3):]
	}
	slices.Sort(names)
	return slices.Compact(names)
}
