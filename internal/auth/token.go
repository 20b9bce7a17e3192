package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// tokenPrefix begins every token, so that scanners of sources and logs know one.
const tokenPrefix = "duly_"

// A token is tokenPrefix, its id of idBytes random bytes, an underscore, secretBytes random bytes, and a sum of all before:
// what has been mistyped, cut or made up is refused without a look at the store.
const (
	idBytes      = 10 // 16 letters and digits
	secretBytes  = 32 // 43 characters
	sumChars     = 7
	tokenMax     = 128
	nameBytesMax = 64
)

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken makes a token, with the labels that bind what it submits, and the text that its holder shows, which is kept nowhere else. A zero expires is never. Error:
// a name, a role or a time that cannot be.
func NewToken(name string, role operate.Role, by string, now, expires time.Time, labels ...core.Label) (t operate.Token, text string, err error) {
	bound := core.CheckLabels(labels)
	for _, l := range labels {
		if l.Key == operate.IDsLabel && bound == nil {
			if bound = core.CheckName("label "+l.Key, l.Value); bound == nil && len(l.Value) > operate.IDsBytesMax {
				bound = fmt.Errorf("label %s has %d bytes, want at most %d", l.Key, len(l.Value), operate.IDsBytesMax)
			}
		}
	}
	switch {
	case bound != nil:
		return t, "", bound
	case name == "" || len(name) > nameBytesMax || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return unicode.IsControl(c) }):
		return t, "", fmt.Errorf("name: %d bytes, want 1 to %d of text without control characters", len(name), nameBytesMax)
	case !slices.Contains(operate.Roles, role):
		return t, "", fmt.Errorf("role: %.40q, want one of %v", role, operate.Roles)
	case !expires.IsZero() && !expires.After(now):
		return t, "", fmt.Errorf("expires: %s, want a time after now (%s), or none", expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	var random [idBytes + secretBytes]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead
	id := idText.EncodeToString(random[:idBytes])
	secret := base64.RawURLEncoding.EncodeToString(random[idBytes:])
	hash := sha256.Sum256([]byte(secret))
	text = tokenPrefix + id + "_" + secret
	return operate.Token{ID: id, Name: name, Role: role, Hash: hash[:], Created: now, By: by, Expires: expires, Labels: core.FormatLabels(labels)}, text + sumOf(text), nil
}

// CreateToken makes a token and stores it. It needs no token, only the right to write to the database: so the first
// admin token is made.
func CreateToken(ctx context.Context, store operate.TokenStore, name string, role operate.Role, by string, now, expires time.Time) (t operate.Token, text string, err error) {
	if t, text, err = NewToken(name, role, by, now, expires); err != nil {
		return t, "", err
	}
	if err := store.PutToken(ctx, t); err != nil {
		return t, "", fmt.Errorf("token %s: %w", name, err)
	}
	return t, text, nil
}

// errToken says that a token does not hold, and not why: what is wrong with it is for its holder to find out.
var errToken = errors.New("the token is not valid: unknown, expired or revoked")

// sumOf is what follows the rest of a token.
func sumOf(text string) string {
	return idText.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text))))
}

// parts are the id and the secret of a token.
func parts(text string) (id, secret string, ok bool) {
	if len(text) < sumChars || len(text) > tokenMax {
		return "", "", false
	}
	text, sum := text[:len(text)-sumChars], text[len(text)-sumChars:]
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || sum != sumOf(text) {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && len(id) == idText.EncodedLen(idBytes) && len(secret) == base64.RawURLEncoding.EncodedLen(secretBytes) && idChars(id)
}

func idChars(id string) bool {
	_, err := idText.DecodeString(id)
	return err == nil
}

// holds reports whether the secret is the token's, and the token is good now. The comparison takes the same time
// whatever the secret is.
func holds(t *operate.Token, secret string, now time.Time) bool {
	hash := sha256.Sum256([]byte(secret))
	same := subtle.ConstantTimeCompare(hash[:], t.Hash) == 1
	return same && t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}
