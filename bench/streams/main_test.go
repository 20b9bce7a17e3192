package main

import (
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRelay: what is sent arrives, and a relay that is closed ends every connection.
func TestRelay(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn) // until the relay is closed
		conn.Close()
	}()
	r, err := newRelay("127.0.0.1:0", echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Fatalf("%q, %v", got, err)
	}
	r.close()
	if _, err := conn.Read(got); err == nil {
		t.Error("the connection is still there")
	}
	echo.Close()
	<-ended
}

// TestMedian: of an odd number the middle one, of an even one the higher of the two.
func TestMedian(t *testing.T) {
	rate := func(f figures) float64 { return f.perSecond }
	for want, all := range map[float64][]figures{2: {{perSecond: 3}, {perSecond: 1}, {perSecond: 2}}, 4: {{perSecond: 4}, {perSecond: 1}}} {
		if got := median(all, rate); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestNetworkOnLoopback: machines without an address of their own have ports of their own.
func TestNetworkOnLoopback(t *testing.T) {
	alone, apart := &network{}, &network{spaces: true}
	if a, b := alone.nats(0), alone.nats(1); a == b {
		t.Errorf("%s twice", a)
	}
	if a, b := apart.host(0), apart.host(1); a == b || apart.port(0, 1) != apart.port(1, 1) {
		t.Errorf("%s, %s", a, b)
	}
}
