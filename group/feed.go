package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/pause"
)

const (
	askMost      = 2 * time.Second // for one request to JetStream
	consumerIdle = time.Minute     // after which the server removes a consumer without pull requests
	payloadRoom  = 64 << 10        // of a message beside its payload: subject and headers
	feedPause    = 50 * time.Millisecond
	feedPauseMax = time.Second
	stride       = 4096 // sequences after which partitions without messages are told how far the feed is
)

// feed reads the stream for lanes: in order, from the one that is least far. A message that a lane has already is dropped.
type feed struct {
	m       *member
	filters []string // none: all subjects
	shared  bool     // by several lanes: none waits for another that is in trouble

	mu    sync.Mutex
	lanes map[int]*lane
	again chan struct{} // has an element when reading must begin again
}

func (m *member) newFeed(filters []string, shared bool) *feed {
	return &feed{m: m, filters: filters, shared: shared, lanes: map[int]*lane{}, again: make(chan struct{}, 1)}
}

// add has lanes read for.
func (f *feed) add(lanes ...*lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range lanes {
		f.lanes[l.partition] = l
	}
	signal(f.again)
}

func (f *feed) remove(partition int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lanes, partition)
}

func (f *feed) restart() { signal(f.again) }

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	wait := feedPause
	for ctx.Err() == nil {
		r := f.begin()
		if len(r.lanes) == 0 {
			select {
			case <-ctx.Done():
			case <-f.again:
			}
			continue
		}
		err := r.run(ctx)
		switch {
		case ctx.Err() != nil, err == nil:
			wait = feedPause
			continue
		case fatal(err):
			f.m.fail(err)
			return
		}
		f.m.log.Warn("reading begins again", "error", err, "in", wait)
		_ = pause.For(ctx, wait) // the loop looks at ctx
		wait = min(2*wait, feedPauseMax)
	}
}

// reading is one consumer's life. Lanes that come later get nothing of it.
type reading struct {
	*feed
	lanes    map[int]*lane
	consumer jetstream.Consumer
	read     uint64   // up to here all messages of the filters were offered to the lanes that are not further
	floor    uint64   // the first sequence that the stream has
	count    uint64   // messages of this consumer
	told     uint64   // up to here lanes without messages know
	end      position // of the stream, when it was looked at last
	stalled  uint64   // count at the last look that found messages which had not come, and one; 0: there were none
}

// begin prepares a reading from the least position of the lanes that have room.
func (f *feed) begin() *reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.again: // this is it
	default:
	}
	r := &reading{feed: f, lanes: map[int]*lane{}}
	for p, l := range f.lanes {
		at, ok := l.queue.from()
		if !ok {
			continue
		}
		if len(r.lanes) == 0 || at.seq < r.read {
			r.read = at.seq
		}
		r.lanes[p] = l
	}
	r.told = r.read
	return r
}

// open makes the consumer. It belongs to the stream whose identity is looked at after it was made, or to one that is gone.
func (r *reading) open(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	stream, err := r.m.js.Stream(ctx, r.m.stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", r.m.stream, err)
	}
	// Nothing of it need last longer than this reading.
	r.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubjects: r.filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.read + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerIdle,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer of stream %s: %w", r.m.stream, err)
	}
	if err := r.look(ctx, stream); err != nil {
		return nil, err
	}
	asked := map[position]bool{}
	for _, l := range r.lanes {
		at := l.queue.position()
		if asked[at] {
			continue
		}
		asked[at] = true
		if err := r.unchanged(ctx, stream, l.partition, at); err != nil {
			return nil, err
		}
	}
	return stream, nil
}

// look compares the stream with the one that the group reads, and learns where it begins and ends.
func (r *reading) look(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", r.m.stream, err)
	}
	if is := identity(info); is != r.m.identity {
		return fmt.Errorf("group %s: stream %s: it was made at %s, the cursors are of one made at %s: %w", r.m.cfg.name, r.m.stream, is, r.m.identity, ErrOtherStream)
	}
	state := info.State
	for p, l := range r.lanes {
		if next := l.queue.seen(0); state.LastSeq < next {
			return fmt.Errorf("group %s: stream %s ends at %d, partition %d has read up to %d: %w", r.m.cfg.name, r.m.stream, state.LastSeq, p, next, ErrRewound)
		}
	}
	r.floor = max(state.FirstSeq, 1) // 0: nothing was ever stored
	r.end = position{state.LastSeq, state.LastTime.UnixNano()}
	return nil
}

