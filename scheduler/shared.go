package scheduler

import (
	"context"
	"log/slog"
	"time"

	"duly.dev/duly/internal/core"
)

// RunConfig is what the shell around the shards needs.
type RunConfig struct {
	Config
	Partitions int
	// Shards is how many committers there are, each with a share of the partitions. Few are better: more of
	// them make smaller batches.
	Shards int
	// DrainMax is how long a stop waits for commands that are out; negative: not at all, as in a crash.
	DrainMax time.Duration
	// HandoverMax is how long to wait for a live predecessor to let a partition go.
	HandoverMax time.Duration
	// CommitGap is the least time between the beginnings of two commit cycles of a committer, if the first
	// wrote several tasks. What arrives meanwhile becomes one commit. Negative: none.
	CommitGap time.Duration
	// CycleTarget is how long a commit cycle may take before the node takes up fewer new tasks: see [Admission].
	// Negative: cycles may take any time.
	CycleTarget time.Duration
	// FlushEvery is how long a moved cursor may wait for a commit to ride on.
	FlushEvery time.Duration
	Retain     Retention
	// Begins returns when the task stream stored the oldest message that it still has of a partition; 0: it
	// has none. A row is kept as long as its submission may still be in the stream, because it might be read
	// again. known is false while the stream does not say. nil: no submission is ever read again.
	Begins func(partition int) (at core.Instant, known bool)
	// Pauses reads the pauses, up to core.PausesMax; nil: there are none. No partition is taken over before
	// they were read once.
	Pauses   func(context.Context) ([]core.Pause, error)
	Breakers BreakerConfig
	Limits   LimitConfig
	// Wishes calls heard with where operators want partitions to be, first with all that there are and then at each
	// change, until ctx ends; nil: there are none.
	Wishes func(ctx context.Context, heard func([]core.Wish)) error
	// Rand returns numbers in [0,1). It must be safe for concurrent use.
	Rand func() float64
}

// The defaults of RunConfig.
const (
	DefaultShards      = 2
	DefaultDrainMax    = 5 * time.Second
	DefaultHandoverMax = 10 * time.Second
	DefaultFlushEvery  = 200 * time.Millisecond
	DefaultCommitGap   = 5 * time.Millisecond
	DefaultCycleTarget = 150 * time.Millisecond
)

// Wires brings the mail of one partition to an inbox.
type Wires interface {
	// Listen subscribes to the replies of the partition's commands.
	Listen(partition int, in *Inbox) (stop func(), err error)
	// Read reads the partition's tasks and controls from where the adoption says. It calls lost, from any
	// goroutine, with the reason when reading becomes impossible: a successor, another stream, or one that
	// went back (ErrRewound, ErrControlRewound).
	Read(ctx context.Context, partition int, from Adopted, in *Inbox, lost func(error)) (stop func(), err error)
	// Ground looks at what there is of the partition outside the database.
	Ground(ctx context.Context, partition int) (Ground, error)
	// Evidence calls heard with what owners record outside the database, until ctx ends.
	Evidence(ctx context.Context, heard func(core.Evidence)) error
}

// Members knows which nodes live.
type Members interface {
	// Watch calls live with the names of the live nodes, first the present ones
	// and then at each change, until ctx ends.
	Watch(ctx context.Context, live func(nodes []string)) error
}

// RunStore is what the role as a whole needs of the state store.
type RunStore interface {
	Store
	Purger
}

// Retention is how long things are kept after a task's end; 0: for ever. Tasks in error are kept until an
// operator resolves them.
type Retention struct {
	// Detail is of input, results and journal.
	Detail time.Duration
	// Row is of the id, the hash of the input and the end state.
	Row time.Duration
	// Audit is of entries of the audit trail.
	Audit time.Duration
}

// Purger forgets old tasks. See schema.Store.
type Purger interface {
	Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error)
}

// AuditPurger forgets entries of the audit trail that are older than before, up to most of them. It returns
// how many.
type AuditPurger interface {
	ForgetAudit(ctx context.Context, before core.Instant, most int) (int, error)
}

// shared is what a node's committers share with its scheduler.
type shared struct {
	cfg       RunConfig
	store     RunStore
	wires     Wires
	log       *slog.Logger
	placement placement
	news      *news
	breakers  *breakers
	limits    *limits
}

// falls reports whether a partition should be this node's, given the live nodes and the wishes.
func (s *shared) falls(partition int) bool {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return partition < len(s.placement.owners) && s.placement.owners[partition] == s.cfg.Node
}
