package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/redact"
)

// TestDoctor: the command says what is wrong, why it matters and what mends it, by its exit status too; a mistake that is
// known does not count.
//
// covers: OP23
func TestDoctor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	args := []string{"doctor", "--nats-url", c.nats, "--database-url", c.db, "--partitions", "8", "--http-addr", "127.0.0.1:1"}
	code, out, errs := command(t, "", args...)
	if code != exitFailed || errs != "" {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"CHECK", "nats-rights-wide  wrong", "why   anyone with this user's password", "mend  duly nats-permissions --namespace duly duly=node", "database-version  ok", "1 wrong, "} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	code, out, _ = command(t, "", append(args, "--ignore", node.CheckRightsWide)...)
	if code != exitDone || !strings.Contains(out, "nats-rights-wide  wrong  (ignored)") || !strings.Contains(out, "\n0 wrong, ") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out, errs := command(t, "", append(args, "--only", "nats-snyc")...); code != exitUse || !strings.Contains(errs, `"nats-snyc" is no check: there are settings, `) {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
	code, out, _ = command(t, "", append(args, "--json", "--only", node.CheckRightsWide, "--only", node.CheckSync)...)
	var said struct {
		Findings []node.Finding
		Wrong    int
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != exitFailed || said.Wrong != 1 || len(said.Findings) != 2 {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
	for _, f := range said.Findings {
		if f.Check == node.CheckSync && (f.State != node.FindingUnknown || f.Mend != "") {
			t.Errorf("%+v", f)
		}
	}
}

// TestFirstToken: the first admin token is written into the database, and opens the API of a node that asks for one.
//
// covers: OP23, OP16, P18
func TestFirstToken(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DULY_TOKEN", "")
	c := newCluster(t)
	url := start(t, "serve", "--node-name", "n1", "--nats-url", c.nats, "--database-url", c.db, "--http-addr", "127.0.0.1:0", "--partitions", "8", "--auth", "token").ready()
	if code, _, errs := command(t, "", "token", "list", "-s", url); code != exitForbidden {
		t.Fatalf("without a token: exit %d %s", code, errs)
	}
	if code, _, errs := command(t, "", "token", "create", "root", "--database-url", "postgres://127.0.0.1:1/x"); code != exitFailed || errs == "" {
		t.Errorf("no database: exit %d %s", code, errs)
	}
	// What is named is where it goes, and is said; what names two installations goes to neither.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path != "/v1/tokens" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		_, _ = w.Write([]byte(`{"token":{"id":"t1","name":"root","role":"admin"},"secret":"duly_x_y"}`))
	}))
	t.Cleanup(api.Close)
	if code, _, errs := command(t, "", "token", "create", "root", "--database-url", c.db, "-s", api.URL); code != exitUse || !strings.Contains(errs, "database-url and server") {
		t.Errorf("both are named: exit %d %s", code, errs)
	}
	if code, out, errs := command(t, "", "books", "--now", "--database-url", c.db); code != exitUse || !strings.Contains(errs, "database-url goes with --direct") {
		t.Errorf("a database for what a node does: exit %d %s%s", code, out, errs)
	}
	if code, out, errs := command(t, "", "token", "create", "root", "-s", api.URL, "-o", "json"); code != exitDone || !strings.Contains(errs, "made at "+api.URL) {
		t.Errorf("by the API: exit %d %s%s", code, out, errs)
	}
	code, secret, errs := command(t, "", "token", "create", "root", "--role", "admin", "--database-url", c.db, "--reason", "the first one")
	if database, _, _ := strings.Cut(c.db, "?"); code != exitDone || !strings.HasPrefix(secret, "duly_") || !strings.Contains(errs, "made in the database "+redact.Text(database)) {
		t.Fatalf("exit %d: %s%s", code, secret, errs)
	}
	t.Setenv("DULY_TOKEN", strings.TrimSpace(secret))
	if code, out, errs := command(t, "", "token", "list", "-s", url); code != exitDone || !strings.Contains(out, "root") || !strings.Contains(out, string(operate.RoleAdmin)) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, out, errs := command(t, "", "audit", "-s", url, "-o", "csv"); code != exitDone || !strings.Contains(out, "token.create,token/root,the first one,,admin,done") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestPlanApply: a plan in YAML is stored, once; another one under its version is refused.
//
// covers: OP23
func TestPlanApply(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	url := c.serve("n1", "ingest,scheduler,supervisor").ready()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(code int, want string) {
		t.Helper()
		is, out, errs := command(t, "", "plan", "apply", file, "-s", url)
		if is != code || !strings.Contains(out+errs, want) {
			t.Errorf("exit %d, want %d and %q: %s%s", is, code, want, out, errs)
		}
	}
	write("name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n")
	apply(exitDone, "plan lamp version 1 is stored, the only version of this name")
	apply(exitDone, "duly: at "+url)
	apply(exitDone, "plan lamp version 1 is stored")
	write("name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.other\n")
	apply(exitState, "lamp")
	write("name: lamp\nversion: 3\nsteps:\n- name: buy\n  agent: shop.buy\n")
	apply(exitDone, "plan lamp version 3 is stored; new submissions take version 3")
	write("name: lamp\nversion: 2\nsteps:\n- name: buy\n  agent: shop.buy\n")
	apply(exitDone, "plan lamp version 2 is stored; new submissions take version 3")
	write("name: lamp\nversion: 1\nsteps: [\n")
	apply(exitUse, "plan.yaml:3:8: ")
	write("name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n  when: inptu.dark\n")
	apply(exitUse, "plan.yaml:6:9: step buy: when: there is no \"inptu\": is input meant?")
	write("name: lamp\nversion: 1\nstepz: []\n")
	apply(exitUse, "stepz")
	began := time.Now()
	write("name: lamp\nversion: 1\nsteps:\n- name: buy\n  agent: shop.buy\n")
	if code, _, errs := command(t, "", "plan", "apply", file, "-s", "http://127.0.0.1:1", "--timeout", "500ms"); code != exitUnreachable || time.Since(began) > patience {
		t.Errorf("no node: exit %d %s", code, errs)
	}
}
