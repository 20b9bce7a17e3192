package node

import (
	"context"
	"errors"
	"fmt"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/bus"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// doorLog is ingest.Log on NATS.
type doorLog struct{ conn *bus.Conn }

// Publish implements ingest.Log.
func (l doorLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	l.conn.PublishPack(partition, subs, func(seq uint64, err error) { done(seq, logError(err)) })
}

// logError says in ingest's words whether anything was stored.
func logError(err error) error {
	if errors.Is(err, bus.ErrClosed) {
		return fmt.Errorf("%w: %w", ingest.ErrLogDown, err)
	}
	var busy *bus.BusyError
	if !errors.As(err, &busy) || busy.Unknown {
		return err
	}
	var full *bus.WireError
	if errors.As(busy.Err, &full) {
		return fmt.Errorf("%w: %w", ingest.ErrLogFull, err)
	}
	return fmt.Errorf("%w: %w", ingest.ErrLogDown, err)
}

// doorReader is ingest.Reader on the state store.
type doorReader struct{ schema.Store }

// Cursor implements ingest.Reader.
func (r doorReader) Cursor(ctx context.Context, partition int) (uint64, error) {
	all, err := r.Cursors(ctx)
	if err != nil {
		return 0, err
	}
	for i := range all {
		if all[i].Partition == partition {
			return all[i].Cursor, nil
		}
	}
	return 0, fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
}

// controls is ingest.Controls and supervisor's way to ask.
type controls struct{ conn *bus.Conn }

// Ask stores a control message.
func (c controls) Ask(ctx context.Context, partition int, control core.Control) (uint64, error) {
	return c.conn.PublishControl(ctx, partition, &control)
}

// serveAsk answers requests of clients about tasks.
func (n *Node) serveAsk(r *bus.AskRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	partition := bus.PartitionOf(r.Control.ID, n.cfg.Partitions)
	seq, err := n.conn.PublishControl(ctx, partition, &r.Control)
	if err != nil {
		n.log.Warn("a request about a task was not stored", "task", r.Control.ID, "error", err)
		r.Reject(503, "the request could not be stored just now")
		return
	}
	r.Accept(seq, partition)
}

// submission turns a request of the fast door into ingest's.
func submission(r *bus.SubmitRequest) ingest.Request {
	return ingest.Request{
		Type: r.Type, ID: r.ID, Input: r.Payload, CompleteBy: r.CompleteBy, ReplyTo: r.ReplyTo, Trace: r.Trace,
		Answer: func(a ingest.Answer) {
			if a.Err != nil {
				r.Reject(a.Err.Code, a.Err.ErrCode, a.Err.Description, a.Err.Retry)
				return
			}
			r.Accept(a.Stream, a.Seq, a.Partition)
		},
	}
}
