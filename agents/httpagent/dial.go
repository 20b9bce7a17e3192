package httpagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly/internal/egress"
)

// Times and sizes of connections.
const (
	dialMax        = 5 * time.Second
	idleMax        = 1500 * time.Millisecond // usual servers end an idle connection after 2 s or more
	idleConnsMax   = 256
	headerBytesMax = 64 << 10
	redirectsMax   = 5
)

// ErrAddress is wrapped by the error about an address that may not be dialled.
var ErrAddress = errors.New("address refused: private, loopback and link-local addresses are dialled only where allow names the host or its network")

// addresses are what a service may be dialled at besides public addresses.
type addresses struct {
	names    []string // of hosts, in lower case
	networks []netip.Prefix
}

// within reports whether one of the networks has an address. A cloud's metadata is not what a network is allowed for: only
// its address alone means it.
func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) && (n.IsSingleIP() || !egress.Metadata(addr)) })
}

// may reports whether an address may be dialled.
func (a *addresses) may(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return egress.Public(addr) || within(a.networks, addr)
}

// named reports whether a host may have any address.
func (a *addresses) named(host string) bool {
	return slices.Contains(a.names, strings.TrimSuffix(strings.ToLower(host), "."))
}

// dial makes a connection. The check is of the address that is dialled, after the name was looked up: a name that means
// another address a moment later does not get around it.
func (a *addresses) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialMax}
	if host, _, err := net.SplitHostPort(address); err != nil || !a.named(host) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("address %s: %w", address, err)
			}
			if !a.may(at.Addr()) {
				return fmt.Errorf("%s: %w", at.Addr(), ErrAddress)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// newClient is the client of a service. It uses no proxy: a proxy would reach what the dialer refuses.
func (s *service) newClient(secure *tls.Config) *http.Client {
	s.transport = &http.Transport{
		DialContext: s.allow.dial, TLSClientConfig: secure, TLSHandshakeTimeout: dialMax, DisableCompression: true,
		MaxIdleConns: idleConnsMax, MaxIdleConnsPerHost: idleConnsMax, IdleConnTimeout: idleMax, MaxResponseHeaderBytes: headerBytesMax, ForceAttemptHTTP2: true,
	}
	client := &http.Client{Transport: egress.Unswitched{RoundTripper: changed{s.transport, once}}, CheckRedirect: s.redirect}
	if s.auth != nil {
		client.Transport = changed{client.Transport, s.authorize}
	}
	return client
}

// changed is a transport that makes a changed copy of each request.
type changed struct {
	http.RoundTripper
	change func(*http.Request)
}

// RoundTrip implements http.RoundTripper.
func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.change(r)
	return c.RoundTripper.RoundTrip(r)
}

// replayable are the headers that say that a key makes it safe to send a request again.
var replayable = []string{"Idempotency-Key", "X-Idempotency-Key"}

// once keeps a transport from sending a request again that a service may have acted on. [http.Transport] does that by
// itself where a kept connection ends without an answer, for a body that can be read again, or none, and a method that is
// safe or a header that says so. A redirect is another request, by the client.
func once(r *http.Request) {
	r.GetBody = nil
	if r.Body == nil || r.Body == http.NoBody {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			r.Body = io.NopCloser(strings.NewReader("")) // a body of unknown length, which turns out to be none
		}
	}
	for _, name := range replayable {
		if values, ok := r.Header[name]; ok { // it looks for the names as they are written here
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
}

// kept are the headers that go to another host that a service redirects to: what Duly says of itself and the body. Those
// of the file are for the service.
var kept = []string{"Accept", "Content-Type", "User-Agent", "Traceparent"}

// keyHeader is the key, in a request's context, of the header with the idempotency key, which is Duly's own too.
type keyHeader struct{}

// redirect refuses a redirect to a host that is not named, or one that would lose the method and the body.
func (s *service) redirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch host := strings.ToLower(next.URL.Hostname()); {
	case next.URL.Host == s.base.Host && next.URL.Scheme == s.base.Scheme:
	case next.URL.Scheme != "https" && next.URL.Scheme != s.base.Scheme || !slices.Contains(s.redirects, host):
		return fmt.Errorf("it redirects to %s://%s, which is not one of its redirects", next.URL.Scheme, next.URL.Host)
	default:
		for name := range next.Header {
			if !slices.Contains(kept, name) && name != next.Context().Value(keyHeader{}) {
				next.Header.Del(name)
			}
		}
	}
	if next.Method != first.Method {
		return fmt.Errorf("it redirects by a status that makes a %s of the %s", next.Method, first.Method)
	}
	if len(via) > redirectsMax {
		return fmt.Errorf("it redirects more than %d times", redirectsMax)
	}
	return nil
}
