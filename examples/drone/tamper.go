package drone

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Tamper is a bad network on the agents' side: it doubles and drops replies on
// their way to NATS. It works below the agents, on the bytes of the connection,
// so that nothing above knows of it. Half of the doubles follow at once; the
// others are held back until something else was sent, and arrive stale.
type Tamper struct {
	mu      sync.Mutex
	dice    dice
	doubled float64
	dropped float64
	counts  struct{ replies, doubled, dropped atomic.Int64 }
}

// NewTamper draws from a seed with the shares Doubled and Dropped.
func NewTamper(seed uint64, f Faults) (*Tamper, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return &Tamper{dice: dice{state: mix(seed)}, doubled: f.Doubled, dropped: f.Dropped}, nil
}

// Option makes an agent's connection to NATS go through the bad network. The
// connection must be plain TCP, without TLS.
func (t *Tamper) Option() nats.Option { return nats.SetCustomDialer(t) }

// Counts is how many replies passed, and how many of them were doubled and dropped.
func (t *Tamper) Counts() (replies, doubled, dropped int64) {
	return t.counts.replies.Load(), t.counts.doubled.Load(), t.counts.dropped.Load()
}

// Dial is what nats.go calls to connect.
func (t *Tamper) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &tamperedConn{Conn: conn, tamper: t}, nil
}

// verdict is what happens to one reply.
type verdict uint8

const (
	verdictPass verdict = iota
	verdictDrop
	verdictDouble
	verdictDoubleLate
)

func (t *Tamper) judge() verdict {
	t.mu.Lock()
	u, late := unit(t.dice.next()), t.dice.next()&1 == 0
	t.mu.Unlock()
	t.counts.replies.Add(1)
	switch {
	case u < t.dropped:
		t.counts.dropped.Add(1)
		return verdictDrop
	case u >= t.dropped+t.doubled:
		return verdictPass
	}
	t.counts.doubled.Add(1)
	if late {
		return verdictDoubleLate
	}
	return verdictDouble
}

// tamperedConn reads along with what the client writes.
type tamperedConn struct {
	net.Conn
	tamper *Tamper

	mu   sync.Mutex
	in   []byte // written by the client, not yet a whole frame
	out  []byte // whole frames on their way
	held []byte // a double that waits for the next frame
}

// Write passes whole frames on and keeps the beginning of an unfinished one.
func (c *tamperedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, p...)
	c.out = c.out[:0]
	rest := c.in
	for {
		n, subject := frame(rest)
		if n == 0 {
			break
		}
		c.pass(rest[:n], subject)
		rest = rest[n:]
	}
	c.in = append(c.in[:0], rest...)
	if len(c.out) == 0 {
		return len(p), nil
	}
	if _, err := c.Conn.Write(c.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *tamperedConn) pass(frame, subject []byte) {
	verdict := verdictPass
	if isReply(subject) {
		verdict = c.tamper.judge()
	}
	if verdict != verdictDrop {
		c.out = append(c.out, frame...)
	}
	c.out = append(c.out, c.held...)
	c.held = c.held[:0]
	switch verdict {
	case verdictDouble:
		c.out = append(c.out, frame...)
	case verdictDoubleLate:
		c.held = append(c.held, frame...)
	}
}

// isReply knows the reply to a command by the second token of its subject.
func isReply(subject []byte) bool {
	_, rest, ok := bytes.Cut(subject, []byte{'.'})
	return ok && bytes.HasPrefix(rest, []byte("reply."))
}

// frame finds the first whole frame of the NATS client protocol: a line, and
// behind PUB and HPUB as many bytes as the line's last number says. It returns
// 0 when the frame is not complete. subject is nil for other verbs.
func frame(b []byte) (n int, subject []byte) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return 0, nil
	}
	line, n := b[:end], end+2
	if !bytes.HasPrefix(line, []byte("PUB ")) && !bytes.HasPrefix(line, []byte("HPUB ")) {
		return n, nil
	}
	fields := bytes.Fields(line)
	size, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil || len(fields) < 3 {
		return n, nil // the server's to complain about
	}
	if n += size + 2; n > len(b) {
		return 0, nil
	}
	return n, fields[1]
}
