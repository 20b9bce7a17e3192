package scheduler

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// Config bounds a scheduler.
type Config struct {
	Node         string        // name of this node: owner of partitions, actor in the journal
	InFlight     int           // tasks in flight per partition
	AgentWindow  int           // tasks in flight per partition at one agent; the next ones are parked
	BatchMax     int           // task writes per commit
	PublishRetry time.Duration // before an ending that the event stream refused is published again
	PlansRetry   time.Duration // between two looks for a plan that is unknown
	Expressions  Expressions   // of plans; nil: a step that has one fails
	// Genuine reports whether a reply answers the command that this commit issued.
	// nil: every reply is taken for genuine.
	Genuine func(r *core.Reply, commit int64) bool
	// CheckInput says whether an input fits the input schema of a plan that has one; nil: it is not looked at.
	CheckInput func(plan *core.Plan, input []byte) error
	// CheckSignal says whether a signal's payload fits the schema of its step; nil: it is not looked at.
	CheckSignal func(step *core.Step, payload []byte) error
	Memory      *Memory    // bound of what tasks in flight hold, shared by the shards of a node; nil: none
	Admission   *Admission // of new tasks, shared by the shards of a node; nil: as InFlight says
	IDs         *CommitIDs // of the node's commits; nil: the shard's own
	Observers   *Observers // of what is committed, shared by the shards of a node; nil: none
	// Left is how much time a parked task needs yet to make its deadline, as far as is known; it must not block. nil: none.
	Left func(plan *core.Plan, t *core.Task) time.Duration
	// Needs is how long tasks of a plan take; 0: that is not known, or one is to be let in to learn it. It must not block.
	// nil: it is not known of any.
	Needs func(plan *core.Plan) time.Duration
	// TenantLabel is the key of the label that names a task's tenant; empty: all tasks are of one.
	TenantLabel string
	// Weights are what classes, tenants and types share by; see flows.go.
	Weights Weights
	// KeyOf is what the expression of a limit's keys is for a task; see core.KeyOf. Tasks for which it fails are of one key,
	// the empty one; so are all with nil. It must not block.
	KeyOf func(expression string, t *core.Task) (string, error)
	// Hears is a number that stays the same as long as every answer of an agent comes; 0: none does. nil: all come.
	Hears func() int64
	// Leased is a number that stays the same for as long as this node has had its lease without a gap: no other has taken its
	// partitions over meanwhile because it seemed dead. nil: it always has.
	Leased func() int64
	// Now is the node's clock. A commit cycle goes by the moment at which it began; only the time
	// that a command has left is measured when it leaves, after its commit. nil: the machine's.
	Now func() core.Instant
	// Report takes the outcome of what is tried again and again, nil when it works: these are not logged here. It is
	// called from any goroutine and must not block. nil: none of it is reported.
	Report func(what Trouble, err error)
}

// CommitIDs gives out the ids of commits. The shards of a node share one, because
// no id is used twice. Safe for concurrent use.
type CommitIDs struct{ last atomic.Int64 }

// NewCommitIDs begins at random, so that two lives of a node never use the same id.
func NewCommitIDs(rand func() float64) *CommitIDs {
	ids := &CommitIDs{}
	ids.last.Store(int64(rand() * (1 << 62)))
	return ids
}

// Next is one that was not given out before.
func (c *CommitIDs) Next() int64 { return c.last.Add(1) }

// The defaults of Config.
const (
	DefaultInFlight     = 4096
	DefaultAgentWindow  = 2048
	DefaultBatchMax     = 4000
	DefaultPublishRetry = time.Second
	DefaultPlansRetry   = time.Second
)

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	c.InFlight = cmp.Or(c.InFlight, DefaultInFlight)
	c.AgentWindow = cmp.Or(c.AgentWindow, DefaultAgentWindow)
	c.BatchMax = cmp.Or(c.BatchMax, DefaultBatchMax)
	c.PublishRetry = cmp.Or(c.PublishRetry, DefaultPublishRetry)
	c.PlansRetry = cmp.Or(c.PlansRetry, DefaultPlansRetry)
	if c.Now == nil {
		c.Now = func() core.Instant { return core.InstantOf(time.Now()) }
	}
	return c
}

// leased is Config.Leased.
func (c *Config) leased() int64 {
	if c.Leased == nil {
		return 0
	}
	return c.Leased()
}

// report reports the outcome of a try; nil: it worked.
func (c *Config) report(what Trouble, err error) {
	if c.Report != nil {
		c.Report(what, err)
	}
}

// reportUnlessEnded reports the outcome of a try, unless its context has ended: that is no trouble.
func (c *Config) reportUnlessEnded(ctx context.Context, what Trouble, err error) {
	if ctx.Err() == nil {
		c.report(what, err)
	}
}

// The weights of classes unless Config.Weights says otherwise.
const (
	WeightHigh   = 16
	WeightNormal = 4
	WeightLow    = 1
)

// Weights are what flows share by. What is not named, or zero, has the default: of a class see WeightHigh, of a type or
// tenant 1. The tenant of a task without one is empty.
type Weights struct {
	Classes        [core.Classes]int
	Types, Tenants map[string]int
}

func (w *Weights) class(c core.Class) int {
	return cmp.Or(w.Classes[c], [...]int{WeightHigh, WeightNormal, WeightLow}[c])
}
