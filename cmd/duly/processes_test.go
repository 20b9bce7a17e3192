package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// processesMost is how many processes of the program the package's tests start: each takes seconds to build up what this
// process has, so they are for what only a process shows: kill -9, SIGSTOP, limits of its own, exit statuses.
const processesMost = 10

// processes are those that were started.
var processes struct {
	sync.Mutex
	all []string
}

// selfCommand is the test binary as a command, which is counted. All processes but those of PostgreSQL begin with it.
func selfCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	processes.Lock()
	defer processes.Unlock()
	processes.all = append(processes.all, fmt.Sprintf("%s: duly %s", t.Name(), strings.Join(args, " ")))
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = env
	return cmd
}

// fewProcesses runs the tests of the package, and fails when they have started too many processes.
type fewProcesses struct{ m interface{ Run() int } }

// Run implements what goleak runs.
func (f fewProcesses) Run() int {
	code := f.m.Run()
	endApart()
	rounds := 1
	if count, ok := flag.Lookup("test.count").Value.(flag.Getter).Get().(uint); ok {
		rounds = int(max(count, 1))
	}
	if len(processes.all) > rounds*processesMost {
		fmt.Fprintf(os.Stderr, "%d processes were started, want %d at most: what no process is needed for runs by start or command\n%s\n",
			len(processes.all), rounds*processesMost, strings.Join(processes.all, "\n"))
		return max(code, 1)
	}
	return code
}

// TestProcessesAreCounted: no test starts a process past the count.
func TestProcessesAreCounted(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`exec\.Command(Context)?\([^)]*\)|os\.StartProcess\(`).FindAllString(string(text), -1) {
			// PostgreSQL's own programs, a page's commands, and the one place of this one.
			if call != "exec.CommandContext(r.t.Context()" && call != "exec.CommandContext(m.t.Context()" && call != "exec.Command(os.Args[0], args...)" {
				t.Errorf("%s: %s: want selfCommand", file, call)
			}
		}
	}
}
