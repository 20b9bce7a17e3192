package natsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"duly.dev/duly/internal/freeport"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func begin(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStoreSurvives: what the server confirmed is there after a restart, and the
// defaults are what the package promises.
//
// covers: inv1
func TestStoreSurvives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	for life := range 2 {
		s := begin(t, Options{Dir: dir})
		if !s.SyncAlways() {
			t.Error("the server does not sync always")
		}
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		if nc.MaxPayload() != DefaultMaxPayload || !strings.HasPrefix(s.ClientURL(), "nats://127.0.0.1:") || s.MonitorURL() != "" {
			t.Errorf("max payload %d, %s, monitor %q", nc.MaxPayload(), s.ClientURL(), s.MonitorURL())
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != uint64(life) {
			t.Errorf("%d messages in life %d", n, life+1)
		}
		if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		if err := s.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOneServerPerDirectory: the second is refused, and may have it afterwards.
func TestOneServerPerDirectory(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, Options{Dir: dir})
	if _, err := Start(Options{Dir: dir}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second server: %v", err)
	}
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	begin(t, Options{Dir: dir})
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	began := time.Now()
	_, err = Start(Options{Dir: dir, Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") || time.Since(began) > DefaultReady/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	begin(t, Options{Dir: dir}) // the lock is free again
}

func TestMonitorAndOptions(t *testing.T) {
	s := begin(t, Options{Dir: t.TempDir(), HTTPMonitorPort: -1, MaxPayload: 1 << 20, SyncOff: true})
	res, err := http.Get(s.MonitorURL() + "/varz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if res.StatusCode != http.StatusOK || s.SyncAlways() {
		t.Errorf("status %s, sync always %v", res.Status, s.SyncAlways())
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"no directory": {}, "a file": {Dir: file}, "payload": {Dir: t.TempDir(), MaxPayload: -1}} {
		if _, err := Start(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCluster: three servers are one, and a stream of three replicas outlives
// the one that leads it.
func TestCluster(t *testing.T) {
	ports := []int{freeport.Of(t), freeport.Of(t), freeport.Of(t)}
	var routes []string
	for _, p := range ports {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", p))
	}
	servers := map[string]*Server{}
	var urls []string
	for i, p := range ports {
		name := fmt.Sprintf("n%d", i)
		s, err := Start(Options{Dir: t.TempDir(), Name: name, Cluster: &Cluster{Name: "three", Port: p, Routes: routes}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() }) // one is down by then
		servers[name] = s
		urls = append(urls, s.ClientURL())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	try := func(what string, do func(context.Context) error) {
		t.Helper()
		for {
			step, cancel := context.WithTimeout(ctx, 2*time.Second)
			err := do(step)
			cancel()
			if err == nil {
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	leader := ""
	try("make a stream", func(ctx context.Context) error {
		s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
		if err == nil {
			leader = s.CachedInfo().Cluster.Leader
		}
		return err
	})
	try("publish", func(ctx context.Context) error { _, err := js.Publish(ctx, "s", nil); return err })
	if servers[leader] == nil {
		t.Fatalf("the leader is %q", leader)
	}
	if err := servers[leader].Shutdown(); err != nil {
		t.Fatal(err)
	}
	try("publish without the old leader", func(ctx context.Context) error { _, err := js.Publish(ctx, "s", nil); return err })
}

func TestClusterRefused(t *testing.T) {
	for _, c := range []Cluster{{Port: 1}, {Name: "c"}, {Name: "c", Port: 70000}, {Name: "c", Port: 1, Routes: []string{"nonsense"}}} {
		if _, err := Start(Options{Dir: t.TempDir(), Cluster: &c}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
