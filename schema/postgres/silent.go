package postgres

import (
	"net"
	"time"
)

// deadAfter is how long a connection may go unacknowledged before it is given up. A machine that is gone closes nothing: a
// commit that was sent to it would otherwise wait for tryMax, and the driver's own keep-alives take 15 minutes.
const deadAfter = 10 * time.Second

// newDialer makes network connections that fail when the other machine has said nothing for deadAfter. The kernel of a server
// that is busy, or waits for a standby, does acknowledge.
func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadAfter / 2, Interval: deadAfter / 10, Count: 5},
		Control:         limitUnacknowledged,
	}
}
