package core

import (
	"errors"
	"fmt"
)

// ErrName is wrapped by every error about a name outside its alphabet.
var ErrName = errors.New("name refused")

// CheckName accepts 1 to NameBytesMax characters of A–Z a–z 0–9 _ -. field
// says in the error which name it was (type, id, step).
func CheckName(field, name string) error {
	if len(name) == 0 || len(name) > NameBytesMax {
		return fmt.Errorf("%w: %s %s has %d characters, want 1 to %d", ErrName, field, quoteShort(name), len(name), NameBytesMax)
	}
	for i := 0; i < len(name); i++ {
		if !tokenByte(name[i]) {
			return fmt.Errorf("%w: %s %s: character %d is %q, want A–Z a–z 0–9 _ -", ErrName, field, quoteShort(name), i+1, name[i])
		}
	}
	return nil
}

// CheckAgent accepts 1 to AgentTokensMax names joined by dots.
func CheckAgent(agent string) error {
	tokens, start := 0, 0
	for i := 0; i <= len(agent); i++ {
		if i < len(agent) && agent[i] != '.' {
			continue
		}
		if err := CheckName("agent token", agent[start:i]); err != nil {
			return fmt.Errorf("agent %s: %w", quoteShort(agent), err)
		}
		tokens++
		start = i + 1
		if tokens > AgentTokensMax {
			return fmt.Errorf("%w: agent %s has more than %d tokens", ErrName, quoteShort(agent), AgentTokensMax)
		}
	}
	return nil
}

func tokenByte(c byte) bool { return tokenBytes[c] }

// tokenBytes is a table, because the letters and digits of an id follow each other by
// chance: what a processor would guess of comparisons is wrong every third time.
var tokenBytes = func() (t [256]bool) {
	for c := range len(t) {
		b := byte(c)
		t[c] = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
	}
	return t
}()

// quoteShort quotes a name for an error without repeating megabytes of it.
func quoteShort(s string) string {
	if len(s) > NameBytesMax {
		return fmt.Sprintf("%q…", s[:NameBytesMax])
	}
	return fmt.Sprintf("%q", s)
}
