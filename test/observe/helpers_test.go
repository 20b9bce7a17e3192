package observe

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/core"
)

// channels is operate.SettingStore with what is stored before a test begins.
type channels map[string][]byte

func (c channels) Setting(_ context.Context, name string) ([]byte, error) {
	if document, ok := c[name]; ok {
		return document, nil
	}
	return nil, core.ErrNotFound
}

func (c channels) Settings(context.Context, string) (map[string][]byte, error) { return c, nil }
func (c channels) PutSetting(context.Context, string, []byte) error            { return nil }
func (c channels) DeleteSetting(context.Context, string) error                 { return nil }

// nothing is an alerts.Source without alerts.
type nothing struct{}

func (nothing) Read(ctx context.Context, _ func(alerts.Message)) error {
	<-ctx.Done()
	return nil
}

// sender makes one with the channel "ops", for test alerts.
func sender(t *testing.T, channel map[string]any, config alerts.Config) *alerts.Sender {
	t.Helper()
	document, err := json.Marshal(channel)
	if err != nil {
		t.Fatal(err)
	}
	config.Store, config.Source, config.Leads = channels{alerts.ChannelPrefix + "ops": document}, nothing{}, func() bool { return false }
	config.Namespace, config.Log, config.AllowLocal = "prod", slog.New(slog.DiscardHandler), true
	s, err := alerts.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
