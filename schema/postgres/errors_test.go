package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// outcomes of a commit that meets an error twice.
const (
	sent        = "the same batch again"
	reconnected = "the same batch again through another connection"
	row         = "a row refused"
	split       = "the batch refused"
	foreign     = "a foreign row"
)

// The whole table of database errors: what comes of a batch of several tasks, and of one.
var errorTable = []struct{ code, several, alone string }{
	{"08000", reconnected, reconnected}, {"08006", reconnected, reconnected}, {"08P01", split, sent},
	{"22P05", row, row}, {"22001", row, row}, {"23514", row, row}, {"23502", row, row}, {"23505", foreign, foreign},
	{"25006", reconnected, reconnected}, {"25P02", reconnected, reconnected}, {"26000", reconnected, reconnected}, {"34000", reconnected, reconnected},
	{"28P01", sent, sent}, {"28000", sent, sent}, {"3D000", sent, sent}, {"3F000", sent, sent},
	{"09000", row, row}, {"27000", row, row}, {"38000", row, row}, {"39000", row, row}, {"44000", row, row}, {"P0001", row, row},
	{"0A000", reconnected, reconnected}, {"42P05", reconnected, reconnected}, {"42501", sent, sent}, {"42P01", sent, sent},
	{"40001", sent, sent}, {"40P01", sent, sent}, {"40003", sent, sent}, {"72000", sent, sent},
	{"53100", sent, sent}, {"53200", split, sent}, {"53300", sent, sent}, {"53400", sent, sent}, {"54000", split, row}, {"54001", split, row},
	{"55P03", sent, sent}, {"55000", sent, sent}, {"57014", split, sent}, {"57P01", reconnected, reconnected}, {"57P02", reconnected, reconnected},
	{"57P03", reconnected, reconnected}, {"57P05", reconnected, reconnected}, {"57000", sent, sent}, {"58030", sent, sent}, {"F0000", sent, sent},
	{"XX000", sent, sent}, {"XXUUU", sent, sent}, {"XX001", sent, sent}, {"XX002", sent, sent}, {"XXC01", sent, sent}, {"XXC02", sent, sent}, {"ZZ999", sent, sent},
}

// Every row of the table is tried above: a new one needs its own.
//
// covers: B2
func TestErrorTableIsWhole(t *testing.T) {
	for _, code := range postgres.VerdictCodes() {
		found := code == "" // the lost connections of pgfault
		for _, c := range errorTable {
			found = found || c.code == code || len(code) == 2 && strings.HasPrefix(c.code, code)
		}
		if !found {
			t.Errorf("%s is not tried", code)
		}
	}
}

// What the database says decides what becomes of a batch: each code through the proxy.
//
// covers: B2
func TestErrorsOfACommit(t *testing.T) {
	p := proxy(t, pgfault.Faults{})
	at := through(t, p, pgtestdb.Migrated(t))
	s := opened(t, at, schema.Options{MaxConns: 1})
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	number, last := int64(0), int64(0)
	for _, c := range errorTable {
		for tasks, want := range map[int]string{3: c.several, 1: c.alone} {
			b := &core.Batch{ID: number + 1}
			for range tasks {
				number++
				b.Writes = append(b.Writes, plainBirth(0, number))
			}
			b.Partitions = []core.PartitionWrite{{Epoch: st.Epoch, After: last, NextNumber: number + 1, NextEnd: 1}}
			before := session(t, s)
			p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: c.code, Times: 2})
			_, err := s.Commit(t.Context(), b)
			p.Refuse()
			if err == nil {
				last = b.ID
			}
			if got := outcome(err, session(t, s) != before); got != want {
				t.Errorf("%s, %d tasks: %s, want %s (%v)", c.code, tasks, got, want, err)
			}
			if since, reason := s.Trouble(); !since.IsZero() && want != foreign {
				t.Errorf("%s: trouble since %v: %v", c.code, since, reason)
			}
			saved, lerr := s.LoadNumbers(t.Context(), core.AsOf{Partition: 0}, []int64{number})
			if lerr != nil || (len(saved) == 1) != (err == nil) {
				t.Errorf("%s: %d stored, %v, %v", c.code, len(saved), lerr, err)
			}
		}
	}
}

