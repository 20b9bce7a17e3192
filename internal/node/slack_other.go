//go:build !linux

package node

// Reexec does nothing here: the slack of timers is Linux's.
func (Process) Reexec() error { return nil }
