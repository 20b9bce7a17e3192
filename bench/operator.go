package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// Sizes of the operator scenario.
const (
	operatorTasks      = 1_000_000
	operatorFailedIn10 = 10 // of so many tasks one failed
	operatorGroups     = 50
	operatorOpen       = 50 // of so many tasks one has not ended
	operatorAudit      = 100_000
	operatorJournal    = 150 // rows of the task whose page is read
	operatorPage       = 50  // rows of a page
	operatorReads      = 200 // of each question
	operatorWarm       = 5   // before those that are counted
)

// OperatorResult is what the operator scenario measured.
type OperatorResult struct {
	Scenario string         `json:"scenario"`
	Store    string         `json:"store"`
	Date     string         `json:"date"`
	Machine  string         `json:"machine"`
	Command  string         `json:"command"`
	Tasks    int            `json:"tasks"`
	Failed   int            `json:"failed"`
	Groups   int            `json:"groups"`
	LoadS    float64        `json:"load_s"`
	Freeze   OperatorRead   `json:"freeze"` // of the largest group, once
	Reads    []OperatorRead `json:"reads"`
}

// OperatorRead is how long one question took, in milliseconds.
type OperatorRead struct {
	Question string  `json:"question"`
	Rows     int     `json:"rows"` // of the answer
	P50      float64 `json:"p50"`
	P95      float64 `json:"p95"`
	Max      float64 `json:"max"`
}

