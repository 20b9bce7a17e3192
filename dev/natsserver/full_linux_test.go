package natsserver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// smallDisk has the folder on which this test's program mounts a small disk of its own.
const smallDisk = "DULY_TEST_SMALL_DISK"

// TestStartedOnAFullDisk: a server that started on a full disk takes nothing, and takes what is published again when the disk
// has room and it was started again.
//
// covers: L13
func TestStartedOnAFullDisk(t *testing.T) {
	dir := os.Getenv(smallDisk)
	if dir == "" {
		again := exec.Command(os.Args[0], "-test.run=^TestStartedOnAFullDisk$", "-test.v")
		again.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
		out, err := again.CombinedOutput()
		if err != nil && (os.Geteuid() != 0 || strings.Contains(string(out), "mount: operation not permitted")) {
			return // mounting is not allowed here
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestStartedOnAFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := syscall.Mount("disk", dir, "tmpfs", 0, "size=200m"); err != nil {
		t.Fatal("mount: ", err)
	}
	s := begin(t, Options{Dir: filepath.Join(dir, "nats")})
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TASKS", Subjects: []string{"tasks"}, MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	publish := func() error { _, err := js.Publish(t.Context(), "tasks", bytes.Repeat([]byte("x"), 1<<20)); return err }
	if err := publish(); err != nil || s.Cramped() || !s.HasRoom() {
		t.Fatalf("%v, cramped %v, room %v", err, s.Cramped(), s.HasRoom())
	}
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	if s.HasRoom() {
		t.Error("the disk is full and has room")
	}
	restart(t, s, nc)
	if err := publish(); err == nil {
		t.Error("a message is stored on a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err == nil || !s.Cramped() || !s.HasRoom() {
		t.Errorf("%v, cramped %v, room %v: the server has reckoned again", err, s.Cramped(), s.HasRoom())
	}
	restart(t, s, nc)
	if err := publish(); err != nil || s.Cramped() {
		t.Errorf("%v, cramped %v", err, s.Cramped())
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
}

// restart starts the server again, and waits until the client is connected.
func restart(t *testing.T, s *Server, nc *nats.Conn) {
	t.Helper()
	connected := make(chan struct{}, 1)
	nc.SetReconnectHandler(func(*nats.Conn) { connected <- struct{}{} })
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	<-connected
}
