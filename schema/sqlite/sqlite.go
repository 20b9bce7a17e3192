// Package sqlite is the state store of one process, in a file of SQLite: what `duly dev`
// and `duly demo` use. One connection writes, others read meanwhile.
//
// It goes through database/sql. Reading and what the dialects share is in package schema;
// the contract is [schema.Store], held by schema/storetest.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync/atomic"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/schema"
)

var _ schema.Store = (*Store)(nil)

// Store implements [schema.Store].
type Store struct {
	*schema.Base
	// writer has one connection, so that one transaction writes at a time.
	writer *sql.DB
	// reader is for the owners of partitions.
	reader *sql.DB
	// asking is for people, behind whom no owner has to wait.
	asking  *sql.DB
	path    string
	version string
	// migrations make the tables; nil: the files of this binary do.
	migrations fs.FS
	sql        *statements
	// writes counts transactions.
	writes atomic.Int64
}

// readersMax is how many connections reader and asking have each.
const readersMax = 2 * schema.AskingEach

// pragmas hold for every connection. With synchronous(FULL) a commit is durable when it returns, in a WAL
// too. Every 1,000 pages (4 MB) a commit copies the WAL into the tables, SQLite's default; a WAL that a long
// read made larger is cut back.
var pragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "journal_size_limit(67108864)", "temp_store(MEMORY)", "cache_size(-65536)",
}

// Open opens the store in a file, and makes the file if there is none. It makes no tables.
func Open(ctx context.Context, path string) (*Store, error) {
	return OpenWith(ctx, path, schema.Options{})
}

// OpenWith is Open with options. Of these only Chain, Migrations and Tables matter here.
func OpenWith(ctx context.Context, path string, o schema.Options) (*Store, error) {
	if path == "" {
		return nil, option.Refuse("database-url", errors.New("sqlite: without a path"))
	}
	// Pragmas are in the URL, so that the driver sets them on each connection that it makes.
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=" + strings.Join(pragmas, "&_pragma=")
	s := &Store{path: path, sql: newStatements(cmp.Or(o.Tables, schema.Columns())), migrations: o.Migrations}
	for _, of := range []struct {
		db     **sql.DB
		option string
		most   int
	}{{&s.writer, "&_txlock=immediate", 1}, {&s.reader, "&_pragma=query_only(1)", readersMax}, {&s.asking, "&_pragma=query_only(1)", readersMax}} {
		db, err := sql.Open("sqlite", dsn+of.option)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.close())
		}
		db.SetMaxOpenConns(of.most)
		*of.db = db
	}
	if err := s.writer.QueryRowContext(ctx, `SELECT 'SQLite ' || sqlite_version()`).Scan(&s.version); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.close())
	}
	s.Base = schema.NewBase(dialect, s.sql.of, s.transact, s.writer, s.reader, s.asking, s.writer)
	if o.Chain {
		s.KeepChain()
	}
	return s, nil
}

// dialect is this database's. Nothing is tried again: with one writer no transaction gives way to another.
var dialect = schema.Dialect{
	Params: func(q string) string { return q },
	List:   list,
	Among: func(table, column string) string {
		return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + inList
	},
	Time: func(i core.Instant) any { return int64(i) },
	Rows: asRows, RowArgs: listArgs,
	Renew: `UPDATE installation SET id = ?1, namespace = '' WHERE id = ?2`,
}

// asRows is Dialect.Rows: all columns in one JSON parameter, a list of rows.
func asRows(first int, columns ...string) string {
	values := make([]string, len(columns))
	for i, c := range columns {
		name, _, _ := strings.Cut(c, " ")
		values[i] = fmt.Sprintf("json_extract(value, '$[%d]') AS %s", i, name)
	}
	return fmt.Sprintf("(SELECT %s FROM json_each(?%d)) AS u", strings.Join(values, ", "), first)
}

// listArgs is Dialect.RowArgs: the JSON of asRows.
func listArgs(lists ...any) []any {
	var rows [][]any
	for k, list := range lists {
		switch list := list.(type) {
		case []int64:
			rows = columnOf(rows, k, list)
		case []string:
			rows = columnOf(rows, k, list)
		case []core.Instant:
			rows = columnOf(rows, k, list)
		}
	}
	b, _ := json.Marshal(rows) // numbers and names always can be
	return []any{string(b)}
}

// columnOf appends a column's values to rows. The first column makes the rows.
func columnOf[T any](rows [][]any, column int, values []T) [][]any {
	if column == 0 {
		rows = make([][]any, len(values))
	}
	for i, v := range values {
		rows[i] = append(rows[i], v)
	}
	return rows
}

// list is Dialect.List: JSON.
func list(v any) any {
	b, _ := json.Marshal(v) // numbers and names always can be
	return string(b)
}

// inList is what is in the list ?2. chosen are the rows of partition ?1 whose number is.
const (
	inList = `IN (SELECT value FROM json_each(?2))`
	chosen = `partition = ?1 AND number ` + inList
)

// Dialect implements [schema.Store].
func (s *Store) Dialect() string { return "sqlite" }

// Version implements [schema.Store].
func (s *Store) Version() string { return s.version }

// Ping implements [schema.Store].
func (s *Store) Ping(ctx context.Context) error { return s.writer.PingContext(ctx) }

// Close implements [schema.Store]. It waits for the commit that is under way.
func (s *Store) Close() error {
	conn, err := s.writer.Conn(context.Background())
	if err == nil {
		defer conn.Close() // the last one: SQLite then empties the WAL and removes it
	}
	return s.close()
}

// close closes all handles that are open.
func (s *Store) close() error {
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.asking, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// write runs a transaction. It waits for the one writer until ctx ends. Once begun, a transaction runs to its
// end: it is short, and giving it up would leave the outcome unknown.
func (s *Store) write(ctx context.Context, do func(context.Context, *sql.Tx) error) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.writes.Add(1)
	begun := context.WithoutCancel(ctx)
	tx, err := conn.BeginTx(begun, nil)
	if err != nil {
		return err
	}
	if err := do(begun, tx); err != nil {
		_ = tx.Rollback() // SQLite may have done so by itself, and then refuses it
		return err
	}
	return tx.Commit()
}

// Partitions implements [schema.Store].
func (s *Store) Partitions(ctx context.Context, n int) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM partitions`).Scan(&have); err != nil {
			return err
		}
		if have > 0 {
			return schema.CheckPartitions(have, n)
		}
		for p := range n {
			if _, err := tx.ExecContext(ctx, `INSERT INTO partitions (partition) VALUES (?1)`, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// transact is the schema.Transact of this store.
func (s *Store) transact(ctx context.Context, do func(context.Context, schema.Tx) error) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return do(ctx, small{tx}) })
}

// small implements [schema.Tx].
type small struct{ tx *sql.Tx }

func (t small) Row(ctx context.Context, query string, args ...any) schema.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t small) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return affected(t.tx.ExecContext(ctx, query, args...))
}
