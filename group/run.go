package group

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/pause"
)

// Handler handles messages of one partition, in the order of the stream. What it writes in tx takes effect exactly once. An
// error rolls all of it back, and the messages come again. tx cannot be ended by the handler, and ctx ends when the partition
// must be given up: after [Drain], or with the process. Handlers of different partitions run at the same time.
type Handler func(ctx context.Context, tx pgx.Tx, msgs []Msg) error

// member is this process in the group, during one Run.
type member struct {
	cfg      config
	nc       *nats.Conn
	js       jetstream.JetStream
	store    store
	stream   string
	identity string
	filter   []string // that of Filter, or of the stream where the rule needs one
	replicas int
	handler  Handler
	id       string
	log      *slog.Logger
	crowd    *crowd
	fail     context.CancelCauseFunc

	poke    chan struct{}             // has an element when there may be something to place
	news    atomic.Bool               // there is
	told    chan struct{}             // has an element when the others should hear of it at once
	version atomic.Int64              // of what the others should look at
	trouble atomic.Pointer[time.Time] // since when the database cannot be reached
	work    sync.WaitGroup            // lanes and feeds
	lanes   map[int]*lane             // of the goroutine that places
	waiting map[int]time.Time         // the same: since when a living owner of a partition is waited for
	shared  *feed                     // of all lanes, where the rule is a hash
	ground  context.Context           // of lanes and feeds: ends after Run's
}

// Run makes this process a member of a group and hands messages of the stream to handler until ctx ends; then it finishes the
// batches at work, gives its partitions to the other members, and returns nil. Every member must be run with the same stream
// and rule. It needs a connection of the pool for each partition that is at work, and one more now and then.
//
// Errors: options that cannot be; the stream or the tables cannot be had; [ErrNoTable], [ErrOtherGroup], [ErrOtherStream],
// [ErrRewound]; the connection is closed. Once it runs, trouble with NATS or the database is logged and waited out.
func Run(ctx context.Context, nc *nats.Conn, pool *pgxpool.Pool, stream string, handler Handler, options ...Option) error {
	cfg, err := configOf(stream, options)
	if err != nil {
		return err
	}
	if handler == nil {
		return errors.New("group: no handler")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("group %s: %w", cfg.name, err)
	}
	m := &member{cfg: cfg, nc: nc, js: js, store: opened(pool, cfg.name, cfg.hold), stream: stream, handler: handler,
		id: memberID(cfg.member), poke: make(chan struct{}, 1), told: make(chan struct{}, 1), lanes: map[int]*lane{}, waiting: map[int]time.Time{}}
	m.log = cfg.log.With("group", cfg.name, "member", m.id)
	m.crowd = newCrowd(m.id, cfg.lease)
	if err := m.begin(ctx); err != nil {
		return err
	}
	return m.run(ctx)
}

// memberID is unlike that of any other member, also of an earlier life.
func memberID(name string) string {
	const random = 12
	if name != "" {
		name += "-"
	}
	return name + rand.Text()[:random]
}

// begin looks at the stream and compares the group with the database.
func (m *member) begin(ctx context.Context) error {
	stream, err := m.js.Stream(ctx, m.stream)
	if err != nil {
		return fmt.Errorf("group %s: stream %s: %w", m.cfg.name, m.stream, err)
	}
	info := stream.CachedInfo()
	if info.Config.Retention != jetstream.LimitsPolicy {
		return fmt.Errorf("group %s: stream %s: its retention is %v, want limits: others remove messages that the group has not read",
			m.cfg.name, m.stream, info.Config.Retention)
	}
	m.replicas = info.Config.Replicas
	if m.filter, err = m.cfg.filterOf(info); err != nil {
		return err
	}
	m.identity = identity(info)
	var stored int64
	if m.cfg.after > info.State.LastSeq {
		return fmt.Errorf("group %s: After: %d, stream %s ends at %d", m.cfg.name, m.cfg.after, m.stream, info.State.LastSeq)
	}
	if m.cfg.after == 0 && info.State.FirstSeq > 0 { // what was removed before the group began is no gap
		m.cfg.after = info.State.FirstSeq - 1
	}
	if m.cfg.after == info.State.LastSeq && m.cfg.after > 0 {
		stored = info.State.LastTime.UnixNano()
	}
	// Later a message of no partition is told, and stops none of the others.
	return m.store.found(ctx, m.stream, m.identity, m.cfg.by.rule(m.cfg.filter), m.cfg.by.partitions, m.cfg.after, stored, func() error { return m.strays(ctx, stream) })
}

