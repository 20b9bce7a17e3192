package main

// Result is what one run measured: the JSON object of -json and of the last line
// on standard output. Times are milliseconds unless their names say otherwise.
type Result struct {
	Scenario string `json:"scenario"` // peak, sustained, spike, idle or growth
	Store    string `json:"store"`    // sqlite or postgres
	Wire     string `json:"wire"`     // single: one command or reply per NATS message; batched: several
	Sync     string `json:"sync"`     // how what is accepted and committed gets to the disk
	Date     string `json:"date"`     // RFC 3339, UTC
	Machine  string `json:"machine"`  // cores, processor, kernel, Go and database versions
	Command  string `json:"command"`  // what makes this run again
	// Running: the system ran already; processor time and memory of its engine and
	// database are not in this result, nor how it syncs.
	Running bool `json:"running,omitempty"`

	Seconds     float64 `json:"seconds"`       // of offered load, without warm-up and drain
	OfferedPerS float64 `json:"offered_per_s"` // by the schedule of the measured load; of a spike, its highest rate
	Offered     int     `json:"offered"`
	Accepted    int     `json:"accepted"`
	Refused     int     `json:"refused"`
	// Reasons is why tries were refused: more than Refused, where clients come again.
	Reasons  []Reason `json:"reasons,omitempty"`
	TimedOut int      `json:"timed_out"` // no answer within 5 s of the sending
	// GeneratorLate is how far the generator fell behind its own schedule. The
	// latencies count from the schedule, so its lateness is in them.
	GeneratorLate Quantiles `json:"generator_late_ms"`

	Submit   Quantiles `json:"submit_ms"`     // from the scheduled time to the answer
	EndToEnd Quantiles `json:"end_to_end_ms"` // from the scheduled time to the event of the end
	Overhead Quantiles `json:"overhead_ms"`   // the same without that task's own drawn service latencies

	Processed int `json:"processed"`
	Late      int `json:"late,omitempty"` // of those, past the deadline that the submission had
	Undone    int `json:"undone"`
	Expired   int `json:"expired,omitempty"` // its time was over before anything of it was called
	Error     int `json:"error"`
	Lost      int `json:"lost"`
	Doubled   int `json:"doubled"`
	HalfDone  int `json:"half_done"`

	TasksPerS      float64 `json:"tasks_per_s"` // processed in time while load was offered, per second of it
	StepsPerS      float64 `json:"steps_per_s"`
	DrainSeconds   float64 `json:"drain_seconds"`     // from the end of the load, or of the spike, to the last end
	DrainTasksPerS float64 `json:"drain_tasks_per_s"` // processed in time per second of the drain
	FinalBacklog   int     `json:"final_backlog"`     // accepted and not ended when the load stopped
	BacklogMax     int     `json:"backlog_max"`       // the same at its highest
	RecoverSeconds float64 `json:"recover_seconds"`   // spike: from its end until the backlog is below a second of arrivals

	Partitions   int      `json:"partitions,omitempty"`    // of the system; 0 in results from before it was told: 16
	Shards       int      `json:"shards,omitempty"`        // committers of the system; 0: the product's own, 2
	CommitGap    float64  `json:"commit_gap_ms,omitempty"` // 0: the product's own, 5
	Cores        float64  `json:"cores"`                   // used of the machine's while load was offered
	StolenCores  float64  `json:"stolen_cores,omitempty"`  // that the machine's host gave to others meanwhile
	FrozenMS     float64  `json:"frozen_ms_max,omitempty"` // the longest that a process which does next to nothing had to wait for its turn
	Disk         *Disk    `json:"disk,omitempty"`          // syncs of a probe beside the load; nil in older results
	CPUPerTask   CPU      `json:"cpu_us_per_task"`
	PSSMax       Memory   `json:"pss_mb_max"`
	WALPerTask   float64  `json:"wal_bytes_per_task"`
	Checkpoints  int      `json:"checkpoints"`
	MaxWALSize   string   `json:"max_wal_size,omitempty"`
	Preloaded    int      `json:"preloaded,omitempty"`
	RetainDetail float64  `json:"retain_detail_s,omitempty"` // after which inputs, results and journals are purged
	Purged       int      `json:"purged,omitempty"`          // tasks whose journal is gone at the end
	Idle         *Idle    `json:"idle,omitempty"`
	Window       *Window  `json:"window,omitempty"`
	Growth       []Growth `json:"growth,omitempty"`
	Probes       []Probe  `json:"probes,omitempty"`

	Timeline  []Point     `json:"timeline,omitempty"`  // one per second, from the beginning of the load
	Histogram []Histogram `json:"histogram,omitempty"` // of the latencies
}

