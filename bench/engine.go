package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"duly.dev/duly/dev"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// engineSettings say how the engine is to run: the embedded NATS server and all
// roles in one process, as `duly dev` runs them.
type engineSettings struct {
	Dir          string
	Database     string // URL; empty: SQLite in Dir
	Profile      string // prefix of profile files; empty: none
	RetainDetail time.Duration
	Partitions   int
	Shards       int           // committers; 0: the product's
	CommitGap    time.Duration // 0: the product's
}

// engineReady is the engine's first answer.
type engineReady struct {
	NATSURL string
}

// engineRequest is a request to the engine.
type engineRequest struct {
	Restart bool // end all roles and start them again
}

// engineAnswer is the answer to one.
type engineAnswer struct {
	TakeoverMS float64 // from the restart to owning all partitions
}

// engineConfig is a node with the settings of `duly dev` and the product's
// defaults for everything that bounds or paces work.
func engineConfig(s engineSettings) config.Config {
	config := dev.Config("bench", s.Partitions)
	config.RetainDetail = s.RetainDetail
	config.Shards, config.CommitGap = orElse(s.Shards, config.Shards), s.CommitGap
	return config
}

func runEngine(ctx context.Context, p *part) error {
	var s engineSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	node.TuneMemory(0) // as duly dev and duly serve do
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	system, err := dev.Start(ctx, dev.Options{Dir: s.Dir, Store: s.Database, Config: engineConfig(s), Log: log})
	if err != nil {
		return err
	}
	defer system.Close()
	stop := begin(ctx, system)
	if err := owned(ctx, system); err != nil {
		return err
	}
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	if err := p.out.Encode(engineReady{NATSURL: system.NATSURL}); err != nil {
		return err
	}
	for {
		var w engineRequest
		ok, err := p.read(&w)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		began := time.Now()
		if w.Restart {
			if err := stop(); err != nil {
				return err
			}
			began = time.Now()
			stop = begin(ctx, system)
			if err := owned(ctx, system); err != nil {
				return err
			}
		}
		if err := p.out.Encode(engineAnswer{TakeoverMS: ms(time.Since(began))}); err != nil {
			return err
		}
	}
	if err := stopProfile(); err != nil {
		return err
	}
	return stop()
}

// begin runs all roles until the function it returns is called.
func begin(ctx context.Context, system *dev.System) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- system.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// ownedMax is how long a node may take to hold every partition.
const ownedMax = time.Minute

func owned(ctx context.Context, system *dev.System) error {
	ctx, cancel := context.WithTimeout(ctx, ownedMax)
	defer cancel()
	return system.AwaitOwned(ctx)
}
