package dev_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// openFiles is how many this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// filesFor raises the limit of open files and says how many connections fit,
// each with both its ends in this process.
func filesFor(t *testing.T, want int) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	before := limit
	limit.Cur = min(limit.Max, uint64(2*want+2000))
	if limit.Cur > before.Cur {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }) // lower is always allowed
	}
	return min(want, int(max(before.Cur, limit.Cur)-2000)/2)
}

// TestIdleConnections: ten thousand clients that connect and say nothing more.
// Tasks run meanwhile, and afterwards every file is given back.
//
// covers: E26
func TestIdleConnections(t *testing.T) {
	want := 10_000
	if raceDetector {
		want = 2_500
	}
	n := filesFor(t, want)
	w := start(t)
	w.plan(abusePlan)
	w.agent("good.only", answers(`{}`), nil)
	w.good("before")
	u, err := url.Parse(w.sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close() // a second time
		}
	}()
	for range n {
		c, err := net.DialTimeout("tcp", u.Host, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns)+1, err)
		}
		conns = append(conns, c)
		if _, err := c.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB x 1\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if most := before + 2*n + 100; openFiles(t) > most {
		t.Errorf("%d files are open, want at most %d", openFiles(t), most)
	}
	for i := range 20 {
		w.good(fmt.Sprintf("meanwhile-%d", i))
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	w.until("the files are given back", func() bool { return openFiles(t) <= before+50 })
	w.good("after")
	t.Logf("%d idle connections", n)
}