// unchanged makes sure that the message up to which a partition has read is still the one that the stream has there. One that was
// removed, or cannot be asked for, says nothing.
func (r *reading) unchanged(ctx context.Context, stream jetstream.Stream, partition int, at position) error {
	if at.seq == 0 || at.stored == 0 || at.seq < r.floor {
		return nil
	}
	msg, err := stream.GetMsg(ctx, at.seq)
	if err != nil || msg.Time.UnixNano() == at.stored {
		return nil
	}
	return fmt.Errorf("group %s: stream %s: message %d is of %s, was of %s when partition %d had read it: %w", r.m.cfg.name, r.m.stream, at.seq,
		msg.Time.UTC().Format(time.RFC3339Nano), time.Unix(0, at.stored).UTC().Format(time.RFC3339Nano), partition, ErrRewound)
}

// delivery is what a pull brings.
type delivery struct {
	msg *nats.Msg
	err error
}

// run reads until ctx ends or reading must begin again, which is no error.
func (r *reading) run(ctx context.Context) error {
	// What was sent to a connection that was lost does not come again.
	connected := r.m.nc.StatusChanged(nats.CONNECTED)
	defer r.m.nc.RemoveStatusListener(connected)
	stream, err := r.open(ctx)
	if r.consumer != nil {
		defer r.remove(ctx)
	}
	if err != nil {
		return err
	}
	limit := max(r.m.cfg.bytes, int(r.m.nc.MaxPayload())+payloadRoom) // a message larger than the limit would never come
	pull, err := newPuller(r.m.nc, r.m.stream, r.consumer.CachedInfo().Name, limit)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", r.m.stream, err)
	}
	ctx, stop := context.WithCancel(ctx)
	deliveries := make(chan delivery)
	var pump sync.WaitGroup
	pump.Go(func() { pumpInto(ctx, deliveries, pull) })
	defer pump.Wait()
	defer stop()
	settle := time.NewTicker(r.m.cfg.settle)
	defer settle.Stop()
	if err := r.settled(ctx); err != nil {
		return restarts(err)
	}
	r.stalled = 0 // nothing can have come yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.again:
			return nil
		case <-connected:
			return errHole
		case d := <-deliveries:
			if d.err != nil {
				return fmt.Errorf("read stream %s: %w", r.m.stream, d.err)
			}
			err = r.message(ctx, d.msg)
		case <-settle.C:
			err = r.tide(ctx, stream)
		}
		if err != nil {
			return restarts(err)
		}
	}
}

// errRestart ends a reading for another one.
var errRestart = errors.New("reading begins again")

func restarts(err error) error {
	if errors.Is(err, errRestart) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pumpInto passes on what a puller brings, so that it can be waited for beside other things.
func pumpInto(ctx context.Context, to chan<- delivery, pull *puller) {
	defer pull.close()
	for {
		msg, err := pull.next(ctx)
		select {
		case to <- delivery{msg, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// remove deletes the consumer, if that is quick: the server does it anyway.
func (r *reading) remove(ctx context.Context) {
	if !r.m.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askMost/4)
	defer cancel()
	_ = r.m.js.DeleteConsumer(ctx, r.m.stream, r.consumer.CachedInfo().Name) // it ends by its InactiveThreshold
}

// tide looks at the stream now and then.
func (r *reading) tide(ctx context.Context, stream jetstream.Stream) error {
	bounded, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	if err := r.look(bounded, stream); err != nil {
		return err
	}
	if r.lanes[0] != nil {
		if err := r.m.strays(bounded, stream); err != nil && ctx.Err() == nil {
			r.m.log.Error("messages belong to no partition", "error", err)
		}
	}
	return r.settled(ctx)
}

// message offers a message to its lane.
func (r *reading) message(ctx context.Context, msg *nats.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("message of stream %s: %w", r.m.stream, err)
	}
	if r.count++; meta.Sequence.Consumer != r.count {
		return errHole
	}
	seq := meta.Sequence.Stream
	if seq >= r.floor {
		if err := r.gaps(ctx, r.floor-1); err != nil {
			return err
		}
	}
	p, ok := r.m.cfg.by.partition(msg.Subject)
	if !ok {
		return fmt.Errorf("message %d of stream %s: its subject %q has no partition", seq, r.m.stream, msg.Subject)
	}
	if l := r.lanes[p]; l != nil {
		m := Msg{p, msg.Subject, msg.Header, msg.Data, seq, meta.Timestamp}
		it := item{kind: isMsg, msg: m, to: position{seq, meta.Timestamp.UnixNano()}, size: sizeOf(m)}
		if err := r.push(ctx, l, it); err != nil {
			return err
		}
	}
	r.read = max(r.read, seq)
	if r.shared && seq >= r.told+stride {
		r.told = seq
		return r.mark(ctx, position{seq, meta.Timestamp.UnixNano()})
	}
	return nil
}

// settled lets the lanes know that they have everything up to the end of the stream, as it was looked at, if that is so. What
// a consumer says of its pending messages is late: the store itself is asked.
func (r *reading) settled(ctx context.Context) error {
	pending, err := r.pending(ctx)
	if err != nil {
		return err
	}
	if pending {
		if r.stalled == r.count+1 { // nothing has come since the last look
			return errHole
		}
		r.stalled = r.count + 1
		return nil
	}
	r.stalled = 0
	if r.end.seq < r.read {
		return nil
	}
	if err := r.gaps(ctx, min(r.floor-1, r.end.seq)); err != nil {
		return err
	}
	r.read, r.told = r.end.seq, r.end.seq
	return r.mark(ctx, r.end)
}

// pending reports whether the stream's leader has a message of the filters after the last one that was read. Its replicas,
// which the library would ask where the stream allows that, may be behind.
func (r *reading) pending(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	filters := r.filters
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, filter := range filters {
		data, err := json.Marshal(struct {
			Seq  uint64 `json:"seq"`
			Next string `json:"next_by_subj"`
		}{r.read + 1, filter})
		if err != nil {
			return false, fmt.Errorf("ask stream %s for messages: %w", r.m.stream, err)
		}
		msg, err := r.m.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+r.m.stream, data)
		if err != nil {
			return false, fmt.Errorf("ask stream %s for messages: %w", r.m.stream, err)
		}
		var answer struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return false, fmt.Errorf("ask stream %s for messages: %w", r.m.stream, err)
		}
		switch {
		case answer.Error == nil:
			return true, nil
		case answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound:
			return false, fmt.Errorf("ask stream %s for messages: %w", r.m.stream, answer.Error)
		}
	}
	return false, nil
}

// gaps tells the lanes what was removed before they had it, up to a sequence.
func (r *reading) gaps(ctx context.Context, last uint64) error {
	if last <= r.read {
		return nil
	}
	for _, l := range r.lanes {
		if seen := l.queue.seen(r.read); seen < last {
			if err := r.push(ctx, l, item{kind: isGap, first: seen + 1, to: position{seq: last}}); err != nil {
				return err
			}
		}
	}
	r.read = last
	return nil
}

// mark tells the lanes that they have everything up to a position.
func (r *reading) mark(ctx context.Context, at position) error {
	for _, l := range r.lanes {
		if err := r.push(ctx, l, item{kind: isMark, to: at}); err != nil {
			return err
		}
	}
	return nil
}

// push offers an item until it is taken, or is not to be.
func (r *reading) push(ctx context.Context, l *lane, it item) error {
	for l.queue.offer(it, r.shared) == full {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.again:
			return errRestart
		case <-l.ended:
			return nil
		case <-l.queue.space:
		}
	}
	return nil
}

