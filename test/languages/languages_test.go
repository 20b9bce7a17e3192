package languages

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/conformance"
)

const (
	patience = time.Minute
	agent    = "payment.charge"
	examples = "../../examples/languages"
)

// natsServer is a server for this test alone.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := natsserver.Start(natsserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s.ClientURL()
}

// start starts an instance of an agent, waits until it is ready, and stops it at the end of the test, when it must end by
// itself and well.
func start(t *testing.T, dir, url string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NATS_URL="+url)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for seen := false; lines.Scan(); {
			if !seen && strings.HasSuffix(lines.Text(), "is ready") {
				seen = true
				close(ready)
			}
		}
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err := <-ended:
			if err != nil || said.Len() > 0 {
				t.Errorf("%s ended with %v and said %s", command, err, said.String())
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end", command)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended before it was ready: %v: %s", command, err, said.String())
	case <-time.After(patience):
		t.Fatalf("%s is not ready", command)
	}
}

// effects counts the effects of keys that stand in a folder; an empty key: of all.
func effects(folder, key string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return n, err
		}
		var is struct {
			Key    string `json:"key"`
			Undone bool   `json:"undone"`
		}
		if err := json.Unmarshal(data, &is); err != nil {
			return n, err
		}
		if !is.Undone && (key == "" || is.Key == key) {
			n++
		}
	}
	return n, nil
}

// holds plays conformance against two instances of an agent, with a view of the folder in which its effects are.
func holds(t *testing.T, dir string, command ...string) {
	t.Helper()
	url, folder := natsServer(t), filepath.Join(t.TempDir(), "charges")
	for range 2 {
		start(t, dir, url, append(command, folder, agent)...)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	report, err := conformance.Run(ctx, nc, conformance.Options{
		Agent: agent, Step: "charge", Input: []byte(`{"cents":1999,"card":"4711"}`), SlowInput: []byte(`{"cents":1999,"card":"slow"}`),
		Probes: true, Calls: 500, Silence: 300 * time.Millisecond, Slack: time.Second,
		Effects: func(_ context.Context, key string) (int, error) { return effects(folder, key) },
	})
	if err != nil {
		t.Fatal(err)
	}
	judged := map[string]bool{}
	for _, f := range report.Findings {
		judged[f.Rule] = true
		if f.State != conformance.Held {
			t.Errorf("%s, %s: %s: %s\n%+v", f.Rule, f.Check, f.State, f.Why, f.Evidence)
		}
	}
	if len(judged) != len(conformance.Rules) || report.Left > 0 {
		t.Errorf("%d of %d rules were judged, %d effects were left: %s", len(judged), len(conformance.Rules), report.Left, report.LeftKeys)
	}
	if n, err := effects(folder, ""); n != 0 || err != nil {
		t.Errorf("%d effects stand after all was undone, %v", n, err)
	}
}

// runtime is a program that an example needs. Where it cannot be had the example is not run, which the log says.
func runtime(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: there is no %s on this machine", name)
		}
	}
}

// The agent in JavaScript holds the rules of the protocol.
func TestJavaScript(t *testing.T) {
	runtime(t, "node", "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(examples, "javascript"))); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: the packages cannot be had: npm ci: %v: %s", err, out)
	}
	holds(t, dir, "node", "agent.mjs")
}

// The agent in Python holds the rules of the protocol.
func TestPython(t *testing.T) {
	runtime(t, "python3")
	holds(t, filepath.Join(examples, "python"), "python3", "-B", "agent.py")
}
