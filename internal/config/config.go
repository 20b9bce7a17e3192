// Package config is what a node can be told: every setting with its flag, its environment
// variable, its default and its limits. [Config.Resolve] fills in what is left open,
// [Config.Validate] refuses what cannot work and changes nothing.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// HTTPPort is where a node serves its API and health unless told otherwise.
const HTTPPort = 7310

// The roles a node can run.
const (
	RoleIngest     = "ingest"
	RoleScheduler  = "scheduler"
	RoleSupervisor = "supervisor"
)

// Roles lists the roles a node can run.
var Roles = []string{RoleIngest, RoleScheduler, RoleSupervisor}

// Config is what a node needs to know. The tags are its command-line flags and
// environment: a flag goes before the environment, that before the default.
type Config struct {
	Roles       []string `name:"roles" env:"DULY_ROLES" default:"ingest,scheduler,supervisor" help:"Roles to run: ingest, scheduler, supervisor; agents, with --agents."`
	NodeName    string   `name:"node-name" env:"DULY_NODE_NAME" help:"Name of this node, unique among the live ones (default: host name and process id)."`
	Namespace   string   `name:"namespace" env:"DULY_NAMESPACE" default:"duly" help:"What the names of this installation on NATS begin with: subjects, and in upper case streams and buckets. Installations that share a NATS have different ones; agents and submitters use that of theirs."`
	HTTPAddr    string   `name:"http-addr" env:"DULY_HTTP_ADDR" default:"127.0.0.1:7310" help:"Where to serve the API and health. Other addresses than loopback need --auth, or --insecure."`
	Partitions  int      `name:"partitions" env:"DULY_PARTITIONS" default:"16" help:"Number of partitions; fixed for the life of the data. At most so many nodes share the work; fewer make fuller packs: 4 serve one small machine."`
	TaskStreams int      `name:"task-streams" env:"DULY_TASK_STREAMS" default:"1" help:"Task streams that share the partitions, each with its leader in a NATS cluster: as many as servers, where one is the limit. All nodes say the same, and the command task-streams changes it. 0: 1."`
	Shards      int      `name:"shards" env:"DULY_SHARDS" default:"2" help:"Committers of a scheduler, each with partitions and a loop of its own: few are better, because batches shrink with more."`
	InFlight    int      `name:"in-flight" env:"DULY_IN_FLIGHT" default:"4096" help:"Tasks in flight per partition. A node has fewer while its commit cycles take long."`
	Memory      int64    `name:"memory" env:"DULY_MEMORY" default:"0" help:"Bytes that the node may use: half of it for tasks in flight, an eighth for submissions that wait to be stored; over that no new ones are taken (429). 0: half of the machine's, or of what its container may have."`
	RecentBytes int64    `name:"recent-bytes" env:"DULY_RECENT_BYTES" default:"2097152" help:"Bytes of memory for the ids that were accepted here last, 24 for each: another input under one of them is refused at once. 0: the default."`
	AgentWindow int      `name:"agent-window" env:"DULY_AGENT_WINDOW" default:"2048" help:"Tasks in flight per partition at one agent."`

	CommitGap    time.Duration `name:"commit-gap" env:"DULY_COMMIT_GAP" default:"5ms" help:"Least time from one commit of several tasks to the next of a committer: longer makes fuller commits, which cost less, and slower tasks. 0: the default; negative: none."`
	ScanInterval time.Duration `name:"scan-interval" env:"DULY_SCAN_INTERVAL" default:"1s" help:"How often the supervisor looks for what is overdue."`
	Lease        time.Duration `name:"lease" env:"DULY_LEASE" default:"6s" help:"How long a silent node, or a silent leader, keeps its place; at least twice scan-interval."`
	Drain        time.Duration `name:"drain" env:"DULY_DRAIN" default:"5s" help:"How long a stop waits for what is under way."`
	ReplyTo      []string      `name:"reply-to-prefixes" env:"DULY_REPLY_TO_PREFIXES" default:"_INBOX.,_INBOX_,status." help:"Prefixes of the subjects that private statuses of submitters go to, and answers besides those in inboxes; each ends with a dot. _INBOX_ allows inboxes with a prefix of their own, as _INBOX_shop.…; without it name each: _INBOX_shop."`

	RetainDetail time.Duration `name:"retain-detail" env:"DULY_RETAIN_DETAIL" default:"168h" help:"How long the input, results and journal of an ended task are kept; at most retain-row. 0: for ever, with retain-row 0."`
	RetainRow    time.Duration `name:"retain-row" env:"DULY_RETAIN_ROW" default:"720h" help:"How long the id and the end of a task are kept, so that the same id is not done twice; at least retain-detail and stream-max-age. 0: for ever."`
	RetainAudit  time.Duration `name:"retain-audit" env:"DULY_RETAIN_AUDIT" default:"9600h" help:"How long entries of the audit trail are kept; at least 24h. 0: for ever."`

	StreamMaxAge time.Duration `name:"stream-max-age" env:"DULY_STREAM_MAX_AGE" default:"72h" help:"How long what every partition has read stays in the task and control streams, for a restore of the database: more than the interval between its backups. What is unread stays. 0: 24h."`
	StreamKeep   time.Duration `name:"stream-keep" env:"DULY_STREAM_KEEP" default:"24h" help:"How long finished submissions stay in the task stream for a restore of the database, when it is over 80 % full; over 95 % full they go earlier."`

	StreamMaxBytes        int64 `name:"stream-max-bytes" env:"DULY_STREAM_MAX_BYTES" default:"0" help:"Size of the task streams together, in bytes; one that is full of unfinished work refuses submissions. 0: 60 % of what NATS offers, at most 10 GiB. A size can be changed later."`
	StreamControlMaxBytes int64 `name:"stream-control-max-bytes" env:"DULY_STREAM_CONTROL_MAX_BYTES" default:"0" help:"Size of the streams of requests about tasks together, in bytes. 0: 5 % of what NATS offers, at most 1 GiB."`
	StreamEventsMaxBytes  int64 `name:"stream-events-max-bytes" env:"DULY_STREAM_EVENTS_MAX_BYTES" default:"0" help:"Size of the event stream, in bytes; the oldest events go first. 0: 20 % of what NATS offers, at most 4 GiB."`
	StreamDeadMaxBytes    int64 `name:"stream-dead-max-bytes" env:"DULY_STREAM_DEAD_MAX_BYTES" default:"0" help:"Size of the stream of dead letters, in bytes; the oldest go first. 0: 5 % of what NATS offers, at most 1 GiB."`

	BooksInterval time.Duration `name:"books-interval" env:"DULY_BOOKS_INTERVAL" default:"1h" help:"How often the leading supervisor compares the journal with the books of the services. 0: only when someone asks."`
	BooksWindow   time.Duration `name:"books-window" env:"DULY_BOOKS_WINDOW" default:"24h" help:"How far back it compares effects and tasks. 0: the default."`
	BooksRate     int           `name:"books-rate" env:"DULY_BOOKS_RATE" default:"10" help:"Pages of 500 effects or tasks that it reads a second at most. 0: the default."`
	BooksPages    int           `name:"books-pages" env:"DULY_BOOKS_PAGES" default:"100000" help:"Pages of one agent, and of ended tasks, that one comparison reads at most; more, and the books are not closed. 0: the default."`

	BreakerShare   int           `name:"breaker-share" env:"DULY_BREAKER_SHARE" default:"50" help:"An agent's breaker opens when so many per cent of its do calls fail: what would begin there is parked, until a trial succeeds. 0: no breaker opens by itself."`
	BreakerCalls   int           `name:"breaker-calls" env:"DULY_BREAKER_CALLS" default:"50" help:"Calls of an agent that there must have been in the window, over all nodes, before its breaker opens. 0: the default."`
	BreakerWindow  time.Duration `name:"breaker-window" env:"DULY_BREAKER_WINDOW" default:"10s" help:"In which calls count. 0: the default."`
	BreakerOpen    time.Duration `name:"breaker-open" env:"DULY_BREAKER_OPEN" default:"5s" help:"How long a breaker is open the first time, before a trial; each further time in a row twice as long. 0: the default."`
	BreakerOpenMax time.Duration `name:"breaker-open-max" env:"DULY_BREAKER_OPEN_MAX" default:"30s" help:"How long it is open at most, at least breaker-open. 0: the default."`

	SyncAlways     bool `name:"sync-always" env:"DULY_SYNC_ALWAYS" help:"Say that the NATS server syncs always, which it does not show; only changes what is logged."`
	StreamReplicas int  `name:"stream-replicas" env:"DULY_STREAM_REPLICAS" default:"1" help:"Replicas of the streams and the leases, on as many servers of a NATS cluster: 1, 3 or 5."`

	// Now is the machine's clock, with a monotonic reading; nil: time.Now. Tests run nodes whose clock is wrong.
	Now func() time.Time `kong:"-"`

	// NATSDir is where a NATS server in this process has its streams; empty: it is another process. How large they may be
	// its disk says then, and no flag.
	NATSDir string `kong:"-"`

	Version string `kong:"-"` // of the program, for its metrics

	HTTP    `embed:""`
	Bulk    `embed:""`
	Links   `embed:""`
	Logs    `embed:""`
	Watched `embed:""`
	Chained `embed:""`
	Relayed `embed:""`
	Fair    `embed:""`

	HTTPAgents `embed:""`
}

