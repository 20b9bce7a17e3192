//go:build !linux

package node

// StartAnew does nothing here: the slack of timers is Linux's.
func (Process) StartAnew() error { return nil }
