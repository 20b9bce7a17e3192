package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// startSlack starts a program whose threads may be woken so much later than they
// asked (prctl(2), PR_SET_TIMERSLACK; systemd's TimerSlackNSec= does the same for a
// service); 0 leaves it as it is. Go's monitor thread asks for 20 µs at a time while
// calls block in the kernel, as every sync of a stream does, and each of its wakes
// takes a processor from somebody.
func startSlack(cmd *exec.Cmd, slack time.Duration) error {
	if slack == 0 {
		return cmd.Start()
	}
	// A child inherits the slack of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack %v: %w", slack, err)
	}
	err := cmd.Start()
	if back := unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0); err == nil && back != nil {
		return fmt.Errorf("timer slack of one's own: %w", back)
	}
	return err
}
