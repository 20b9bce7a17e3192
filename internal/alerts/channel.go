package alerts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// secretInURL is where the secret goes of receivers that know their senders by the address alone.
const secretInURL = "{secret}"

// Names of documents in the setting store.
const (
	ChannelPrefix = "alerts/channels/" // + name of the channel
	stateName     = "alerts/state"
)

// Kinds of channels.
const (
	kindWebhook = "webhook"
	kindEmail   = "email"
)

// Limits of a channel, and of how many there are.
const (
	ChannelsMax      = 32
	channelBytesMax  = 32 << 10
	templateBytesMax = 8 << 10
	recipientsMax    = 50
	namesMax         = 64
	headersMax       = 16
	rateMax          = 600
	rateDefault      = 30 // alerts a minute of one channel
	secretBytesMax   = 4 << 10
)

// envPrefix begins the names of environment variables that a channel may read: no other secret of the process can be
// made to leave through one.
const envPrefix = "DULY_ALERT_"

// Channel is where alerts go.
type Channel struct {
	Name string `json:"-"`
	Kind string `json:"kind"` // webhook or email

	// What it wants. Empty: everything.
	Alerts   []string      `json:"alerts,omitempty"`   // names
	Severity core.Severity `json:"severity,omitempty"` // at least; the end of a trouble comes wherever its beginning did
	Rate     int           `json:"rate,omitempty"`     // alerts a minute; more are told together
	Off      bool          `json:"off,omitempty"`

	// Of a webhook.
	URL     string            `json:"url,omitempty"`     // {secret} in it stands for the secret, which then does not sign
	Headers map[string]string `json:"headers,omitempty"` // more of them; not for secrets
	Body    string            `json:"body,omitempty"`    // template of another JSON than a CloudEvent

	// Of mail.
	Server   string   `json:"server,omitempty"` // smtp://host:port (STARTTLS), smtps://host:port (TLS), smtp+plain://host:port (neither)
	Username string   `json:"username,omitempty"`
	From     string   `json:"from,omitempty"`
	To       []string `json:"to,omitempty"`
	Subject  string   `json:"subject,omitempty"` // template
	Text     string   `json:"text,omitempty"`    // template

	// The signing secrets of a webhook, one a line; the password of mail.
	SecretFile string `json:"secret_file,omitempty"` // name of a file in the folder of secrets
	SecretEnv  string `json:"secret_env,omitempty"`  // name of an environment variable that begins with DULY_ALERT_
	// SecretStored says that the secret is in the setting store, in a document of its own: see Book.
	SecretStored bool `json:"secret_stored,omitempty"`

	templates templates
}

// parseChannel reads and checks a channel's document. Its errors name field, value and limit.
func parseChannel(name string, document []byte) (Channel, error) {
	c, err := DecodeChannel(name, document)
	if err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("channel %s: %w", name, err)
	}
	return c, nil
}

// DecodeChannel reads a channel's document. What its fields say is not checked yet: see [Book.Put].
func DecodeChannel(name string, document []byte) (Channel, error) {
	c := Channel{}
	if err := core.CheckName("channel", name); err != nil {
		return c, err
	}
	if len(document) > channelBytesMax {
		return c, fmt.Errorf("channel %s: it has %d bytes, the limit is %d", name, len(document), channelBytesMax)
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("channel %s: %w", name, err)
	}
	c.Name = name
	return c, nil
}

