package localpg

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a child that starts a cluster, says where it
// is, and waits to be killed.
const childEnv = "DULY_PGTEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func child(dir string) {
	c, err := Start(Options{Dir: dir, FsyncOff: true})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println(c.dir, c.sockets, c.port)
	select {}
}

func TestStartAndStop(t *testing.T) {
	c, err := Start(Options{Dir: t.TempDir(), FsyncOff: true, Settings: map[string]string{"max_connections": "17"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if pid, err := c.PID(); err != nil || pid <= 0 {
		t.Errorf("process id %d, %v", pid, err)
	}
	one, err := c.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, err := Version()
	if err != nil {
		t.Fatal(err)
	}
	if says := ask(t, c, one, "SHOW server_version"); version == "" || says != version && !strings.HasPrefix(says, version+" ") {
		t.Errorf("version %q, the server says %q", version, says)
	}
	two, err := c.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if one == two {
		t.Errorf("two databases share the URL %s", one)
	}
	for query, want := range map[string]string{"SHOW max_connections": "17", "SHOW fsync": "off", "SHOW listen_addresses": "127.0.0.1", "SHOW server_encoding": "UTF8"} {
		if got := ask(t, c, one, query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if len(c.sockets) > 100 {
		t.Errorf("socket directory %s has %d bytes", c.sockets, len(c.sockets))
	}
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if left := remains(c.dir, c.sockets, c.port); left != "" {
		t.Error(left)
	}
}

func TestFsyncIsOnByDefault(t *testing.T) {
	c, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if got := ask(t, c, c.URL("postgres"), "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
}

func TestBadSettingIsAnErrorAndLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	_, err := Start(Options{Dir: parent, Settings: map[string]string{"no_such_setting_of_the_server": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting_of_the_server") {
		t.Errorf("error %v, want one that names the setting", err)
	}
	if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestMissingBinariesNameTheCommand(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin"); len(versions) == 0 {
		if _, err := Start(Options{}); !errors.Is(err, errNotInstalled) {
			t.Errorf("error %v", err)
		}
	} else if _, err := find(); err != nil {
		t.Errorf("the versions of the system are not found without PATH: %v", err)
	}
	if !strings.Contains(errNotInstalled.Error(), "apt-get install -y postgresql") {
		t.Errorf("%q does not say what to run", errNotInstalled)
	}
	if complete(t.TempDir()) {
		t.Error("an empty directory counts as an installation")
	}
}

func TestKilledProcessLeavesNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var dir, sockets string
	var port int
	if _, serr := fmt.Sscan(line, &dir, &sockets, &port); serr != nil {
		t.Fatalf("child says %q, %v", line, errors.Join(err, serr, cmd.Process.Kill()))
	}
	if remains(dir, sockets, port) == "" {
		t.Error("the child's cluster is not there")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		left := remains(dir, sockets, port)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(left)
		}
	}
}

// remains says what of a cluster is left.
func remains(dir, sockets string, port int) string {
	for _, d := range []string{dir, sockets} {
		if _, err := os.Lstat(d); err == nil {
			return "directory " + d + " is left"
		}
	}
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return ""
	}
	conn.Close()
	return fmt.Sprintf("port %d answers", port)
}

func ask(t *testing.T, c *Cluster, database, query string) string {
	t.Helper()
	if _, err := url.Parse(database); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(c.bin.path("psql"), "-XAtq", "-d", database, "-c", query).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", query, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestCrashAndRestart: what was committed is there again, at the same address.
func TestCrashAndRestart(t *testing.T) {
	c, err := Start(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	url := c.URL("postgres")
	ask(t, c, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	if err := c.Restart(); err == nil || !strings.Contains(err.Error(), "it is running") {
		t.Errorf("restart of a running server: %v", err)
	}
	for range 2 { // a second time there is nothing left to end
		if err := c.Crash(); err != nil {
			t.Fatal(err)
		}
		if c.Running() {
			t.Fatal("it runs after the crash")
		}
	}
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if !c.Running() {
		t.Error("it does not run after the restart")
	}
	if got := ask(t, c, url, "SELECT n FROM kept"); got != "7" {
		t.Errorf("%q after the crash, want 7", got)
	}
}
