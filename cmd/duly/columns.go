package main

// The columns of every table, as paths of the API's JSON names. A test holds them to the types that the API answers
// with, so that a terminal has no word of its own.
var (
	submittedColumns = []string{"id", "type", "state", "stream", "stream_position"}
	bulkColumns      = []string{"lines", "stored", "existing", "refused", "failed", "bytes"}
	cancelledColumns = []string{"id", "type", "asked", "state", "outcome", "control_position"}
	taskColumns      = []string{"type", "id", "state", "why", "reason", "failed_step", "fingerprint", "round", "failures", "waits_for", "parent.id", "plan_version", "start_at", "complete_by", "created_at", "ended_at", "seq"}
	taskListColumns  = []string{"type", "id", "state", "created_at", "ended_at", "plan_version", "~start_at", "~waits_for", "~parent.id"}
	journalColumns   = []string{"seq", "at", "kind", "state", "step", "~status", "~attempt", "error", "reason", "~actor"}
	answerColumns    = []string{"type", "id", "action", "state", "outcome", "control_position", "audit", "again"}
	appliedColumns   = []string{"name", "version", "newest", "stored"}
	planListColumns  = []string{"name", "version", "complete_by_ms", "input_max", "deprecated_at"}
	planColumns      = []string{"name", "agent", "after", "undoable", "complete_by_ms", "attempts_max", "on_exhausted"}
	groupColumns     = []string{"id", "tasks", "type", "state", "step", "~last", "example"}
	groupFields      = []string{"id", "type", "state", "step", "tasks", "fingerprint", "example", "task", "first", "last", "notes"}
	previewFields    = []string{"token", "selection", "action", "tasks", "expires"}
	rehearsalFields  = []string{"repairable", "failed_again", "refused", "waiting"}
	reasonColumns    = []string{"tasks", "reason"}
	memberColumns    = []string{"ordinal", "type", "id", "step", "~wave", "outcome", "text"}
	opColumns        = []string{"id", "state", "action", "tasks", "tally.done", "tally.failed_again", "tally.skipped", "tally.asked", "tally.waiting", "~by", "~selection"}
	opFields         = []string{"id", "state", "why", "action", "request.version", "selection", "tasks", "tally.done", "tally.failed_again", "tally.skipped", "tally.asked", "tally.waiting",
		"since", "wave", "rate", "brake", "by", "reason", "created", "started", "ended"}
	agentColumns     = []string{"name", "instances", "gone", "breaker", "waiting", "unserved", "~first_deadline", "~steps", "~away_since", "paused", "~calls", "errors", "latency_ms", "~since", "~instances_more", "~steps_more"}
	breakerFields    = []string{"state", "since", "until", "stage", "openings", "forced", "by", "reason"}
	partitionColumns = []string{"partition", "owner", "pinned", "~epoch", "lag", "in_flight", "~chain.height", "~chain.head_at"}
	pauseColumns     = []string{"id", "type", "step", "agent", "label", "~until", "~by", "reason"}
	pauseListColumns = []string{"id", "type", "step", "agent", "label", "waiting", "~first_deadline", "~until", "~by", "reason"}
	scheduleColumns  = []string{"name", "type", "cron", "every", "~zone", "paused", "last", "outcome", "submitted", "skipped", "missed", "~failure"}
	scheduleFields   = []string{"name", "type", "plan_version", "cron", "every", "zone", "from", "until", "jitter", "overlap", "paused", "last", "last_task", "outcome", "why", "submitted", "skipped", "missed",
		"failing", "failure"}
	scheduleRunFields = []string{"type", "task"}
	ghostColumns      = []string{"status", "kind", "key", "agent", "type", "task", "step", "state", "times", "~made", "~found", "text"}
	lossColumns       = []string{"stream", "messages"}
	auditColumns      = []string{"number", "at", "actor", "~role", "~via", "action", "target", "outcome", "reason"}
	auditRecord       = []string{"number", "at", "actor", "role", "from", "via", "action", "target", "reason", "before", "after", "outcome", "key", "request"}
	tokenColumns      = []string{"id", "name", "role", "~created", "~by", "expires", "revoked", "~last_used"}
	noteColumns       = []string{"number", "at", "by", "text"}
	forecastColumns   = []string{"type", "version", "tasks", "chance", "unknown", "p50_ms", "p95_ms"}
)
