package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
)

// logged keeps what a node writes to its log.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// standingNode is a node on real servers in this process, with what it tells.
type standingNode struct {
	*Node
	log   *logged
	at    string // of its HTTP
	ended chan error
	stop  func() // ends it; the test does
}

// stands starts a node with all roles.
func stands(t *testing.T, database string) *standingNode {
	t.Helper()
	server := startNATS(t)
	var err error
	cfg := good()
	cfg.Partitions, cfg.Lease, cfg.ScanInterval, cfg.HTTPAddr = 4, time.Second, 100*time.Millisecond, "127.0.0.1:0"
	cfg.Links = config.Links{NATSURL: server.ClientURL(), DatabaseURL: database}
	s := &standingNode{log: &logged{}, ended: make(chan error, 1)}
	if err := Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	if s.Node, err = Open(t.Context(), cfg, slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { s.ended <- errors.Join(s.Run(ctx), s.Close()) }()
	s.stop = cancel
	t.Cleanup(cancel)
	until(t, "http is up", func() bool {
		m := regexp.MustCompile(`msg="http is up" .*addr=(\S+)`).FindStringSubmatch(s.log.text())
		if m != nil {
			s.at = "http://" + m[1]
		}
		return m != nil
	})
	until(t, "ready", func() bool { code, _ := s.get(t, "/readyz"); return code == 200 })
	return s
}

// get reads one page.
func (s *standingNode) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.at + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// alerts are the lines about the beginning of a trouble.
func (s *standingNode) alerts(name string) []string {
	return regexp.MustCompile(`(?m)^.* alert=begin name=`+name+` .*$`).FindAllString(s.log.text(), -1)
}

// TestSecretsAreNotTold: a driver's error that repeats the password, alone and in its address, is told without it, by the
// log, the alerts and readiness.
//
// covers: C12
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	const password, escaped = "s3cr3t/pa55", "s3cr3t%2Fpa55"
	proxy, err := pgfault.Start(pgtestdb.Installation(t), pgfault.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	at := strings.Replace(proxy.URL(), "postgres@", "postgres:"+escaped+"@", 1)
	if at == proxy.URL() {
		t.Fatalf("no user in %s", at)
	}
	n := stands(t, at)
	proxy.Refuse(pgfault.Refusal{Code: "28P01", Fatal: true, Message: `the password "` + password + `" of ` + at + " is not right, " + password})
	for _, name := range []string{condDatabase, "owners", "supervision"} {
		until(t, name+" is told", func() bool { return len(n.alerts(name)) > 0 })
		if line := n.alerts(name)[0]; !strings.Contains(line, "is not right, xxxxx") {
			t.Errorf("%s: the error is told as %s", name, line)
		}
	}
	code, page := n.get(t, "/readyz")
	if code != 503 || !strings.Contains(page, "is not right, xxxxx") {
		t.Errorf("%d %s", code, page)
	}
	n.stop()
	if err := <-n.ended; err != nil {
		t.Error(err)
	}
	for what, text := range map[string]string{"log and alerts": n.log.text(), "readiness": page} {
		if strings.Contains(text, password) || strings.Contains(text, escaped) || strings.Contains(text, "pa55") {
			t.Errorf("the password is told by %s: %s", what, text)
		}
	}
}

// TestConnectionClosedForGoodIsTold: only a restart helps then, and an orchestrator is told so.
//
// covers: B1
func TestConnectionClosedForGoodIsTold(t *testing.T) {
	t.Parallel()
	n := stands(t, pgtestdb.Installation(t))
	if code, _ := n.get(t, "/healthz"); code != 200 {
		t.Fatalf("not alive: %d", code)
	}
	n.conn.Close()
	until(t, "not alive", func() bool {
		code, page := n.get(t, "/healthz")
		return code == 503 && strings.Contains(page, condNATSClosed) && strings.Contains(page, "restart the node")
	})
	if code, page := n.get(t, "/readyz"); code != 503 || !strings.Contains(page, condNATSClosed) {
		t.Errorf("%d %s", code, page)
	}
	until(t, "it is told", func() bool { return len(n.alerts(condNATSClosed)) == 1 })
	n.stop()
	<-n.ended // what it could not release has no place to be told
}
