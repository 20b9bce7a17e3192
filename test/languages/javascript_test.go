package languages

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// golden plays the golden messages of a source of Duly's against the agent in JavaScript that listens there.
func golden(t *testing.T, dir, url, source string) (said string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter", "spec", "golden.test.mjs", "least.test.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NATS_URL="+url, "DULY_SOURCE="+source)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failed reports whether a test whose name begins so, or goes on so, is among those that failed.
func failed(said, name string) bool {
	for line := range strings.Lines(said) {
		if strings.Contains(line, "✖") && strings.Contains(line, name) {
			return true
		}
	}
	return false
}

// TestGoldenMessages: what the agent in JavaScript answers to each golden message, and what is made of each by what agent and
// submitter read and write with, is what Duly's own tests hold Go to: the files are the same. One that is changed is noticed.
func TestGoldenMessages(t *testing.T) {
	dir, url := javaScript(t), natsServer(t)
	start(t, dir, url, "node", "agent.mjs", filepath.Join(t.TempDir(), "charges"), agent)
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := golden(t, dir, url, source); err != nil || !strings.Contains(said, "pass 17") {
		t.Fatalf("%v: %s", err, said)
	}
	for _, x := range []struct{ file, old, new, fails string }{
		{"testdata/protocol/do-bad-key.json", `\"order-17\",\"complete_by`, `\"order-17/charge/0\",\"complete_by`, "a command is read"},
		{"testdata/protocol/reply-failed-for-good.json", `"512"`, `"422"`, "an answer of an agent counts as"},
		{"testdata/protocol/reply-gone.json", `410`, `409`, "one effect a key"},
		{"testdata/protocol/submit-headers.json", `Duly-Start-At`, `Duly-Starts-At`, "what a submitter sends"},
		{"testdata/protocol/submit-not-known.json", `504`, `409`, "what a door answers"},
		{"testdata/protocol/status-newer.json", `resting`, `undone`, "statuses and ends"},
		{"docs/reference/protocol.md", "| 425, 429, 501, 503 |", "| 425, 501, 503 |", "an answer of an agent counts as"},
	} {
		spoilt := t.TempDir()
		for _, part := range []string{"testdata/protocol", "docs/reference"} {
			if err := os.CopyFS(filepath.Join(spoilt, part), os.DirFS(filepath.Join(source, part))); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(spoilt, x.file)
		is, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		was := string(is)
		changed := strings.ReplaceAll(was, x.old, x.new)
		if changed == was {
			t.Fatalf("%s has no %s", x.file, x.old)
		}
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, err := golden(t, dir, url, spoilt); err == nil || !failed(said, x.fails) {
			t.Errorf("%s with %s for %s: %v: %s", x.file, x.new, x.old, err, said)
		}
	}
}

// TestSubmitter: the submitter in JavaScript says how a task ends that the agent in JavaScript works for, and that another
// under the same id is refused.
func TestSubmitter(t *testing.T) {
	dir, program := javaScript(t), filepath.Join(t.TempDir(), "duly")
	run(t, "../..", "go", "build", "-o", program, "./cmd/duly")
	api, url := dev(t, program)
	start(t, dir, url, "node", "agent.mjs", filepath.Join(t.TempDir(), "charges"), agent)
	plan := filepath.Join(t.TempDir(), "order.yaml")
	if err := os.WriteFile(plan, []byte("name: order\nversion: 1\nsteps: [{name: charge, agent: payment.charge}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", program, "plan", "apply", "-s", api, plan)
	for _, x := range []struct{ id, input, says string }{
		{"o-1", `{"cents":5}`, "processed"},
		{"o-1", `{"cents":5}`, "processed"},
		{"o-1", `{"cents":6}`, "refused: "},
		{"o-2", `{"cents":-5}`, "undone: cents: -5, want a whole number above 0"},
	} {
		cmd := exec.Command("node", "submit.mjs", "order", x.id, x.input, "1m")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "NATS_URL="+url)
		out, err := cmd.CombinedOutput()
		if !strings.HasPrefix(string(out), x.says) || (err == nil) != (x.says == "processed") {
			t.Errorf("%s with %s: %v, %s, want %s", x.id, x.input, err, out, x.says)
		}
	}
}

// dev runs duly dev until the end of the test, and returns the URLs of its API and its NATS.
func dev(t *testing.T, program string) (api, url string) {
	t.Helper()
	cmd := exec.Command(program, "dev", "--port", "0", "--nats-port", "0", "--data-dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("duly dev: %v", err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch fields := strings.Fields(lines.Text()); {
		case len(fields) != 2:
		case fields[0] == "http":
			api = fields[1]
		case fields[0] == "nats":
			return api, fields[1]
		}
	}
	t.Fatal("duly dev does not say where its NATS is")
	return "", ""
}
