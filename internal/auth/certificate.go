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

// Certificates say what holders of client certificates may, whom the TLS of the server has checked. An entry is a name (a
// URI of the certificate, or else its common name), or O=… or OU=… of its subject.
type Certificates map[operate.Role][]string

// errNoRole is of a certificate that no entry names. It says no more: the name is its holder's to know.
var errNoRole = errors.New("the client certificate has no role here")

// certified is the actor that a client certificate makes; without one, one without a name. A certificate has the highest
// role that an entry gives it. Error: errNoRole.
func (a *Auth) certified(r *http.Request) (operate.Actor, error) {
	if len(a.cfg.Certificates) == 0 || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return operate.Actor{}, nil
	}
	leaf := r.TLS.VerifiedChains[0][0]
	name := certificateName(leaf)
	known := []string{name}
	for prefix, values := range map[string][]string{"O=": leaf.Subject.Organization, "OU=": leaf.Subject.OrganizationalUnit} {
		for _, value := range values {
			known = append(known, prefix+value)
		}
	}
	for _, role := range []operate.Role{operate.RoleAdmin, operate.RoleOperator, operate.RoleViewer, operate.RoleClient} {
		if slices.ContainsFunc(a.cfg.Certificates[role], func(entry string) bool { return slices.Contains(known, entry) }) {
			return operate.Actor{Name: whom(core.ShortText(name, nameBytesMax), "", false), Role: role, Via: "http"}, nil
		}
	}
	return operate.Actor{}, errNoRole
}

// certificateName is how the holder of a certificate is named.
func certificateName(c *x509.Certificate) string {
	if len(c.URIs) > 0 {
		return c.URIs[0].String()
	}
	return c.Subject.CommonName
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
