package telemetry

import "slices"

// Kind is the kind of a metric.
type Kind string

// The kinds.
const (
	counter   Kind = "counter"
	gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one metric of a node. The set of values of each of its labels is bounded.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
	Bound  string // how many series it can have, in words

	apart int // so many of its labels tell typesMax apart, and one for all others; 0: all that come are told apart
}

// metrics are all that there are. The tests hold the dashboard, the rules and docs/reference/metrics.md to this list.
var metrics = []Metric{
	metric("duly_build_info", gauge, "Always 1; its labels say what runs.", "1", "version", "go", "node", "roles"),

	metric("duly_submissions_total", counter, "Submissions answered by this door: accepted, or why not.", "30", "outcome"),
	metric("duly_submission_packs_total", counter, "Messages of packed submissions that were published.", "1"),
	metric("duly_submissions_unanswered", gauge, "Submissions that wait for their answer.", "1"),
	metric("duly_submissions_unanswered_bytes", gauge, "Bytes of these.", "1"),

	metric("duly_submissions_warned_total", counter, "Submissions accepted with a warning: too little time.", "1"),

	metric("duly_outbox_relayed_total", counter, "Rows of an outbox handed in here and stored.", "outboxes", "outbox"),
	metric("duly_outbox_put_off_total", counter, "Attempts of rows put off: no plan, a partition behind or a silent stream.", "outboxes", "outbox"),
	metric("duly_outbox_waiting", gauge, "Rows of an outbox that are not relayed yet, up to 10,001; counted every 10 s.", "outboxes", "outbox"),
	metric("duly_outbox_oldest_seconds", gauge, "How long ago the oldest of these was written.", "outboxes", "outbox"),
	metric("duly_outbox_refused", gauge, "Rows of an outbox that were refused and are kept, up to 10,001.", "outboxes", "outbox"),

	metric("duly_tasks_created_total", counter, "Tasks created here, by type; further types are \"other\".", "types", "type").apartBy(1),
	metric("duly_tasks_ended_total", counter, "Endings of tasks here; asked: undone because somebody asked.", "types × 4", "type", "state").apartBy(1),
	metric("duly_task_seconds", Histogram, "How long tasks took from when they might begin to their end.", "types", "type").apartBy(1),
	metric("duly_task_deadlines_missed_total", counter, "Tasks whose deadline passed, or left no time.", "types", "type").apartBy(1),
	metric("duly_tasks_in_error", gauge, "Tasks in error, up to some 10,000. †", "types", "type").apartBy(1),
	metric("duly_step_seconds", Histogram, "How long calls took until they were done, with all attempts.", "65", "type", "agent").apartBy(2),
	metric("duly_agent_errors_total", counter, "Attempts, of dos and undos, that failed, were refused or overdue.", "65 × 3", "agent", "outcome").apartBy(1),
	metric("duly_tasks_in_flight", gauge, "Tasks in flight here, and submissions that were read.", "1"),
	metric("duly_window", gauge, "Tasks that this node may have in flight now.", "1"),
	metric("duly_overloaded", gauge, "1: this node takes too long even for the least that it always takes up.", "1"),
	metric("duly_task_memory_bytes", gauge, "Bytes of inputs and results that tasks in flight hold.", "1"),
	metric("duly_partitions_owned", gauge, "Partitions that this node owns.", "1"),
	metric("duly_partition_lag", gauge, "Messages of the task stream that the partition's owner has not read.", "partitions", "partition"),
	metric("duly_agents_away", gauge, "Agents that tasks here wait for and that do not answer.", "1"),
	metric("duly_breaker_state", gauge, "2: the breaker of the agent is open, 1: it is in trial; all others are closed.", "1,000", "agent"),
	metric("duly_breaker_openings_total", counter, "Breakers of agents that this node opened.", "1"),
	metric("duly_tasks_waiting_for_agents", gauge, "Tasks here that wait for such an agent.", "1"),

	metric("duly_commit_cycle_seconds", Histogram, "How long commit cycles took.", "1"),
	metric("duly_commits_total", counter, "Commits.", "1"),
	metric("duly_commit_writes_total", counter, "Writes of tasks in these.", "1"),
	metric("duly_commit_records_total", counter, "Journal rows in these.", "1"),
	metric("duly_commands_total", counter, "Commands that left for agents: do and undo.", "2", "kind"),
	metric("duly_replies_refused_total", counter, "Replies that changed nothing.", "2", "reason"),
	metric("duly_duplicates_total", counter, "Submissions whose id was a task already.", "1"),
	metric("duly_rows_refused_total", counter, "Rows that the database refused; their tasks are in error.", "1"),
	metric("duly_endings_republished_total", counter, "Endings that were published again.", "1"),
	metric("duly_undo_trouble_total", counter, "Undos that got into trouble: ten failed attempts, or a minute.", "1"),

	metric("duly_waits_ended_total", counter, "Waits whose instant came.", "1"),
	metric("duly_signals_total", counter, "Signals taken, or refused because they changed nothing.", "2", "outcome"),
	metric("duly_children_born_total", counter, "Children of tasks that were created here.", "1"),
	metric("duly_children_ended_total", counter, "Endings of children here, by state.", "3", "state"),
	metric("duly_steps_skipped_total", counter, "Steps skipped: their condition is false.", "1"),
	metric("duly_expressions_failed_total", counter, "Expressions of plans that could not be evaluated.", "1"),
	metric("duly_late_answers_total", counter, "Answers after their complete-by that are kept, to do and undo.", "2", "kind"),
	metric("duly_probes_total", counter, "Unanswered calls whose agent was asked what became of them, by its answer.", "3", "outcome"),
	metric("duly_tasks_begun_later_total", counter, "Tasks that began because their start-at came.", "1"),

	metric("duly_condition_trouble", gauge, "1: the condition does not hold. docs/operations/health.md explains each.", "conditions", "condition"),
	metric("duly_ready", gauge, "1: the node is ready, as /readyz says.", "1"),
	metric("duly_supervisor_leads", gauge, "1: this node's supervisor leads.", "1"),
	metric("duly_overdue_asked_total", counter, "Overdue tasks that this supervisor has asked about.", "1"),
	metric("duly_alerts_raised_total", counter, "Alerts that this node has stored in the stream of alerts.", "1"),
	metric("duly_alerts_dropped_total", counter, "Alerts that this node could not store; they are in its log.", "1"),
	metric("duly_alerts_sent_total", counter, "Alerts that channels have taken, by kind of channel.", "2", "channel"),
	metric("duly_alerts_failed_total", counter, "Alerts that were given up, by kind of channel.", "2", "channel"),
	metric("duly_forecast_chance", gauge, "Mean chance (0 to 1) that unfinished tasks make their deadlines, by plan version; absent if not known. †", "50", "type", "version"),
	metric("duly_operations", gauge, "Operations over many tasks under way, by state. †", "3", "state"),
	metric("duly_operation_tasks", gauge, "Tasks of operations under way, by outcome. †", "5", "outcome"),

	metric("duly_books_closed", gauge, "1: journal and services agreed when last compared. †", "1"),
	metric("duly_books_compared_timestamp_seconds", gauge, "When journal and services were last compared. †", "1"),
	metric("duly_books_effects", gauge, "Effects that the newest comparison looked at. †", "1"),
	metric("duly_books_ghosts", gauge, "Effects that did not agree and are not accepted, by kind. †", "4", "kind"),
	metric("duly_books_ghosts_accepted", gauge, "Effects that did not agree and are accepted. †", "1"),
	metric("duly_books_agents_silent", gauge, "Agents that keep books and did not answer. †", "1"),

	metric("duly_schedules_submitted_total", counter, "Tasks that this node's supervisor submitted for schedules.", "1"),
	metric("duly_schedules_skipped_total", counter, "Runs of schedules left out: the task before had not ended.", "1"),
	metric("duly_schedules_missed_total", counter, "Runs of schedules that could not be submitted in time.", "1"),
	metric("duly_schedules_failed_total", counter, "Submissions of schedules not taken; they are tried again.", "1"),
	metric("duly_schedules_failing", gauge, "Schedules whose submissions fail now.", "1"),
	metric("duly_schedules_lag_seconds", gauge, "By how much the newest submission of a schedule was late, or one that fails is.", "1"),

	metric("duly_database_connections_max", gauge, "Connections that a pool may have.", "3", "pool"),
	metric("duly_database_connections_used", gauge, "Connections in use.", "3", "pool"),
	metric("duly_database_connections_idle", gauge, "Connections that wait for use.", "3", "pool"),
	metric("duly_database_queries_total", counter, "Statements, or transactions, that went through a pool.", "3", "pool"),
	metric("duly_database_waits_total", counter, "Times that a connection was waited for.", "3", "pool"),
	metric("duly_database_wait_seconds_total", counter, "How long connections were waited for.", "3", "pool"),

	metric("duly_database_wal_bytes", gauge, "Size of SQLite's write-ahead log, or what PostgreSQL keeps of its own for replication slots.", "1"),
	metric("duly_database_snapshot_seconds", gauge, "Age of the oldest transaction that keeps PostgreSQL from giving back rows.", "1"),

	metric("duly_http_request_seconds", Histogram, "How long answers over HTTP took; no event streams.", "65", "route", "code"),

	metric("duly_nats_connected", gauge, "1: there is a connection to NATS.", "1"),
	metric("duly_nats_reconnects_total", counter, "Times that the connection to NATS was made again.", "1"),
	metric("duly_nats_messages_total", counter, "Messages received and sent.", "2", "direction"),
	metric("duly_nats_bytes_total", counter, "Bytes received and sent.", "2", "direction"),
	metric("duly_nats_dropped_total", counter, "Messages lost because subscriptions had no room.", "1"),

	metric("duly_spans_total", counter, "Spans that were handed to the exporter.", "1"),
	metric("duly_spans_dropped_total", counter, "Spans lost: the exporter or the queue had no room.", "1"),
}

func metric(name string, kind Kind, help, bound string, labels ...string) Metric {
	return Metric{Name: name, Kind: kind, Labels: labels, Help: help, Bound: bound}
}

func (m Metric) apartBy(labels int) Metric {
	m.apart = labels
	return m
}

// Metrics lists every metric of a node, without those of the Go runtime and the process. docs/reference/metrics.md has them.
func Metrics() []Metric { return slices.Clone(metrics) }
