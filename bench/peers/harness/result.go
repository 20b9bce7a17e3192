package harness

import (
	"math"
	"slices"
	"time"
)

// Result is what one run measured. The fields have the names and the meaning
// that they have in the results of ../../ where both have them.
type Result struct {
	System   string `json:"system"`
	Version  string `json:"version"`
	Scenario string `json:"scenario"`
	Store    string `json:"store"`
	Sync     string `json:"sync"`
	Steps    int    `json:"steps"`
	Date     string `json:"date"`
	Machine  string `json:"machine"`
	Command  string `json:"command"`

	Seconds   float64 `json:"seconds"` // measured, without warm-up and drain
	Accepted  int     `json:"accepted"`
	Processed int     `json:"processed"` // by the database's own count, warm-up and drain included, as accepted
	Error     int     `json:"error"`     // submissions that failed and tasks that ended without all results
	Lost      int     `json:"lost"`      // accepted, and not ended with all results in the database
	Doubled   int     `json:"doubled"`   // with more results than steps, or reported ended twice
	Measured  int     `json:"measured"`  // ended in the measured seconds
	// HandlerRuns beyond steps times processed are steps that ran again.
	HandlerRuns int64 `json:"handler_runs"`

	TasksPerS    float64   `json:"tasks_per_s"`
	StepsPerS    float64   `json:"steps_per_s"`
	Submit       Quantiles `json:"submit_ms"`     // of the call that accepts; all tasks of one call have its time
	EndToEnd     Quantiles `json:"end_to_end_ms"` // from before that call to the report of the end
	DrainSeconds float64   `json:"drain_seconds"`

	Cores      float64 `json:"cores"` // used of the machine's in the measured seconds
	CPUPerTask CPU     `json:"cpu_us_per_task"`
	WALPerTask float64 `json:"wal_bytes_per_task"`

	Settings map[string]any    `json:"settings"`
	Postgres map[string]string `json:"postgres"`
}

// Quantiles of a latency in milliseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// CPU is microseconds of processor time for each task that ended. The client is
// the load, the library and the handlers: they are one process. The database's is
// null where its processes are on another machine.
type CPU struct {
	Total    *float64 `json:"total"`
	Client   float64  `json:"client"`
	Database *float64 `json:"database"`
}

// quantiles sorts the latencies.
func quantiles(latencies []time.Duration) Quantiles {
	if len(latencies) == 0 {
		return Quantiles{}
	}
	slices.Sort(latencies)
	at := func(q float64) float64 {
		rank := int(math.Ceil(q*float64(len(latencies)))) - 1
		return round(float64(latencies[max(rank, 0)])/float64(time.Millisecond), 3)
	}
	return Quantiles{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

func round(x float64, digits int) float64 {
	scale := math.Pow(10, float64(digits))
	return math.Round(x*scale) / scale
}

// per is x for each of n, 0 where there is none.
func per(x float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return round(x/float64(n), 1)
}
