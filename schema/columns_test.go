package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
)

// dialectNames are those of the stores.
var dialectNames = []string{"postgres", "sqlite"}

// writable is the database of a store, which may be written to.
func writable(s schema.Store) *sql.DB {
	if s.Dialect() == "sqlite" {
		return schema.WriterDB(s)
	}
	return schema.DB(s)
}

// What the list of columns has of a column, and a database.
type columnFacts struct {
	is   schema.Type
	null bool
}

func factsOf[R any](columns []schema.Column[R]) map[string]columnFacts {
	facts := map[string]columnFacts{}
	for _, c := range columns {
		facts[c.Name] = columnFacts{c.Type, c.Null != schema.Never}
	}
	return facts
}

// unlisted are the columns that neither a commit nor an owner's read has: purges and the chain keep them by statements of
// their own.
var unlisted = map[string][]string{"tasks": {"purged"}, "partitions": {"forgotten", "chain_epoch"}}

// typeNames are the types as the catalogs name them. SQLite has one for all numbers.
var typeNames = map[string]map[schema.Type]string{
	"postgres": {schema.Int8: "int8", schema.Int2: "int2", schema.Bool: "bool", schema.Time: "timestamptz", schema.Text: "text", schema.Bytes: "bytea"},
	"sqlite": {
		schema.Int8: "integer", schema.Int2: "integer", schema.Bool: "integer", schema.Time: "integer", schema.Text: "text", schema.Bytes: "blob",
	},
}

// TestColumnsAreTheDatabases: the list of columns and the tables that migrations make have the same columns, of the same
// types, that may be NULL or not.
func TestColumnsAreTheDatabases(t *testing.T) {
	catalogs := map[string]string{
		"postgres": `SELECT column_name, udt_name, is_nullable = 'YES' FROM information_schema.columns WHERE table_schema = current_schema AND table_name = $1`,
		"sqlite":   `SELECT name, lower(type), NOT "notnull" FROM pragma_table_info($1)`,
	}
	of := schema.Columns()
	for _, dialect := range dialectNames {
		t.Run(dialect, func(t *testing.T) {
			db := schema.DB(fresh(t, dialect, schema.Options{}))
			for table, want := range map[string]map[string]columnFacts{
				"tasks": factsOf(of.Tasks), "journal": factsOf(of.Journal), "partitions": factsOf(of.Partitions), "chain": factsOf(of.Chain), "labels": factsOf(of.Labels),
			} {
				rows, err := db.Query(catalogs[dialect], table)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
					var name, typ string
					var null bool
					if err := rows.Scan(&name, &typ, &null); err != nil {
						t.Fatal(err)
					}
					is, listed := want[name]
					delete(want, name)
					switch {
					case listed == slices.Contains(unlisted[table], name):
						t.Errorf("%s.%s: it is in the list of columns: %v", table, name, listed)
					case listed && (typ != typeNames[dialect][is.is] || null != is.null):
						t.Errorf("%s.%s: %s, may be NULL: %v; the list of columns says %s, %v", table, name, typ, null, typeNames[dialect][is.is], is.null)
					}
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				if len(want) > 0 {
					t.Errorf("%s: the database has no %v", table, slices.Sorted(maps.Keys(want)))
				}
			}
		})
	}
}

// written are the values that a commit writes of a row.
func written[R any](columns []schema.Column[R], r *R) []any {
	return schema.Args(nil, columns, r, func(at core.Instant) any { return int64(at) })
}

// change sets a field to another value than it has.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 77)
	case reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 77)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

// changedFields are copies of a value, each with another of its fields changed, by the field's name.
func changedFields[T any](t *testing.T, base T) map[string]T {
	t.Helper()
	all := map[string]T{}
	for f := range reflect.TypeFor[T]().Fields() {
		other := base
		change(t, reflect.ValueOf(&other).Elem().FieldByIndex(f.Index))
		all[f.Name] = other
	}
	return all
}

func fieldOf[T any](of *T, name string) any {
	return reflect.ValueOf(of).Elem().FieldByName(name).Interface()
}