// filterOf are the subjects that the group reads; none: all of the stream, by a rule that needs to know no more.
func (c config) filterOf(info *jetstream.StreamInfo) ([]string, error) {
	if c.by.hashed {
		return c.filter, nil
	}
	filter := c.filter
	if len(filter) == 0 {
		filter = info.Config.Subjects
		if len(filter) == 0 || info.Config.SubjectTransform != nil {
			return nil, fmt.Errorf("group %s: stream %s does not say what subjects its messages have: name them with Filter", c.name, info.Config.Name)
		}
	}
	for _, pattern := range filter {
		if len(narrowed(pattern, c.by.tokens[0], "0")) == 0 {
			return nil, fmt.Errorf("group %s: subjects %s: token %d is no partition", c.name, pattern, c.by.tokens[0])
		}
	}
	return filter, nil
}

// strays looks for messages that no partition would read.
func (m *member) strays(ctx context.Context, stream jetstream.Stream) error {
	if m.cfg.by.hashed {
		return nil
	}
	all, err := m.stored(ctx, stream, m.filter)
	if err != nil {
		return err
	}
	var filters []string
	for p := range m.cfg.by.partitions {
		filters = append(filters, m.cfg.by.filters(m.filter, p)...)
	}
	ours, err := m.stored(ctx, stream, filters) // later, so that it is not less
	if err != nil {
		return err
	}
	if all > ours {
		return fmt.Errorf("group %s: stream %s: of %d messages of %s, %d have a token %d that is no partition's number (0 to %d)", m.cfg.name, m.stream, all,
			strings.Join(m.filter, " "), all-ours, m.cfg.by.tokens[0], m.cfg.by.partitions-1)
	}
	return nil
}

// stored counts the messages of some subjects.
func (m *member) stored(ctx context.Context, stream jetstream.Stream, filters []string) (uint64, error) {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{FilterSubjects: filters, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: pullExpiry})
	if err != nil {
		return 0, fmt.Errorf("group %s: stream %s: count messages of %s subjects: %w", m.cfg.name, m.stream, strconv.Itoa(len(filters)), err)
	}
	_ = stream.DeleteConsumer(ctx, consumer.CachedInfo().Name) // it ends by its InactiveThreshold
	return consumer.CachedInfo().NumPending, nil
}
