package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestStartSlack: what is started has the slack, and who started it has its own again.
func TestStartSlack(t *testing.T) {
	runtime.LockOSThread() // the slack is the thread's
	defer runtime.UnlockOSThread()
	own, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		slack time.Duration
		want  string
	}{{0, strings.TrimSpace(string(own))}, {500 * time.Microsecond, "500000"}, {0, strings.TrimSpace(string(own))}} {
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		var out strings.Builder
		cmd.Stdout = &out
		if err := startSlack(cmd, of.slack); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != of.want {
			t.Errorf("slack %v: %s ns, want %s", of.slack, got, of.want)
		}
	}
}
