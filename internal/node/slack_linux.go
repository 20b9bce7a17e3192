package node

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What Linux gives a thread unless it was set, and what says that the program was
// started again: where the slack does not outlive that, it is not tried for ever.
const (
	usualSlack = 50 * time.Microsecond
	startedEnv = "DULY_TIMER_SLACK_GIVEN"
)

// Reexec gives the timers of the process their slack. A thread has that of the
// one that made it, and Go has made some before a program's first line, so the
// program is started once more in the same process: a call at the very beginning
// does not return then. A slack other than Linux's own, as systemd's
// TimerSlackNSec= sets it, stays. After an error the process is
// as it was.
func (p Process) Reexec() error {
	if p.TimerSlack == 0 || os.Getenv(startedEnv) != "" {
		return nil
	}
	runtime.LockOSThread() // the slack is the thread's
	defer runtime.UnlockOSThread()
	has, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if time.Duration(has) != usualSlack {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(p.TimerSlack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack %v: %w", p.TimerSlack, err)
	}
	// Appended to an environment that has it empty it would not be read.
	if err = os.Setenv(startedEnv, "1"); err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	_ = os.Unsetenv(startedEnv)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(has), 0, 0, 0) // as it was given before
	return fmt.Errorf("start %s again: %w", program, err)
}