// Links are what a node connects to.
type Links struct {
	NATSURL     string `name:"nats-url" env:"NATS_URL" help:"NATS servers, 2.15 or newer, with JetStream (default: those of the context, or nats://127.0.0.1:4222)."`
	NATSContext string `name:"nats-context" env:"NATS_CONTEXT" help:"Context of the nats command to connect by; nats-url and nats-creds, where given, go before it."`
	NATSCreds   string `name:"nats-creds" env:"NATS_CREDS" help:"Credentials file for NATS."`
	NATSCA      string `name:"nats-ca" env:"NATS_CA" help:"File with the certificates, PEM, that the one of NATS is checked against; read for each connection."`
	NATSCert    string `name:"nats-cert" env:"NATS_CERT" help:"File with the certificate, PEM, that NATS is shown; read for each connection."`
	NATSKey     string `name:"nats-key" env:"NATS_KEY" help:"File with its key, PEM."`
	NATSInbox   string `name:"nats-inbox-prefix" env:"NATS_INBOX_PREFIX" help:"What the subjects begin with that answers of NATS to this node come to (default: that of the context; _INBOX; or, where the user may not hear those, _INBOX_ and the user of address or context). Users that must not read each other's answers have one each."`
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"PostgreSQL 14+ or CockroachDB 24.1+: postgres://…"`
}

// NATS are the options of a connection by these links.
func (l *Links) NATS(name, namespace string, log *slog.Logger) natsbus.Options {
	return natsbus.Options{
		URL: l.NATSURL, Name: name, Context: l.NATSContext, CredentialsFile: l.NATSCreds, CAFile: l.NATSCA, CertFile: l.NATSCert, KeyFile: l.NATSKey,
		InboxPrefix: l.NATSInbox, Logger: log, Namespace: namespace,
	}
}

// Logs are how a node speaks.
type Logs struct {
	LogFormat string `name:"log-format" env:"DULY_LOG_FORMAT" default:"text" enum:"text,json" help:"text or json."`
	LogLevel  string `name:"log-level" env:"DULY_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
	// Level is the level as it is now; nil: it cannot be changed while the process runs.
	Level *slog.LevelVar `kong:"-"`
}

