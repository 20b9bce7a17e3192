package duly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Agent performs steps: the ones its process serves. Several agents, and
// several processes of one agent, share the work.
type Agent struct {
	nc      *nats.Conn
	runtime *agents.Runtime
	log     *slog.Logger
	single  bool
	variant string // see Variant
	dry     bool   // see DryRun
	names   wire.Names
	who     string // see Instance
	books   []agentBooks
	codec   Codec // nil: payloads are as they are
}

// agentConfig is what options change.
type agentConfig struct {
	agents.Config
	single    bool
	variant   string
	dry       bool
	namespace string
	instance  string
	books     []agentBooks
	codec     Codec
	err       error // the first option that says what cannot be
}

// want refuses an option whose value is below least.
func want[T int | time.Duration](c *agentConfig, option string, value, least T) {
	if value < least && c.err == nil {
		c.err = fmt.Errorf("%s(%v), want %v or more", option, value, least)
	}
}

// AgentOption changes how an [Agent] works.
type AgentOption interface{ forAgent(*agentConfig) }

type agentOption func(*agentConfig)

func (o agentOption) forAgent(c *agentConfig) { o(c) }

// SingleCommands makes the agent take one command a NATS message, and say
// nothing of taking more. Otherwise a busy scheduler sends several in one, which
// costs everyone less. Choose it for an agent whose name is also served by
// programs that listen on duly.do.<agent> themselves without saying so in NATS's
// service discovery: they would get less than their share.
func SingleCommands() AgentOption { return agentOption(func(c *agentConfig) { c.single = true }) }

// Running is how many commands of one agent name are at work at a time in this
// process; 1024 unless said. Choose what the service behind it can take.
func Running(most int) AgentOption {
	return agentOption(func(c *agentConfig) {
		want(c, "Running", most, 1)
		c.RunningMax = most
	})
}

// Waiting is how many commands of one agent name may wait for room in this
// process; 4096 unless said. One more is refused at once and tried again later.
func Waiting(most int) AgentOption {
	return agentOption(func(c *agentConfig) {
		want(c, "Waiting", most, 1)
		c.WaitingMax = most
	})
}

// Retries is how many more times a handler that fails is called within one
// command, with a growing random pause and never past the complete-by; 2 unless
// said. They do not count as attempts of the step. Refusals and panics are not
// repeated.
func Retries(most int) AgentOption {
	return agentOption(func(c *agentConfig) {
		want(c, "Retries", most, 0)
		c.TriesMax = most + 1
	})
}

// Instance is what the journal of a task names for what this process answers, before
// the agent's name: <name>@<agent>. It is 1 to 64 of A–Z a–z 0–9 _ -; the host's name and
// the process id unless said.
func Instance(name string) AgentOption {
	return agentOption(func(c *agentConfig) {
		if err := core.CheckName("Instance", name); err != nil && c.err == nil {
			c.err = err
		}
		c.instance = name
	})
}

// Variant makes the process a variant of its agents, such as a canary of a new version: it takes no commands but those
// that a subject mapping of NATS sends to duly.do.<agent>-<variant>, and the same of undo, probe and batch.do. In all else
// it is an instance of its agents, in their service discovery too. It must bear commands of keys that another version has
// worked on, so it shares their [Ledger]. variant is 1 to 64 of A–Z a–z 0–9 _ -, as far as the agent's name leaves room;
// empty: no variant. docs/guide/canary.md has the mappings.
func Variant(variant string) AgentOption {
	return agentOption(func(c *agentConfig) {
		if variant != "" {
			if err := core.CheckName("Variant", variant); err != nil && c.err == nil {
				c.err = err
			}
		}
		c.variant = variant
	})
}

// DryRun says that nothing that the agent does has an effect, as `duly shadow` wants it: the agent announces that, takes
// copies of dos alone, one a message, and answers each other command with 503, so that a plan that names it by mistake
// waits and is not taken for done. That the handlers have no effect is for you to see to.
func DryRun() AgentOption { return agentOption(func(c *agentConfig) { c.dry = true }) }

