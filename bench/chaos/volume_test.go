package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestVolume: a full volume takes nothing and gives it back afterwards. Where the
// machine does not let anybody mount, mount says so.
func TestVolume(t *testing.T) {
	t.Setenv(namespaceEnv, "shared")
	if _, err := mount(filepath.Join(t.TempDir(), "v")); err == nil {
		t.Fatal("it mounts where all would see it")
	}
	t.Setenv(namespaceEnv, "private")
	v, err := mount(filepath.Join(t.TempDir(), "v"))
	if err != nil {
		if os.Geteuid() == 0 && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		return
	}
	t.Cleanup(func() {
		if err := v.close(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(v.dir, "f")
	write := func() error { return os.WriteFile(file, make([]byte, 1<<20), 0o600) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := v.fill(); err != nil {
		t.Fatal(err)
	}
	more := filepath.Join(v.dir, "more")
	if err := os.WriteFile(more, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full volume: %v, want no space", err)
	}
	if err := v.free(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(more, make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("room again: %v", err)
	}
}
