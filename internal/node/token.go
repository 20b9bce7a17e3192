package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"time"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// CreateToken makes a token of the API in a database, which is written into the audit trail first: so an installation
// gets its first one. It returns the token's text, which is kept nowhere. A zero expires is never. Errors: a name, a role
// or a time that cannot be; tables of another version.
func CreateToken(ctx context.Context, url, name string, role operate.Role, expires time.Time, reason string) (t operate.Token, secret string, err error) {
	store, err := dialects.Open(ctx, url, schema.Options{MaxConns: 2})
	if err != nil {
		return t, "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.CheckVersion(ctx); err != nil {
		return t, "", fmt.Errorf("database: %w", err)
	}
	by := auth.LocalActor
	if who, err := user.Current(); err == nil && who.Username != "" { // as whom the program runs
		by = who.Username
	}
	act := operate.Act{By: operate.Actor{Name: by, Role: operate.RoleAdmin, Via: "database"}, Action: "token.create", Target: "token/" + name, Reason: reason, After: role}
	err = operate.NewDesk(store, time.Now, slog.Default()).Change(ctx, &act, func(ctx context.Context) (err error) {
		t, secret, err = auth.CreateToken(ctx, store, name, role, by, time.Now().UTC(), expires)
		return err
	})
	return t, secret, err
}
