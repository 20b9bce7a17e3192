package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"duly.dev/duly/bench/internal/procfs"
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

// TestVolumeWithoutMounts: where nothing can be mounted, a writer and its children can
// write no more until there is room again.
func TestVolumeWithoutMounts(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command("sh", "-c", `while read -r f; do sh -c "trap '' XFSZ; echo much > $f" && echo written || echo full; done`)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}()
	v := &volume{dir: dir, writers: func() ([]int, error) { return procfs.Family(child.Process.Pid), nil }}
	said := bufio.NewReader(out)
	write := func(want string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
		if got, err := said.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	write("written")
	if err := v.fill(); err != nil {
		t.Fatal(err)
	}
	write("full")
	if err := v.free(); err != nil {
		t.Fatal(err)
	}
	write("written")
	if err := v.close(); err != nil {
		t.Error(err)
	}
	if all := procfs.Family(os.Getpid()); !slices.Contains(all, child.Process.Pid) || !slices.Contains(all, os.Getpid()) {
		t.Errorf("family %v", all)
	}
}