func (c *Channel) check() error {
	if len(c.Alerts) > namesMax {
		return fmt.Errorf("alerts: %d names, the limit is %d", len(c.Alerts), namesMax)
	}
	for _, name := range c.Alerts {
		if err := core.CheckName("alerts", name); err != nil {
			return err
		}
	}
	if c.Severity != "" && rank(c.Severity) < 0 {
		return fmt.Errorf("severity: %s, want info, warning or critical", core.QuoteShort(string(c.Severity)))
	}
	if c.Rate < 0 || c.Rate > rateMax {
		return fmt.Errorf("rate: %d, want 1 to %d a minute, or 0 for %d", c.Rate, rateMax, rateDefault)
	}
	for field, text := range map[string]string{"body": c.Body, "subject": c.Subject, "text": c.Text} {
		if len(text) > templateBytesMax {
			return fmt.Errorf("%s: %d bytes, the limit is %d", field, len(text), templateBytesMax)
		}
	}
	if c.SecretFile != "" && (c.SecretFile != filepath.Base(c.SecretFile) || strings.HasPrefix(c.SecretFile, ".")) {
		return fmt.Errorf("secret_file: %s, want the name of a file in the folder of secrets, without a path", core.QuoteShort(c.SecretFile))
	}
	if c.SecretEnv != "" && (!strings.HasPrefix(c.SecretEnv, envPrefix) || len(c.SecretEnv) > 128) {
		return fmt.Errorf("secret_env: %s, want a name that begins with %s", core.QuoteShort(c.SecretEnv), envPrefix)
	}
	if c.secrets() > 1 {
		return errors.New("secret_file, secret_env and a stored secret: want one of them")
	}
	var err error
	switch c.Kind {
	case kindWebhook:
		err = c.checkWebhook()
	case kindEmail:
		err = c.checkEmail()
	default:
		err = fmt.Errorf("kind: %s, want %s or %s", core.QuoteShort(c.Kind), kindWebhook, kindEmail)
	}
	if err == nil {
		c.templates, err = c.parseTemplates()
	}
	return err
}

// secrets is how many places are named for its secret.
func (c *Channel) secrets() int {
	n := 0
	for _, named := range []bool{c.SecretFile != "", c.SecretEnv != "", c.SecretStored} {
		if named {
			n++
		}
	}
	return n
}

func (c *Channel) checkWebhook() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return errors.New("url: want https://host/…, or http:// where the network is yours")
	}
	if strings.Contains(c.URL, secretInURL) && c.secrets() == 0 {
		return fmt.Errorf("url: it has %s, but there is no secret_file, no secret_env and no stored secret", secretInURL)
	}
	if strings.Contains(u.Host, "{") {
		return errors.New("url: its host is no host")
	}
	if u.User != nil {
		return errors.New("url: it has a user or a password, which belong into secret_file or secret_env")
	}
	if len(c.Headers) > headersMax {
		return fmt.Errorf("headers: %d, the limit is %d", len(c.Headers), headersMax)
	}
	for name, value := range c.Headers {
		if !headerName(name) || strings.ContainsAny(value, "\r\n\x00") || len(value) > 1024 {
			return fmt.Errorf("headers: %s is no header, or its value is", core.QuoteShort(name))
		}
		if slices.ContainsFunc(reservedHeaders, func(r string) bool { return strings.EqualFold(r, name) }) {
			return fmt.Errorf("headers: %s is set by Duly, or holds a secret", core.QuoteShort(name))
		}
	}
	if c.Server != "" || c.From != "" || len(c.To) > 0 || c.Subject != "" || c.Text != "" || c.Username != "" {
		return errors.New("server, username, from, to, subject, text: they are for kind email")
	}
	return nil
}

// reservedHeaders are not for a channel's document to set.
var reservedHeaders = []string{"Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Authorization", "Cookie", "Proxy-Authorization",
	"User-Agent", headerID, headerTimestamp, headerSignature}

