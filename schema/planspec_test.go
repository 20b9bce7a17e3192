package schema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// canonicalPlan is a plan as it is stored, byte for byte. A later version that adds a field
// must still find its plan equal to this one.
const canonicalPlan = `{"v":1,"name":"order","version":1,"complete_by_ms":60000,"grace_ms":2000,"input_max":262144,"steps":[` +
	`{"name":"check","agent":"credit.check","after":[],"undoable":false,"complete_by_ms":10000,"undo_complete_by_ms":10000,"attempts_max":3,"backoff_ms":200,"backoff_cap_ms":10000,"on_exhausted":"undo","pause_ms":300000,"result_max":65536,"key_lasts_ms":86400000},` +
	`{"name":"charge","agent":"payment","after":["check"],"undoable":true,"complete_by_ms":1500,"undo_complete_by_ms":1500,"attempts_max":3,"backoff_ms":200,"backoff_cap_ms":10000,"on_exhausted":"undo","pause_ms":300000,"result_max":65536,"key_lasts_ms":86400000},` +
	`{"name":"ship","agent":"ship","after":["check","charge"],"undoable":true,"complete_by_ms":10000,"undo_complete_by_ms":10000,"attempts_max":3,"backoff_ms":200,"backoff_cap_ms":10000,"on_exhausted":"wait","pause_ms":300000,"result_max":65536,"key_lasts_ms":86400000}]}`

func planOfStored() core.Plan {
	return core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "check", Agent: "credit.check"},
		{Name: "charge", Agent: "payment", After: []int{0}, Undoable: true, CompleteBy: 1500 * time.Millisecond},
		{Name: "ship", Agent: "ship", After: []int{0, 1}, Undoable: true, OnExhausted: core.PolicyWait},
	}}.WithDefaults()
}

// onBoth runs a test on both dialects, with fresh tables.
func onBoth(t *testing.T, test func(t *testing.T, s schema.Store)) {
	for _, dialect := range []string{"sqlite", "postgres"} {
		t.Run(dialect, func(t *testing.T) {
			test(t, fresh(t, dialect, schema.Options{MaxConns: 2}))
		})
	}
}

