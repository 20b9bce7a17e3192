package natsbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// removed is how far Duly has removed the messages of a task or control stream, which nothing else may. It is written
// before they go, and to NATS: cursors in SQL can be restored to an earlier state.
type removed struct {
	Stream string    `json:"stream"`         // identity: of another stream it says nothing
	To     uint64    `json:"to"`             // the last position that may be missing
	Gaps   uint64    `json:"gaps,omitempty"` // messages missing behind it that have been noticed
	Lost   uint64    `json:"lost,omitempty"` // messages that went without Duly, and no operator has accepted that yet
	Since  time.Time `json:"since,omitzero"` // when the first of them were found missing
}

// firstOf is the position that a stream begins at; one without messages begins after the last.
func firstOf(s *jetstream.StreamState) uint64 {
	if s.Msgs == 0 {
		return s.LastSeq + 1
	}
	return s.FirstSeq
}

// missing is how many messages a stream lacks that Duly has not removed, or has noticed.
func (r *removed) missing(s *jetstream.StreamState) uint64 {
	n := uint64(max(0, s.NumDeleted)) - min(r.Gaps, uint64(max(0, s.NumDeleted)))
	if first := firstOf(s); first > r.To+1 {
		n += first - 1 - r.To
	}
	return n
}

// found is what is to be recorded of a stream in a state, with all up to a position about to be removed.
func (r removed) found(s *jetstream.StreamState, to uint64) removed {
	if n := r.missing(s); n > 0 {
		if r.Lost == 0 {
			r.Since = time.Now().UTC()
		}
		r.Lost += n
	}
	r.To, r.Gaps = max(r.To, firstOf(s)-1, to), uint64(max(0, s.NumDeleted))
	return r
}

// removedTries bounds how often a record that other nodes change as well is changed.
const removedTries = 5

// record changes what is recorded of a stream. change hears what is there: of another stream, nothing.
func (c *Conn) record(ctx context.Context, name, id string, change func(removed) removed) error {
	kv, err := c.Bucket(ctx, c.names.BucketPartitions())
	for range removedTries {
		var stored removed
		var revision uint64
		if err == nil {
			stored, revision, err = removedAt(ctx, kv, name, id)
		}
		if err != nil {
			break
		}
		was := stored
		if revision == 0 {
			was = c.watched.remembered(name, stored) // if the bucket was lost, what this node knew is written again
		}
		is := change(was)
		if is != stored {
			var data []byte
			if data, err = json.Marshal(is); err != nil {
				break
			}
			_, err = kv.Update(ctx, wire.RemovedKey(name), data, revision)
		}
		if err == nil {
			c.watched.remember(name, is)
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) { // other than: another node was faster
			break
		}
		err = nil
	}
	if err == nil {
		err = errors.New("others change it all the time")
	}
	return fmt.Errorf("record of what is removed from stream %s: %w", name, err)
}

// recordAgain writes what this node knows of all streams into a bucket that is another than before: a node that begins has to
// find it there.
func (c *Conn) recordAgain(ctx context.Context) error {
	c.watched.mu.Lock()
	all := maps.Clone(c.watched.removed)
	c.watched.mu.Unlock()
	for name, known := range all {
		if err := c.record(ctx, name, known.Stream, known.join); err != nil {
			return err
		}
	}
	return nil
}

// join is what a node has recorded with what another knows.
func (r removed) join(other removed) removed {
	if r.Lost < other.Lost {
		r.Lost, r.Since = other.Lost, other.Since
	}
	r.To, r.Gaps = max(r.To, other.To), max(r.Gaps, other.Gaps)
	return r
}

// removedAt reads the record of a stream; with revision 0 there is none.
func removedAt(ctx context.Context, kv jetstream.KeyValue, name, id string) (removed, uint64, error) {
	var r removed
	revision, err := readAt(ctx, kv, wire.RemovedKey(name), &r)
	if err != nil || r.Stream != id {
		r = removed{Stream: id}
	}
	return r, revision, err
}

// remembered is what this node knows of a stream of the same identity.
func (w *watched) remembered(name string, none removed) removed {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.removed[name]; ok && r.Stream == none.Stream {
		return r
	}
	return none
}

