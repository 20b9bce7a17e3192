package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
)

// freePorts are ports without a listener now. The servers of a round keep theirs over
// restarts.
func freePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	var errs []error
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			errs = append(errs, fmt.Errorf("find a free port: %w", err))
			break
		}
		held, ports = append(held, l), append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return ports, errors.Join(errs...)
}

// addrOf is host:port of a URL.
func addrOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("address of %q: want a URL with a host", text)
	}
	return u.Host, nil
}