// An error that says nothing is waited out for as long as a server may take to come back. Where it lasts beside rows that are
// taken, the batch is split until the row is found, which would else keep its partition for ever; what came of a sending is
// looked up before.
//
// covers: K6
func TestVagueErrorsEnd(t *testing.T) {
	p := proxy(t, pgfault.Faults{})
	s := opened(t, through(t, p, pgtestdb.Migrated(t)), schema.Options{MaxConns: 2, Timeout: 500 * time.Millisecond})
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "node"})
	if err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	for _, code := range []string{"XX000", "XXUUU", "ZZ999"} {
		for _, tasks := range []int{2, 1} {
			b := &core.Batch{ID: number + 1, Partitions: []core.PartitionWrite{{Epoch: st.Epoch, NextNumber: number + 3, NextEnd: 1}}}
			for range tasks {
				number++
				b.Writes = append(b.Writes, plainBirth(0, number))
			}
			p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: code})
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := s.Commit(ctx, b)
			cancel()
			p.Refuse()
			if got := outcome(err, false); got != row {
				t.Errorf("%s, %d tasks: %s, want %s", code, tasks, got, row)
			}
			if took := time.Since(began); took < time.Second {
				t.Errorf("%s, %d tasks: given up after %v, before a server can be back", code, tasks, took)
			}
		}
	}
	b := &core.Batch{ID: 100, Partitions: []core.PartitionWrite{{Epoch: st.Epoch, NextNumber: 100, NextEnd: 1}}, Writes: []core.TaskWrite{plainBirth(0, 50)}}
	if _, err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	// It is sent again as one whose answer was vague, and then refused for ever: the look finds it.
	p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "XXUUU", Times: 1}, pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "22001", Times: 2})
	if _, err := s.Commit(t.Context(), b); err != nil {
		t.Errorf("a commit that stands: %v", err)
	}
	p.Refuse()
}

func outcome(err error, moved bool) string {
	switch {
	case err == nil && moved:
		return reconnected
	case err == nil:
		return sent
	case errors.Is(err, core.ErrRowRefused):
		return row
	case errors.Is(err, core.ErrBatchRefused):
		return split
	case errors.Is(err, core.ErrForeignRow):
		return foreign
	}
	return err.Error()
}

// session is the server's process behind the store's one connection.
func session(t *testing.T, s schema.Store) (pid int) {
	t.Helper()
	if err := dbOf(s).QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// A session that ends with an error says nothing of the transaction, whatever the code:
// poolers end all with the same one.
func TestErrorThatEndsTheSession(t *testing.T) {
	for _, code := range []string{"08P01", "54000", "22000", "57014"} {
		if got := postgres.Blames(&pgconn.PgError{Code: code, Severity: "FATAL"}); got != "connection" {
			t.Errorf("%s: %s", code, got)
		}
	}
}

// refusing are ways in which a database refuses whatever is written, by what it is put
// into that state, and out of it.
var refusing = []struct{ name, begin, end string }{
	{"a trigger on tasks", refuseBy("tasks", "P0001"), "DROP TRIGGER refuse ON tasks"},
	{"a trigger on the journal", refuseBy("journal", "23514"), "DROP TRIGGER refuse ON journal"},
	{"a trigger on partitions", refuseBy("partitions", "22000"), "DROP TRIGGER refuse ON partitions"},
	{"a trigger at the end", strings.Replace(refuseBy("tasks", "23514"), "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON tasks",
		"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON tasks DEFERRABLE INITIALLY DEFERRED", 1), "DROP TRIGGER refuse ON tasks"},
	{"transaction ids used up", refuseBy("tasks", "54000"), "DROP TRIGGER refuse ON tasks"},
	{"disk full", refuseBy("tasks", "53100"), "DROP TRIGGER refuse ON tasks"},
	{"a constraint of all rows", "ALTER TABLE tasks ADD CONSTRAINT never CHECK (FALSE) NOT VALID", "ALTER TABLE tasks DROP CONSTRAINT never"},
	{"a table that is gone", "ALTER TABLE tasks RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO tasks"},
}

func refuseBy(table, code string) string {
	return `CREATE OR REPLACE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '` + code + `'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION refuse()`
}

// A database that refuses everything is waited for, whatever it says: no row is to
// blame, and the store tells since when and why.
//
// covers: B2
func TestDatabaseThatRefusesAll(t *testing.T) {
	s := fresh(t, schema.Options{})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for i, c := range refusing {
		t.Run(c.name, func(t *testing.T) {
			storetest.RefusesAll(t, s, dbOf(s), int64(i+1), c.begin, c.end)
		})
	}
}

// A user that may not write is no row's fault.
//
// covers: B2
func TestUserThatMayNotWrite(t *testing.T) {
	at := pgtestdb.Migrated(t)
	s := opened(t, at, schema.Options{})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	db := dbOf(s)
	if _, err := db.Exec(`DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP OWNED BY clerk; DROP ROLE clerk`); err != nil {
			t.Error(err)
		}
	})
	clerk := opened(t, strings.Replace(at, "postgres://postgres@", "postgres://clerk@", 1), schema.Options{})
	storetest.RefusesAll(t, clerk, db, 1, `REVOKE INSERT ON journal FROM clerk`, `GRANT INSERT ON journal TO clerk`)
}

