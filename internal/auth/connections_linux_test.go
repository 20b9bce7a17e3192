package auth

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// mute opens a connection from an address of loopback, on which nothing is said.
func mute(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// served reports whether a connection is served: one too many is closed before it is answered.
func served(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return false
	}
	answer := make([]byte, 12)
	_, err := io.ReadFull(c, answer)
	return err == nil && string(answer) == "HTTP/1.1 200"
}

// TestConnectionsAreBounded: as many connections are served as may be, and of one address half as many: one that opens them
// without end keeps no other out. A place is free again when a connection has ended.
func TestConnectionsAreBounded(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	to := s.Listener.Addr().String()
	s.Listener = Bounded(s.Listener, 20)
	s.Start()
	defer s.Close()
	var open []net.Conn
	for i := range 30 {
		c := mute(t, "127.0.0.1", to)
		if is := served(t, c); is != (i < 10) {
			t.Errorf("connection %d of one address: %v", i+1, is)
		}
		open = append(open, c)
	}
	for i := range 15 {
		if is := served(t, mute(t, "127.0.0.2", to)); is != (i < 10) {
			t.Errorf("connection %d of another: %v", i+1, is)
		}
	}
	if served(t, mute(t, "127.0.0.3", to)) {
		t.Error("one more than all is served")
	}
	for _, c := range open {
		_ = c.Close()
	}
	for range 10_000 { // until the server has seen that they went
		if served(t, mute(t, "127.0.0.3", to)) {
			return
		}
	}
	t.Error("there is no room after connections have ended")
}
