package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestRelease makes the release of this machine's target from this checkout, which builds and packs everything twice and
// compares it, and finds faults that are planted in what was made.
func TestRelease(t *testing.T) {
	target := runtime.GOOS + "/" + runtime.GOARCH
	r := &release{root: "../..", out: t.TempDir(), version: "1.2.3", targets: []string{target}}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), programName)
	unpack(t, filepath.Join(r.out, r.archiveName(target)), r.name(target)+"/"+programName, binary)
	bom := filepath.Join(r.out, r.sbomName(target))
	if err := checkBOM(bom, binary); err != nil {
		t.Errorf("the program in the archive: %v", err)
	}
	for _, fault := range []struct {
		name, from, to, want string
		check                func(path string) error
	}{
		{"a module less", `"name": "github.com/nats-io/nats.go"`, `"name": "github.com/nats-io/nats.other"`, "is not linked", func(path string) error { return checkBOM(path, binary) }},
		{"another version", `"version": "v5.`, `"version": "v4.`, "is not linked", func(path string) error { return checkBOM(path, binary) }},
		{"no package URL", `"purl": "pkg:golang/github.com/nats-io`, `"purl": "pkg:npm/github.com/nats-io`, "no package URL", func(path string) error { return checkBOM(path, binary) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bom.json")
			replace(t, bom, path, fault.from, fault.to)
			if err := fault.check(path); err == nil || !strings.Contains(err.Error(), fault.want) {
				t.Errorf("got %v, want %q", err, fault.want)
			}
		})
	}
	replace(t, bom, bom, `"components"`, ` "components"`)
	if err := r.verify(); err == nil || !strings.Contains(err.Error(), sumsName) {
		t.Errorf("of a file that was changed: %v", err)
	}
}

// TestInspect: a program that is not what a release has is refused: this test's own, which is built another way.
func TestInspect(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: "/nowhere", work: t.TempDir(), version: "1"}
	if err := r.inspect(t.Context(), runtime.GOOS+"/"+runtime.GOARCH, self); err == nil || !strings.Contains(err.Error(), "built without") {
		t.Errorf("of a program of this test: %v", err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	if err := static("linux", "/bin/sh"); err == nil || !strings.Contains(err.Error(), "dynamic linker") {
		t.Errorf("of the shell: %v", err)
	}
}

// TestSame: two files that differ in one byte are not the same.
func TestSame(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one", "b": "one", "c": "onE"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := same(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Error(err)
	}
	if err := same(filepath.Join(dir, "a"), filepath.Join(dir, "c")); err == nil {
		t.Error("files that differ are the same")
	}
}

// TestEmpty: a folder with anything else is left alone.
func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(sumsName)
	put("duly_1_linux_amd64.zip")
	if err := empty(dir); err != nil {
		t.Error(err)
	}
	put(sumsName)
	put("letter.txt")
	if err := empty(dir); err == nil || !strings.Contains(err.Error(), "letter.txt") {
		t.Errorf("of a folder with a letter: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, sumsName)); err != nil {
		t.Error(err)
	}
}

// TestNewest reads the version of a changelog.
func TestNewest(t *testing.T) {
	for text, want := range map[string]string{
		"# Changelog\n\n## [1.2.0] – unreleased\n\n## [1.1.0] – 2026-01-01\n": "1.2.0-dev",
		"## [1.1.0] – 2026-01-01\n## [1.0.0] – 2025-01-01\n":                  "1.1.0",
		"nothing\n": "",
	} {
		path := filepath.Join(t.TempDir(), "CHANGELOG.md")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := newest(path); got != want || (err == nil) != (want != "") {
			t.Errorf("of %q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func replace(t *testing.T, source, to, from, with string) {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %q", source, from)
	}
	if err := os.WriteFile(to, []byte(strings.Replace(string(text), from, with, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unpack takes one file out of an archive.
func unpack(t *testing.T, archive, name, to string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for all := tar.NewReader(unpacked); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != name {
			continue
		}
		text, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, os.FileMode(h.Mode)); err != nil {
			t.Fatal(err)
		}
		return
	}
}
