package dev_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev"
)

// benchmarked is a system as `duly dev` has it, with a client and the plan of the bulk tests.
func benchmarked(b *testing.B) (url string, client *duly.Client) {
	b.Helper()
	log := &addrLog{addr: make(chan string, 1)}
	cfg := settings()
	cfg.InFlight = 4096
	sys, err := dev.Start(b.Context(), dev.Options{Dir: b.TempDir(), Store: dev.StoreSQLite, Config: cfg, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sys.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		if err := sys.Close(); err != nil {
			b.Error(err)
		}
	})
	nc, err := nats.Connect(sys.NATSURL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	if client, err = duly.NewClient(nc); err != nil {
		b.Fatal(err)
	}
	if err := duly.NewPlan("bulk", 1, duly.NewCheck[int, int]("only", "bulk.only")).Apply(b.Context(), client); err != nil {
		b.Fatal(err)
	}
	return "http://" + <-log.addr, client
}

// BenchmarkSubmissions is what one submission costs by the ways there are; the metric is submissions a second.
func BenchmarkSubmissions(b *testing.B) {
	url, shop := benchmarked(b)
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	over := &http.Client{Transport: transport}
	run, startAt := 0, time.Now().Add(2*time.Hour)
	measured := func(name string, submit func(b *testing.B, prefix string, n int)) {
		b.Run(name, func(b *testing.B) {
			run++
			submit(b, fmt.Sprintf("r%d", run), b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
	single := func(parallel int) func(*testing.B, string, int) {
		return func(b *testing.B, prefix string, n int) {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range parallel {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(n); i = next.Add(1) {
						r, err := http.NewRequestWithContext(b.Context(), "POST", url+"/v1/tasks/bulk", strings.NewReader("1"))
						if err != nil {
							b.Error(err)
							return
						}
						r.Header.Set("Content-Type", "application/json")
						r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", prefix, i))
						r.Header.Set("Duly-Start-At", "2h")
						resp, err := over.Do(r)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode != 202 {
							b.Errorf("status %d", resp.StatusCode)
						}
					}
				})
			}
			wg.Wait()
		}
	}
	measured("HTTP, one at a time", single(1))
	measured("HTTP, 64 at a time", single(64))
	measured("HTTP, bulk", func(b *testing.B, prefix string, n int) {
		reader, writer := io.Pipe()
		go func() {
			to := bufio.NewWriterSize(writer, 64<<10)
			for i := range n {
				fmt.Fprintf(to, "{\"type\":\"bulk\",\"id\":\"%s-%d\",\"input\":1,\"start_at\":\"2h\"}\n", prefix, i)
			}
			_ = writer.CloseWithError(to.Flush()) // it never fails
		}()
		resp, err := over.Post(url+"/v1/tasks", "application/x-ndjson", reader)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		stored := 0
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.Contains(lines.Text(), `"outcome":"stored"`) {
				stored++
			}
		}
		if stored != n {
			b.Errorf("%d stored of %d", stored, n)
		}
	})
	measured("Client.SubmitAll", func(b *testing.B, prefix string, n int) {
		for _, err := range shop.SubmitAll(b.Context(), func(yield func(duly.Submission) bool) {
			for i := range n {
				if !yield(duly.Submission{Type: "bulk", Task: fmt.Sprintf("%s-%d", prefix, i), Input: []byte("1"), Options: []duly.SubmitOption{duly.StartAt(startAt)}}) {
					return
				}
			}
		}) {
			if err != nil {
				b.Error(err)
			}
		}
	})
}
