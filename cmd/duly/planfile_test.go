package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanLint: a file is checked without a server; what is wrong is told with its place.
func TestPlanLint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	for _, c := range []struct {
		text string
		code int
		want string
	}{
		{"name: lamp\nversion: 4\nsteps:\n- name: buy\n  agent: shop.buy\n", exitDone, "plan lamp version 4 can work (steps: 1)"},
		{"name: lamp\nversion: 4\nsteps:\n- name: credit\n  agent: bank\n  undoable: false\n- name: buy\n  agent: shop.buy\n", exitDone, "order: credit, then buy\n"},
		{"name: lamp\nversion: 1\ncomplete_by: 48h\nsteps:\n- name: buy\n  agent: shop.buy\n", exitDone, "warning: step buy: key_lasts is 24h0m0s, less than the plan's complete_by of 48h0m0s"},
		{"name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n  after: [by]\n", exitUse, `plan.yaml:6:11: step buy: after names "by", which is no step`},
		{"name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n  when: input.x >\n", exitUse, "plan.yaml:6:18: step buy: when: it ends too early, want a value"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errs := command(t, "", "plan", "lint", file); code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("exit %d, want %d and %q: %s%s", code, c.code, c.want, out, errs)
		}
	}
	if err := os.WriteFile(file, []byte("name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, "", "plan", "lint", file, "--max-payload", "1"); code != exitUse || !strings.Contains(errs, "over the server's max_payload of 1") {
		t.Errorf("a server that takes nothing: exit %d %s", code, errs)
	}
}
