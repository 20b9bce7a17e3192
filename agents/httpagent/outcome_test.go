package httpagent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestStatuses: what the statuses of a do and of an undo come to, and how often the service is asked for it.
//
// covers: I17, I20
func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status    int
		body      string
		do, undo  int // codes
		calls     int // of the do
		has, more string
	}{
		{201, `{"id":"p-1"}`, 0, 0, 1, `{"id":"p-1"}`, ""},
		{204, ``, 0, 0, 1, "", ""},
		{200, `not JSON`, 512, 0, 1, "its body is not JSON", ""},
		{200, "\"\xff\"", 512, 0, 1, "its body is not UTF-8: byte 2", ""},
		{200, `{"id":"\u0000"}`, 512, 0, 1, "its body holds a NUL", ""},
		{404, `no such card`, 404, 500, 1, "it answers 404: no such card", ""},
		{404, ``, 404, 0, 1, "", "[2xx, 404]"},
		{409, ``, 409, 500, 1, "it answers 409", ""},
		{410, ``, 410, 0, 1, "it answers 410", ""},
		{408, ``, 408, 408, 3, "it answers 408", ""},
		{425, ``, 425, 425, 3, "it answers 425", ""},
		{429, ``, 429, 429, 3, "it answers 429", ""},
		{500, ``, 500, 500, 3, "it answers 500", ""},
		{501, ``, 500, 500, 3, "it answers 501", ""},
		{503, ``, 503, 503, 3, "it answers 503", ""},
		{599, ``, 599, 599, 3, "it answers 599", ""},
		{304, ``, 502, 502, 3, "it answers 304", ""},
		{999, ``, 500, 500, 3, "it answers 999", ""},
	} {
		t.Run(fmt.Sprint(c.status, c.more), func(t *testing.T) {
			step := plain
			if c.more != "" {
				step = strings.Replace(plain, `undo: {`, `undo: {done: `+c.more+`, `, 1)
			}
			w := start(t, answers(c.status, c.body), "", step)
			w.want(command(), c.do, c.has)
			if n := w.calls.Load(); n != int64(c.calls) {
				t.Errorf("%d calls of a do, want %d", n, c.calls)
			}
			w.want(undo(), c.undo, "")
		})
	}
}

// TestStatusesOfTheFile: a file says otherwise of one status, or of all that begin with a digit.
func TestStatusesOfTheFile(t *testing.T) {
	status := atomic.Int64{}
	w := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }, "tries: 1",
		`do: {method: PUT, path: /charges, done: [2xx, 409], final: [5xx, 202], again: [404, 503]}`)
	for _, c := range []struct{ status, code int }{{200, 0}, {409, 0}, {202, 422}, {500, 422}, {404, 500}, {503, 503}, {402, 402}} {
		status.Store(int64(c.status))
		w.want(command(), c.code, "")
	}
}

// TestSwitchedProtocol: a service that answers 101 without an Upgrade request has not answered: its connection
// is not read until it ends.
func TestSwitchedProtocol(t *testing.T) {
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	}, "tries: 1", plain)
	w.want(command(), 502, "it answers 101")
}

// TestRefusalAfterUnclear: final means that there is no effect. A try before may have had one: then the answer is that of
// the try, and an undo follows. A check leaves nothing behind. That another try is at work (425) says nothing of it either.
//
// covers: I20, W11
func TestRefusalAfterUnclear(t *testing.T) {
	flaky := func(then int) http.HandlerFunc {
		first := atomic.Bool{}
		return func(w http.ResponseWriter, _ *http.Request) {
			if !first.Swap(true) {
				w.WriteHeader(500)
				return
			}
			w.WriteHeader(then)
		}
	}
	start(t, flaky(409), "", plain).want(command(), 500, "it answers 500")
	start(t, flaky(409), "", `do: {method: PUT, path: /charges}`).want(command(), 409, "it answers 409")
	w := start(t, flaky(425), "", plain)
	w.want(command(), 500, "it answers 500")
	if n := w.calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// TestBodies: an answer over the limit is refused before it is read whole, whether it says its length, lies about it or
// never ends.
//
// covers: E21
func TestBodies(t *testing.T) {
	wrote := atomic.Int64{}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for piece := []byte(strings.Repeat("x", 1<<10)); ; {
			n, err := w.Write(piece)
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	}
	long := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2000000000")
		w.WriteHeader(200)
		_, _ = w.Write([]byte(`"x`))
	}
	short := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(200)
		_, _ = w.Write([]byte(`"x`))
	}
	limit := "answer_max: 4096\ntries: 1"
	start(t, endless, limit, plain).want(command(), 512, "its body has more than 4096 bytes, which is answer_max")
	start(t, long, limit, plain).want(command(), 512, "its body has 2000000000 bytes, answer_max is 4096")
	start(t, short, limit, plain).want(command(), 502, "its body breaks off")
	start(t, answers(200, `"`+strings.Repeat("x", 4094)+`"`), limit, plain).want(command(), 0, "xxx")
	start(t, answers(200, `"`+strings.Repeat("x", 4095)+`"`), limit, plain).want(command(), 512, "answer_max")
	if n := wrote.Load(); n > 64<<20 {
		t.Errorf("%d bytes of an endless body were taken", n)
	}
	// Of a failure, and of an undo, the body is not needed.
	start(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422); endless(w, r) }, limit, plain).want(command(), 422, "it answers 422")
	start(t, endless, limit, plain).want(undo(), 0, "")
	// Text is held to the same.
	text := strings.Replace(plain, `do: {`, `do: {answer: text, `, 1)
	start(t, answers(200, "a\tb"), "", text).want(command(), 0, `"a\tb"`)
	start(t, answers(200, "a\x00b"), "", text).want(command(), 512, "its body is no text")
	start(t, answers(200, "caf\xe9"), "", text).want(command(), 512, "its body is no text")
	// What is over the result's own limit is refused as of any agent.
	start(t, answers(200, `"`+strings.Repeat("x", core.ResultBytesMax)+`"`), "", plain).want(command(), 512, "result_max")
}

