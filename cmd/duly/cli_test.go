package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// devSystem is `duly dev --demo` at work.
func devSystem(t *testing.T) (url string) {
	t.Helper()
	return start(t, "dev", "--demo", "--port", "0", "--nats-port", "0", "--data-dir", t.TempDir()).ready()
}

// TestCLI is the life of a task on the command line.
func TestCLI(t *testing.T) {
	t.Parallel()
	url := devSystem(t)
	ok := func(in string, args ...string) string {
		t.Helper()
		code, out, errs := command(t, in, args...)
		if code != 0 || strings.TrimSuffix(errs, "duly: at "+url+"\n") != "" {
			t.Fatalf("duly %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	says := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%q does not match %s", out, pattern)
		}
	}
	field := func(out, name string) any {
		t.Helper()
		var m map[string]any
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return m[name]
	}
	// The plan is stored by the drone example, some time after the node is ready.
	until(t, "the plan is there", func() bool {
		code, _, _ := command(t, "", "submit", "delivery", "d-1", sampleDelivery, "-s", url)
		return code == 0
	})
	ends := func(id, state string) {
		t.Helper()
		until(t, id+" ends", func() bool {
			_, out, _ := command(t, "", "get", "delivery", id, "-s", url)
			return strings.Contains(out, id+"  "+state)
		})
	}
	ends("d-1", "processed")
	text := ok("", "get", "delivery", "d-1", "-s", url)
	says(text, `^delivery  d-1  processed\nversion 1  created \S+  ended \S+  failures 0\n`)
	says(text, `(?m)^delivery +call delivery\.create +done +1 +\S+ +\{`)
	if s := field(ok("", "get", "delivery", "d-1", "-s", url, "-o", "json"), "state"); s != "processed" {
		t.Errorf("state %v", s)
	}
	second := strings.Replace(sampleDelivery, "d-1", "d-2", 1)
	says(ok(second, "submit", "delivery", "d-2", "-", "-s", url), `^d-2 is stored at \d+\.\d+\n$`)
	says(ok(sampleDelivery, "submit", "delivery", "d-1", "-s", url), `^d-1 is a task already: processed\n$`)
	third := ok("", "submit", "delivery", "d-3", strings.Replace(sampleDelivery, "d-1", "d-3", 1), "--complete-by", "30s", "-s", url, "-o", "json")
	if id := field(third, "id"); id != "d-3" {
		t.Errorf("id %v", id)
	}
	for want, c := range map[string]struct {
		status int
		args   []string
	}{
		`"d-1" is processed: it is too late to cancel`: {exitState, []string{"cancel", "delivery", "d-1"}},
		`no task .*d-4.*--even-if-unknown`:             {exitNotFound, []string{"cancel", "delivery", "d-4"}},
		"type .*nosuch.* is unknown":                   {exitNotFound, []string{"cancel", "nosuch", "d-4", "--even-if-unknown"}},
	} {
		if status, _, said := command(t, "", append(c.args, "-s", url)...); status != c.status || !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%v: status %d: %s", c.args, status, said)
		}
	}
	says(ok("", "cancel", "delivery", "d-4", "--reason", "changed my mind", "--even-if-unknown", "-s", url), `^asked that d-4 end: no task has this id yet`)
	ends("d-4", "undone")
	if asked := field(ok("", "cancel", "delivery", "d-5", "--even-if-unknown", "-s", url, "-o", "json"), "asked"); asked != "cancel" {
		t.Errorf("asked %v", asked)
	}
	says(ok("", "list", "--type", "delivery", "--state", "processed", "--plan-version", "1", "-s", url), `(?m)^TYPE +ID +STATE +CREATED +ENDED +PLAN VERSION$[^$]*^delivery +d-1 +processed`)
	page := ok("", "list", "--limit", "1", "-s", url, "-o", "json")
	next, _ := field(page, "next").(string)
	if n := len(field(page, "tasks").([]any)); n != 1 || next == "" {
		t.Errorf("%d tasks, next %q", n, next)
	}
	says(ok("", "list", "--limit", "1", "--after", next, "-s", url), `more: --after`)
	says(ok("", "health", "-s", url), `^ready\n$`)
	says(ok("", "version"), `^duly \S+ go1\.`)
	if v := field(ok("", "version", "-o", "json"), "version"); v != version {
		t.Errorf("version %v", v)
	}
	wrongUse(t, url)
}

// wrongUse: the server's refusals come out as words and the status for them.
func wrongUse(t *testing.T, url string) {
	t.Helper()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"get", "delivery", "no-such"}, exitNotFound, `no task "no-such" of type "delivery"`},
		{[]string{"submit", "nosuch", "n1", "{}"}, exitNotFound, `"nosuch"`},
		{[]string{"submit", "delivery", "d-1", `{"a":1}`}, exitState, "another input"},
		{[]string{"submit", "delivery", "n2", `{"a"`}, exitUse, "not JSON"},
		{[]string{"submit", "delivery", "n3", `{}`, "--complete-by=-1s"}, exitUse, "complete-by"},
		{[]string{"list", "--limit", "0"}, exitUse, "limit"},
		{[]string{"list", "--state", "gone"}, exitUse, "state"},
	} {
		code, _, errs := command(t, "", append(c.args, "-s", url)...)
		if code != c.code || !strings.HasPrefix(errs, "duly: ") || !strings.Contains(errs, c.want) {
			t.Errorf("duly %s: exit %d, %q, want %d and %q", strings.Join(c.args, " "), code, errs, c.code, c.want)
		}
	}
}

