package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"duly.dev/duly/dev"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// engineSettings say how the engine is to run: the embedded NATS server and all
// roles in one process, as `duly dev` runs them.
type engineSettings struct {
	Dir          string
	NATSURL      string // of a NATS server in another process; empty: one in this one
	Database     string // URL; empty: SQLite in Dir
	Profile      string // prefix of profile files; empty: none
	RetainDetail time.Duration
	Partitions   int
	Shards       int           // committers; 0: the product's
	CommitGap    time.Duration // 0: the product's
	HTTP         bool          // serve the API and the console, with auth on
	Memory       int64         // bytes of the machine that it runs on; 0: those of this one
}

// engineReady is the engine's first answer.
type engineReady struct {
	NATSURL string
	HTTPURL string // empty: not served
}

// engineRequest is a request to the engine.
type engineRequest struct {
	Restart bool // end all roles and start them again
	Memory  bool // collect garbage and tell what is left
	// Neither: it only tells how much processor time it has used.
}

// engineAnswer is the answer to one.
type engineAnswer struct {
	TakeoverMS float64 // from the restart to owning all partitions
	CPU        float64 // seconds that the engine has used
	HeapMiB    float64 // after the garbage was collected, where that was asked
}

// engineConfig is a node with the settings of `duly dev` and the product's
// defaults for everything that bounds or paces work.
func engineConfig(s engineSettings) config.Config {
	config := dev.Config("bench", s.Partitions)
	config.RetainDetail, config.Memory = s.RetainDetail, s.Memory/2
	config.Shards, config.CommitGap = orElse(s.Shards, config.Shards), s.CommitGap
	return config
}

func runEngine(ctx context.Context, p *part) error {
	var s engineSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	node.TuneMemory(s.Memory / 2) // as duly dev and duly serve do
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := engineConfig(s)
	ready := engineReady{}
	if s.HTTP {
		addr, err := freeAddr(ctx)
		if err != nil {
			return err
		}
		cfg.HTTPAddr, cfg.Auth, ready.HTTPURL = addr, config.AuthToken, "http://"+addr
	}
	system, err := startSystem(ctx, &s, cfg, log)
	if err != nil {
		return err
	}
	defer system.Close()
	ready.NATSURL = system.NATSURL
	stop := begin(ctx, system)
	if err := owned(ctx, system); err != nil {
		return err
	}
	if s.NATSURL != "" {
		stopEmpty, err := serveEmpty(ctx, s.NATSURL)
		if err != nil {
			return err
		}
		defer stopEmpty()
	}
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	if err := p.out.Encode(ready); err != nil {
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
		answer := engineAnswer{TakeoverMS: ms(time.Since(began)), CPU: ownCPU()}
		if w.Memory {
			answer.HeapMiB = heapMiB()
		}
		if err := p.out.Encode(answer); err != nil {
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

// freeAddr is an address of this machine that nothing listens at.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("address for HTTP: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// ownCPU is the processor time that this process has used, in seconds: finer than what /proc tells.
func ownCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// heapMiB is what this process holds on its heap once the garbage is collected and given back.
func heapMiB() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