// A batch that was perhaps committed already is not split: its parts would take its own
// rows for another's.
//
// covers: B2
func TestUnknownBatchIsNotSplit(t *testing.T) {
	p := proxy(t, pgfault.Faults{})
	s := opened(t, through(t, p, pgtestdb.Migrated(t)), schema.Options{MaxConns: 2})
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		first bool // whether it was committed the first time
		want  string
	}{"committed": {true, sent}, "not committed": {false, split}} {
		t.Run(name, func(t *testing.T) {
			st, err := s.TakeOver(t.Context(), 0, core.Claim{Owner: "node"})
			if err != nil {
				t.Fatal(err)
			}
			b := &core.Batch{ID: 1, Writes: []core.TaskWrite{plainBirth(0, 1), plainBirth(0, 2)}}
			if !c.first {
				b = &core.Batch{ID: 2, Writes: []core.TaskWrite{plainBirth(0, 3), plainBirth(0, 4)}}
			}
			b.Partitions = []core.PartitionWrite{{Epoch: st.Epoch, NextNumber: 5, NextEnd: 1}}
			if c.first {
				if _, err := s.Commit(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "40003", Times: 1}, pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Code: "57014", Times: 1})
			_, err = s.Commit(t.Context(), b)
			p.Refuse()
			if got := outcome(err, false); got != c.want {
				t.Errorf("%s, want %s (%v)", got, c.want, err)
			}
		})
	}
}

