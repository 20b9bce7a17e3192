package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
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
// it: its size becomes what is used. Where the machine does not let us mount, it is
// a plain folder, and full means that the processes that write to it may write no
// file beyond fileBytes.
type volume struct {
	dir     string
	writers func() ([]int, error) // nil: a disk
}

// fileBytes is what a file may hold on a full volume that is none.
const fileBytes = 1

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
	return &volume{dir: dir}, nil
}

// fill leaves no room.
func (v *volume) fill() error {
	if v.writers != nil {
		return v.limit(fileBytes)
	}
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
func (v *volume) free() error {
	if v.writers != nil {
		return v.limit(unix.RLIM_INFINITY)
	}
	return v.resize(volumeBytes)
}

// limit bounds the files of the processes that write here. One that has ended meanwhile
// writes nothing.
func (v *volume) limit(bytes uint64) error {
	pids, err := v.writers()
	if err != nil {
		return fmt.Errorf("writers of %s: %w", v.dir, err)
	}
	for _, pid := range pids {
		err := limit(pid, bytes)
		if errors.Is(err, unix.EPERM) {
			err = limitAs(pid, bytes)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("file size of process %d: %w", pid, err)
		}
	}
	return nil
}

func limit(pid int, bytes uint64) error {
	var is unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &is); err != nil {
		return err
	}
	is.Cur = min(bytes, is.Max)
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &is, nil)
}

// limitAs does it as the process's own user: PostgreSQL's is another than ours where
// we are root, and root may not everywhere touch the limits of others.
func limitAs(pid int, bytes uint64) error {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if errors.Is(err, os.ErrNotExist) {
		return unix.ESRCH
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return unix.EPERM
	}
	size := "unlimited"
	if bytes != unix.RLIM_INFINITY {
		size = strconv.FormatUint(bytes, 10)
	}
	cmd := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--fsize="+size+":") // the soft limit alone
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case unix.Kill(pid, 0) != nil:
		return unix.ESRCH
	}
	return fmt.Errorf("%w: prlimit as user %d: %w: %s", unix.EPERM, owner.Uid, err, out)
}

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
	if v == nil || v.writers != nil {
		return nil
	}
	if err := syscall.Unmount(v.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("volume %s: %w", filepath.Base(v.dir), err)
	}
	return nil
}
