package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// What a busy installation has: so many tasks that have ended, of which a third failed, and so many of each type that have
// not: of order at an agent that is gone, of gift behind a breaker that is held open, of parcel behind a pause, and of crate
// at an agent with a limit.
const (
	busyParts     = 16 // of duly dev
	busyProcessed = 12_900
	busyUndone    = 3_200
	busyErrors    = 3_500
	busyOpen      = 100
	busyLimit     = 7
)

// busyTypes are the types with the agent of their second step.
var busyTypes = map[string]string{"order": "payment", "gift": "gift.wrap", "parcel": "parcel.send", "crate": "crate.load"}

// busy is a busy installation, and its database.
type busy struct {
	t   *testing.T
	url string
	db  *sql.DB
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "duly.db")
	fillBusy(t, path)
	ports, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{t: t, db: busyDB(t, path)}
	b.url = start(t, "dev", "--port", "0", "--nats-port", strconv.Itoa(ports[0]), "--data-dir", dir).ready()
	b.agents("nats://" + freeport.Addr(ports[0]))
	b.run("agents", "open", "gift.wrap", "--reason", "it fails")
	b.run("pause", "set", "--type", "parcel", "--step", "second", "--reason", "a recall")
	b.run("limits", "set", "crate.load", "--concurrent", strconv.Itoa(busyLimit), "--reason", "it is slow")
	var lines strings.Builder
	for name := range busyTypes {
		for i := range busyOpen {
			fmt.Fprintf(&lines, "{\"type\":%q,\"id\":\"open-%s-%d\",\"input\":{}}\n", name, name, i)
		}
	}
	file := filepath.Join(dir, "open.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run("submit", "--file", file)
	return b
}

