package operate

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// Reader is what operators read from the state store, through connections of its own: no commit waits for a read. Every
// method is bounded by its limit, whatever the tables hold.
type Reader interface {
	// Get returns one task with its steps. Error: core.ErrNotFound.
	Get(ctx context.Context, partition int, id string) (core.View, error)
	// List returns one page of tasks without their steps.
	List(ctx context.Context, f core.Filter) (core.Page, error)
	// JournalPage returns up to limit journal rows of a task before a row number, newest first; before 0: from the newest.
	JournalPage(ctx context.Context, partition int, number int64, before int64, limit int) ([]core.Record, error)
	// CountsUpTo counts about most tasks of each state at most, and says where there may be more.
	CountsUpTo(ctx context.Context, most int) ([]core.Count, error)
	// Groups returns one page of failure groups.
	Groups(ctx context.Context, f GroupFilter) (Groups, error)
	// Group returns one failure group by its id. Error: core.ErrNotFound.
	Group(ctx context.Context, id string) (Group, error)
	// AtRisk returns unfinished tasks by their deadline, the nearest first, of those whose deadline is before the time. A
	// task that is being undone is none: its deadline says nothing any more. more: there are, or may be, others that are
	// not returned.
	AtRisk(ctx context.Context, before core.Instant, limit int) (tasks []core.View, more bool, err error)
	// Signals counts the tasks that wait for an answer, up to CountExactMax, and those that have to have it before a time;
	// it names up to next of them, the most urgent first.
	Signals(ctx context.Context, near core.Instant, next int) (Signals, error)
	// Sample reads totals, and the times of up to newest endings.
	Sample(ctx context.Context, newest int) (Sample, error)
	// Plans returns the plans that this binary can read; see schema.Store.
	Plans(ctx context.Context) ([]core.Plan, error)
	// Cursors returns the rows of all partitions.
	Cursors(ctx context.Context) ([]core.PartitionState, error)
}

// Trail is the audit trail. It is append-only.
type Trail interface {
	TrailWriter
	TrailReader
}

// TrailWriter is what a [Desk] writes.
type TrailWriter interface {
	// Append stores an entry and gives its number. A key that is there already stores nothing: again is the entry that
	// has it.
	Append(ctx context.Context, e AuditEntry) (number int64, again *AuditEntry, err error)
	// SetOutcome adds what became of an entry, once, or where it was asked. Errors: core.ErrNotFound; Settled, the entry has
	// another outcome.
	SetOutcome(ctx context.Context, number int64, outcome string) error
}

// TrailReader is what all others have of it.
type TrailReader interface {
	Audit(ctx context.Context, f AuditFilter) (AuditPage, error)
}

// OperationStore keeps operations and their members.
type OperationStore interface {
	// Freeze stores a preview with the members that the selection has now, in one transaction or in pages that become
	// visible together. It returns the number of members. Error: *Refusal for a selection that is wrong or has more than
	// MembersMax tasks.
	Freeze(ctx context.Context, op Operation, sel Selection) (int64, error)
	// Operation returns one, without Since: see Operations.Show. Error: core.ErrNotFound.
	Operation(ctx context.Context, id string) (Operation, error)
	// Operations returns those in the given states, newest first; no states: all.
	Operations(ctx context.Context, states []OperationState, limit int, after string) (ops []Operation, next string, err error)
	// Update stores the changeable part of an operation (state, why, wave, rate, brake, reason, rehearsal, tally, times,
	// epoch) if the stored epoch is still was. Who writes raises the epoch with every write, so that no one else's
	// write, of a runner or of an operator, is written over by one who has not read it. Error: ErrFenced.
	Update(ctx context.Context, op Operation, was int64) error
	// Members returns members after an ordinal; an empty outcome: all.
	Members(ctx context.Context, operation string, outcome Outcome, after int64, limit int) ([]Member, error)
	// SetMembers stores wave, outcome, text and fingerprint of members, and the operation as Update does, in one
	// transaction, fenced as Update.
	SetMembers(ctx context.Context, op Operation, was int64, members []Member) error
	// DropExpired forgets previews that were never started and have expired, and operations that ended OperationFor ago.
	DropExpired(ctx context.Context, now time.Time) (int, error)
	// Standing returns where tasks stand now, for the members of an operation; see Standing.
	Standing(ctx context.Context, members []Member) ([]Standing, error)
	// Saved returns rows with journals, for a rehearsal.
	Saved(ctx context.Context, partition int, numbers []int64) ([]core.Saved, error)
}

