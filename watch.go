package duly

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
)

// WatchOption changes one [Client.Watch].
type WatchOption func(*watch)

type watch struct {
	since time.Time
	hash  string // of the submission that is watched; empty: not known
	plain string // see Receipt
}

// Since is how far back Watch looks for news of the task, besides asking the server what
// has become of it: a time before it was submitted, such as Receipt.At. One minute ago
// unless said.
func Since(t time.Time) WatchOption { return func(w *watch) { w.since = t } }

// Of makes Watch follow the submission that the receipt is of, since it began: where the
// id turns out to be another submission's task, Watch ends with that refusal (409), and
// a refusal of another submission under the id does not end it.
func Of(receipt Receipt) WatchOption {
	return func(w *watch) { w.since, w.hash, w.plain = receipt.At, receipt.hash, receipt.plain }
}

// codeTaken: the id is a task already, with another input or of another type.
const codeTaken = 409

// skewMax is how much further back Watch looks, for the server's clock.
const skewMax = 10 * time.Second

// Watch yields the news of one task, each state once, and ends after the one
// that ends the task. It ends with an error when ctx ends, when the connection
// closes, or when it cannot begin.
//
// A refusal ends it too: it is yielded as a [StateRefused] status together with a
// [SubmitError] that is [ErrRefused]. Without [Of] that can be the refusal of another
// submission under the same id, which the server tells in the same way.
//
// The states on the way are told live only: what happened before the loop began
// is not repeated. The end is found however late the loop begins: in the store, by
// asking, and otherwise in a durable stream of the endings of the type, which is
// read from [Since] on, also when it is made again. To follow many tasks at a time, give them a subject with
// [ReplyTo] instead.
func (c *Client) Watch(ctx context.Context, typ, id string, options ...WatchOption) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := checkTask(typ, id); err != nil {
			yield(Status{}, fmt.Errorf("watch: %w", err))
			return
		}
		w := watch{since: c.clock.Now().Time().Add(-time.Minute)}
		for _, option := range options {
			option(&w)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		n, err := c.follow(ctx, typ, id, &w)
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

// news is where a Watch hears of its task.
type news struct {
	refused string // subject of refusals in the event stream
	typ     string
	id      string
	hash    string // see watch
	plain   string // see watch
	live    chan *nats.Msg
	ended   chan Status // from the event stream, or from the store
	failed  chan error
	hint    chan struct{} // has an element when live news says that the task has ended
	last    atomic.Uint64 // position in the event stream that was read last
	client  *Client
	stop    func() // ends the subscriptions and waits for them
}

// follow subscribes to the live news and then opens the event stream: creating
// the consumer is a round trip, so the subscription stands by then.
func (c *Client) follow(ctx context.Context, typ, id string, w *watch) (*news, error) {
	since := w.since.Add(-skewMax)
	n := &news{client: c, refused: c.names.EventSubject(typ, core.StatusRefused), typ: typ, id: id, hash: w.hash, plain: w.plain, live: make(chan *nats.Msg, 64), ended: make(chan Status), failed: make(chan error, 1), hint: make(chan struct{}, 1)}
	sub, err := c.nc.ChanSubscribe(c.names.LiveSubject(typ, id), n.live)
	if err != nil {
		return nil, err
	}
	if c.noEvents {
		var asking sync.WaitGroup
		asking.Go(func() { n.poll(ctx) })
		n.stop = func() {
			_ = sub.Unsubscribe()
			asking.Wait()
		}
		return n, nil
	}
	from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since}
	silent := make(chan struct{}, 1)
	open := func() (stop func(), err error) {
		return c.events(ctx, typ, from, func(msg jetstream.Msg) { n.read(ctx, msg) }, n.failed, silent)
	}
	stop, err := open()
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() { n.keep(ctx, stop, silent, open) })
	n.stop = func() {
		_ = sub.Unsubscribe()
		reading.Wait()
	}
	return n, nil
}

// keep asks the store once the event stream is open, so that an end which the store does not have yet comes from there. When
// the stream was made again, or went back, it does so again: an end that only the stream before had is in the store.
func (n *news) keep(ctx context.Context, stop func(), silent <-chan struct{}, open func() (stop func(), err error)) {
	for {
		var identity natsbus.Identity
		_, _ = identity.Check(ctx, n.client.js, n.client.names.StreamEvents(), 0)
		n.ask(ctx)
		remade := n.remade(ctx, &identity, silent)
		stop()
		if !remade {
			return
		}
		n.last.Store(0)
		var err error
		for stop, err = open(); err != nil; stop, err = open() {
			if n.client.clock.Sleep(ctx, askPause) != nil {
				return
			}
		}
	}
}

