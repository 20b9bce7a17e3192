package alerts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/wneessen/go-mail"

	"duly.dev/duly/internal/core"
)

// smtpPorts are the schemes of a mail server, with their usual ports.
var smtpPorts = map[string]string{"smtp": "587", "smtps": "465", "smtp+plain": "25"}

// mail sends one alert by mail once. A server that refuses a recipient refuses the mail.
func (s *Sender) mail(ctx context.Context, c *Channel, secret string, a *core.Alert) error {
	message, err := s.compose(c, a)
	if err != nil {
		return finalError{err}
	}
	client, err := s.mailClient(c, secret)
	if err != nil {
		return finalError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, tryMax)
	defer cancel()
	err = client.DialAndSendWithContext(ctx, message)
	var refused *mail.SendError
	if errors.As(err, &refused) && !refused.IsTemp() && refused.ErrorCode() >= 500 {
		return finalError{err}
	}
	return err
}

// compose makes the mail. Its Message-ID is of the alert, so that a mail that comes twice can be told.
func (s *Sender) compose(c *Channel, a *core.Alert) (*mail.Msg, error) {
	view := viewOf(a, s.cfg.Namespace)
	subject, err := render(c.templates.subject, view)
	if err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	text, err := render(c.templates.text, view)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	m := mail.NewMsg()
	if err := m.From(c.From); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if err := m.To(c.To...); err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	m.Subject(core.ShortText(oneLine(string(subject)), subjectMax))
	m.SetMessageIDWithValue(a.ID + "@" + s.cfg.Namespace + ".duly")
	m.SetGenHeader("Auto-Submitted", "auto-generated") // no one's absence is answered
	m.SetDateWithValue(a.At.Time())
	m.SetBodyString(mail.TypeTextPlain, string(text))
	return m, nil
}

// subjectMax bounds the subject of a mail, in bytes.
const subjectMax = 200

func (s *Sender) mailClient(c *Channel, secret string) (*mail.Client, error) {
	u, err := url.Parse(c.Server)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	text := u.Port()
	if text == "" {
		text = smtpPorts[u.Scheme]
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("server: port: %w", err)
	}
	dial := dialer(s.cfg.AllowLocal).DialContext
	config := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12, RootCAs: s.cfg.Roots}
	options := []mail.Option{mail.WithPort(port), mail.WithTimeout(tryMax), mail.WithTLSConfig(config), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithHELO("duly")}
	switch u.Scheme {
	case "smtps":
		plain := dial
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := plain(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, config), nil
		}
		options = append(options, mail.WithTLSPolicy(mail.NoTLS)) // the connection is encrypted already
	case "smtp+plain":
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if c.Username != "" {
		auth := mail.SMTPAuthPlain
		if u.Scheme == "smtps" {
			auth = mail.SMTPAuthPlainNoEnc // as far as the library sees
		}
		options = append(options, mail.WithSMTPAuth(auth), mail.WithUsername(c.Username), mail.WithPassword(secret))
	}
	return mail.NewClient(u.Hostname(), append(options, mail.WithDialContextFunc(dial))...)
}
