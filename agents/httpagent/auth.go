package httpagent

import (
	"encoding/base64"
	"net/http"
	"strings"

	"duly.dev/duly/internal/redact"
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

// authorize adds the header to a request to the service's own host, and to no other that it redirects to.
func (s *service) authorize(r *http.Request) {
	if r.URL.Scheme == s.base.Scheme && r.URL.Host == s.base.Host {
		r.Header.Set(s.auth.header, s.auth.value())
	}
}

// hide takes the service's secret out of a text.
func (a *auth) hide(text string) string {
	if a == nil {
		return text
	}
	return redact.Of(a.secret.value(), a.secret.before(), strings.TrimPrefix(a.value(), a.before)).Text(text)
}
