package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

const mit = `Copyright (c) 2026 The Authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

const prose = "You may use this program on Tuesdays, if you send its makers a postcard and tell your friends about them.\n"

// inModule makes a module with these files, by path below it, and one linked package
// in each folder of them.
func inModule(t *testing.T, files map[string]string) *module {
	t.Helper()
	m := &module{path: "example.com/m", version: "v1.2.3", dir: t.TempDir()}
	m.folders = []string{m.dir}
	for name, text := range files {
		path := filepath.Join(m.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		folders, err := upTo(m.dir, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		m.folders = append(m.folders, folders...)
	}
	slices.Sort(m.folders)
	m.folders = slices.Compact(m.folders)
	return m
}

// full is the text of a licence that the scanner knows, without the marks of its patterns.
func full(t *testing.T, id string) string {
	t.Helper()
	for _, l := range licensecheck.BuiltinLicenses() {
		if l.ID == id && l.LRE != "" {
			text := regexp.MustCompile(`(?s)//\*\*.*?\*\*//|\{\{.*?\}\}|__\d+__|\(\(|\)\)\??\??|\|\|`).ReplaceAllString(l.LRE, " ")
			return strings.TrimSpace(text)
		}
	}
	t.Fatalf("the scanner knows no %s", id)
	return ""
}

func TestRefusedByName(t *testing.T) {
	for _, id := range []string{"AGPL-3.0", "CommonsClause", "EPL-2.0", "GPL-2.0", "GPL-3.0", "LGPL-3.0", "MPL-2.0", "SSPL-1.0"} {
		t.Run(id, func(t *testing.T) { refuses(t, inModule(t, map[string]string{"LICENSE": full(t, id)}), id) })
	}
	for _, l := range added {
		t.Run(l.ID, func(t *testing.T) { refuses(t, inModule(t, map[string]string{"LICENSE.txt": l.LRE}), l.ID) })
	}
	t.Run("in words", func(t *testing.T) {
		const notice = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public
License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.`
		refuses(t, inModule(t, map[string]string{"COPYING": notice}), "GPL-3.0")
	})
	t.Run("beside a permissive one", func(t *testing.T) {
		refuses(t, inModule(t, map[string]string{"LICENSE": mit + "\n" + full(t, "GPL-3.0")}), "GPL-3.0")
	})
	t.Run("of a package below", func(t *testing.T) {
		refuses(t, inModule(t, map[string]string{"LICENSE": mit, "a/b/LICENSE.md": full(t, "EPL-2.0")}), "a/b/LICENSE.md: licence EPL-2.0")
	})
	t.Run("by a link", func(t *testing.T) {
		refuses(t, inModule(t, map[string]string{"LICENSE": mit + "\nhttps://www.gnu.org/licenses/agpl.txt\n"}), "AGPL-3.0")
	})
}

func TestUnknownIsRefused(t *testing.T) {
	refuses(t, inModule(t, map[string]string{"LICENSE": prose}), "LICENSE: unknown licence")
	refuses(t, inModule(t, map[string]string{"LICENSE": mit + strings.Repeat(prose, 10)}), "LICENSE: unknown licence")
	refuses(t, inModule(t, map[string]string{"README.md": mit}), "no licence file at the top")
	refuses(t, inModule(t, map[string]string{"a/LICENSE": mit}), "no licence file at the top")
	refuses(t, inModule(t, map[string]string{"LICENSE": strings.Repeat(mit, fileBytesMax/len(mit)+1)}), "the limit is")
}

// refuses checks that the error names the module, and has what is wanted.
func refuses(t *testing.T, m *module, want string) {
	t.Helper()
	err := classify([]*module{m})
	if err == nil || !strings.Contains(err.Error(), "example.com/m v1.2.3: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error of the module with %q", err, want)
	}
}

func TestPermissive(t *testing.T) {
	m := inModule(t, map[string]string{
		"LICENSE": mit, "NOTICE": "of the module", "a/LICENCE": full(t, "ISC"), "license.go": "package m", "a/code.go": "package a",
	})
	if err := classify([]*module{m}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.licences, []string{"ISC", "MIT"}) || !slices.Equal(m.notices, []string{"NOTICE"}) {
		t.Errorf("got licences %v and notices %v", m.licences, m.notices)
	}
	table := string(render("./cmd/m", []*module{m}))
	for _, want := range []string{"| `example.com/m` | v1.2.3 | ISC, MIT |\n", "the NOTICE files: `example.com/m/NOTICE`."} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// TestReviewedTextAlone: what was read counts for that text, not for the next version's.
func TestReviewedTextAlone(t *testing.T) {
	read := reviewed[1]
	m := inModule(t, map[string]string{"LICENSE": mit, read.file: "https://commons.wikimedia.org/wiki/File:Memory_infra_logo.png\n"})
	m.path = read.module
	if err := classify([]*module{m}); err != nil {
		t.Error(err)
	}
	m = inModule(t, map[string]string{"LICENSE": mit, read.file: prose})
	m.path = read.module
	if err := classify([]*module{m}); err == nil || !strings.Contains(err.Error(), "not the text that was read") {
		t.Errorf("got %v", err)
	}
}

// TestCheckFindsAnOldTable runs the whole on a module without dependencies.
func TestCheckFindsAnOldTable(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stale := func(when string) {
		t.Helper()
		if err := run(root, ".", "third-party.md", "", true); err == nil || !strings.Contains(err.Error(), "make licences") {
			t.Errorf("%s: got %v, want to be told of make licences", when, err)
		}
	}
	stale("without a table")
	if err := run(root, ".", "third-party.md", "", false); err != nil {
		t.Fatal(err)
	}
	if err := run(root, ".", "third-party.md", "", true); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(root, "third-party.md"), []byte("of yesterday\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stale("with an old table")
}

func TestCollectRefusesWhatIsNotInTheCache(t *testing.T) {
	for _, fields := range [][]string{{"m", "v1", "", "/x"}, {"m", "v1"}, {"m", "v1", "/cache/m", "/elsewhere"}} {
		if err := collect(map[string]*module{}, fields); err == nil {
			t.Errorf("%q: no error", fields)
		}
	}
}

// TestCarry copies the texts of a module's licences, and nothing else.
func TestCarry(t *testing.T) {
	m := inModule(t, map[string]string{"LICENSE": mit, "NOTICE": "made by m\n", "README.md": "m\n"})
	if err := classify([]*module{m}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := carry([]*module{m}, dir); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, m.path+"@"+m.version)
	for name, want := range map[string]bool{"LICENSE": true, "NOTICE": true, "README.md": false} {
		if _, err := os.Stat(filepath.Join(at, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
}
