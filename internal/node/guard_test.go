package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGuardHost: on a loopback address only names that cannot be given away are served, so that no page reads or asks
// anything by a name of its own that it points here; elsewhere any name is.
//
// covers: C10
func TestGuardHost(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for host, want := range map[string]int{
		"localhost": 204, "localhost:7310": 204, "LOCALHOST:1": 204, "localhost.": 204, "duly.localhost:7310": 204,
		"127.0.0.1": 204, "127.0.0.1:7310": 204, "127.1.2.3:80": 204, "[::1]:7310": 204, "[::1]": 204, "": 204,
		"evil.example": 421, "evil.example:7310": 421, "10.0.0.1:7310": 421, "0.0.0.0:7310": 421, "[::]:7310": 421,
		"localhost.evil.example": 421, "127.0.0.1.evil.example:7310": 421, "evillocalhost": 421, "[2001:db8::1]:80": 421,
		strings.Repeat("x", 10_000): 421,
	} {
		for _, loopback := range []bool{true, false} {
			r := httptest.NewRequest("GET", "/v1/tasks", nil)
			r.Host = host
			w := httptest.NewRecorder()
			guard(ok, loopback, nil).ServeHTTP(w, r)
			if expect := map[bool]int{true: want, false: 204}[loopback]; w.Code != expect || w.Body.Len() > 500 {
				t.Errorf("host %.40q, loopback %v: %d %s, want %d", host, loopback, w.Code, w.Body, expect)
			}
		}
	}
}

// TestGuardContentType: what has a body says that it is JSON, which a page may not say to a strange server unasked.
//
// covers: C10
func TestGuardContentType(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, tt := range []struct {
		method, contentType string
		want                int
	}{
		{"POST", "application/json", 204}, {"PUT", "application/json; charset=utf-8", 204}, {"PUT", "Application/JSON", 204},
		{"POST", "text/plain", 415}, {"PUT", "text/plain", 415}, {"PATCH", "text/plain", 415}, {"POST", "", 415}, {"PUT", "", 415},
		{"POST", "application/x-www-form-urlencoded", 415}, {"POST", "multipart/form-data; boundary=x", 415},
		{"POST", "text/plain; application/json", 415}, {"POST", "application/json-patch+json", 415}, {"POST", "application/json;;", 415},
		{"GET", "", 204}, {"DELETE", "", 204}, {"HEAD", "", 204},
	} {
		r := httptest.NewRequest(tt.method, "/v1/tasks/a/b", nil)
		r.Header.Set("Content-Type", tt.contentType)
		w := httptest.NewRecorder()
		guard(ok, false, nil).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %q: %d, want %d", tt.method, tt.contentType, w.Code, tt.want)
		}
		if problem := w.Header().Get("Content-Type"); tt.want == 415 && (problem != "application/problem+json" || !strings.Contains(w.Body.String(), "want application/json")) {
			t.Errorf("%s %q: %s %s", tt.method, tt.contentType, problem, w.Body)
		}
	}
}

// TestGuardCutsAtACharacter: what an answer repeats of a request is cut, and no character of it is.
func TestGuardCutsAtACharacter(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	long := strings.Repeat("x", 63) + "éé"
	for _, header := range []string{"", long} {
		r := httptest.NewRequest("POST", "/v1/tasks/a", nil)
		r.Host = "localhost"
		if r.Header.Set("Content-Type", header); header == "" {
			r.Host = long
		}
		w := httptest.NewRecorder()
		guard(ok, true, nil).ServeHTTP(w, r)
		var problem struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatal(err)
		}
		if want := `"` + strings.Repeat("x", 63) + `"… is not `; !strings.Contains(problem.Detail, want) {
			t.Errorf("content type %.5q: detail %q, want one with %q", header, problem.Detail, want)
		}
	}
}
