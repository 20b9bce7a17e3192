package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// asToken asks as a service whose token has these labels, in a context that the request may end.
func asToken(handler http.Handler, labels, method, target string, body io.Reader, end func(context.CancelCauseFunc)) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancelCause(operate.WithActor(context.Background(), operate.Actor{Name: "shop", Role: operate.RoleClient, Via: "http", Labels: labels}))
	defer cancel(nil)
	if end != nil {
		end(cancel)
	}
	r := httptest.NewRequestWithContext(ctx, method, target, body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestTokenKnowsItsTasks: a service whose token has labels reads, cancels, follows and compares no tasks of others, and is
// told no more of them than that an id is taken.
//
// covers: P14
func TestTokenKnowsItsTasks(t *testing.T) {
	w, handler := world(t, nil)
	for i := range w.Tasks {
		w.Tasks[i].Labels = []core.Label{{Key: "tenant", Value: "acme"}}
	}
	const own, other, task = "tenant=acme,duly-priority=low", "tenant=umbrella", "/v1/tasks/order/t-1"
	for _, x := range []struct {
		labels, method, target string
		want                   int
	}{
		{own, "GET", task, 200}, {"", "GET", task, 200}, {other, "GET", task, 404}, {"tenant=acme,region=eu", "GET", task, 404},
		{own, "DELETE", task, 202}, {other, "DELETE", task, 404}, {other, "DELETE", task + "?even_if_unknown=true", 404},
		{other, "DELETE", "/v1/tasks/nothing/t-1", 404}, // as for its own type: that is not theirs to know
		{other, "PUT", task, 409}, {other, "PUT", "/v1/tasks/nothing/t-1", 409},
	} {
		var body io.Reader = http.NoBody
		if x.method == "PUT" {
			body = strings.NewReader(`{}`)
		}
		got := asToken(handler, x.labels, x.method, x.target, body, nil)
		if text := got.Body.String(); got.Code != x.want || x.want >= 400 && (strings.Contains(text, "processing") || strings.Contains(text, "of type order a")) {
			t.Errorf("%s %s by %s: %d %s, want %d", x.method, x.target, x.labels, got.Code, text, x.want)
		}
	}
	w.Err = io.ErrUnexpectedEOF
	if got := asToken(handler, other, "DELETE", task+"?even_if_unknown=true", http.NoBody, nil); got.Code != 503 {
		t.Errorf("cancelled unread: %d %s", got.Code, got.Body)
	}
}

// TestTokenFollowsItsTasks: the events of a task reach a service whose labels it has, and no other.
//
// covers: P14
func TestTokenFollowsItsTasks(t *testing.T) {
	for labels, want := range map[string]bool{"tenant=acme": true, "tenant=umbrella": false, "": true} {
		w, handler := world(t, nil)
		w.Tell(operate.Event{What: operate.EventEnded, Type: "order", Task: "t-1", Labels: "tenant=umbrella,a=b"})
		w.Tell(operate.Event{What: operate.EventEnded, Type: "order", Task: "t-1", Labels: "tenant=acme,a=b"})
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(rw, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: "shop", Role: operate.RoleClient, Labels: labels})))
		}))
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/tasks/order/t-1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Last-Event-ID", "0")
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Tell(operate.Event{What: operate.EventEnded, Type: "order", Task: "t-1", Step: "last", Labels: labels})
		var text strings.Builder
		for one := make([]byte, 1); !strings.Contains(text.String(), `"last"`); text.Write(one) {
			if _, err := io.ReadFull(resp.Body, one); err != nil {
				t.Fatal(err, text.String())
			}
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		if acme := strings.Contains(text.String(), "tenant=acme,a=b"); acme != want {
			t.Errorf("%s: %s", labels, text.String())
		}
	}
}

// slowBody is a body during which something happens.
type slowBody struct {
	io.Reader
	during func()
}

func (b slowBody) Read(p []byte) (int, error) {
	b.during()
	return b.Reader.Read(p)
}

// TestNothingAfterTheToken: what a request asks whose token ends before its body has come is not done, and the answer says
// why.
//
// covers: P8
func TestNothingAfterTheToken(t *testing.T) {
	w, handler := world(t, nil)
	for _, x := range []struct{ method, target string }{{"PUT", "/v1/tasks/order/new-7"}, {"POST", "/v1/tasks/order"}} {
		var over context.CancelCauseFunc
		body := slowBody{strings.NewReader(`{}`), func() { over(operate.ErrEnded) }}
		got := asToken(handler, "", x.method, x.target, body, func(end context.CancelCauseFunc) { over = end })
		if got.Code != 401 || len(w.Submitted) != 0 {
			t.Errorf("%s: %d %s, %d are submitted", x.method, got.Code, got.Body, len(w.Submitted))
		}
	}
	w.Err = context.Canceled
	for _, method := range []string{"GET", "DELETE"} {
		got := asToken(handler, "", method, "/v1/tasks/order/t-1", http.NoBody, func(end context.CancelCauseFunc) { end(operate.ErrEnded) })
		if got.Code != 401 {
			t.Errorf("%s: %d %s", method, got.Code, got.Body)
		}
	}
}
