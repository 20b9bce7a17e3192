package operate

import (
	"context"
	"time"

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
	Labels      []core.Label
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

// Forecast is how likely the unfinished tasks make their deadlines, by plan and step: figures of a sample, which are
// estimates where it has less than all. What is held without an end makes none.
type Forecast struct {
	At          time.Time        `json:"at"`
	Tasks       Count            `json:"tasks"`   // unfinished ones
	Sampled     int              `json:"sampled"` // of them, those that were looked at
	Plans       []PlanForecast   `json:"plans"`   // those that will miss most deadlines first
	More        bool             `json:"more,omitempty" doc:"there may be plans that are not listed: 50 are at most, and those of the tasks that were looked at"`
	Calibration []CalibrationBin `json:"calibration"`
}

// PlanForecast is of the tasks of one plan version.
type PlanForecast struct {
	Type    string         `json:"type"`
	Version int64          `json:"version"`
	Tasks   int64          `json:"tasks" doc:"unfinished ones; an estimate where fewer were looked at than there are"`
	Unknown int64          `json:"unknown" doc:"of them, those of which it is not known: too little was seen of their steps, or what holds them may end or not"`
	Chance  *float64       `json:"chance,omitempty" doc:"of one of the others to make its deadline, in the mean; absent: it is known of none"`
	P50MS   float64        `json:"p50_ms,omitempty" doc:"how long a task takes that begins now, in half of the cases; absent: not known"`
	P95MS   float64        `json:"p95_ms,omitempty" doc:"in 95 % of the cases"`
	Steps   []StepForecast `json:"steps"`
}

// StepForecast is of the tasks of a plan that are at one step.
type StepForecast struct {
	Step    string   `json:"step" doc:"the first that is not over; empty: they are being undone, or their plan cannot be read"`
	Tasks   int64    `json:"tasks"`
	Unknown int64    `json:"unknown" doc:"as of the plan"`
	Chance  *float64 `json:"chance,omitempty" doc:"as of the plan"`
	Held    string   `json:"held,omitempty" doc:"what holds some of them, here or at a later step"`
}

// CalibrationBin compares the chances that this node told, of tasks that have ended since, with how many made their
// deadlines.
type CalibrationBin struct {
	From  float64 `json:"from"` // chances from here on
	To    float64 `json:"to"`
	Said  float64 `json:"said"`  // their mean
	Made  float64 `json:"made"`  // which part made its deadline
	Tasks int64   `json:"tasks"` // answers; a task has one for each of its steps
}

// Forecaster tells the chances of unfinished tasks.
type Forecaster interface {
	Forecast(ctx context.Context) (Forecast, error)
}
