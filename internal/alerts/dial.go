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
)

// Times of one try.
const (
	dialMax = 5 * time.Second
	tryMax  = 15 * time.Second // all of it
)

// ErrLocal is wrapped by the error about a channel that leads to this machine or to what only its neighbours can reach.
var ErrLocal = errors.New("address refused: alerts do not go to loopback, link-local or multicast addresses without --alerts-allow-local")

// nat64 holds IPv4 addresses within IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// refused reports whether an address is one that no alert may go to: an operator who may configure a channel must not
// reach services of this machine, nor the metadata service of its cloud.
func refused(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || addr == awsMetadata6 || !addr.IsValid() ||
		addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || addr.Is4() && addr.As4()[0] == 0
}

// awsMetadata6 is a metadata service at an address that is not link-local.
var awsMetadata6 = netip.MustParseAddr("fd00:ec2::254")

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
			return finalError{fmt.Errorf("%s: %w", at.Addr(), ErrLocal)}
		}
		return nil
	}
	return d
}

// httpClient is for webhooks. It uses no proxy: a proxy would reach what the dialer refuses.
func httpClient(allowLocal bool, roots *x509.CertPool) *http.Client {
	return &http.Client{
		Timeout: tryMax, CheckRedirect: sameHost,
		Transport: &http.Transport{DialContext: dialer(allowLocal).DialContext, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialMax, ResponseHeaderTimeout: tryMax,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 32 << 10, ForceAttemptHTTP2: true},
	}
}
