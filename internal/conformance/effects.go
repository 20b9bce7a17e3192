package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/egress"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/internal/wire"
)

// effectsBytesMax bounds what is read of an answer of effects.
const effectsBytesMax = 64 << 10

// EffectsAt counts effects by asking. A target that begins with http:// or https:// is asked by GET with ?key=<key>, any
// other is a subject of NATS that is asked with {"key":"<key>"}. Both answer {"effects":1}, or the number alone.
func EffectsAt(nc *nats.Conn, target string) (Effects, error) {
	if strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") {
		at, err := url.Parse(target)
		if err != nil || at.Hostname() == "" {
			return nil, option.Refuse("effects", errors.New("want http://host/path or https://host/path"))
		}
		return func(ctx context.Context, key string) (int, error) { return askHTTP(ctx, *at, key) }, nil
	}
	if target == "" || strings.ContainsAny(target, "*> \t\r\n") {
		return nil, option.Refuse("effects", fmt.Errorf("%q, want an address, or a subject without wildcards", wire.Short(target)))
	}
	return func(ctx context.Context, key string) (int, error) {
		question, err := json.Marshal(map[string]string{"key": key})
		if err != nil {
			return 0, err
		}
		m, err := nc.RequestWithContext(ctx, target, question)
		if err != nil {
			return 0, fmt.Errorf("ask %s: %w", target, err)
		}
		return decodeEffects(m.Data)
	}, nil
}

func askHTTP(ctx context.Context, at url.URL, key string) (n int, err error) {
	query := at.Query()
	query.Set("key", key)
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, err
	}
	answer, err := (&http.Client{CheckRedirect: egress.SameOrigin}).Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, effectsBytesMax))
	switch {
	case err != nil:
		return 0, fmt.Errorf("answer of %s: %w", at.Redacted(), err)
	case answer.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s answered with status %d", at.Redacted(), answer.StatusCode)
	}
	return decodeEffects(data)
}

// decodeEffects reads a number of effects.
func decodeEffects(data []byte) (int, error) {
	var n *int
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '{' {
		var a struct {
			Effects *int `json:"effects"`
		}
		if json.Unmarshal(data, &a) == nil {
			n = a.Effects
		}
	} else if json.Unmarshal(data, &n) != nil {
		n = nil
	}
	if n == nil || *n < 0 {
		return 0, fmt.Errorf(`answer %s, want {"effects":1} or a number, 0 or more`, wire.Quote(data))
	}
	return *n, nil
}
