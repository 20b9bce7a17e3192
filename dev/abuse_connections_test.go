package dev_test

import (
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"duly.dev/duly/internal/config"
)

// TestConnectionsToANode: who opens connections to a node without end gets a part of those that its memory is meant for, and
// tasks run meanwhile.
func TestConnectionsToANode(t *testing.T) {
	cfg := settings()
	cfg.Memory = config.MemoryLeast
	w := startWith(t, cfg)
	w.plan(abusePlan)
	w.agent("good.only", answers(`{}`), nil)
	w.good("before") // over a connection that is kept
	u, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for range 200 {
		c, err := net.DialTimeout("tcp", u.Host, patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // one too many is closed
		if _, err := io.ReadFull(c, make([]byte, 12)); err == nil {
			served++
		}
	}
	if most := config.MemoryLeast / 8 / (32 << 10) / 2; served > most || served < most-10 {
		t.Errorf("%d connections of one address are served, want %d", served, most)
	}
	w.good("meanwhile")
}
