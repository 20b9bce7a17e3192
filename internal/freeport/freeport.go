// Package freeport finds ports for servers of tests that have to know theirs before they listen.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Below where systems take the ports from that they give to connections, and to listeners that name none: between this look
// and the server's start such a one would be another's, now and then.
const (
	lowest  = 10_000
	highest = 32_000
	draws   = 100
)

// Of is a port of 127.0.0.1 at which nothing listens. It is drawn, so that tests which run side by side have others.
func Of(tb testing.TB) int {
	tb.Helper()
	var last error
	for range draws {
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", Addr(port))
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return port
		}
		last = err
	}
	tb.Fatalf("no free port in %d draws: %v", draws, last)
	return 0
}

// Addr is the address of a port.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
