package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults and limits of the options.
const (
	PartitionsDefault = 16
	BatchDefault      = 256         // messages
	BatchMost         = 10_000      // messages
	BytesDefault      = 4 << 20     // of a batch
	BytesMost         = 256 << 20   // of a batch
	LingerMost        = time.Minute // that a batch waits to be full
	LeaseDefault      = 600 * time.Millisecond
	LeaseLeast        = 200 * time.Millisecond
	LeaseMost         = 5 * time.Minute
	DrainDefault      = 5 * time.Second
	HoldDefault       = 10 * time.Second
	SettleDefault     = 10 * time.Second
	TimeMost          = time.Hour // of drain, hold, settle and the pauses between tries
	TriesDefault      = 5
	TriesMost         = 1000
)

// Option changes how a group runs.
type Option func(*config)

// config is what the options say.
type config struct {
	name, member string
	by           By
	filter       []string
	batch, bytes int
	linger       time.Duration
	lease        time.Duration
	drain        time.Duration
	hold         time.Duration
	settle       time.Duration
	tries        int
	first, most  time.Duration // of the pauses between tries
	after        uint64
	poison       func(context.Context, pgx.Tx, Poison) (Verdict, error)
	gap          func(context.Context, pgx.Tx, Gap) error
	log          *slog.Logger
}

// Name names the group, by letters, digits, - and _. Without it the group has the stream's name.
func Name(name string) Option { return func(c *config) { c.name = name } }

// Member begins the name under which this process is seen among the members, by letters, digits, - and _. Names need not
// differ.
func Member(name string) Option { return func(c *config) { c.member = name } }

// Partitioned sets the rule. Without it: [HashOfSubject] of [PartitionsDefault].
func Partitioned(by By) Option { return func(c *config) { c.by = by } }

// Filter bounds the group to messages whose subjects match one of the patterns, which must not overlap. Without it the group
// has all messages of the stream.
func Filter(subjects ...string) Option { return func(c *config) { c.filter = subjects } }

// After lets a group that has never run begin after a sequence of the stream. 0: with the first message that is there.
func After(sequence uint64) Option { return func(c *config) { c.after = sequence } }

// Batch bounds what a handler gets at a time, in messages and in bytes of subjects, headers and data; a single message may be
// larger. Each partition keeps twice as much in memory.
func Batch(messages, bytes int) Option { return func(c *config) { c.batch, c.bytes = messages, bytes } }

// Linger is how long a batch that is not full waits for more. 0: it takes what is there, which is more while the database is
// slow.
func Linger(d time.Duration) Option { return func(c *config) { c.linger = d } }

// Lease is how long a member may be silent before others take its partitions. A shorter one costs requests: five by each
// member in that time.
func Lease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// Drain is how long a handler at work has to end when its partition moves or Run ends; and how long a new owner waits for the
// former one, if that lives.
func Drain(d time.Duration) Option { return func(c *config) { c.drain = d } }

// Hold is how long a transaction may stand still, between two statements, before the server ends it: a process that is frozen
// would else keep the locks of its rows.
func Hold(d time.Duration) Option { return func(c *config) { c.hold = d } }

// Settle is how often the cursor of a partition without messages follows the stream, so that what is removed behind it is no
// gap.
func Settle(d time.Duration) Option { return func(c *config) { c.settle = d } }

// Retry says how often a message is tried by itself before it is poison, and the first and the longest pause between tries,
// each twice the one before. A batch that fails is halved until the message is by itself. What the database's own condition
// makes fail is tried again for ever.
func Retry(tries int, first, most time.Duration) Option {
	return func(c *config) { c.tries, c.first, c.most = tries, first, most }
}

// OnPoison is asked what to do with a message that was tried often enough, in the transaction that records the answer: what
// it writes there, a dead letter perhaps, commits with it. Its error is logged, and it is asked again. Without it the
// partition stops.
func OnPoison(ask func(context.Context, pgx.Tx, Poison) (Verdict, error)) Option {
	return func(c *config) { c.poison = ask }
}

// OnGap is told of messages that were removed from the stream before the partition had read them, in the transaction that
// records the gap and moves the cursor over it. Its error stops the partition. Without it the gap is recorded and logged, and
// the partition goes on.
func OnGap(tell func(context.Context, pgx.Tx, Gap) error) Option {
	return func(c *config) { c.gap = tell }
}

// Logger takes what the group has to say. Without it: slog's default.
func Logger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func configOf(stream string, options []Option) (config, error) {
	c := config{name: stream, by: HashOfSubject(PartitionsDefault), batch: BatchDefault, bytes: BytesDefault, lease: LeaseDefault, drain: DrainDefault,
		hold: HoldDefault, settle: SettleDefault, tries: TriesDefault, first: 50 * time.Millisecond, most: 5 * time.Second, log: slog.Default()}
	for _, option := range options {
		option(&c)
	}
	return c, c.check()
}

func (c config) check() error {
	if err := c.by.check(); err != nil {
		return err
	}
	if !nameForm.MatchString(c.name) || c.member != "" && !nameForm.MatchString(c.member) {
		return fmt.Errorf("group: name %q, member %q, want 1 to 64 letters, digits, - and _", c.name, c.member)
	}
	if c.log == nil {
		return errors.New("group: Logger is nil")
	}
	for _, n := range []struct {
		name             string
		is, least, limit int
	}{{"Batch: messages", c.batch, 1, BatchMost}, {"Batch: bytes", c.bytes, 1, BytesMost}, {"Retry: tries", c.tries, 1, TriesMost}} {
		if n.is < n.least || n.is > n.limit {
			return fmt.Errorf("group: %s: %d, want %d to %d", n.name, n.is, n.least, n.limit)
		}
	}
	for _, d := range []struct {
		name            string
		is, least, most time.Duration
	}{
		{"Linger", c.linger, 0, LingerMost}, {"Lease", c.lease, LeaseLeast, LeaseMost}, {"Drain", c.drain, time.Millisecond, TimeMost},
		{"Hold", c.hold, time.Second, TimeMost}, {"Settle", c.settle, 100 * time.Millisecond, TimeMost},
		{"Retry: first pause", c.first, time.Millisecond, TimeMost}, {"Retry: longest pause", c.most, c.first, TimeMost},
	} {
		if d.is < d.least || d.is > d.most {
			return fmt.Errorf("group: %s: %v, want %v to %v", d.name, d.is, d.least, d.most)
		}
	}
	return nil
}