// instanceName is an instance's without one of the user's.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host" // the process id tells instances apart on most machines
	}
	return fmt.Sprintf("%s-%d", core.NameOf(host, core.NameBytesMax-12), os.Getpid())
}

// Drain is how long [Agent.Run] finishes what is in hand after its context has
// ended; 30 s unless said.
func Drain(d time.Duration) AgentOption {
	return agentOption(func(c *agentConfig) {
		want(c, "Drain", d, time.Millisecond)
		c.DrainMax = d
	})
}

// Log is where panics and lost replies go; slog.Default() unless said.
func Log(log *slog.Logger) AgentOption { return agentOption(func(c *agentConfig) { c.Log = log }) }

// Ledger remembers what became of keys: see [agents.Ledger]. It makes handlers
// idempotent that are not. Packages agents/pgledger and agents/kvledger have
// durable ones.
type Ledger = agents.Ledger

// WithLedger puts a ledger before the handlers of every [Step] of the agent: a
// key is done once and undone once, and a do after its undo is refused.
func WithLedger(ledger Ledger) AgentOption {
	return agentOption(func(c *agentConfig) { c.Ledger = ledger })
}

// NewMemoryLedger makes a [Ledger] in the memory of this process. It suits
// tests, and agents that run as one process whose effects die with it: what it
// knows is lost on a restart. A key is forgotten after it has rested for age
// (zero: 10 minutes), which must be longer than a task can take; keysMax bounds
// how many are remembered (zero: 1,048,576), and beyond it new keys are refused
// for the time being rather than others forgotten.
func NewMemoryLedger(age time.Duration, keysMax int) Ledger {
	return agents.NewMemoryLedger(wall{}.Now, age, keysMax)
}

// NewAgent makes an agent on nc that serves nothing yet: see [Check.Serve] and
// [Step.Serve]. A nil nc makes one that cannot run, for tests of its handlers:
// see package dulytest.
func NewAgent(nc *nats.Conn, options ...AgentOption) (*Agent, error) {
	if nc != nil && nc.IsClosed() {
		return nil, errors.New("new agent: the connection to NATS is closed")
	}
	config := agentConfig{Config: agents.Config{Time: wall{}, Context: withSpan}, instance: instanceName()}
	for _, option := range options {
		option.forAgent(&config)
	}
	if config.err != nil {
		return nil, fmt.Errorf("new agent: %w", config.err)
	}
	if config.dry && config.variant != "" {
		return nil, errors.New("new agent: DryRun and Variant: a variant gets commands that must have their effect")
	}
	names, err := wire.NewNames(config.namespace)
	if err != nil {
		return nil, fmt.Errorf("new agent: %w", err)
	}
	return &Agent{nc: nc, variant: config.variant, dry: config.dry, names: names, runtime: agents.New(config.Config), log: config.Log, single: config.single, who: config.instance, books: config.books, codec: config.codec}, nil
}

// Run performs the served steps until ctx ends; then it takes no new command,
// finishes what is in hand and returns nil. It returns an error when it could
// not go on, or when handlers outlived the drain: the connection is closed, or its user
// may not subscribe to a subject of one of the agent's names (duly.do.<agent>,
// duly.undo.<agent> and, without [SingleCommands], duly.batch.do.<agent> and
// duly.batch.undo.<agent>), which is a [nats.ErrPermissionViolation].
func (a *Agent) Run(ctx context.Context) error {
	if a.nc == nil {
		return errors.New("run agent: it has no connection to NATS")
	}
	return errors.Join(a.runtime.Run(ctx, source{a.nc, a.log, a.single, a.variant, a.dry, a.names, a.who, a.books, a.runtime}), a.flush(ctx))
}

// flush sees the last replies out; the connection is the caller's to close.
func (a *Agent) flush(ctx context.Context) error {
	if a.nc.IsClosed() {
		return nil // said by Run
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return a.nc.FlushWithContext(ctx)
}

// Codec is what [WithCodec] gave; nil: payloads are as they are. Package dulytest encodes with it.
func (a *Agent) Codec() Codec { return a.codec }

// Runtime is the agent without its connection: what package dulytest plays
// commands against.
func (a *Agent) Runtime() *agents.Runtime { return a.runtime }