// TestSilent: past the complete-by there is no answer at all: of a service that hangs, one that trickles, and one that
// always fails while there is time.
//
// covers: E7, S9
func TestSilent(t *testing.T) {
	trickle := func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := w.Write([]byte(" ")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, handler := range map[string]http.HandlerFunc{"hang": hang, "trickle": trickle} {
		for _, cmd := range []core.Command{command(), undo()} {
			if name == "trickle" && cmd.Undo {
				continue // whose answer is not read
			}
			w := start(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the client goes
				handler(w, r)
			}, "", plain)
			cmd.Left = 150 * time.Millisecond
			began := time.Now()
			if reply, answered := w.handle(cmd); answered || time.Since(began) < cmd.Left {
				t.Errorf("%s: answered %d %s after %v", name, reply.Code, reply.Error, time.Since(began))
			}
		}
	}
	// A try that has a time of its own ends earlier, and the next one may do better.
	first := atomic.Bool{}
	start(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !first.Swap(true) {
			<-r.Context().Done()
		}
		w.WriteHeader(204)
	}, "", `do: {method: PUT, path: /charges, timeout: 300ms}`).want(command(), 0, "")
	start(t, hang, "tries: 2", `do: {method: GET, path: /charges, timeout: 50ms}`).want(command(), 504, "deadline exceeded")
}

// TestRetryAfter: the service says when it wants to be asked again. Where that is too late the answer is sent at once.
func TestRetryAfter(t *testing.T) {
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(503)
	}, "", plain)
	w.want(command(), 503, "it answers 503")
	if n := w.calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	for text, want := range map[string]time.Duration{"": 0, "2": 2 * time.Second, "-1": 0, "x": 0, "99999999": time.Hour, "Thu, 01 Jan 1970 00:00:00 GMT": 0} {
		if got := retryAfter(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestUnreachable: nothing was sent, so a try of it makes no later refusal unclear.
func TestUnreachable(t *testing.T) {
	w := start(t, answers(200, ""), "", plain)
	w.server.Close()
	w.want(command(), 502, "connection refused")
	broken := start(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}, "", plain)
	broken.want(command(), 502, "EOF")
}

// TestRedirects: to the same host with the method and the body kept; elsewhere only where the file names the host, and
// without the secret.
//
// covers: E21, P22
func TestRedirects(t *testing.T) {
	var last atomic.Pointer[http.Request]
	t.Setenv("BANK_TOKEN", "s3cr3t-t0ken")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { last.Store(r); w.WriteHeader(200) }))
	defer other.Close()
	secret := "auth: {bearer: {env: BANK_TOKEN}}\n"
	to := func(status int, where string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/there" {
				last.Store(r)
				body, _ := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(w, "%q", r.Method+string(body))
				return
			}
			http.Redirect(w, r, where, status)
		}
	}
	start(t, to(307, "/there"), secret, plain).want(command(), 0, `PUT{\"cents\":1999`)
	if got := last.Load().Header.Get("Authorization"); got != "Bearer s3cr3t-t0ken" {
		t.Errorf("the service's own host got %q", got)
	}
	last.Store(nil)
	start(t, to(302, "/there"), secret, plain).want(command(), 502, "makes a GET of the PUT")
	start(t, to(307, "/charges"), "tries: 1", plain).want(command(), 502, "redirects more than 5 times")
	start(t, to(307, other.URL), secret, plain).want(command(), 502, "which is not one of its redirects")
	if last.Load() != nil {
		t.Error("a host that is not named was asked")
	}
	start(t, to(308, other.URL), secret+"headers: {X-Partner-Id: p4rtner}\nredirects: [127.0.0.1]", `do: {method: PUT, path: "/c/{key}", headers: {X-Customer: "{task}"}, body: input}`).want(command(), 0, "")
	r := last.Load()
	if r == nil || r.Method != http.MethodPut || r.Header.Get("Idempotency-Key") == "" || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("a named host got %+v", r)
	}
	for _, name := range []string{"Authorization", "X-Partner-Id", "X-Customer", "Referer"} {
		if value := r.Header.Get(name); value != "" {
			t.Errorf("a named host got %s: %s", name, value)
		}
	}
}
