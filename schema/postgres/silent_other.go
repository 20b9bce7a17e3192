//go:build !linux

package postgres

import "syscall"

// limitUnacknowledged does nothing: what was sent is given up after the system's own time.
var limitUnacknowledged func(network, address string, c syscall.RawConn) error
