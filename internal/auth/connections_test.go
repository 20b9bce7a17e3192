package auth

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
)

// TestConnections: of too many connections the one that has been quiet the longest goes, be it new, kept, or one whose request
// has no actor, and none of an actor that waits for an answer; where all do, the new one goes.
//
// covers: E26
func TestConnections(t *testing.T) {
	answer := make(chan struct{})
	begun := make(chan struct{})
	bounded := NewConnections(4)
	long := bounded.Keep(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-answer
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/oleg":
			bounded.Keep(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: "oleg"})))
		case "/anyone":
			long.ServeHTTP(w, r)
		case "/olga":
			long.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: "olga"})))
		}
	}))
	idle := make(chan struct{}, 8)
	bounded.Bound(server.Config)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		bounded.note(c, state)
		if state == http.StateIdle {
			idle <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, path string) {
		t.Helper()
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(c net.Conn) bool {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == 200
	}
	gone := func(what string, c net.Conn) {
		t.Helper()
		err := c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, read := c.Read(make([]byte, 1)); err != nil || n > 0 || read == nil || errors.Is(read, os.ErrDeadlineExceeded) {
			t.Errorf("%s is served: %v", what, errors.Join(err, read))
		}
	}
	first := dial()
	ask(first, "/olga")
	<-begun
	idling := func(path string) net.Conn {
		t.Helper()
		c := dial()
		ask(c, path)
		if !answered(c) {
			t.Fatal("one more is not served")
		}
		<-idle
		return c
	}
	spared, kept, silent := idling("/oleg"), idling("/"), dial()
	late := idling("/")
	gone("one that is kept", kept)
	slow := dial()
	ask(slow, "/anyone")
	<-begun
	gone("one that says nothing", silent)
	var more []net.Conn
	for range 3 {
		more = append(more, dial())
		ask(more[len(more)-1], "/olga")
		<-begun
	}
	gone("one that is kept", late)
	gone("one without an actor", slow)
	gone("one that an actor has asked by", spared)
	gone("one too many", dial())
	close(answer)
	for _, c := range append(more, first) {
		if !answered(c) {
			t.Error("one that waited has no answer")
		}
	}
}
