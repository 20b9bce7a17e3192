package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	natsd "github.com/nats-io/nats-server/v2/server"

	"duly.dev/duly/internal/localpg"
)

// ownMounts says that this process is the test below, in a mount namespace of its own.
const ownMounts = "DULY_TEST_OWN_MOUNTS"

// TestDoctorFindsAFullDisk: PostgreSQL and NATS have their data on a disk that is full to the last byte. It is mounted by
// a process of its own, and ends with that.
//
// covers: OP23
func TestDoctorFindsAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv(ownMounts) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDoctorFindsAFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), ownMounts+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil && strings.Contains(string(out), "--- PASS: TestDoctorFindsAFullDisk"):
		case err != nil && !errors.As(err, &exit) && os.Geteuid() != 0, errors.Is(err, syscall.EPERM):
			return // mounting is not allowed here
		default:
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	disk := t.TempDir()
	if err := syscall.Mount("disk", disk, "tmpfs", 0, "size=200m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	pg, err := localpg.Start(localpg.Options{Dir: disk, FsyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	p := healthy(t)
	if p.cfg.DatabaseURL, err = pg.NewDatabase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), p.cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	p.dir = filepath.Join(disk, "nats")
	p.restart(func(*natsd.Options) {})
	p.cfg.StreamMaxBytes, p.cfg.StreamEventsMaxBytes, p.cfg.StreamControlMaxBytes, p.cfg.StreamDeadMaxBytes = 1<<20, 1<<20, 1<<20, 1<<20
	p.visit()
	fill := filepath.Join(disk, "fill")
	if err := fillUp(t.Context(), fill); err != nil {
		t.Fatal(err)
	}
	p.finds([]string{checkDatabaseDisk, checkNATSDisk, checkStorage}, "the database has no room on its disk", "SQLSTATE 53100")
	for check, says := range map[string]string{checkNATSDisk: "the disk of server solo", checkStorage: "the disk of server solo has"} {
		if f := p.examine().of(check); !strings.Contains(f.What, says) {
			t.Errorf("%+v", f)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	p.finds(nil)
}

// fillUp writes until nothing more is taken.
func fillUp(ctx context.Context, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		if _, err := f.Write(buf); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return f.Close()
			}
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(ctx.Err(), f.Close())
}
