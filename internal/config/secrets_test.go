package config

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsOfAlertsHaveAFolderOfTheirOwn: what a channel of alerts sends to an address that an admin names is chosen by
// the name of a file, so no other secret of the node is in reach. Without a folder there is none.
//
// covers: P4
func TestSecretsOfAlertsHaveAFolderOfTheirOwn(t *testing.T) {
	for _, s := range Settings() {
		if s.Flag == "alerts-secrets-dir" && s.Default != "" {
			t.Errorf("the default %s may hold any secret", s.Default)
		}
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	for what, spoil := range map[string]func(*testing.T, *Config){
		"nats-creds":              func(_ *testing.T, c *Config) { c.NATSCreds = other },
		"nats-key":                func(_ *testing.T, c *Config) { c.NATSCert, c.NATSKey = other, other },
		"http-tls-key":            func(_ *testing.T, c *Config) { c.TLSCert, c.TLSKey = other, other },
		"oidc-client-secret-file": func(_ *testing.T, c *Config) { c.OIDCSecretFile = filepath.Join(dir, ".", "x", "..", "other") },
		"chain-key":               func(_ *testing.T, c *Config) { c.Chain, c.ChainKey = true, other },
		"database-url":            func(_ *testing.T, c *Config) { c.DatabaseURL = "postgres://duly@db/duly?sslkey=" + other },
		"agents":                  func(_ *testing.T, c *Config) { c.Agents = other },
		"PGPASSFILE":              func(t *testing.T, _ *Config) { t.Setenv("PGPASSFILE", other) },
		"CREDENTIALS_DIRECTORY":   func(t *testing.T, _ *Config) { t.Setenv("CREDENTIALS_DIRECTORY", dir) },
	} {
		t.Run(what, func(t *testing.T) {
			c := good()
			c.AlertsSecretsDir = dir + "/"
			if err := c.Watched.validate(&c); err != nil {
				t.Fatal(err)
			}
			spoil(t, &c)
			if err := c.Watched.validate(&c); err == nil || !strings.Contains(err.Error(), "has "+what+" too") {
				t.Errorf("%v", err)
			}
			c.AlertsSecretsDir = ""
			if err := c.Watched.validate(&c); err != nil {
				t.Error(err)
			}
		})
	}
}
