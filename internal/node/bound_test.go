package node

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/operate"
)

// TestLabelsOfAToken: what comes by a token that has labels has them, one at a time and in bulk, whatever its submitter says;
// another value of one is refused, and other labels stay.
//
// covers: P14
func TestLabelsOfAToken(t *testing.T) {
	n, _, handler := faced(t, nil)
	ask := func(token, method, path, kind, body, labels string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", "Bearer "+token)
		if labels != "" {
			r.Header.Set("Duly-Labels", labels)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	made := ask(tokenOf(t, n, operate.RoleAdmin), "POST", "/v1/tokens", "application/json", `{"name":"acme","role":"client","labels":"tenant=acme,duly-priority=low"}`, "")
	_, rest, _ := strings.Cut(made.Body.String(), `"secret":"`)
	token, _, _ := strings.Cut(rest, `"`)
	if made.Code != http.StatusCreated || token == "" {
		t.Fatalf("%d %s", made.Code, made.Body)
	}
	if bad := ask(tokenOf(t, n, operate.RoleAdmin), "POST", "/v1/tokens", "application/json", `{"name":"acme","role":"client","labels":"tenant"}`, ""); bad.Code != 400 {
		t.Errorf("labels that are none: %d %s", bad.Code, bad.Body)
	}
	const json = "application/json"
	for _, x := range []struct {
		labels string
		want   int // 503: it came to the door, which is not open here
	}{{"", 503}, {"tenant=acme", 503}, {"region=eu", 503}, {"tenant=other", 403}, {"duly-priority=high", 403}, {"region=eu,tenant=other", 403}, {"nonsense", 503}} {
		if got := ask(token, "PUT", "/v1/tasks/order/o-1", json, `{}`, x.labels); got.Code != x.want {
			t.Errorf("labels %q: %d %s, want %d", x.labels, got.Code, got.Body, x.want)
		}
		if got := ask(token, "POST", "/v1/tasks/order", json, `{}`, x.labels); got.Code != x.want {
			t.Errorf("POST with labels %q: %d %s, want %d", x.labels, got.Code, got.Body, x.want)
		}
	}
	many := ask(token, "POST", "/v1/tasks", "application/x-ndjson", `{"type":"order","id":"o-1","input":{},"labels":{"tenant":"other"}}`+"\n", "")
	if many.Code != 200 || !strings.Contains(many.Body.String(), `"status":403`) {
		t.Errorf("in bulk: %d %s", many.Code, many.Body)
	}
}
