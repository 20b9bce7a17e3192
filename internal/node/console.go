package node

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/console"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// newConsole makes the pages for operators over the ports that the API has.
func (n *Node) newConsole(p *api.Ports, closing <-chan struct{}) (http.Handler, error) {
	cfg := console.Config{
		Base: n.basePath(), Ending: closing, PartitionOf: func(id string) int { return wire.PartitionOf(id, n.cfg.Partitions) },
		Reader: p.Reader, Trail: p.Trail, Desk: p.Desk, Operations: p.OperationStore, Notes: p.Notes, Settings: p.Settings, Actions: p.Actions, Repairs: p.Operations,
		Agents: p.Agents, Books: p.Books, Forecaster: p.Forecaster, Schedules: p.Schedules, Live: p.Live, Partitions: p.Partitions, Pauses: p.Pauses,
		Breakers: p.Breakers, Limits: p.Limits, Versions: p.Versions, Tokens: p.Tokens, Alerts: consoleAlerts{p.Alerts}, StreamsMax: n.cfg.Streams, Version: n.cfg.Version, Now: n.now, Log: n.log,
	}
	if n.cfg.URL != "" {
		cfg.Origin = originOf(n.cfg.URL)
	}
	if n.cfg.Auth != "" && auth.Mode(n.cfg.Auth) != auth.Off {
		cfg.SignOut = auth.PathSignOut
	}
	return console.New(cfg)
}

// basePath is what the path of every URL begins with where a proxy serves this node below a path of its own; empty: none.
func (n *Node) basePath() string {
	u, err := url.Parse(n.cfg.URL)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// consoleAlerts is console.Alerts on the channels that the API manages, too.
type consoleAlerts struct{ book *alerts.Book }

// Channels implements console.Alerts.
func (c consoleAlerts) Channels(ctx context.Context) ([]console.Channel, error) {
	stored, err := c.book.All(ctx)
	all := make([]console.Channel, len(stored))
	for i := range stored {
		s := &stored[i]
		all[i] = console.Channel{Name: s.Name, Kind: s.Kind, To: strings.Join(s.To, ", "), Events: s.Alerts, Last: s.State.At, Error: cmp.Or(s.Broken, s.State.Error)}
		if s.URL != "" {
			all[i].To = originOf(s.URL)
		}
	}
	return all, err
}

// originOf is what of a URL holds no secret.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return say.Of("alert.url")
	}
	return u.Scheme + "://" + u.Host
}

// Document implements console.Alerts.
func (c consoleAlerts) Document(ctx context.Context, name string) ([]byte, error) {
	one, err := c.book.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(&one.Channel, "", "  ")
}

// Check implements console.Alerts.
func (c consoleAlerts) Check(name string, document []byte) ([]byte, error) {
	channel, err := alerts.DecodeChannel(name, document)
	if err != nil {
		return nil, &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "document", Detail: err.Error()}
	}
	return json.Marshal(&channel)
}

// Put implements console.Alerts.
func (c consoleAlerts) Put(ctx context.Context, name string, document []byte, secret *string) error {
	channel, err := alerts.DecodeChannel(name, document)
	if err != nil {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "document", Detail: err.Error()}
	}
	return c.book.Put(ctx, channel, secret)
}

// Delete implements console.Alerts.
func (c consoleAlerts) Delete(ctx context.Context, name string) error {
	return c.book.Delete(ctx, name)
}

// Test implements console.Alerts.
func (c consoleAlerts) Test(ctx context.Context, name string) error {
	return c.book.Test(ctx, name)
}
