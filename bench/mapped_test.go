package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mappings are the lines of this process's memory map that name a file under dir.
func mappings(t *testing.T, dir string) (names []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.Index(line, dir); i >= 0 {
			names = append(names, strings.TrimSpace(line[i+len(dir)+1:]))
		}
	}
	return names
}

func TestKeepCached(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"log/1": 3 << 12, "log/2": 100, "log/empty": 0, "base/5/table": 1 << 12, "other": 1 << 12} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release, err := keepCached(filepath.Join(dir, "log"), filepath.Join(dir, "base"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(mappings(t, dir), " "); strings.Count(got, " ") != 2 || !strings.Contains(got, "log/1") || !strings.Contains(got, "log/2") || !strings.Contains(got, "base/5/table") {
		t.Errorf("mapped: %q", got)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if got := mappings(t, dir); len(got) > 0 {
		t.Errorf("still mapped: %q", got)
	}
}

func TestKeepCachedLetsGoWhenItFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keepCached(dir, filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if got := mappings(t, dir); len(got) > 0 {
		t.Errorf("still mapped: %q", got)
	}
}
