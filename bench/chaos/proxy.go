package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// link is a proxy between one process and a server it connects to, so that what
// lies between them can be cut, slowed down, or lose everything silently.
type link struct {
	listener net.Listener

	mu    sync.Mutex
	to    string
	state linkState
	delay time.Duration
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

type linkState int

const (
	linkWhole linkState = iota
	linkCut             // connections end, new ones are refused
	linkHalf            // connections stay and nothing passes, as if the other side had lost its power
)

// newLink opens a proxy to an address on a free port.
func newLink(to string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", to, err)
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	k.wg.Go(k.serve)
	return k, nil
}

func (k *link) addr() string { return k.listener.Addr().String() }

func (k *link) serve() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return // closed
		}
		if !k.keep(near) {
			near.Close()
			continue
		}
		k.wg.Go(func() { k.join(near) })
	}
}

// keep notes a connection; false: it must end at once.
func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns == nil || k.state == linkCut {
		return false
	}
	k.conns[c] = struct{}{}
	return true
}

func (k *link) join(near net.Conn) {
	defer k.drop(near)
	k.mu.Lock()
	to := k.to
	k.mu.Unlock()
	far, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil || !k.keep(far) {
		if err == nil {
			far.Close()
		}
		return
	}
	defer k.drop(far)
	var wg sync.WaitGroup
	wg.Go(func() { k.pass(near, far) })
	k.pass(far, near)
	wg.Wait()
}

// drop ends a connection.
func (k *link) drop(c net.Conn) {
	c.Close()
	k.mu.Lock()
	delete(k.conns, c)
	k.mu.Unlock()
}

// pass carries one direction until either side ends, and then ends both.
func (k *link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !k.carry(to, buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// carry hands bytes on as the link's state wants; false: the connection is over.
func (k *link) carry(to net.Conn, data []byte) bool {
	k.mu.Lock()
	half, delay := k.state == linkHalf, k.delay
	k.mu.Unlock()
	if half {
		return true // gone
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	_, err := to.Write(data)
	return err == nil
}

// cut ends every connection and refuses new ones, until whole.
func (k *link) cut() { k.set(linkCut, 0, true) }

// slow makes everything late, until whole.
func (k *link) slow(by time.Duration) { k.set(linkWhole, by, false) }

// halve lets connections stand and nothing pass, until whole: new ones are
// taken, too, and hear nothing.
func (k *link) halve() { k.set(linkHalf, 0, false) }

// whole heals the link. What has lost bytes ends.
func (k *link) whole() {
	k.mu.Lock()
	lost := k.state == linkHalf
	k.mu.Unlock()
	k.set(linkWhole, 0, lost)
}

// retarget leads to another server from now on, and ends what is connected to the one
// before.
func (k *link) retarget(to string) {
	k.mu.Lock()
	k.to = to
	k.mu.Unlock()
	k.set(linkWhole, 0, true)
}

func (k *link) set(state linkState, delay time.Duration, end bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state, k.delay = state, delay
	if !end {
		return
	}
	for c := range k.conns {
		c.Close() // its passers drop it
	}
}

func (k *link) close() error {
	err := k.listener.Close()
	k.mu.Lock()
	for c := range k.conns {
		c.Close()
	}
	k.conns = nil
	k.mu.Unlock()
	k.wg.Wait()
	return err
}
