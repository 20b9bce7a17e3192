package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
)

// toldAlerts keeps what was told.
type toldAlerts struct {
	mu  sync.Mutex
	all []ground.Alert
}

func (a *toldAlerts) Alert(alert ground.Alert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, alert)
}

// of are the alerts about a condition, in order.
func (a *toldAlerts) of(name string) []ground.Alert {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.all), func(alert ground.Alert) bool { return alert.Name != name })
}

// good is a configuration that works.
func good() config.Config {
	return config.Config{
		Roles: config.Roles, NodeName: "n1", Partitions: 16, Shards: 2, InFlight: 10, AgentWindow: 10, StreamReplicas: 1,
		ScanInterval: time.Second, Lease: 6 * time.Second, Drain: time.Second,
	}
}

// everything is a node with all roles, for its conditions.
func everything(roles ...string) *Node {
	c := good()
	if len(roles) > 0 {
		c.Roles = roles
	}
	return &Node{cfg: c, clock: newClock(nil)}
}

// TestEveryConditionIsTold: each condition, when it does not hold, is told at its time by a log line and an alert of the
// same words, once, and again when it holds; and it makes the node not ready, or not alive, as the table says.
//
// covers: B13
func TestEveryConditionIsTold(t *testing.T) {
	for _, c := range everything().conditions() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { toldOnce(t, c) })
		})
	}
}

// toldOnce lets one condition fail for a minute.
func toldOnce(t *testing.T, c ground.Condition) {
	t.Helper()
	var text bytes.Buffer
	told := &toldAlerts{}
	g := ground.New(ground.Sinks{told, ground.LogSink{Log: slog.New(slog.NewTextHandler(&text, nil))}})
	c.Probe, c.Each = nil, nil // what they see is reported instead
	reporter := g.Add(c)
	s := standing{g}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { g.Run(ctx) })
	reporter.Report(nil)
	synctest.Wait()
	if len(s.Ready())+len(s.Live()) != 0 {
		t.Fatal("not ready though all is well")
	}
	grace, after := max(0, c.Grace), max(0, c.ReadyAfter)
	if c.Grace == 0 {
		grace = ground.DefaultGrace
	}
	if c.ReadyAfter == 0 {
		after = min(grace, ground.DefaultReady)
	}
	if c.Name != condLeader && c.Consequence >= ground.NotReady && after+c.Every+ground.DefaultEvery > 10*time.Second {
		t.Errorf("not ready only after %v, want within ten seconds, the probe's share included", after)
	}
	began := time.Now()
	for time.Since(began) < time.Minute { // as a part that tries every half second
		reporter.Report(errors.New("the reason"))
		synctest.Wait()
		passed := time.Since(began)
		if want, got := c.Consequence >= ground.NotReady && passed >= after, len(s.Ready()) == 1; want != got {
			t.Fatalf("after %v not ready is %v, want %v", passed, got, want)
		}
		if want, got := c.Consequence == ground.Fatal && passed >= after, len(s.Live()) == 1; want != got {
			t.Fatalf("after %v not alive is %v, want %v", passed, got, want)
		}
		if want, got := passed >= grace, len(told.of(c.Name)) == 1; want != got {
			t.Fatalf("after %v told is %v, want %v", passed, got, want)
		}
		<-time.After(500 * time.Millisecond)
	}
	if failing := s.Ready(); len(failing) == 1 && (failing[0].Name != c.Name || failing[0].Reason != "the reason" || failing[0].Text != c.Begin || time.Since(failing[0].Since) != time.Minute) {
		t.Errorf("readiness says %+v", failing)
	}
	reporter.Report(nil)
	if len(s.Ready()) != 0 {
		t.Error("not ready though it is over")
	}
	<-time.After(time.Minute)
	got := told.of(c.Name)
	if len(got) != 2 || got[0].Phase != ground.Begins || got[0].Text != c.Begin || got[1].Phase != ground.Ends || got[1].Text != c.End || got[1].For != time.Minute {
		t.Errorf("alerts %+v", got)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], c.Begin) || !strings.Contains(lines[0], `"the reason"`) || !strings.Contains(lines[1], c.End) || !strings.Contains(lines[1], "for=1m0s") {
		t.Errorf("log:\n%s", &text)
	}
	cancel()
	wg.Wait()
}

// TestConditionsBelongToRoles: a node is asked only for what its roles need.
func TestConditionsBelongToRoles(t *testing.T) {
	for _, tt := range []struct {
		role      string
		has, lack []string
	}{
		{config.RoleIngest, []string{condNATS, condDatabase, condStreams, condPartitions, config.RoleIngest}, []string{condCommits, condLeader, condNodeLease, condClockFar, config.RoleScheduler}},
		{config.RoleScheduler, []string{condCommits, condNodeLease, condClockFar, condPartitions, config.RoleScheduler}, []string{condLeader, config.RoleIngest, config.RoleSupervisor}},
		{config.RoleSupervisor, []string{condLeader, condClock, config.RoleSupervisor}, []string{condCommits, config.RoleIngest, config.RoleScheduler}},
	} {
		names := map[string]bool{}
		for _, c := range everything(tt.role).conditions() {
			names[c.Name] = true
			if c.Name == condNATS && (c.ReadyAfter == ground.AtOnce) != (tt.role == config.RoleIngest) {
				t.Errorf("%s: not ready %v after NATS is away", tt.role, c.ReadyAfter)
			}
		}
		for _, name := range tt.has {
			if !names[name] {
				t.Errorf("%s lacks %s", tt.role, name)
			}
		}
		for _, name := range tt.lack {
			if names[name] {
				t.Errorf("%s has %s", tt.role, name)
			}
		}
	}
}

