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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"duly.dev/duly/internal/core"
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
		heard.postgres = append(heard.postgres, refusedInDoubt(t)...)
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
			s, _ := open(t, p, dialect, o)
			if _, err := s.(*postgres.Store).Held(t.Context()); err != nil {
				t.Error(err)
			}
		}
		useOutbox(t, p)
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return p.Texts()
}

// refusedInDoubt is what is said of a commit that is refused for one of its rows after the connection was lost in the
// middle of it: an earlier sending may stand.
func refusedInDoubt(t *testing.T) []string {
	t.Helper()
	lost := false
	p, err := pgfault.Start(pgtestdb.URL(t), pgfault.Faults{Watch: func(_ int, texts []string, _ bool) bool {
		if lost || !slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, "COPY tasks") }) {
			return false
		}
		lost = true
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("refused in doubt", func(t *testing.T) {
		s, _ := open(t, p, "postgres", schema.Options{})
		commitBad(t, s)
	})
	if err := p.Close(); err != nil || !lost {
		t.Errorf("%v, connection lost: %v", err, lost)
	}
	return p.Texts()
}

// commitBad commits a row that no database takes.
func commitBad(t *testing.T, s schema.Store) {
	t.Helper()
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "n"})
	if err != nil {
		t.Fatal(err)
	}
	b := core.Batch{ID: 1, Partitions: []core.PartitionWrite{{Epoch: st.Epoch, NextNumber: 3, NextEnd: 1}}}
	for number, id := range []string{1: "good", 2: "a\x00b"} {
		if number > 0 {
			b.Writes = append(b.Writes, core.TaskWrite{
				Task:  &core.Task{Number: int64(number), ID: id, Type: "order", PlanVersion: 1, State: core.StateProcessing, Seq: 1, CreatedAt: 1, UpdatedAt: 1, Bound: 1, Deadline: 1},
				Birth: true, Records: []core.Record{{Seq: 1, Kind: core.KindSubmitted, At: 1, Actor: "n", State: core.StateProcessing, Step: -1, Next: -1}},
			})
		}
	}
	if _, err := s.Commit(t.Context(), &b); !errors.Is(err, core.ErrRowRefused) {
		t.Errorf("%v, want a row refused", err)
	}
}

// migrateInTrouble migrates to a version to come, behind a backup, where a build of its index was cut off.
func migrateInTrouble(t *testing.T, p *pgfault.Proxy, o schema.Options) {
	t.Helper()
	waits := make(chan struct{}, 1)
	o.Tell = func(string) {
		select {
		case waits <- struct{}{}:
		default:
		}
	}
	o.Migrations = storetest.NextMigrations(t, "postgres", "CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_round ON tasks (round);\nALTER TABLE journal ADD COLUMN IF NOT EXISTS mood TEXT;\n")
	_, db := open(t, p, "postgres", schema.Options{})
	s := beside(t, p, db, o)
	for _, statement := range []string{`CREATE INDEX tasks_round ON tasks (round)`, `UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'tasks_round'::REGCLASS`} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
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
	direct := pgtestdb.URL(t)
	at := through(t, p, direct)
	plain, err := sql.Open("pgx", direct)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Exec(`CREATE FUNCTION unique_rowid() RETURNS INT8 LANGUAGE SQL AS 'SELECT floor(random() * 1000000000)::INT8'`); err != nil { // CockroachDB's
		t.Fatal(err)
	}
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
		for try := 0; err != nil && try < 100; try++ {
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
			if _, err := tx.Exec(insertOf(t), "order", id, "{}", "{}"); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	}
	var second int64
	taken := 0
	again("take", func() error {
		n, err := o.Take(ctx, 10, func(_ context.Context, rows []postgres.OutboxRow) (all []postgres.OutboxVerdict) {
			for i := range rows {
				if rows[i].Task == "b" {
					second = rows[i].Number
				}
				all = append(all, postgres.OutboxVerdict{Number: rows[i].Number, Stored: rows[i].Task == "a", Reason: "why"})
			}
			return all
		})
		if taken += n; err == nil && taken < 3 {
			err = errors.New("rows were passed over")
		}
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
