package duly

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
)

// State is where a task is in its life.
type State string

// The states a [Status] may tell.
const (
	Received   State = core.StatusReceived         // stored; will end
	Processing State = State(core.StateProcessing) // a step runs or waits for its next attempt
	Pending    State = State(core.StatePending)    // waits for an agent with room, or out a pause
	Undoing    State = State(core.StateUndoing)    // being undone
	Processed  State = State(core.StateProcessed)  // every step is done; the end
	Undone     State = State(core.StateUndone)     // nothing of it is left; the end
	NeedsHelp  State = State(core.StateError)      // "error": a person must look; the end, unless resubmitted
	Refused    State = core.StatusRefused          // never became a task; the end
)

// Ended reports whether the state is one a task rests in. Of a refusal it says
// so too: see [Client.Watch] for the one that is not the task's own.
func (s State) Ended() bool { return s == Refused || core.State(s).Ended() }

// Status is one piece of news about a task.
type Status struct {
	Task  string
	Type  string
	State State
	Step  string // that failed, if one did
	Error string // why, of undone, error and refused
	Code  int    // of refused, as HTTP's: 400, 409, 413
	At    time.Time
}

// WatchOption changes one [Client.Watch].
type WatchOption func(*watch)

type watch struct{ since time.Time }

// Since is how far back Watch looks for the end of the task: a time before it
// was submitted, such as Receipt.At. One minute ago unless said.
func Since(t time.Time) WatchOption { return func(w *watch) { w.since = t } }

// codeTaken: the id is a task already, with another input or of another type.
const codeTaken = 409

// skewMax is how much further back Watch looks, for the server's clock.
const skewMax = 10 * time.Second

// Watch yields the news of one task, each state once, and ends after the one
// that ends the task. It ends with an error when ctx ends, when the connection
// closes, or when it cannot begin.
//
// A refusal ends it only while nothing else is known of the task: one with code
// 409, or one that comes after other news, is about another submission under
// the same id, and is yielded without an end.
//
// The states on the way are told live only: what happened before the loop began
// is not repeated. The end is read from a durable stream, and is found however
// late the loop begins, so long as [Since] lies before it. Watch reads all endings of the
// type to find the one; to follow many tasks at a time, give them a subject with
// [ReplyTo] instead.
func (c *Client) Watch(ctx context.Context, typ, id string, options ...WatchOption) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := checkNames(typ, id); err != nil {
			yield(Status{}, fmt.Errorf("watch: %w", err))
			return
		}
		w := watch{since: c.clock.Now().Time().Add(-time.Minute)}
		for _, option := range options {
			option(&w)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		n, err := c.follow(ctx, typ, id, w.since.Add(-skewMax))
		if err != nil {
			yield(Status{}, fmt.Errorf("watch task %s of type %s: %w", id, typ, err))
			return
		}
		defer n.stop()
		defer cancel() // before stop, which waits for those that ctx sends home
		if err := n.tell(ctx, yield); err != nil {
			yield(Status{}, fmt.Errorf("watch task %s of type %s: %w", id, typ, err))
		}
	}
}

// watchHeartbeat lets a watch begin its consumer anew when it was mute for twice as
// long: a NATS cluster that elects a leader makes such ones now and then, and by itself
// the library takes ten seconds to see it.
const watchHeartbeat = 1500 * time.Millisecond

// news is where a Watch hears of its task.
type news struct {
	refused string // subject of refusals in the event stream
	id      string
	live    chan *nats.Msg
	ended   chan Status // from the event stream
	failed  chan error
	stop    func() // ends the subscriptions and waits for them
}

// follow subscribes to the live news and then opens the event stream: creating
// the consumer is a round trip, so the subscription stands by then.
func (c *Client) follow(ctx context.Context, typ, id string, since time.Time) (*news, error) {
	n := &news{refused: c.names.EventSubject(typ, core.StatusRefused), id: id, live: make(chan *nats.Msg, 64), ended: make(chan Status), failed: make(chan error, 1)}
	sub, err := c.nc.ChanSubscribe(c.names.LiveSubject(typ, id), n.live)
	if err != nil {
		return nil, err
	}
	consumer, err := c.js.OrderedConsumer(ctx, c.names.StreamEvents(), jetstream.OrderedConsumerConfig{
		FilterSubjects:    []string{c.names.EventSubject(typ, "*")},
		DeliverPolicy:     jetstream.DeliverByStartTimePolicy,
		OptStartTime:      &since,
		InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("open stream %s: %w", c.names.StreamEvents(), err)
	}
	reading, err := consumer.Consume(func(msg jetstream.Msg) { n.read(ctx, msg) }, jetstream.PullHeartbeat(watchHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { n.fail(err) }))
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
	}
	n.stop = func() {
		_ = sub.Unsubscribe()
		reading.Stop()
		<-reading.Closed()
	}
	return n, nil
}

// tell yields until the task has ended or nobody listens.
func (n *news) tell(ctx context.Context, yield func(Status, error) bool) error {
	told := map[State]bool{}
	for {
		var s Status
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-n.failed:
			return err
		case s = <-n.ended:
		case msg := <-n.live:
			var ok bool
			if s, ok = liveStatus(msg); !ok {
				continue
			}
		}
		if told[s.State] {
			continue
		}
		foreign := s.State == Refused && (s.Code == codeTaken || len(told) > 0)
		told[s.State] = true
		if !yield(s, nil) || s.State.Ended() && !foreign {
			return nil
		}
	}
}

// read looks for the task among the endings of one message.
func (n *news) read(ctx context.Context, msg jetstream.Msg) {
	for _, s := range endings(n.refused, msg) {
		if s.Task != n.id {
			continue
		}
		select {
		case n.ended <- s:
		case <-ctx.Done():
			return
		}
	}
}

// fail ends the watch for what the library does not heal by itself.
func (n *news) fail(err error) {
	if !errors.Is(err, jetstream.ErrConnectionClosed) {
		return
	}
	select {
	case n.failed <- err:
	default: // said already
	}
}
