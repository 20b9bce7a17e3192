package natsbus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/wire"
)

// fakeServer greets as a NATS server of some version and answers pings.
func fakeServer(t *testing.T, version string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				fmt.Fprintf(conn, "INFO {\"server_id\":\"X\",\"version\":%q,\"max_payload\":1048576,\"headers\":true}\r\n", version)
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "PING") {
						fmt.Fprint(conn, "PONG\r\n")
					}
				}
			})
		}
	})
	return "nats://" + l.Addr().String()
}

func TestOldServerIsRefused(t *testing.T) {
	for _, version := range []string{"2.14.9", "1.4.0", "nonsense"} {
		_, err := Dial(within(t), Options{URL: fakeServer(t, version), Logger: quiet()})
		if !errors.Is(err, ErrServerTooOld) || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "want 2.15 or newer: older ones can lose") {
			t.Errorf("%s: %v", version, err)
		}
	}
	for version, ok := range map[string]bool{"2.15.0": true, "2.15.2": true, "3.0.0": true, "2.16.0-RC.1": true, "2.14.99": false, "2.9.9": false, "": false, "2": false} {
		if newEnough(version) != ok {
			t.Errorf("%q: want %v", version, ok)
		}
	}
}

func TestServerWithoutJetStreamIsRefused(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	if _, err := Dial(within(t), Options{URL: s.ClientURL(), Logger: quiet()}); !errors.Is(err, ErrNoJetStream) {
		t.Errorf("%v", err)
	}
}

func TestDialWaitsForTheServer(t *testing.T) {
	port := freeport.Of(t)
	address := "nats://" + freeport.Addr(port)

	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Options{URL: address, Logger: quiet()}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), address) {
		t.Errorf("without a server: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		c, err := Dial(within(t), Options{URL: address, Logger: quiet()})
		if err == nil {
			c.Close()
		}
		got <- err
	}()
	serve(t, natsserver.Options{Port: port})
	if err := receive(t, "the connection", got); err != nil {
		t.Error(err)
	}
}

func TestDialRefusesCredentialsAtOnce(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Username: "a", Password: "b"})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	u, err := url.Parse(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("a", "secret")
	_, err = Dial(within(t), Options{URL: u.String(), Logger: quiet()})
	if !errors.Is(err, nats.ErrAuthorization) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	if _, err := Dial(within(t), Options{URL: s.ClientURL(), CredentialsFile: filepath.Join(t.TempDir(), "none.creds"), Logger: quiet()}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no credentials file: %v", err)
	}
}

func TestContexts(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	folder := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	url := serve(t, natsserver.Options{}).ClientURL()
	for name, text := range map[string]string{"here": fmt.Sprintf(`{"url":%q,"user":"u","password":"p","inbox_prefix":"_INBOX_me","description":"x"}`, url),
		"broken": `{`, "socks": `{"socks_proxy":"x"}`} {
		if err := os.WriteFile(filepath.Join(folder, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := dialWith(t, Options{Context: "here"})
	if inbox := c.nc.NewInbox(); !strings.HasPrefix(inbox, "_INBOX_me.") || c.nc.ConnectedUrl() != url {
		t.Errorf("inbox %s at %s", inbox, c.nc.ConnectedUrl())
	}
	for name, want := range map[string]string{"broken": "broken", "socks": "socks_proxy is not supported", "none": "no such file", "../x": "no slash"} {
		if _, err := Dial(within(t), Options{Context: name, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWrap: a wrapped connection belongs to its maker, and needs no
// JetStream for what an agent does.
func TestWrap(t *testing.T) {
	nc, err := nats.Connect(serve(t, natsserver.Options{}).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := Wrap(nc, nil, wire.Names{})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.OnStatus(names.LiveSubject("*", "*"), func(core.Status) {})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if sub.sub.IsValid() || nc.IsClosed() || c.NATS() != nc || c.MaxPayload() != natsserver.DefaultMaxPayload {
		t.Error("Close must end what is ours and nothing else")
	}
	if _, err := c.OnStatus(names.LiveSubject("*", "*"), func(core.Status) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCloseStopsEverything: Close does what a forgotten Stop would have done.
func TestCloseStopsEverything(t *testing.T) {
	c := ready(t)
	var calls sync.WaitGroup
	s := newSink()
	if _, err := c.ReadTasks(context.Background(), part, 1, 0, ReadConfig{}, s.handle, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServeSubmit(func(r *SubmitRequest) { r.Accept("X", 1, 1, "") }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServeCommands("a", false, func(*CommandRequest) {}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		calls.Add(1)
		c.PublishPack(part, []core.Submission{submission(0)}, func(uint64, error) { calls.Done() })
	}
	c.Close()
	calls.Wait() // every done has been called
	if _, err := c.ReadTasks(context.Background(), part, 1, 0, ReadConfig{}, s.handle, nil); err == nil {
		t.Error("read after Close")
	}
}

// TestSlowConsumerIsSeen: what finds no room is counted.
func TestSlowConsumerIsSeen(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	gate := make(chan struct{})
	sub, err := c.ServeReplies(3, func(core.Reply) { <-gate }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.sub.SetPendingLimits(10, -1); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := c.nc.Publish(names.ReplySubject(3, 1, int64(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "drops", func() bool { return c.Dropped() > 50 })
	n := c.Dropped()
	if hears := c.Hears(); hears <= n {
		t.Errorf("hears %d, and %d messages were dropped", hears, n)
	}
	close(gate)
	sub.Stop()
	if got := c.Dropped(); got < n {
		t.Errorf("%d dropped, %d before Stop", got, n)
	}
}
