package main

import (
	"context"
	"log/slog"
	"time"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/natsbus"
)

// natsLinks are how a command that speaks over NATS itself gets there.
type natsLinks struct {
	NATSURL     string `name:"nats-url" env:"NATS_URL" help:"NATS servers (default: those of the context, or nats://127.0.0.1:4222)."`
	NATSContext string `name:"nats-context" env:"NATS_CONTEXT" help:"Context of the nats command to connect by."`
	NATSCreds   string `name:"nats-creds" env:"NATS_CREDS" help:"Credentials file for NATS."`
	NATSCA      string `name:"nats-ca" env:"NATS_CA" help:"File with the certificates, PEM, that the one of NATS is checked against."`
	NATSCert    string `name:"nats-cert" env:"NATS_CERT" help:"File with the certificate, PEM, that NATS is shown."`
	NATSKey     string `name:"nats-key" env:"NATS_KEY" help:"File with its key, PEM."`
	NATSInbox   string `name:"nats-inbox-prefix" env:"NATS_INBOX_PREFIX" help:"What the subjects begin with that answers come to (default: that of the context; _INBOX; or, where the user may not hear those, _INBOX_ and the user of address or context)."`
	Namespace   string `env:"DULY_NAMESPACE" default:"duly" help:"That of the installation."`
}

// dialWithin connects, waiting so long for a server.
func (l *natsLinks) dialWithin(ctx context.Context, timeout time.Duration, name string) (*natsbus.Conn, error) {
	if timeout <= 0 {
		return nil, misuse("timeout: %v, want more than 0", timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.dial(ctx, name)
}

// dial connects, waiting for a server until ctx ends.
func (l *natsLinks) dial(ctx context.Context, name string) (*natsbus.Conn, error) {
	conn, err := natsbus.DialToAsk(ctx, natsbus.Options{URL: l.NATSURL, Name: name, Context: l.NATSContext, CredentialsFile: l.NATSCreds,
		CAFile: l.NATSCA, CertFile: l.NATSCert, KeyFile: l.NATSKey, InboxPrefix: l.NATSInbox, Namespace: l.Namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, &client.UnreachableError{Address: "NATS", Err: err}
	}
	return conn, nil
}
