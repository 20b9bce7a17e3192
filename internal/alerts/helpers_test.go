package alerts

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// settings is operate.SettingStore in memory.
type settings struct {
	mu  sync.Mutex
	all map[string][]byte
	err error // of every call
}

func newSettings() *settings { return &settings{all: map[string][]byte{}} }

func (s *settings) PutSetting(_ context.Context, name string, document []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.all[name] = append([]byte(nil), document...)
	}
	return s.err
}

func (s *settings) Setting(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	document, ok := s.all[name]
	if !ok {
		return nil, core.ErrNotFound
	}
	return document, nil
}

func (s *settings) Settings(_ context.Context, prefix string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]byte{}
	for name, document := range s.all {
		if strings.HasPrefix(name, prefix) {
			found[name] = document
		}
	}
	return found, s.err
}

func (s *settings) DeleteSetting(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
	return s.err
}

// channel stores a channel.
func (s *settings) channel(t *testing.T, name string, c map[string]any) {
	t.Helper()
	document, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSetting(t.Context(), ChannelPrefix+name, document); err != nil {
		t.Fatal(err)
	}
}

// stream is a Source as the stream of alerts is one: what is not done comes again to the next reader, and of that it hands
// out InFlightMost at a time.
type stream struct {
	mu      sync.Mutex
	left    []core.Alert
	twice   bool         // each comes twice, as if it had been under way for too long
	again   atomic.Int64 // so many have
	changed chan struct{}
}

func newStream() *stream { return &stream{changed: make(chan struct{}, 1)} }

func (s *stream) put(all ...core.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, all...)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *stream) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left)
}

func (s *stream) Read(ctx context.Context, take func(Message)) error {
	handed := map[string]bool{}
	for {
		s.mu.Lock()
		all := append([]core.Alert(nil), s.left[:min(len(s.left), InFlightMost)]...)
		s.mu.Unlock()
		for _, a := range all {
			if handed[a.ID] {
				continue
			}
			handed[a.ID] = true
			m := Message{Alert: a, Working: func() error { return nil }, Done: func() error {
				s.mu.Lock()
				defer s.mu.Unlock()
				for i := range s.left {
					if s.left[i].ID == a.ID {
						s.left = append(s.left[:i], s.left[i+1:]...)
						break
					}
				}
				select {
				case s.changed <- struct{}{}:
				default:
				}
				return nil
			}}
			if take(m); s.twice {
				take(m)
				s.again.Add(1)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// posted is one request that a receiver got.
type posted struct {
	header http.Header
	body   string
	id     string
}

// receiver is a webhook's receiver; answer says with which status the n-th request is answered, from 0.
type receiver struct {
	*httptest.Server
	got  chan posted
	seen atomic.Int64
}

func newReceiver(t *testing.T, answer func(n int64, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{got: make(chan posted, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.got <- posted{req.Header.Clone(), string(body), req.Header.Get(headerID)}
		if n := r.seen.Add(1) - 1; answer != nil {
			answer(n, w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) next(t *testing.T) posted {
	t.Helper()
	select {
	case p := <-r.got:
		return p
	case <-time.After(time.Minute):
		t.Fatal("the receiver got nothing")
		return posted{}
	}
}

// quiet fails when the receiver gets anything within a moment.
func (r *receiver) quiet(t *testing.T) {
	t.Helper()
	select {
	case p := <-r.got:
		t.Errorf("the receiver got %s", p.body)
	case <-time.After(300 * time.Millisecond):
	}
}

// starts runs a sender until stop, which waits for it.
func starts(t *testing.T, cfg Config) (_ *Sender, stop func()) {
	t.Helper()
	cfg.AllowLocal = true
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return true }
	}
	cfg.Namespace, cfg.Log = "duly", slog.New(slog.DiscardHandler)
	if cfg.Look == 0 {
		cfg.Look = 50 * time.Millisecond
	}
	sender, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sender.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return sender, stop
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// begins and ends are the alerts of one trouble at a node.
func begins(node, name, key string, shared bool) core.Alert {
	return core.Alert{ID: "b-" + name + key + node, Name: name, Key: key, Node: node, Shared: shared, Phase: core.AlertBegins, Severity: core.SeverityCritical,
		Text: name + " begins", Error: "why", Since: 1_000_000, At: 2_000_000, Times: 1}
}

func ends(node, name, key string, shared bool) core.Alert {
	a := begins(node, name, key, shared)
	a.ID, a.Phase, a.Text, a.At = "e-"+name+key+node, core.AlertEnds, name+" is over", 9_000_000
	return a
}

func once(id, name string) core.Alert {
	return core.Alert{ID: id, Name: name, Node: "n1", Phase: core.AlertOnce, Severity: core.SeverityCritical, Text: name, At: 2_000_000, Times: 1,
		Attrs: []core.AlertAttr{{Name: "task", Value: id}}}
}
