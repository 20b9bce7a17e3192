package node

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"time"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// tokenKeeper is a state store that keeps tokens and an audit trail.
type tokenKeeper interface {
	operate.TokenStore
	operate.Trail
}

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
	keeper, ok := store.(tokenKeeper)
	if !ok {
		return t, "", fmt.Errorf("database: %s keeps no tokens", store.Dialect())
	}
	by := auth.LocalActor
	if who, err := user.Current(); err == nil && who.Username != "" { // as whom the program runs
		by = who.Username
	}
	number, _, err := keeper.Append(ctx, operate.AuditEntry{At: time.Now().UTC(), Actor: by, Role: operate.RoleAdmin, Via: "database",
		Action: "token.create", Target: "token/" + name, Reason: reason, Outcome: "asked"})
	if err != nil {
		return t, "", fmt.Errorf("audit trail: %w", err)
	}
	t, secret, err = auth.CreateToken(ctx, keeper, name, role, by, time.Now().UTC(), expires)
	outcome := "done"
	if err != nil {
		outcome = "refused: " + err.Error()
	}
	return t, secret, errors.Join(err, keeper.SetOutcome(ctx, number, outcome))
}
