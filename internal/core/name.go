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

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// quoteShort quotes a name for an error without repeating megabytes of it.
func quoteShort(s string) string {
	if len(s) > NameBytesMax {
		return fmt.Sprintf("%q…", s[:NameBytesMax])
	}
	return fmt.Sprintf("%q", s)
}
