package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"duly.dev/duly/internal/config"
)

// credentialURIs are addresses with a secret in each form that databases, NATS, collectors and webhooks have.
var credentialURIs = []string{
	"postgres://app:s3cret@db:5432/duly", "postgresql://app:s3cret@a:1,b:2/duly?sslmode=require", "postgres://db/duly?user=app&password=s3cret", "postgres://app:s3cret%40x@db/duly",
	"postgres://app:x@s3cret@db/duly", "host=db user=app password=s3cret dbname=duly", "host=db password='s3cret with space' user=app", "host=db sslpassword=s3cret",
	"nats://app:s3cret@n1:4222", "nats://s3cret@n1:4222", "tls://s3cret@n1:4222", "nats://a:s3cret@n1:4222,nats://b:s3cret@n2", "app:s3cret@n1:4222", "wss://app:s3cret@n1/path",
	"https://app:s3cret@host/x?token=s3cret", "http://user:s3cret@collector:4318", `{"url":"n1","password":"s3cret","token": "s3cret"}`, "smtp://duly:s3cret@mail:587", "auth_token=s3cret",
	"error: pwd=s3cret; retry", "otlp: header token=s3cret",
}

// TestNoSecretIsLogged: whatever the level and the format, and wherever in a line an address with credentials stands, its
// secret is not written. The level can be changed while the process runs.
//
// covers: C12
func TestNoSecretIsLogged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		level := new(slog.LevelVar)
		log := newLog(&out, config.Logs{LogFormat: format, LogLevel: "error", Level: level})
		log.Info("not told")
		level.Set(slog.LevelDebug)
		for n, uri := range credentialURIs {
			err := fmt.Errorf("open %s: %w", uri, &url.Error{Op: "dial", URL: uri, Err: errors.New(uri)})
			log.With("at", uri).WithGroup("g").Debug(uri, "n", n, "error", err, "urls", []string{uri}, slog.Group("sub", "dsn", uri))
		}
		text := out.String()
		if strings.Contains(text, "s3cret") || strings.Contains(text, "not told") || strings.Count(text, "\n") != len(credentialURIs) {
			t.Errorf("%s: %s", format, text)
		}
	}
}