func headerName(s string) bool {
	if s == "" || len(s) > core.NameBytesMax {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func (c *Channel) checkEmail() error {
	u, err := url.Parse(c.Server)
	if err != nil || u.Hostname() == "" || smtpPorts[u.Scheme] == "" {
		return errors.New("server: want smtp://host:port (STARTTLS), smtps://host:port (TLS) or smtp+plain://host:port (neither)")
	}
	if u.User != nil {
		return errors.New("server: it has a user or a password: want username, and secret_file or secret_env")
	}
	if (c.Username != "") != (c.secrets() > 0) {
		return errors.New("username: it comes with a secret_file, a secret_env or a stored secret, or none of them")
	}
	if c.Username != "" && u.Scheme == "smtp+plain" {
		return errors.New("server: smtp+plain sends no password: want smtp:// or smtps://")
	}
	if _, err := mail.ParseAddress(c.From); err != nil {
		return fmt.Errorf("from: %s: %w", core.QuoteShort(c.From), err)
	}
	if len(c.To) == 0 || len(c.To) > recipientsMax {
		return fmt.Errorf("to: %d addresses, want 1 to %d", len(c.To), recipientsMax)
	}
	for _, to := range c.To {
		if _, err := mail.ParseAddress(to); err != nil {
			return fmt.Errorf("to: %s: %w", core.QuoteShort(to), err)
		}
	}
	if c.URL != "" || c.Body != "" || len(c.Headers) > 0 {
		return errors.New("url, headers, body: they are for kind webhook")
	}
	return nil
}

// wants reports whether an alert is for the channel.
func (c *Channel) wants(a *core.Alert) bool {
	if c.Off || len(c.Alerts) > 0 && !slices.Contains(c.Alerts, a.Name) {
		return false
	}
	// An end has the rank of its beginning: who hears of a trouble hears that it is over.
	return rank(a.Severity) >= rank(c.Severity) || c.Severity == ""
}

// rank orders severities; -1: none.
func rank(s core.Severity) int {
	return slices.Index([]core.Severity{core.SeverityInfo, core.SeverityWarning, core.SeverityCritical}, s)
}

// secret reads the channel's secret; empty: it has none.
func (c *Channel) secret(dir string) (string, error) {
	switch {
	case c.SecretEnv != "":
		value := os.Getenv(c.SecretEnv)
		if value == "" {
			return "", fmt.Errorf("secret_env %s is not set, or empty", c.SecretEnv)
		}
		return value, nil
	case c.SecretFile != "" && dir == "":
		return "", errors.New("secret_file: this node has no folder of secrets (--alerts-secrets-dir)")
	case c.SecretFile != "":
		root, err := os.OpenRoot(dir)
		if err != nil {
			return "", fmt.Errorf("folder of secrets: %w", err)
		}
		defer root.Close()
		info, err := root.Stat(c.SecretFile)
		if err != nil {
			return "", fmt.Errorf("secret_file: %w", err)
		}
		if info.Size() > secretBytesMax {
			return "", fmt.Errorf("secret_file %s has %d bytes, the limit is %d", c.SecretFile, info.Size(), secretBytesMax)
		}
		data, err := root.ReadFile(c.SecretFile)
		if err != nil {
			return "", fmt.Errorf("secret_file: %w", err)
		}
		value := strings.TrimSpace(string(data))
		if value == "" {
			return "", fmt.Errorf("secret_file %s is empty", c.SecretFile)
		}
		return value, nil
	}
	return "", nil
}

// signingPrefix begins a secret of Standard Webhooks; what follows is base64.
const signingPrefix = "whsec_"

// Least and most bytes of a signing secret, as Standard Webhooks has them.
const (
	signingLeast = 24
	signingMost  = 64
)

// signingKeys reads the signing secrets of a webhook, one a line: with two of them a receiver can change from one to the
// other.
func signingKeys(secret string) ([][]byte, error) {
	var keys [][]byte
	for line := range strings.FieldsSeq(secret) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, signingPrefix))
		if err != nil {
			return nil, fmt.Errorf("the signing secret is not base64 after %s", signingPrefix)
		}
		if len(key) < signingLeast || len(key) > signingMost {
			return nil, fmt.Errorf("the signing secret has %d bytes, want %d to %d", len(key), signingLeast, signingMost)
		}
		keys = append(keys, key)
	}
	if len(keys) > 2 {
		return nil, fmt.Errorf("%d signing secrets, the limit is 2", len(keys))
	}
	return keys, nil
}