// Setting is one thing that can be configured.
type Setting struct {
	Flag    string // without dashes
	Env     string
	Default string
	Usage   string
}

// Settings lists every setting of a node.
func Settings() []Setting {
	var all []Setting
	collect(reflect.TypeFor[Config](), &all)
	return all
}

func collect(t reflect.Type, all *[]Setting) {
	for f := range t.Fields() {
		if f.Anonymous {
			collect(f.Type, all)
			continue
		}
		if f.Tag.Get("kong") == "-" {
			continue
		}
		*all = append(*all, Setting{
			Flag: f.Tag.Get("name"), Env: f.Tag.Get("env"), Default: f.Tag.Get("default"), Usage: f.Tag.Get("help"),
		})
	}
}

// What is longer than these is a slip: a dead node would keep its place, or a
// stop would not end.
const (
	leaseMax         = time.Hour
	booksIntervalMin = 10 * time.Second
	booksIntervalMax = 7 * 24 * time.Hour
	booksWindowMin   = time.Minute
	booksWindowMax   = 365 * 24 * time.Hour
	booksRateMax     = 1000
	booksPagesMax    = 1_000_000
	breakerCallsMax  = 1_000_000
	breakerWindowMin = time.Second
	breakerWindowMax = 10 * time.Minute
	breakerOpenMin   = 100 * time.Millisecond
	breakerOpenMax   = 24 * time.Hour
	recentMax        = 96 << 20
	drainMax         = time.Hour
	replyToMax       = 64
	// What is shorter would take from operators what they look for.
	retainAuditLeast = 24 * time.Hour
)

