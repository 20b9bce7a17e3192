package main

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSystemdIsTold: a node that systemd started says when it is ready, what does not hold, that it lives and that it
// stops. With the database gone it is not ready, and lives: no watchdog kills it.
func TestSystemdIsTold(t *testing.T) {
	t.Parallel()
	g := newOwnGround(t)
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n, err := spawnWith(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+at.Name, "WATCHDOG_USEC=300000")
	}, "serve", "--node-name", "n", "--nats-url", g.nats.ClientURL(), "--database-url", g.db, "--http-addr", "127.0.0.1:0",
		"--partitions", "4", "--lease", "1s", "--scan-interval", "100ms", "--drain", "1s")
	if err != nil {
		t.Fatal(err)
	}
	heard := map[string]int{}
	await := func(want string) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 4096); ; {
			size, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %q: %v; heard %v", want, err, heard)
			}
			found := false
			for line := range strings.SplitSeq(string(buf[:size]), "\n") {
				heard[line]++
				found = found || strings.HasPrefix(line, want)
			}
			if found {
				return
			}
		}
	}
	await("READY=1")
	if heard["STATUS=ready"] != 1 {
		t.Errorf("heard %v, want to have heard once that it is ready", heard)
	}
	n.ready() // asks /readyz
	if err := g.pg.Crash(); err != nil {
		t.Fatal(err)
	}
	await("STATUS=not ready: ")
	for range 5 {
		await("WATCHDOG=1")
	}
	if code := n.term(); code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	await("STOPPING=1")
	if heard["READY=1"] != 1 {
		t.Errorf("heard READY=1 %d times, want once", heard["READY=1"])
	}
}