// operator loads a store with many tasks, some of which failed, and asks what operators ask, one question after the
// other.
func operator(ctx context.Context, s *settings, command string, out io.Writer) error {
	database, err := databaseText(s.store)
	if err != nil {
		return err
	}
	where, err := machine(runtime.Version(), database)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "duly-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	url, driver, source := "sqlite:"+filepath.Join(dir, "duly.db"), "sqlite", "file:"+filepath.Join(dir, "duly.db")+"?_pragma=busy_timeout(60000)"
	if s.store == "postgres" {
		cluster, err := localpg.Start(localpg.Options{Settings: map[string]string{"max_wal_size": "4GB"}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Stop()) }()
		database := cluster.URL("postgres")
		url, driver, source = database, "pgx", database
	}
	tasks := orElse(s.preload, operatorTasks)
	res := &OperatorResult{
		Scenario: "operator", Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command,
		Tasks: tasks, Failed: tasks / operatorFailedIn10, Groups: operatorGroups,
	}
	store, err := dialects.Open(ctx, url, schema.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	began := time.Now()
	if err := operatorLoad(ctx, store, s, driver, source, tasks); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	res.LoadS = time.Since(began).Seconds()
	if err := operatorAsk(ctx, store, s.partitions, res); err != nil {
		return err
	}
	return operatorPublish(s, res, out)
}

// operatorSQL is what a dialect spells in its own way.
type operatorSQL struct{ series, at, hex, text, analyze string }

var operatorDialects = map[string]operatorSQL{
	"postgres": {
		series: `(SELECT generate_series(0, %d - 1) AS i) AS n`, at: `'2026-01-01 00:00:00+00'::TIMESTAMPTZ + (%s) * INTERVAL '1 ms'`,
		hex: `lpad(to_hex(%s), 16, '0')`, text: `convert_to(%s, 'UTF8')`, analyze: `VACUUM ANALYZE`,
	},
	"sqlite": {
		series: `(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d - 1) SELECT i FROM n) AS n`, at: `1767225600000000 + (%s) * 1000`,
		hex: `printf('%%016x', %s)`, text: `CAST(%s AS BLOB)`, analyze: `PRAGMA wal_checkpoint(TRUNCATE)`,
	},
}

// operatorLoad fills a store by SQL: tasks that ended well, tasks that failed in groups with their journals, tasks that
// have not ended, and the audit trail.
func operatorLoad(ctx context.Context, store schema.Store, s *settings, driver, source string, tasks int) error {
	plan := core.Plan{Name: "order", Version: 1}
	for i := range 5 {
		plan.Steps = append(plan.Steps, core.Step{Name: fmt.Sprint("step", i), Agent: fmt.Sprint("agent", i), Undoable: true})
	}
	if err := errors.Join(store.Migrate(ctx), store.Partitions(ctx, s.partitions), store.PutPlan(ctx, plan.WithDefaults())); err != nil {
		return err
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	d := operatorDialects[s.store]
	at := func(ms string) string { return fmt.Sprintf(d.at, ms) }
	number, partition := fmt.Sprintf(`n.i / %d + 1`, s.partitions), fmt.Sprintf(`n.i %% %d`, s.partitions)
	// k tells what became of a task, g its group: independent of its partition.
	k, g := fmt.Sprintf(`(n.i / %d)`, s.partitions), fmt.Sprintf(`(n.i / %d %% %d)`, s.partitions*operatorFailedIn10, operatorGroups)
	failed, open := fmt.Sprintf(`%s %% %d = 0`, k, operatorFailedIn10), fmt.Sprintf(`%s %% %d = 7`, k, operatorOpen)
	series := func(n int) string { return fmt.Sprintf(d.series, n) }
	statements := []string{
		fmt.Sprintf(`INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, waits_for, complete_by, deadline, failure_count, origin,
			created_at, updated_at, ended_at, end_number, failed_step, fingerprint, commit_id)
			SELECT %[1]s, %[2]s, 't' || n.i, 'order', 1,
			CASE WHEN %[3]s THEN (CASE WHEN %[5]s %% 2 = 0 THEN 'error' ELSE 'undone' END) WHEN %[4]s THEN (CASE WHEN n.i %% 10 = 0 THEN 'processing' ELSE 'pending' END) ELSE 'processed' END,
			2, 0, CASE WHEN %[4]s AND n.i %% 10 <> 0 THEN 'agent0' END, CASE WHEN %[4]s THEN %[6]s END, %[6]s, 0, n.i, %[7]s, %[8]s,
			CASE WHEN NOT (%[4]s) THEN %[8]s END, CASE WHEN NOT (%[4]s) THEN %[2]s END, CASE WHEN %[3]s THEN %[5]s %% 5 END, CASE WHEN %[3]s THEN %[9]s END, 1
			FROM %[10]s`, partition, number, failed, open, g, at(`n.i + 600000`), at(`n.i`), at(`n.i + 2000`), fmt.Sprintf(d.hex, g), series(tasks)),
		fmt.Sprintf(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, error, undo)
			SELECT t.partition, t.number, n.i + 1, t.created_at, 'node', 1, 1, CASE n.i WHEN 0 THEN 'submitted' ELSE 'refused' END, CASE n.i WHEN 0 THEN 'processing' ELSE t.state END, 0,
			CASE n.i WHEN 1 THEN t.failed_step END, CASE n.i WHEN 1 THEN 'failed' END, n.i, CASE n.i WHEN 1 THEN %s END, FALSE
			FROM tasks t, %s WHERE t.state IN ('undone', 'error')`, fmt.Sprintf(d.text, `'no stock for order ' || t.id`), series(2)),
		fmt.Sprintf(`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
			SELECT 0, 2, n.i + 1, %s, 'node', 1, 1, CASE n.i WHEN 0 THEN 'submitted' ELSE 'asked' END, 'processing', 0, 0, FALSE FROM %s`, at(`n.i`), series(operatorJournal)),
		fmt.Sprintf(`INSERT INTO audit (number, at, actor, role, from_addr, via, action, target, reason, outcome, request_id)
			SELECT n.i + 1, %s, 'person' || (n.i %% 20), 'operator', '10.0.0.1', 'http', CASE n.i %% 5 WHEN 0 THEN 'undo' ELSE 'resubmit' END, %s, 'because', 'done', '' FROM %s`,
			at(`n.i`), fmt.Sprintf(d.text, `'task/order/t' || n.i`), series(operatorAudit)),
		fmt.Sprintf(`UPDATE partitions SET next_number = %[1]d, next_end = %[1]d`, tasks/s.partitions+2),
		d.analyze,
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60s: %w", statement, err)
		}
	}
	return nil
}

// question is one that an operator asks; it returns how many rows the answer has.
type question struct {
	name string
	ask  func() (int, error)
}

func operatorAsk(ctx context.Context, store schema.Store, partitions int, res *OperatorResult) error {
	first, err := store.Groups(ctx, operate.GroupFilter{Limit: operatorGroups})
	if err != nil {
		return err
	}
	if len(first.Groups) != operatorGroups {
		return fmt.Errorf("%d groups, want %d", len(first.Groups), operatorGroups)
	}
	group := first.Groups[0]
	// One task a millisecond was born, each with a deadline of ten minutes.
	born := core.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	near := born.Add(time.Duration(res.Tasks/20+600_000) * time.Millisecond)
	page := func(f core.Filter) func() (int, error) {
		f.Limit = operatorPage
		return func() (int, error) {
			p, err := store.List(ctx, f)
			return len(p.Tasks), err
		}
	}
	trail := func(f operate.AuditFilter) func() (int, error) {
		f.Limit = operatorPage
		return func() (int, error) {
			p, err := store.Audit(ctx, f)
			return len(p.Entries), err
		}
	}
	for _, q := range []question{
		{"list, all", page(core.Filter{})},
		{"list, of a type", page(core.Filter{Type: "order"})},
		{"list, of a type that has none", page(core.Filter{Type: "none"})},
		{"list, in error", page(core.Filter{State: core.StateError})},
		{"list, undone", page(core.Filter{State: core.StateUndone})},
		{"list, processed", page(core.Filter{State: core.StateProcessed})},
		{"list, parked", page(core.Filter{State: core.StatePending})},
		{"list, by failed step", page(core.Filter{Step: "step3"})},
		{"list, of a group", page(core.Filter{Type: group.Type, State: group.State, Fingerprint: group.Fingerprint})},
		{"list, by fingerprint alone", page(core.Filter{Fingerprint: group.Fingerprint})},
		{"list, created in a range long ago", page(core.Filter{CreatedFrom: born, CreatedTo: born.Add(time.Second)})},
		{"groups, a page of 50", func() (int, error) {
			g, err := store.Groups(ctx, operate.GroupFilter{Limit: operatorPage})
			return len(g.Groups), err
		}},
		{"a group by its id", func() (int, error) { _, err := store.Group(ctx, group.ID); return 1, err }},
		{"task page with 100 journal rows", func() (int, error) {
			if _, err := store.Get(ctx, 0, fmt.Sprint("t", partitions)); err != nil { // the second of partition 0
				return 0, err
			}
			rows, err := store.JournalPage(ctx, 0, 2, 0, 100)
			return len(rows), err
		}},
		{"at risk", func() (int, error) { v, _, err := store.AtRisk(ctx, near, operatorPage); return len(v), err }},
		{"counts up to 10,000", func() (int, error) { c, err := store.CountsUpTo(ctx, operate.CountExactMax); return len(c), err }},
		{"waiting for agents", func() (int, error) { w, err := store.ParkedAt(ctx); return len(w), err }},
		{"sample of 1,000 endings", func() (int, error) { _, err := store.Sample(ctx, 1000); return 1, err }},
		{"audit, newest", trail(operate.AuditFilter{})},
		{"audit, of an actor", trail(operate.AuditFilter{Actor: "person7"})},
		{"audit, of a target", trail(operate.AuditFilter{Target: "task/order/t77"})},
	} {
		r, err := operatorTime(q, operatorWarm, operatorReads)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		res.Reads = append(res.Reads, r)
	}
	op := operate.Operation{ID: "bench", Action: operate.ActionResubmit, Group: group.ID, Created: time.Now(), Expires: time.Now().Add(time.Hour)}
	res.Freeze, err = operatorTime(question{"freeze all that failed", func() (int, error) {
		n, err := store.Freeze(ctx, op, operate.Selection{Filter: &core.Filter{State: core.StateUndone}})
		return int(n), err
	}}, 0, 1)
	if err != nil {
		return err
	}
	members, err := store.Members(ctx, op.ID, "", 0, 1000)
	if err != nil {
		return err
	}
	r, err := operatorTime(question{"standing of 1,000 members", func() (int, error) { s, err := store.Standing(ctx, members); return len(s), err }}, 1, 20)
	res.Reads = append(res.Reads, r)
	return err
}

func operatorTime(q question, warm, times int) (OperatorRead, error) {
	r := OperatorRead{Question: q.name}
	var took []float64
	for i := range warm + times {
		began := time.Now()
		n, err := q.ask()
		if err != nil {
			return r, err
		}
		if i >= warm {
			took, r.Rows = append(took, ms(time.Since(began))), n
		}
	}
	slices.Sort(took)
	r.P50, r.P95, r.Max = took[len(took)/2], took[len(took)*95/100], took[len(took)-1]
	return r, nil
}

// operatorPublish writes the result to the file and, as a table, to out.
func operatorPublish(s *settings, res *OperatorResult, out io.Writer) error {
	line, err := json.Marshal(res)
	if err != nil {
		return err
	}
	if s.json != "" {
		if err := os.WriteFile(s.json, append(line, '\n'), 0o644); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d tasks, %d failed in %d groups, loaded in %.0f s\nquestion\trows\tp50 ms\tp95 ms\tmax ms\n", strings.ToUpper(res.Store[:1])+res.Store[1:], res.Tasks, res.Failed, res.Groups, res.LoadS)
	for _, r := range append(res.Reads, res.Freeze) {
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\n", r.Question, r.Rows, r.P50, r.P95, r.Max)
	}
	return w.Flush()
}