// MemoryLeast is the least that a node may be given, in bytes: below it what is
// unavoidable leaves no room for tasks.
const MemoryLeast = 64 << 20

// Resolve returns the configuration with what was left open: the name of the node, which
// is made of the host and the process id, the namespace, and one task stream. Error: a namespace that
// cannot be, or a host without a name.
func (c Config) Resolve() (Config, error) {
	names, err := wire.NewNames(c.Namespace)
	if err != nil {
		return c, err
	}
	c.Namespace = names.Namespace()
	c.TaskStreams = max(1, c.TaskStreams)
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("node-name: not given, and the host's name is unknown: %w", err)
		}
		c.NodeName = fmt.Sprintf("%s-%d", core.NameOf(host, core.NameBytesMax-12), os.Getpid())
	}
	return c, nil
}

// Validate refuses a configuration that cannot work, naming the setting. The command line
// calls it before Resolve.
func (c *Config) Validate() error {
	if len(c.Roles) == 0 {
		return fmt.Errorf("roles: none given, want some of %s", strings.Join(Roles, ", "))
	}
	for _, r := range c.Roles {
		if !slices.Contains(Roles, r) && r != RoleAgents {
			return fmt.Errorf("roles: %q is not a role, want some of %s, %s", r, strings.Join(Roles, ", "), RoleAgents)
		}
	}
	if err := c.validateAgents(); err != nil {
		return err
	}
	if c.NodeName != "" { // Resolve makes one
		if err := core.CheckName("node-name", c.NodeName); err != nil {
			return err
		}
	}
	if _, err := wire.NewNames(c.Namespace); err != nil {
		return err
	}
	for _, n := range []struct {
		name     string
		is       int
		min, max int
	}{
		{"partitions", c.Partitions, 1, natsbus.PartitionsMax},
		{"task-streams", c.TaskStreams, 0, wire.TaskStreamsMax},
		{"shards", c.Shards, 1, 64},
		{"in-flight", c.InFlight, 1, 1 << 20},
		{"agent-window", c.AgentWindow, 1, 1 << 20},
		{"stream-replicas", c.StreamReplicas, 1, 5},
	} {
		if n.is < n.min || n.is > n.max {
			return fmt.Errorf("%s: %d, want %d to %d", n.name, n.is, n.min, n.max)
		}
	}
	if c.TaskStreams > c.Partitions {
		return fmt.Errorf("task-streams: %d, want at most partitions (%d): a stream without one would be empty", c.TaskStreams, c.Partitions)
	}
	if c.Memory != 0 && c.Memory < MemoryLeast {
		return fmt.Errorf("memory: %d, want 0 (half of what there is) or at least %d", c.Memory, MemoryLeast)
	}
	if c.RecentBytes < 0 || c.RecentBytes > recentMax {
		return fmt.Errorf("recent-bytes: %d, want 0 (the default) to %d", c.RecentBytes, recentMax)
	}
	if c.StreamReplicas%2 == 0 {
		return fmt.Errorf("stream-replicas: %d, want 1, 3 or 5: an even number bears no more losses than the odd one below", c.StreamReplicas)
	}
	if c.Lease < time.Second || c.Lease > leaseMax {
		return fmt.Errorf("lease: %v, want 1s or more, at most %v", c.Lease, leaseMax)
	}
	if c.ScanInterval < 10*time.Millisecond || c.ScanInterval > c.Lease/2 {
		return fmt.Errorf("scan-interval: %v, want 10ms to half the lease (%v): the leader renews at each scan", c.ScanInterval, c.Lease/2)
	}
	if c.CommitGap > time.Second {
		return fmt.Errorf("commit-gap: %v, want 1s or less", c.CommitGap)
	}
	if c.RetainDetail < 0 {
		return fmt.Errorf("retain-detail: %v, want 0 or more", c.RetainDetail)
	}
	// A submission that is read from the stream again must find its id.
	if least := max(c.RetainDetail, c.StreamMaxAge); c.RetainRow != 0 && c.RetainRow < least {
		return fmt.Errorf("retain-row: %v, want 0, or at least retain-detail and stream-max-age (%v)", c.RetainRow, least)
	}
	if c.RetainRow != 0 && c.RetainDetail == 0 {
		return fmt.Errorf("retain-row: %v, but retain-detail is 0: what is kept for ever keeps its row", c.RetainRow)
	}
	if c.RetainAudit != 0 && c.RetainAudit < retainAuditLeast {
		return fmt.Errorf("retain-audit: %v, want 0 (for ever) or at least %v", c.RetainAudit, retainAuditLeast)
	}
	if c.Drain <= 0 || c.Drain > drainMax {
		return fmt.Errorf("drain: %v, want more than 0 and at most %v", c.Drain, drainMax)
	}
	if (c.NATSCert == "") != (c.NATSKey == "") {
		return errors.New("nats-cert and nats-key go together: one is given, want both or none")
	}
	if err := c.HTTP.validate(c.HTTPAddr); err != nil && !c.OnlyAgents() { // which serves health alone
		return err
	}
	if err := c.Bulk.validate(); err != nil {
		return err
	}
	if err := c.Chained.validate(); err != nil {
		return err
	}
	if _, err := c.Outboxes(); err != nil {
		return err
	}
	if err := c.Fair.validate(); err != nil {
		return err
	}
	if err := c.Watched.validate(c); err != nil {
		return err
	}
	if err := c.validateBooks(); err != nil {
		return err
	}
	if err := c.validateBreakers(); err != nil {
		return err
	}
	return c.validateStreams()
}

