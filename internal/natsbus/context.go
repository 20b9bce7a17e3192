package natsbus

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
)

// natsContext is what Duly uses of a context file of the nats command.
type natsContext struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	UserJWT     string `json:"user_jwt"`
	UserSeed    string `json:"user_seed"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	TLSFirst    bool   `json:"tls_first"`
	InboxPrefix string `json:"inbox_prefix"`
	// These change how the server is reached in ways Duly does not follow.
	NSC       string `json:"nsc"`
	Socks     string `json:"socks_proxy"`
	Domain    string `json:"jetstream_domain"`
	APIPrefix string `json:"jetstream_api_prefix"`
}

// loadContext reads a context of the nats command. An empty name is no context.
func loadContext(name string) (url, user string, opts []nats.Option, err error) {
	if name == "" {
		return "", "", nil, nil
	}
	if strings.ContainsAny(name, `/\`) {
		return "", "", nil, fmt.Errorf("nats context %q: a name has no slash", name)
	}
	folder := os.Getenv("XDG_CONFIG_HOME")
	if folder == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", "", nil, fmt.Errorf("nats context %s: %w", name, err)
		}
		folder = filepath.Join(home, ".config")
	}
	file := filepath.Join(folder, "nats", "context", name+".json")
	c, err := readContext(file)
	if err != nil {
		return "", "", nil, fmt.Errorf("nats context %s: %w", name, err)
	}
	opts, err = c.options(file)
	if err != nil {
		return "", "", nil, fmt.Errorf("nats context %s: %w", name, err)
	}
	return c.URL, c.User, opts, nil
}

// readContext reads a context of the nats command from its file. Settings that this package does not know are
// ignored.
func readContext(file string) (*natsContext, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var c natsContext
	return &c, json.Unmarshal(data, &c)
}

// options returns the options that a context stands for. Password and token are read from the file at each
// attempt to connect, as files of credentials are: they may have been changed.
func (c *natsContext) options(file string) ([]nats.Option, error) {
	now := func() *natsContext {
		if again, err := readContext(file); err == nil {
			return again
		}
		return c // it is just being written
	}
	for _, f := range [...]struct{ name, value string }{{"nsc", c.NSC}, {"socks_proxy", c.Socks}, {"jetstream_domain", c.Domain}, {"jetstream_api_prefix", c.APIPrefix}} {
		if f.value != "" {
			return nil, fmt.Errorf("%s is not supported", f.name)
		}
	}
	var opts []nats.Option
	switch {
	case c.Creds != "":
		opts = append(opts, nats.UserCredentials(expand(c.Creds)))
	case c.NKey != "":
		nkey, err := nats.NkeyOptionFromSeed(expand(c.NKey))
		if err != nil {
			return nil, fmt.Errorf("nkey: %w", err)
		}
		opts = append(opts, nkey)
	case c.UserJWT != "":
		opts = append(opts, nats.UserJWTAndSeed(c.UserJWT, c.UserSeed))
	case c.Token != "":
		opts = append(opts, nats.TokenHandler(func() string { return now().Token }))
	case c.User != "":
		opts = append(opts, nats.UserInfoHandler(func() (string, string) {
			again := now()
			return again.User, again.Password
		}))
	}
	if c.Cert != "" {
		opts = append(opts, nats.ClientCert(expand(c.Cert), expand(c.Key)))
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(expand(c.CA)))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	return opts, nil
}

// expand replaces a leading ~, as the nats command does.
func expand(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return home + rest
	}
	return path
}
