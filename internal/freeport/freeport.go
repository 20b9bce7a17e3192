// Package freeport finds ports for servers that have to know theirs before they listen, in tests and benchmarks.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Below where systems take the ports from that they give to connections, and to listeners that name none: between this look
// and the server's start such a one would be another's, now and then.
const (
	lowest  = 10_000
	highest = 32_000
	draws   = 100 // for each port
)

// Find returns n ports of 127.0.0.1 at which nothing listens, no two the same. They are drawn, so that what runs side by side
// has others.
func Find(n int) (ports []int, err error) {
	var held []net.Listener // until all are found
	var last error
	for range draws * n {
		if len(ports) == n {
			break
		}
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", Addr(port))
		if err != nil {
			last = err
			continue
		}
		held, ports = append(held, l), append(ports, port)
	}
	if len(ports) < n {
		err = fmt.Errorf("%d free ports: %w", n, last)
	}
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	return ports, err
}

// Of is one port for a test, which fails when there is none.
func Of(t interface {
	Helper()
	Fatal(args ...any)
}) int {
	t.Helper()
	ports, err := Find(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// Addr is the address of a port.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
