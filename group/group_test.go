package group_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/group"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
)

// rules are the rules with subjects that fit.
var rules = []struct {
	name    string
	by      group.By
	subject func(int) string
}{
	{"hash of the subject", group.HashOfSubject(partitions), byCustomer},
	{"hash of a token", group.HashOfTokens(partitions, 2), byCustomer},
	{"token", group.Token(partitions, 2), byNumber},
}

// TestOnce: every message takes effect once and in order, by any rule, with members that come and go.
func TestOnce(t *testing.T) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			options := []group.Option{group.Partitioned(rule.by), group.Linger(time.Millisecond), group.Batch(100, 1000)}
			a := w.run("a", nil, options...)
			w.publish(2000, rule.subject)
			b := w.run("b", nil, options...)
			w.await("both have partitions", func() bool { return w.balanced(2) })
			w.right(w.publish(2000, rule.subject))
			if err := a.end(); err != nil {
				t.Error(err)
			}
			w.right(w.publish(2000, rule.subject))
			if err := b.end(); err != nil {
				t.Error(err)
			}
			for _, p := range w.status() {
				if p.Owner != "" || p.Epoch == 0 {
					t.Errorf("after all have left: %+v", p)
				}
			}
		})
	}
}

// TestBatchIsBounded: no handler gets more than Batch says, in messages and bytes, and all of one partition.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	const most, size = 7, 100
	w := newWorld(t)
	var wrong, largest atomic.Int64
	last := w.publish(500, byCustomer)
	w.run("a", func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
		bytes := 0
		for _, m := range msgs {
			bytes += len(m.Subject) + len(m.Data)
			if m.Partition != msgs[0].Partition || m.Seq == 0 || m.Time.IsZero() || !strings.HasPrefix(m.Subject, "orders.c") || string(m.Data) != "x" {
				wrong.Add(1)
			}
		}
		if len(msgs) > most || bytes > size && len(msgs) > 1 {
			wrong.Add(1)
		}
		largest.Store(max(largest.Load(), int64(len(msgs))))
		return record(ctx, tx, msgs, "a")
	}, group.Batch(most, size))
	w.right(last)
	if wrong.Load() > 0 || largest.Load() < 2 {
		t.Errorf("%d batches are wrong, the largest has %d messages", wrong.Load(), largest.Load())
	}
}

// TestFirstRunDecides: a later Run that says otherwise is refused, with both in its words.
func TestFirstRunDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("a", nil)
	w.await("it runs", func() bool { return len(w.owners()) == 1 && w.owners()[""] == 0 })
	if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "QUEUE", Subjects: []string{"q"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	w.publish(1, func(int) string { return "orders.99.x" })
	never := func(context.Context, pgx.Tx, []group.Msg) error { return nil }
	for _, test := range []struct {
		want    string
		is      error
		stream  string
		options []group.Option
	}{
		{"12 partitions, were 16", group.ErrOtherGroup, streamName, []group.Option{group.Partitioned(group.HashOfTokens(12, 2))}},
		{"hash of the subject, were by hash of tokens 2", group.ErrOtherGroup, streamName, []group.Option{group.Partitioned(group.HashOfSubject(partitions))}},
		{"of orders.a.>", group.ErrOtherGroup, streamName, []group.Option{group.Partitioned(group.HashOfTokens(partitions, 2)), group.Filter("orders.a.>")}},
		{"stream OTHER, was " + streamName, group.ErrOtherGroup, "OTHER", []group.Option{group.Name(streamName)}},
		{"retention", nil, "QUEUE", nil},
		{"not found", jetstream.ErrStreamNotFound, "NONE", nil},
		{"1 have a token 2 that is no partition's", nil, streamName, []group.Option{group.Name("numbers"), group.Partitioned(group.Token(partitions, 2))}},
		{"ends at 1", nil, streamName, []group.Option{group.Name("late"), group.After(2)}},
		{"token 1 is no partition", nil, streamName, []group.Option{group.Name("first"), group.Partitioned(group.Token(partitions, 1))}},
		{"Batch: messages: 0, want 1 to 10000", nil, streamName, []group.Option{group.Batch(0, 1)}},
		{"Batch: bytes: 0", nil, streamName, []group.Option{group.Batch(1, 0)}},
		{"Lease: 1ms, want 200ms to 5m0s", nil, streamName, []group.Option{group.Lease(time.Millisecond)}},
		{"0 partitions, want 1 to 4096", nil, streamName, []group.Option{group.Partitioned(group.HashOfSubject(0))}},
		{"token 0", nil, streamName, []group.Option{group.Partitioned(group.Token(1, 0))}},
		{`name "a.b"`, nil, streamName, []group.Option{group.Name("a.b")}},
		{"Retry: longest pause", nil, streamName, []group.Option{group.Retry(1, time.Second, time.Millisecond)}},
	} {
		err := group.Run(t.Context(), w.nc, w.pool, test.stream, never, test.options...)
		if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	bare := connect(t, pgtestdb.URL(t))
	if err := group.Run(t.Context(), w.nc, bare, streamName, never); !errors.Is(err, group.ErrNoTable) {
		t.Errorf("%v, want ErrNoTable", err)
	}
}

// TestStrayComesLater: a message of no partition, which anyone may have published since the first Run, keeps no later one from
// handling the others.
func TestStrayComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := group.Partitioned(group.Token(partitions, 2))
	first := w.run("a", nil, rule)
	w.right(w.publish(100, byNumber))
	stray := w.publish(1, func(int) string { return "orders.99.paid" })
	if err := first.end(); err != nil {
		t.Error(err)
	}
	second := w.run("b", nil, rule)
	last := w.publish(100, byNumber)
	w.await("all others are handled", func() bool {
		select {
		case <-second.ended:
			t.Fatal(second.err)
		default:
		}
		return w.count() == last-1
	})
	w.right(last, stray)
}

// TestOtherStream: a stream that was deleted and made again is not read on, by a member that runs and by one that begins,
// until the group is forgotten.
func TestOtherStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run("a", nil)
	w.right(w.publish(100, byCustomer))
	if err := w.js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	w.stream(jetstream.StreamConfig{})
	w.publish(200, byCustomer)
	for _, err := range []error{r.wait(), w.run("b", nil).wait()} {
		if !errors.Is(err, group.ErrOtherStream) || strings.Count(err.Error(), "made at 20") != 2 {
			t.Errorf("%v, want ErrOtherStream with both times", err)
		}
	}
	if n := w.count(); n != 100 {
		t.Errorf("%d effects, want the first stream's 100", n)
	}
	if err := group.Forget(t.Context(), w.pool, streamName); err != nil {
		t.Fatal(err)
	}
	w.run("c", nil)
	w.await("the new stream is read", func() bool { return w.count() == 300 })
}

// TestRewound: a stream that ends before a cursor, or has another message there, is not read on.
func TestRewound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"ends before it":            `UPDATE duly_group_partition SET cursor = 1000000 WHERE partition = 3`,
		"has another message there": `UPDATE duly_group_partition SET stored = stored - 1 WHERE partition = 3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.run("a", nil)
			w.right(w.publish(500, byCustomer))
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			if _, err := w.pool.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if err := w.run("b", nil).wait(); !errors.Is(err, group.ErrRewound) {
				t.Errorf("%v, want ErrRewound", err)
			}
		})
	}
}

// TestDatabaseWentBack: what a database has lost, as a standby may that took over, is handled again, also where no message
// comes any more.
func TestDatabaseWentBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("a", nil)
	last := w.publish(200, byCustomer)
	w.await("all is read", func() bool {
		return !slices.ContainsFunc(w.status(), func(p group.Partition) bool { return p.Cursor < last })
	})
	if _, err := w.pool.Exec(t.Context(), `WITH lost AS (DELETE FROM effects WHERE seq > 120)
		UPDATE duly_group_partition SET cursor = 120, stored = 0`); err != nil {
		t.Fatal(err)
	}
	w.right(last)
}

// TestFence: an owner that was replaced while its handler worked cannot commit, whatever the handler wrote.
func TestFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	last := w.publish(100, byCustomer)
	var once sync.Once
	working, raised := make(chan struct{}), make(chan struct{})
	w.run("a", func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
		name := "new"
		once.Do(func() { name = "old" })
		err := record(ctx, tx, msgs, name)
		if name == "old" {
			close(working)
			<-raised
		}
		return err
	})
	<-working
	if _, err := w.pool.Exec(t.Context(), `UPDATE duly_group_partition SET epoch = epoch + 1, owner = ''`); err != nil {
		t.Fatal(err)
	}
	close(raised)
	w.right(last) // by the same member, under another epoch
	var old int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE member = 'old'`).Scan(&old); err != nil || old > 0 {
		t.Errorf("%d effects of the owner that was replaced, %v", old, err)
	}
}

