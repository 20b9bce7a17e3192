package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"duly.dev/duly/schema"
)

// walMost is the journal_size_limit in pragmas. SQLite cuts the WAL back to that when it begins anew, which
// only a reader can prevent.
const walMost = 64 << 20

// Held measures the WAL, which readers keep SQLite from beginning anew.
func (s *Store) Held(context.Context) (schema.Held, error) {
	h := schema.Held{WALMost: walMost}
	info, err := os.Stat(s.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("write-ahead log: %w", err)
	}
	h.WAL = info.Size()
	return h, nil
}
