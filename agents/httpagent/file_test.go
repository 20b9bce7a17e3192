package httpagent

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planfile"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests print into their golden files")

// TestWrongFiles: what is wrong with a file is told with its line and column, all of it at once. The golden text is beside
// each file. No error has what may be a secret.
//
// covers: I16, E21
func TestWrongFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(filepath.Base(name), data)
		if _, ok := err.(planfile.TreeErrors); !ok {
			t.Errorf("%s: %v, want what is wrong with it", name, err)
			continue
		}
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: the error has a secret", name)
		}
		got, golden := err.Error()+"\n", strings.TrimSuffix(name, ".yaml")+".txt"
		if *rewrite {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// TestRightFile: all that a file can say is taken, and is what it says.
func TestRightFile(t *testing.T) {
	all, err := Load("testdata/right/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bank, pay := all.services["bank"], &all.agents[0]
	defer bank.close()
	if names := all.Names(); len(names) != 1 || names[0] != "pay.charge" || pay.running != 5 || pay.waiting != 10 {
		t.Errorf("%v %+v", names, pay)
	}
	want := limits{tries: 5, backoff: 10 * time.Millisecond, backoffCap: 2 * time.Second, concurrent: 10, rate: 100}
	got := bank.limits
	if b := got.breaker; b == nil || *b != (breaker{60, 5, 5 * time.Second, time.Second}) {
		t.Errorf("%+v", b)
	}
	if got.breaker = nil; got != want || bank.base.String() != "https://bank.example.org/v1" || bank.answerMax != 1000 || len(bank.allow.networks) != 3 || len(bank.allow.names) != 1 || len(bank.headers) != 2 {
		t.Errorf("%+v %+v", got, bank)
	}
	do, undo, probe := pay.steps[0].do, pay.steps[0].undo, pay.steps[0].probe
	for status, means := range map[int]verdict{200: done, 202: done, 400: final, 404: again, 409: again, 429: final, 500: again} {
		if do.meaning(status) != means {
			t.Errorf("a do's %d is %d, want %d", status, do.meaning(status), means)
		}
	}
	if undo.meaning(404) != done || undo.meaning(410) != done || undo.meaning(400) != again || undo.idempotency != "" || undo.answer != formNone {
		t.Errorf("%+v", undo)
	}
	if probe.meaning(404) != absent || probe.meaning(202) != inProgress || probe.method != "HEAD" || probe.outcome == nil {
		t.Errorf("%+v", probe)
	}
	if do.idempotency != "X-Request-Id" || do.timeout != 2*time.Second || !do.effects || do.undo || !undo.undo {
		t.Errorf("%+v", do)
	}
}

// TestBounds: a file that is too large, or has too much in it, is refused.
//
// covers: E21
func TestBounds(t *testing.T) {
	if _, err := Read("f", []byte(strings.Repeat("#", planfile.BytesMax+1))); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Errorf("%v", err)
	}
	long := strings.Repeat("a", core.ExpressionBytesMax+1)
	if _, err := Read("f", []byte(text("http://127.0.0.1", "", `do: {path: /a, body: "`+long+`"}`))); err == nil || !strings.Contains(err.Error(), "want at most 4096") {
		t.Errorf("%v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there is read")
	}
}

// Nothing that a file can hold stops the reader.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Read("f", data)
		if (all == nil) == (err == nil) {
			t.Errorf("%v and %v", all, err)
		}
	})
}

// TestTemplates: braces in texts and maps of an expression do not end it.
func TestTemplates(t *testing.T) {
	for source, want := range map[string]string{
		"a": "a", "{{a}}": "{a}", "x{a}y{b}": "x<a>y<b>", `{'}'}`: `<'}'>`, `{{{a}}}`: `{<a>}`, `{ {'a': 1}.a }`: `< {'a': 1}.a >`, `{"\"}"}`: `<"\"}">`,
		"a}": "error at 2", "é{a": "error at 2", "{'a}": "error at 1",
	} {
		tmpl, column, err := parseTemplate(source)
		got := ""
		if err != nil {
			got = "error at " + string(rune('0'+column))
		} else {
			for _, p := range tmpl.parts {
				if p.column > 0 {
					got += "<" + p.source + ">"
				}
				got += p.text
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
