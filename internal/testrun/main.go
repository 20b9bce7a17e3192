//go:build unix

// Command testrun runs a command with what the tests of this repository share: one PostgreSQL server, whose URL is in
// the command's environment (pgtestdb.Env), and one temporary folder. It passes on what the command prints, says at
// least once a minute what is at work, and at the end how long each part took and which packages passed.
//
// It leaves nothing behind, also when it is interrupted: the command's processes are ended, those too that were started
// to outlive their parent, and the folder is removed. A process or a file that is still there after the command is
// told and makes the run fail, because a test has left it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly/internal/disk"
	"duly.dev/duly/internal/pgtestdb"
)

const (
	// endLimit is how long an interrupted command may take to end by itself.
	endLimit = 20 * time.Second
	// quietMax is how long the command may print nothing before the runner says what is at work.
	quietMax = 40 * time.Second
	// written is what the tests write into the temporary folder, at most.
	written = 3 << 30
)

func main() {
	times := flag.String("times", "", "file for the seconds of each part, one a line")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: testrun [-times FILE] COMMAND [ARG…]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r := &run{out: os.Stdout, times: *times}
	if err := r.all(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run is one run of a command.
type run struct {
	out   io.Writer
	times string // the file of times; empty: none
	spare int64  // bytes that must be free besides what the tests write
	temp  string // the folder of temporary files
	log   *log
}

// all runs the command in its surroundings, and clears them away whatever came of it.
func (r *run) all(ctx context.Context, command []string) (err error) {
	if err := r.makeTemp(); err != nil {
		return err
	}
	parent := filepath.Dir(r.temp)
	defer func() { err = errors.Join(err, os.RemoveAll(r.temp), os.Setenv("TMPDIR", parent)) }()
	adopt()
	server, err := pgtestdb.Start()
	if err != nil {
		return fmt.Errorf("PostgreSQL for the tests: %w", err)
	}
	err = pgtestdb.MakeTemplate(ctx, server.URL("postgres"))
	if err == nil {
		err = r.command(ctx, command, pgtestdb.Env+"="+server.URL("postgres"))
	}
	err = errors.Join(err, server.Stop())
	return errors.Join(err, r.left(endStrays()))
}

// makeTemp makes the folder that all temporary files of the run are in.
func (r *run) makeTemp() error {
	parent := os.TempDir()
	var err error
	if free, _, known := disk.Room(parent); known && free < written+r.spare {
		want := written + r.spare
		err = fmt.Errorf("%d MiB are free and the tests want %d: make room there, or set TMPDIR to a folder with room", free>>20, want>>20)
	}
	if err == nil {
		r.temp, err = os.MkdirTemp(parent, "tests-")
	}
	if err != nil {
		return fmt.Errorf("temporary folder %s: %w", parent, err)
	}
	// Servers that run as another user pass through it.
	return errors.Join(os.Chmod(r.temp, 0o755), os.Setenv("TMPDIR", r.temp))
}

// command runs the command until it ends, or the context does.
func (r *run) command(ctx context.Context, command []string, environment ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is interrupted by us alone
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = to, to
	err = errors.Join(cmd.Start(), to.Close())
	if err != nil {
		return errors.Join(err, from.Close())
	}
	r.log = newLog(r.out)
	copied := make(chan struct{})
	go func() { defer close(copied); r.log.copy(from) }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = r.wait(ctx, cmd.Process.Pid, ended)
	// Whoever outlives the command may hold the pipe open.
	select {
	case <-copied:
	case <-time.After(time.Second):
	}
	err = errors.Join(err, from.Close())
	<-copied
	return errors.Join(err, r.log.summary(r.times))
}

// wait waits for the end of the command and says meanwhile what is at work.
func (r *run) wait(ctx context.Context, pid int, ended <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			r.log.quiet(quietMax, atWork)
		case <-ctx.Done():
			fmt.Fprintln(r.out, "testrun: interrupted; ending what runs")
			_ = syscall.Kill(-pid, syscall.SIGINT) // it may have ended
			select {
			case <-ended:
			case <-time.After(endLimit):
				_ = syscall.Kill(-pid, syscall.SIGKILL)
				<-ended
			}
			return errors.New("interrupted; nothing is left behind, run it again")
		}
	}
}

// left tells processes and files that a test has left.
func (r *run) left(processes []string) error {
	files, err := filepath.Glob(filepath.Join(r.temp, "*"))
	left := append(processes, files...)
	if err != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("the tests left behind:\n  %s", strings.Join(left, "\n  "))
}
