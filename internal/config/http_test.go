package config

import (
	"strings"
	"testing"
	"time"
)

// TestHTTPNeedsAuthElsewhere: an address that others reach is served with authentication, or by a word that it is not
// wanted.
//
// covers: OP17
func TestHTTPNeedsAuthElsewhere(t *testing.T) {
	for addr, loopback := range map[string]bool{
		"127.0.0.1:7310": true, "127.9.8.7:1": true, "[::1]:7310": true, "localhost:7310": true, "[::ffff:127.0.0.1]:1": true,
		":7310": false, "0.0.0.0:7310": false, "[::]:7310": false, "10.0.0.1:7310": false, "duly.example.org:443": false, "localhost.evil.example:1": false,
	} {
		for auth, needs := range map[string]bool{"": true, AuthOff: true, AuthToken: false} {
			for _, insecure := range []bool{false, true} {
				c := good()
				c.HTTPAddr, c.Auth, c.Insecure = addr, auth, insecure
				err := c.Validate()
				if refused := needs && !loopback && !insecure || !needs && insecure; (err != nil) != refused {
					t.Errorf("%s, auth %q, insecure %v: %v", addr, auth, insecure, err)
				}
				if err != nil && needs && (!strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "--auth token") || !strings.Contains(err.Error(), "--insecure")) {
					t.Errorf("%s: %v, want what to do", addr, err)
				}
			}
		}
	}
}

// TestHTTPNamesTheSetting: what cannot work is refused by its name, value and limit.
func TestHTTPNamesTheSetting(t *testing.T) {
	for _, bad := range []struct {
		spoil func(*HTTP)
		want  string
	}{
		{func(c *HTTP) { c.Auth = "basic" }, `auth: "basic", want off, token or oidc`},
		{func(c *HTTP) { c.TLSCert = "a.pem" }, "http-tls-cert and http-tls-key go together"},
		{func(c *HTTP) { c.URL = "ops.example.org" }, `http-url: "ops.example.org"`},
		{func(c *HTTP) { c.URL = "https://user:pw@ops.example.org" }, "http-url"},
		{func(c *HTTP) { c.Auth = AuthOIDC }, "oidc needs oidc-issuer"},
		{func(c *HTTP) {
			c.Auth, c.OIDCIssuer, c.OIDCClientID, c.URL = AuthOIDC, "https://id", "duly", "https://ops"
		}, "needs a group"},
		{func(c *HTTP) { c.CertAdmins = []string{"ops"} }, "http-cert-admins: given without http-client-ca"},
		{func(c *HTTP) { c.ClientCA = "ca.pem" }, "http-client-ca: given, but none of"},
		{func(c *HTTP) { c.ClientCA, c.CertViewers, c.Auth = "ca.pem", []string{"a"}, AuthToken }, "give http-tls-cert"},
		{func(c *HTTP) { c.ClientCA, c.CertViewers, c.TLSCert, c.TLSKey = "ca.pem", []string{"a"}, "c", "k" }, "with --auth off"},
		{func(c *HTTP) {
			c.ClientCA, c.CertViewers, c.Auth, c.TLSCert, c.TLSKey = "ca.pem", []string{" "}, AuthToken, "c", "k"
		}, "http-cert-viewers"},
		{func(c *HTTP) { c.Streams = -1 }, "http-streams: -1, want 0"},
		{func(c *HTTP) { c.Streams = 10_001 }, "http-streams: 10001, want 0 (the default) to 10000"},
		{func(c *HTTP) { c.LiveInterval = time.Millisecond }, "live-interval: 1ms"},
		{func(c *HTTP) { c.Hosts = []string{"a", " "} }, "http-hosts"},
		{func(c *HTTP) { c.OIDCAdmins = make([]string, 65) }, "oidc-admins: 65 given, want at most 64"},
	} {
		c := good()
		bad.spoil(&c.HTTP)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v, want %q", err, bad.want)
		}
	}
}

// TestHTTPAddr: what is no address to serve at is said to be none, and not to be one that others reach.
func TestHTTPAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"7310": "http-addr: 7310, want host and port, such as 127.0.0.1:7310", "localhost": "want host and port",
		"127.0.0.1:99999": `http-addr: 127.0.0.1:99999 has the port "99999", want 0 to 65535`, "127.0.0.1:": "want 0 to 65535",
	} {
		c := good()
		c.HTTPAddr, c.Auth = addr, AuthOff
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", addr, err, want)
		}
	}
}
