package httpagent

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// auth is how a service knows us.
type auth struct {
	header string // its name
	before string // what stands before the secret, as "Bearer "
	user   string // of basic; empty: not basic
	secret *secret
}

// value is that of the header.
func (a *auth) value() string {
	text := a.secret.value()
	if a.user != "" {
		text = base64.StdEncoding.EncodeToString([]byte(a.user + ":" + text))
	}
	return a.before + text
}

// authorized adds the header to requests to the service's own host, and to no other that it redirects to.
type authorized struct {
	next         http.RoundTripper
	auth         *auth
	scheme, host string
}

// RoundTrip implements http.RoundTripper.
func (t *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == t.scheme && r.URL.Host == t.host {
		r = r.Clone(r.Context())
		r.Header.Set(t.auth.header, t.auth.value())
	}
	return t.next.RoundTrip(r)
}

// hidden stands where a secret stood.
const hidden = "xxxxx"

// hide takes the service's secret out of a text.
func (a *auth) hide(text string) string {
	if a == nil {
		return text
	}
	plain := a.secret.value()
	text = strings.ReplaceAll(text, plain, hidden)
	return strings.ReplaceAll(text, strings.TrimPrefix(a.value(), a.before), hidden)
}
