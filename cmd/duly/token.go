package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/redact"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token of the API and show it, once."`
	List   tokenListCmd   `cmd:"" help:"List the tokens, without their secrets."`
	Revoke tokenRevokeCmd `cmd:"" help:"End a token at once."`
}

type tokenCreateCmd struct {
	Name    string   `arg:"" help:"What it is called in the audit trail: of a person or a program."`
	Role    string   `default:"viewer" enum:"client,viewer,operator,admin" help:"What it may do: client (submit, read and cancel single tasks), viewer (read), operator (act on tasks, too), admin (tokens and settings, too)."`
	Label   []string `placeholder:"KEY=VALUE" help:"What it submits has this label, and no other of that key: a tenant, or duly-priority; a client knows no others' tasks. duly-ids=acme- says what its ids begin with."`
	Expires string   `help:"When it ends: a time or a duration from now (default: never)."`

	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"Write it into this database (postgres://…) and not through the API: for the first admin token, where no one may ask yet."`
	Reason      string `help:"With --database-url: why; it is kept in the audit trail."`
	server
}

// tokenBody is a request for a token.
type tokenBody struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Expires time.Time `json:"expires,omitzero"`
	Labels  string    `json:"labels,omitempty"`
}

// createdToken is the answer to a request for a token.
type createdToken struct {
	Token  operate.Token `json:"token"`
	Secret string        `json:"secret"`
}

// Run makes a token.
func (c *tokenCreateCmd) Run(ctx context.Context, std streams) error {
	expires, err := moment("expires", c.Expires)
	if err != nil {
		return err
	}
	data, where, err := c.make(ctx, expires)
	made, data, err := answered[createdToken](data, err)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.err, "token %s of %s, role %s, made %s; it is shown this once:\n", made.Token.ID, show.Clean(made.Token.Name), made.Token.Role, where)
	if c.Output != show.Text {
		return c.object(std, data, []string{"token.id", "token.name", "token.role", "secret"})
	}
	_, err = fmt.Fprintln(std.out, made.Secret)
	return err
}

// make makes a token where it is named, and says where that is.
func (c *tokenCreateCmd) make(ctx context.Context, expires time.Time) (data []byte, where string, err error) {
	if c.DatabaseURL == "" {
		api, err := c.client()
		if err != nil {
			return nil, "", err
		}
		data, err = c.send(ctx, http.MethodPost, pathOf("tokens"), tokenBody{c.Name, c.Role, expires, strings.Join(c.Label, ",")}, nil)
		return data, "at " + redact.Text(api.Base), err
	}
	if c.Server != "" || c.Profile != "" {
		return nil, "", misuse("database-url and server or profile: want one of them, which may be two installations")
	}
	if len(c.Label) > 0 {
		return nil, "", misuse("label: a token with labels is made through the API, and not with --database-url")
	}
	token, secret, err := node.CreateToken(ctx, c.DatabaseURL, c.Name, operate.Role(c.Role), expires, c.Reason)
	if err != nil {
		return nil, "", err
	}
	database, _, _ := strings.Cut(c.DatabaseURL, "?")
	data, err = json.Marshal(createdToken{Token: token, Secret: secret})
	return data, "in the database " + redact.Text(database), err
}

type tokenListCmd struct{ server }

// Run lists the tokens.
func (c *tokenListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("tokens"), nil, "tokens", "no token", tokenColumns)
}

type tokenRevokeCmd struct {
	ID string `arg:"" help:"Id of the token."`
	reasoned
}

// Run ends a token.
func (c *tokenRevokeCmd) Run(ctx context.Context, std streams) error {
	if _, err := c.remove(ctx, std, pathOf("tokens", c.ID)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(std.out, "token %s is revoked\n", c.ID)
	return err
}
