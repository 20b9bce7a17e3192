package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
)

// doorLog is ingest.Log on NATS.
type doorLog struct{ conn *natsbus.Conn }

// Publish implements ingest.Log.
func (l doorLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	l.conn.PublishPack(partition, subs, func(seq uint64, err error) { done(seq, logError(err)) })
}

// logError says in ingest's words whether anything was stored.
func logError(err error) error {
	if errors.Is(err, natsbus.ErrClosed) {
		return fmt.Errorf("%w: %w", ingest.ErrLogDown, err)
	}
	var busy *natsbus.BusyError
	if !errors.As(err, &busy) || busy.Unknown {
		return err
	}
	var full *wire.APIError
	if errors.As(busy.Err, &full) {
		return fmt.Errorf("%w: %w", ingest.ErrLogFull, err)
	}
	return fmt.Errorf("%w: %w", ingest.ErrLogDown, err)
}

// doorReader is api.Reader on the state store.
type doorReader struct {
	schema.Store
	causes *causes
}

// Get implements api.Reader.
func (r doorReader) Get(ctx context.Context, partition int, id string) (core.View, error) {
	v, err := r.Store.Get(ctx, partition, id)
	if err == nil {
		r.causes.explain(ctx, &v)
	}
	return v, err
}

// Cursor implements api.Reader.
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

// controls is api.Controls and supervisor's way to ask.
type controls struct{ conn *natsbus.Conn }

// Ask stores a control message.
func (c controls) Ask(ctx context.Context, partition int, control core.Control) (uint64, error) {
	return c.conn.PublishControl(ctx, partition, &control)
}

// asksMax bounds the requests about tasks that one node works on at a time: each waits
// for the database and for the control stream, and not for the others.
const asksMax = 256

// askDoor serves requests of clients about tasks that come over NATS.
type askDoor struct {
	*bounded
	asks *api.Requests
}

func newAskDoor(asks *api.Requests) *askDoor {
	return &askDoor{newBounded(asksMax), asks}
}

// serve takes one request and returns at once.
func (d *askDoor) serve(r *natsbus.AskRequest) {
	begin := d.try
	if r.OfType && common(r.Control.Kind) {
		begin = d.tryCommon
	}
	d.take(begin, r.Control, func(asked api.Asked, bad *ingest.Refusal) {
		if bad != nil {
			r.Refuse(bad.Code, bad.ErrCode, bad.Description, bad.Retry)
			return
		}
		r.State, r.Outcome = string(asked.State), asked.Outcome
		r.Accept(asked.Seq, asked.Partition)
	})
}

// common reports whether not only operators may ask for it, about tasks of a type.
func common(kind core.EventKind) bool { return kind == core.EventCancel || kind == core.EventSignal }

func (d *askDoor) take(begin func(func()) bool, c core.Control, answer func(api.Asked, *ingest.Refusal)) {
	if !begin(func() {
		// Who sent it NATS does not say: the actor is a claim.
		c.Actor = api.ActorAt(c.Actor, "nats")
		if common(c.Kind) { // which would fill the trail
			answer(d.asks.Ask(context.Background(), c))
			return
		}
		answer(d.asks.AskAs(context.Background(), operate.Actor{Name: c.Actor, Role: operate.RoleOperator, Via: "nats"}, c))
	}) {
		answer(api.Asked{}, &ingest.Refusal{Code: 429, ErrCode: ingest.CauseFull, Retry: asksRetry,
			Description: say.Of("refuse.asks", "n", asksMax)})
	}
}

// asksRetry is when a request that found no room may come again.
const asksRetry = 250 * time.Millisecond

// newRequests are the requests about tasks, as both doors take them.
func (n *Node) newRequests() (*api.Requests, error) {
	cfg := api.RequestsConfig{Partitions: n.cfg.Partitions, PartitionOf: wire.PartitionOf, KnownType: n.plans.known,
		Plan: n.planOf, CheckInput: n.schemas.input, CheckSignal: n.schemas.signal, Now: n.now, Desk: n.desk(), Unread: n.unread}
	return api.NewRequests(cfg, n.store, controls{n.conn}, n.log)
}

// unread reports whether a submission to a partition from before a time is not read yet. Only schedulers may read task streams:
// other nodes take all for read.
func (n *Node) unread(ctx context.Context, partition int, before core.Instant) (bool, error) {
	if !n.cfg.Has(config.RoleScheduler) {
		return false, nil
	}
	return n.unreadIn(ctx, partition, false, before)
}

// unreadIn is unread of the partition's control stream, or of its task stream.
func (n *Node) unreadIn(ctx context.Context, partition int, control bool, before core.Instant) (bool, error) {
	states, err := n.store.CursorsOf(ctx, []int{partition}, "")
	if err != nil || len(states) == 0 {
		return false, err
	}
	cursor := states[0].Cursor
	if control {
		cursor = states[0].ControlCursor
	}
	seq, at, err := n.conn.First(ctx, partition, control, cursor)
	return seq != 0 && at < before, err
}

// planOf is a version of a plan, 0 for the newest: the one that is known here, or else that of the store.
func (n *Node) planOf(ctx context.Context, taskType string, version int64) (*core.Plan, error) {
	if plan := n.plans.Plan(taskType, version); plan != nil || version == 0 {
		return plan, nil
	}
	stored, err := n.store.Plans(ctx)
	i := slices.IndexFunc(stored, func(p core.Plan) bool { return p.Name == taskType && p.Version == version })
	if i >= 0 {
		return &stored[i], nil
	}
	if unreadable, some := errors.AsType[core.UnreadablePlans](err); some && unreadable.Find(taskType, version) == nil {
		return nil, nil // which is of others
	}
	return nil, err
}

// submission turns a request of the fast door into ingest's.
func submission(r *natsbus.SubmitRequest) ingest.Request {
	return ingest.Request{
		Form: r.Form,
		Answer: func(a ingest.Answer) {
			if a.Err != nil {
				r.Reject(a.Err.Code, a.Err.ErrCode, a.Err.Description, a.Err.Retry)
				return
			}
			r.Accept(a.Stream, a.Seq, a.Partition, a.Warning)
		},
	}
}
