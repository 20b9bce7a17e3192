// Command groups measures consumer groups side by side, in one process and in turn: package group, and the elastic
// partitioned consumer groups of orbit.go, reading the same stream into the same PostgreSQL.
//
//	go -C bench/groups run . -messages 20000 -rounds 3
//
// The stream is full when a run begins, and a run ends when every message has had its effect: a row that nothing keeps from
// being there twice. Elastic groups copy the stream into a work queue of their own first; that is part of what they do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/group"
	"duly.dev/duly/internal/localpg"
)

const (
	streamName = "ORDERS"
	payload    = 256 // bytes
	customers  = 997
	ahead      = 500 // publishes under way
	runMost    = 5 * time.Minute
)

func main() {
	messages := flag.Int("messages", 20_000, "how many messages the stream has")
	rounds := flag.Int("rounds", 3, "how often all subjects run, in turn")
	members := flag.Int("members", 4, "members of each group")
	partitions := flag.Int("partitions", 16, "partitions of each group")
	flag.Parse()
	if err := compare(context.Background(), os.Stdout, *messages, *rounds, *members, *partitions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rig is what all subjects share.
type rig struct {
	nc                            *nats.Conn
	js                            jetstream.JetStream
	pool                          *pgxpool.Pool
	messages, members, partitions int
}

// subject is one way to read the stream. It ends its members before it returns.
type subject struct {
	name string
	sql  bool // it has effects in SQL
	run  func(ctx context.Context, r *rig, id string, done func() bool) error
}

var subjects = []subject{
	{"duly group, batches of 256", true, duly(256, record)},
	{"duly group, a transaction a message", true, duly(1, record)},
	{"orbit elastic, a transaction a message", true, elastic(true)},
	{"duly group, handler does nothing", false, duly(256, nil)},
	{"orbit elastic, handler does nothing", false, elastic(false)},
}

// compare runs all subjects in turn, and prints messages a second of each round.
func compare(ctx context.Context, out io.Writer, messages, rounds, members, partitions int) error {
	r := &rig{messages: messages, members: members, partitions: partitions}
	end, err := r.start(ctx)
	defer end()
	if err != nil {
		return err
	}
	rates := map[string][]int{}
	for round := range rounds {
		for _, s := range subjects {
			took, err := r.once(ctx, s, fmt.Sprintf("g%d", round))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rates[s.name] = append(rates[s.name], int(float64(messages)/took.Seconds()))
		}
	}
	fmt.Fprintf(out, "%d messages of %d bytes, %d members, %d partitions; messages a second in each round\n", messages, payload, members, partitions)
	for _, s := range subjects {
		sorted := slices.Sorted(slices.Values(rates[s.name]))
		fmt.Fprintf(out, "%-40s median %6d of %v\n", s.name, sorted[len(sorted)/2], rates[s.name])
	}
	return nil
}

// start starts the servers and fills the stream.
func (r *rig) start(ctx context.Context) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	dir, err := os.MkdirTemp("", "groups")
	if err != nil {
		return end, err
	}
	ends = append(ends, func() { _ = os.RemoveAll(dir) }) // it is in the system's temporary directory
	server, err := natsserver.Start(natsserver.Options{Dir: dir, SyncOff: true})
	if err != nil {
		return end, err
	}
	ends = append(ends, func() { _ = server.Shutdown() }) // the program ends
	cluster, err := localpg.Start(localpg.Options{Settings: map[string]string{"max_connections": "200"}})
	if err != nil {
		return end, err
	}
	ends = append(ends, func() { _ = cluster.Stop() }) // the same
	url, err := cluster.NewDatabase(ctx)
	if err != nil {
		return end, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return end, err
	}
	config.MaxConns = int32(r.partitions + 4)
	if r.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return end, err
	}
	ends = append(ends, r.pool.Close)
	if err := group.Setup(ctx, r.pool); err != nil {
		return end, err
	}
	if _, err := r.pool.Exec(ctx, `CREATE TABLE effects (seq INT8 NOT NULL, subject TEXT NOT NULL)`); err != nil {
		return end, err
	}
	if r.nc, err = nats.Connect(server.ClientURL()); err != nil {
		return end, err
	}
	ends = append(ends, r.nc.Close)
	if r.js, err = jetstream.New(r.nc); err != nil {
		return end, err
	}
	return end, r.fill(ctx)
}

