package wire

import (
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// EffectKey is what the idempotency key of a step says.
type EffectKey struct {
	Task, Step string
	Round      int
}

// ParseKey reads <task>/<step>/<round>, as core.Key writes it. Errors wrap ErrUndecodable.
func ParseKey(key string) (EffectKey, error) {
	parts := strings.Split(key, "/")
	if len(parts) == 3 && parts[0] != "" && parts[1] != "" {
		if round, err := strconv.Atoi(parts[2]); err == nil && round >= 0 && core.Key(parts[0], parts[1], round) == key {
			return EffectKey{Task: parts[0], Step: parts[1], Round: round}, nil
		}
	}
	return EffectKey{}, fmt.Errorf("%w: key %s, want <task>/<step>/<round>", ErrUndecodable, core.QuoteShort(key))
}
