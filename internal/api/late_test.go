package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/ingest"
)

// TestLateIsRefusedAtOnce: what would begin too late is refused before its body is read and before the store is looked at.
func TestLateIsRefusedAtOnce(t *testing.T) {
	s := newSite(t)
	s.late = ingest.Refuse(429, ingest.CauseBacklog, "it would begin in about 9s").After(3 * time.Second)
	s.onGet = func() { t.Error("the store is looked at") }
	for _, x := range [][2]string{{http.MethodPost, "/v1/tasks/order"}, {http.MethodPut, "/v1/tasks/order/o-1"}} {
		w := s.do(x[0], x[1], "not even JSON")
		if w.Code != 429 || w.Header().Get("Retry-After") != "3" || !strings.Contains(w.Body.String(), "it would begin in about 9s") {
			t.Errorf("%s: %d %v %s", x[0], w.Code, w.Header(), w.Body)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("%d were handed in", len(s.requests))
	}
}
