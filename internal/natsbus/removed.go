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

// removed records up to where Duly has removed messages from a task or control stream. Nobody else may remove
// any, so what else is missing is lost. It is written before the messages go. It is kept in NATS, because
// cursors in SQL can be restored to an earlier state.
type removed struct {
	// Stream identifies the stream; of another stream the record says nothing.
	Stream string `json:"stream"`
	// To is the last position that may be missing.
	To uint64 `json:"to"`
	// Gaps counts missing messages behind To that were noticed.
	Gaps uint64 `json:"gaps,omitempty"`
	// Lost counts messages that went without Duly, and whose loss no operator has accepted; Since is when the
	// first were found missing.
	Lost  uint64    `json:"lost,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// firstOf returns the position at which a stream begins; an empty one begins after its last.
func firstOf(s *jetstream.StreamState) uint64 {
	if s.Msgs == 0 {
		return s.LastSeq + 1
	}
	return s.FirstSeq
}

// missing counts the messages that a stream lacks beyond what the record explains.
func (r *removed) missing(s *jetstream.StreamState) uint64 {
	n := uint64(max(0, s.NumDeleted)) - min(r.Gaps, uint64(max(0, s.NumDeleted)))
	if first := firstOf(s); first > r.To+1 {
		n += first - 1 - r.To
	}
	return n
}

// observe returns the record updated for a stream's state: what is missing is counted as lost, and messages
// up to to count as removed.
func (r removed) observe(s *jetstream.StreamState, to uint64) removed {
	if n := r.missing(s); n > 0 {
		if r.Lost == 0 {
			r.Since = time.Now().UTC()
		}
		r.Lost += n
	}
	r.To, r.Gaps = max(r.To, firstOf(s)-1, to), uint64(max(0, s.NumDeleted))
	return r
}

// removedTries bounds the attempts to change a record while other nodes change it as well.
const removedTries = 5

// changeRemoved changes the record of a stream in NATS. change gets the present record, which is empty if it
// is of another stream.
func (c *Conn) changeRemoved(ctx context.Context, name, id string, change func(removed) removed) error {
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
		// Update with revision 0 creates the key, and fails if another node has created or changed it meanwhile.
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

// restoreRemoved writes what this node knows of all streams into the bucket, because the bucket was lost and
// made again.
func (c *Conn) restoreRemoved(ctx context.Context) error {
	c.watched.mu.Lock()
	all := maps.Clone(c.watched.removed)
	c.watched.mu.Unlock()
	for name, known := range all {
		if err := c.changeRemoved(ctx, name, known.Stream, known.join); err != nil {
			return err
		}
	}
	return nil
}

// join combines a node's record with another's.
func (r removed) join(other removed) removed {
	if r.Lost < other.Lost {
		r.Lost, r.Since = other.Lost, other.Since
	}
	r.To, r.Gaps = max(r.To, other.To), max(r.Gaps, other.Gaps)
	return r
}

// removedAt reads the record of a stream with an identity; revision 0: there is none.
func removedAt(ctx context.Context, kv jetstream.KeyValue, name, id string) (removed, uint64, error) {
	var r removed
	revision, err := readAt(ctx, kv, wire.RemovedKey(name), &r)
	if err != nil || r.Stream != id {
		r = removed{Stream: id}
	}
	return r, revision, err
}

// remembered returns what this node knows of a stream, if it is the same stream as in none; else none.
func (w *watched) remembered(name string, none removed) removed {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.removed[name]; ok && r.Stream == none.Stream {
		return r
	}
	return none
}

// remember keeps the record of a stream.
func (w *watched) remember(name string, r removed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed == nil {
		w.removed = map[string]removed{}
	}
	w.removed[name] = r
}

// noticeLoss records what a stream lacks and Duly has not removed. If nothing is missing it makes no request.
func (c *Conn) noticeLoss(ctx context.Context, info *jetstream.StreamInfo) error {
	name, id := info.Config.Name, streamID(info)
	known := c.watched.remembered(name, removed{Stream: id})
	if known.Lost == 0 && known.missing(&info.State) == 0 {
		return nil
	}
	return c.changeRemoved(ctx, name, id, func(r removed) removed {
		if r.Lost == 0 && r.missing(&info.State) == 0 {
			return r
		}
		return r.observe(&info.State, 0)
	})
}

// Loss is what a task or control stream lacks although Duly has not removed it.
type Loss struct {
	Stream   string
	Messages uint64
	Since    time.Time // when they were found missing
}

// Losses returns the losses that no operator has accepted, as of Guard's last look.
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

// AcceptLoss notes that an operator knows what a stream lacks, and returns how many messages that is.
func (c *Conn) AcceptLoss(ctx context.Context, name string) (messages uint64, err error) {
	stream, err := c.stream(ctx, name)
	if err != nil {
		return 0, err
	}
	err = c.changeRemoved(ctx, name, streamID(stream.CachedInfo()), func(r removed) removed {
		messages = r.Lost
		r.Lost, r.Since = 0, time.Time{}
		return r
	})
	return messages, err
}

// Begins returns when the task stream of a partition stored the oldest message that it still has; 0: it has
// none. known is false until Guard has seen the stream, and while Guard cannot.
func (c *Conn) Begins(partition int) (at core.Instant, known bool) {
	return c.watched.oldest(c.StreamTasks(partition))
}

// OldestIn returns when the stream of the stream endpoint stored its oldest message; 0: it is empty, or there
// is none.
func (c *Conn) OldestIn() core.Instant {
	at, _ := c.watched.oldest(c.names.StreamIn())
	return at
}

// oldest returns when a stream stored its first message, as of Guard's last look.
func (w *watched) oldest(name string) (at core.Instant, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known = w.begins[name]
	return at, known
}

// Unread is First, but makes no request if the stream ended at or before the cursor when Guard last looked.
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

// First returns the first message of a partition after a cursor, in its control stream or in its task stream;
// 0: there is none.
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

// noteBegin notes when a stream's first message was stored; nil: that is not known.
func (w *watched) noteBegin(name string, info *jetstream.StreamInfo) {
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
