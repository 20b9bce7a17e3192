package agentrole

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"duly.dev/duly/internal/config"
)

// No goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// logged is a log that is read while it is written.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func startNATS(t *testing.T, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS server does not come up")
	}
	return s
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// settings are those of a process with the role agents alone, whose file holds text.
func settings(t *testing.T, url, text string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Config{Roles: []string{config.RoleAgents}, NodeName: "a1", HTTPAddr: "127.0.0.1:0", Partitions: 1, Shards: 1, InFlight: 1, AgentWindow: 1,
		StreamReplicas: 1, ScanInterval: time.Second, Lease: 6 * time.Second, Drain: time.Second}
	c.NATSURL, c.Agents = url, file
	return c
}

const good = "services: {bank: {url: \"https://bank.example.org\"}}\nagents: {pay: {service: bank, steps: {charge: {do: {path: /x}}}}}\n"

var addrOf = regexp.MustCompile(`addr=(\S+)`)

// TestHealth: ready while there is NATS, not ready while there is none, ready again; alive all the time.
//
// covers: D12
func TestHealth(t *testing.T) {
	s := startNATS(t, server.RANDOM_PORT)
	port := s.Addr().(*net.TCPAddr).Port
	log := &logged{}
	role, err := Open(settings(t, s.ClientURL(), good), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- role.Run(ctx) }()
	defer http.DefaultClient.CloseIdleConnections()
	url := ""
	until(t, "it serves", func() bool {
		m := addrOf.FindStringSubmatch(log.text())
		if m != nil {
			url = "http://" + m[1]
		}
		return m != nil
	})
	is := func(path string, code int) func() bool {
		return func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return false
			}
			return resp.Body.Close() == nil && resp.StatusCode == code
		}
	}
	until(t, "ready", is("/readyz", 200))
	stopNATS(s)
	until(t, "not ready", is("/readyz", 503))
	until(t, "alive", is("/healthz", 200))
	s = startNATS(t, port)
	until(t, "ready again", is("/readyz", 200))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stopNATS(s)
}

// TestRefused: a file that is wrong, a port that is taken.
func TestRefused(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := Open(settings(t, "", strings.Replace(good, "path", "pth", 1)), log); err == nil || !strings.Contains(err.Error(), `agents.yaml:2:`) {
		t.Errorf("%v", err)
	}
	s := startNATS(t, server.RANDOM_PORT)
	defer stopNATS(s)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := settings(t, s.ClientURL(), good)
	cfg.HTTPAddr = taken.Addr().String()
	role, err := Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := role.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "http-addr") {
		t.Errorf("%v", err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}