// defaultBreakers has the defaults of the breakers, but for the share, of which 0 is a value. The tags say them.
var defaultBreakers = core.BreakerPolicy{
	CallsMin: int64(tagged("BreakerCalls", strconv.Atoi)), Window: tagged("BreakerWindow", time.ParseDuration),
	OpenFor: tagged("BreakerOpen", time.ParseDuration), OpenMax: tagged("BreakerOpenMax", time.ParseDuration),
}

// tagged is the default that the tag of a field of Config says.
func tagged[T any](field string, parse func(string) (T, error)) T {
	f, _ := reflect.TypeFor[Config]().FieldByName(field)
	value, err := parse(f.Tag.Get("default"))
	if err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", field, err))
	}
	return value
}

// Breakers says when breakers open, with the defaults in the place of 0.
func (c *Config) Breakers() core.BreakerPolicy {
	return core.BreakerPolicy{
		SharePct: c.BreakerShare, CallsMin: cmp.Or(int64(c.BreakerCalls), defaultBreakers.CallsMin), Window: cmp.Or(c.BreakerWindow, defaultBreakers.Window),
		OpenFor: cmp.Or(c.BreakerOpen, defaultBreakers.OpenFor), OpenMax: cmp.Or(c.BreakerOpenMax, defaultBreakers.OpenMax),
	}
}

