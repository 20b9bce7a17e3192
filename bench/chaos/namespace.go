package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// namespaceEnv tells the second process of a round where it is: "private" in a
// mount namespace of its own, "shared" where the machine does not let it.
const namespaceEnv = "CHAOS_NAMESPACE"

// inNamespace runs this program again with its own view of what is mounted, so
// that its small disks are gone with it, however it ends.
func inNamespace(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	start := func(private bool) (*exec.Cmd, error) {
		cmd := exec.Command(self, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), namespaceEnv+"=shared")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if private {
			cmd.Env = append(os.Environ(), namespaceEnv+"=private")
			cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		}
		return cmd, cmd.Start()
	}
	cmd, err := start(true)
	if err != nil {
		if cmd, err = start(false); err != nil {
			return fmt.Errorf("own program: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it may have ended
	defer stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("round: %w", err)
	}
	return nil
}

// volume is a disk of its own, small enough to fill up. Nothing is written to fill
// it: its size becomes what is used.
type volume struct{ dir string }

// volumeBytes is a volume's size; only what is used takes memory.
const volumeBytes = 12 << 30

// spareBytes is what a full volume has left: less than any write of a log needs.
const spareBytes = 64 << 10

// mount makes the volume. An error means that the machine does not allow it.
func mount(dir string) (*volume, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	if os.Getenv(namespaceEnv) != "private" {
		return nil, fmt.Errorf("volume %s: no mount namespace of our own", dir)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", int64(volumeBytes))); err != nil {
		return nil, fmt.Errorf("volume %s: %w", dir, err)
	}
	return &volume{dir}, nil
}

// fill leaves no room.
func (v *volume) fill() error {
	var last error
	for range 100 { // it is written to meanwhile: a size below what is used is refused
		used, err := v.used()
		if err != nil {
			return err
		}
		if last = v.resize(used + spareBytes); last == nil {
			return nil
		}
	}
	return fmt.Errorf("volume %s cannot be filled: %w", v.dir, last)
}

// free gives the room back.
func (v *volume) free() error { return v.resize(volumeBytes) }

func (v *volume) used() (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(v.dir, &s); err != nil {
		return 0, fmt.Errorf("volume %s: %w", v.dir, err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, nil
}

func (v *volume) resize(bytes int64) error {
	if err := syscall.Mount("tmpfs", v.dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("volume %s: size %d: %w", v.dir, bytes, err)
	}
	return nil
}

func (v *volume) close() error {
	if v == nil {
		return nil
	}
	if err := syscall.Unmount(v.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("volume %s: %w", filepath.Base(v.dir), err)
	}
	return nil
}