// fillBusy makes a database with the plans, and the tasks that have ended.
func fillBusy(t *testing.T, path string) {
	t.Helper()
	ctx := t.Context()
	store, err := dialects.Open(ctx, "sqlite:"+path, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.Migrate(ctx))
	must(store.Partitions(ctx, busyParts))
	for name, agent := range busyTypes {
		must(store.PutPlan(ctx, core.Plan{Name: name, Version: 1, CompleteBy: 6 * time.Hour, Steps: []core.Step{
			{Name: "first", Agent: "credit.check"},
			{Name: "second", Agent: agent, After: []int{0}, Undoable: true, CompleteBy: time.Hour},
		}}.WithDefaults()))
	}
	must(store.Close())
	db := busyDB(t, path)
	// Those of crate were processed first: more have ended since than a count looks at.
	_, err = db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + ?2 + ?3 - 1)
		INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, failure_count, origin, deadline, created_at, updated_at, ended_at, end_number, commit_id, failed_step, fingerprint)
		SELECT i % ?4, 1 + i / ?4, 'ended-' || i, CASE WHEN i < 900 THEN 'crate' WHEN i % 3 = 0 THEN 'order' ELSE 'gift' END, 1,
			CASE WHEN i < ?1 THEN 'processed' WHEN i < ?1 + ?2 THEN 'undone' ELSE 'error' END, 6, 0, 0, 0, ?5, ?5 + i, ?5 + i, ?5 + i, 1 + i / ?4, 0,
			CASE WHEN i >= ?1 THEN 1 END, CASE WHEN i >= ?1 THEN '00000000000000' || (i % 7 + 10) END FROM n`,
		busyProcessed, busyUndone, busyErrors, busyParts, time.Now().Add(-time.Minute).UnixMicro())
	must(err)
	_, err = db.ExecContext(ctx, `UPDATE partitions SET next_number = ?1, next_end = ?1, told = ?1 - 1`, 2+(busyProcessed+busyUndone+busyErrors)/busyParts)
	must(err)
}

func busyDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// agents serves the first steps, and crate's second, which does not end.
func (b *busy) agents(url string) {
	b.t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	agent, err := duly.NewAgent(nc, duly.Running(256))
	if err != nil {
		b.t.Fatal(err)
	}
	err = duly.NewCheck[any, int]("first", "credit.check").Serve(agent, func(context.Context, duly.Call[any]) (int, error) { return 1, nil })
	if err != nil {
		b.t.Fatal(err)
	}
	err = duly.NewStep[any, int]("second", "crate.load").Serve(agent,
		func(ctx context.Context, _ duly.Call[any]) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		func(context.Context, duly.Undo[any, int]) error { return nil })
	if err != nil {
		b.t.Fatal(err)
	}
	background(b.t, agent.Run)
}

// run is what a command says.
func (b *busy) run(args ...string) string {
	b.t.Helper()
	code, out, errs := command(b.t, "", append(args, "-s", b.url)...)
	if code != 0 {
		b.t.Fatalf("duly %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// get decodes an answer of the API, or is a page of the console. A 503 says that it may be asked again, as on a machine on
// which a reading takes too long.
func (b *busy) get(path string, into any) string {
	b.t.Helper()
	var data []byte
	for until, code := time.Now().Add(patience), 0; code != http.StatusOK; {
		resp, err := http.Get(b.url + path)
		if err != nil {
			b.t.Fatal(err)
		}
		code = resp.StatusCode
		data, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		if err != nil || code != http.StatusOK && (code != http.StatusServiceUnavailable || time.Now().After(until)) {
			b.t.Fatalf("GET %s: %d %v %.300s", path, code, err, data)
		}
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			b.t.Fatalf("GET %s: %v", path, err)
		}
	}
	return html.UnescapeString(string(data))
}

// sql is a number.
func (b *busy) sql(query string, args ...any) (n int64) {
	b.t.Helper()
	if err := b.db.QueryRowContext(b.t.Context(), query, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// figure is what a number is shown as, of which at most operate.CountExactMax are counted.
func figure(n int64) string {
	return operate.Count{N: min(n, operate.CountExactMax), AtLeast: n > operate.CountExactMax}.String()
}

// is reports whether a count says a number exactly, or that it was cut.
func is(c operate.Count, n int64) bool {
	return c == operate.Count{N: min(n, operate.CountExactMax), AtLeast: n > operate.CountExactMax}
}

// TestFiguresOfABusyInstallation compares every number that API, command line and console show with the database's.
//
// covers: O2, O11
func TestFiguresOfABusyInstallation(t *testing.T) {
	t.Parallel()
	b := newBusy(t)
	const atAgent = `SELECT count(*) FROM tasks WHERE waits_for = ?`
	until(t, "every open task is where it stays", func() bool {
		return b.sql(`SELECT count(*) FROM tasks t WHERE state IN ('pending', 'processing') AND EXISTS (SELECT 1 FROM journal j
			WHERE j.partition = t.partition AND j.number = t.number AND j.step = 0 AND j.step_status = 'done')`) == int64(len(busyTypes)*busyOpen) &&
			b.sql(atAgent, "gift.wrap") == busyOpen && b.sql(atAgent, "parcel.send") == busyOpen && b.sql(atAgent, "crate.load") == busyOpen-busyLimit
	})
	t.Run("counts", func(t *testing.T) { b.in(t).counts() })
	t.Run("failures", func(t *testing.T) { b.in(t).failures() })
	t.Run("flow", func(t *testing.T) { b.in(t).flow() })
	t.Run("forecast", func(t *testing.T) { b.in(t).forecast() })
}

func (b *busy) in(t *testing.T) *busy { return &busy{t, b.url, b.db} }

func (b *busy) counts() {
	const of, ofType = `SELECT count(*) FROM tasks WHERE state = ?`, `SELECT count(*) FROM tasks WHERE state = ? AND type = ?`
	states := []core.State{core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndone, core.StateError}
	var counts struct {
		Counts []struct {
			Type    string
			State   core.State
			Tasks   int64
			AtLeast bool `json:"at_least"`
		}
	}
	b.get("/v1/counts", &counts)
	rows := map[core.Count]core.Count{}
	for _, c := range counts.Counts {
		rows[core.Count{Type: c.Type, State: c.State}] = core.Count(c)
	}
	var overview operate.Overview
	b.get("/v1/overview", &overview)
	if age := time.Since(overview.At); age < 0 || age > time.Minute {
		b.t.Errorf("the overview is %v old", age)
	}
	status, page := b.run("status"), b.get("/console/", nil)
	for _, state := range states {
		all := b.sql(of, state)
		for name := range busyTypes {
			n, c := b.sql(ofType, state, name), rows[core.Count{Type: name, State: state}]
			cut := all > operate.CountExactMax
			if cut && (!c.AtLeast || c.Tasks > n) || !cut && (c.AtLeast || c.Tasks != n) {
				b.t.Errorf("%s %s: %+v, there are %d", name, state, c, n)
			}
		}
		told := operate.Count{}
		for _, c := range overview.Counts {
			if c.State == state {
				told = c.Tasks
			}
		}
		if !is(told, all) {
			b.t.Errorf("overview: %s is %+v, there are %d", state, told, all)
		}
		if !regexp.MustCompile(`(?m)^ +` + string(state) + ` +` + regexp.QuoteMeta(figure(all)) + `$`).MatchString(status) {
			b.t.Errorf("duly status does not say that %s of %d are %s:\n%s", figure(all), all, state, status)
		}
		if !strings.Contains(page, ">"+figure(all)+"<") {
			b.t.Errorf("the first page does not say that %s are %s", figure(all), state)
		}
	}
	if !is(overview.Errors, b.sql(of, core.StateError)) || !is(overview.Groups, b.sql(`SELECT count(*) FROM (SELECT DISTINCT type, fingerprint FROM tasks WHERE state = 'error')`)) {
		b.t.Errorf("overview: %+v in error, %+v groups", overview.Errors, overview.Groups)
	}
	if overview.AtRisk != (operate.Count{}) || overview.OperationsMore {
		b.t.Errorf("overview: %+v", overview)
	}
}

func (b *busy) failures() {
	var groups operate.Groups
	b.get("/v1/failures?limit=1000", &groups)
	if n := b.sql(`SELECT count(*) FROM (SELECT DISTINCT state, type, fingerprint FROM tasks WHERE state IN ('undone', 'error'))`); int64(len(groups.Groups)) != n || groups.Next != "" {
		b.t.Errorf("%d failure groups, next %q; there are %d", len(groups.Groups), groups.Next, n)
	}
	list, page := b.run("failures", "list"), b.get("/console/failures", nil)
	for _, g := range groups.Groups {
		n := b.sql(`SELECT count(*) FROM tasks WHERE state = ? AND type = ? AND fingerprint = ?`, g.State, g.Type, g.Fingerprint)
		if !is(g.Tasks, n) {
			b.t.Errorf("group %s: %+v, there are %d", g.ID, g.Tasks, n)
		}
		if !regexp.MustCompile(`(?m)^` + g.ID + ` +` + figure(n) + ` `).MatchString(list) {
			b.t.Errorf("duly failures does not say that group %s has %s:\n%s", g.ID, figure(n), list)
		}
		row := page[max(0, strings.Index(page, g.ID)):]
		if row, _, _ = strings.Cut(row, "</tr>"); !strings.Contains(row, `>`+figure(n)+`<`) {
			b.t.Errorf("the page of failures does not say that group %s has %s: %s", g.ID, figure(n), row)
		}
	}
}

func (b *busy) flow() {
	// Of order no task is parked: each has its command out, and no instance takes it.
	atSecond := func(name string) int64 {
		return b.sql(`SELECT count(*) FROM tasks WHERE type = ? AND state = 'processing'`, name)
	}
	var agents struct{ Agents []operate.Agent }
	until(b.t, "the agent is seen to be gone", func() bool {
		b.get("/v1/agents", &agents)
		for _, a := range agents.Agents {
			if a.Name == "payment" && is(a.Unserved, atSecond("order")) && a.Instances == 0 && !a.AwaySince.IsZero() {
				return true
			}
		}
		return false
	})
	list, page := b.run("agents"), b.get("/console/agents", nil)
	for _, a := range agents.Agents {
		n := b.sql(`SELECT count(*) FROM tasks WHERE waits_for = ?`, a.Name)
		if !is(a.Waiting, n) || a.StepsMore {
			b.t.Errorf("agent %s: %+v wait (steps_more %v), there are %d", a.Name, a.Waiting, a.StepsMore, n)
		}
		for _, s := range a.Steps {
			if want := n + a.Unserved.N; s.Tasks != want || s.AtLeast {
				b.t.Errorf("agent %s: step %+v, %d wait", a.Name, s, want)
			}
		}
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(a.Name) + ` .*$`).FindString(list)
		if strings.Count(" "+line+" ", " "+figure(n)+" ") == 0 {
			b.t.Errorf("duly agents does not say that %s wait for %s: %q", figure(n), a.Name, line)
		}
		row := page[max(0, strings.Index(page, `id="`+a.Name+`"`)):]
		if row, _, _ = strings.Cut(row, "</tr>"); !strings.Contains(row, `>`+figure(n)) {
			b.t.Errorf("the page of agents does not say that %s wait for %s: %s", figure(n), a.Name, row)
		}
	}
	var pauses struct{ Pauses []operate.PauseView }
	b.get("/v1/pauses", &pauses)
	if len(pauses.Pauses) != 1 || !is(pauses.Pauses[0].Waiting, b.sql(`SELECT count(*) FROM tasks WHERE waits_for = 'parcel.send'`)) {
		b.t.Errorf("pauses: %+v", pauses.Pauses)
	}
	if page := b.get("/console/pauses", nil); !strings.Contains(page, figure(busyOpen)) {
		b.t.Errorf("the page of pauses does not say that %d wait", busyOpen)
	}
	var limits struct{ Limits []operate.Limit }
	b.get("/v1/limits", &limits)
	if len(limits.Limits) != 1 || limits.Limits[0].Concurrent != busyLimit || atSecond("crate") != busyLimit {
		b.t.Errorf("limits: %+v; %d are at work", limits.Limits, atSecond("crate"))
	}
	var partitions struct{ Partitions []operate.Partition }
	b.get("/v1/partitions", &partitions)
	for _, p := range partitions.Partitions {
		if n := b.sql(`SELECT count(*) FROM tasks WHERE partition = ? AND state IN ('processing', 'undoing')`, p.Partition); !is(p.InFlight, n) {
			b.t.Errorf("partition %d: %+v in flight, there are %d", p.Partition, p.InFlight, n)
		}
	}
	if len(partitions.Partitions) != busyParts {
		b.t.Errorf("%d partitions", len(partitions.Partitions))
	}
}

func (b *busy) forecast() {
	var f operate.Forecast
	until(b.t, "a forecast that knows of what holds tasks", func() bool {
		b.get("/v1/forecast", &f)
		for _, p := range f.Plans {
			if p.Type == "order" && p.Chance != nil && *p.Chance == 0 {
				return true
			}
		}
		return false
	})
	if n := b.sql(`SELECT count(*) FROM tasks WHERE state IN ('pending', 'processing', 'undoing')`); !is(f.Tasks, n) || int64(f.Sampled) != n || f.More {
		b.t.Errorf("forecast: %+v, there are %d", f, n)
	}
	list, page := b.run("forecast"), b.get("/console/risk", nil)
	for _, p := range f.Plans {
		n := b.sql(`SELECT count(*) FROM tasks WHERE type = ? AND state IN ('pending', 'processing', 'undoing')`, p.Type)
		if p.Tasks != n {
			b.t.Errorf("forecast of %s: %d tasks, there are %d", p.Type, p.Tasks, n)
		}
		if held := map[string]string{"order": "step second: agent payment is gone", "gift": "step second: the circuit breaker of agent gift.wrap was opened by local",
			"parcel": "step second is paused"}[p.Type]; held != "" {
			if p.Chance == nil || *p.Chance != 0 || p.Unknown != 0 || len(p.Steps) != 1 || p.Steps[0].Held != held {
				b.t.Errorf("forecast of %s: %+v, want a chance of 0: %s", p.Type, p, held)
			}
			if !strings.Contains(list, fmt.Sprintf("%s version 1, %d tasks at step second: chance to make the deadline 0 %%; %s", p.Type, n, held)) || !strings.Contains(page, held) {
				b.t.Errorf("duly forecast, or the page of deadlines, does not say %q:\n%s", held, list)
			}
			continue
		}
		// Of crate's second step none has ended.
		if p.Chance != nil || p.Unknown != n {
			b.t.Errorf("forecast of %s: %+v, want it not known of all", p.Type, p)
		}
		if !strings.Contains(list, fmt.Sprintf("%s version 1, %d tasks at step second: chance to make the deadline not known", p.Type, n)) {
			b.t.Errorf("duly forecast does not say that it does not know of %s:\n%s", p.Type, list)
		}
	}
}
