package dulytx_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly"
	"duly.dev/duly/dulytx"
)

// What docs/guide/submit-in-a-transaction.md shows. The tests of this package run it against a real PostgreSQL.

type Order struct {
	ID    string
	Cents int
}

type Payment struct{ Key string }

var (
	Charge = duly.NewStep[Order, Payment]("charge", "payment.charge")
	Buy    = duly.NewPlan("order", 1, Charge)
)

// placeOrder stores an order and hands its task in, both or neither.
func placeOrder(ctx context.Context, db *pgxpool.Pool, order Order) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, cents) VALUES ($1, $2)`, order.ID, order.Cents); err != nil {
			return err
		}
		return dulytx.Submit(ctx, tx, Buy, order.ID, order, duly.Within(time.Hour), duly.Label("shop", "north"))
	})
}

// TestGuide: the order and its task are there together; an order that is refused leaves neither.
func TestGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	if err := placeOrder(t.Context(), w.pool, Order{"o-1", 1999}); err != nil {
		t.Fatal(err)
	}
	if err := placeOrder(t.Context(), w.pool, Order{"o-1", 5}); err == nil {
		t.Error("the same order twice")
	}
	w.processed("o-1")
	task, err := w.client.Get(t.Context(), "order", "o-1")
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(task.CompleteBy); left <= 59*time.Minute || left > time.Hour {
		t.Errorf("%v left of an hour", left)
	}
	if string(task.Input) != `{"ID":"o-1","Cents":1999}` {
		t.Errorf("input %s", task.Input)
	}
	w.empty()
	if n := w.effects("o-1"); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// TestSQLAndCodec: a transaction of database/sql does it as well, and with a codec the table holds no plain input.
func TestSQLAndCodec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	codec, err := duly.NewAES256GCM(duly.Key{ID: "k", Secret: make([]byte, duly.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := w.sql.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := dulytx.SubmitSQL(t.Context(), dulytx.Outbox{Codec: codec, Schema: "public"}, tx, Buy, "o-1", Order{"o-1", 4711}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var plain int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM duly_outbox WHERE input LIKE '%4711%'`).Scan(&plain); err != nil || plain != 0 {
		t.Errorf("%d rows have a plain input, %v", plain, err)
	}
	var input string
	if err := w.pool.QueryRow(t.Context(), `SELECT input FROM duly_outbox`).Scan(&input); err != nil {
		t.Fatal(err)
	}
	got, err := codec.Decode(duly.Place{Type: "order", Task: "o-1"}, []byte(input))
	if want := `{"ID":"o-1","Cents":4711}`; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

// TestRefusedBeforeItIsWritten: what no node would take is an error at once, and the transaction can go on.
func TestRefusedBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		err := dulytx.Submit(t.Context(), tx, Buy, "not an id", Order{})
		if !errors.Is(err, duly.ErrRefused) {
			return fmt.Errorf("error %w, want one that is ErrRefused", err)
		}
		return dulytx.Submit(t.Context(), tx, Buy, "o-1", Order{})
	})
	if err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM duly_outbox`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
