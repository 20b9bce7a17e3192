// Package dialects opens the state store that a database URL names, of whichever dialect.
package dialects

import (
	"context"
	"strings"

	"duly.dev/duly/schema"
	"duly.dev/duly/schema/sqlite"
)

// Open opens the store of a URL: postgres://… or sqlite:PATH. It does not migrate. The
// options are PostgreSQL's; SQLite has none.
func Open(ctx context.Context, url string, o schema.Options) (schema.Store, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		s, err := sqlite.Open(ctx, path)
		if err != nil {
			return nil, err // not the nil *sqlite.Store, which is no nil Store
		}
		return s, nil
	}
	return schema.Open(ctx, url, o)
}
