package postgres

import (
	"net"
	"time"
)

// deadAfter is after how long without an acknowledgement a connection is given up. A machine that has
// vanished closes nothing: a commit on its way there would wait for tryMax otherwise, and the driver's own
// keep-alives would take 15 minutes.
const deadAfter = 10 * time.Second

// newDialer makes connections that fail when the other machine has acknowledged nothing for deadAfter. The
// kernel of a busy server, or of one that waits for a standby, does acknowledge.
func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: deadAfter / 10, Count: 5},
		Control:         limitUnacknowledged,
	}
}
