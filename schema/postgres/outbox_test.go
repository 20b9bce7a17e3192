package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly"
	"duly.dev/duly/dulytx"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema/postgres"
)

// outboxOf is an outbox in a database of its own, and a connection of a user to it.
func outboxOf(t *testing.T) (*postgres.Outbox, *pgx.Conn, string) {
	t.Helper()
	at := pgtestdb.URL(t)
	o := openOutbox(t, at)
	if err := o.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o, userOf(t, at), at
}

func openOutbox(t *testing.T, at string) *postgres.Outbox {
	t.Helper()
	o, err := postgres.OpenOutbox(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func userOf(t *testing.T, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// written writes tasks in a transaction, and commits it.
func written(t *testing.T, conn *pgx.Conn, ids ...string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := dulytx.SubmitRaw(t.Context(), dulytx.Outbox{}, tx, "order", id, []byte(`{"cents": 1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func tasksOf(rows []postgres.OutboxRow) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.Task)
	}
	return ids
}

// all says the same of every row.
func all(v postgres.OutboxVerdict, taken *[]postgres.OutboxRow) func(context.Context, []postgres.OutboxRow) []postgres.OutboxVerdict {
	return func(_ context.Context, rows []postgres.OutboxRow) (verdicts []postgres.OutboxVerdict) {
		*taken = append(*taken, rows...)
		for _, r := range rows {
			v := v
			v.Number = r.Number
			verdicts = append(verdicts, v)
		}
		return verdicts
	}
}

// TestOutboxTake: a row has what was written, and goes when it is stored; what was rolled back was never there.
func TestOutboxTake(t *testing.T) {
	o, conn, _ := outboxOf(t)
	ctx := t.Context()
	if err := o.Create(ctx); err != nil {
		t.Errorf("made again: %v", err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := dulytx.SubmitRaw(ctx, dulytx.Outbox{}, tx, "order", "o-1", []byte(`{"b": 1,  "a": "ü"}`), duly.Within(time.Hour), duly.Label("team", "blue"),
		duly.AtVersion(3), duly.ReplyTo("status.x"), duly.Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")); err != nil {
		t.Fatal(err)
	}
	var taken []postgres.OutboxRow
	if n, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 0 || err != nil || len(taken) != 0 {
		t.Errorf("before the commit: %d %v", n, err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if tx, err = conn.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if err := dulytx.SubmitRaw(ctx, dulytx.Outbox{}, tx, "order", "o-2", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 1 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	r := taken[0]
	var headers map[string]string
	want := map[string]string{"Duly-Reply-To": "status.x", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Duly-Plan-Version": "3", "Duly-Labels": "team=blue", "Duly-Complete-By": "1h0m0s"}
	if r.Type != "order" || r.Task != "o-1" || string(r.Input) != `{"b": 1,  "a": "ü"}` || json.Unmarshal(r.Headers, &headers) != nil || !reflect.DeepEqual(headers, want) {
		t.Errorf("%+v, headers %s, want %v", r, r.Headers, want)
	}
	if r.Age < 0 || r.Age > time.Minute {
		t.Errorf("it was written %v ago", r.Age)
	}
	if n, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 0 || err != nil || len(taken) != 1 {
		t.Errorf("stored, and there again: %d %v", n, err)
	}
}

// TestOutboxRelaysAtOnce: of relays that look at once each has rows of its own, however they lie in time.
func TestOutboxRelaysAtOnce(t *testing.T) {
	o, conn, at := outboxOf(t)
	other := openOutbox(t, at)
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("o-%03d", i))
	}
	written(t, conn, ids...)
	var first, second []postgres.OutboxRow
	stored := all(postgres.OutboxVerdict{Stored: true}, &second)
	n, err := o.Take(t.Context(), 10, func(ctx context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
		// While these are held, the other relay takes from the rest.
		if n, err := other.Take(ctx, 20, stored); n != 20 || err != nil {
			t.Errorf("the other relay: %d %v", n, err)
		}
		return all(postgres.OutboxVerdict{Stored: true}, &first)(ctx, rows)
	})
	if n != 10 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	times := map[string]int{}
	for _, id := range slices.Concat(tasksOf(first), tasksOf(second)) {
		times[id]++
	}
	for _, relay := range []*postgres.Outbox{o, other} {
		wg.Go(func() {
			for {
				var taken []postgres.OutboxRow
				n, err := relay.Take(t.Context(), 7, all(postgres.OutboxVerdict{Stored: true}, &taken))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, id := range tasksOf(taken) {
					times[id]++
				}
				mu.Unlock()
				if n == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if times[id] != 1 {
			t.Errorf("%s was taken %d times", id, times[id])
		}
	}
}

// TestOutboxTakesAtOnce: a relay may take rows once for each of 16 task streams at the same time, each time others, and the
// outbox is still asked how it does.
func TestOutboxTakesAtOnce(t *testing.T) {
	o, conn, _ := outboxOf(t)
	var ids []string
	for i := range 16 {
		ids = append(ids, fmt.Sprintf("o-%02d", i))
	}
	written(t, conn, ids...)
	var taken []postgres.OutboxRow
	var take func(left int)
	take = func(left int) {
		n, err := o.Take(t.Context(), 1, func(ctx context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
			if left > 1 {
				take(left - 1)
			} else if s, err := o.Standing(ctx); err != nil || s.Waiting != 16 {
				t.Errorf("%+v %v", s, err)
			}
			return all(postgres.OutboxVerdict{Stored: true}, &taken)(ctx, rows)
		})
		if n != 1 || err != nil {
			t.Errorf("%d left: %d %v", left, n, err)
		}
	}
	take(16)
	got := tasksOf(taken)
	if slices.Sort(got); !slices.Equal(got, ids) {
		t.Errorf("%v", got)
	}
	if s, err := o.Standing(t.Context()); err != nil || s.Waiting != 0 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestOutboxRelayDies: a relay that loses its connection after the rows were handed in and before they are gone leaves
// them to the next, also one that ends without a word.
func TestOutboxRelayDies(t *testing.T) {
	o, conn, at := outboxOf(t)
	written(t, conn, "o-1", "o-2")
	next := openOutbox(t, at)
	var taken []postgres.OutboxRow
	n, err := o.Take(t.Context(), 10, func(ctx context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
		if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()`); err != nil {
			t.Error(err)
		}
		return all(postgres.OutboxVerdict{Stored: true}, &taken)(ctx, rows)
	})
	if err == nil || n != 0 || len(taken) != 2 {
		t.Fatalf("%d %v, %d handed in", n, err, len(taken))
	}
	if n, err := next.Take(t.Context(), 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 2 || err != nil || len(taken) != 4 {
		t.Errorf("the next relay: %d %v", n, err)
	}
	if n, err := o.Take(t.Context(), 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 0 || err != nil {
		t.Errorf("the first one again: %d %v", n, err)
	}
}

// TestOutboxEndsWithItsWork: what was handed in is written down although the relay was told to end meanwhile.
func TestOutboxEndsWithItsWork(t *testing.T) {
	o, conn, _ := outboxOf(t)
	written(t, conn, "o-1")
	ctx, cancel := context.WithCancel(t.Context())
	var taken []postgres.OutboxRow
	n, err := o.Take(ctx, 10, func(ctx context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
		cancel()
		return all(postgres.OutboxVerdict{Stored: true}, &taken)(ctx, rows)
	})
	if n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if s, err := o.Standing(t.Context()); err != nil || s.Waiting != 0 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestOutboxKeeps: refused rows stay with their reason and are counted, listed, tried again and discarded; what is put off
// comes later.
func TestOutboxKeeps(t *testing.T) {
	o, conn, _ := outboxOf(t)
	ctx := t.Context()
	written(t, conn, "o-1", "o-2", "o-3", "o-4")
	if _, err := conn.Exec(ctx, `UPDATE duly_outbox SET due = due - INTERVAL '1 day', written = written - INTERVAL '1 day'`); err != nil { // they have waited for long
		t.Fatal(err)
	}
	n, err := o.Take(ctx, 10, func(_ context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
		return []postgres.OutboxVerdict{
			{Number: rows[0].Number, Code: 409, Reason: "id o-1 is a task already"},
			{Number: rows[1].Number, Code: 413, Reason: strings.Repeat("ü", 2000)},
			{Number: rows[2].Number, Code: 404, Reason: "no plan", Again: time.Hour},
		}
	})
	if n != 4 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	s, err := o.Standing(ctx)
	if err != nil || s.Waiting != 2 || s.Refused != 2 || s.First == nil || s.First.Task != "o-1" || s.First.Code != 409 || s.Oldest <= 0 {
		t.Errorf("%+v %v", s, err)
	}
	refused, err := o.List(ctx, 0, false, 10)
	if err != nil || !slices.Equal(tasksOf(refused), []string{"o-1", "o-2"}) || refused[0].Refused.IsZero() || refused[0].Tries != 1 || len(refused[1].Reason) > 1024+len("…") {
		t.Errorf("%+v %v", refused, err)
	}
	every, err := o.List(ctx, refused[0].Number, true, 2)
	if err != nil || !slices.Equal(tasksOf(every), []string{"o-2", "o-3"}) || every[1].Reason != "no plan" || !every[1].Refused.IsZero() {
		t.Errorf("%+v %v", every, err)
	}
	var taken []postgres.OutboxRow
	if n, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 1 || err != nil || taken[0].Task != "o-4" || taken[0].Age < 24*time.Hour {
		t.Errorf("%d %v %+v, want o-4 alone, a day old", n, err, taken)
	}
	if n, err := o.Discard(ctx, []int64{refused[1].Number, every[1].Number}); n != 1 || err != nil {
		t.Errorf("discarded %d %v, want the refused one alone", n, err)
	}
	if n, err := o.Again(ctx, false, []int64{refused[0].Number}); n != 1 || err != nil {
		t.Errorf("again %d %v", n, err)
	}
	if n, err := o.Again(ctx, true, nil); n != 0 || err != nil {
		t.Errorf("again %d %v, none is refused", n, err)
	}
	taken = nil
	if n, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != 1 || err != nil || taken[0].Task != "o-1" || taken[0].Tries != 1 {
		t.Errorf("%d %v %+v, want o-1", n, err, taken)
	}
	for _, empty := range []func() (int64, error){
		func() (int64, error) { return o.Again(ctx, false, nil) }, func() (int64, error) { return o.Discard(ctx, nil) },
	} {
		if _, err := empty(); err == nil {
			t.Error("no row is named, and no error")
		}
	}
}

// TestOutboxPutOffComesBack: a row that is put off is there when its time has come.
func TestOutboxPutOffComesBack(t *testing.T) {
	o, conn, _ := outboxOf(t)
	written(t, conn, "o-1")
	var taken []postgres.OutboxRow
	if n, err := o.Take(t.Context(), 10, all(postgres.OutboxVerdict{Code: 404, Reason: "no plan", Again: 50 * time.Millisecond}, &taken)); n != 1 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(taken) < 2 {
		if _, err := o.Take(ctx, 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); err != nil {
			t.Fatal(err)
		}
	}
	if taken[1].Tries != 1 {
		t.Errorf("%+v", taken[1])
	}
}

// TestOutboxWithoutTable: who has not made the table is told how.
func TestOutboxWithoutTable(t *testing.T) {
	at := pgtestdb.URL(t)
	o := openOutbox(t, at)
	_, err := o.Take(t.Context(), 10, nil)
	_, standing := o.Standing(t.Context())
	_, list := o.List(t.Context(), 0, true, 10)
	for _, err := range []error{err, standing, list} {
		if !errors.Is(err, postgres.ErrNoOutbox) {
			t.Errorf("%v", err)
		}
	}
	tx, err := userOf(t, at).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := dulytx.SubmitRaw(t.Context(), dulytx.Outbox{}, tx, "order", "o-1", []byte(`{}`)); !errors.Is(err, dulytx.ErrNoTable) {
		t.Errorf("%v", err)
	}
}

// TestOutboxForeignRow: headers come as they are written, whatever they are.
func TestOutboxForeignRow(t *testing.T) {
	o, conn, _ := outboxOf(t)
	written := []string{`[1]`, `"x"`, `{"Duly-Labels": 5}`, `{`}
	for _, headers := range written {
		if _, err := conn.Exec(t.Context(), `INSERT INTO duly_outbox (type, task, input, headers) VALUES ('order', 'o', '{}', $1)`, headers); err != nil {
			t.Fatal(err)
		}
	}
	var taken []postgres.OutboxRow
	if n, err := o.Take(t.Context(), 10, all(postgres.OutboxVerdict{Stored: true}, &taken)); n != len(written) || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	for i, r := range taken {
		if string(r.Headers) != written[i] {
			t.Errorf("headers %s, want %s", r.Headers, written[i])
		}
	}
}

// TestOutboxSchema: the table may be in a schema that the user's connection does not look into.
func TestOutboxSchema(t *testing.T) {
	at := pgtestdb.URL(t)
	conn := userOf(t, at)
	if _, err := conn.Exec(t.Context(), `CREATE SCHEMA "App 1"`); err != nil {
		t.Fatal(err)
	}
	o := openOutbox(t, at+`&search_path=%22App%201%22`)
	if err := o.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := dulytx.SubmitRaw(t.Context(), dulytx.Outbox{Schema: "App 1"}, tx, "order", "o-1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := o.Standing(t.Context()); err != nil || s.Waiting != 1 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestOutboxRowAsJSON: what a list shows has no input, which may be secret.
func TestOutboxRowAsJSON(t *testing.T) {
	data, err := json.Marshal(postgres.OutboxRow{Number: 1, Type: "order", Task: "o-1", Input: []byte("secret"), Headers: []byte("secret")})
	if err != nil || strings.Contains(string(data), "secret") {
		t.Errorf("%s %v", data, err)
	}
}
