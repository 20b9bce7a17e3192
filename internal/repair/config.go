package repair

import (
	"cmp"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of Config.
const (
	defaultPace        = 2000
	defaultWaveMax     = 3125
	defaultBrakePct    = 20
	defaultWaveFor     = time.Minute
	defaultAskAgain    = 30 * time.Second
	defaultOutstanding = 10_000
	defaultInterval    = time.Second
	defaultBeat        = 50 * time.Millisecond
)

// Limits of what is asked of operations.
const (
	RateMax   = 10_000 // tasks a second
	activeMax = 20     // operations that are running, paused or braked
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
	AskAgain    time.Duration // after it a task is asked again though its partition has not read the last message; twice as long each further time
	Interval    time.Duration // between two looks for operations
	Beat        time.Duration // between two steps of one that runs
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	c.RehearseMax = cmp.Or(c.RehearseMax, defaultRehearseMax)
	c.RehearseFor = cmp.Or(c.RehearseFor, defaultRehearseFor)
	c.Pace = cmp.Or(c.Pace, defaultPace)
	c.WaveMax = cmp.Or(c.WaveMax, defaultWaveMax)
	c.WaveFor = cmp.Or(c.WaveFor, defaultWaveFor)
	c.Outstanding = cmp.Or(c.Outstanding, defaultOutstanding)
	c.AskAgain = cmp.Or(c.AskAgain, defaultAskAgain)
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.Beat = cmp.Or(c.Beat, defaultBeat)
	return c
}