func (w *watched) remember(name string, r removed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed == nil {
		w.removed = map[string]removed{}
	}
	w.removed[name] = r
}

// compare finds out whether a stream lacks what Duly has not removed. While nothing is missing it asks nothing.
func (c *Conn) compare(ctx context.Context, info *jetstream.StreamInfo) error {
	name, id := info.Config.Name, streamID(info)
	known := c.watched.remembered(name, removed{Stream: id})
	if known.Lost == 0 && known.missing(&info.State) == 0 {
		return nil
	}
	return c.record(ctx, name, id, func(r removed) removed {
		if r.Lost == 0 && r.missing(&info.State) == 0 {
			return r
		}
		return r.found(&info.State, 0)
	})
}

// Loss is what a task or control stream lacks and Duly has not removed.
type Loss struct {
	Stream   string
	Messages uint64
	Since    time.Time // when they were found missing
}

// Losses are those that no operator has accepted yet, as of Guard's last look.
func (c *Conn) Losses() (all []Loss) {
	c.watched.mu.Lock()
	defer c.watched.mu.Unlock()
	for name, r := range c.watched.removed {
		if r.Lost > 0 {
			all = append(all, Loss{Stream: name, Messages: r.Lost, Since: r.Since})
		}
	}
	slices.SortFunc(all, func(a, b Loss) int { return cmp.Compare(a.Stream, b.Stream) })
	return all
}

// AcceptLoss notes that an operator knows of what a stream lacks, and returns how many messages that are.
func (c *Conn) AcceptLoss(ctx context.Context, name string) (messages uint64, err error) {
	stream, err := c.stream(ctx, name)
	if err != nil {
		return 0, err
	}
	err = c.record(ctx, name, streamID(stream.CachedInfo()), func(r removed) removed {
		messages = r.Lost
		r.Lost, r.Since = 0, time.Time{}
		return r
	})
	return messages, err
}

// Begins is when the task stream of a partition took the oldest message that it still has; 0: it has none. known is
// false until Guard has seen it, and while Guard cannot.
func (c *Conn) Begins(partition int) (at core.Instant, known bool) {
	return c.watched.oldest(c.StreamTasks(partition))
}

// OldestIn is when the stream of the stream endpoint took what it has had longest; 0: it has nothing, or there is none.
func (c *Conn) OldestIn() core.Instant {
	at, _ := c.watched.oldest(c.names.StreamIn())
	return at
}

func (w *watched) oldest(name string) (at core.Instant, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known = w.begins[name]
	return at, known
}

// Unread is First, but where the stream ended before that at Guard's last look nothing is asked.
func (c *Conn) Unread(ctx context.Context, partition int, control bool, cursor uint64) (seq uint64, at core.Instant, err error) {
	name := c.StreamTasks(partition)
	if control {
		name = c.StreamControl(partition)
	}
	c.watched.mu.Lock()
	end := c.watched.ends[name]
	c.watched.mu.Unlock()
	if end <= cursor {
		return 0, 0, nil
	}
	return c.First(ctx, partition, control, cursor)
}

// First is the first message of a partition after a cursor: in its control stream, or in its task stream; 0: there is none.
func (c *Conn) First(ctx context.Context, partition int, control bool, cursor uint64) (seq uint64, at core.Instant, err error) {
	name, subject := c.StreamTasks(partition), c.names.TasksPattern(partition)
	if control {
		name, subject = c.StreamControl(partition), c.names.ControlSubject(partition)
	}
	stream, err := c.stream(ctx, name)
	var msg *jetstream.RawStreamMsg
	if err == nil {
		msg, err = stream.GetMsg(ctx, cursor+1, jetstream.WithGetMsgSubject(subject))
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("partition %d in %s: %w", partition, name, err)
	}
	return msg.Sequence, core.InstantOf(msg.Time), nil
}

// began notes when a stream begins; nil: that is not known.
func (w *watched) began(name string, info *jetstream.StreamInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begins == nil {
		w.begins = map[string]core.Instant{}
	}
	switch {
	case info == nil:
		delete(w.begins, name)
	case info.State.Msgs == 0:
		w.begins[name] = 0
	default:
		w.begins[name] = core.InstantOf(info.State.FirstTime)
	}
}
