package node

import (
	"strconv"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
)

// Metrics implements telemetry.Source.
func (n *Node) Metrics(to *telemetry.Scrape) {
	to.Flag("duly_ready", len(n.ground.Ready()) == 0)
	inTrouble := map[string]bool{}
	for _, t := range n.ground.Troubles() {
		inTrouble[t.Name] = true
	}
	for _, c := range n.ground.Conditions() {
		to.Flag("duly_condition_trouble", inTrouble[c.Name], c.Name)
	}
	to.Count("duly_alerts_raised_total", n.raiser.raised.Load())
	to.Count("duly_alerts_dropped_total", n.raiser.dropped.Load())
	if door := n.door.Load(); door != nil {
		doorMetrics(to, door.Stats())
		for _, o := range n.outboxes() {
			o.Metrics(to)
		}
	}
	if own := n.owning(); own != nil {
		now := own.Snapshot()
		schedulerMetrics(to, &now, n.conn.Forged())
		breakerMetrics(to, own.Breakers(), n.clock.instant())
		if lag := n.survey.lag.Load(); lag != nil && n.survey.young() {
			lagMetrics(to, now.Owned, *lag)
		}
	}
	if sup := n.sup.Load(); sup != nil {
		to.Flag("duly_supervisor_leads", sup.Last().Held)
		to.Count("duly_overdue_asked_total", sup.Asked())
		if sender := n.Alerts(); sender != nil {
			channelMetrics(to, sender.Counts())
		}
		if last, known := n.lastBooks(); known {
			booksMetrics(to, &last)
		}
		if r := n.schedules.Load(); r != nil {
			scheduleMetrics(to, r.Stats())
		}
		if n.survey.young() {
			n.survey.Metrics(to)
		}
	}
	if pools, ok := n.store.(interface{ Pools() []schema.PoolStat }); ok {
		poolMetrics(to, pools.Pools())
	}
	if held := n.held.Load(); held != nil {
		heldMetrics(to, held)
	}
	natsMetrics(to, n.conn)
	n.requests.Metrics(to)
	if n.tracer != nil {
		spanMetrics(to, n.tracer.Counts())
	}
}

func doorMetrics(to *telemetry.Scrape, s ingest.Stats) {
	for outcome, n := range s.Outcomes() {
		to.Count("duly_submissions_total", n, outcome)
	}
	to.Count("duly_submissions_warned_total", s.Warned)
	to.Count("duly_submission_packs_total", s.Packs)
	to.Count("duly_submissions_unanswered", s.Items)
	to.Count("duly_submissions_unanswered_bytes", s.Bytes)
}

func schedulerMetrics(to *telemetry.Scrape, s *scheduler.Snapshot, forged int64) {
	for i := range s.Types {
		typeMetrics(to, &s.Types[i])
	}
	for i := range s.Steps {
		x := &s.Steps[i]
		to.Times("duly_step_seconds", scheduler.LatencyBounds[:], x.Took.Counts[:], x.Took.Sum, x.Type, x.Agent)
	}
	for _, a := range s.Agents {
		to.Count("duly_agent_errors_total", a.Failed, a.Agent, "failed")
		to.Count("duly_agent_errors_total", a.Refused, a.Agent, "refused")
		to.Count("duly_agent_errors_total", a.Overdue, a.Agent, "overdue")
	}
	to.Count("duly_tasks_in_flight", int64(s.InFlight))
	to.Count("duly_window", int64(s.Window))
	to.Flag("duly_overloaded", s.Overloaded)
	to.Count("duly_task_memory_bytes", s.Memory)
	to.Count("duly_partitions_owned", int64(len(s.Owned)))
	to.Count("duly_agents_away", int64(len(s.Away)))
	to.Count("duly_tasks_waiting_for_agents", 0)
	for _, a := range s.Away {
		to.Count("duly_tasks_waiting_for_agents", int64(a.Tasks))
	}
	to.Count("duly_breaker_openings_total", s.Openings)
	to.Times("duly_commit_cycle_seconds", scheduler.CycleBounds[:], s.Cycles.Counts[:], s.Cycles.Sum)
	st := &s.Stats
	to.Count("duly_commits_total", st.Commits)
	to.Count("duly_commit_writes_total", st.Writes)
	to.Count("duly_commit_records_total", st.Records)
	to.Count("duly_commands_total", st.Do, "do")
	to.Count("duly_commands_total", st.Undo, "undo")
	to.Count("duly_replies_refused_total", st.Stale, "stale")
	to.Count("duly_replies_refused_total", st.Forged+forged, "forged")
	to.Count("duly_duplicates_total", st.Duplicates)
	to.Count("duly_rows_refused_total", st.Poisoned)
	to.Count("duly_endings_republished_total", st.Republished)
	to.Count("duly_undo_trouble_total", st.UndoTrouble)
	kindMetrics(to, &st.Kinds)
}

