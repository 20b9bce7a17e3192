package httpagent

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// breaksOff is a service that answers the first request of each connection, acts on the second, and ends the connection
// without an answer.
type breaksOff struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu   sync.Mutex
	seen []string // method and body of each request
}

func newBreaksOff(t *testing.T) *breaksOff {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &breaksOff{listener: l}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.wg.Wait()
	})
	return s
}

func (s *breaksOff) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := range 2 {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, r.Method+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
		s.mu.Unlock()
		if n == 0 {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}
}

// TestOneRequestForOneTry: a request whose connection ends after the service has read it is not sent again by the
// transport, whatever its method and its headers: only Duly sends again, and counts it.
//
// covers: W4
func TestOneRequestForOneTry(t *testing.T) {
	for name, step := range map[string]string{
		"POST":                  `do: {method: POST, path: /charges, body: input}`,
		"PUT without a body":    `do: {method: PUT, path: /charges}`,
		"POST without a body":   `do: {method: POST, path: /charges}`,
		"GET":                   `do: {method: GET, path: /charges}`,
		"X-Idempotency-Key":     `do: {method: POST, path: /charges, headers: {X-Idempotency-Key: "{key}"}, body: input}`,
		"DELETE without a body": `do: {method: DELETE, path: /charges}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newBreaksOff(t)
			w := &world{t: t}
			w.serve("http://"+s.listener.Addr().String(), "tries: 1", step)
			w.want(command(), 0, "")
			w.want(command(), http.StatusBadGateway, "EOF")
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.seen) != 2 {
				t.Errorf("two tries, requests %q", s.seen)
			}
			if s.seen[0] != s.seen[1] {
				t.Errorf("requests differ: %q", s.seen)
			}
		})
	}
}
