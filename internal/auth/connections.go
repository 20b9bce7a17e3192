package auth

import (
	"context"
	"net"
	"sync"

	"duly.dev/duly/internal/operate"
)

// connections is a listener that takes so many connections at a time.
type connections struct {
	net.Listener
	places *operate.Places
}

// Bounded is a listener that takes so many connections at a time, of one source half of them: each costs memory before
// anyone has said who it is. More are closed before anything is read of them.
func Bounded(of net.Listener, most int) net.Listener {
	return &connections{of, operate.NewPlaces(most)}
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := operate.Actor{Name: Source(c.RemoteAddr().String())}
		leave, full := l.places.Take(operate.WithActor(context.Background(), source), "connections")
		if full == nil {
			return &connection{c, sync.OnceFunc(leave)}, nil
		}
		_ = c.Close() // nothing was said on it
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
