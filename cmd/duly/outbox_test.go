package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/dulytx"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema/postgres"
)

// TestOutboxCommands: the table is printed and made; what was refused is listed, tried again and discarded.
func TestOutboxCommands(t *testing.T) {
	t.Parallel()
	at := pgtestdb.URL(t)
	outbox := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := command(t, "", append([]string{"outbox"}, args...)...)
		if code != want {
			t.Fatalf("outbox %q: exit %d %s %s, want %d", args, code, out, errs, want)
		}
		return out + errs
	}
	if sql := outbox(exitDone, "create-table", "--print"); sql != postgres.OutboxSQL {
		t.Errorf("printed %s", sql)
	}
	if said := outbox(exitFailed, "list", "--database-url", at); !strings.Contains(said, "duly outbox create-table") {
		t.Errorf("without a table: %s", said)
	}
	outbox(exitDone, "create-table", "--database-url", at)
	outbox(exitDone, "create-table", "--database-url", at)
	if said := outbox(exitDone, "list", "--database-url", at); said != "nothing\n" {
		t.Errorf("an empty outbox: %s", said)
	}
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return dulytx.SubmitRaw(t.Context(), dulytx.Outbox{}, tx, "order", id, []byte(`{"secret": 1}`))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), `UPDATE duly_outbox SET refused = now(), tries = 1, code = 409, reason = 'the id is taken' WHERE number < 3`); err != nil {
		t.Fatal(err)
	}
	list := outbox(exitDone, "list", "--database-url", at)
	if !strings.Contains(list, "o-1") || !strings.Contains(list, "the id is taken") || strings.Contains(list, "o-3") || strings.Contains(list, "secret") {
		t.Errorf("refused:\n%s", list)
	}
	if list := outbox(exitDone, "list", "--database-url", at, "--waiting", "--limit", "1", "--after", "2", "-o", "json"); !strings.Contains(list, `"task":"o-3"`) || strings.Contains(list, "o-1") {
		t.Errorf("waiting:\n%s", list)
	}
	outbox(exitUse, "list", "--database-url", at, "--limit", "0")
	outbox(exitUse, "retry", "--database-url", at)
	outbox(exitUse, "retry", "--database-url", at, "--all", "1")
	outbox(exitUse, "list", "--database-url", "mysql://x")
	if said := outbox(exitState, "discard", "--database-url", at, "2", "3"); !strings.Contains(said, "1 removed") {
		t.Errorf("discard: %s", said)
	}
	if said := outbox(exitDone, "retry", "--database-url", at, "--all"); !strings.Contains(said, "1 relayed again") {
		t.Errorf("retry: %s", said)
	}
	if said := outbox(exitDone, "list", "--database-url", at); said != "nothing\n" {
		t.Errorf("after all: %s", said)
	}
}

// TestOutboxColumns: the list has no word of its own.
func TestOutboxColumns(t *testing.T) {
	words := map[string]bool{}
	for f := range reflect.TypeFor[postgres.OutboxRow]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		words[name] = true
	}
	for _, c := range outboxColumns {
		if !words[strings.TrimPrefix(c, "~")] {
			t.Errorf("column %s is no field of a row", c)
		}
	}
}