func (r *rig) fill(ctx context.Context) error {
	if _, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{"orders.*"}}); err != nil {
		return err
	}
	data := []byte(strings.Repeat("x", payload))
	for from := 0; from < r.messages; from += ahead {
		for i := from; i < min(from+ahead, r.messages); i++ {
			if _, err := r.js.PublishAsync(fmt.Sprintf("orders.c%d", i%customers), data); err != nil {
				return err
			}
		}
		select {
		case <-r.js.PublishAsyncComplete():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// handled counts what handlers without effects have had.
var handled atomic.Int64

// once runs a subject and checks its books.
func (r *rig) once(ctx context.Context, s subject, id string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, runMost)
	defer cancel()
	handled.Store(0)
	if _, err := r.pool.Exec(ctx, `TRUNCATE effects`); err != nil {
		return 0, err
	}
	counts := func() (n int) {
		if !s.sql {
			return int(handled.Load())
		}
		if err := r.pool.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n); err != nil {
			return 0 // the run's end tells
		}
		return n
	}
	began := time.Now()
	var took time.Duration
	err := s.run(ctx, r, fmt.Sprintf("%s-%d", id, slices.IndexFunc(subjects, func(o subject) bool { return o.name == s.name })), func() bool {
		took = time.Since(began)
		return counts() >= r.messages
	})
	if err != nil {
		return 0, err
	}
	if s.sql {
		var all, distinct int
		if err := r.pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT seq) FROM effects`).Scan(&all, &distinct); err != nil {
			return 0, err
		}
		if all != r.messages || distinct != r.messages {
			return 0, fmt.Errorf("%d effects of %d messages, want %d", all, distinct, r.messages)
		}
	}
	return took, nil
}

// await polls until done or the end of ctx.
func await(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// record is the effect of a batch.
func record(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
	seqs, subjects := make([]int64, len(msgs)), make([]string, len(msgs))
	for i, m := range msgs {
		seqs[i], subjects[i] = int64(m.Seq), m.Subject
	}
	_, err := tx.Exec(ctx, `INSERT INTO effects (seq, subject) SELECT * FROM unnest($1::INT8[], $2::TEXT[])`, seqs, subjects)
	return err
}

// duly runs members of package group.
func duly(batch int, handler group.Handler) func(context.Context, *rig, string, func() bool) error {
	if handler == nil {
		handler = func(_ context.Context, _ pgx.Tx, msgs []group.Msg) error {
			handled.Add(int64(len(msgs)))
			return nil
		}
	}
	return func(ctx context.Context, r *rig, id string, done func() bool) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		failed := make([]error, r.members)
		var all sync.WaitGroup
		for i := range r.members {
			all.Go(func() {
				failed[i] = group.Run(ctx, r.nc, r.pool, streamName, handler, group.Name(id), group.Batch(batch, group.BytesDefault),
					group.Partitioned(group.HashOfTokens(r.partitions, 2)), group.Logger(slog.New(slog.DiscardHandler)))
				if failed[i] != nil {
					stop()
				}
			})
		}
		err := await(ctx, done)
		stop()
		all.Wait()
		return errors.Join(append(failed, err)...)
	}
}

// elastic runs members of an elastic group, as its README does: a message is acknowledged once its effect is committed.
func elastic(sql bool) func(context.Context, *rig, string, func() bool) error {
	return func(ctx context.Context, r *rig, id string, done func() bool) (err error) {
		filters := []pcgroups.PartitioningFilter{{Filter: "orders.*", PartitioningWildcards: []int{1}}}
		if _, err := pcgroups.CreateElastic(ctx, r.js, streamName, id, uint(r.partitions), filters, -1, -1); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, pcgroups.DeleteElastic(context.WithoutCancel(ctx), r.js, streamName, id))
		}()
		var names []string
		for i := range r.members {
			names = append(names, fmt.Sprintf("m%d", i))
		}
		if _, err := pcgroups.AddMembers(ctx, r.js, streamName, id, names); err != nil {
			return err
		}
		var failed atomic.Pointer[error]
		var consumers []pcgroups.ConsumerGroupConsumeContext
		defer func() {
			for _, c := range consumers {
				c.Stop()
			}
		}()
		for _, name := range names {
			c, err := pcgroups.ElasticConsume(ctx, r.js, streamName, id, name, func(msg jetstream.Msg) {
				if err := r.effect(ctx, msg, sql); err != nil {
					failed.Store(&err)
				}
			}, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000})
			if err != nil {
				return err
			}
			consumers = append(consumers, c)
		}
		err = await(ctx, func() bool { return failed.Load() != nil || done() })
		if why := failed.Load(); why != nil {
			return *why
		}
		return err
	}
}

// effect has a message take effect and acknowledges it.
func (r *rig) effect(ctx context.Context, msg jetstream.Msg, sql bool) error {
	if sql {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if _, err := r.pool.Exec(ctx, `INSERT INTO effects (seq, subject) VALUES ($1, $2)`, int64(meta.Sequence.Stream), msg.Subject()); err != nil {
			return err
		}
	} else {
		handled.Add(1)
	}
	return msg.Ack()
}
