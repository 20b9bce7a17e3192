package telemetry

import "time"

// Source copies what a node has counted. It reads memory alone: no database, no NATS. It is called from any goroutine.
type Source interface {
	Snapshot() Snapshot
}

// Snapshot is how a node does at one moment. Counts are totals since the node began. A part that is nil is left out: the
// node does not have that role.
type Snapshot struct {
	Ready      bool
	Conditions map[string]bool // by name; true: in trouble
	Ingest     *Ingest
	Scheduler  *Scheduler
	Supervisor *Supervisor
	Raised     int64 // alerts stored
	Unraised   int64 // alerts that could not be stored
	Pools      []Pool
	Held       *Held // nil: not known
	NATS       NATS
	Spans      *Spans
}

// Held is what others keep the database from giving back.
type Held struct {
	WAL      int64 // bytes
	Snapshot time.Duration
}

// Ingest is a front door.
type Ingest struct {
	Outcomes map[string]int64 // submissions by what was answered
	Warned   int64            // of the accepted ones, those with a warning
	Packs    int64
	Open     int64 // unanswered
	Bytes    int64 // of these
	Outboxes []Outbox
}

// Outbox is one that the node relays.
type Outbox struct {
	Name     string
	Relayed  int64
	PutOff   int64
	Standing *OutboxStanding // nil: not known
}

// OutboxStanding is what was in an outbox when it was last counted.
type OutboxStanding struct {
	Waiting int64
	Oldest  time.Duration
	Refused int64
}

// Scheduler is the owner of partitions.
type Scheduler struct {
	Types      []Type
	InFlight   int64
	Window     int64
	Overloaded bool
	Memory     int64 // bytes
	Owned      int
	Lag        map[int]int64 // by partition that is owned
	Away       int           // agents that do not answer
	Waiting    int64         // tasks that wait for them
	Breakers   map[string]BreakerState
	Openings   int64 // of breakers, that this node decided

	Commits, Writes, Records                  int64
	Do, Undo                                  int64 // commands
	Stale, Forged                             int64
	Duplicates, Refused, Republished, Trouble int64
	Cycles                                    Times
	Kinds                                     Kinds
}

// BreakerState is how the breaker of an agent stands; closed ones are left out.
type BreakerState int

// The states.
const (
	BreakerTrial BreakerState = 1
	BreakerOpen  BreakerState = 2
)

// Kinds is what only some kinds of step do, and what comes late.
type Kinds struct {
	Waits, Signals, SignalsRefused int64
	Born                           int64            // children
	Ended                          map[string]int64 // children by state
	Skipped, Expressions           int64
	LateDos, LateUndos, Starts     int64
	Probes                         map[string]int64 // by outcome
}

// Type is what became of the tasks of one type.
type Type struct {
	Name    string
	Created int64
	Ended   map[string]int64 // by state
}

// Times is a histogram: how many took at most so long.
type Times struct {
	Bounds []time.Duration // rising
	Counts []int64         // of each bound those that took longer than the one before, and one more for all others
	Sum    time.Duration
}

// Supervisor is the one that looks for what is overdue.
type Supervisor struct {
	Leads      bool
	Asked      int64
	Channels   []Channel
	Forecasts  []Forecast       // nil: not known here
	Operations map[string]int64 // under way, by state; nil: not known here
	Members    map[string]int64 // of these, by outcome
	Books      *Books           // nil: not known here, or not compared yet
	Schedules  *Schedules       // nil: not known here
}

// Schedules are what this node's supervisor has done of schedules since it began.
type Schedules struct {
	Submitted, Skipped, Missed, Failed int64
	Failing                            int64         // schedules
	Lag                                time.Duration // of the newest submission, or of what fails
}

// Books is the newest comparison of journal and services.
type Books struct {
	At       time.Time
	Closed   bool
	Effects  int64
	Accepted int64
	Silent   int64            // agents
	Ghosts   map[string]int64 // by kind
}

// Channel is what became of alerts at the channels of one kind.
type Channel struct {
	Kind         string
	Sent, Failed int64
}

// Pool is a pool of connections to the database.
type Pool struct {
	Name            string
	Max, Used, Idle int64
	Queries, Waits  int64
	Waited          time.Duration
}

// NATS is the connection.
type NATS struct {
	Connected                              bool
	Reconnects, In, Out, InBytes, OutBytes int64
	Dropped                                int64
}

// Spans is what became of spans.
type Spans struct{ Made, Dropped int64 }

// Forecast is how likely an unfinished task of a plan version makes its deadline.
type Forecast struct {
	Type    string
	Version int64
	Chance  float64
}