// validateBreakers checks when breakers open.
func (c *Config) validateBreakers() error {
	switch p := c.Breakers(); {
	case c.BreakerShare < 0 || c.BreakerShare > 100:
		return fmt.Errorf("breaker-share: %d, want 0 (no breaker opens by itself) to 100", c.BreakerShare)
	case c.BreakerCalls < 0 || c.BreakerCalls > breakerCallsMax:
		return fmt.Errorf("breaker-calls: %d, want 0 (the default) to %d", c.BreakerCalls, breakerCallsMax)
	case p.Window < breakerWindowMin || p.Window > breakerWindowMax:
		return fmt.Errorf("breaker-window: %v, want 0 (the default), or %v to %v", c.BreakerWindow, breakerWindowMin, breakerWindowMax)
	case p.OpenFor < breakerOpenMin || p.OpenFor > breakerOpenMax:
		return fmt.Errorf("breaker-open: %v, want 0 (the default), or %v to %v", c.BreakerOpen, breakerOpenMin, breakerOpenMax)
	case p.OpenMax < p.OpenFor || p.OpenMax > breakerOpenMax:
		return fmt.Errorf("breaker-open-max: %v, want 0 (the default), or breaker-open (%v) to %v", c.BreakerOpenMax, p.OpenFor, breakerOpenMax)
	}
	return nil
}

// validateBooks checks how journal and services are compared.
func (c *Config) validateBooks() error {
	switch {
	case c.BooksInterval != 0 && (c.BooksInterval < booksIntervalMin || c.BooksInterval > booksIntervalMax):
		return fmt.Errorf("books-interval: %v, want 0 (when someone asks), or %v to %v", c.BooksInterval, booksIntervalMin, booksIntervalMax)
	case c.BooksWindow != 0 && (c.BooksWindow < booksWindowMin || c.BooksWindow > booksWindowMax):
		return fmt.Errorf("books-window: %v, want 0 (the default), or %v to %v", c.BooksWindow, booksWindowMin, booksWindowMax)
	case c.BooksRate < 0 || c.BooksRate > booksRateMax:
		return fmt.Errorf("books-rate: %d, want 0 (the default) to %d", c.BooksRate, booksRateMax)
	case c.BooksPages < 0 || c.BooksPages > booksPagesMax:
		return fmt.Errorf("books-pages: %d, want 0 (the default) to %d", c.BooksPages, booksPagesMax)
	}
	return nil
}

// validateStreams checks what the streams are made with; 0 is the default.
func (c *Config) validateStreams() error {
	if c.StreamMaxAge != 0 && c.StreamMaxAge < time.Second {
		return fmt.Errorf("stream-max-age: %v, want 1s or more", c.StreamMaxAge)
	}
	for _, size := range []struct {
		name string
		is   int64
	}{{natsbus.FlagTasksBytes, c.StreamMaxBytes}, {natsbus.FlagControlBytes, c.StreamControlMaxBytes}, {natsbus.FlagEventsBytes, c.StreamEventsMaxBytes}, {natsbus.FlagDeadBytes, c.StreamDeadMaxBytes}} {
		if size.is < 0 {
			return fmt.Errorf("%s: %d, want 0 (as NATS has room) or more", size.name, size.is)
		}
	}
	if c.StreamKeep < 0 {
		return fmt.Errorf("stream-keep: %v, want 0 or more", c.StreamKeep)
	}
	if n := len(c.ReplyTo); n > replyToMax {
		return fmt.Errorf("reply-to-prefixes: %d given, want at most %d", n, replyToMax)
	}
	if slices.Contains(c.ReplyTo, "") {
		return fmt.Errorf("reply-to-prefixes: %q has an empty one, which would allow every subject", c.ReplyTo)
	}
	for _, p := range c.ReplyTo {
		if strings.HasPrefix(p, c.Namespace+".") {
			return fmt.Errorf("reply-to-prefixes: %q begins with the namespace %q, whose subjects are Duly's own", p, c.Namespace)
		}
		if strings.HasPrefix(p, "$") || strings.ContainsAny(p, "*> \t\r\n") {
			return fmt.Errorf("reply-to-prefixes: no status subject can begin with %q: it is a prefix, without wildcards, and not the server's", p)
		}
		if !strings.HasPrefix(p, "_") && !strings.HasSuffix(p, ".") {
			return fmt.Errorf("reply-to-prefixes: %q is also the begin of longer namespaces: end it with a dot", p)
		}
	}
	return nil
}

// Has reports whether the node runs the role.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }
