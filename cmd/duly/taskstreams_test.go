package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/internal/wire"
)

// streamed is an application on a cluster whose number of task streams changes.
type streamed struct {
	*cluster
	js     jetstream.JetStream
	plan   *duly.Plan[int]
	client *duly.Client

	background sync.WaitGroup // of submitters

	mu       sync.Mutex
	accepted map[string]bool
	done     map[string]int // calls by key: a key is one step of one task
}

func newStreamed(t *testing.T) *streamed {
	t.Helper()
	s := &streamed{cluster: newCluster(t), accepted: map[string]bool{}, done: map[string]int{}}
	var err error
	if s.js, err = jetstream.New(s.nc); err != nil {
		t.Fatal(err)
	}
	if s.client, err = duly.NewClient(s.nc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.background.Wait() })
	s.plan = duly.NewPlan("count", 1, duly.NewCheck[int, int]("one", "count.one"))
	if _, err := s.nc.QueueSubscribe("duly.do.count.one", "q", func(m *nats.Msg) {
		var call struct{ Key string }
		if err := json.Unmarshal(m.Data, &call); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.done[call.Key]++
		s.mu.Unlock()
		_ = m.Respond([]byte("1"))
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// args are those of a node with so many task streams.
func (s *streamed) args(name, roles string, streams int) []string {
	return append(s.cluster.args(name, roles), "--task-streams", strconv.Itoa(streams))
}

func (s *streamed) node(name, roles string, streams int) *child {
	s.t.Helper()
	c := start(s.t, s.args(name, roles, streams)...)
	c.ready()
	return c
}

// submit hands tasks in by both doors until each is accepted.
func (s *streamed) submit(name string, n int) {
	s.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d", name, i)
		until(s.t, id+" accepted", func() bool {
			ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
			defer cancel()
			var err error
			if i%2 == 0 {
				_, err = s.plan.Submit(ctx, s.client, id, i)
			} else {
				_, err = s.js.Publish(ctx, "duly.in.count."+id, []byte(strconv.Itoa(i)))
			}
			return err == nil
		})
		s.mu.Lock()
		s.accepted[id] = true
		s.mu.Unlock()
	}
}

// meanwhile submits one task after the other until it is told to stop, which it waits for.
func (s *streamed) meanwhile(name string) (stop func()) {
	told := make(chan struct{})
	ended := make(chan struct{})
	s.background.Go(func() {
		defer close(ended)
		for i := 0; ; i++ {
			s.submit(fmt.Sprintf("%s%d", name, i), 2) // by each door
			select {
			case <-told:
				return
			default:
			}
		}
	})
	return sync.OnceFunc(func() {
		close(told)
		<-ended
	})
}

// change runs the command to its end.
func (s *streamed) change(to int) {
	s.t.Helper()
	code, out, errs := command(s.t, "", s.changing(to)...)
	if code != exitDone {
		s.t.Fatalf("to %d: exit %d\n%s%s", to, code, out, errs)
	}
	s.t.Logf("to %d:\n%s", to, out)
}

func (s *streamed) changing(to int) []string {
	return []string{"task-streams", strconv.Itoa(to), "--nats-url", s.nats, "--database-url", s.db}
}

// killed runs the command and ends it by kill -9 when it has said its first line.
func (s *streamed) killed(to int) {
	s.t.Helper()
	var out firstLine
	c, err := spawnWith(s.t, func(cmd *exec.Cmd) {
		out.then = func() { _ = cmd.Process.Kill() } // an error says that it is gone
		cmd.Stdout = &out
	}, s.changing(to)...)
	if err != nil {
		s.t.Fatal(err)
	}
	<-c.done
	if c.code > 0 { // -1: by a signal, 0: that came too late
		s.t.Fatalf("to %d, killed: exit %d\n%s%s", to, c.code, out.b.String(), c.log())
	}
	s.t.Logf("to %d, killed:\n%s", to, out.b.String())
}

// interrupted runs the command and tells it to end, as Ctrl-C does, when it has said its first line.
func (s *streamed) interrupted(to int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	out, errs := firstLine{then: cancel}, bytes.Buffer{}
	code := run(ctx, s.changing(to), streams{strings.NewReader(""), &out, &errs})
	s.t.Logf("to %d, interrupted: exit %d\n%s%s", to, code, out.b.String(), errs.String())
}

// firstLine does something when it has one, and again at what follows.
type firstLine struct {
	b    bytes.Buffer
	then func()
}

func (w *firstLine) Write(p []byte) (int, error) {
	w.b.Write(p)
	if bytes.ContainsRune(w.b.Bytes(), '\n') {
		w.then()
	}
	return len(p), nil
}

// balanced waits for every accepted task to end, and compares what is in SQL with what was
// accepted.
func (s *streamed) balanced() {
	s.t.Helper()
	until(s.t, "every task ends", func() bool { return s.ended() >= len(s.accepted) })
	audit, err := s.store.Books(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for id := range s.accepted {
		if want := map[bool]string{true: "undone", false: "processed"}[strings.HasPrefix(id, "cancelled")]; audit.States[id] != want {
			s.t.Errorf("%s is %q, want %s", id, audit.States[id], want)
		}
	}
	if len(audit.States) != len(s.accepted) {
		s.t.Errorf("%d tasks in SQL, %d accepted", len(audit.States), len(s.accepted))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.done {
		if n != 1 {
			s.t.Errorf("%s was called %d times", key, n)
		}
	}
}

// configs are the streams of submissions and controls.
func (s *streamed) configs() map[string]jetstream.StreamConfig {
	s.t.Helper()
	all := map[string]jetstream.StreamConfig{}
	list := s.js.ListStreams(s.t.Context())
	for info := range list.Info() {
		if name := info.Config.Name; strings.HasPrefix(name, "DULY_TASKS") || strings.HasPrefix(name, "DULY_CONTROL") || name == "DULY_IN" {
			all[name] = info.Config
		}
	}
	if err := list.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// cancelUnread cancels a task whose submission no partition has read.
func (s *streamed) cancelUnread(id string) {
	s.t.Helper()
	if err := s.client.Cancel(s.t.Context(), "count", id, "not wanted", duly.EvenIfUnknown()); err != nil {
		s.t.Fatal(err)
	}
}

// streamedEach is how many tasks are submitted at a time.
const streamedEach = 60

// round changes the number of task streams with kill -9 and Ctrl-C in the middle, and reports
// whether one came in time. scheduler is the one that runs before; it returns the one that does then.
func (s *streamed) round(name string, scheduler *child, from, to int) (_ *child, cut bool) {
	s.t.Helper()
	door := s.node(name+"-door", "ingest", from)
	if code := scheduler.term(); code != 0 {
		s.t.Fatalf("exit %d", code)
	}
	s.submit(name+"-unread", streamedEach)
	s.submit("cancelled-"+name, 1)
	s.cancelUnread("cancelled-" + name + "-0")
	stop := s.meanwhile(name + "-meanwhile")
	defer stop()
	if to > 1 { // a process each, of which there are few
		s.killed(to)
	}
	s.interrupted(to)
	if s.configs()["DULY_TASKS"].Metadata["duly_task_streams"] == fmt.Sprintf("%d>%d", from, to) { // the kill came in time
		cut = true
		for _, streams := range []int{from, to} {
			if code, _, errs := command(s.t, "", s.args("early", "scheduler", streams)...); code == 0 || !strings.Contains(errs, fmt.Sprintf("the change from %d to %d task streams is not finished", from, to)) {
				s.t.Errorf("a node with %d in the middle of the change: exit %d, %s", streams, code, errs)
			}
		}
	}
	s.change(to)
	stop()
	if code, _, errs := command(s.t, "", s.args("late", "scheduler", from)...); code == 0 || !strings.Contains(errs, fmt.Sprintf("task streams are %d, want %d (--task-streams)", to, from)) {
		s.t.Errorf("a node with %d: exit %d, %s", from, code, errs)
	}
	s.submit(name+"-open", 8) // by a door that still thinks of the former number
	door.term()
	scheduler = s.node(name, "ingest,scheduler,supervisor", to)
	since := time.Now()
	s.submit(name+"-after", streamedEach)
	s.balanced()
	s.inTheirStreams(to, since)
	return scheduler, cut
}

// TestTaskStreamsChange: 1, 3, 2 and 1 task streams, with submissions going on before and
// after, unread submissions and requests in the streams at each change, and kill -9 and
// Ctrl-C in the middle of each: nothing is lost and nothing doubled. Nodes of another number are refused.
//
// covers: I8, inv1
func TestTaskStreamsChange(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	first := s.node("first", "ingest,scheduler,supervisor", 1)
	if err := s.plan.Apply(t.Context(), s.client); err != nil {
		t.Fatal(err)
	}
	s.submit("before", streamedEach)
	s.balanced()
	original := s.configs()
	scheduler, from, unfinished := first, 1, 0
	for round, to := range []int{3, 2, 1} {
		var cut bool
		if scheduler, cut = s.round(fmt.Sprintf("r%d", round), scheduler, from, to); cut {
			unfinished++
		}
		from = to
	}
	if unfinished == 0 {
		t.Error("no kill came in the middle of a change")
	}
	now := s.configs()
	for stream, was := range original {
		is := now[stream]
		delete(is.Metadata, "duly_task_ids")
		if !slices.Equal(is.Subjects, was.Subjects) || fmt.Sprint(is.SubjectTransform) == fmt.Sprint(nil) != (was.SubjectTransform == nil) || !maps.Equal(is.Metadata, was.Metadata) || was.MaxBytes-is.MaxBytes > 16 {
			t.Errorf("%s: %+v\nwas %+v", stream, is, was)
		}
	}
}

// TestDatabaseOlderThanTaskStreams: a database from before a change of the task streams is not
// read from the wrong stream: the partitions that moved are not taken over until the command
// has moved what that database has not read.
//
// covers: inv1
func TestDatabaseOlderThanTaskStreams(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	first := s.node("first", "ingest,scheduler,supervisor", 1)
	if err := s.plan.Apply(t.Context(), s.client); err != nil {
		t.Fatal(err)
	}
	s.submit("early", 20)
	s.balanced()
	door := s.node("door", "ingest", 1)
	first.term()
	s.submit("late", 40)
	db, err := sql.Open("pgx", s.db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // nothing was written that is not checked
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE backup AS SELECT * FROM partitions"); err != nil {
		t.Fatal(err)
	}
	s.change(3)
	door.term()
	if _, err := db.ExecContext(t.Context(), `UPDATE partitions p SET stream = b.stream, cursor = b.cursor, control_cursor = b.control_cursor, epoch = b.epoch, last_commit = b.last_commit
		FROM backup b WHERE b.partition = p.partition`); err != nil {
		t.Fatal(err)
	}
	refused := start(t, s.args("refused", "ingest,scheduler,supervisor", 3)...)
	until(t, "a partition is refused", func() bool {
		return strings.Contains(refused.log(), "the database is older than a change of the task streams")
	})
	// Not by kill -9: a call of a partition that was not refused may be under way, and would come again.
	if code := refused.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.change(3)
	s.node("last", "ingest,scheduler,supervisor", 3)
	s.submit("then", 20)
	s.balanced()
}

// TestTaskStreamsLeastPrivilege: nodes on three task streams do their work with the sets of
// nats-permissions for three, without one violation.
func TestTaskStreamsLeastPrivilege(t *testing.T) {
	t.Parallel()
	s := secure(t, []string{"--task-streams", "3", "--plain-door", "door=ingest", "worker=scheduler", "watcher=supervisor", "crew=agent:count.one", "shop=submitter:count", "ops=operator"})
	db := migrated(t)
	for _, at := range [][2]string{{"worker", "scheduler"}, {"door", "ingest"}, {"watcher", "supervisor"}} { // the scheduler first: it makes the streams
		s.serve(at[0], at[1], db, "--task-streams", "3").ready()
	}
	crew := s.connect("crew", s.mustNot)
	if _, err := crew.QueueSubscribe("duly.do.count.one", "q", func(m *nats.Msg) { _ = m.Respond([]byte("1")) }); err != nil {
		t.Fatal(err)
	}
	ops, err := duly.NewClient(s.connect("ops", s.mustNot), duly.WithoutEvents())
	if err != nil {
		t.Fatal(err)
	}
	plan := duly.NewPlan("count", 1, duly.NewCheck[int, int]("one", "count.one"))
	if err := plan.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	nc := s.connect("shop", s.mustNot)
	shop, err := duly.NewClient(nc, duly.WithoutEvents())
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for i := range 12 {
		id := fmt.Sprintf("t-%d", i)
		if i%2 == 0 {
			_, err = plan.Submit(t.Context(), shop, id, i)
		} else {
			_, err = js.Publish(t.Context(), "duly.in.count."+id, []byte("1"))
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		until(t, id+" ends", func() bool {
			v, err := shop.Get(t.Context(), "count", id)
			return err == nil && v.State == duly.StateProcessed
		})
	}
	if all := s.list(); len(all) > 0 {
		t.Errorf("violations: %q", all)
	}
}

// inTheirStreams checks that what came since then is stored where its partition is.
func (s *streamed) inTheirStreams(streams int, since time.Time) {
	s.t.Helper()
	var names wire.Names
	for p := range 8 {
		stream, err := s.js.Stream(s.t.Context(), names.StreamTasksAt(wire.TaskStreamOf(p, streams)))
		if err != nil {
			s.t.Fatal(err)
		}
		msg, err := stream.GetLastMsgForSubject(s.t.Context(), names.TasksPattern(p))
		if err != nil || msg.Time.Before(since) {
			s.t.Errorf("partition %d in %s: %v, %v", p, stream.CachedInfo().Config.Name, msg, err)
		}
	}
}
