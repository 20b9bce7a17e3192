package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// HTTP is who may ask a node over HTTP, and how.
type HTTP struct {
	Auth     string   `name:"auth" env:"DULY_AUTH" default:"off" enum:"off,token,oidc" help:"Who may ask over HTTP: off (everyone, as admin; on loopback alone, or with --insecure), token (bearer tokens; duly token create makes the first), oidc (tokens, and people sign in at an identity provider)."`
	Insecure bool     `name:"insecure" env:"DULY_INSECURE" help:"Serve everyone who reaches an http-addr that is not loopback, without authentication."`
	URL      string   `name:"http-url" env:"DULY_HTTP_URL" help:"What browsers call this node, with the path that a proxy puts before: https://ops.example.org/duly. Cookies are for TLS alone if it is https."`
	Hosts    []string `name:"http-hosts" env:"DULY_HTTP_HOSTS" help:"Names that a request may have as its host: on loopback beside this machine's own, elsewhere alone (default there: any; with --auth off addresses, localhost and names without a dot)."`
	TLSCert  string   `name:"http-tls-cert" env:"DULY_HTTP_TLS_CERT" help:"File with the certificate of HTTPS and its chain, PEM; read again when it changes."`
	TLSKey   string   `name:"http-tls-key" env:"DULY_HTTP_TLS_KEY" help:"File with its key, PEM."`

	ClientCA      string   `name:"http-client-ca" env:"DULY_HTTP_CLIENT_CA" help:"File with the authorities, PEM, whose client certificates are taken, beside tokens; read again when it changes. Who shows one is named by its URI, or else its common name."`
	CertClients   []string `name:"http-cert-clients" env:"DULY_HTTP_CERT_CLIENTS" help:"Client certificates that may submit, read single tasks and cancel: by name, or O=… or OU=… of the subject."`
	CertViewers   []string `name:"http-cert-viewers" env:"DULY_HTTP_CERT_VIEWERS" help:"Those that may read."`
	CertOperators []string `name:"http-cert-operators" env:"DULY_HTTP_CERT_OPERATORS" help:"Those that may act on tasks, too."`
	CertAdmins    []string `name:"http-cert-admins" env:"DULY_HTTP_CERT_ADMINS" help:"Those that may make tokens and change settings, too."`

	OIDCIssuer     string   `name:"oidc-issuer" env:"DULY_OIDC_ISSUER" help:"URL of the identity provider."`
	OIDCClientID   string   `name:"oidc-client-id" env:"DULY_OIDC_CLIENT_ID" help:"Id of Duly at the identity provider."`
	OIDCSecretFile string   `name:"oidc-client-secret-file" env:"DULY_OIDC_CLIENT_SECRET_FILE" help:"File with Duly's secret there; without it Duly is a public client."`
	OIDCClaim      string   `name:"oidc-claim" env:"DULY_OIDC_CLAIM" default:"groups" help:"Claim that has a person's groups."`
	OIDCViewers    []string `name:"oidc-viewers" env:"DULY_OIDC_VIEWERS" help:"Groups that may read."`
	OIDCOperators  []string `name:"oidc-operators" env:"DULY_OIDC_OPERATORS" help:"Groups that may act on tasks, too."`
	OIDCAdmins     []string `name:"oidc-admins" env:"DULY_OIDC_ADMINS" help:"Groups that may make tokens and change settings, too."`

	Streams      int           `name:"http-streams" env:"DULY_HTTP_STREAMS" default:"64" help:"Event streams (server-sent events) that a node serves at a time. 0: the default."`
	LiveInterval time.Duration `name:"live-interval" env:"DULY_LIVE_INTERVAL" default:"2s" help:"How often a node reads what is shown live, while something shows it. 0: the default."`
}

// The modes of Auth.
const (
	AuthOff   = "off"
	AuthToken = "token"
	AuthOIDC  = "oidc"
)

// Limits of HTTP.
const (
	streamsMax      = 10_000
	httpListMax     = 64
	liveIntervalMin = 500 * time.Millisecond
	liveIntervalMax = time.Minute
)

