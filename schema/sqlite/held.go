package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"duly.dev/duly/schema"
)

// walMost is the journal_size_limit of pragmas: a WAL is only larger while a reader keeps it from being begun again.
const walMost = 64 << 20

// Held is what readers keep the database from using again.
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
