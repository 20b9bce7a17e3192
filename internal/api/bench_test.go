package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/operate"
)

// door answers at once.
type door struct{ *site }

func (door) Submit(r ingest.Request) {
	r.Answer(ingest.Answer{Task: r.ID, Stream: "TASKS", Seq: 17, Partition: 1})
}

// BenchmarkSubmit is what a submission costs between the server and the door, answers of door and store at once.
func BenchmarkSubmit(b *testing.B) {
	s := newSite(b)
	handler, err := New(Config{Partitions: 4, PartitionOf: byDigit, NewID: func() string { return "x1" }}, door{s}, s, s.asks, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx := operate.WithActor(context.Background(), operate.Actor{Name: auth.LocalActor, Role: operate.RoleAdmin, Via: "http"})
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

// BenchmarkNew is what making the handler costs at the start of a node.
func BenchmarkNew(b *testing.B) {
	s := newSite(b)
	for b.Loop() {
		if _, err := New(Config{Partitions: 4, PartitionOf: byDigit, NewID: func() string { return "x1" }}, s, s, s.asks, slog.New(slog.DiscardHandler)); err != nil {
			b.Fatal(err)
		}
	}
}
