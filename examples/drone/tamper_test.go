package drone

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
)

// capture is a connection that keeps what is written to it.
type capture struct {
	net.Conn
	bytes.Buffer
	err error
}

func (c *capture) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.Buffer.Write(p)
}

func (c *capture) Read([]byte) (int, error) { return 0, io.EOF }

const (
	connectFrame = "CONNECT {\"verbose\":false}\r\n"
	subFrame     = "SUB duly.do.account.check q 1\r\n"
	otherFrame   = "PUB _INBOX.x 7\r\na\r\nb\r\nc\r\n" // a payload with line ends
	replyFrame   = "PUB duly.reply.3.17.2 2\r\n{}\r\n"
	headerFrame  = "HPUB duly.reply.3.17.4 18 20\r\nNATS/1.0\r\nA: b\r\n\r\n{}\r\n"
	emptyFrame   = "PUB duly.reply.3.18.2 0\r\n\r\n"
)

// through writes the frames in pieces of a size and returns what came out.
func through(t *testing.T, f Faults, piece int, frames ...string) string {
	t.Helper()
	tamper, err := NewTamper(1, f)
	if err != nil {
		t.Fatal(err)
	}
	out := &capture{}
	conn := &tamperedConn{Conn: out, tamper: tamper}
	all := []byte(strings.Join(frames, ""))
	for len(all) > 0 {
		n := min(piece, len(all))
		if wrote, err := conn.Write(all[:n]); wrote != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", wrote, n, err)
		}
		all = all[n:]
	}
	return out.String()
}

func TestTamperPassesEverythingElse(t *testing.T) {
	frames := []string{connectFrame, subFrame, otherFrame, replyFrame, headerFrame, emptyFrame, "PING\r\n"}
	for piece := 1; piece < 80; piece++ {
		if got := through(t, Faults{}, piece, frames...); got != strings.Join(frames, "") {
			t.Fatalf("in pieces of %d: %q", piece, got)
		}
	}
}

// covers: E2
func TestTamperDropsReplies(t *testing.T) {
	got := through(t, Faults{Dropped: 1}, 7, connectFrame, replyFrame, otherFrame, headerFrame, emptyFrame, subFrame)
	if want := connectFrame + otherFrame + subFrame; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// covers: E2
func TestTamperDoublesReplies(t *testing.T) {
	got := through(t, Faults{Doubled: 1}, 11, replyFrame, otherFrame, headerFrame, otherFrame, emptyFrame, otherFrame)
	for _, frame := range []string{replyFrame, headerFrame, emptyFrame} {
		if n := strings.Count(got, frame); n != 2 {
			t.Errorf("%q came %d times, want 2", frame, n)
		}
	}
	if n := strings.Count(got, otherFrame); n != 3 {
		t.Errorf("%q came %d times, want 3", otherFrame, n)
	}
}

func TestTamperShares(t *testing.T) {
	tamper, err := NewTamper(3, FaultsStorm)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	late := 0
	for range n {
		if tamper.judge() == verdictDoubleLate {
			late++
		}
	}
	replies, doubled, dropped := tamper.Counts()
	if replies != n {
		t.Errorf("%d replies, want %d", replies, n)
	}
	for what, got := range map[string]float64{"doubled": float64(doubled), "dropped": float64(dropped), "late, twice": 2 * float64(late)} {
		if math.Abs(got/n-0.005) > 0.001 {
			t.Errorf("%s: %.4f, want 0.005", what, got/n)
		}
	}
}

func TestTamperGivesErrorsOn(t *testing.T) {
	tamper, err := NewTamper(1, Faults{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	conn := &tamperedConn{Conn: &capture{err: broken}, tamper: tamper}
	if n, err := conn.Write([]byte("PING\r\n")); n != 0 || !errors.Is(err, broken) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if _, err := tamper.Dial("tcp", "127.0.0.1:1"); err == nil {
		t.Error("dialled a port that nothing listens on")
	}
	if _, err := NewTamper(1, Faults{Dropped: 2}); err == nil {
		t.Error("a share of 2 was accepted")
	}
}
