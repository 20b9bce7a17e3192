package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"duly.dev/duly/dev/natsserver"
)

// The test's program can be started as two things besides the program itself: with a small disk of its own mounted on the
// directory that the first names, which grows at SIGUSR1; and as a NATS server, in the directory that the second names,
// that can write no file larger than fileLimit.
const (
	smallDisk     = "DULY_TEST_SMALL_DISK"
	limitedServer = "DULY_TEST_LIMITED_SERVER"
	fileLimit     = 1 << 20
)

func init() {
	if dir := os.Getenv(limitedServer); dir != "" {
		if err := beLimitedServer(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir := os.Getenv(smallDisk)
	if dir == "" {
		return
	}
	if err := syscall.Mount("disk", dir, "tmpfs", 0, "size=1536k"); err != nil {
		fmt.Fprintln(os.Stderr, "mount:", err)
		os.Exit(4)
	}
	grow := make(chan os.Signal, 1)
	signal.Notify(grow, syscall.SIGUSR1)
	go func() {
		<-grow
		if err := syscall.Mount("disk", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
			fmt.Fprintln(os.Stderr, "remount:", err)
		}
	}()
}

// beLimitedServer is a NATS server until the test ends it.
func beLimitedServer(dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	limit := syscall.Rlimit{Cur: fileLimit, Max: fileLimit}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	s, err := natsserver.Start(natsserver.Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// TestFullDiskOfSQLiteIsTold: the disk of `duly dev`'s database is full: not ready, with its reason, until there is room;
// then what was accepted runs.
//
// covers: B2
func TestFullDiskOfSQLiteIsTold(t *testing.T) {
	t.Parallel()
	data, disk := t.TempDir(), t.TempDir()
	if err := os.Symlink(filepath.Join(disk, "duly.db"), filepath.Join(data, "duly.db")); err != nil {
		t.Fatal(err)
	}
	n, err := spawnWith(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, smallDisk+"="+disk)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	}, "dev", "--port", "0", "--nats-port", "0", "--data-dir", data)
	if err != nil {
		if os.Geteuid() == 0 && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		return // mounting is not allowed here
	}
	at := n.ready()
	idleAt(t, regexp.MustCompile(`url=(nats://\S+)`).FindStringSubmatch(n.log())[1])
	large := `"` + strings.Repeat("x", 60_000) + `"`
	last := ""
	for i := range 40 {
		id := fmt.Sprint("t", i)
		if code, _ := ask(t, "PUT", at+"/v1/tasks/idle/"+id, large); code == 202 {
			last = id
		}
	}
	n.troubled(at, "commits", "full", 15*time.Second)
	if !n.alive(at) {
		t.Error("not alive, but a restart would not help")
	}
	if err := n.process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	n.over(at, "commits")
	until(t, "the last task is there", func() bool { code, _ := ask(t, "GET", at+"/v1/tasks/idle/"+last, ""); return code == 200 })
}

// TestWriteErrorIsTold: a task stream that met a write error takes nothing until its server is restarted.
//
// covers: B4
func TestWriteErrorIsTold(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	dir := t.TempDir()
	limited := selfCommand(t, append(os.Environ(), limitedServer+"="+dir))
	stdin, err := limited.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := limited.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := limited.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = stdin.Close()
		_ = limited.Wait()
	}
	defer stop()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if address = strings.TrimSpace(address); err != nil || !strings.HasPrefix(address, "nats://") {
		t.Fatal(address, err)
	}
	n := g.serve(t, "n", "--nats-url", address)
	at := n.ready()
	idleAt(t, address)
	large := `"` + strings.Repeat("x", 200_000) + `"`
	until(t, "a submission is not stored", func() bool {
		code, text := ask(t, "POST", at+"/v1/tasks/idle", large)
		if code == 202 {
			return false
		}
		if code != 504 && code != 503 {
			t.Fatalf("%d %s", code, text)
		}
		return true
	})
	n.troubled(at, "streams", "its server must be restarted", 15*time.Second)
	if _, all := readiness(t, at); !strings.Contains(all["streams"].Error, "DULY_TASKS") {
		t.Errorf("the stream is not named: %v", all)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := g.nats.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if g.nats, err = natsserver.Start(natsserver.Options{Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	n.over(at, "streams")
}
