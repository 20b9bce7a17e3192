package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every byte with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // until the other side ends
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func linked(t *testing.T) *link {
	t.Helper()
	return linkTo(t, echo(t))
}

// linkTo is a link to an address, closed when the test ends.
func linkTo(t *testing.T, to string) *link {
	t.Helper()
	k, err := newLink(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func dial(t *testing.T, k *link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", k.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends a byte and waits for it to come back.
func exchange(c net.Conn, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{7}); err != nil {
		return err
	}
	var b [1]byte
	_, err := io.ReadFull(c, b[:])
	return err
}

const soon, late = 200 * time.Millisecond, 30 * time.Second

func TestLinkCut(t *testing.T) {
	k := linked(t)
	c := dial(t, k)
	if err := exchange(c, late); err != nil {
		t.Fatal(err)
	}
	k.cut()
	if err := exchange(c, late); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want an end of the connection", err)
	}
	if err := exchange(dial(t, k), late); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new one: %v, want an end of the connection", err)
	}
	k.whole()
	if err := exchange(dial(t, k), late); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// TestLinkHalf: connections stand and hear nothing; healed, they end, because
// bytes of theirs are lost.
func TestLinkHalf(t *testing.T) {
	k := linked(t)
	c := dial(t, k)
	if err := exchange(c, late); err != nil {
		t.Fatal(err)
	}
	k.halve()
	for _, c := range []net.Conn{c, dial(t, k)} {
		if err := exchange(c, soon); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want silence", err)
		}
	}
	k.whole()
	if err := exchange(c, late); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want an end of the connection", err)
	}
	if err := exchange(dial(t, k), late); err != nil {
		t.Errorf("healed: %v", err)
	}
}

func TestLinkSlow(t *testing.T) {
	k := linked(t)
	c := dial(t, k)
	const by = 50 * time.Millisecond
	k.slow(by)
	began := time.Now()
	if err := exchange(c, late); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*by {
		t.Errorf("%v there and back, want %v or more", took, 2*by)
	}
	k.whole()
	if err := exchange(c, late); err != nil {
		t.Errorf("healed, the same connection: %v", err)
	}
}

// TestRetarget: what is connected ends, and what connects afterwards reaches the other server.
func TestRetarget(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	k := linkTo(t, silent.Addr().String())
	c := dial(t, k)
	far, err := silent.Accept() // else it might be connected to the other one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	k.retarget(echo(t))
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to the server before: %v, want its end", err)
	}
	c = dial(t, k)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(c, got); err != nil || got[0] != 'x' {
		t.Errorf("%q %v from the other server, want the echo", got, err)
	}
}
