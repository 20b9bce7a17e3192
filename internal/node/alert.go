package node

import (
	"context"
	"log/slog"
	"strings"

	"duly.dev/duly/internal/ground"
)

// alertPrefix begins the lines by which a role says that an operator must know.
const alertPrefix = "ALERT: "

// alertLines is a log's handler that makes alerts of a role's lines that are meant as such, and passes all others on.
// Roles have no port for alerts: a line is all that they need to say. Its attribute event is the name, which
// docs/operations/health.md explains.
type alertLines struct {
	slog.Handler
	ground *ground.Ground
}

// Handle implements slog.Handler.
func (h alertLines) Handle(ctx context.Context, r slog.Record) error {
	text, ok := strings.CutPrefix(r.Message, alertPrefix)
	if !ok {
		return h.Handler.Handle(ctx, r)
	}
	a := ground.Alert{Name: text, Text: text}
	r.Attrs(func(attr slog.Attr) bool {
		switch attr.Key {
		case "error":
			a.Error = attr.Value.String()
		case "event":
			a.Name = attr.Value.String()
		default:
			a.Attrs = append(a.Attrs, attr)
		}
		return true
	})
	h.ground.Once(a)
	return nil
}

// WithAttrs implements slog.Handler.
func (h alertLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return alertLines{h.Handler.WithAttrs(attrs), h.ground}
}

// WithGroup implements slog.Handler.
func (h alertLines) WithGroup(name string) slog.Handler {
	return alertLines{h.Handler.WithGroup(name), h.ground}
}