// TestEveryFieldHasAColumn: whichever field of a task or of a record is another, so is a value that is written, and it
// comes back.
func TestEveryFieldHasAColumn(t *testing.T) {
	of := schema.Columns()
	columns := schema.Of(of.Tasks, schema.Key|schema.Birth|schema.State)
	elsewhere := []string{"Input", "Earlier", "WentBackAt", "BornAgain", "LostUntil", "TakenUp", "Reopened", "Asked", "Result", "Steps"} // a task's, in its journal
	replayed := append(slices.Clone(elsewhere), "FailedStep", "Why")                                                                     // is read from there alone
	base := core.Task{Seq: 1, Type: "t", State: core.StateError, Parent: 1, CreatedAt: 1}                                                // in error, so that it has a failure
	record := core.Record{Seq: 1, Step: 1, Error: "no", At: 1}
	for _, dialect := range dialectNames {
		t.Run(dialect, func(t *testing.T) {
			c := &colours{T: t, Store: fresh(t, dialect, schema.Options{})}
			c.own()
			number := int64(0)
			stored := func(task core.Task, r core.Record) core.Saved {
				t.Helper()
				number++
				if task.Number, task.Partition = number, 0; task.ID == "" {
					task.ID = fmt.Sprint(number)
				}
				c.write(core.TaskWrite{Task: &task, Birth: true, Records: []core.Record{r}})
				found, err := c.LoadNumbers(context.Background(), core.AsOf{Partition: 0}, []int64{number})
				if err != nil || len(found) != 1 {
					t.Fatalf("%d tasks, %v", len(found), err)
				}
				return found[0]
			}
			for name, other := range changedFields(t, base) {
				was, is := schema.NewTaskRow(&base, 1), schema.NewTaskRow(&other, 1)
				if carried := !reflect.DeepEqual(written(columns, &was), written(columns, &is)); carried == slices.Contains(elsewhere, name) {
					t.Errorf("core.Task.%s: a column carries it: %v", name, carried)
				}
				if slices.Contains(append(replayed, "Number", "Partition"), name) {
					continue
				}
				saved := stored(other, record)
				if got, want := fieldOf(&saved.Row, name), fieldOf(&other, name); !reflect.DeepEqual(got, want) {
					t.Errorf("core.Task.%s: %v comes back as %v", name, want, got)
				}
			}
			for name, other := range changedFields(t, record) {
				saved := stored(base, other)
				if name == "Input" || name == "Seq" { // the first row has that of the task
					continue
				}
				if got, want := fieldOf(&saved.Journal[0], name), fieldOf(&other, name); !reflect.DeepEqual(got, want) {
					t.Errorf("core.Record.%s: %v comes back as %v", name, want, got)
				}
			}
		})
	}
}

// colours is a store of a column that this version does not have: what is new in a task is in memory here.
type colours struct {
	*testing.T
	is   map[string]string // by the task's id
	read string
	url  string
	schema.Store
	owner  core.PartitionState
	commit int64
}

func (c *colours) tables() *schema.Tables {
	of := schema.Columns()
	of.Tasks = append(of.Tasks, schema.Column[schema.TaskRow]{
		Name: "colour", Type: schema.Text, Part: schema.State, Null: schema.None, Since: 2,
		Field: schema.Field[schema.TaskRow]{
			Text: func(r *schema.TaskRow) string { return c.is[r.ID] }, Into: func(*schema.TaskRow) any { return &c.read },
		},
	})
	return of
}

// open opens the store with or without the column.
func (c *colours) open(of *schema.Tables) {
	c.Helper()
	c.Store = opened(c, c.url, schema.Options{Chain: true, Tables: of})
	c.own()
}

// own takes the store's one partition over.
func (c *colours) own() {
	c.Helper()
	ctx := context.Background()
	if err := c.Partitions(ctx, 1); err != nil {
		c.Fatal(err)
	}
	var err error
	if c.owner, err = c.TakeOver(ctx, 0, core.Claim{Owner: "n", At: 1}); err != nil {
		c.Fatal(err)
	}
}