// Loopback reports whether an address to serve HTTP at is reached from this machine alone. A name other than localhost
// is not asked for: it counts as reached from elsewhere.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// validate refuses what cannot work, or would open the node to everyone unsaid; addr is where it serves.
func (c *HTTP) validate(addr string) error {
	if addr != "" {
		if _, port, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("http-addr: %s, want host and port, such as 127.0.0.1:7310", addr)
		} else if _, err = strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("http-addr: %s has the port %q, want 0 to 65535", addr, port)
		}
	}
	switch c.Auth {
	case "", AuthOff:
		if addr != "" && !Loopback(addr) && !c.Insecure {
			return fmt.Errorf("http-addr: %s can be reached from other machines, and auth is off: give --auth token (duly token create makes the first token) or --auth oidc, "+
				"or --insecure where every host of the network may do everything", addr)
		}
	case AuthToken, AuthOIDC:
		if c.Insecure {
			return fmt.Errorf("insecure: given with --auth %s, want one of the two", c.Auth)
		}
	default:
		return fmt.Errorf("auth: %q, want off, token or oidc", c.Auth)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("http-tls-cert and http-tls-key go together: one is given, want both or none")
	}
	given := ""
	for _, list := range []struct {
		name string
		is   []string
	}{{"http-cert-clients", c.CertClients}, {"http-cert-viewers", c.CertViewers}, {"http-cert-operators", c.CertOperators}, {"http-cert-admins", c.CertAdmins}} {
		if len(list.is) > 0 {
			given = list.name
		}
	}
	switch {
	case c.ClientCA == "" && given != "":
		return fmt.Errorf("%s: given without http-client-ca, against which certificates are checked", given)
	case c.ClientCA == "":
	case given == "":
		return errors.New("http-client-ca: given, but none of http-cert-clients, -viewers, -operators and -admins: no certificate could do anything")
	case c.TLSCert == "":
		return errors.New("http-client-ca: certificates are shown by TLS: give http-tls-cert and http-tls-key")
	case c.Auth != AuthToken && c.Auth != AuthOIDC:
		return errors.New("http-client-ca: with --auth off everyone may do everything: give --auth token or --auth oidc")
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return fmt.Errorf("http-url: %q, want a scheme, a host and perhaps a path, as https://ops.example.org/duly", c.URL)
		}
	}
	if c.Auth == AuthOIDC && (c.OIDCIssuer == "" || c.OIDCClientID == "" || c.URL == "") {
		return errors.New("auth: oidc needs oidc-issuer, oidc-client-id and http-url")
	}
	if c.Auth == AuthOIDC && len(c.OIDCViewers)+len(c.OIDCOperators)+len(c.OIDCAdmins) == 0 {
		return errors.New("auth: oidc needs a group in oidc-viewers, oidc-operators or oidc-admins, or no person could do anything")
	}
	if c.Streams < 0 || c.Streams > streamsMax {
		return fmt.Errorf("http-streams: %d, want 0 (the default) to %d", c.Streams, streamsMax)
	}
	if c.LiveInterval != 0 && (c.LiveInterval < liveIntervalMin || c.LiveInterval > liveIntervalMax) {
		return fmt.Errorf("live-interval: %v, want 0 (the default), or %v to %v", c.LiveInterval, liveIntervalMin, liveIntervalMax)
	}
	for _, list := range []struct {
		name string
		is   []string
	}{{"http-hosts", c.Hosts}, {"oidc-viewers", c.OIDCViewers}, {"oidc-operators", c.OIDCOperators}, {"oidc-admins", c.OIDCAdmins}, {"http-cert-clients", c.CertClients}, {"http-cert-viewers", c.CertViewers},
		{"http-cert-operators", c.CertOperators}, {"http-cert-admins", c.CertAdmins}} {
		if len(list.is) > httpListMax {
			return fmt.Errorf("%s: %d given, want at most %d", list.name, len(list.is), httpListMax)
		}
		for _, one := range list.is {
			if strings.TrimSpace(one) == "" {
				return fmt.Errorf("%s: %q has an empty one", list.name, list.is)
			}
		}
	}
	return nil
}
