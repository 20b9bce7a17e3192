package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Certificates say what holders of client certificates may, whom the TLS of the server has checked. An entry is a URI of
// the certificate (with a colon), its common name where it has no URI (without one), or O=… or OU=… of its subject.
type Certificates map[operate.Role][]string

// errExpired is of a certificate that has ended since the connection began.
var errExpired = errors.New("the client certificate, or one of its authorities, has ended")

// errNoRole is of a certificate that no entry names. It says no more: the name is its holder's to know.
var errNoRole = errors.New("the client certificate has no role here")

// certified is the actor that a client certificate makes; without one, one without a name. A certificate has the highest
// role that an entry gives it. Errors: errNoRole, errExpired.
func (a *Auth) certified(r *http.Request) (operate.Actor, error) {
	if len(a.cfg.Certificates) == 0 || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return operate.Actor{}, nil
	}
	if now := a.cfg.Now(); slices.ContainsFunc(r.TLS.VerifiedChains[0], func(c *x509.Certificate) bool { return now.After(c.NotAfter) }) {
		return operate.Actor{}, errExpired
	}
	leaf := r.TLS.VerifiedChains[0][0]
	name, ok := certificateName(leaf)
	if !ok {
		return operate.Actor{}, errNoRole
	}
	for _, role := range []operate.Role{operate.RoleAdmin, operate.RoleOperator, operate.RoleViewer, operate.RoleClient} {
		if slices.ContainsFunc(a.cfg.Certificates[role], func(entry string) bool { return isAbout(entry, leaf, name) }) {
			return operate.Actor{Name: cleanName(core.ShortText(name, nameBytesMax)), Role: role, Via: "http"}, nil
		}
	}
	return operate.Actor{}, errNoRole
}

// unitPrefix and organisationPrefix begin entries about the subject.
const (
	unitPrefix         = "OU="
	organisationPrefix = "O="
)

// isAbout reports whether an entry is about a certificate of that name. The entry's form says of which field it is.
func isAbout(entry string, c *x509.Certificate, name string) bool {
	if unit, ok := strings.CutPrefix(entry, unitPrefix); ok {
		return slices.Contains(c.Subject.OrganizationalUnit, unit)
	}
	if organisation, ok := strings.CutPrefix(entry, organisationPrefix); ok {
		return slices.Contains(c.Subject.Organization, organisation)
	}
	return entry == name
}

// certificateName is how the holder of a certificate is named: its URI, or else its common name. false: it has the form of
// another field, for which entries or readers of the trail would take it.
func certificateName(c *x509.Certificate) (string, bool) {
	if len(c.URIs) > 0 {
		uri := c.URIs[0].String()
		return uri, strings.Contains(uri, ":")
	}
	name := c.Subject.CommonName
	return name, !strings.Contains(name, ":") && !strings.HasPrefix(name, organisationPrefix) && !strings.HasPrefix(name, unitPrefix)
}

// check refuses entries that could give a role to whom it was not meant for.
func (c Certificates) check() error {
	roles := 0
	for role, entries := range c {
		roles += len(entries)
		for _, entry := range entries {
			if strings.TrimSpace(entry) != entry || strings.TrimPrefix(strings.TrimPrefix(entry, "O"), "U") == "=" || entry == "" {
				return fmt.Errorf("http-cert-%ss: %s, want a name, O=… or OU=…", role, core.QuoteShort(entry))
			}
		}
	}
	if len(c) > 0 && roles == 0 {
		return errors.New("http-cert-clients, http-cert-viewers, http-cert-operators and http-cert-admins: none is given, so no certificate could do anything")
	}
	return nil
}
