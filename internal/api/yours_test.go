package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// asToken asks as a service whose token has these labels, in a context that the request may end.
func asToken(handler http.Handler, labels, method, target string, body io.Reader, end func(context.CancelCauseFunc), headers ...string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancelCause(operate.WithActor(context.Background(), operate.Actor{Name: "shop", Role: operate.RoleClient, Via: "http", Labels: labels}))
	defer cancel(nil)
	if end != nil {
		end(cancel)
	}
	r := httptest.NewRequestWithContext(ctx, method, target, body)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
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
		{own, "DELETE", task, 202}, {other, "DELETE", task, 404}, {other, "DELETE", task + "?even_if_unknown=true", 403}, // without a look
		{other + ",duly-ids=t-", "DELETE", task + "?even_if_unknown=true", 404},
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
	if got := asToken(handler, other+",duly-ids=t-", "DELETE", task+"?even_if_unknown=true", http.NoBody, nil); got.Code != 503 {
		t.Errorf("cancelled unread: %d %s", got.Code, got.Body)
	}
}

// TestIDsOfAToken: a service whose token says what its ids begin with can take, cancel beforehand and ask about no other id,
// however it submits; so no two of them can keep an id from each other.
//
// covers: P14
func TestIDsOfAToken(t *testing.T) {
	const own = "tenant=acme,duly-ids=acme-"
	w, handler := world(t, func(cfg *api.Config) { cfg.NewID = func() string { return "new-1" } })
	for _, x := range []struct {
		method, target, key, body string
		want                      int
		id                        string // that is submitted
	}{
		{"PUT", "/v1/tasks/order/acme-7", "", `{}`, 202, "acme-7"},
		{"PUT", "/v1/tasks/order/umbrella-7", "", `{}`, 403, ""},
		{"PUT", "/v1/tasks/order/t-1", "", `{}`, 403, ""}, // as of one that is free
		{"POST", "/v1/tasks/order", "", `{}`, 202, "acme-new-1"},
		{"POST", "/v1/tasks/order", "acme-8", `{}`, 202, "acme-8"},
		{"POST", "/v1/tasks/order", "umbrella-8", `{}`, 202, "acme-key-" + idOfKey("umbrella-8")}, // a key is its holder's
		{"POST", "/v1/tasks", "", `{"type":"order","id":"acme-9","input":{}}`, 200, "acme-9"},
		{"POST", "/v1/tasks", "", `{"type":"order","input":{}}`, 200, "acme-new-1"},
		{"POST", "/v1/tasks", "", `{"type":"order","id":"umbrella-9","input":{}}`, 200, ""},
		{"DELETE", "/v1/tasks/order/acme-10?even_if_unknown=true", "", "", 202, ""},
		{"DELETE", "/v1/tasks/order/umbrella-10?even_if_unknown=true", "", "", 404, ""},
	} {
		before := len(w.Submitted)
		got := asToken(handler, own, x.method, x.target, strings.NewReader(x.body), nil, "Idempotency-Key", x.key, "Content-Type", map[bool]string{true: "application/x-ndjson", false: "application/json"}[x.target == "/v1/tasks"])
		id := ""
		for _, r := range w.Submitted[before:] {
			id += r.ID
			if r.Labels != "tenant=acme" {
				t.Errorf("%s %s: labels %s", x.method, x.target, r.Labels)
			}
		}
		if got.Code != x.want || id != x.id {
			t.Errorf("%s %s, key %s: %d %s, submitted %q; want %d and %q", x.method, x.target, x.key, got.Code, got.Body, id, x.want, x.id)
		}
	}
	// Without it nothing tells which ids are its own: it can have none kept from others.
	if got := asToken(handler, "tenant=acme", "DELETE", "/v1/tasks/order/umbrella-10?even_if_unknown=true", http.NoBody, nil); got.Code != 403 || !strings.Contains(got.Body.String(), "duly-ids") {
		t.Errorf("cancelled beforehand by a token without: %d %s", got.Code, got.Body)
	}
}

// idOfKey is the id that is made of a key of type order, less its beginning.
func idOfKey(key string) string {
	sum := sha256.Sum256([]byte("order\x00" + key))
	return hex.EncodeToString(sum[:])[:40]
}

// TestSubmittedAgainByOthers: who submits what is a task of others is told by no door how far it is, nor whether it is the same.
//
// covers: P14
func TestSubmittedAgainByOthers(t *testing.T) {
	for _, input := range []string{`{}`, `{"other":1}`} {
		w, handler := world(t, nil)
		for i := range w.Tasks {
			w.Tasks[i].InputHash = core.HashInput("order", []byte(`{}`))
			w.Tasks[i].Labels = []core.Label{{Key: "tenant", Value: "acme"}}
		}
		line := `{"type":"order","id":"t-1","input":` + input + `}`
		for _, x := range []struct{ target, body, kind string }{{"/v1/tasks/order", input, "application/json"}, {"/v1/tasks", line, "application/x-ndjson"}} {
			got := asToken(handler, "tenant=umbrella", "POST", x.target, strings.NewReader(x.body), nil, "Idempotency-Key", map[bool]string{true: "t-1"}[x.kind == "application/json"], "Content-Type", x.kind)
			if text := got.Body.String(); strings.Contains(text, "processing") || strings.Contains(text, "with another input") || !strings.Contains(text, "409") {
				t.Errorf("%s, %s: %d %s", input, x.target, got.Code, text)
			}
		}
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
