package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLevel: the level of the log changes while the process runs, and a wrong one is refused and changes nothing.
func TestLevel(t *testing.T) {
	level := new(slog.LevelVar)
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
	h := LevelHandler(level)
	ask := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequestWithContext(context.Background(), method, "/v1/log-level", strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	if code, body := ask(http.MethodGet, ""); code != 200 || body != `{"level":"info"}` {
		t.Errorf("%d %s", code, body)
	}
	log.Debug("not yet")
	if code, body := ask(http.MethodPut, `{"level":"DEBUG"}`); code != 200 || body != `{"level":"debug"}` {
		t.Errorf("%d %s", code, body)
	}
	log.Debug("now")
	for _, bad := range []string{"", "{", `{"level":"loud"}`, `{"level":""}`, `{"levels":"info"}`, `{"level":"` + strings.Repeat("x", levelBytesMax) + `"}`} {
		if code, body := ask(http.MethodPut, bad); code != 400 || !strings.Contains(body, "level: ") {
			t.Errorf("%q: %d %s", bad, code, body)
		}
	}
	if level.Level() != slog.LevelDebug || strings.Contains(out.String(), "not yet") || !strings.Contains(out.String(), "now") {
		t.Errorf("%v %s", level.Level(), out.String())
	}
}