// TestPoison: a message that cannot be handled stops its partition, and only that; it is resumed with or without it, or a
// verdict leaves it out. Each is recorded.
func TestPoison(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE dead (seq INT8 NOT NULL, why TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	last := w.publish(300, byCustomer)
	const stops, panics, dies = 50, 150, 250
	var healed atomic.Bool
	handler := func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
		for _, m := range msgs {
			switch {
			case m.Seq == stops && !healed.Load():
				if _, err := tx.Exec(ctx, `SELECT * FROM nowhere`); err == nil {
					return errors.New("there is such a table")
				}
				return nil // the group must see by itself that this transaction has failed
			case m.Seq == panics:
				panic("at the message")
			case m.Seq == dies:
				return errPoison
			}
		}
		return record(ctx, tx, msgs, "a")
	}
	var asked atomic.Int64
	judge := func(ctx context.Context, tx pgx.Tx, p group.Poison) (group.Verdict, error) {
		if p.Tries < 3 || p.Tries > 3 && asked.Load() < 2 {
			t.Errorf("message %d was tried %d times, want 3", p.Msg.Seq, p.Tries)
		}
		switch {
		case p.Msg.Seq != dies:
			return group.Stop, nil
		case asked.Add(1) == 1:
			return group.Try, nil
		case asked.Load() == 2:
			return 0, errors.New("the judge is away")
		}
		_, err := tx.Exec(ctx, `INSERT INTO dead (seq, why) VALUES ($1, $2)`, int64(p.Msg.Seq), p.Err.Error())
		return group.Skip, err
	}
	w.run("a", handler, group.OnPoison(judge))
	stopped := func() (n []int) {
		for _, p := range w.status() {
			if p.Stopped != "" {
				n = append(n, p.Partition)
			}
		}
		return n
	}
	w.await("two are stopped, one skips", func() bool { return len(stopped()) == 2 && w.incidents()[group.KindSkipped] == 1 })
	healed.Store(true)
	for _, p := range stopped() {
		skip := strings.Contains(w.status()[p].Stopped, "panic")
		if err := group.Resume(t.Context(), w.pool, streamName, p, skip); err != nil {
			t.Fatal(err)
		}
		if err := group.Resume(t.Context(), w.pool, streamName, p, skip); !errors.Is(err, group.ErrNotStopped) {
			t.Errorf("again: %v, want ErrNotStopped", err)
		}
	}
	w.right(last, panics, dies)
	var dead, n int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*), COALESCE(min(seq), 0) FROM dead WHERE why = 'poison'`).Scan(&n, &dead); err != nil || n != 1 || dead != dies {
		t.Errorf("%d dead letters, of message %d, %v", n, dead, err)
	}
	if got := w.incidents(); got[group.KindStopped] != 2 || got[group.KindSkipped] != 2 {
		t.Errorf("incidents %v, want 2 stopped, 2 skipped", got)
	}
}

// incidents are how many of each kind there are.
func (w *world) incidents() map[string]int {
	w.t.Helper()
	all, err := group.Incidents(w.t.Context(), w.pool, streamName, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	n := map[string]int{}
	for _, i := range all {
		n[i.Kind]++
	}
	return n
}

// TestOneInTroubleHoldsUpNone: a partition whose handler fails and fails does not keep the others of its member waiting,
// although they share a feed; and nothing of it is lost that had no room meanwhile.
func TestOneInTroubleHoldsUpNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var healed atomic.Bool
	w.run("a", func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
		if msgs[0].Partition == 3 && !healed.Load() {
			return errPoison
		}
		return record(ctx, tx, msgs, "a")
	}, group.Batch(10, 10_000), group.OnPoison(func(context.Context, pgx.Tx, group.Poison) (group.Verdict, error) { return group.Try, nil }))
	last := w.publish(4000, byCustomer)
	others := uint64(0)
	for i := range 4000 {
		if number(byCustomer(i)) != 3 {
			others++
		}
	}
	if others == 4000 {
		t.Fatal("partition 3 has no messages")
	}
	w.await("the others are done", func() bool { return w.count() == others })
	healed.Store(true)
	w.right(last)
}

// number is the partition of a subject as the server's mapping has it.
func number(subject string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Split(subject, ".")[1]))
	return int(h.Sum32() % partitions)
}

// TestHashIsTheServers: HashOfTokens puts a message into the partition that the server's subject mapping names.
func TestHashIsTheServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MAPPED", Subjects: []string{"in.*.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "in.*.*", Destination: fmt.Sprintf("mapped.{{partition(%d,1)}}.{{wildcard(1)}}.{{wildcard(2)}}", partitions)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := w.js.Publish(t.Context(), fmt.Sprintf("in.c%d.x", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	var same, other atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	compare := func(_ context.Context, _ pgx.Tx, msgs []group.Msg) error {
		for _, m := range msgs {
			if fmt.Sprint(m.Partition) == strings.Split(m.Subject, ".")[1] {
				same.Add(1)
			} else {
				other.Add(1)
			}
		}
		return nil
	}
	go func() {
		ended <- group.Run(ctx, w.nc, w.pool, "MAPPED", compare, group.Partitioned(group.HashOfTokens(partitions, 3)), group.Logger(w.log))
	}()
	go func() {
		ended <- group.Run(ctx, w.nc, w.pool, "MAPPED", compare, group.Name("by-number"), group.Partitioned(group.Token(partitions, 2)), group.Filter("mapped.>"), group.Logger(w.log))
	}()
	w.await("all are compared", func() bool { return same.Load()+other.Load() >= 400 })
	if other.Load() > 0 {
		t.Errorf("%d of %d are in another partition", other.Load(), same.Load()+other.Load())
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestGap: what is removed before it was read is recorded and told, for those partitions alone that had not read it; or the
// partition stops there. What is removed behind all cursors is no gap.
func TestGap(t *testing.T) {
	t.Parallel()
	for _, rule := range rules[1:] {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stream := w.stream(jetstream.StreamConfig{})
			var told atomic.Int64
			refuse := group.OnGap(func(_ context.Context, _ pgx.Tx, g group.Gap) error {
				if told.Add(1); g.Partition == 5 {
					return fmt.Errorf("%d to %d are gone", g.First, g.Last)
				}
				return nil
			})
			r := w.run("a", nil, group.Partitioned(rule.by), refuse)
			read := w.publish(100, rule.subject)
			quiet := w.publish(50, func(int) string { return rule.subject(0) }) // the others have no part in these
			w.right(quiet)
			w.await("the cursors settle", func() bool {
				return !slices.ContainsFunc(w.status(), func(p group.Partition) bool { return p.Cursor < quiet })
			})
			if err := stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.right(w.publish(100, rule.subject))
			if told.Load() > 0 || len(w.incidents()) > 0 {
				t.Errorf("%d gaps are told, %v, although %d messages were read", told.Load(), w.incidents(), read)
			}
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			from := w.publish(200, rule.subject)
			if err := stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			last := w.publish(100, rule.subject)
			w.run("b", nil, group.Partitioned(rule.by), refuse)
			w.await("the gap is told", func() bool {
				n := w.incidents()
				return n[group.KindGap] == partitions-1 && n[group.KindStopped] == 1
			})
			if err := group.Resume(t.Context(), w.pool, streamName, 5, true); err != nil {
				t.Fatal(err)
			}
			w.await("it goes on", func() bool { return w.count() == 350 })
			gone := make([]uint64, 0, 200)
			for seq := from - 199; seq <= from; seq++ {
				gone = append(gone, seq)
			}
			if v := w.judge(last, gone...); v != (verdict{}) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestDatabaseTrouble: the database asks for another try, does not know what it has committed, is slow and loses connections,
// as PostgreSQL and as CockroachDB: nothing is lost or doubled.
func TestDatabaseTrouble(t *testing.T) {
	t.Parallel()
	for _, cockroach := range []bool{false, true} {
		t.Run(fmt.Sprintf("cockroach %t", cockroach), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			proxy, err := pgfault.Start(w.url, pgfault.Faults{Seed: 3, Rate: 0.15, Cockroach: cockroach})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := proxy.Close(); err != nil {
					t.Error(err)
				}
			})
			direct := w.pool
			r := w.run("a", nil, group.Batch(5, 1000))
			w.await("it runs", func() bool { return w.balanced(1) })
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			proxied := connect(t, proxy.URL())
			var through *running
			for begun := false; !begun; { // the beginning is not tried again by itself
				w.pool = proxied
				through = w.run("b", nil, group.Batch(5, 1000))
				w.pool = direct
				w.await("it runs, or has ended", func() bool {
					select {
					case <-through.ended:
						return true
					default:
					}
					begun = w.balanced(1)
					return begun
				})
			}
			w.right(w.publish(3000, byCustomer))
			counts := proxy.Counts()
			for _, kind := range pgfault.Kinds {
				if counts[kind] == 0 {
					t.Errorf("%s never happened", kind)
				}
			}
			t.Logf("%v", counts)
			if err := through.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLastMessagesLostOnTheWay: messages that were sent to a connection which was lost are read again, also where no other
// ones follow that would show it.
func TestLastMessagesLostOnTheWay(t *testing.T) {
	t.Parallel()
	for _, rule := range rules[1:] {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			direct := w.nc
			k := newLink(t, strings.TrimPrefix(w.server.ClientURL(), "nats://"))
			w.nc, _ = dial(t, "nats://"+k.addr())
			w.run("a", nil, group.Partitioned(rule.by), group.Settle(time.Hour), group.Lease(20*time.Second))
			w.nc = direct
			w.right(w.publish(50, rule.subject))
			k.swallow.Store(true)
			last := w.publish(50, rule.subject)
			w.await("the server has sent them", func() bool {
				stream, err := w.js.Stream(t.Context(), streamName)
				if err != nil {
					t.Fatal(err)
				}
				sent := uint64(0)
				for c := range stream.ListConsumers(t.Context()).Info() {
					sent += c.Delivered.Consumer
				}
				return sent >= last
			})
			k.cut()
			k.swallow.Store(false)
			w.right(last)
		})
	}
}

// TestMemberWithoutDatabase: a member that cannot reach the database, while others can, loses its partitions to them, and gets
// some back.
func TestMemberWithoutDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, err := pgx.ParseConfig(w.url)
	if err != nil {
		t.Fatal(err)
	}
	k := newLink(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	direct := w.pool
	w.pool = connect(t, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", config.User, k.addr(), config.Database))
	w.run("a", nil)
	w.pool = direct
	w.run("b", nil)
	w.await("both have partitions", func() bool { return w.balanced(2) })
	k.refuse.Store(true)
	k.cut()
	w.await("b has all", func() bool { return w.without("a") })
	w.right(w.publish(200, byCustomer))
	k.refuse.Store(false)
	w.await("both have partitions again", func() bool { return w.balanced(2) })
	w.right(w.publish(200, byCustomer))
}

// TestHandlerIsCutOff: a handler that does not end has Drain, and then the partition is another member's.
func TestHandlerIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var blocked atomic.Int64
	w.run("a", func(ctx context.Context, _ pgx.Tx, _ []group.Msg) error {
		blocked.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}, group.Drain(50*time.Millisecond))
	last := w.publish(200, byCustomer)
	w.await("all partitions are blocked", func() bool { return blocked.Load() >= partitions })
	w.run("b", nil)
	w.await("b has some", func() bool { return w.balanced(2) && w.count() > 0 })
	if v := w.judge(last); v.doubled > 0 || v.disordered > 0 {
		t.Errorf("%+v", v)
	}
}

// TestConnectionClosed: Run ends when its connection was closed for good.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run("a", nil)
	w.right(w.publish(50, byCustomer))
	w.nc.Close()
	if err := r.wait(); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("%v, want ErrConnectionClosed", err)
	}
}