// identity tells a stream from another one of its name. Servers before 2.15 may change it at a restart.
func identity(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// run is the life of a member.
func (m *member) run(ctx context.Context) error {
	inner, fail := context.WithCancelCause(ctx)
	m.fail = fail
	ground, end := context.WithCancel(context.WithoutCancel(ctx))
	m.ground = ground
	if m.cfg.by.hashed {
		m.shared = m.newFeed(m.filter, true)
		m.work.Go(func() { m.shared.run(ground) })
	}
	life, leave := context.WithCancel(ground) // of the lease: it ends after the partitions are released
	var lease sync.WaitGroup
	lease.Go(func() { m.beat(life) })
	lease.Go(func() { m.watch(life) })
	m.place(inner)
	m.leave(end)
	leave()
	lease.Wait()
	m.resign()
	end()
	cause := context.Cause(inner)
	fail(nil)
	if ctx.Err() == nil && cause != nil {
		return cause
	}
	return nil
}

// leave ends all lanes: after their batches, or after Drain.
func (m *member) leave(end context.CancelFunc) {
	timer := time.AfterFunc(m.cfg.drain, end)
	defer timer.Stop()
	for _, l := range m.lanes {
		l.quit()
	}
	for _, l := range m.lanes {
		<-l.ended
	}
	end()
	m.work.Wait()
}

// wake has the partitions placed again.
func (m *member) wake() {
	m.news.Store(true)
	signal(m.poke)
}

// bucket is the lease bucket's handle, which is made where it is missing: it is in the servers' memory, and lost with them.
func (m *member) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	const keptLeast = 10 * time.Second
	kv, err := m.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: "group-" + m.cfg.name, Description: "members of a consumer group (duly.dev/duly/group)",
		History: 1, TTL: max(keptLeast, 2*m.cfg.lease), Storage: jetstream.MemoryStorage, Replicas: max(1, m.replicas),
	})
	if err != nil {
		return nil, fmt.Errorf("lease bucket: %w", err)
	}
	return kv, nil
}

// beats are how many renewals a lease has.
const beats = 5

// unreachable is how many leases long the database may be away before a member lets others try.
const unreachable = 5

// beat renews the lease, as long as the database can be reached.
func (m *member) beat(ctx context.Context) {
	tick := time.NewTicker(m.cfg.lease / beats)
	defer tick.Stop()
	var kv jetstream.KeyValue
	for ctx.Err() == nil {
		if since := m.trouble.Load(); since == nil || time.Since(*since) < unreachable*m.cfg.lease {
			kv = m.renew(ctx, kv)
		}
		select {
		case <-ctx.Done():
		case <-m.told:
		case <-tick.C:
		}
	}
}

// renew renews the lease once; the bucket is looked for again after an error.
func (m *member) renew(ctx context.Context, kv jetstream.KeyValue) jetstream.KeyValue {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.lease)
	defer cancel()
	var err error
	if kv == nil {
		kv, err = m.bucket(ctx)
	}
	if err == nil {
		_, err = kv.Put(ctx, m.id, strconv.AppendInt(nil, m.version.Load(), 10))
	}
	if err != nil {
		m.log.Debug("the lease is not renewed", "error", err)
		return nil
	}
	return kv
}

// resign lets the others know that this member has left.
func (m *member) resign() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ground), releaseMost)
	defer cancel()
	kv, err := m.js.KeyValue(ctx, "group-"+m.cfg.name)
	if err == nil {
		err = kv.Delete(ctx, m.id)
	}
	if err != nil {
		m.log.Warn("the others are not told that this member leaves: they wait for the end of its lease", "error", err)
	}
}

// watch hears the members until ctx ends.
func (m *member) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.hear(ctx)
		if m.nc.IsClosed() {
			m.fail(fmt.Errorf("group %s: %w", m.cfg.name, nats.ErrConnectionClosed))
			return
		}
		if ctx.Err() == nil {
			m.log.Debug("the watch of members begins again", "error", err)
			_ = pause.For(ctx, m.cfg.lease/beats) // the loop looks at ctx
		}
	}
}

// hear is one watch, until it says nothing any more.
func (m *member) hear(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, max(time.Second, m.cfg.lease))
	defer cancel()
	kv, err := m.bucket(bounded)
	if err != nil {
		return err
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch of members: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // its only error: it has stopped already
	m.crowd.restart()
	began := time.Now()
	tick := time.NewTicker(m.cfg.lease / (2 * beats))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errors.New("the watch has ended")
			case entry == nil:
				m.crowd.complete()
				m.wake()
			default:
				if m.crowd.note(entry.Key(), entry.Value(), entry.Operation() != jetstream.KeyValuePut, time.Now()) {
					m.wake()
				}
			}
		case <-tick.C:
			if m.crowd.mute(began, time.Now()) {
				return errors.New("nothing is heard")
			}
			signal(m.poke) // a lease may have ended
		}
	}
}
