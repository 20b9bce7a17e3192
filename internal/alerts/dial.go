package alerts

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"duly.dev/duly/internal/egress"
)

// Times of one try.
const (
	dialMax = 5 * time.Second
	tryMax  = 15 * time.Second // all of it
)

// errLocal is wrapped by the error about a channel that leads to this machine or to what only its neighbours can reach.
var errLocal = errors.New("address refused: alerts do not go to this machine, its neighbours, a cloud's metadata or special networks without --alerts-allow-local")

// refused reports whether an address is one that no alert may go to: an operator who may configure a channel must not
// reach services of this machine, nor the metadata service of its cloud.
func refused(addr netip.Addr) bool { return !egress.Public(addr) && !egress.Private(addr) }

// dialer makes connections. The check is of the address that is dialled, after the name was looked up: a name that means
// another address a moment later does not get around it.
func dialer(allowLocal bool) *net.Dialer {
	d := &net.Dialer{Timeout: dialMax}
	if allowLocal {
		return d
	}
	d.Control = func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if refused(at.Addr()) {
			return finalError{fmt.Errorf("%s: %w", at.Addr(), errLocal)}
		}
		return nil
	}
	return d
}

// httpClient is for webhooks. It uses no proxy: a proxy would reach what the dialer refuses.
func httpClient(allowLocal bool, roots *x509.CertPool) *http.Client {
	return &http.Client{
		Timeout: tryMax, CheckRedirect: sameHost,
		Transport: egress.Unswitched{RoundTripper: &http.Transport{DialContext: dialer(allowLocal).DialContext, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialMax, ResponseHeaderTimeout: tryMax,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 32 << 10, ForceAttemptHTTP2: true}},
	}
}
