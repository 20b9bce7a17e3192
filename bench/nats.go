package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// natsSettings say how a NATS server of its own runs.
type natsSettings struct {
	Dir     string
	Profile string
}

// natsReady is its first answer.
type natsReady struct{ URL string }

// runNATS runs a server until the input ends.
func runNATS(_ context.Context, p *part) error {
	var s natsSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	server, err := natsserver.Start(natsserver.Options{Dir: s.Dir})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	if err := p.out.Encode(natsReady{server.ClientURL()}); err != nil {
		return err
	}
	var none struct{}
	if _, err := p.read(&none); err != nil {
		return err
	}
	return stopProfile()
}

// startSystem starts the engine with a NATS server in its process, or on one that is another.
func startSystem(ctx context.Context, s *engineSettings, cfg config.Config, log *slog.Logger) (*dev.System, error) {
	if s.NATSURL == "" {
		return dev.Start(ctx, dev.Options{Dir: s.Dir, Store: s.Database, Config: cfg, Log: log})
	}
	cfg.NATSURL, cfg.SyncAlways, cfg.DatabaseURL = s.NATSURL, true, s.Database
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if s.Database == "" {
		cfg.DatabaseURL = "sqlite:" + filepath.Join(s.Dir, "duly.db")
	}
	if err := node.Migrate(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	n, err := node.Open(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return &dev.System{NATSURL: s.NATSURL, Node: n}, nil
}

// What the engine's process does besides, to compare with: it answers empty requests with nothing, and takes messages off a
// stream of its own and drops them.
const (
	emptySubject = "bench.empty"
	takeSubject  = "bench.take"
	takeStream   = "BENCH"
	takeBytes    = 256 << 20
)

// serveEmpty does that until the function it returns is called.
func serveEmpty(ctx context.Context, url string) (stop func(), err error) {
	nc, err := nats.Connect(url, nats.Name("bench-empty"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: takeStream, Subjects: []string{takeSubject}, MaxBytes: takeBytes, Discard: jetstream.DiscardOld})
	}
	var consumer jetstream.Consumer
	if err == nil {
		consumer, err = js.OrderedConsumer(ctx, takeStream, jetstream.OrderedConsumerConfig{})
	}
	var consuming jetstream.ConsumeContext
	if err == nil {
		consuming, err = consumer.Consume(func(jetstream.Msg) {})
	}
	if err == nil {
		_, err = nc.Subscribe(emptySubject, func(m *nats.Msg) { _ = m.Respond(nil) }) // of a client that is gone
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("serve what is compared with: %w", err)
	}
	return func() {
		consuming.Stop()
		<-consuming.Closed()
		nc.Close()
	}, nil
}
