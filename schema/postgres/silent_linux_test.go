package postgres_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// TestSilentMachine: each connection of a store, for commits and for those who ask, is given up when the other machine has
// acknowledged nothing for DeadAfter, whether it is waited for or was sent something. `make test-compose` takes a machine away.
func TestSilentMachine(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtestdb.Migrated(t), schema.Options{}).(*postgres.Store)
	if err := s.ProbeRoom(t.Context()); err != nil { // of those who ask
		t.Fatal(err)
	}
	all := s.Connections()
	if len(all) < 2 {
		t.Fatalf("%d connections, want one of each pool", len(all))
	}
	for _, c := range all {
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			t.Fatalf("a connection is a %T", c)
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		option := func(level, name int) (value int) {
			if failed := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); failed != nil || err != nil {
				t.Fatal(failed, err)
			}
			return value
		}
		if option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 {
			t.Error("no keep-alives")
		}
		quiet := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE) + option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)*option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
		if got := time.Duration(quiet) * time.Second; got != postgres.DeadAfter {
			t.Errorf("given up after %v without a word, want %v", got, postgres.DeadAfter)
		}
		if got := time.Duration(option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * time.Millisecond; got != postgres.DeadAfter {
			t.Errorf("given up after %v without an acknowledgement, want %v", got, postgres.DeadAfter)
		}
	}
}
