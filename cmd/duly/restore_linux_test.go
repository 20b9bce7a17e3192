package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// ruins is a cluster whose database and streams are backed up and put back by the means that docs/operations/backup.md
// names.
type ruins struct {
	*cluster
	dir    string // of NATS
	server *natsserver.Server
}

func newRuins(t *testing.T) *ruins {
	t.Helper()
	r := &ruins{cluster: &cluster{t: t, db: pgtestdb.Installation(t)}, dir: filepath.Join(t.TempDir(), "nats")}
	r.startNATS(natsserver.FreePort)
	r.nats = r.server.ClientURL()
	t.Cleanup(func() {
		if err := r.server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	if code, out, errs := command(t, "", "migrate", "--database-url", r.db); code != 0 {
		t.Fatalf("migrate: %d %s %s", code, out, errs)
	}
	r.open()
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if r.nc, err = nats.Connect(r.nats, nats.MaxReconnects(-1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	return r
}

func (r *ruins) startNATS(port int) {
	r.t.Helper()
	var err error
	if r.server, err = natsserver.Start(natsserver.Options{Dir: r.dir, Port: port}); err != nil {
		r.t.Fatal(err)
	}
}

// withoutNATS does something while the server is down.
func (r *ruins) withoutNATS(do func()) {
	r.t.Helper()
	at, err := url.Parse(r.nats)
	if err != nil {
		r.t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(at.Host)
	if err != nil {
		r.t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.server.Shutdown(); err != nil {
		r.t.Fatal(err)
	}
	do()
	r.startNATS(port)
}

func (r *ruins) open() {
	r.t.Helper()
	var err error
	if r.store, err = dialects.Open(r.t.Context(), r.db, schema.Options{MaxConns: 2}); err != nil {
		r.t.Fatal(err)
	}
}

// tool runs one of PostgreSQL's programs.
func (r *ruins) tool(name string, args ...string) {
	r.t.Helper()
	if out, err := exec.CommandContext(r.t.Context(), name, args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// dump backs the database up while it is worked on.
func (r *ruins) dump() (file string) {
	r.t.Helper()
	file = filepath.Join(r.t.TempDir(), "duly.dump")
	r.tool("pg_dump", "--format=custom", "--file="+file, "--dbname="+r.db)
	return file
}

// load puts a dump into the place of the database: beside it first, and then at once under its name.
func (r *ruins) load(file string) {
	r.t.Helper()
	at, err := url.Parse(r.db)
	if err != nil {
		r.t.Fatal(err)
	}
	name := strings.TrimPrefix(at.Path, "/")
	beside, admin := *at, *at
	beside.Path, admin.Path = "/"+name+"_restored", "/postgres"
	conn, err := pgx.Connect(r.t.Context(), admin.String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(r.t.Context())
	do := func(statement string, names ...any) {
		r.t.Helper()
		if _, err := conn.Exec(r.t.Context(), fmt.Sprintf(statement, names...)); err != nil {
			r.t.Fatalf("%s: %v", statement, err)
		}
	}
	do(`CREATE DATABASE "%s_restored"`, name)
	r.tool("pg_restore", "--exit-on-error", "--no-owner", "--dbname="+beside.String(), file)
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	do(`ALTER DATABASE "%s" ALLOW_CONNECTIONS false`, name)
	until(r.t, "the old database is left", func() bool {
		// Again and again: a connection that was let in just before is not among them at first.
		do(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'`, name)
		_, err := conn.Exec(r.t.Context(), fmt.Sprintf(`ALTER DATABASE "%s" RENAME TO "%s_lost"`, name, name))
		return err == nil
	})
	do(`ALTER DATABASE "%s_restored" RENAME TO "%s"`, name, name)
	r.t.Cleanup(func() { r.drop(admin.String(), name+"_lost") })
	r.open()
}

func (r *ruins) drop(admin, name string) {
	ctx := context.Background() // the test's own is over
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `DROP DATABASE "`+name+`" WITH (FORCE)`); err != nil {
		r.t.Error(err)
	}
}

// TestRestoredDump: a dump that pg_dump took under load takes the place of the database, minutes of work later, with the
// streams as they are and tasks in flight; nodes live, or are dead. Nothing that was accepted is lost, doubled or half
// done.
//
// covers: A6, inv1
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	const tasks = 900
	for _, alive := range []bool{true, false} {
		t.Run(fmt.Sprintf("nodes alive %t", alive), func(t *testing.T) {
			t.Parallel()
			r := newRuins(t)
			node := mortal(t, r.args("first", "ingest,scheduler,supervisor")...)
			node.ready()
			d := r.drone(drone.QuickPlan(), drone.FaultsSome)
			var file string
			var dumped []core.Evidence
			var once sync.Once
			d.submit(t, 0, tasks*2/3, func(n int) {
				if n >= tasks/3 {
					once.Do(func() { file = r.dump(); dumped = r.committed() })
				}
			})
			until(t, "much is done that the dump has not", func() bool { return r.ended() > tasks/2 && r.recorded(dumped) })
			d.submit(t, tasks*2/3, tasks, func(n int) {
				if n != tasks*3/4 {
					return
				}
				if !alive {
					node.kill()
				}
				r.load(file)
				if !alive {
					node = r.serve("second", "ingest,scheduler,supervisor")
				}
			})
			report := r.clean(d)
			if want := "the database went back"; !strings.Contains(node.log(), want) {
				t.Errorf("the log does not say %q:\n%s", want, node.log())
			}
			t.Logf("%+v", report)
		})
	}
}

// committed is the last commit of every partition that the database has.
func (r *ruins) committed() (all []core.Evidence) {
	r.t.Helper()
	states, err := r.store.Cursors(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range states {
		all = append(all, core.Evidence{Partition: states[i].Partition, Epoch: states[i].Epoch, Commit: states[i].LastCommit})
	}
	return all
}

// recorded reports whether NATS has a record of a later commit of every partition.
func (r *ruins) recorded(than []core.Evidence) bool {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	bucket, err := js.KeyValue(r.t.Context(), wire.Names{}.BucketPartitions())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, was := range than {
		var is core.Evidence
		entry, err := bucket.Get(r.t.Context(), wire.EvidenceKey(was.Partition, false))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return false // no node owns the partition yet
		}
		if err == nil {
			err = json.Unmarshal(entry.Value(), &is)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if !is.Newer(was) {
			return false
		}
	}
	return true
}

// TestBothRestored: database and streams are lost together, and put back from a dump and a copy of NATS's files that is so
// much later that it has records of later commits. What either has runs, and nothing of it is half done; what both have lost
// is submitted again by the same ids, and its effects are not made twice. Of that alone, when it is undone this time, effects
// may stand of steps that it does not come to: neither copy knows of them, and the books show them.
//
// covers: A6, inv1
func TestBothRestored(t *testing.T) {
	t.Parallel()
	const dumped, copied, tasks = 300, 600, 900
	r := newRuins(t)
	node := mortal(t, r.args("first", "ingest,scheduler,supervisor")...)
	node.ready()
	d := r.drone(drone.QuickPlan(), drone.FaultsSome)
	d.submit(t, 0, dumped, func(int) {})
	file := r.dump()
	last := r.committed()
	d.submit(t, dumped, copied, func(int) {})
	until(t, "later commits are recorded", func() bool { return r.recorded(last) })
	saved := filepath.Join(t.TempDir(), "nats")
	r.withoutNATS(func() {
		if err := os.CopyFS(saved, os.DirFS(r.dir)); err != nil {
			t.Fatal(err)
		}
	})
	d.submit(t, copied, tasks, func(int) {})
	until(t, "much is done that neither backup has", func() bool { return r.ended() > copied })

	node.kill()
	r.withoutNATS(func() {
		r.load(file)
		if err := os.RemoveAll(r.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(r.dir, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
	})
	second := r.serve("second", "ingest,scheduler,supervisor")
	second.ready()
	until(t, "what was accepted before the copy ends", func() bool { return r.ended() >= copied })
	if want := "the database went back"; !strings.Contains(second.log(), want) {
		t.Errorf("the log does not say %q", want)
	}

	d.accepted = nil
	d.submit(t, 0, tasks, func(int) {})
	books := r.books(d)
	if books.Accepted != tasks || books.Processed+books.Undone != tasks || books.Lost > 0 || books.Doubled > 0 || books.Error > 0 || books.HalfDone > drone.ExamplesMax {
		t.Errorf("the books are not as promised: %+v", books)
	}
	lost := map[string]bool{}
	for i := copied; i < tasks; i++ {
		lost[d.requests.Request(i).DeliveryID] = true
	}
	for _, e := range books.Examples {
		if e.Finding == drone.FoundHalfDone && !lost[e.Task] {
			t.Errorf("a task that was accepted before the copy is half done: %+v", e)
		}
	}
	t.Logf("%+v", books)
}