// TestCLIRefuses: what cannot work is refused with words, and with 2 where the
// words on the command line are wrong.
func TestCLIRefuses(t *testing.T) {
	const nowhere = "postgres://127.0.0.1:1/nothing"
	t.Setenv("DATABASE_URL", "") // put back at the end
	if err := os.Unsetenv("DATABASE_URL"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "expected one of"},
		{[]string{"fly"}, 2, "fly"},
		{[]string{"list", "--colour", "red"}, 2, "--colour"},
		{[]string{"demo", "--faults", "many"}, 2, "some"},
		{[]string{"demo", "--tasks", "many"}, 2, "tasks"},
		{[]string{"demo", "--tasks", "0"}, 2, "want 1 to"},
		{[]string{"demo", "--rate=-1"}, 2, "want 0 to"},
		{[]string{"get"}, 2, "<task>"},
		{[]string{"version", "-o", "xml"}, 2, "json"},
		{[]string{"migrate"}, 2, "--database-url"},
		{[]string{"migrate", "--database-url", "mysql://x"}, 2, `"mysql"`},
		{[]string{"serve", "--database-url", "sqlite:/tmp/x.db"}, 2, "duly dev"},
		{[]string{"serve", "--database-url", ""}, 2, "database-url: none given; serve wants PostgreSQL"},
		{[]string{"serve", "--roles", "ingest,cook", "--database-url", nowhere}, 2, `"cook"`},
		{[]string{"serve", "--partitions", "0", "--database-url", nowhere}, 2, "partitions: 0, want 1 to 4096"},
		{[]string{"serve", "--lease", "1ms", "--database-url", nowhere}, 2, "lease: 1ms"},
		{[]string{"serve", "--scan-interval", "5s", "--database-url", nowhere}, 2, "scan-interval: 5s"},
		{[]string{"serve", "--node-name", "a b", "--database-url", nowhere}, 2, "node-name"},
		{[]string{"serve", "--namespace", "Prod", "--database-url", nowhere}, 2, `namespace: "Prod" begins with 'P'`},
		{[]string{"serve", "--namespace", "a.b", "--database-url", nowhere}, 2, `namespace: "a.b": character 2 is '.'`},
		{[]string{"dev", "--namespace", "status", "--port", "0", "--nats-port", "0", "--data-dir", t.TempDir()}, 2, `could lead it to subjects of "status"`},
		{[]string{"serve", "--log-format", "xml"}, 2, "json"},
		{[]string{"serve"}, 2, "database"},
		{[]string{"health", "-s", "http://127.0.0.1:1"}, 1, "not ready"},
		{[]string{"list", "-s", "http://127.0.0.1:1"}, exitUnreachable, "is a node running there?"},
	} {
		code, _, errs := command(t, "", c.args...)
		if code != c.code || !strings.Contains(errs, "duly: ") || !strings.Contains(errs, c.want) {
			t.Errorf("duly %s: exit %d, %q, want %d and %q", strings.Join(c.args, " "), code, errs, c.code, c.want)
		}
	}
	if code, out, _ := command(t, "", "--help"); code != 0 || !strings.Contains(out, "demo") {
		t.Errorf("--help: exit %d: %s", code, out)
	}
}

// TestDevInANamespace: the node, the plan and the agents of the demo speak with the
// namespace that is given.
func TestDevInANamespace(t *testing.T) {
	t.Setenv("DULY_NAMESPACE", "prod")
	c := start(t, "dev", "--demo", "--port", "0", "--nats-port", "0", "--data-dir", t.TempDir())
	url := c.ready()
	until(t, "the plan is there", func() bool {
		code, _, _ := command(t, "", "submit", "delivery", "d-1", sampleDelivery, "-s", url)
		return code == 0
	})
	until(t, "the delivery ends", func() bool {
		_, out, _ := command(t, "", "get", "delivery", "d-1", "-s", url)
		return strings.Contains(out, "processed")
	})
	if !strings.Contains(c.log(), "stream=PROD_TASKS") {
		t.Error("the streams are not those of the namespace")
	}
}

// TestOneDevPerDirectory: two would write to the same files.
func TestOneDevPerDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"dev", "--port", "0", "--nats-port", "0", "--data-dir", dir}
	first := start(t, args...)
	first.ready()
	code, _, errs := command(t, "", args...)
	if code != 1 || !strings.Contains(errs, dir) || !strings.Contains(errs, "in use by another process") {
		t.Errorf("the second: exit %d, %q", code, errs)
	}
	if code := first.term(); code != 0 {
		t.Errorf("the first: exit %d after it was told to stop:\n%s", code, first.log())
	}
	// Its lock ended with it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := run(ctx, args, streams{strings.NewReader(""), &out, &errOut}); strings.Contains(errOut.String(), "in use") {
		t.Errorf("the third: exit %d, %q", code, errOut.String())
	}
}