// remade waits until the event stream is another one than at first, or went back; false: ctx has ended.
func (n *news) remade(ctx context.Context, identity *natsbus.Identity, silent <-chan struct{}) bool {
	look := time.NewTicker(endsLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-silent:
		case <-look.C:
		}
		if _, err := identity.Check(ctx, n.client.js, n.client.names.StreamEvents(), n.last.Load()); err != nil {
			return true
		}
	}
}

// tell yields until the task has ended or yield returns false.
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
				select {
				case n.hint <- struct{}{}:
				default: // there is one
				}
				continue
			}
		}
		if told[s.State] {
			continue
		}
		if s.State.Ended() {
			var ok bool
			if s, ok = n.judge(ctx, s); !ok {
				continue
			}
		}
		if s.State == StateRefused {
			yield(s, fmt.Errorf("watch: %w", &SubmitError{Type: n.typ, Task: n.id, Code: s.Code, Description: s.Error, taken: s.Code == codeTaken}))
			return nil
		}
		told[s.State] = true
		if !yield(s, nil) || s.State.Ended() {
			return nil
		}
	}
}

// ask asks the store what has become of the task: its end may be older than what the
// stream is read from. It tries again while the server does not answer.
func (n *news) ask(ctx context.Context) {
	for {
		task, err := n.get(ctx)
		switch {
		case err == nil:
			n.stored(ctx, &task)
			return
		case !worthAgain(err) || n.client.clock.Sleep(ctx, askPause) != nil:
			return // not there yet, or a server that cannot say
		}
	}
}

// poll asks the store until the task has ended: at once when live news says so.
func (n *news) poll(ctx context.Context) {
	for ctx.Err() == nil {
		task, err := n.get(ctx)
		switch {
		case err == nil:
			n.stored(ctx, &task)
		case !errors.Is(err, ErrNotFound) && !worthAgain(err):
			select {
			case n.failed <- err:
			default: // said already
			}
			return
		}
		pause, cancel := n.client.clock.WithTimeout(ctx, askPause)
		select {
		case <-n.hint:
		case <-pause.Done():
		}
		cancel()
	}
}

// askPause is how long Watch waits between two questions: that the server did not answer,
// or, without the event stream, of a task that goes on.
const askPause = 2 * time.Second

func (n *news) get(ctx context.Context) (Task, error) {
	ctx, cancel := n.client.clock.WithTimeout(ctx, tryMax)
	defer cancel()
	return n.client.get(ctx, n.typ, n.id)
}

// judge holds what ends a watch against the store: news of an id is not always news of the submission, and the task may have
// been resubmitted since. ok is false for the refusal of another submission, and for an end after which the task goes on.
func (n *news) judge(ctx context.Context, s Status) (own Status, ok bool) {
	if n.hash == "" && s.State == StateRefused {
		return s, true
	}
	task, err := n.get(ctx)
	switch {
	case err != nil:
		return s, true // the store does not know, or does not answer
	case n.hash != "" && !n.own(&task):
		return n.taken(&task), true
	case s.State == StateRefused || !task.State.Ended():
		return s, false
	case task.State != s.State || task.EndedAt.After(s.At):
		return task.status(), true
	}
	return s, true
}

// own reports whether a task is that of the submission: also where another key of the codec made its input.
func (n *news) own(task *Task) bool {
	if task.hash == n.hash || n.plain == "" {
		return task.hash == n.hash
	}
	input, err := decode(n.client.codec, Place{Type: n.typ, Task: n.id}, task.Input)
	return err == nil && string(core.HashInput(n.typ, input)) == n.plain
}

// taken is the refusal of a submission whose id is that other task's.
func (n *news) taken(task *Task) Status {
	why := "the id is a task already, with another input"
	if task.hash == "" {
		why = "the id was cancelled before it was submitted"
	}
	return Status{Task: n.id, Type: n.typ, State: StateRefused, Code: codeTaken, Error: why, At: task.CreatedAt}
}

// stored tells what the store has of the task.
func (n *news) stored(ctx context.Context, task *Task) {
	s := task.status()
	if n.hash != "" && !n.own(task) {
		s = n.taken(task)
	}
	if !s.State.Ended() {
		return
	}
	select {
	case n.ended <- s:
	case <-ctx.Done():
	}
}

// read looks for the task among the endings of one message.
func (n *news) read(ctx context.Context, msg jetstream.Msg) {
	if at, err := msg.Metadata(); err == nil {
		n.last.Store(at.Sequence.Stream)
	}
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