// When the primary turns read-only and another is there, commits go to that one: of
// several hosts in the URL the one that takes writes is meant.
//
// covers: B2
func TestReadOnlyPrimaryIsLeft(t *testing.T) {
	var stores []schema.Store
	var hosts []string
	for range 2 {
		c, err := localpg.Start(localpg.Options{FsyncOff: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
		at, err := c.NewDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, at, schema.Options{MaxConns: 1})
		if err := s.Partitions(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
		_, rest, _ := strings.Cut(at, "@")
		host, _, _ := strings.Cut(rest, "/")
		hosts = append(hosts, host)
	}
	for _, given := range []string{"", "&target_session_attrs=read-write"} {
		s := opened(t, fmt.Sprintf("postgres://postgres@%s,%s/d1?sslmode=disable%s", hosts[0], hosts[1], given), schema.Options{MaxConns: 3})
		number := int64(1 + len(given))
		if _, err := storetest.CommitOne(t.Context(), s, number, plainBirth(1, number)); err != nil {
			t.Fatal(err)
		}
		st, err := stores[1].TakeOver(t.Context(), 1, core.Claim{Owner: "node"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dbOf(stores[0]).Exec(`ALTER SYSTEM SET default_transaction_read_only = on`); err != nil {
			t.Fatal(err)
		}
		reload(t, stores[0], "on")
		for i, w := range []core.TaskWrite{plainBirth(1, number+1), plainBirth(1, number+2)} {
			p := core.PartitionWrite{Partition: 1, Epoch: st.Epoch, After: int64(i) * (number + 1), NextNumber: number + 3, NextEnd: 1}
			_, err := s.Commit(t.Context(), &core.Batch{ID: w.Task.Number, Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{w}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []int{0, 2} {
			saved, err := stores[i].LoadNumbers(t.Context(), core.AsOf{Partition: 1}, []int64{number + 1, number + 2})
			if err != nil || len(saved) != want {
				t.Errorf("%q: %d tasks on host %d, want %d, %v", given, len(saved), i+1, want, err)
			}
		}
		if _, err := dbOf(stores[0]).Exec(`SET default_transaction_read_only = off`); err != nil {
			t.Fatal(err)
		}
		if _, err := dbOf(stores[0]).Exec(`ALTER SYSTEM RESET default_transaction_read_only`); err != nil {
			t.Fatal(err)
		}
		if _, err := dbOf(stores[0]).Exec(`RESET default_transaction_read_only`); err != nil {
			t.Fatal(err)
		}
		reload(t, stores[0], "off")
	}
}

// reload makes the server read its settings again and waits until a session has.
func reload(t *testing.T, s schema.Store, want string) {
	t.Helper()
	db := dbOf(s)
	if _, err := db.Exec(`SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		var is string
		if err := db.QueryRow(`SHOW default_transaction_read_only`).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is == want {
			return
		}
		<-tick.C
	}
	t.Fatalf("default_transaction_read_only does not turn %s", want)
}

// A database that is frozen does not hold up a stop: the commit that waits for it is
// told to, ends with its context, and the store closes.
//
// covers: B2, B8
func TestFrozenDatabase(t *testing.T) {
	p := proxy(t, pgfault.Faults{})
	at := through(t, p, pgtestdb.Migrated(t))
	s, err := postgres.Open(t.Context(), at, schema.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	p.Refuse(pgfault.Refusal{Mute: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 2)
	reads := make(chan error, 1)
	go func() {
		b := &core.Batch{ID: 1, Partitions: []core.PartitionWrite{{Partition: 1, Epoch: 0, NextNumber: 2, NextEnd: 1}}, Writes: []core.TaskWrite{plainBirth(1, 1)}}
		_, err := s.Commit(ctx, b)
		done <- err
	}()
	go func() {
		_, err := s.Cursors(ctx)
		reads <- err
	}()
	if _, reason := storetest.Troubled(t, s, done); !strings.Contains(reason.Error(), "has not answered") {
		t.Errorf("trouble: %v", reason)
	}
	began := time.Now()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	<-reads
	if since, _ := s.Trouble(); since.IsZero() {
		t.Error("the trouble is forgotten because the commit was given up")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
}

// A server that does not answer is given up for another connection.
//
// covers: B2
func TestSilentServerIsLeft(t *testing.T) {
	p := proxy(t, pgfault.Faults{})
	s := opened(t, through(t, p, pgtestdb.Migrated(t)), schema.Options{MaxConns: 2, Timeout: time.Second})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	p.Refuse(pgfault.Refusal{Holds: "UPDATE partitions AS p SET", Mute: true, Times: 1})
	if err := oneBirth(t, s); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s); n != 1 || p.Refused() != 1 {
		t.Errorf("%d stored, %d times silent", n, p.Refused())
	}
}

// What is told of trouble holds no user, password or value.
func TestTroubleIsRedacted(t *testing.T) {
	at := strings.Replace(pgtestdb.URL(t), "postgres://postgres@", "postgres://olga:secret@", 1)
	_, err := postgres.Open(t.Context(), at, schema.Options{})
	if err == nil {
		t.Fatal("olga may connect")
	}
	for _, err := range []error{err, &pgconn.PgError{Code: "22P02", Message: "invalid input olga", Detail: "secret"}} {
		if text := postgres.Redacted(fmt.Errorf("commit: %w", err)).Error(); strings.Contains(text, "olga") || strings.Contains(text, "secret") || text == "" {
			t.Errorf("told: %s", text)
		}
	}
}
