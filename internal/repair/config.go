package repair

import (
	"cmp"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of Config.
const (
	DefaultPace        = 2000
	DefaultWaveMax     = 3125
	DefaultBrakePct    = 20
	DefaultWaveFor     = time.Minute
	DefaultAskAgain    = 30 * time.Second
	DefaultOutstanding = 10_000
	DefaultInterval    = time.Second
	DefaultBeat        = 50 * time.Millisecond
)

// Limits of what is asked of operations.
const (
	RateMax   = 10_000 // tasks a second
	ActiveMax = 20     // operations that are running, paused or braked
)

// Config is how previews and operations work. Zero fields take their defaults, but Now is required.
type Config struct {
	Now func() time.Time
	// CheckInput and CheckSignal say whether an input fits the schema of a plan that has one, and an answer that of its step;
	// nil: that is not looked at.
	CheckInput  func(plan *core.Plan, input []byte) error
	CheckSignal func(step *core.Step, payload []byte) error
	// Evaluate answers the expressions of a plan about a task; nil: no plan has any.
	Evaluate func(plan *core.Plan, t *core.Task) core.Asker

	RehearseMax int           // members that a rehearsal plays; of more, a sample
	RehearseFor time.Duration // how long it may take

	Pace        int           // tasks a second that all operations ask together that were started without a rate
	WaveMax     int           // tasks of the largest wave
	WaveFor     time.Duration // how long after its last request a wave waits for outcomes
	Outstanding int           // tasks of one operation that may be asked and have no outcome; at more the next wave waits
	AskAgain    time.Duration // after it a task is asked again though its partition has not read the last message
	Interval    time.Duration // between two looks for operations
	Beat        time.Duration // between two steps of one that runs
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	c.RehearseMax = cmp.Or(c.RehearseMax, DefaultRehearseMax)
	c.RehearseFor = cmp.Or(c.RehearseFor, DefaultRehearseFor)
	c.Pace = cmp.Or(c.Pace, DefaultPace)
	c.WaveMax = cmp.Or(c.WaveMax, DefaultWaveMax)
	c.WaveFor = cmp.Or(c.WaveFor, DefaultWaveFor)
	c.Outstanding = cmp.Or(c.Outstanding, DefaultOutstanding)
	c.AskAgain = cmp.Or(c.AskAgain, DefaultAskAgain)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Beat = cmp.Or(c.Beat, DefaultBeat)
	return c
}
