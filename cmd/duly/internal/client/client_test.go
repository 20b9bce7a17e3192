package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return &Client{Base: s.URL, Token: "duly_x", Timeout: 5 * time.Second}
}

// TestErrors: a refusal has its sentence and what is possible; what is no problem document has the status.
func TestErrors(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer duly_x" {
			t.Errorf("authorization %q", got)
		}
		if r.URL.Path == "/v1/plain" {
			http.Error(w, "<html>", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"status":409,"detail":"task \"x\" is processed","possible":["undo"]}`)
	})
	_, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/v1/x"})
	if want := `task "x" is processed; possible now: undo (409)`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/v1/plain"})
	if err == nil || !strings.Contains(err.Error(), "answered 502 Bad Gateway (502)") {
		t.Errorf("%v", err)
	}
	away := &Client{Base: "http://127.0.0.1:1", Timeout: time.Second}
	_, err = away.Do(t.Context(), Request{Method: http.MethodGet, Path: "/v1/x"})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "is a node running there?") {
		t.Errorf("%v", err)
	}
	busy := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	busy.Timeout = 50 * time.Millisecond
	_, err = busy.Do(t.Context(), Request{Method: http.MethodGet, Path: "/v1/x"})
	if !errors.As(err, &unreachable) || strings.Contains(err.Error(), "is a node running there?") || !strings.Contains(err.Error(), "--timeout waits longer") {
		t.Errorf("a node that is busy: %v", err)
	}
	dies := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = dies.Do(t.Context(), Request{Method: http.MethodPost, Path: "/v1/schedules/s/run-now"})
	if !errors.As(err, &unreachable) || strings.Contains(err.Error(), "is a node running there?") || !strings.Contains(err.Error(), "may have been done") {
		t.Errorf("a node that dies: %v", err)
	}
}

// TestTokens: the command line says where a token is given, and refuses one that no header may have, without asking.
func TestTokens(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"status":401,"detail":"send the header Authorization"}`)
	})
	for token, want := range map[string]string{
		"": "this needs a token: set DULY_TOKEN", "duly_x": "send the header Authorization",
		"duly_a\nduly_b": "the token has a blank, a line break", "duly_ä": "character that no token has",
	} {
		c.Token = token
		_, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/v1/x"})
		if p, ok := errors.AsType[*Problem](err); !ok || p.Status != 401 || !strings.Contains(p.Detail, want) {
			t.Errorf("%q: %v, want %s", token, err, want)
		}
	}
}

// TestFollowGoesOn: a stream that breaks is begun again after the last event, and says so; no event comes twice.
//
// covers: OP23
func TestFollowGoesOn(t *testing.T) {
	tries := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tries++
		last := r.Header.Get(HeaderLast)
		w.Header().Set("Content-Type", "text/event-stream")
		switch tries {
		case 1:
			if last != "7" {
				t.Errorf("first: after %q", last)
			}
			fmt.Fprint(w, "retry: 10\n\n: alive\n\nid: 8\nevent: task\ndata: {\"a\":\ndata: 1}\n\nid: 9\ndata: half")
		case 2:
			if last != "8" {
				t.Errorf("second: after %q", last)
			}
			fmt.Fprint(w, "event: dropped\ndata: {\"status\":429,\"detail\":\"too slow\"}\n\n")
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, "id: 10\ndata: two\n\nid: 11\ndata: three\n\n")
		}
	})
	var got, lost []string
	err := c.Follow(t.Context(), Request{Path: "/v1/events", Header: map[string]string{HeaderLast: "7"}}, func(e Event) error {
		got = append(got, e.ID+" "+string(e.Data))
		if len(got) == 3 {
			return ErrStop
		}
		return nil
	}, func(err error) { lost = append(lost, fmt.Sprint(err)) })
	if err != nil || fmt.Sprint(got) != "[8 {\"a\":\n1} 10 two 11 three]" {
		t.Errorf("%v %q", err, got)
	}
	if len(lost) < 2 || !strings.Contains(lost[0], "ended") || lost[len(lost)-1] != "<nil>" || !strings.Contains(strings.Join(lost, " "), "too slow") {
		t.Errorf("%q", lost)
	}
}

// TestFollowEnds: with its context, with an error of who listens, and with a refusal that stays one.
func TestFollowEnds(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"detail":"no"}`)
			return
		}
		fmt.Fprint(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	none := func(error) {}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Follow(ctx, Request{Path: "/x"}, func(Event) error { cancel(); return nil }, none); err != nil {
		t.Errorf("%v", err)
	}
	own := errors.New("own")
	if err := c.Follow(t.Context(), Request{Path: "/x"}, func(Event) error { return own }, none); !errors.Is(err, own) {
		t.Errorf("%v", err)
	}
	var p *Problem
	if err := c.Follow(t.Context(), Request{Path: "/forbidden"}, func(Event) error { return nil }, none); !errors.As(err, &p) || p.Status != http.StatusForbidden {
		t.Errorf("%v", err)
	}
}
