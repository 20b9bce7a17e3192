package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/versions"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// What the parts of a plan rest on is looked at where it is applied, and the payload of a signal where it is asked.
func TestPlanOfOtherPlansAndSignals(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	apply := func(p core.Plan) wire.PlanAnswer {
		t.Helper()
		spec, err := wire.EncodePlan(&p)
		if err != nil {
			t.Fatal(err)
		}
		return c.applyPlan(spec)
	}
	parent := func(child string) core.Plan {
		return core.Plan{Name: "parent", Version: 1, Steps: []core.Step{{Name: "sub", Kind: core.TaskStep, Child: child, CompleteBy: time.Minute}}}
	}
	answer := apply(parent("tock"))
	if answer.Error == nil || answer.Error.Code != 400 || !strings.Contains(answer.Error.Description, `plan parent: step sub: child is "tock", and no plan of that name is stored`) {
		t.Errorf("a child without a plan: %+v", answer)
	}
	if answer := apply(parent("tick")); answer.Error != nil {
		t.Errorf("a child with a plan: %v", answer.Error.Description)
	}
	again := parent("parent")
	again.Name = "top"
	if answer := apply(again); answer.Error != nil {
		t.Fatal(answer.Error.Description)
	}
	circle := parent("top")
	circle.Version = 2
	if answer := apply(circle); answer.Error == nil || answer.Error.Code != 400 ||
		!strings.HasSuffix(answer.Error.Description, "plan parent: step sub: its children would have tasks of parent again, without end: parent → top → parent") {
		t.Errorf("children in a circle: %+v", answer)
	}
	if answer := apply(core.Plan{Name: "asks", Version: 1, Steps: []core.Step{
		{Name: "yes", Kind: core.SignalStep, CompleteBy: 30 * time.Second, ResultMax: 1000, Schema: `{"type":"object","required":["by"]}`}}}); answer.Error != nil {
		t.Fatal(answer.Error.Description)
	}
	ctx := t.Context()
	if _, err := c.client.SubmitRaw(ctx, "asks", "a-1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the task is there", func() bool { _, err := c.client.Get(ctx, "asks", "a-1"); return err == nil })
	refused, some := errors.AsType[*duly.SubmitError](c.client.SignalRaw(ctx, "asks", "a-1", "yes", []byte(`{"to":1}`), ""))
	if !some || refused.Code != 422 || !strings.Contains(refused.Description, "payload does not fit the schema of step") {
		t.Errorf("a payload that does not fit: %v", refused)
	}
	large := []byte(`{"by":"` + strings.Repeat("o", 1000) + `"}`)
	refused, some = errors.AsType[*duly.SubmitError](c.client.SignalRaw(ctx, "asks", "a-1", "yes", large, ""))
	if !some || refused.Code != 413 || refused.Description != "payload of signal yes has 1009 bytes, the limit is 1000" {
		t.Errorf("a payload that is too large: %v", refused)
	}
	refused, some = errors.AsType[*duly.SubmitError](c.client.SignalRaw(ctx, "asks", "a-1", "no", []byte(`{}`), ""))
	if !some || refused.Code != 409 || !strings.Contains(refused.Description, `its plan has no step "no"; the step that accepts answers is yes; `) {
		t.Errorf("a step that is not there: %v", refused)
	}
	if err := c.client.SignalRaw(ctx, "asks", "a-1", "yes", []byte(`{"by":"olga"}`), ""); err != nil {
		t.Fatal(err)
	}
	soon(t, "the signal is taken", func() bool {
		task, err := c.client.Get(ctx, "asks", "a-1")
		return err == nil && task.State == duly.StateProcessed
	})
}

// TestPlansAreReadUnannounced: a version that was stored, or deprecated, while no announcement came is known all the same.
func TestPlansAreReadUnannounced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := dialects.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	c := newPlanCache(store, slog.New(slog.DiscardHandler), func(error) {})
	c.fresh = 10 * time.Millisecond
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var changes atomic.Int64
	wg.Go(func() { c.keepRead(running, func() { changes.Add(1) }) })
	for i, x := range []struct {
		change func() error
		newest int64
	}{
		{func() error { return store.PutPlan(ctx, orderPlan(1)) }, 1},
		{func() error { return store.PutPlan(ctx, orderPlan(2)) }, 2},
		{func() error { return store.Deprecate(ctx, "order", 2, core.InstantOf(time.Now())) }, 1},
	} {
		if err := x.change(); err != nil {
			t.Fatal(err)
		}
		until(t, fmt.Sprintf("change %d is known", i+1), func() bool {
			p := c.Plan("order", 0)
			return p != nil && p.Version == x.newest && changes.Load() == int64(i+1)
		})
	}
}

// TestSupervisorKnowsPlans: a node that supervises, and nothing else, knows the plans of the tasks that it tells of.
func TestSupervisorKnowsPlans(t *testing.T) {
	t.Parallel()
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = startNATS(t).ClientURL(), "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), wire.DefaultNamespace
	if err := Migrate(t.Context(), cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { err = errors.Join(n.RunRole(running, config.RoleSupervisor, false), n.Close()) })
	t.Cleanup(func() {
		cancel()
		if wg.Wait(); err != nil {
			t.Error(err)
		}
	})
	if err := n.store.PutPlan(t.Context(), orderPlan(1)); err != nil {
		t.Fatal(err)
	}
	n.plans.stale.Store(true) // as after half a minute
	until(t, "the plan is known", func() bool { return n.plans.Plan("order", 0) != nil })
}

