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
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/redact"
)

// version and revision are set by the release build; `duly version` adds what the
// toolchain knows.
var (
	version  = "0.1.0-dev"
	revision = "" // of the source; empty: the toolchain's
)

// errUnclean makes the program exit with 1 after it has said all there is to say.
var errUnclean = errors.New("unclean")

// cli is the command line.
type cli struct {
	Demo        demoCmd        `cmd:"" help:"Run deliveries through everything, in a temporary directory, and check the books."`
	Dev         devCmd         `cmd:"" help:"Run everything in one process, with NATS and the database embedded."`
	Serve       serveCmd       `cmd:"" help:"Run roles against NATS and a database."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database's tables up to this version."`
	TaskStreams taskStreamsCmd `cmd:"" name:"task-streams" help:"Change how many task streams share the partitions, while no scheduler runs."`
	AcceptLoss  acceptLossCmd  `cmd:"" name:"accept-loss" help:"Note that you know of messages that a stream lacks: its alert ends."`
	Renew       renewCmd       `cmd:"" name:"new-installation" help:"Make another installation of a copy of a database, before any node uses it."`
	Submit      submitCmd      `cmd:"" help:"Submit a task and print where it is stored."`
	Get         getCmd         `cmd:"" help:"Show one task with its steps."`
	List        listCmd        `cmd:"" help:"List tasks, newest first."`
	Cancel      cancelCmd      `cmd:"" help:"End a task; what it did is undone."`
	Export      exportCmd      `cmd:"" help:"Print one task with its plan and journal as a file that replay and diff open."`
	Replay      replayCmd      `cmd:"" help:"Play a task's journal: what happened, what was decided, and why."`
	Diff        diffCmd        `cmd:"" help:"Say where two tasks of one plan part."`
	Why         whyCmd         `cmd:"" help:"Say why a task is where it is and what comes next."`
	Task        taskCmd        `cmd:"" help:"Look at tasks and act on them."`
	Signal      signalCmd      `cmd:"" help:"Answer a signal step of a task, or refuse it."`
	Plan        planCmd        `cmd:"" help:"Look at plans and store them."`
	Failures    failuresCmd    `cmd:"" help:"Look at what failed alike, and repair it at once."`
	Op          opCmd          `cmd:"" help:"Look at operations over many tasks, and hold or end them."`
	Agents      agentsCmd      `cmd:"" help:"Look at the agents: how many are there, and what waits for them; open and close their breakers."`
	Partitions  partitionsCmd  `cmd:"" help:"Look at the partitions, and move them."`
	Pause       pauseCmd       `cmd:"" help:"Hold back new commands, and let them go again."`
	Limits      limitsCmd      `cmd:"" help:"Bound what agents get over all nodes: calls at a time, and calls a second."`
	Schedule    scheduleCmd    `cmd:"" help:"Submit tasks again and again: make schedules, look at them, hold them."`
	Audit       auditCmd       `cmd:"" help:"List who did what, when, from where and why, newest first."`
	Token       tokenCmd       `cmd:"" help:"Make and end tokens of the API."`
	Note        noteCmd        `cmd:"" help:"Write a note about a failure group, or list its notes."`
	Tail        tailCmd        `cmd:"" help:"Print what becomes of tasks, as it happens."`
	Status      statusCmd      `cmd:"" help:"Say once what needs you, as the console's first screen does, and how many tasks are in each state."`
	Top         topCmd         `cmd:"" help:"Watch the engine in the terminal: what needs you, how it does, and what fails."`
	Outbox      outboxCmd      `cmd:"" help:"Submissions in transactions of a database: the table, and what was refused."`
	Books       booksCmd       `cmd:"" help:"Compare the journal with the books of the services, and name what does not agree. Exit status 1 if something does not, or is not known."`
	Forecast    forecastCmd    `cmd:"" help:"Show how likely the unfinished tasks make their deadlines, by plan and step."`
	Verify      verifyCmd      `cmd:"" help:"Check the journal against its hash chains, and name the first row that does not fit. Exit status 1 if one does not, or there is no chain."`
	Doctor      doctorCmd      `cmd:"" help:"Look for mistakes in NATS, the database and this node's settings. Exit status 1 if there is one."`
	Conformance conformanceCmd `cmd:"" help:"Play the rules of the protocol against an agent that runs, and say which it holds. Exit status 1 if one is broken."`
	Shadow      shadowCmd      `cmd:"" help:"Give copies of an agent's commands to another one, which has no effects, and compare what they answer. Exit status 1 if they differ."`
	Profile     profileCmd     `cmd:"" help:"Keep addresses and tokens of nodes under names."`
	Completion  completionCmd  `cmd:"" help:"Print the completion of this command line for a shell."`
	Health      healthCmd      `cmd:"" help:"Ask a node whether it is ready; for container checks."`
	Permissions permissionsCmd `cmd:"" name:"nats-permissions" help:"Print what each user of NATS may do, for nats-server's configuration."`
	Mappings    mappingsCmd    `cmd:"" name:"nats-mappings" help:"Print the mappings of NATS that send a share of an agent's commands to a variant of it, such as a canary, for nats-server's configuration."`
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

// input is what a command reads, until ctx ends: who gives it may be a person who has thought better of it.
type input struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (i *input) Read(p []byte) (int, error) {
	type read struct {
		n   int
		err error
	}
	own := make([]byte, len(p)) // the reading may outlive this call
	done := make(chan read, 1)
	go func() {
		n, err := i.from.Read(own)
		done <- read{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, own[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

// given is what in reads from, for what asks whether that is a terminal, or has it for itself.
func (s streams) given() io.Reader {
	if i, ok := s.in.(*input); ok {
		return i.from
	}
	return s.in
}

// run is the program without the process: it returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	// Whatever a command prints, words of others are in it.
	out, errs := &show.Visible{To: std.out}, &show.Visible{To: std.err}
	defer out.Close()
	defer errs.Close()
	std.in, std.out, std.err = &input{ctx, std.in}, out, errs
	var c cli
	exited, at := -1, ""
	ctx = client.Telling(ctx, func(base string) { at = base })
	parser, err := kong.New(&c, append(options(std), kong.Exit(func(code int) { exited = code }), kong.BindTo(ctx, (*context.Context)(nil)))...)
	if err != nil {
		complain(std.err, err)
		return exitUse
	}
	if completing(parser, std) {
		return exitDone
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		complain(std.err, err)
		return exitUse
	}
	err = parsed.Run()
	if at != "" && (err == nil || errors.Is(err, errUnclean)) { // whichever of flag, environment and profile said so
		fmt.Fprintln(std.err, "duly: at", redact.Text(at))
	}
	if lost := out.Lost(); err == nil && lost != nil {
		err = fmt.Errorf("output: %w", lost)
	}
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUnclean):
		return exitFailed
	default:
		complain(std.err, err)
		return exitOf(err)
	}
}

// options are how a command line is read.
func options(std streams) []kong.Option {
	return []kong.Option{kong.Name("duly"), kong.NamedMapper("task", kong.MapperFunc(readType)), kong.Description(exitHelp()), kong.UsageOnError(), kong.Writers(std.out, std.err), kong.Bind(std)}
}

// readType reads the type of a task; of type/id, as audit trail and console write it, the id is the next word.
func readType(ctx *kong.DecodeContext, to reflect.Value) error {
	var word string
	if err := ctx.Scan.PopValueInto("type", &word); err != nil {
		return err
	}
	name, id, both := strings.Cut(word, "/")
	switch {
	case both && (name == "" || id == ""):
		return fmt.Errorf("%q, want type/id", word)
	case both:
		ctx.Scan.PushTyped(id, kong.PositionalArgumentToken)
	}
	to.SetString(name)
	return nil
}

// complain prints why a command failed. Words of others may be in it.
func complain(w io.Writer, err error) {
	lines := strings.Split(redact.Error(err).Error(), "\n")
	for i := range lines {
		lines[i] = show.Clean(lines[i])
	}
	fmt.Fprintln(w, "duly:", strings.Join(lines, "\n"))
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
	goVersion, revision := "", revision
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && revision == "" {
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
