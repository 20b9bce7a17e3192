package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// descriptionMax is how long the text of a refusal may be, in bytes.
const descriptionMax = 1024

// FuzzAPI: whatever comes over HTTP is answered with JSON; what is handed on has
// names within their alphabet and a bounded input; a refusal is a problem
// document whose text is short.
func FuzzAPI(f *testing.F) {
	f.Add("PUT", "/v1/tasks/delivery/d-1", "", "30s", "_INBOX.a", []byte(`{"a":1}`))
	f.Add("POST", "/v1/tasks/delivery", `"k 1"`, "", "", []byte(`{}`))
	f.Add("GET", "/v1/tasks?type=delivery&state=error&limit=7&after=1.2.3", "", "", "", []byte(nil))
	f.Add("GET", "/v1/tasks/delivery/d-1?after=1.17", "", "", "", []byte(nil))
	f.Add("DELETE", "/v1/tasks/delivery/d-1?reason=%00", "", "", "", []byte(nil))
	f.Add("HEAD", "/v1/tasks", "", "", "", []byte(nil))
	f.Add("BREW", "/v1/tasks/..%2f..%2f/%2e%2e", "\x7f", "-1s", "duly.do.x", []byte("\x00"))
	f.Add("GET", "/v1/tasks?limit=99999999999999999999&after="+strings.Repeat("9", 600), "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, target, key, completeBy, replyTo string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(target, "/") {
			return // the server's library does not let it in
		}
		r, err := http.NewRequest(method, "http://duly.example", bytes.NewReader(body))
		if err != nil {
			return
		}
		r.URL = u
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		r.Header.Set("Duly-Complete-By", completeBy)
		r.Header.Set("Duly-Reply-To", replyTo)
		s := newSite(t)
		s.put("d-1", "delivery", `{"a":1}`)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		checkResponse(t, w)
		for _, q := range s.requests {
			if core.CheckName("type", q.Type) != nil || core.CheckName("id", q.ID) != nil || len(q.Input) > core.InputBytesMax {
				t.Fatalf("handed on: %q %q with %d bytes", q.Type, q.ID, len(q.Input))
			}
		}
		for _, c := range s.controls {
			if core.CheckName("id", c.ID) != nil || core.CheckName("type", c.Type) != nil || len(c.Reason) > core.WordsBytesMax || !utf8.ValidString(c.Reason) || strings.ContainsRune(c.Reason, 0) {
				t.Fatalf("asked: %+v", c)
			}
		}
		if s.filter.Limit < 0 || s.filter.Limit > listMax || len(s.filter.After) > cursorBytesMax {
			t.Fatalf("listed: %+v", s.filter)
		}
	})
}

func checkResponse(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code >= 300 && w.Code < 400 {
		return // the library's own cleaning of a path
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%d: not JSON: %.200q", w.Code, w.Body)
	}
	if w.Code < 300 {
		return
	}
	var p problemJSON
	err := json.Unmarshal(w.Body.Bytes(), &p)
	if err != nil || p.Status != w.Code || p.Detail == "" || len(p.Detail) > descriptionMax+len("…") || p.ErrCode < ingest.CauseFirst || p.ErrCode > ingest.CauseLast {
		t.Fatalf("%d: no problem document, or a long one: %.300s", w.Code, w.Body)
	}
	if w.Code == http.StatusInternalServerError {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
}

// TestForeignCursor: a cursor that no page told is the client's mistake.
func TestForeignCursor(t *testing.T) {
	s := newSite(t)
	s.err = fmt.Errorf("list: %w", core.ErrCursor)
	w := s.do("GET", "/v1/tasks?after=nonsense", "")
	if w.Code != 400 || !strings.Contains(w.Body.String(), `after is \"nonsense\"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
