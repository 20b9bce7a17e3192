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
	Node        string // name of this node: owner of partitions, actor in the journal
	InFlight    int    // tasks in flight per partition
	AgentWindow int    // tasks in flight per partition at one agent; the next ones are parked
	BatchMax    int    // task writes per commit
	// PublishRetry is the first pause before endings that the event stream refused are published again. It
	// doubles while the stream refuses, up to republishMost times.
	PublishRetry time.Duration
	// PlansRetry is the least time between two reads of the plans table for a plan that is not known.
	PlansRetry time.Duration
	// Expressions evaluates the expressions of plans. nil: a step that has one fails.
	Expressions Expressions
	// Genuine reports whether a reply carries the token of the command that this commit issued; a forged
	// reply does not. nil: every reply is taken for genuine.
	Genuine func(r *core.Reply, commit int64) bool
	// CheckInput checks an input against the input schema of a plan that has one. nil: inputs are not
	// checked.
	CheckInput func(plan *core.Plan, input []byte) error
	// CheckSignal checks a signal's payload against the schema of its step. nil: payloads are not checked.
	CheckSignal func(step *core.Step, payload []byte) error
	// Memory bounds the bytes that tasks in flight hold; the shards of a node share it. nil: no bound.
	Memory *Memory
	// Admission bounds how many new tasks the node takes up; its shards share it. nil: only InFlight bounds
	// them.
	Admission *Admission
	// IDs gives out the ids of the node's commits. nil: the shard has a source of its own.
	IDs *CommitIDs
	// Observers are shown what each commit wrote; the shards of a node share them. nil: there are none.
	Observers *Observers
	// Left estimates how much time a parked task still needs to finish, so that a task that will miss its
	// deadline anyway does not take a place from one that can make it. It must not block. nil: nothing is
	// estimated.
	Left func(plan *core.Plan, t *core.Task) time.Duration
	// Needs estimates how long tasks of a plan take, for plans that refuse what cannot be done in time. 0:
	// not known, or one task is to be let in to find out. It must not block. nil: no plan is estimated.
	Needs func(plan *core.Plan) time.Duration
	// TenantLabel is the key of the label that names a task's tenant; empty: all tasks are of one.
	TenantLabel string
	// Weights are what classes, tenants and types share by; see flows.go.
	Weights Weights
	// KeyOf evaluates the expression of a limit's keys for a task; see core.KeyOf. A task for which it fails
	// has the empty key; with nil all tasks have it. It must not block.
	KeyOf func(expression string, t *core.Task) (string, error)
	// Hears identifies a stretch in which no reply of an agent can have been lost: it returns the same number
	// for as long as the subscriptions to replies lasted without a gap, and 0 while replies may be lost. Only
	// an agent that was heard all along can be blamed for silence. nil: no reply is ever lost.
	Hears func() int64
	// Leased identifies a stretch in which this node held its lease without a gap, so that no other node can
	// have taken its partitions over because this one seemed dead. nil: it always held it.
	Leased func() int64
	// Now is the node's clock; nil: the machine's. A commit cycle uses the moment at which it began
	// throughout; only the time that a command has left is measured when the command leaves, after the
	// commit.
	Now func() core.Instant
	// Report takes the outcome of what is retried for ever, nil when it worked; the scheduler does not log
	// these. It is called from any goroutine and must not block. nil: nothing is reported.
	Report func(what Trouble, err error)
}

// CommitIDs gives out the ids of commits. The shards of a node share one, because
// no id is used twice. Safe for concurrent use.
type CommitIDs struct{ last atomic.Int64 }

// NewCommitIDs begins at a random number, so that two lives of a node never use the same id: a commit whose
// outcome is unknown is recognised in the store by its id.
func NewCommitIDs(rand func() float64) *CommitIDs {
	ids := &CommitIDs{}
	ids.last.Store(int64(rand() * (1 << 62)))
	return ids
}

// Next returns an id that was not given out before.
func (c *CommitIDs) Next() int64 { return c.last.Add(1) }

// The defaults of Config.
const (
	DefaultInFlight     = 4096
	DefaultAgentWindow  = 2048
	DefaultBatchMax     = 4000
	DefaultPublishRetry = time.Second
	DefaultPlansRetry   = time.Second
)

// WithDefaults replaces zero values by the defaults, and a missing clock by the machine's.
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

// leased calls Config.Leased, if there is one.
func (c *Config) leased() int64 {
	if c.Leased == nil {
		return 0
	}
	return c.Leased()
}

// report calls Config.Report, if there is one. err is nil when the try worked.
func (c *Config) report(what Trouble, err error) {
	if c.Report != nil {
		c.Report(what, err)
	}
}

// reportUnlessEnded is report, except that a try that failed because its context ended is not reported.
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

// Weights divide room at an agent between flows: a flow gets claims in proportion to its weight. What is not named, or
// zero, has the default: for a class see WeightHigh, for a type or tenant it is 1. A task without a tenant label belongs
// to the tenant "".
type Weights struct {
	Classes        [core.Classes]int
	Types, Tenants map[string]int
}

func (w *Weights) class(c core.Class) int {
	return cmp.Or(w.Classes[c], [...]int{WeightHigh, WeightNormal, WeightLow}[c])
}
