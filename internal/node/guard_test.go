package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/config"
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
			guard(ok, loopback, false, nil).ServeHTTP(w, r)
			if expect := map[bool]int{true: want, false: 204}[loopback]; w.Code != expect || w.Body.Len() > 500 || expect == 421 && (!strings.Contains(w.Body.String(), `"err_code":7043`) || !strings.Contains(w.Body.String(), "--http-hosts")) {
				t.Errorf("host %.40q, loopback %v: %d %s, want %d", host, loopback, w.Code, w.Body, expect)
			}
		}
	}
}

// TestHostsWithoutAuthentication: on any address, and without authentication, no name is served that a stranger can point
// here: a page of theirs would be an admin. What --http-hosts names is, and with authentication any name.
//
// covers: P6
func TestHostsWithoutAuthentication(t *testing.T) {
	for host, want := range map[string]int{
		"localhost:7310": 200, "127.0.0.1:7310": 200, "10.0.0.1:7310": 200, "[2001:db8::1]:7310": 200, "[::1]": 200, "duly:7310": 200, "duly": 200, "x.localhost": 200, "": 200,
		"evil.example": 421, "evil.example:7310": 421, "10.0.0.1.evil.example": 421, "evil.": 421, "127.0.0.1.nip.io": 421, "localhost.evil.example": 421, "duly.local": 421, "1.2.3": 421,
	} {
		for _, x := range []struct {
			auth  string
			hosts []string
			want  int
		}{{"", nil, want}, {config.AuthOff, nil, want}, {config.AuthToken, nil, 200}, {config.AuthOff, []string{"evil.example", "other.example"}, 421}} {
			if strings.HasPrefix(host, "evil.example") && x.hosts != nil {
				x.want = 200
			}
			n := &Node{cfg: config.Config{HTTP: config.HTTP{Auth: x.auth, Hosts: x.hosts}}}
			r := httptest.NewRequest("GET", "/v1/tokens", nil)
			r.Host = host
			w := httptest.NewRecorder()
			n.around(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false).ServeHTTP(w, r)
			if w.Code != x.want {
				t.Errorf("host %q, auth %q, hosts %v: %d, want %d", host, x.auth, x.hosts, w.Code, x.want)
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
		guard(ok, false, false, nil).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %q: %d, want %d", tt.method, tt.contentType, w.Code, tt.want)
		}
		if problem := w.Header().Get("Content-Type"); tt.want == 415 && (problem != "application/problem+json" || !strings.Contains(w.Body.String(), "want application/json") || !strings.Contains(w.Body.String(), `"err_code":7045`)) {
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
		guard(ok, true, true, nil).ServeHTTP(w, r)
		var problem struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatal(err)
		}
		if want := `"` + strings.Repeat("x", 63) + `"… is not `; !strings.Contains(problem.Detail, want) {
			t.Errorf("content type %.5q: detail %q, want one with %q", header, problem.Detail, want)
		}
	}
}