// Standing is where a task stands: its row, and what the journal says since the member was frozen. They may be read one
// after the other, the row first.
type Standing struct {
	Ordinal     int64
	Missing     bool // the task is forgotten
	State       core.State
	PlanVersion int64
	Seq         int64
	Step        string // that failed last, by name
	Fingerprint string
	Text        string // of the newest failure
	Asked       bool   // a row after the frozen one names Member.Operation as actor (see [OperationActor]), or any if that is empty
	AskedBy     string // that actor, of the newest such row: operation/<id>
	Passed      bool   // the step that had failed is done in a row after the frozen one
}

// OperationActor is what the journal names as the actor of what an operation asked.
func OperationActor(id string) string { return "operation/" + id }

// TokenStore keeps tokens.
type TokenStore interface {
	PutToken(ctx context.Context, t Token) error
	// TokenByID returns one. Error: core.ErrNotFound.
	TokenByID(ctx context.Context, id string) (Token, error)
	Tokens(ctx context.Context) ([]Token, error)
	// Its sessions end with it.
	RevokeToken(ctx context.Context, id string, at time.Time) error
	TouchToken(ctx context.Context, id string, at time.Time) error
}

// NoteStore keeps notes.
type NoteStore interface {
	AddNote(ctx context.Context, n Note) (Note, error)
	Notes(ctx context.Context, target string, limit int) ([]Note, error)
}

// SettingStore keeps small documents by name: alert channels, saved views. A document has 64 KiB at most.
type SettingStore interface {
	PutSetting(ctx context.Context, name string, document []byte) error
	// Setting returns one. Error: core.ErrNotFound.
	Setting(ctx context.Context, name string) ([]byte, error)
	Settings(ctx context.Context, prefix string) (map[string][]byte, error)
	DeleteSetting(ctx context.Context, name string) error
}

// PauseStore keeps pauses.
type PauseStore interface {
	PutPause(ctx context.Context, p Pause) error
	DeletePause(ctx context.Context, id string) error
	Pauses(ctx context.Context) ([]Pause, error)
}

// BreakerStore keeps the breakers of agents; see scheduler.BreakerStore.
type BreakerStore interface {
	Breakers(ctx context.Context) ([]core.Breaker, error)
	PutBreaker(ctx context.Context, b core.Breaker) (bool, error)
	ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error)
}

// AgentLimit is a limit with its story.
type AgentLimit struct {
	core.Limit
	At     time.Time
	By     string
	Reason string
}

// LimitStore keeps the limits of agents, and what committers may use of them; see scheduler.LimitStore.
type LimitStore interface {
	LimitKeeper
	// Grants returns what committers may use of the limit of an agent.
	Grants(ctx context.Context, agent string) ([]core.Grant, error)
	Limits(ctx context.Context) ([]core.Limit, error)
	ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error)
	CountPlaces(ctx context.Context, holder string, all []core.Counting) error
	Counted(ctx context.Context) ([]core.Counting, error)
}

// LimitKeeper is what operators need of a LimitStore.
type LimitKeeper interface {
	// AgentLimits returns all limits, by agent.
	AgentLimits(ctx context.Context) ([]AgentLimit, error)
	// PutLimit stores a limit in the place of one with the revision before, or as the first of its agent. It reports false
	// where another change came first.
	PutLimit(ctx context.Context, l AgentLimit) (bool, error)
	// DeleteLimit forgets a limit. One that is not there is no error.
	DeleteLimit(ctx context.Context, agent string) error
	// Granted returns the sums of the grants that have not ended at a time, by agent.
	Granted(ctx context.Context, now core.Instant) (map[string]Granted, error)
}

// Store is all of it, as the state store serves it.
type Store interface {
	Reader
	Trail
	OperationStore
	TokenStore
	NoteStore
	SettingStore
	PauseStore
	BooksStore
	SessionStore
	ScheduleStore
}

// Actions carries out what operators ask of single tasks.
type Actions interface {
	// Do writes the audit entry, asks the task's owner, and answers. Error: *Refusal.
	Do(ctx context.Context, by Actor, task TaskRef, r Request) (Answer, error)
}

// Operations carries out what operators ask of many tasks.
type Operations interface {
	Preview(ctx context.Context, by Actor, sel Selection, r Request) (Preview, error)
	// Start starts a preview. confirm is the number of its tasks, required above 100.
	Start(ctx context.Context, by Actor, token string, rate, brakePct int, reason string, confirm int64) (Operation, error)
	// Show returns one, with how many tasks have joined its failure group since. Error: *Refusal.
	Show(ctx context.Context, id string) (Operation, error)
	// Change pauses, resumes, stops, or sets the rate of an operation.
	Change(ctx context.Context, by Actor, id string, change Change) (Operation, error)
}

// Change is what is changed in an operation that exists.
type Change struct {
	State  OperationState `json:"state,omitempty"` // paused, running or stopped; empty: as it is
	Rate   *int           `json:"rate,omitempty"`
	Reason string         `json:"reason,omitempty"`
}
