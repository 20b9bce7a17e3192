package dulytx_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly"
	"duly.dev/duly/dulytx"
)

// written writes a row as a program in another language does.
func (w *world) written(id, headers string) {
	w.t.Helper()
	w.exec(`INSERT INTO duly_outbox (type, task, input, headers) VALUES ('order', $1, '{}', $2)`, id, headers)
}

// TestStartAt: a task that was written in the user's own transaction with a start-at begins then, and its row goes.
//
// covers: L1
func TestStartAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	at := time.Now().Add(2 * time.Second)
	if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return dulytx.Submit(t.Context(), tx, Buy, "later", Order{"later", 1}, duly.StartAt(at), duly.Within(time.Hour), duly.Label("shop", "north"))
	}); err != nil {
		t.Fatal(err)
	}
	w.written("past", `{"Duly-Start-At": "2020-01-01T00:00:00Z"}`)
	w.processed("past")
	w.processed("later")
	w.empty()
	task, err := w.client.Get(t.Context(), "order", "later")
	if err != nil || task.Steps[0].At.Before(at.Truncate(time.Microsecond)) || task.CompleteBy.After(at.Add(time.Hour)) {
		t.Errorf("%+v %v, want its step done after %v", task, err, at)
	}
}

// TestRowsThatCannotBeSubmitted: each is refused with what is wrong, for good, and holds up no other; an operator who has
// mended one has it tried again.
func TestRowsThatCannotBeSubmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	rows := []struct {
		headers string
		want    []string // of the reason
	}{
		{`{"Duly-Start-At": "five"}`, []string{"start-at", `"five"`, "RFC 3339"}},
		{`{"Duly-Start-At": "5"}`, []string{"start-at", `"5"`, "RFC 3339"}},
		{`{"Duly-Start-At": "-1h"}`, []string{"start-at", `"-1h"`}},
		{`{"Duly-Start-At": "87600h"}`, []string{"start-at", `"87600h`, "more than 8760h0m0s"}},
		{`{"Duly-Start-At": "2h", "Duly-Complete-By": "1h"}`, []string{"start-at", `"2h`, "complete-by"}},
		{`{"Duly-Start-At": "1h", "Duly-Start-At": "2h"}`, []string{"Duly-Start-At", `"1h"`, "2 times", "want once"}},
		{`{"Duly-Tomorrow": "x"}`, []string{"Duly-Tomorrow", "Duly-Start-At"}},
		{`{"Duly-Start-At": 5}`, []string{"headers", "text"}},
		{`{"Duly-Start-At": "2h`, []string{"headers", "JSON"}},
		{`[]`, []string{"headers", "object"}},
	}
	for i, r := range rows {
		w.written("bad-"+string(rune('a'+i)), r.headers)
	}
	w.written("good", `{}`)
	w.processed("good")
	w.empty()
	refused, err := w.outbox.List(t.Context(), 0, true, 100)
	if err != nil || len(refused) != len(rows) {
		t.Fatalf("%d rows are refused, want %d: %+v %v", len(refused), len(rows), refused, err)
	}
	for i, r := range refused {
		if r.Code != 400 || r.Refused.IsZero() {
			t.Errorf("%s: %+v, want it refused with 400 for good", rows[i].headers, r)
		}
		for _, want := range rows[i].want {
			if !strings.Contains(r.Reason, want) {
				t.Errorf("%s: the reason %q does not name %s", rows[i].headers, r.Reason, want)
			}
		}
		w.never(r.Task)
	}
	w.exec(`UPDATE duly_outbox SET headers = '{}' WHERE number = $1`, refused[0].Number)
	if n, err := w.outbox.Again(t.Context(), false, []int64{refused[0].Number}); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	w.processed(refused[0].Task)
}

// TestTimesCountFromWriting: a duration of a row counts from when it was written, not from when a node takes it.
func TestTimesCountFromWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.written("late", `{"Duly-Complete-By": "1h"}`)
	w.written("begun", `{"Duly-Start-At": "1h"}`)
	w.written("later", `{"Duly-Start-At": "3h", "Duly-Complete-By": "4h"}`)
	w.exec(`UPDATE duly_outbox SET written = written - INTERVAL '2 hours'`)
	w.begin()
	w.processed("begun")
	w.empty()
	rows, err := w.outbox.List(t.Context(), 0, true, 100)
	if err != nil || len(rows) != 1 || rows[0].Task != "late" || rows[0].Code != 400 || !strings.Contains(rows[0].Reason, "has passed") {
		t.Fatalf("%+v %v, want one that has passed", rows, err)
	}
	w.await("the task that begins later is stored", func() bool {
		_, err := w.client.Get(t.Context(), "order", "later")
		return err == nil
	})
	task, err := w.client.Get(t.Context(), "order", "later")
	if err != nil || time.Until(task.StartAt) > time.Hour || time.Until(task.StartAt) < 30*time.Minute {
		t.Errorf("it begins in %v %v, want an hour at most", time.Until(task.StartAt), err)
	}
}
