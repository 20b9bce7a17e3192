package mock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
)

// Settings are those of an example.
type Settings struct {
	Faults   Faults
	Seed     uint64
	CallTime time.Duration // of one call of a service; 0: Duly's default
	Backend  Backend       // where the books of the services are; nil: here
}

// Quick are the settings for demonstrations and tests with faults, in which a time-out of ten seconds would take too
// long.
func Quick(faults Faults, seed uint64) Settings {
	return Settings{Faults: faults, Seed: seed, CallTime: time.Second}
}

// flags come from the command line, else the environment, else the default.
type flags struct {
	NATSURL   string        `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS server."`
	Namespace string        `env:"DULY_NAMESPACE" default:"duly" help:"Namespace of the Duly to work with, as its nodes have it."`
	Faults    string        `enum:"none,some,storm" default:"some" help:"What goes wrong: none, some or storm."`
	Seed      uint64        `default:"1" help:"Seed of the faults."`
	Tasks     int           `default:"100" help:"Tasks to run."`
	Within    time.Duration `default:"5m" help:"How long they may take."`
}

// Main is the program of an example: it runs tasks on a Duly that is up and prints the report. It returns the exit code: 1 when the
// books do not agree.
func Main(name string, build func(Settings) Example) int {
	var f flags
	kong.Parse(&f, kong.Name(name), kong.Description("The example "+name+" on a Duly that is up, such as `duly dev`."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	clean, err := run(ctx, &f, name, build)
	stop()
	if err != nil {
		slog.Error(name+" stopped", "error", err)
	}
	if err != nil || !clean {
		return 1
	}
	return 0
}

func run(ctx context.Context, f *flags, name string, build func(Settings) Example) (clean bool, err error) {
	faults, err := FaultsNamed(f.Faults)
	if err != nil {
		return false, err
	}
	nc, err := nats.Connect(f.NATSURL, nats.Name(name), nats.MaxReconnects(-1))
	if err != nil {
		return false, fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	report, err := Play(ctx, nc, f.Namespace, build(Quick(faults, f.Seed)), f.Tasks, f.Within, slog.Default())
	if err != nil {
		return false, err
	}
	report.Print(os.Stdout)
	return report.Clean(), nil
}
