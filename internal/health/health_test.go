package health

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func passing(name string) Check {
	return Check{Name: name, Probe: func(context.Context) error { return nil }}
}

func failing(name, text string) Check {
	return Check{Name: name, Probe: func(context.Context) error { return errors.New(text) }}
}

func TestHandler(t *testing.T) {
	boom := Check{Name: "boom", Probe: func(context.Context) error { panic("out of order") }}
	tests := []struct {
		name, method, path string
		checks             []Check
		code               int
		body               string
	}{
		{"alive without checks", "GET", PathLive, nil, 200, `{"status":"alive"}`},
		{"alive though not ready", "GET", PathLive, []Check{failing("nats", "down")}, 200, `{"status":"alive"}`},
		{"ready without checks", "GET", PathReady, nil, 200, `{"status":"ready"}`},
		{"ready", "GET", PathReady, []Check{passing("nats"), passing("store")}, 200, `{"status":"ready"}`},
		{"one fails", "GET", PathReady, []Check{passing("nats"), failing("store", "no route")}, 503,
			`{"status":"not ready","failing":[{"name":"store","error":"no route"}]}`},
		{"order is kept", "GET", PathReady, []Check{failing("b", "1"), passing("x"), failing("a", "2")}, 503,
			`{"status":"not ready","failing":[{"name":"b","error":"1"},{"name":"a","error":"2"}]}`},
		{"a panic is a failure", "GET", PathReady, []Check{boom}, 503,
			`{"status":"not ready","failing":[{"name":"boom","error":"the check panicked: out of order"}]}`},
		{"wrong method", "POST", PathReady, nil, 405, `{"status":"method not allowed"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Handler(tt.checks...).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			if w.Code != tt.code || w.Body.String() != tt.body+"\n" {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}

func TestUnknownPath(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/healthzz", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("got %d, want 404", w.Code)
	}
}

func TestSlowChecksShareTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(name string) Check {
			return Check{Name: name, Probe: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		}
		began := time.Now()
		got := Probe(t.Context(), []Check{slow("a"), passing("b"), slow("c")})
		if len(got) != 2 || got[0].Name != "a" || got[1].Name != "c" {
			t.Errorf("got %v, want a and c", got)
		}
		if d := time.Since(began); d != ProbesMax {
			t.Errorf("took %v, want %v", d, ProbesMax)
		}
	})
}
