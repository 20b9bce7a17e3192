// Package dialects opens the state store that a database URL names, of whichever dialect.
package dialects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"duly.dev/duly/internal/option"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/sqlite"
)

// Open opens the store of a URL: postgres://… or sqlite:PATH. It does not migrate. All options
// but Chain are PostgreSQL's.
func Open(ctx context.Context, url string, o schema.Options) (schema.Store, error) {
	scheme, path, ok := strings.Cut(url, ":")
	switch {
	case url == "":
		return nil, option.Refuse("database-url", errors.New("none given, want postgres://… or sqlite:PATH"))
	case scheme == "sqlite" && ok:
		return opened(sqlite.OpenWith(ctx, path, o))
	case (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(path, "//"):
		return opened(postgres.Open(ctx, url, o))
	case !ok || strings.ContainsAny(scheme, " =@/"): // not to be shown: it may hold a password
		return nil, option.Refuse("database-url", errors.New("no scheme, want postgres://… or sqlite:PATH"))
	}
	return nil, option.Refuse("database-url", fmt.Errorf("scheme %q, want postgres or sqlite", scheme))
}

// opened is no store beside an error: a nil *sqlite.Store would be no nil Store.
func opened[S schema.Store](s S, err error) (schema.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
