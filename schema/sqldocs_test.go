package schema_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

// The examples of docs/reference/sql.md are statements that answer what they say, on PostgreSQL and, less
// convert_from and the arithmetic of time, on SQLite.
func TestSQLExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	var examples [][2]string // what it says, and the statement
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, one := range strings.Split(strings.TrimSpace(block[1]), "\n\n") {
			says, statement, _ := strings.Cut(one, "\n")
			examples = append(examples, [2]string{strings.TrimPrefix(says, "-- "), statement})
		}
	}
	want := map[string]string{
		"what ended badly today, and why":                        "[order-17 undone pay 422 no money] [order-17~kids~1 undone pay 422 no money]",
		"signals that are waited for, the most urgent first":     "[wish approve 1893456060]",
		"waits, and when they end":                               "[nap sleep 1893456060]",
		"how far the children of each step of one task are":      "[kids processed 2] [kids undone 1]",
		"the children of one task that did not go well, and why": "[order-17~kids~1 undone pay no money]",
		"the history of one task":                                "[1 1893456000 n submitted processing - -] [2 1893456001 n refused undone 422 no money]",
	}
	for _, name := range []string{"postgres", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, name, schema.Options{})
			fillExamples(t, s)
			seen := 0
			for _, x := range examples {
				says, query := x[0], x[1]
				if name == "sqlite" {
					query = regexp.MustCompile(`convert_from\((.*?), 'UTF8'\)`).ReplaceAllString(query, "$1")
					query = strings.ReplaceAll(query, "now() - interval '1 day'", "0")
				} else { // the tasks are of another day
					query = strings.ReplaceAll(query, "now()", "TIMESTAMPTZ '2030-01-01'")
				}
				if strings.Contains(query, "GROUP BY") {
					query = strings.Replace(query, ";", " ORDER BY 1, 2;", 1)
				}
				rows, err := schema.DB(s).QueryContext(t.Context(), query)
				if err != nil {
					t.Errorf("%s: %v", says, err)
					continue
				}
				columns, err := rows.Columns()
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for rows.Next() {
					values := make([]any, len(columns))
					for i := range values {
						values[i] = new(any)
					}
					if err := rows.Scan(values...); err != nil {
						t.Fatal(err)
					}
					var line []string
					for _, v := range values {
						line = append(line, shown(*v.(*any)))
					}
					got = append(got, fmt.Sprint(line))
				}
				if err := rows.Err(); err != nil {
					t.Errorf("%s: %v", says, err)
				}
				if want[says] == "" || strings.Join(got, " ") != want[says] {
					t.Errorf("%s:\n got %s\nwant %s", says, strings.Join(got, " "), want[says])
				}
				seen++
			}
			if seen != len(want) {
				t.Errorf("%d examples, want %d", seen, len(want))
			}
		})
	}
}

// shown is a value as the test names it: times in seconds.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case []byte:
		return string(v)
	case time.Time:
		return fmt.Sprint(v.Unix())
	case int64:
		if v > 1e15 {
			v /= 1e6
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprint(v)
}

// fillExamples makes a task with children, one that waits for a signal, and one that waits for an instant.
func fillExamples(t *testing.T, s schema.Store) {
	t.Helper()
	const at = core.Instant(1_893_456_000_000_000)
	for _, p := range []core.Plan{
		{Name: "order", Version: 1, Steps: []core.Step{{Name: "pay", Agent: "pay"}, {Name: "kids", Kind: core.EachStep, Child: "leg", After: []int{0}}}},
		{Name: "leg", Version: 1, Steps: []core.Step{{Name: "pay", Agent: "pay"}}},
		{Name: "wish", Version: 1, Steps: []core.Step{{Name: "approve", Kind: core.SignalStep}}},
		{Name: "nap", Version: 1, Steps: []core.Step{{Name: "sleep", Kind: core.WaitStep, For: time.Minute}}},
	} {
		if err := s.PutPlan(t.Context(), p.WithDefaults()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	row := func(id, plan string, state core.State, child int) core.TaskWrite {
		number++
		task := &core.Task{Partition: 1, Number: number, ID: id, Type: plan, PlanVersion: 1, State: state, Seq: 1, CreatedAt: at, UpdatedAt: at}
		rec := core.Record{Seq: 1, Kind: core.KindSubmitted, At: at, Actor: "n", State: core.StateProcessing, Step: -1, Next: 0, NextAttempt: 1, Due: at.Add(time.Minute)}
		w := core.TaskWrite{Task: task, Birth: true, Records: []core.Record{rec}}
		if child >= 0 {
			task.Parent, task.ParentStep, task.ChildIndex = 1, 1, child
		}
		if state.Ended() {
			end := core.Record{Seq: 2, Kind: core.KindDone, At: at.Add(time.Second), Actor: "n", State: state, Step: 0, StepStatus: core.StepDone, Attempt: 1, Next: -1}
			if state == core.StateUndone {
				end.Kind, end.StepStatus, end.Code, end.Error = core.KindRefused, core.StepFailed, 422, "no money"
			}
			task.Seq, task.UpdatedAt, task.EndedAt, task.EndNumber = 2, end.At, end.At, number
			w.Records = append(w.Records, end)
		}
		return w
	}
	writes := []core.TaskWrite{row("order-17", "order", core.StateUndone, -1)}
	for i, state := range []core.State{core.StateProcessed, core.StateUndone, core.StateProcessed} {
		writes = append(writes, row(fmt.Sprintf("order-17~kids~%d", i), "leg", state, i))
	}
	for _, id := range []string{"wish", "nap"} {
		writes = append(writes, row(id, id, core.StatePending, -1))
	}
	for i := range writes {
		if _, err := storetest.CommitOne(t.Context(), s, int64(i+1), writes[i]); err != nil {
			t.Fatal(err)
		}
	}
}
