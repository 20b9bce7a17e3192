package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is what does not hold.
type source struct{ ready, live []Failure }

func (s source) Ready() []Failure { return s.ready }
func (s source) Live() []Failure  { return s.live }

// get asks as a caller at an address.
func get(s source, method, path, addr string, header ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.RemoteAddr = addr
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	Handler(s).ServeHTTP(w, r)
	return w
}

// TestHandler: status and body for callers on this machine.
//
// covers: D12
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		<-time.After(12 * time.Second)
		since := began.UTC().Format(time.RFC3339Nano)
		database := Failure{Name: "database", Text: "the database cannot be reached", Reason: "user=duly host=10.1.2.3", Since: began, Times: 1}
		stream := Failure{Name: "streams", Key: "X", Text: "it is gone", Reason: "no stream", Since: began, Times: 3}
		for _, tt := range []struct {
			name, method, path string
			source             source
			code               int
			body               string
		}{
			{"alive", "GET", pathLive, source{}, 200, `{"status":"alive"}`},
			{"alive though not ready", "GET", pathLive, source{ready: []Failure{database}}, 200, `{"status":"alive"}`},
			{"only a restart helps", "GET", pathLive, source{live: []Failure{stream}}, 503,
				`{"status":"not alive","failing":[{"name":"streams","key":"X","what":"it is gone","error":"no stream","since":"` + since + `","for":"12s","times":3}]}`},
			{"ready", "GET", PathReady, source{}, 200, `{"status":"ready"}`},
			{"not ready", "GET", PathReady, source{ready: []Failure{database}}, 503,
				`{"status":"not ready","failing":[{"name":"database","what":"the database cannot be reached","error":"user=duly host=10.1.2.3","since":"` + since + `","for":"12s"}]}`},
			{"wrong method", "POST", PathReady, source{}, 405, `{"status":"method not allowed"}`},
		} {
			w := get(tt.source, tt.method, tt.path, "127.0.0.1:5000")
			if w.Code != tt.code || w.Body.String() != tt.body+"\n" {
				t.Errorf("%s: got %d %s, want %d %s", tt.name, w.Code, w.Body, tt.code, tt.body)
			}
		}
		if w := get(source{}, "GET", "/healthzz", "127.0.0.1:5000"); w.Code != http.StatusNotFound {
			t.Errorf("unknown path: %d, want 404", w.Code)
		}
	})
}

// TestStrangersSeeNames: a database's user, host and port, names of nodes and texts of errors are for callers on this
// machine, and a proxy on it speaks for others.
//
// covers: C10
func TestStrangersSeeNames(t *testing.T) {
	s := source{ready: []Failure{
		{Name: "database", Text: "secret", Reason: "secret", Since: time.Now()},
		{Name: "streams", Key: "secret", Reason: "secret"}, {Name: "streams", Key: "secret2", Reason: "secret"},
	}}
	for _, tt := range []struct {
		addr   string
		header []string
		sees   bool
	}{
		{"127.0.0.1:1", nil, true},
		{"127.8.9.1:1", nil, true},
		{"[::1]:1", nil, true},
		{"[::ffff:127.0.0.1]:1", nil, true},
		{"10.0.0.1:1", nil, false},
		{"192.168.1.4:1", nil, false},
		{"[2001:db8::1]:1", nil, false},
		{"[::ffff:10.0.0.1]:1", nil, false},
		{"", nil, false},
		{"@", nil, false}, // a socket in the file system
		{"127.0.0.1:1", []string{"X-Forwarded-For", "10.0.0.1"}, false},
		{"127.0.0.1:1", []string{"Forwarded", "for=10.0.0.1"}, false},
		{"127.0.0.1:1", []string{"X-Real-IP", "10.0.0.1"}, false},
		{"127.0.0.1:1", []string{"Via", "1.1 proxy"}, false},
	} {
		w := get(s, "GET", PathReady, tt.addr, tt.header...)
		if sees := strings.Contains(w.Body.String(), "secret"); w.Code != 503 || sees != tt.sees {
			t.Errorf("%s %v: %d %s, sees details: want %v", tt.addr, tt.header, w.Code, w.Body, tt.sees)
		}
		if want := `{"status":"not ready","failing":[{"name":"database"},{"name":"streams"}]}` + "\n"; !tt.sees && w.Body.String() != want {
			t.Errorf("%s: %s, want %s", tt.addr, w.Body, want)
		}
	}
}
