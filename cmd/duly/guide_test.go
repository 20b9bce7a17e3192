package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// guideBlock is the first block of a kind on a page of the guide.
func guideBlock(t *testing.T, page, kind string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", page))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(data), "```"+kind+"\n")
	text, _, ended := strings.Cut(after, "```")
	if !ok || !ended {
		t.Fatalf("%s has no block of %s", page, kind)
	}
	return text
}

// TestGuidesAgentsRunBesideANode: the command and the file of docs/guide/http-agent.md, in two processes at a time, of which
// neither takes the port of `duly dev`.
//
// covers: U3
func TestGuidesAgentsRunBesideANode(t *testing.T) {
	t.Parallel()
	s := secure(t)
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "payments"), filepath.Join(dir, "agents.yaml")
	text := strings.Replace(guideBlock(t, "http-agent.md", "yaml"), "/run/secrets/payments", secret, 1)
	for name, text := range map[string]string{secret: "s3cret", file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := strings.NewReplacer("agents.yaml", file, "nats://127.0.0.1:4222", s.url("admin")).Replace(guideBlock(t, "http-agent.md", "sh"))
	args := strings.Fields(line)
	if len(args) == 0 || args[0] != "duly" {
		t.Fatalf("the command is %q", line)
	}
	first, second := start(t, args[1:]...), start(t, args[1:]...)
	for _, c := range []*child{first, second} {
		if url := c.ready(); strings.HasSuffix(url, ":7310") {
			t.Errorf("it took %s", url)
		}
	}
}
