package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// linuxSlack is what a thread has unless it was set.
const linuxSlack = 50 * time.Microsecond

// TestTimerSlack: a node's threads have the slack it is told, or its default, or what
// they were given from outside.
func TestTimerSlack(t *testing.T) {
	for _, of := range []struct {
		name    string
		args    []string
		outside time.Duration
		again   string // says that it was started again already
		want    string
	}{
		{"default", nil, linuxSlack, "", "200000"},
		{"flag", []string{"--timer-slack", "1ms"}, linuxSlack, "", "1000000"},
		{"none", []string{"--timer-slack", "0s"}, linuxSlack, "", "50000"},
		{"given from outside", nil, 3 * time.Millisecond, "", "3000000"},
		{"not kept by the start", nil, linuxSlack, "1", "50000"},
	} {
		t.Run(of.name, func(t *testing.T) {
			runtime.LockOSThread() // a child has the slack of the thread that starts it
			defer runtime.UnlockOSThread()
			setSlack(t, of.outside)
			defer setSlack(t, 0)
			t.Setenv("DULY_TIMER_SLACK_GIVEN", of.again)
			c := spawn(t, append([]string{"dev", "--port", "0", "--nats-port", "0"}, of.args...)...)
			c.ready()
			pid := c.cmd.Process.Pid
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil || len(threads) < 2 {
				t.Fatalf("%d threads, %v", len(threads), err)
			}
			for _, thread := range threads {
				got, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
				if os.IsNotExist(err) {
					continue // it has ended meanwhile
				}
				if err != nil || strings.TrimSpace(string(got)) != of.want {
					t.Errorf("thread %s: %s ns, %v, want %s", thread.Name(), got, err, of.want)
				}
			}
			if strings.Contains(c.log(), "timers keep") {
				t.Error("it says that it has no slack")
			}
			if code := c.term(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// setSlack changes the slack of the calling thread; 0: as it was at first.
func setSlack(t *testing.T, slack time.Duration) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// TestTimerSlackRefused: what is out of range is refused by its name, its value and
// the limit, before anything starts.
func TestTimerSlackRefused(t *testing.T) {
	for _, args := range [][]string{{"dev"}, {"serve", "--database-url", "postgres://127.0.0.1:1/none"}} {
		code, _, errs := command(t, "", append(args, "--timer-slack", "6ms")...)
		if code != 2 || !strings.Contains(errs, "timer-slack: 6ms, want 0 to 5ms") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