// healthPage is the page with the table of all conditions.
var healthPage = filepath.Join("..", "..", "docs", "operations", "health.md")

// TestHealthPage holds docs/operations/health.md to the conditions that there are, with their words and times.
func TestHealthPage(t *testing.T) {
	want := conditionTable()
	text, err := os.ReadFile(healthPage)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/operations/health.md does not have this table:\n%s", want)
	}
}

// conditionTable is the table of docs/operations/health.md.
func conditionTable() string {
	roles := map[string][]string{}
	for _, role := range config.Roles {
		for _, c := range everything(role).conditions() {
			roles[c.Name] = append(roles[c.Name], role)
		}
	}
	var b strings.Builder
	b.WriteString("| name | wanted | when it begins | when it ends | told after | consequence | after | roles |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range everything().conditions() {
		consequence, after := c.Consequence.String(), spell(c, c.ReadyAfter, ground.DefaultReady)
		if c.Consequence == ground.Told {
			after = "–"
		}
		with := "all"
		if len(roles[c.Name]) < len(config.Roles) {
			with = strings.Join(roles[c.Name], ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", c.Name, c.Wanted, c.Begin, c.End, spell(c, c.Grace, ground.DefaultGrace), consequence, after, with)
	}
	return b.String()
}

// spell writes a grace of a condition; usual is what it is where nothing is said.
func spell(c ground.Condition, d, usual time.Duration) string {
	switch {
	case c.Name == condLeader:
		return fmt.Sprintf("lease + %v", leaderGrace)
	case c.Name == condNATS && d == ground.AtOnce:
		return fmt.Sprintf("at once; without ingest %v", ground.DefaultReady)
	case d < 0:
		return "at once"
	case d == 0 && c.Grace > 0:
		return min(c.Grace, usual).String()
	case d == 0 && c.Grace < 0:
		return "at once"
	case d == 0:
		return usual.String()
	}
	return d.String()
}

// TestUnowned: a partition is owned by a node that lives, or it is named.
func TestUnowned(t *testing.T) {
	if err := unowned(nil, 3); err != nil {
		t.Error(err)
	}
	err := unowned([]core.PartitionState{{Partition: 1, Owner: "b"}, {Partition: 2}}, 3)
	if err == nil || err.Error() != "2 of 3 partitions: 1 has the owner b, which is not live; 2 has no owner" {
		t.Error(err)
	}
	if err := unowned(make([]core.PartitionState, 1024), 4096); err == nil || len(err.Error()) > 300 {
		t.Error(err)
	}
}

// TestAlertLines: what a role says as an alert is one, with its attributes; a storm of it is a line a second.
func TestAlertLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &toldAlerts{}
		g := ground.New(told)
		var text bytes.Buffer
		log := slog.New(alertLines{slog.NewTextHandler(&text, nil), g})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { g.Run(ctx) })
		synctest.Wait()
		log.Error("ALERT: it went back", "event", "went-back", "partition", 3, "error", errors.New("reason"))
		for range 99 {
			log.With("x", 1).WithGroup("y").Error("ALERT: it went back", "event", "went-back")
		}
		log.Info("a line")
		<-time.After(2 * time.Second)
		synctest.Wait()
		cancel()
		wg.Wait()
		got := told.of("went-back")
		if len(got) != 2 || got[0].Error != "reason" || got[0].Text != "it went back" || got[0].Phase != ground.Once || len(got[0].Attrs) != 1 || got[0].Attrs[0].Key != "partition" || got[1].Times != 99 {
			t.Errorf("alerts %+v", got)
		}
		if !strings.Contains(text.String(), "a line") || strings.Contains(text.String(), "went back") {
			t.Errorf("log: %s", &text)
		}
	})
}

// TestEventsAreExplained: each alert that has no end has a name, and docs/operations/health.md says what it means and what to do.
func TestEventsAreExplained(t *testing.T) {
	page, err := os.ReadFile(healthPage)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"task-error": true, "undo-exhausted": true}
	line, event := regexp.MustCompile(`log\.Error\("ALERT: `), regexp.MustCompile(`"event", "([a-z-]+)"`)
	for _, dir := range []string{filepath.Join("..", "*"), filepath.Join("..", "..", "scheduler"), filepath.Join("..", "..", "supervisor"), filepath.Join("..", "..", "ingest")} { // all that get the node's log
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := event.FindAllSubmatch(text, -1)
			if n := len(line.FindAll(text, -1)); n != len(found) {
				t.Errorf("%s: %d alerts and %d names of events", file, n, len(found))
			}
			for _, f := range found {
				names[string(f[1])] = true
			}
		}
	}
	if len(names) < 7 {
		t.Errorf("%d events", len(names))
	}
	for name := range names {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("docs/operations/health.md does not explain the event %s", name)
		}
	}
}
