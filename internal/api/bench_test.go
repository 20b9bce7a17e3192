//go:build unix

package api

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// door answers at once.
type door struct{ *site }

func (door) Late(*submit.Form) *ingest.Refusal { return nil }

func (door) Submit(r ingest.Request) {
	r.Answer(ingest.Answer{Task: r.ID, Stream: "TASKS", Seq: 17, Partition: 1})
}

// BenchmarkSubmit is what a submission costs between the server and the door, answers of door and store at once.
func BenchmarkSubmit(b *testing.B) {
	s := newSite(b)
	handler := New(Config{Partitions: 4, PartitionOf: byDigit, NewID: func() string { return "x1" }}, door{s}, s, s.asks, slog.New(slog.DiscardHandler))
	ctx := operate.WithActor(context.Background(), operate.Actor{Name: auth.LocalActor, Role: operate.RoleAdmin, Via: "http", Open: true})
	body := `{"item":"` + strings.Repeat("x", 400) + `"}`
	for b.Loop() {
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/tasks/delivery", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(headerKey, "d-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusAccepted {
			b.Fatal(w.Code, w.Body)
		}
	}
}

// source tells n events in bursts, as messages of the event stream have them.
type source struct{ n int }

func (s source) Follow(ctx context.Context, _ string, _ operate.EventFilter, send func(operate.Event) error) error {
	at := time.Now()
	for i := range s.n {
		if err := send(operate.Event{ID: "1.1", Type: "delivery", Task: "80c009a9-7401-4b3d-aa70-71440c71880a", Status: "processed", At: at}); err != nil {
			return err
		}
		if i%32 == 31 {
			<-time.After(4 * time.Millisecond) // 8,000 a second
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// BenchmarkFollow is what a reader of all events costs, reader included, at 8,000 a second: look at the CPU time.
func BenchmarkFollow(b *testing.B) {
	s := newSite(b)
	handler := New(Config{Partitions: 4, PartitionOf: byDigit, NewID: func() string { return "x1" }, Ports: Ports{Events: source{b.N}}}, s, s, s.asks, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: auth.LocalActor, Role: operate.RoleAdmin, Via: "http", Open: true})))
	}))
	defer server.Close()
	answer, err := http.Get(server.URL + "/v1/events")
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	lines, n := bufio.NewScanner(answer.Body), 0
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for n < b.N && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			n++
		}
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/1e3/float64(n), "CPU-µs/event")
}

// BenchmarkNew is what making the handler costs at the start of a node.
func BenchmarkNew(b *testing.B) {
	s := newSite(b)
	for b.Loop() {
		New(Config{Partitions: 4, PartitionOf: byDigit, NewID: func() string { return "x1" }}, s, s, s.asks, slog.New(slog.DiscardHandler))
	}
}
