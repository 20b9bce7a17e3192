package redact

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Secrets are those of a configuration. They are hidden wherever they stand, also where
// nothing around them tells what they are, as in an error of a driver that repeats a
// password. The zero value knows none, and hides what looks like a secret.
type Secrets struct{ known []string }

// Bounds of what is looked for by itself: shorter ones would take words apart in every line.
const (
	secretLeast = 6  // bytes of a secret
	pieceMost   = 12 // bytes of a piece that is always hidden; of a shorter secret, half of it
)

// option is a password among the settings of a database URL, or of one without a scheme.
var option = regexp.MustCompile(`(?i)(?:^|[\s?&])(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// SecretsOf are the passwords and tokens in addresses of databases and NATS servers; of
// the latter there may be several in one, divided by commas.
func SecretsOf(addresses ...string) Secrets {
	var s Secrets
	for _, address := range addresses {
		for _, found := range option.FindAllStringSubmatch(address, -1) {
			s.add(strings.ReplaceAll(strings.Trim(found[1], "'"), `\'`, "'"))
		}
		for _, one := range strings.Split(address, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil || u.User == nil {
				continue
			}
			password, has := u.User.Password()
			if !has && !strings.HasPrefix(u.Scheme, "postgres") {
				password = u.User.Username() // a token
			}
			s.add(password)
		}
	}
	s.sort()
	return s
}

// Of are secrets that are hidden whatever their length.
func Of(secrets ...string) Secrets {
	var s Secrets
	for _, secret := range secrets {
		s.addFrom(1, secret)
	}
	s.sort()
	return s
}

// sort has the longest first: one may hold another.
func (s *Secrets) sort() { slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) }) }

// add takes a secret in the forms in which it may stand.
func (s *Secrets) add(secret string) { s.addFrom(secretLeast, secret) }

func (s *Secrets) addFrom(least int, secret string) {
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
	if quoted, err := json.Marshal(secret); err == nil {
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	if plain, err := url.QueryUnescape(secret); err == nil {
		forms = append(forms, plain)
	}
	for _, form := range forms {
		if len(form) >= least && !slices.Contains(s.known, form) {
			s.known = append(s.known, form)
		}
	}
}

// Text returns a text without the secrets in it, nor pieces of them: who cut the text before
// has left one at its end.
func (s Secrets) Text(in string) string {
	for _, secret := range s.known {
		in = strings.ReplaceAll(in, secret, hidden)
	}
	for _, secret := range s.known {
		if piece := min(pieceMost, (len(secret)+1)/2); piece >= secretLeast {
			in = withoutPieces(in, secret, piece)
		}
	}
	return text(in)
}

// withoutPieces hides what a text has in common with a secret for so many bytes or more.
func withoutPieces(in, secret string, least int) string {
	for at := 0; at+least <= len(in); at++ {
		end := at + least
		if !strings.Contains(secret, in[at:end]) {
			continue
		}
		for end < len(in) && strings.Contains(secret, in[at:end+1]) {
			end++
		}
		in = in[:at] + hidden + in[end:]
		at += len(hidden) - 1
	}
	return in
}

// Error returns err with a text that has no secrets; errors.Is and errors.As see through
// it. nil stays nil.
func (s Secrets) Error(err error) error {
	if err == nil {
		return nil
	}
	was := err.Error()
	if clean := s.Text(was); clean != was {
		return &redacted{err, clean}
	}
	return err
}

// Handler passes records on to next without the secrets in their messages, their texts
// and their errors.
func (s Secrets) Handler(next slog.Handler) slog.Handler { return handler{next, s} }
