package natsbus

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

// limitedServer makes the test's program a NATS server that can write no file larger
// than fileLimit: its directory is the value.
const (
	limitedServer = "DULY_TEST_LIMITED_SERVER"
	fileLimit     = 1 << 20
)

func init() {
	dir := os.Getenv(limitedServer)
	if dir == "" {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	limit := syscall.Rlimit{Cur: fileLimit, Max: fileLimit}
	err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	var s *natsserver.Server
	if err == nil {
		s, err = natsserver.Start(natsserver.Options{Dir: dir})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test ends it
	os.Exit(0)
}

// TestWriteError: a stream that met a write error answers for itself, and nothing that is
// published to it. It is told as what only a restart of the server mends, and is over
// after that.
func TestWriteError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), limitedServer+"="+dir)
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = stdin.Close()
		_ = server.Wait()
	}
	defer stop()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if address = strings.TrimSpace(address); err != nil || !strings.HasPrefix(address, "nats://") {
		t.Fatal(address, err)
	}
	c := dialWith(t, Options{URL: address, AckTimeout: 500e6})
	guarded(t, c, StreamConfig{})
	publish := func(n int) error {
		got := make(chan error, 1)
		c.PublishPack(part, []core.Submission{{Type: "order", ID: idIn(part, 16, n), Input: []byte(`"` + string(bytes.Repeat([]byte("x"), 100_000)) + `"`), At: at}}, func(_ uint64, err error) { got <- err })
		return receive(t, "an outcome", got)
	}
	var failed error
	for i := 0; failed == nil && i < 40; i++ {
		failed = publish(i)
	}
	if failed == nil {
		t.Fatal("4 MB went to a file of 1 MB")
	}
	found := awaitTrouble(t, c, names.StreamTasks(), ErrWrite)
	if !found.Fatal || !strings.Contains(found.Err.Error(), "too large") {
		t.Errorf("%+v", found)
	}
	if other := trouble(c, names.StreamEvents()); other != nil {
		t.Errorf("%+v", other)
	}
	port := portOf(t, address)
	stop()
	eventually(t, "disconnect", func() bool { return !c.Connected() })
	serve(t, natsserver.Options{Dir: dir, Port: port})
	awaitWell(t, c)
	if err := publish(50); err != nil && !errors.Is(err, errBusy) {
		t.Error(err)
	}
}
