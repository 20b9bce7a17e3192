package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	natsd "github.com/nats-io/nats-server/v2/server"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/taskform"
)

// parseServe reads a command line of serve.
func parseServe(t *testing.T, args ...string) config.Config {
	t.Helper()
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		t.Fatal(err)
	}
	return c.Serve.Config
}

// A context of the nats command is where its credentials go, unless a URL is given.
//
// covers: C9, C12
func TestServeByContext(t *testing.T) {
	for _, name := range []string{"NATS_URL", "NATS_CONTEXT", "NATS_CREDS"} {
		t.Setenv(name, "") // put back at the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	s := natsServer(t, natsd.Options{Username: "app", Password: "s3cret"})
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	folder := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"shop":      `{"url":"nats://` + s.Addr().String() + `","user":"app","password":"s3cret"}`,
		"elsewhere": `{"url":"nats://127.0.0.1:1","user":"app","password":"s3cret"}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "duly.db") // one installation
	if err := node.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"by its own URL":  {"--nats-context", "shop"},
		"by a URL given":  {"--nats-context", "elsewhere", "--nats-url", "nats://" + s.Addr().String()},
		"by a URL's user": {"--nats-url", "nats://app:s3cret@" + s.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := parseServe(t, args...)
			cfg.DatabaseURL = database
			cfg.StreamMaxBytes = 1 << 20
			var log bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			n, err := node.Open(ctx, cfg, newLog(&log, cfg.Logs))
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if strings.Contains(log.String(), "s3cret") || !strings.Contains(log.String(), s.Addr().String()) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// What the program says of an address has no password, in any form.
//
// covers: C12
func TestNoPasswordIsPrinted(t *testing.T) {
	for _, args := range [][]string{
		{"migrate", "--database-url", "postgres://app:s3cret@127.0.0.1:1/duly"},
		{"migrate", "--database-url", "host=127.0.0.1 user=app password=s3cret:x"},
		{"migrate", "--database-url", "app:s3cret@127.0.0.1/duly"},
		{"migrate", "--database-url", "postgres://app:s3cret@x@127.0.0.1:1/duly"},
		{"migrate", "--database-url", "postgres://app:s3 cret@127.0.0.1:x/duly"},
		{"list", "-s", "http://app:s3cret@127.0.0.1:1"},
		{"list", "-s", "http://app:s3cret@127.0.0.1:x"},
	} {
		code, out, errs := command(t, "", args...)
		if code == 0 || strings.Contains(out+errs, "s3") || errs == "" {
			t.Errorf("duly %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
		}
	}
}

// A task that was undone says which of its steps failed, though that step is undone too.
//
// covers: C14
func TestGetNamesTheFailedStep(t *testing.T) {
	var out bytes.Buffer
	undone := task{taskform.Task{Type: "order", ID: "a", State: "undone", FailedStep: "ship", Reason: "no drone"}}
	undone.print(&out)
	if !strings.HasPrefix(out.String(), "order  a  undone  (step ship failed: no drone)\n") {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	cancelled := task{taskform.Task{Type: "order", ID: "a", State: "undone", Reason: "changed my mind"}}
	cancelled.print(&out)
	if !strings.HasPrefix(out.String(), "order  a  undone  (changed my mind)\n") {
		t.Errorf("got %s", out.String())
	}
}

// What is printed of a task shows which instance of its agent a step was done by, and which
// person or node ended it.
//
// covers: C14
func TestGetShowsWhoAnswered(t *testing.T) {
	var done task
	if err := json.Unmarshal([]byte(`{"type":"order","id":"a","state":"processed","steps":[{"name":"pay","agent":"till","status":"done","by":"till-7@till"},
		{"name":"old","agent":"old","status":"done","by":"old"},{"name":"late","agent":"late","status":"failed","by":"node-1","error":"no answer"},
		{"name":"next","agent":"next","status":"waiting"}]}`), &done); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	done.print(&out)
	var by []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n")[3:] {
		by = append(by, strings.Fields(line)[5]) // after "call" and the agent
	}
	if got := strings.Join(by, " "); got != "till-7 old node-1 -" || !strings.Contains(out.String(), "ATTEMPT  BY") {
		t.Errorf("by %s:\n%s", got, out.String())
	}
}
