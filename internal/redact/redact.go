// Package redact takes passwords, tokens and seeds out of texts that are logged or
// answered: addresses of NATS servers and databases in all their forms, and errors of
// libraries that repeat them.
package redact

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// hidden stands where a secret stood.
const hidden = "xxxxx"

var (
	// keyed is a setting by name: key=value as in database URLs and their queries, and
	// "key": "value" as in JSON. The value ends at a space, a quote or what divides settings.
	keyed = regexp.MustCompile(`(?i)((?:^|[^a-z0-9])(?:[a-z]+_)?(?:ssl)?(?:password|passwd|pwd|pass|token|secret|seed|jwt)(?:"\s*:\s*|\s*=\s*))('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[^\s&;,"'` + "`" + `)]+)`)
	// escaped is a setting of JSON that stands in a quoted text, as in an error that quotes it.
	escaped = regexp.MustCompile(`(?i)((?:password|passwd|pwd|pass|token|secret|seed|jwt)\\+"\s*:\s*\\+")((?:[^"\\]|\\[^"])*)`)
	// bare is user:password@ without a scheme before it; the password goes on to the last @.
	bare = regexp.MustCompile("(^|[\\s,\"'`=(])([^\\s,\"'`=:/@(]+):([^\\s\"'`]*)@")
	// cutUserinfo is user:password at the end of a text that was cut before the @: no port has other than digits.
	cutUserinfo = regexp.MustCompile(`^([^/?#:@\[\]]+:)[^/?#:@,]*[^/?#:@,0-9][^/?#:@,]*$`)
	// seed is the private half of an nkey, token a signed token (JWT), own the secret of a token of the API, after its id.
	seed  = regexp.MustCompile(`\bS[OAUNCX][A-Z2-7]{50,}\b`)
	token = regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`)
	own   = regexp.MustCompile(`\b(duly_[a-z2-7]{16}_)[\w-]+`)
)

// Text returns s without the secrets in it. It hides rather too much than too little.
func Text(s string) string { return Secrets{}.Text(s) }

// text hides what looks like a secret by what stands around it.
func text(s string) string {
	s = urls(s)
	s = keyed.ReplaceAllStringFunc(s, func(setting string) string {
		parts := keyed.FindStringSubmatch(setting)
		if quote := parts[2][:1]; quote == "'" || quote == `"` {
			return parts[1] + quote + hidden + quote
		}
		return parts[1] + hidden
	})
	s = escaped.ReplaceAllString(s, "${1}"+hidden)
	s = own.ReplaceAllString(s, "${1}"+hidden)
	s = seed.ReplaceAllString(s, hidden)
	return token.ReplaceAllString(s, hidden)
}

const schemeEnd = "://"

// urls hides what stands before a host, with a scheme or without one.
func urls(s string) string {
	var b strings.Builder
	for {
		at := strings.Index(s, schemeEnd)
		if at < 0 {
			b.WriteString(bare.ReplaceAllString(s, "${1}${2}:"+hidden+"@"))
			return b.String()
		}
		scheme, quote := schemeOf(s[:at])
		b.WriteString(bare.ReplaceAllString(s[:at-len(scheme)], "${1}${2}:"+hidden+"@"))
		b.WriteString(s[at-len(scheme) : at+len(schemeEnd)])
		s = s[at+len(schemeEnd):]
		url := s[:extent(s, quote)]
		s = s[len(url):]
		// A password may hold an @ of its own: the last one ends it.
		if last := strings.LastIndexByte(url, '@'); last >= 0 {
			b.WriteString(userinfo(strings.ToLower(scheme), url[:last]))
			url = url[last:]
		} else if cut := cutUserinfo.FindStringSubmatch(url); cut != nil && len(s) == 0 {
			url = cut[1] + hidden
		}
		b.WriteString(url)
	}
}

// schemeOf is the scheme that a text ends with, and the quote before it, or 0.
func schemeOf(s string) (scheme string, quote byte) {
	i := len(s)
	for i > 0 && (s[i-1] >= 'a' && s[i-1] <= 'z' || s[i-1] >= 'A' && s[i-1] <= 'Z' || s[i-1] >= '0' && s[i-1] <= '9' || strings.IndexByte("+.-", s[i-1]) >= 0) {
		i--
	}
	if i > 0 && strings.IndexByte("\"'`", s[i-1]) >= 0 {
		quote = s[i-1]
	}
	return s[i:], quote
}

// extent is how far a URL without its scheme may reach: to its closing quote, or a space,
// and not into the next one of a list.
func extent(s string, quote byte) int {
	end := strings.IndexAny(s, " \t\r\n\"'`")
	if quote != 0 {
		end = strings.IndexByte(s, quote)
	}
	if end < 0 {
		end = len(s)
	}
	if next := strings.Index(s[:end], schemeEnd); next >= 0 {
		if comma := strings.LastIndexByte(s[:next], ','); comma >= 0 {
			end = comma
		}
	}
	return end
}

// userinfo keeps a user's name. Without a password it is one, but NATS takes it for a token.
func userinfo(scheme, s string) string {
	user, _, secret := strings.Cut(s, ":")
	switch {
	case secret:
		return user + ":" + hidden
	case strings.HasPrefix(scheme, "postgres"), scheme == "http", scheme == "https":
		return s
	}
	return hidden
}

// Error returns err with a text that has no secrets; errors.Is and errors.As see through
// it. nil stays nil.
func Error(err error) error { return Secrets{}.Error(err) }

type redacted struct {
	err  error
	text string
}

// Error is the text without its secrets.
func (r *redacted) Error() string { return r.text }

// Unwrap gives the error itself, whose text still has them.
func (r *redacted) Unwrap() error { return r.err }

// Handler passes records on to next without the secrets in their messages, their texts
// and their errors.
func Handler(next slog.Handler) slog.Handler { return Secrets{}.Handler(next) }

type handler struct {
	next    slog.Handler
	secrets Secrets
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.secrets.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.secrets.Attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.secrets.Attr(a)
	}
	return handler{h.next.WithAttrs(clean), h.secrets}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.next.WithGroup(name), h.secrets}
}

// Attr is an attribute without the secrets in its texts and errors.
func (s Secrets) Attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, s.Text(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i := range group {
			clean[i] = s.Attr(group[i])
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	case slog.KindAny:
		switch value := v.Any().(type) {
		case error:
			return slog.Any(a.Key, s.Error(value))
		case []string:
			clean := make([]string, len(value))
			for i := range value {
				clean[i] = s.Text(value[i])
			}
			return slog.Any(a.Key, clean)
		case interface{ String() string }:
			return slog.String(a.Key, s.Text(value.String()))
		}
	}
	return a
}