// storeSpec puts a plan's stored form behind the store's back, as another version left it.
func storeSpec(t *testing.T, s schema.Store, name string, version int64, spec string) {
	t.Helper()
	db := schema.DB(s)
	if s.Dialect() == "sqlite" {
		db = schema.WriterDB(s)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO plans (name, version, spec) VALUES ($1, $2, $3)`, name, version, []byte(spec)); err != nil {
		t.Fatal(err)
	}
}

// What is stored now is the canonical form; one with fields missing, as if they had been
// added since, is the same plan.
func TestPlanStoredCanonically(t *testing.T) {
	onBoth(t, func(t *testing.T, s schema.Store) {
		if err := s.PutPlan(t.Context(), planOfStored()); err != nil {
			t.Fatal(err)
		}
		var spec []byte
		if err := schema.DB(s).QueryRowContext(t.Context(), `SELECT spec FROM plans`).Scan(&spec); err != nil || string(spec) != canonicalPlan {
			t.Fatalf("stored %s, %v\nwant   %s", spec, err, canonicalPlan)
		}
		before := strings.NewReplacer(`"name":"order"`, `"name":"before"`, `,"pause_ms":300000`, "", `,"result_max":65536`, "", `"grace_ms":2000,`, "").Replace(canonicalPlan)
		storeSpec(t, s, "before", 1, before)
		p := planOfStored()
		p.Name = "before"
		if err := s.PutPlan(t.Context(), p); err != nil {
			t.Errorf("a plan stored before its fields were: %v", err)
		}
	})
}

// A plan that a newer version stored with a field or in a form that is not known here is told by
// name, whatever is asked, and never taken for one without that field.
func TestPlanOfNewerVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, s schema.Store) {
		if err := s.PutPlan(t.Context(), planOfStored()); err != nil {
			t.Fatal(err)
		}
		storeSpec(t, s, "order", 3, strings.NewReplacer(`"version":1`, `"version":3`, `"agent":"payment"`, `"agent":"payment","rate_max":9`).Replace(canonicalPlan))
		storeSpec(t, s, "order", 4, `{"v":2,"name":"order","version":4}`)
		storeSpec(t, s, "order", 6, strings.NewReplacer(`"version":1`, `"version":6`, `"name":"check"`, `"name":"check","kind":"loop"`).Replace(canonicalPlan))
		storeSpec(t, s, "order", 5, strings.NewReplacer(`"v":1,`, ``, `"version":1`, `"version":5`).Replace(canonicalPlan))
		plans, err := s.Plans(t.Context())
		unreadable, some := errors.AsType[core.UnreadablePlans](err)
		if !some || len(plans) != 1 || len(unreadable) != 4 || unreadable.Newest("order") != 6 {
			t.Fatalf("read %d plans, %v", len(plans), err)
		}
		for version, what := range map[int64]string{3: `"rate_max"`, 4: "form version 2, this binary knows 1", 5: "form version 0, this binary knows 1", 6: `"loop"`} {
			u := unreadable.Find("order", version)
			if u != nil && (version == 3 || version == 6) && u.CompleteBy != time.Minute {
				t.Errorf("version %d: its tasks have %v", version, u.CompleteBy)
			}
			if u == nil || !strings.Contains(u.Error(), what) || !strings.Contains(u.Error(), "plan order version "+string(rune('0'+version))) {
				t.Errorf("version %d: %v, want it to name %s", version, u, what)
			}
		}
		p := planOfStored()
		p.Version = 3
		if err := s.PutPlan(t.Context(), p); !errors.Is(err, core.ErrPlanConflict) || !strings.Contains(err.Error(), `"rate_max"`) {
			t.Errorf("the plan without what is not known: %v", err)
		}
		var spec string
		if err := schema.DB(s).QueryRowContext(t.Context(), `SELECT spec FROM plans WHERE version = 3`).Scan(&spec); err != nil || !strings.Contains(spec, "rate_max") {
			t.Errorf("stored now: %s, %v", spec, err)
		}
		if err := failedTask(t.Context(), s, 3); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), 0, "o-1"); err == nil || !strings.Contains(err.Error(), `"rate_max"`) {
			t.Errorf("a task of it: %v", err)
		}
		if ends, err := s.Untold(t.Context(), core.AsOf{Partition: 0}, 0, 10); err != nil || len(ends) != 1 || ends[0].ID != "o-1" || ends[0].Error != "no" {
			t.Errorf("the end of a task of it is told without the step: %+v, %v", ends, err)
		}
	})
}

// failedTask stores a task of that version of the plan that ended in error.
func failedTask(ctx context.Context, s schema.Store, version int64) error {
	if err := s.Partitions(ctx, 1); err != nil {
		return err
	}
	st, err := s.TakeOver(ctx, 0, core.Claim{Owner: "node"})
	if err != nil {
		return err
	}
	task := &core.Task{
		Partition: 0, Number: 1, ID: "o-1", Type: "order", PlanVersion: version, State: core.StateError, Seq: 1, EndNumber: 1,
		CreatedAt: 1_893_456_000_000_000, UpdatedAt: 1_893_456_000_000_000, EndedAt: 1_893_456_000_000_000, Input: []byte(`{}`), InputHash: []byte("hash"),
	}
	record := core.Record{Seq: 1, At: task.CreatedAt, Actor: "node", Kind: core.KindPoisoned, State: core.StateError, Step: -1, Next: -1, Error: "no"}
	_, err = s.Commit(ctx, &core.Batch{
		ID: 1, Partitions: []core.PartitionWrite{{Partition: 0, Epoch: st.Epoch, NextNumber: 2, NextEnd: 2}},
		Writes: []core.TaskWrite{{Task: task, Birth: true, Records: []core.Record{record}}},
	})
	return err
}
