package telemetry

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"duly.dev/duly/internal/core"
)

// spansOf reads what a collector was sent.
func spansOf(t *testing.T, r *http.Request) []*tracepb.Span {
	t.Helper()
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Error(err)
		return nil
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Error(err)
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(body, &data); err != nil {
		t.Error(err)
	}
	var all []*tracepb.Span
	for _, of := range data.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			all = append(all, scope.Spans...)
		}
	}
	return all
}

// TestOTLP: spans reach a collector by OTLP over HTTP, also one that takes them only the third time; what it refuses for
// good is not sent again, and counted. What is no address of one is refused.
func TestOTLP(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Team = blue%20sky,authorization=Bearer%20abc==")
	for name, x := range map[string]struct {
		answers []int
		calls   int64
		want    Spans
	}{
		"takes them": {[]int{200}, 1, Spans{1, 0}}, "takes them later": {[]int{503, 429, 200}, 3, Spans{1, 0}}, "refuses them": {[]int{400}, 1, Spans{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := calls.Add(1)
				if spans := spansOf(t, r); len(spans) != 1 || len(spans[0].TraceId) != 16 || spans[0].Name == "" {
					t.Errorf("%v", spans)
				}
				if r.URL.Path != "/v1/traces" || r.Method != "POST" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
					r.Header.Get("X-Team") != "blue sky" || r.Header.Get("Authorization") != "Bearer abc==" {
					t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
				}
				w.WriteHeader(x.answers[min(int(n), len(x.answers))-1])
			}))
			defer collector.Close()
			exporter, err := OTLP(t.Context(), collector.URL)
			if err != nil {
				t.Fatal(err)
			}
			tr, end := tracing(t, exporter, TracerOptions{Node: "n1"})
			tr.Commit(plan, write(core.StateUndone, true, core.Record{Seq: 1, Kind: core.KindSubmitted, At: 1, Step: -1, Next: -1}))
			end()
			if calls.Load() != x.calls || tr.Counts() != x.want {
				t.Errorf("%d calls, %+v; want %d, %+v", calls.Load(), tr.Counts(), x.calls, x.want)
			}
		})
	}
	for _, bad := range []string{"s3cret", "=s3cret", "a:b=s3cret", "a=%zz", "a=b,c=%0As3cret"} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", bad)
		if _, err := OTLP(t.Context(), "http://c:4318"); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "collector:4318", "ftp://c", "http://", "http://u:p@c"} {
		if _, err := OTLP(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "otlp-endpoint:") || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestExportEndsWithItsContext: a collector that is away holds no one up beyond the context.
func TestExportEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(503)
	}))
	defer away.Close()
	c := &otlpClient{to: away.URL, http: &http.Client{Transport: &http.Transport{}}}
	if err := c.UploadTraces(ctx, []*tracepb.ResourceSpans{{}}); err == nil {
		t.Error("it was taken")
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