// Quantiles of a latency in milliseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// CPU is microseconds of processor time for each task that was processed in
// time, user and system, by process.
type CPU struct {
	Total     float64 `json:"total"`
	Generator float64 `json:"generator"`
	Engine    float64 `json:"engine"`         // embedded NATS and all roles; with SQLite the database too
	NATS      float64 `json:"nats,omitempty"` // where it is a process of its own
	Agents    float64 `json:"agents"`
	Database  float64 `json:"database"`
}

// Memory is a proportional set size at its highest, in MiB.
type Memory struct {
	Engine   float64 `json:"engine"`
	Database float64 `json:"database"`
}

// Disk is how long a process that does nothing else waited for a block to be written
// and synced, twenty times a second while load was offered, on the disk of the stores.
type Disk struct {
	Sync      Quantiles `json:"sync_ms"`
	Stalls    int       `json:"stalls"`     // of those syncs, how many took 50 ms or more
	StalledMS float64   `json:"stalled_ms"` // and how long these took together
}

// Idle is what a system without any work costs.
type Idle struct {
	Seconds             float64 `json:"seconds"`
	EngineCPUPercent    float64 `json:"engine_cpu_percent"` // of one core
	AgentsCPUPercent    float64 `json:"agents_cpu_percent"`
	DatabaseCPUPercent  float64 `json:"database_cpu_percent"`
	StatementsPerMinute float64 `json:"statements_per_minute"` // transactions, by the database's own count
}

// Growth is what things cost beside so many parked, unfinished tasks.
type Growth struct {
	Parked     int       `json:"parked"`
	Submit     Quantiles `json:"submit_ms"`
	EndToEnd   Quantiles `json:"end_to_end_ms"` // of a task without service latencies
	ScanMS     float64   `json:"scan_ms"`       // median of the supervisor's look for what is overdue
	TakeoverMS float64   `json:"takeover_ms"`   // from nothing to owning all partitions, everything resumed
	EnginePSS  float64   `json:"engine_pss_mb"`
	ExpiredMS  float64   `json:"expired_ms,omitempty"` // 100,000 expired at once: until none is overdue any more
	Expired    int       `json:"expired,omitempty"`
}

// Probe is one rate that the search for the peak tried.
type Probe struct {
	OfferedPerS  float64 `json:"offered_per_s"`
	TasksPerS    float64 `json:"tasks_per_s"`
	FinalBacklog int     `json:"final_backlog"`
	Held         bool    `json:"held"` // all was processed in time; the backlog at the end was at most a second of arrivals
}

// Point is one second of a run.
type Point struct {
	Second      int     `json:"s"`
	Offered     int     `json:"offered"`  // by the schedule, in that second
	Accepted    int     `json:"accepted"` // answered so in that second
	Refused     int     `json:"refused"`
	Ended       int     `json:"ended"`
	InTime      int     `json:"in_time"` // of those, processed in time
	Backlog     int     `json:"backlog"` // accepted and not ended, at the end of the second
	SubmitP50   float64 `json:"submit_p50"`
	SubmitP99   float64 `json:"submit_p99"`
	EndToEndP50 float64 `json:"end_to_end_p50"` // of the tasks that ended in that second
	EndToEndP99 float64 `json:"end_to_end_p99"`
	Cores       CPU     `json:"cores"`             // cores used in that second, by process
	DiskMS      float64 `json:"disk_ms,omitempty"` // the longest sync of a block under way in that second, see Disk
}

// Histogram is a latency's distribution: how many fell into each bucket.
type Histogram struct {
	Name    string   `json:"name"` // submit, end_to_end or overhead
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts latencies up to so many milliseconds and above the one before.
type Bucket struct {
	UpToMS float64 `json:"le"`
	Count  int64   `json:"n"`
}
