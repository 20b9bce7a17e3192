package auth

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"duly.dev/duly/internal/operate"
)

// Connections bounds those of an HTTP server, which anyone opens. Of too many the one goes that has been quiet the longest, be
// it that it asks for nothing, or that it sends a request slowly: so who holds many keeps out no one who asks. One that no
// actor has asked by goes first, and none goes whose request has an actor; where all have, it is the new one.
type Connections struct {
	most int

	mu     sync.Mutex
	open   map[net.Conn]*connection
	unmet  *list.List // net.Conn, quiet the longest first: no request had an actor
	spared *list.List // the same of the others
}

// connection is one that is open.
type connection struct {
	in    *list.List    // nil: some request has an actor
	at    *list.Element // there
	known int           // requests that have an actor
	met   bool          // one had
}

// NewConnections bounds the connections of a server to so many.
func NewConnections(most int) *Connections {
	return &Connections{most: most, open: map[net.Conn]*connection{}, unmet: list.New(), spared: list.New()}
}

// connectionKey is where the context of a request has its connection.
type connectionKey struct{}

// Bound has a server bound its connections.
func (c *Connections) Bound(s *http.Server) {
	s.ConnState = c.note
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
}

// Keep keeps the connections of requests that have an actor.
func (c *Connections) Keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, is := r.Context().Value(connectionKey{}).(net.Conn)
		if _, known := operate.ActorFrom(r.Context()); is && known {
			c.known(conn, 1)
			defer c.known(conn, -1)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Connections) known(conn net.Conn, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.open[conn]; is != nil {
		is.known += more
		is.met = true
		c.place(conn, is)
	}
}

// place puts a connection behind all that are quiet, or takes it from them.
func (c *Connections) place(conn net.Conn, is *connection) {
	c.take(is)
	switch {
	case is.known > 0:
		return
	case is.met:
		is.in = c.spared
	default:
		is.in = c.unmet
	}
	is.at = is.in.PushBack(conn)
}

func (c *Connections) take(is *connection) {
	if is.in != nil {
		is.in.Remove(is.at)
		is.in = nil
	}
}

// note is http.Server.ConnState.
func (c *Connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch is := c.open[conn]; {
	case state == http.StateNew:
		if len(c.open) >= c.most {
			c.makeRoom()
		}
		is = new(connection)
		c.open[conn] = is
		c.place(conn, is)
		if len(c.open) > c.most {
			c.end(conn)
		}
	case is == nil: // it had to go
	case state == http.StateActive || state == http.StateIdle:
		c.place(conn, is)
	default:
		c.forget(conn, is)
	}
}

// makeRoom ends the one that is to go.
func (c *Connections) makeRoom() {
	for _, quiet := range []*list.List{c.unmet, c.spared} {
		if first := quiet.Front(); first != nil {
			c.end(first.Value.(net.Conn))
			return
		}
	}
}

func (c *Connections) forget(conn net.Conn, is *connection) {
	c.take(is)
	delete(c.open, conn)
}

// end closes a connection: that under TLS, because to say goodbye can take long. Its own goroutine notices.
func (c *Connections) end(conn net.Conn) {
	c.forget(conn, c.open[conn])
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	_ = conn.Close() // what is wrong with it is over
}
