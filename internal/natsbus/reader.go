package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Errors that end a reader.
var (
	// errLost: a successor reads the partition under a higher epoch.
	errLost = errors.New("partition has a successor")
	// ErrRewound: the stream ends before the cursor, or has another message there. It is
	// another stream, or was restored from an older backup: new messages would pass for
	// old ones.
	ErrRewound = errors.New("stream ends before the cursor")
	// errOtherStream: the stream was lost and made again; the cursor means nothing there.
	errOtherStream = errors.New("another stream of the same name")
)

// Defaults of ReadConfig.
const (
	defaultPrefetch   = 64
	defaultAckWait    = 60 * time.Second
	defaultAckPending = 4096
)

// How a reader waits.
const (
	pullExpiry     = 30 * time.Second
	pullHeartbeat  = 1500 * time.Millisecond
	consumerIdle   = time.Hour // then the server removes a consumer without a reader
	reopenFirst    = 50 * time.Millisecond
	reopenMost     = 2 * time.Second
	reopenDeadline = 10 * time.Second
	askDeadline    = 2 * time.Second // for the first answer of the server
)

// prefetchBytes bounds what is read ahead while the handler is busy, unless one message is larger.
const prefetchBytes = 4 << 20

// ReadConfig says how a partition is read. The zero value has the defaults.
type ReadConfig struct {
	// Stream identifies the stream that the cursor belongs to; empty: whichever is there.
	Stream string
	// Stored is when the stream stored the message at the cursor; 0: not known.
	Stored core.Instant
	// Prefetch is how many messages are requested ahead of the handler.
	Prefetch int
	// AckWait is when a message that is not acknowledged is delivered again.
	AckWait time.Duration
	// AckPending is how many messages may be unacknowledged before the server stops delivering.
	AckPending int

	// expiry and heartbeat are of a pull request; tests set shorter ones.
	expiry, heartbeat time.Duration
}

// ackText is JetStream's acknowledgement.
var ackText = []byte("+ACK")

// TaskMessage is one message of a partition, of the task or the control stream.
type TaskMessage struct {
	Seq     uint64       // position in the stream
	Time    core.Instant // when the stream took it
	Subject string
	Header  wire.Header
	Data    []byte

	reader *Reader
	reply  string
}

// Ack tells the server that everything in the message is committed. If the acknowledgement is lost, the
// message comes again and the reader acknowledges it without handing it out.
func (m *TaskMessage) Ack() error {
	m.reader.acked(m)
	if err := m.reader.conn.nc.Publish(m.reply, ackText); err != nil {
		return fmt.Errorf("ack of %s %d: %w", m.reader.stream, m.Seq, publishError(err))
	}
	return nil
}

// Reader reads one partition of one stream: every message once, in order, from a cursor, however often the
// server delivers it. It creates its consumer again by itself when a delivery or the connection was lost, or
// the consumer was removed. It ends if a successor reads under a higher epoch, or if the stream is not the
// one that the cursor belongs to.
type Reader struct {
	conn      *Conn
	stream    string
	filter    string
	partition int
	epoch     int64
	config    ReadConfig
	handler   func(*TaskMessage)
	lost      func(error)
	stop      context.CancelFunc
	finished  chan struct{}

	// identity is of the stream that is read.
	identity string
	// name is of the consumer in use, and n counts the consumers of this epoch.
	name string
	n    int
	pull *puller
	// dseq is the consumer's own number of the newest delivery; a gap in these numbers is a lost delivery.
	dseq uint64
	// dirty is whether deliveries may be lost, so that the consumer has to be created again.
	dirty bool

	mu sync.Mutex
	// last is the position of the newest message handed out, stored when the stream stored it; 0: not known.
	last   uint64
	stored core.Instant
	// unacked are the messages that the present consumer delivered and that are not acknowledged.
	unacked map[uint64]struct{}
	// recreate asks for a new consumer, from another goroutine.
	recreate bool
	// wake has an element when the wait for a message should end.
	wake chan struct{}
}

// ReadTasks reads a partition's submissions after cursor, as its owner under epoch, until ctx ends or Stop.
// handler gets the messages on one goroutine; while it blocks, the stream waits. lost is called once, on that
// goroutine, if the reader ends by itself, with an error that wraps errLost, ErrRewound, errOtherStream,
// ErrInstallation, or, when the connection was closed, ErrClosed. A reader waits for a stream that goes
// missing. Errors: the same, and ErrNoStream.
func (c *Conn) ReadTasks(ctx context.Context, partition int, epoch int64, cursor uint64, config ReadConfig, handler func(*TaskMessage), lost func(error)) (*Reader, error) {
	return c.read(ctx, c.StreamTasks(partition), c.names.TasksPattern(partition), partition, epoch, cursor, config, handler, lost)
}

// ReadControl is ReadTasks for a partition's control messages.
func (c *Conn) ReadControl(ctx context.Context, partition int, epoch int64, cursor uint64, config ReadConfig, handler func(*TaskMessage), lost func(error)) (*Reader, error) {
	return c.read(ctx, c.StreamControl(partition), c.names.ControlSubject(partition), partition, epoch, cursor, config, handler, lost)
}

