package core

import (
	"errors"
	"fmt"
)

// ErrName is wrapped by every error about a name outside its alphabet.
var ErrName = errors.New("name refused")

// NameError is about a name outside its alphabet.
type NameError struct{ Field, text string }

// Error says which name, and what is wrong with it.
func (e *NameError) Error() string { return ErrName.Error() + ": " + e.Field + " " + e.text }

// Unwrap gives ErrName.
func (e *NameError) Unwrap() error { return ErrName }

// CheckName accepts 1 to NameBytesMax characters of A–Z a–z 0–9 _ -. field
// says in the error which name it was (type, id, step).
func CheckName(field, name string) error {
	if len(name) == 0 || len(name) > NameBytesMax {
		return &NameError{field, fmt.Sprintf("%s has %d bytes, want 1 to %d of A–Z a–z 0–9 _ -%s", QuoteShort(name), len(name), NameBytesMax, mapHint(field, name))}
	}
	for i := 0; i < len(name); i++ {
		if !tokenByte(name[i]) {
			return &NameError{field, fmt.Sprintf("%s: %s, want A–Z a–z 0–9 _ -%s", QuoteShort(name), runeAt(name, i), mapHint(field, name))}
		}
	}
	return nil
}

// runeAt names the character that begins at byte i, before which all have one byte.
func runeAt(name string, i int) string {
	r := []rune(name[i:])[0]
	if r != '\uFFFD' || len(name) >= i+3 && name[i:i+3] == "\uFFFD" { // or the replacement character itself
		return fmt.Sprintf("character %d is %q", i+1, r)
	}
	return fmt.Sprintf("byte %d is 0x%02x, which is not UTF-8", i+1, name[i])
}

// mapHint says to the one whose own ids look otherwise what to do about it.
func mapHint(field, name string) string {
	if field != "id" || name == "" {
		return ""
	}
	return "; make an id of other text as README.md says under Ids (in Go: duly.ID)"
}

// CheckAgent accepts 1 to agentTokensMax names joined by dots.
func CheckAgent(agent string) error {
	tokens, start := 0, 0
	for i := 0; i <= len(agent); i++ {
		if i < len(agent) && agent[i] != '.' {
			continue
		}
		if err := CheckName("agent token", agent[start:i]); err != nil {
			return fmt.Errorf("agent %s: %w", QuoteShort(agent), err)
		}
		tokens++
		start = i + 1
		if tokens > agentTokensMax {
			return fmt.Errorf("%w: agent %s has more than %d tokens", ErrName, QuoteShort(agent), agentTokensMax)
		}
	}
	return nil
}

func tokenByte(c byte) bool { return tokenBytes[c] }

// tokenBytes says of each byte whether an id may have it. It is a table, because the letters and digits of an id follow each
// other by chance: what a processor would guess of comparisons is wrong every third time.
var tokenBytes = func() (t [256]bool) {
	for c := range len(t) {
		b := byte(c)
		t[c] = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
	}
	return t
}()
