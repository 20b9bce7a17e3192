package operate

import (
	"context"

	"duly.dev/duly/internal/core"
)

const (
	// ForecastRowsMax bounds the rows of durations that are read at a time: the newest ones of all nodes.
	ForecastRowsMax = 20_000
	// ForecastBytesMax bounds one of them.
	ForecastBytesMax = 8 << 10
)

// ForecastRow is what one node knows of how long a step takes, or with an empty Type an agent.
type ForecastRow struct {
	Node    string
	Type    string
	Version int64
	Step    string
	At      core.Instant // of the newest observation
	Data    []byte       // of package forecast
}

// ForecastStore keeps what is known of durations, so that a node that begins again, and the others, know it too.
type ForecastStore interface {
	// SaveForecasts writes a node's rows, in place of its earlier ones of the same step.
	SaveForecasts(ctx context.Context, node string, rows []ForecastRow) error
	// Forecasts returns rows of all nodes, the newest first, at most ForecastRowsMax.
	Forecasts(ctx context.Context) ([]ForecastRow, error)
	// ForgetForecasts deletes the rows whose newest observation was before a time.
	ForgetForecasts(ctx context.Context, before core.Instant) error
	// OpenTasks returns some of the tasks that have not ended, about most of them at most, and how many there are; see
	// OpenSample.
	OpenTasks(ctx context.Context, most int) (OpenSample, error)
}

// OpenTask is an unfinished task, and how far its steps are.
type OpenTask struct {
	Type        string
	PlanVersion int64
	State       core.State
	Deadline    core.Instant
	Steps       []OpenStep // those of which the journal tells
	Weight      float64    // for how many tasks it stands
}

// OpenStep is how far a step is.
type OpenStep struct {
	Step   int
	Status core.StepStatus
	Began  core.Instant // when it began; 0: it has not
	At     core.Instant // of its newest row
	Due    core.Instant // of its command, or of its wait; 0: none
}

// OpenSample is a sample of the unfinished tasks: in each partition as many parked ones and as many others, from a place
// in the order of their numbers that differs from reading to reading.
type OpenSample struct {
	Tasks []OpenTask
	All   int64 // how many are unfinished
	More  bool  // there are at least so many
}
