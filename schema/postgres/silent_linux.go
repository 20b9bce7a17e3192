package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged bounds how long what was sent may stay unacknowledged: keep-alives are not sent meanwhile.
func limitUnacknowledged(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	}); failed != nil {
		return failed
	}
	return err
}
