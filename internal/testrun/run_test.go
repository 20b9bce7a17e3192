//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ran runs a shell script as the command of a run whose temporary folder is the test's.
func ran(t *testing.T, ctx context.Context, r *run, script string) error {
	t.Helper()
	parent, err := os.MkdirTemp("", "r") // a socket's path is short, and t.TempDir's is not
	if err == nil {
		err = os.Chmod(parent, 0o755) // the server's user passes through it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	r.times = filepath.Join(t.TempDir(), "times.txt")
	t.Setenv("TMPDIR", parent)
	err = r.all(ctx, []string{"sh", "-c", script})
	if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return err
}

// TestRun: a command has the server and the folder of the run; its parts are timed, and what passed is said again.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	r := &run{out: &out}
	err := ran(t, t.Context(), r, `echo '==> first'; printf 'ok  \tsome/package\t1.2s\n'; echo '==> second'; test -n "$DULY_TEST_POSTGRES" && test -d "$TMPDIR"`)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if n := strings.Count(out.String(), "some/package"); n != 2 {
		t.Errorf("the package that passed is named %d times:\n%s", n, &out)
	}
	times, err := os.ReadFile(r.times)
	if lines := strings.Split(string(times), "\n"); err != nil || len(lines) != 4 || !strings.HasSuffix(lines[0], "\tfirst") || !strings.HasSuffix(lines[1], "\tsecond") {
		t.Errorf("times: %q %v", times, err)
	}
}

// TestLeftBehind: a file, or a process that outlives its parent, makes a run fail that would have passed, and is gone.
func TestLeftBehind(t *testing.T) {
	var out bytes.Buffer
	if err := ran(t, t.Context(), &run{out: &out}, `touch "$TMPDIR/forgotten"`); err == nil || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("a file: %v", err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	err := ran(t, t.Context(), &run{out: &out}, `(setsid sleep 1000 >/dev/null 2>&1 &) ; true`)
	if err == nil || !strings.Contains(err.Error(), "sleep 1000") {
		t.Errorf("a process: %v", err)
	}
	if left := descendants(); len(left) != 0 {
		t.Errorf("still there: %v", left)
	}
}

// TestInterrupted: a run that is interrupted ends what runs, also what does not listen, and says to run it again.
func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &watched{want: "at work", found: interrupt}
	err := ran(t, ctx, &run{out: out}, `(setsid sh -c 'trap "" INT TERM; sleep 1000' &); echo at work; exec sleep 1000`)
	if err == nil || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("interrupted: %v", err)
	}
}

// watched calls a function when a text is written.
type watched struct {
	mu    sync.Mutex
	want  string
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(string(p), w.want) {
		w.found()
	}
	return len(p), nil
}

// TestFailed: the exit of the command is the run's.
func TestFailed(t *testing.T) {
	var out bytes.Buffer
	if err := ran(t, t.Context(), &run{out: &out}, `exit 3`); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("failed: %v", err)
	}
}

// TestNoRoom: a temporary folder that is full, or not there, is said before anything starts, with what to do.
func TestNoRoom(t *testing.T) {
	var out bytes.Buffer
	err := ran(t, t.Context(), &run{out: &out, spare: 1 << 62}, `true`)
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR") || !strings.Contains(err.Error(), os.TempDir()) {
		t.Errorf("full: %v", err)
	}
	t.Setenv("TMPDIR", filepath.Join(os.TempDir(), "absent"))
	if err := (&run{out: &out}).all(t.Context(), []string{"true"}); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("absent: %v", err)
	}
}

// TestQuiet: after a while without a line it is said what is at work.
func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	l := newLog(&out)
	l.quiet(time.Hour, func() []string { return []string{"too early"} })
	l.last = time.Now().Add(-time.Minute)
	l.quiet(time.Second, func() []string { return []string{"postgres", "duly"} })
	l.quiet(time.Second, func() []string { return []string{"twice"} })
	if got := out.String(); got != "    at work: postgres, duly\n" {
		t.Errorf("said %q", got)
	}
}
