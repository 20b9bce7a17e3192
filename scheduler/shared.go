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
	Partitions  int
	Shards      int           // committers, each with a shard of the partitions; few are better: batches shrink with more
	DrainMax    time.Duration // how long a stop waits for commands that are out; negative: not at all
	HandoverMax time.Duration // how long to wait for a live predecessor to let go
	// CommitGap is the least time from the beginning of a commit cycle that wrote several tasks to that of the
	// committer's next: what arrives meanwhile is one commit. Negative: none.
	CommitGap time.Duration
	// CycleTarget is how long a commit cycle may take before the node takes up fewer new tasks: see [Admission].
	// Negative: cycles may take any time.
	CycleTarget time.Duration
	FlushEvery  time.Duration // how long a moved cursor may wait for a commit to ride on
	Retain      Retention
	// Begins is when the task stream of a partition took the oldest message that it still has, 0 if it has none: no row is
	// forgotten whose submission may still be there, to be read again. known is false while that cannot be said; nil: no
	// submission is read again.
	Begins func(partition int) (at core.Instant, known bool)
	// Pauses reads what operators have paused, up to core.PausesMax; nil: nothing is. Nothing is taken over before it was
	// read once.
	Pauses   func(context.Context) ([]core.Pause, error)
	Breakers BreakerConfig
	Limits   LimitConfig
	// Wishes calls heard with where operators want partitions to be, first with all that there are and then at each
	// change, until ctx ends; nil: there are none.
	Wishes func(ctx context.Context, heard func([]core.Wish)) error
	Rand   func() float64 // safe for use by several goroutines
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
	// Read reads the partition's tasks and controls from where the adoption
	// says. lost is called, from any goroutine, with the reason when reading has
	// become impossible: a successor, another stream, one that went back
	// (ErrRewound, ErrControlRewound).
	Read(ctx context.Context, partition int, from Adopted, in *Inbox, lost func(error)) (stop func(), err error)
	// Ground is what there is of the partition outside the database.
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

// Retention is how long what a task was made of is kept after its end. Tasks in
// error are kept until an operator resolves them.
type Retention struct {
	Detail time.Duration // input, results and journal; 0: for ever
	Row    time.Duration // id, hash of the input and end state; 0: for ever
	Audit  time.Duration // entries of the audit trail; 0: for ever
}

// Purger forgets old tasks. See schema.Store.
type Purger interface {
	Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error)
}

// AuditPurger forgets old entries of the audit trail: up to most that are older. It returns how many.
type AuditPurger interface {
	ForgetAudit(ctx context.Context, before core.Instant, most int) (int, error)
}

// shared is what the committers of a node share, and its scheduler with them.
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

// falls reports whether a partition is to be this node's, as the live nodes are now.
func (s *shared) falls(partition int) bool {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return partition < len(s.placement.owners) && s.placement.owners[partition] == s.cfg.Node
}