func (c *colours) write(w core.TaskWrite) {
	c.Helper()
	last := c.owner.LastCommit
	c.commit++
	c.owner.LastCommit = c.commit
	moved := core.PartitionWrite{Partition: 0, Epoch: c.owner.Epoch, After: last, NextNumber: 99, NextEnd: 1}
	res, err := c.Commit(context.Background(), &core.Batch{ID: c.commit, Node: "n", Partitions: []core.PartitionWrite{moved}, Writes: []core.TaskWrite{w}})
	if err != nil || len(res.Fenced)+len(res.Duplicates) > 0 {
		c.Fatalf("%+v, %v", res, err)
	}
}

// further is a further state of a task.
func further(t core.Task) core.TaskWrite {
	t.Seq++
	return core.TaskWrite{Task: &t, Row: true, Records: []core.Record{{Seq: t.Seq, Kind: core.KindAsked, At: t.CreatedAt, State: t.State, Step: -1, Next: -1}}}
}

// finds checks the chain, which has to find that of a task, or nothing.
func (c *colours) finds(of *schema.Tables, want string) {
	c.Helper()
	source, err := c.Chain(context.Background())
	if err != nil {
		c.Fatal(err)
	}
	report, err := chain.Verify(context.Background(), source, chain.Options{Partition: -1})
	if err != nil {
		c.Fatal(err)
	}
	var file strings.Builder
	if err := chain.Export(context.Background(), source, -1, &file); err != nil {
		c.Fatal(err)
	}
	export, err := chain.OpenFile(context.Background(), strings.NewReader(file.String()), of.Chained())
	if err != nil {
		c.Fatal(err)
	}
	again, err := chain.Verify(context.Background(), export, chain.Options{Partition: -1})
	if err != nil || !reflect.DeepEqual(again.Findings, report.Findings) {
		c.Errorf("the export has other findings: %+v, %v", again, err)
	}
	found := ""
	for _, f := range report.Findings {
		found += fmt.Sprint(f.What, " ", f.Task)
	}
	if found != want {
		c.Errorf("found %q, want %q", found, want)
	}
}

func (c *colours) exec(query string) {
	c.Helper()
	if _, err := writable(c.Store).Exec(query); err != nil {
		c.Fatal(err)
	}
}

func (c *colours) reads(id, want string) {
	c.Helper()
	c.read = "unread"
	found, err := c.LoadIDs(context.Background(), core.AsOf{Partition: 0}, []string{id})
	if err != nil || len(found) != 1 || c.read != want {
		c.Errorf("%d tasks, %v; the column of %s reads %q, want %q", len(found), err, id, c.read, want)
	}
}

// TestNewColumn: a column that is added to the list and to the table is written at births and changes, read and in the
// chain, and the rows of before keep their digests; and it goes again as it came.
func TestNewColumn(t *testing.T) {
	for _, dialect := range dialectNames {
		t.Run(dialect, func(t *testing.T) {
			c := &colours{T: t, is: map[string]string{"t2": "red"}}
			c.url = sqliteURL(t)
			if dialect == "postgres" {
				c.url = pgtestdb.Migrated(t)
			}
			c.Store = open(t, c.url, schema.Options{})
			c.open(nil)
			before, after := plainBirth(0, 1), plainBirth(0, 2)
			c.write(before)

			c.exec(`ALTER TABLE tasks ADD COLUMN colour TEXT`)
			with := c.tables()
			c.open(with)
			c.write(after)
			c.reads("t1", "")
			c.reads("t2", "red")
			c.finds(with, "")
			c.is["t2"] = "blue"
			c.write(further(*after.Task))
			c.reads("t2", "blue")
			c.exec(`UPDATE tasks SET colour = 'green' WHERE number = 2`)
			c.finds(with, "changed t2")
			c.exec(`UPDATE tasks SET colour = 'blue' WHERE number = 2`)
			c.finds(with, "")
			list, err := c.List(context.Background(), core.Filter{Limit: 10})
			if err != nil || len(list.Tasks) != 2 {
				t.Errorf("the list has %d tasks, %v", len(list.Tasks), err)
			}

			c.is["t2"] = ""
			again := further(*after.Task)
			again = further(*again.Task)
			c.write(again)
			c.exec(`ALTER TABLE tasks DROP COLUMN colour`)
			c.open(nil)
			c.finds(schema.Columns(), "")
			c.write(further(*before.Task))
			c.finds(schema.Columns(), "")
		})
	}
}
