package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Watched is how a node is watched from outside.
type Watched struct {
	OTLPEndpoint     string `name:"otlp-endpoint" env:"DULY_OTLP_ENDPOINT" help:"Collector of traces, by OTLP over HTTP: http://host:4318. Tasks whose submitter's traceparent is sampled get spans. Empty: none."`
	AlertsAllowLocal bool   `name:"alerts-allow-local" env:"DULY_ALERTS_ALLOW_LOCAL" help:"Let channels of alerts lead to loopback and link-local addresses."`
	AlertsSecretsDir string `name:"alerts-secrets-dir" env:"DULY_ALERTS_SECRETS_DIR" help:"Folder with the secrets of channels of alerts, a file each, and with no others. Empty: channels name no file."`
}

func (w *Watched) validate(c *Config) error {
	if u, err := url.Parse(w.OTLPEndpoint); w.OTLPEndpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil) {
		return errors.New("otlp-endpoint: want http://host:4318 or https://host, without user and password")
	}
	if w.AlertsSecretsDir == "" {
		return nil
	}
	for from, file := range c.secretFiles() {
		if file != "" && sameFolder(w.AlertsSecretsDir, filepath.Dir(file)) {
			return fmt.Errorf("alerts-secrets-dir: %s has %s too, which a channel of alerts could then send away: want a folder of its own", w.AlertsSecretsDir, from)
		}
	}
	return nil
}

// secretFiles are the files whose words are no channel's, by what names them.
func (c *Config) secretFiles() map[string]string {
	files := map[string]string{
		"nats-creds": c.NATSCreds, "nats-key": c.NATSKey, "http-tls-key": c.TLSKey, "oidc-client-secret-file": c.OIDCSecretFile, "chain-key": c.ChainKey, "agents": c.Agents,
		"PGPASSFILE": os.Getenv("PGPASSFILE"), "PGSERVICEFILE": os.Getenv("PGSERVICEFILE"), "PGSSLKEY": os.Getenv("PGSSLKEY"),
	}
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" { // where systemd puts all of a unit's
		files["CREDENTIALS_DIRECTORY"] = filepath.Join(dir, "any")
	}
	if u, err := url.Parse(c.DatabaseURL); err == nil {
		files["database-url"] = u.Query().Get("sslkey")
	}
	return files
}

// sameFolder is by what the file system says where both are there, and else by name.
func sameFolder(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	if err1 == nil && err2 == nil {
		return os.SameFile(one, other)
	}
	a, err1 = filepath.Abs(strings.TrimSpace(a))
	b, err2 = filepath.Abs(b)
	return err1 == nil && err2 == nil && a == b
}