func typeMetrics(to *telemetry.Scrape, t *scheduler.TypeCount) {
	to.Count("duly_tasks_created_total", t.Created, t.Type)
	to.Count("duly_tasks_ended_total", t.Asked, t.Type, "asked")
	for state, n := range t.Ended {
		to.Count("duly_tasks_ended_total", n, t.Type, string(state))
	}
	to.Times("duly_task_seconds", scheduler.LatencyBounds[:], t.Took.Counts[:], t.Took.Sum, t.Type)
	to.Count("duly_task_deadlines_missed_total", t.Missed, t.Type)
}

func kindMetrics(to *telemetry.Scrape, k *scheduler.Kinds) {
	to.Count("duly_waits_ended_total", k.Waits)
	to.Count("duly_signals_total", k.Signals, "taken")
	to.Count("duly_signals_total", k.SignalsRefused, "refused")
	to.Count("duly_children_born_total", k.Born)
	for state, n := range k.ChildrenEnded() {
		to.Count("duly_children_ended_total", n, string(state))
	}
	to.Count("duly_steps_skipped_total", k.Skipped)
	to.Count("duly_expressions_failed_total", k.Expressions)
	to.Count("duly_late_answers_total", k.LateDos, "do")
	to.Count("duly_late_answers_total", k.LateUndos, "undo")
	to.Count("duly_probes_total", k.Probes[scheduler.ProbeDone], "done")
	to.Count("duly_probes_total", k.Probes[scheduler.ProbeAbsent], "absent")
	to.Count("duly_probes_total", k.Probes[scheduler.ProbeUnknown], "unknown")
	to.Count("duly_tasks_begun_later_total", k.Starts)
}

func breakerMetrics(to *telemetry.Scrape, all []core.Breaker, now core.Instant) {
	for i := range all[:min(len(all), core.BreakersMax)] {
		switch state, _ := all[i].At(now); state {
		case core.BreakerOpen:
			to.Count("duly_breaker_state", 2, all[i].Agent)
		case core.BreakerTrial:
			to.Count("duly_breaker_state", 1, all[i].Agent)
		}
	}
}

func lagMetrics(to *telemetry.Scrape, owned []int, lag map[int]int64) {
	for _, p := range owned {
		if behind, known := lag[p]; known {
			to.Count("duly_partition_lag", behind, strconv.Itoa(p))
		}
	}
}

func channelMetrics(to *telemetry.Scrape, all []alerts.Count) {
	for _, c := range all {
		to.Count("duly_alerts_sent_total", c.Sent, c.Kind)
		to.Count("duly_alerts_failed_total", c.Failed, c.Kind)
	}
}

func booksMetrics(to *telemetry.Scrape, r *operate.BooksResult) {
	to.Flag("duly_books_closed", r.Closed)
	to.Put("duly_books_compared_timestamp_seconds", float64(r.At.Unix()))
	to.Count("duly_books_effects", r.Effects)
	to.Count("duly_books_ghosts_accepted", r.Accepted)
	to.Count("duly_books_agents_silent", int64(r.Silent()))
	for _, kind := range operate.GhostKinds {
		to.Count("duly_books_ghosts", r.Kinds[kind], string(kind))
	}
}

func scheduleMetrics(to *telemetry.Scrape, s schedules.Stats) {
	to.Count("duly_schedules_submitted_total", s.Submitted)
	to.Count("duly_schedules_skipped_total", s.Skipped)
	to.Count("duly_schedules_missed_total", s.Missed)
	to.Count("duly_schedules_failed_total", s.Failed)
	to.Count("duly_schedules_failing", int64(len(s.Failing)))
	to.Put("duly_schedules_lag_seconds", s.Lag.Seconds())
}

func poolMetrics(to *telemetry.Scrape, pools []schema.PoolStat) {
	for _, p := range pools {
		to.Count("duly_database_connections_max", p.Max, p.Name)
		to.Count("duly_database_connections_used", p.Used, p.Name)
		to.Count("duly_database_connections_idle", p.Idle, p.Name)
		to.Count("duly_database_queries_total", p.Queries, p.Name)
		to.Count("duly_database_waits_total", p.Waits, p.Name)
		to.Put("duly_database_wait_seconds_total", p.Waited.Seconds(), p.Name)
	}
}

func heldMetrics(to *telemetry.Scrape, held *schema.Held) {
	to.Count("duly_database_wal_bytes", held.WAL)
	to.Put("duly_database_snapshot_seconds", held.Snapshot.Seconds())
}

func natsMetrics(to *telemetry.Scrape, c *natsbus.Conn) {
	s := c.NATS().Stats()
	to.Flag("duly_nats_connected", c.Connected())
	to.Count("duly_nats_reconnects_total", int64(s.Reconnects))
	to.Count("duly_nats_messages_total", int64(s.InMsgs), "in")
	to.Count("duly_nats_messages_total", int64(s.OutMsgs), "out")
	to.Count("duly_nats_bytes_total", int64(s.InBytes), "in")
	to.Count("duly_nats_bytes_total", int64(s.OutBytes), "out")
	to.Count("duly_nats_dropped_total", c.Dropped())
}

func spanMetrics(to *telemetry.Scrape, s telemetry.Spans) {
	to.Count("duly_spans_total", s.Made)
	to.Count("duly_spans_dropped_total", s.Dropped)
}
