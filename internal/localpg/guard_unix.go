//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that the server runs as: another one when the process is root's,
// which the server refuses. Nil: the process's own.
type account struct{ uid, gid uint32 }

func serverUser() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody")
}

func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("directory of the cluster: %w", err)
	}
	return nil
}

// openPath lets the account pass through to dir: directories below the
// temporary one are a test's own and may be opened, others are left alone.
func (a *account) openPath(dir string) error {
	if a == nil {
		return nil
	}
	temp := filepath.Clean(os.TempDir())
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("parent of the cluster: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			if !strings.HasPrefix(at, temp+"/") {
				return fmt.Errorf("%s cannot be entered by the server's user: choose another directory for the cluster", at)
			}
			if err := os.Chmod(at, info.Mode().Perm()|0o011); err != nil {
				return fmt.Errorf("parent of the cluster: %w", err)
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// watchdog waits until the pipe on its input closes, which the kernel does for a
// process that was killed, too. Then it stops every process of its group, and
// removes the directories. The first is the cluster's.
const watchdog = `trap '' HUP INT TERM QUIT PIPE
cat >/dev/null
kill -QUIT -- -$$ 2>/dev/null
pidfile="$1/data/postmaster.pid"
n=0
while [ -s "$pidfile" ] && [ $n -lt 200 ]; do
	pid=$(head -n 1 "$pidfile" 2>/dev/null)
	kill -QUIT "$pid" 2>/dev/null || break
	sleep 0.05; n=$((n+1))
	[ $n -eq 100 ] && kill -KILL "$pid" 2>/dev/null
done
n=0
while [ $n -lt 100 ]; do
	rm -rf -- "$@" 2>/dev/null
	gone=1
	for d in "$@"; do [ -e "$d" ] && gone=0; done
	[ $gone = 1 ] && exit 0
	sleep 0.05; n=$((n+1))
done
exit 1`

// guard is the watchdog and the end of the pipe that keeps it waiting.
type guard struct {
	user         *account
	cmd          *exec.Cmd
	pipe         *os.File
	serverExited <-chan error
}

func watch(user *account, dirs ...string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchdog, "duly-pgtest-watchdog"}, dirs...)...)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("watchdog: %w", err), w.Close())
	}
	return &guard{user: user, cmd: cmd, pipe: w}, nil
}

// command is a program of the server, as the server's user, in the watchdog's
// group.
func (g *guard) command(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
	if g.user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: g.user.uid, Gid: g.user.gid}
	}
	return cmd
}

// signalQuit asks a server to end at once.
func signalQuit(pid int) error { return syscall.Kill(pid, syscall.SIGQUIT) }

// release lets the watchdog do its work and waits for it.
func (g *guard) release() error {
	err := g.pipe.Close()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case werr := <-done:
		if werr != nil {
			err = errors.Join(err, fmt.Errorf("watchdog: %w", werr))
		}
	case <-limit.C:
		return errors.Join(err, fmt.Errorf("the server has not stopped after %v", stopLimit))
	}
	if g.serverExited != nil {
		select {
		case <-g.serverExited: // how it died says nothing: it was killed
		case <-limit.C:
			return errors.Join(err, fmt.Errorf("the server has not stopped after %v", stopLimit))
		}
	}
	return err
}