// orderPlan is a version of a plan with one step.
func orderPlan(version int64) core.Plan {
	return core.Plan{Name: "order", Version: version, CompleteBy: time.Minute, Steps: []core.Step{{Name: "pay", Agent: "payment", CompleteBy: time.Second}}}.WithDefaults()
}

// TestPlanOverNATSTellsOfCallers: a version that breaks the next children of others' tasks is stored, and the answer says whose.
func TestPlanOverNATSTellsOfCallers(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	apply := func(p core.Plan) (callers []versions.Caller) {
		t.Helper()
		spec, err := wire.EncodePlan(&p)
		if err != nil {
			t.Fatal(err)
		}
		answer := c.applyPlan(spec)
		if answer.Error != nil {
			t.Fatal(answer.Error.Description)
		}
		if answer.Callers != nil {
			if err := json.Unmarshal(answer.Callers, &callers); err != nil {
				t.Fatal(err)
			}
		}
		return callers
	}
	leaf := core.Plan{Name: "leaf", Version: 1, Steps: []core.Step{{Name: "yes", Kind: core.SignalStep, CompleteBy: 50 * time.Second}}}
	root := core.Plan{Name: "root", Version: 1, Steps: []core.Step{{Name: "night", Kind: core.WaitStep, For: 50 * time.Second},
		{Name: "sub", Kind: core.TaskStep, Child: "leaf", After: []int{0}, CompleteBy: time.Minute}}}
	if callers := append(apply(leaf), apply(root)...); callers != nil {
		t.Errorf("no version breaks anything yet: %+v", callers)
	}
	if _, err := c.client.SubmitRaw(ctx, "root", "r-1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the task is there", func() bool { _, err := c.client.Get(ctx, "root", "r-1"); return err == nil })
	leaf.Version, leaf.InputSchema = 2, `{"type":"object","required":["to"]}`
	callers := apply(leaf)
	if len(callers) != 1 || callers[0].Plan != "root" || callers[0].Step != "sub" || callers[0].Unfit != 1 || callers[0].Task != "r-1" || callers[0].Warning() == "" {
		t.Errorf("callers: %+v", callers)
	}
}

// A second answer to a signal step that has not begun is refused where it is asked, and the task shows why.
func TestSecondEarlySignal(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	spec, err := wire.EncodePlan(&core.Plan{Name: "later", Version: 1, Steps: []core.Step{
		{Name: "night", Kind: core.WaitStep, For: 50 * time.Second}, {Name: "yes", Kind: core.SignalStep, After: []int{0}, CompleteBy: 50 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	if answer := c.applyPlan(spec); answer.Error != nil {
		t.Fatal(answer.Error.Description)
	}
	if _, err := c.client.SubmitRaw(ctx, "later", "l-1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the task is there", func() bool { _, err := c.client.Get(ctx, "later", "l-1"); return err == nil })
	if err := c.client.SignalRaw(ctx, "later", "l-1", "yes", []byte(`1`), ""); err != nil {
		t.Fatal(err)
	}
	soon(t, "the task shows the signal", func() bool {
		task, err := c.client.Get(ctx, "later", "l-1")
		return err == nil && task.Steps[1].Status == core.SignalledWord
	})
	refused, some := errors.AsType[*duly.SubmitError](c.client.SignalRaw(ctx, "later", "l-1", "yes", []byte(`2`), ""))
	if !some || refused.Code != 409 || !strings.Contains(refused.Description, "step yes has had its signal, in journal row 2; ") {
		t.Errorf("the second: %v", refused)
	}
}

// TestPlanOfNewerBinaryBesideOthers: a node leaves a plan alone that a newer binary has stored with a kind of step that it
// does not know: what is submitted of it is refused by name, the rest runs, and the plan stays as it was stored.
func TestPlanOfNewerBinaryBesideOthers(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	const spec = `{"v":1,"name":"future","version":7,"complete_by_ms":60000,"grace_ms":2000,"input_max":1024,"steps":[{"name":"again","kind":"loop","undoable":false}]}`
	db, err := sql.Open("sqlite", strings.TrimPrefix(c.Node.cfg.DatabaseURL, "sqlite:")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.ExecContext(ctx, `INSERT INTO plans (name, version, spec) VALUES ('future', 7, $1)`, []byte(spec)); err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = c.client.SubmitRaw(bounded, "future", "f-1", []byte(`{}`))
	refused, some := errors.AsType[*duly.SubmitError](err)
	if !some || refused.Code != 503 || !strings.Contains(refused.Description, "plan future version 7") || !strings.Contains(refused.Description, `"loop"`) {
		t.Errorf("a task of a plan that is not known here: %v", err)
	}
	if p, err := c.Node.planOf(ctx, "tick", 9); p != nil || err != nil {
		t.Errorf("a version that is not there: %v, %v", p, err)
	}
	if _, err := c.Node.planOf(ctx, "future", 7); err == nil {
		t.Error("whether the plan is there that is not known here is known")
	}
	if _, err := c.plan.Submit(ctx, c.client, "t-1", 1); err != nil {
		t.Fatal(err)
	}
	soon(t, "the rest runs", func() bool {
		task, err := c.client.Get(ctx, "tick", "t-1")
		return err == nil && task.State == duly.StateProcessed
	})
	var stored string
	var tasks int
	if err := db.QueryRowContext(ctx, `SELECT spec, (SELECT count(*) FROM tasks WHERE type = 'future') FROM plans WHERE name = 'future'`).Scan(&stored, &tasks); err != nil || stored != spec || tasks != 0 {
		t.Errorf("stored is %s with %d tasks: %v", stored, tasks, err)
	}
}
