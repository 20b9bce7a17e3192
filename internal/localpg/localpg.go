// Package localpg starts throwaway PostgreSQL clusters from the machine's own
// binaries, for tests and local runs. A cluster disappears with the process that
// started it, also when that process is killed.
package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/freeport"
)

// Options change a cluster; the zero value is fine.
type Options struct {
	Dir      string            // parent of the cluster's directory; empty: the system's temporary directory
	FsyncOff bool              // faster, and a loss of power may lose everything
	Settings map[string]string // of the server, by name
}

// Cluster is one running server.
type Cluster struct {
	dir, sockets string
	port         int
	bin          binaries
	guard        *guard
	options      Options
	databases    atomic.Int64
	stop         sync.Once
	stopped      error
}

const (
	superuser  = "postgres"
	portTries  = 5
	startLimit = 60 * time.Second
	// stopLimit is also for removing what was written: a hundred thousand files after
	// 290 databases, which takes ten seconds where the disk is quiet.
	stopLimit = 2 * time.Minute
	// socketPathMax leaves room for the name of the socket within the 107 bytes
	// that an address may have.
	socketPathMax = 80
)

// Start makes a cluster and waits until it takes connections. A missing
// installation is an error that says how to install it.
func Start(o Options) (*Cluster, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	user, err := serverUser()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, options: o}
	if c.dir, err = makeDir(o.Dir, "dulypg", user); err != nil {
		return nil, err
	}
	if c.sockets, err = makeSocketDir(user); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	if c.guard, err = watch(user, c.dir, c.sockets); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir), os.RemoveAll(c.sockets))
	}
	if err := c.start(o); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// makeSocketDir makes the directory of the sockets apart from the data, because
// the address of a socket is short.
func makeSocketDir(user *account) (string, error) {
	dir, err := makeDir("", "dpg", user)
	if err == nil && len(dir) > socketPathMax {
		err = errors.Join(fmt.Errorf("socket directory %s is longer than %d bytes: set TMPDIR to a shorter path", dir, socketPathMax), os.Remove(dir))
	}
	return dir, err
}

func makeDir(parent, prefix string, user *account) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", fmt.Errorf("parent of the cluster: %w", err)
	}
	if err := user.openPath(parent); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", fmt.Errorf("directory of the cluster: %w", err)
	}
	if err := user.own(dir); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) start(o Options) error {
	init := c.guard.command(c.dir, c.bin.path("initdb"), "-D", c.data(), "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	var last error
	for range portTries {
		ports, err := freeport.Find(1)
		if err != nil {
			return err
		}
		c.port = ports[0]
		if last = c.serve(o); last == nil {
			return nil
		}
	}
	return fmt.Errorf("start PostgreSQL, %d ports tried: %w", portTries, last)
}

// serve starts the server on c.port and waits until it is ready or has exited.
func (c *Cluster) serve(o Options) error {
	var log bytes.Buffer
	cmd := c.guard.command(c.dir, c.bin.path("postgres"), c.arguments(o)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	for {
		select {
		case err := <-exited:
			return fmt.Errorf("postgres exited: %w: %s", errors.Join(err, errors.New("before it was ready")), bytes.TrimSpace(log.Bytes()))
		case <-limit.C:
			return errors.Join(fmt.Errorf("postgres is not ready after %v", startLimit), cmd.Process.Kill())
		case <-tick.C:
			if c.ready() {
				c.guard.serverExited = exited
				return nil
			}
		}
	}
}

// ready reads the server's own word for it: a port that answers may be another
// server's.
func (c *Cluster) ready() bool {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 8 || strings.TrimSpace(lines[3]) != strconv.Itoa(c.port) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby" // which takes connections, too
}

func (c *Cluster) arguments(o Options) []string {
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port), "-k", c.sockets, "-c", "listen_addresses=127.0.0.1"}
	if o.FsyncOff {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	names := make([]string, 0, len(o.Settings))
	for name := range o.Settings {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		args = append(args, "-c", name+"="+o.Settings[name])
	}
	return args
}

// URL is where a database of the cluster is.
func (c *Cluster) URL(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, c.port, database)
}

// PID is the process of the server's postmaster, the parent of all others.
func (c *Cluster) PID() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("process of the server: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return 0, fmt.Errorf("process of the server: %w", err)
	}
	return pid, nil
}

// NewDatabase makes an empty database and returns its URL.
func (c *Cluster) NewDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("d%d", c.databases.Add(1))
	if err := c.execute(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return c.URL(name), nil
}

// Stop ends the server at once and removes everything it wrote.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		c.stopped = c.guard.release()
		for _, dir := range []string{c.dir, c.sockets} {
			if _, err := os.Lstat(dir); err == nil {
				c.stopped = errors.Join(c.stopped, fmt.Errorf("%s is still there", dir))
			}
		}
	})
	return c.stopped
}

// Crash ends the server as `pg_ctl stop -m immediate` does: at once, without a
// checkpoint. What it wrote stays; Restart recovers it. A server that has ended by
// itself is fine too.
func (c *Cluster) Crash() error {
	if !c.Running() {
		return nil
	}
	pid, err := c.PID()
	if err != nil {
		return err
	}
	if err := signalQuit(pid); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	select {
	case <-c.guard.serverExited:
	case <-time.After(stopLimit):
		return fmt.Errorf("the server has not stopped after %v", stopLimit)
	}
	c.guard.serverExited = nil
	return nil
}

// Running reports whether the server has not ended, by itself or otherwise.
func (c *Cluster) Running() bool {
	if c.guard.serverExited == nil {
		return false
	}
	select {
	case err := <-c.guard.serverExited:
		again := make(chan error, 1)
		again <- err
		c.guard.serverExited = again
		return false
	default:
		return true
	}
}

// Restart starts the server again after Crash, or after it ended by itself, or a
// Copy for the first time, at the same address, and waits until it takes connections. Crash, Running and
// Restart are not for use by several goroutines at a time.
func (c *Cluster) Restart() error {
	if c.Running() {
		return errors.New("restart PostgreSQL: it is running")
	}
	if err := os.Remove(filepath.Join(c.data(), "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	if err := c.serve(c.options); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return nil
}

// environment is ours without what would lead the server's programs elsewhere.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "PG") || strings.HasPrefix(s, "LC_") || strings.HasPrefix(s, "LANG")
	})
	return append(env, "LC_ALL=C")
}
