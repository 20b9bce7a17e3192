// Command duly runs tasks made of several steps, so that each is done by its
// deadline or is undone.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/redact"
)

// version is set by the release build; `duly version` adds what the toolchain
// knows.
var version = "0.1.0-dev"

// errUnclean makes the program exit with 1 after it has said all there is to say.
var errUnclean = errors.New("unclean")

// cli is the command line.
type cli struct {
	Demo        demoCmd        `cmd:"" help:"Run deliveries through everything, in a temporary directory, and check the books."`
	Dev         devCmd         `cmd:"" help:"Run everything in one process, with NATS and the database embedded."`
	Serve       serveCmd       `cmd:"" help:"Run roles against NATS and a database."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database's tables up to this version."`
	Renew       renewCmd       `cmd:"" name:"new-installation" help:"Make another installation of a copy of a database, before any node uses it."`
	Submit      submitCmd      `cmd:"" help:"Submit a task and print where it is stored."`
	Get         getCmd         `cmd:"" help:"Show one task with its steps."`
	List        listCmd        `cmd:"" help:"List tasks, newest first."`
	Cancel      cancelCmd      `cmd:"" help:"End a task; what it did is undone."`
	Health      healthCmd      `cmd:"" help:"Ask a node whether it is ready; for container checks."`
	Permissions permissionsCmd `cmd:"" name:"nats-permissions" help:"Print what each user of NATS may do, for nats-server's configuration."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// streams are where a command speaks.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// run is the program without the process: it returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("duly"),
		kong.Description("Tasks of several steps, done by their deadline or undone."),
		kong.UsageOnError(),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
	)
	if err != nil {
		fmt.Fprintln(std.err, "duly:", redact.Error(err))
		return 2
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintln(std.err, "duly:", redact.Error(err))
		return 2
	}
	switch err := parsed.Run(); {
	case err == nil:
		return 0
	case errors.Is(err, errUnclean):
		return 1
	default:
		fmt.Fprintln(std.err, "duly:", redact.Error(err))
		return 1
	}
}

// newLog makes the logger of a long-running command.
func newLog(w io.Writer, logs config.Logs) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(logs.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if logs.Level != nil {
		logs.Level.Set(level)
		options.Level = logs.Level
	}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if logs.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(redact.Handler(handler))
}

type versionCmd struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"text or json."`
}

// Run prints the version.
func (c *versionCmd) Run(std streams) error {
	goVersion, revision := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if c.Output == "json" {
		return writeJSON(std.out, map[string]string{"version": version, "go": goVersion, "revision": revision})
	}
	_, err := fmt.Fprintf(std.out, "duly %s %s\n", version, goVersion)
	return err
}
