package dev_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"duly.dev/duly/dev"
)

// smallFiles makes this test's program one that cannot write large files for a while.
const smallFiles = "DULY_TEST_SMALL_FILES"

// TestWriteErrorIsMended: a NATS server whose stream met a write error is started again by
// the process it is in, and what was accepted before and after ends.
//
// The limit of a file's size is the whole process's, so that it is one of its own; the
// database is another process, begun before.
func TestWriteErrorIsMended(t *testing.T) {
	if os.Getenv(smallFiles) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWriteErrorIsMended$", "-test.v")
		cmd.Env = append(os.Environ(), smallFiles+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestWriteErrorIsMended") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	w := startIn(t, settings(), dev.StorePostgres)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	w.taken("before")
	w.ends("delivery", "before", "processed")

	whole := limitFiles(t, 1<<20)
	input := fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("x", 100_000))
	var accepted []string
	w.until("a write error", func() bool {
		id := fmt.Sprintf("large-%d", len(accepted))
		answer, err := w.nc.Request("duly.submit.delivery."+id, input, time.Second)
		if err == nil && !strings.Contains(string(answer.Data), `"error"`) {
			accepted = append(accepted, id)
		}
		return w.sys.Node.WriteError() != nil
	})
	restoreFiles(t, whole)
	w.taken("after")
	for _, id := range append(accepted, "after") {
		w.ends("delivery", id, "processed")
	}
	w.until("ready", func() bool { code, _ := w.http("GET", "/readyz", "", nil); return code == 200 })
	if n := w.lines("the NATS server in this process is started again"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// limitFiles bounds the size of each file that this process writes, and returns the limit
// that was.
func limitFiles(t *testing.T, most uint64) syscall.Rlimit {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	restoreFiles(t, syscall.Rlimit{Cur: most, Max: was.Max})
	return was
}

func restoreFiles(t *testing.T, limit syscall.Rlimit) {
	t.Helper()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}
