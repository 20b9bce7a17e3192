package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
)

// A server that ends every request at once, because there are too many of them or
// its leader goes from one to the next, is not asked in a circle.
func TestRefusedPullsPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ status, description string }{{"409", "Exceeded MaxWaiting"}, {"409", "Leadership Change"}} {
		t.Run(tt.description, func(t *testing.T) {
			server := serve(t, natsserver.Options{})
			nc := rawConn(t, server.ClientURL())
			var asked atomic.Int64
			var open atomic.Bool
			serveSubject(t, nc, "$JS.API.CONSUMER.MSG.NEXT.S.C", func(m *nats.Msg) *nats.Msg {
				asked.Add(1)
				if open.Load() {
					return &nats.Msg{Data: []byte("a message")}
				}
				var request pullRequest
				if err := json.Unmarshal(m.Data, &request); err != nil {
					t.Errorf("request %s: %v", m.Data, err)
				}
				return &nats.Msg{Header: nats.Header{"Status": {tt.status}, "Description": {tt.description}, "Nats-Pending-Messages": {strconv.Itoa(request.Batch)}}}
			})
			p, err := newPuller(nc, "S", "C", ReadConfig{Prefetch: 8, expiry: 30 * time.Second, heartbeat: 10 * time.Second}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			for n := range int64(3) {
				ctx, cancel := context.WithTimeout(context.Background(), pullPause)
				if _, err := p.next(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("error %v, want a wait", err)
				}
				cancel()
				if got := asked.Load(); got > n+2 {
					t.Fatalf("asked %d times in %d pauses", got, n+1)
				}
			}
			open.Store(true)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if m, err := p.next(ctx, nil); err != nil || string(m.Data) != "a message" {
				t.Errorf("after the pause %v, %v", m, err)
			}
		})
	}
}

func rawConn(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// serveSubject answers a subject.
func serveSubject(t *testing.T, nc *nats.Conn, subject string, with func(*nats.Msg) *nats.Msg) {
	t.Helper()
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		if err := m.RespondMsg(with(m)); err != nil {
			t.Errorf("answer: %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}