// read is ReadTasks for any stream and subject.
func (c *Conn) read(ctx context.Context, stream, filter string, partition int, epoch int64, cursor uint64, config ReadConfig, handler func(*TaskMessage), lost func(error)) (*Reader, error) {
	r := &Reader{conn: c, stream: stream, filter: filter, partition: partition, epoch: epoch, config: config.withDefaults(),
		identity: config.Stream, handler: handler, lost: lost, finished: make(chan struct{}), last: cursor, stored: config.Stored, unacked: map[uint64]struct{}{}, wake: make(chan struct{}, 1)}
	if err := r.open(ctx); err != nil {
		return nil, fmt.Errorf("partition %d of %s under epoch %d: %w", partition, stream, epoch, err)
	}
	ctx, r.stop = context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		r.stop()
		r.pull.close()
		return nil, fmt.Errorf("partition %d of %s: %w", partition, stream, ErrClosed)
	}
	c.readers[r] = struct{}{}
	go r.run(ctx)
	return r, nil
}

// withDefaults fills in what is zero.
func (config ReadConfig) withDefaults() ReadConfig {
	if config.Prefetch <= 0 {
		config.Prefetch = defaultPrefetch
	}
	if config.AckWait <= 0 {
		config.AckWait = defaultAckWait
	}
	if config.AckPending <= 0 {
		config.AckPending = defaultAckPending
	}
	if config.expiry == 0 {
		config.expiry, config.heartbeat = pullExpiry, pullHeartbeat
	}
	return config
}

// Stop ends the reading and returns when handler has run for the last time. The consumer stays, to show what
// is unread, until a successor removes it. Stop must not be called from handler or lost.
func (r *Reader) Stop() {
	r.stop()
	<-r.finished
}

// recheck makes the reader create its consumer again. After a broken connection that is needed because
// messages on their way are lost, and would come again only after the ack wait, and out of order.
func (r *Reader) recheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recreate = true
	r.wakeUp()
}

// wakeUp ends the reader's wait for a message.
func (r *Reader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake is pending
	}
}

// acked notes that a message was acknowledged.
func (r *Reader) acked(m *TaskMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unacked, m.Seq)
}

// run reads until ctx ends or the reader is lost.
func (r *Reader) run(ctx context.Context) {
	defer close(r.finished)
	defer func() {
		r.pull.close()
		r.conn.mu.Lock()
		delete(r.conn.readers, r)
		r.conn.mu.Unlock()
	}()
	for ctx.Err() == nil {
		if err := r.step(ctx); err != nil {
			r.conn.log.Debug("a reader ends", "stream", r.stream, "partition", r.partition, "epoch", r.epoch, "error", err)
			if r.lost != nil {
				r.lost(err)
			}
			return
		}
	}
}

// step waits for one message and hands it out, or creates the consumer again. An error ends the reader.
func (r *Reader) step(ctx context.Context) error {
	if r.wantsReopen() {
		return r.reopen(ctx)
	}
	msg, err := r.pull.next(ctx, r.wake)
	switch {
	case err == nil:
		r.receive(msg)
	case errors.Is(err, errWoken), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The loop looks why.
	case errors.Is(err, errMute):
		r.dirty = r.gone(ctx)
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("partition %d of %s: %w", r.partition, r.stream, err)
	default:
		r.conn.log.Info("creating a consumer again", "consumer", r.name, "stream", r.stream, "error", err)
		r.dirty = true
	}
	return nil
}

// wantsReopen reports whether the consumer has to be made anew: somebody asked for that, or a delivery was
// lost.
func (r *Reader) wantsReopen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recreate || r.dirty
}

// receive hands a message out if it is the next one. Deliveries are numbered by their consumer: a missing
// number is a lost delivery.
func (r *Reader) receive(msg *nats.Msg) {
	meta, err := msg.Metadata()
	if err != nil || meta.Sequence.Consumer != r.dseq+1 {
		r.conn.log.Info("a delivery was lost: creating the consumer again", "consumer", r.name, "stream", r.stream)
		r.dirty = true
		return
	}
	r.dseq = meta.Sequence.Consumer
	seq := meta.Sequence.Stream
	r.mu.Lock()
	if r.recreate {
		r.mu.Unlock()
		return // of the consumer before; it comes again
	}
	if seq <= r.last {
		_, waits := r.unacked[seq]
		r.mu.Unlock()
		if !waits {
			_ = r.conn.nc.Publish(msg.Reply, ackText) // ours was lost; if this one is too, it comes again
		}
		return
	}
	r.last, r.stored = seq, core.InstantOf(meta.Timestamp)
	r.unacked[seq] = struct{}{}
	m := &TaskMessage{Seq: seq, Time: r.stored, Subject: msg.Subject, Header: headerOf(msg), Data: msg.Data,
		reader: r, reply: msg.Reply}
	r.mu.Unlock()
	r.handler(m)
}
