package sqlparse

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// heard are the texts of the suite's runs, collected once.
var heard struct {
	once                sync.Once
	postgres, cockroach []string
}

// texts runs the suite as both dialects and returns what went over the wire.
func texts(t *testing.T) (postgres, cockroach []string) {
	t.Helper()
	heard.once.Do(func() {
		heard.postgres = append(listen(t, "postgres", pgfault.Faults{}, schema.Options{}), listen(t, "postgres", pgfault.Faults{}, schema.Options{Serializable: true})...)
		// Some faults, so that CockroachDB's way to try again is heard as well.
		heard.cockroach = listen(t, "cockroach", pgfault.Faults{Cockroach: true, Seed: 1, Rate: 0.1, Only: []pgfault.Kind{pgfault.RetryAtCommit}}, schema.Options{})
	})
	if len(heard.postgres) == 0 || len(heard.cockroach) == 0 {
		t.Fatal("nothing was heard")
	}
	return heard.postgres, heard.cockroach
}

func listen(t *testing.T, dialect string, f pgfault.Faults, o schema.Options) []string {
	t.Helper()
	p, err := pgfault.Start(pgtestdb.URL(t), f)
	if err != nil {
		t.Fatal(err)
	}
	t.Run(dialect, func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) { return open(tb, p, dialect, o) })
		if !o.Serializable { // what operators read and write is the same there
			storetest.RunOperators(t, func(tb testing.TB) (schema.Store, *sql.DB) { return open(tb, p, dialect, o) })
			storetest.RunChains(t, func(tb testing.TB) (chained, plain schema.Store, db *sql.DB) {
				plain, db = open(tb, p, dialect, o)
				keeps := o
				keeps.Chain = true
				return beside(tb, p, db, keeps), plain, db
			})
		}
		if dialect == "postgres" {
			migrateInTrouble(t, p, o)
		}
		useOutbox(t, p)
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return p.Texts()
}

// migrateInTrouble migrates again what a build of an index left in the middle, behind a
// backup, with a journal as earlier versions kept it.
func migrateInTrouble(t *testing.T, p *pgfault.Proxy, o schema.Options) {
	t.Helper()
	waits := make(chan struct{}, 1)
	o.Tell = func(string) {
		select {
		case waits <- struct{}{}:
		default:
		}
	}
	s, db := open(t, p, "postgres", o)
	for _, statement := range []string{
		`DROP VIEW steps`, // the earlier ones have fewer columns
		`DELETE FROM goose_db_version WHERE version_id > 2`, `UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'tasks_pending'::REGCLASS`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{
		`INSERT INTO partitions (partition) VALUES (0)`,
		`INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo) VALUES (0, 1, 1, now(), 'n', 1, 1, 'begun', 'processing', 0, 0, FALSE)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	storetest.InGenerations(t, db)
	backup, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Exec(`LOCK TABLE journal IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Migrate(context.Background()) }()
	<-waits
	if err := backup.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// useOutbox says everything that an outbox and those who write into it say.
func useOutbox(t *testing.T, p *pgfault.Proxy) {
	t.Helper()
	ctx := t.Context()
	at := through(t, p, pgtestdb.URL(t))
	o, err := postgres.OpenOutbox(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Create(ctx); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// A serialization failure is told, and the relay comes again.
	again := func(what string, do func() error) {
		t.Helper()
		err := do()
		for try := 0; err != nil && try < 10; try++ {
			err = do()
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		again("insert", func() error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			if _, err := tx.Exec(insertOf(t), "order", id, "{}", "{}", time.Hour.Microseconds()); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	}
	var second int64
	again("take", func() error {
		_, err := o.Take(ctx, 10, func(_ context.Context, rows []postgres.OutboxRow) (all []postgres.OutboxVerdict) {
			for i := range rows {
				if rows[i].Task == "b" {
					second = rows[i].Number
				}
				all = append(all, postgres.OutboxVerdict{Number: rows[i].Number, Stored: rows[i].Task == "a", Reason: "why"})
			}
			return all
		})
		return err
	})
	again("standing", func() error {
		s, err := o.Standing(ctx)
		if err == nil && (s.Waiting != 0 || s.Refused != 2) {
			t.Errorf("%+v", s)
		}
		return err
	})
	again("discard", func() error {
		_, err := o.Discard(ctx, []int64{second})
		return err
	})
	again("again", func() error {
		_, err := o.Again(ctx, true, nil)
		return err
	})
	again("list", func() error {
		rows, err := o.List(ctx, 0, true, 10)
		if err == nil && (len(rows) != 1 || rows[0].Task != "c" || !rows[0].Refused.IsZero()) {
			t.Errorf("%+v", rows)
		}
		return err
	})
}

// insertOf is what package dulytx says, which is not linked here for all that comes with it.
func insertOf(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../dulytx/submit.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && s.Names[0].Name == "insertSQL" {
			text, err = strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	if err != nil || text == "" {
		t.Fatalf("dulytx: insertSQL is %q, %v", text, err)
	}
	return fmt.Sprintf(text, "duly_outbox")
}

// through is the URL of a database behind the proxy.
func through(tb testing.TB, p *pgfault.Proxy, direct string) string {
	tb.Helper()
	at, err := url.Parse(direct)
	if err != nil {
		tb.Fatal(err)
	}
	by, err := url.Parse(p.URL())
	if err != nil {
		tb.Fatal(err)
	}
	by.Path = at.Path
	return by.String()
}

// beside is another store of a database, behind the proxy.
func beside(tb testing.TB, p *pgfault.Proxy, db *sql.DB, o schema.Options) schema.Store {
	tb.Helper()
	through, err := url.Parse(p.URL())
	if err != nil {
		tb.Fatal(err)
	}
	var name string
	if err := db.QueryRow(`SELECT current_database()`).Scan(&name); err != nil {
		tb.Fatal(err)
	}
	through.Path = "/" + name
	s, err := postgres.Open(context.Background(), through.String(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// open is a store behind the proxy, and its database without it.
func open(tb testing.TB, p *pgfault.Proxy, dialect string, o schema.Options) (schema.Store, *sql.DB) {
	tb.Helper()
	direct := pgtestdb.URL(tb)
	at, err := url.Parse(direct)
	if err != nil {
		tb.Fatal(err)
	}
	through, err := url.Parse(p.URL())
	if err != nil {
		tb.Fatal(err)
	}
	through.Path = at.Path
	db, err := sql.Open("pgx", direct)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := postgres.Open(context.Background(), through.String(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		db.Close()
	})
	if got := s.Dialect(); got != dialect {
		tb.Fatalf("dialect %s, want %s", got, dialect)
	}
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s, db
}
