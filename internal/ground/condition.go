package ground

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Consequence is what a trouble leads to, beside the log and the alert.
type Consequence int

// The consequences, each including those before it.
const (
	Told     Consequence = iota // nothing else
	NotReady                    // the node is not ready
	Fatal                       // the node does not live: only a restart helps
)

// String names the consequence as the documentation does.
func (c Consequence) String() string {
	switch c {
	case NotReady:
		return "not ready"
	case Fatal:
		return "only a restart helps"
	default:
		return "told only"
	}
}

// Times of a ground.
const (
	DefaultGrace   = 10 * time.Second // how long a trouble may last before it is told
	DefaultReady   = 8 * time.Second  // how long before a node is not ready: within ten seconds, the probe's share included
	AtOnce         = time.Duration(-1)
	DefaultEvery   = time.Second     // from the end of one probe to the beginning of the next
	defaultTimeout = 2 * time.Second // how long a probe may take
	settle         = 2 * time.Second // how long a condition must be well before its trouble is over
	lineGap        = time.Second     // least time between two lines about one cause
)

// keysMax bounds the resources of one condition that are told apart; all others count as keyOthers.
const (
	keysMax   = 64
	keyOthers = "others"
)

// Condition is one thing that a node needs, and the words about it. Zero times take their defaults.
type Condition struct {
	Name        string        // stable and unique; safe to show to anyone
	Wanted      string        // how it should be
	Begin       string        // what is told when it is not
	End         string        // what is told when it is again
	Grace       time.Duration // how long a trouble lasts before log and alert; AtOnce: none
	ReadyAfter  time.Duration // how long a trouble lasts before its consequence; zero: Grace, but DefaultReady at most
	Consequence Consequence
	// Shared: every node that looks sees the same trouble, so it is one for all of them.
	Shared bool
	// Proven makes a node not ready until the condition has been well once, without any grace.
	Proven bool

	// At most one of Probe and Each is set; neither is for a condition that is only reported. Both must return soon after
	// ctx ends. They are never called twice at a time.

	// Probe returns nil when all is well, and ErrUnknown when it cannot look.
	Probe func(ctx context.Context) error
	// Each looks at several resources and returns those in trouble.
	Each func(ctx context.Context) []Found

	Every   time.Duration // between two probes
	Timeout time.Duration // of a probe; one that takes longer is a trouble itself
}

// ErrUnknown is what a probe finds that cannot look now, for a reason which another condition tells: what stood stands.
var ErrUnknown = errors.New("this is not known now")

// Unknown is what Each returns then.
var Unknown = []Found{{Err: ErrUnknown}}

// Found is a trouble as a probe or a reporter sees it.
type Found struct {
	Key   string    // the resource, where a condition has several
	Err   error     // the reason; nil: all is well
	Since time.Time // when it began; zero: now
	Fatal bool      // only a restart helps, whatever the condition says
}

func (c Condition) withDefaults() Condition {
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.ReadyAfter = cmp.Or(c.ReadyAfter, min(c.Grace, DefaultReady))
	c.Grace, c.ReadyAfter = max(0, c.Grace), max(0, c.ReadyAfter)
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	return c
}

func (c *Condition) probed() bool { return c.Probe != nil || c.Each != nil }
