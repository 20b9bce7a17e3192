package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProfiles: a profile has address and token; its file is the user's own, or it is refused; and its token goes to its
// own address alone.
//
// covers: OP23
func TestProfiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	for _, name := range []string{"DULY_URL", "DULY_TOKEN", "DULY_PROFILE"} {
		t.Setenv(name, "") // put back at the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan string, 1)
	server := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header.Get("Authorization")
			_, _ = w.Write([]byte(`{"agents":[]}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	prod, other := server(), server()
	do := func(code int, in string, args ...string) string {
		t.Helper()
		is, out, errs := command(t, in, args...)
		if is != code {
			t.Errorf("%q: exit %d, want %d: %s%s", args, is, code, out, errs)
		}
		return out + errs
	}
	asks := func(token string, args ...string) {
		t.Helper()
		do(exitDone, "", append([]string{"agents"}, args...)...)
		if is := <-got; is != token {
			t.Errorf("%q: authorization %q, want %q", args, is, token)
		}
	}
	if out := do(exitDone, "", "profile", "list"); !strings.Contains(out, "no profile") {
		t.Error(out)
	}
	do(exitDone, "duly_prod\n", "profile", "add", "prod", prod+"/", "--token-file", "-")
	do(exitDone, "", "profile", "add", "open", other)
	asks("Bearer duly_prod")
	asks("", "--profile", "open")
	asks("", "-s", other)
	asks("", "-s", other, "--profile", "prod") // never to another address
	asks("Bearer duly_prod", "-s", prod, "--profile", "prod")
	t.Setenv("DULY_TOKEN", "duly_env")
	asks("Bearer duly_env")
	t.Setenv("DULY_TOKEN", "")
	do(exitDone, "", "profile", "use", "open")
	asks("")
	out := do(exitDone, "", "profile", "list", "-o", "csv")
	if out != "name,url,token,in_use\nopen,"+other+",false,true\nprod,"+prod+",true,false\n" || strings.Contains(do(exitDone, "", "profile", "list", "-o", "json"), "duly_prod") {
		t.Error(out)
	}
	for says, args := range map[string][]string{
		`profile "nope" is not in`: {"agents", "--profile", "nope"}, "there are open, prod": {"profile", "use", "nope"}, "want http:// or https://": {"profile", "add", "x", "ftp://h"},
		"no password in it": {"profile", "add", "x", "http://u:p@h"}, "without spaces": {"profile", "add", "a b", prod}, "want one token on one line": {"profile", "add", "x", prod, "--token-file", "-"},
	} {
		if out := do(exitUse, "two words", args...); !strings.Contains(out, says) {
			t.Errorf("%q: %s", args, out)
		}
	}
	file := filepath.Join(home, "duly", "profiles.json")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if out := do(exitUse, "", "agents"); !strings.Contains(out, "has tokens and mode 0640, want 0600: chmod 600 "+file) {
		t.Error(out)
	}
	asks("", "-s", other) // the file is not needed
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := do(exitUse, "", "agents"); !strings.Contains(out, "profiles.json: ") {
		t.Error(out)
	}
}

// TestCompletion: a shell is told commands, flags and the values of flags.
//
// covers: OP23
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"duly fail":                          "failures",
		"duly failures ":                     "list preview repair show",
		"duly task re":                       "resolve resubmit",
		"duly failures repair g-1 --action ": "accept edit resolve resubmit undo",
		"duly failures repair --ye":          "--yes",
		"duly agents list -o j":              "json",
		"duly completion ":                   "bash fish zsh",
		"duly nosuch x":                      "",
	} {
		t.Setenv("COMP_LINE", line)
		code, out, _ := command(t, "")
		if got := strings.Join(strings.Fields(out), " "); code != exitDone || got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	t.Setenv("COMP_LINE", "duly agents x")
	t.Setenv("COMP_POINT", "6")
	if _, out, _ := command(t, ""); strings.TrimSpace(out) != "accept-loss\nagents\naudit" {
		t.Errorf("at the sixth letter: %q", out)
	}
	if err := os.Unsetenv("COMP_LINE"); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, _ := command(t, "", "completion", shell); code != exitDone || !strings.Contains(out, "complete") {
			t.Errorf("%s: %q", shell, out)
		}
	}
}

// typing is a person whose answer is what the function gives.
type typing func(p []byte) (int, error)

func (f typing) Read(p []byte) (int, error) { return f(p) }

func (typing) Prompting() bool { return true }

// TestOneNode: a command acts at the node that it has looked at, also where another profile is in use by the time that a
// person has answered: a copy of production has the same tasks.
func TestOneNode(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range []string{"DULY_URL", "DULY_TOKEN", "DULY_PROFILE"} {
		t.Setenv(name, "") // put back at the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	var acted []string
	for _, name := range []string{"staging", "production"} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				acted = append(acted, name)
			}
			_, _ = w.Write([]byte(`{"type":"order","id":"o-1","state":"error","seq":7,"input":{"to":"X"}}`))
		}))
		t.Cleanup(node.Close)
		if code, _, errs := command(t, "", "profile", "add", name, node.URL); code != exitDone {
			t.Fatal(errs)
		}
	}
	answers := typing(func(p []byte) (int, error) {
		if code, _, errs := command(t, "", "profile", "use", "production"); code != exitDone {
			t.Error(errs)
		}
		return copy(p, "y\n"), nil
	})
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"task", "edit", "order", "o-1", "--input", `{"to":"Y"}`, "--reason", "moved"}, streams{answers, &out, &errs})
	if code != exitDone || !slices.Equal(acted, []string{"staging"}) {
		t.Errorf("exit %d, acted at %v: %s%s", code, acted, &out, &errs)
	}
}
