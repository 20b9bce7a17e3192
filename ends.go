package duly

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
)

// End is how a task ended, or that a submission was refused, as the event stream has it.
type End struct {
	Status
	// Position is where to go on, as Ends takes it: whoever keeps it once the end is dealt with misses none. A message has
	// the ends of many tasks, and after all but its last one it comes again.
	Position uint64
}

// ErrMissed says that the event stream no longer has all that came after a position: it keeps what is younger than its age
// and as much as it has room for, and numbers from 1 when it is made again.
var ErrMissed = errors.New("ends were missed")

// Ends yields how the tasks of a type end, and what was refused, from a position on: first what a submitter that was away
// has missed, then what comes, until ctx ends, the connection closes or it cannot begin, which is an error. 0 is the
// beginning of what the event stream has.
//
// An end may come more than once, and another one may follow after a resubmission: the newest counts. When the stream no
// longer has what came after the position, or is made again, [ErrMissed] is yielded first, with the position from which the
// loop goes on: [Client.Get] knows the tasks that it does not tell of.
//
// The client needs the right to read the event stream: see [WithoutEvents].
func (c *Client) Ends(ctx context.Context, typ string, after uint64) iter.Seq2[End, error] {
	return func(yield func(End, error) bool) {
		if err := c.ends(ctx, typ, after, yield); err != nil {
			yield(End{}, fmt.Errorf("ends of type %s: %w", typ, err))
		}
	}
}

func (c *Client) ends(ctx context.Context, typ string, after uint64, yield func(End, error) bool) error {
	if err := core.CheckName("type", typ); err != nil {
		return err
	}
	if c.noEvents {
		return errors.New("the client was made WithoutEvents")
	}
	for remade := false; ; remade = true {
		stream, err := c.js.Stream(ctx, c.names.StreamEvents())
		if err != nil {
			return fmt.Errorf("open stream %s: %w", c.names.StreamEvents(), err)
		}
		if has := stream.CachedInfo().State; remade || after > has.LastSeq || after != 0 && after+1 < has.FirstSeq {
			missed := fmt.Errorf("ends of type %s: %w: stream %s has %d to %d, and %d was the last read", typ, ErrMissed, c.names.StreamEvents(), has.FirstSeq, has.LastSeq, after)
			if after = max(has.FirstSeq, 1) - 1; !yield(End{Position: after}, missed) {
				return nil
			}
		}
		if after, err = c.endsIn(ctx, stream.CachedInfo(), typ, after, yield); !errors.Is(err, errRemade) {
			return err
		}
	}
}

// errRemade says that the event stream is another one than at first, or went back, so that who reads on from a position of
// before hears nothing until it has grown as far; or that it has removed what comes next.
var errRemade = errors.New("the stream was made again")

// endsStall is after how long in the loop what comes next may have been removed.
const endsStall = time.Second

// endsLook is how often a reader of ends looks whether it is still the same stream, besides when it falls silent.
const endsLook = 10 * time.Second

// endsIn yields ends of a stream as it is after a position, and returns the position of the last message.
func (c *Client) endsIn(ctx context.Context, is *jetstream.StreamInfo, typ string, after uint64, yield func(End, error) bool) (last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	messages, failed, silent := make(chan jetstream.Msg), make(chan error, 1), make(chan struct{}, 1)
	from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1}
	stop, err := c.events(ctx, typ, from, func(msg jetstream.Msg) {
		select {
		case messages <- msg:
		case <-ctx.Done():
		}
	}, failed, silent)
	if err != nil {
		cancel()
		return after, err
	}
	defer stop()
	defer cancel() // before stop, which waits for those that ctx sends home
	look := time.NewTicker(endsLook)
	defer look.Stop()
	identity := natsbus.IdentityOf(is)
	stalled := false // the stream may have removed what comes next
	for {
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case err := <-failed:
			return after, err
		case msg := <-messages:
			at, err := msg.Metadata()
			if err != nil {
				return after, err
			}
			next := at.Sequence.Stream
			if stalled && next > after+1 {
				first, err := identity.Check(ctx, c.js, c.names.StreamEvents(), after)
				if err != nil || after != 0 && after+1 < first && first <= next {
					return after, errRemade
				}
				stalled = first == 0 || first > after+1
			}
			began := c.clock.Now()
			if !c.endsOf(typ, msg, next, yield) {
				return after, nil
			}
			after, stalled = next, stalled || c.clock.Now().Sub(began) > endsStall
			continue
		case <-silent:
			stalled = true
		case <-look.C:
		}
		if _, err := identity.Check(ctx, c.js, c.names.StreamEvents(), after); err != nil {
			return after, errRemade
		}
	}
}

// endsOf yields the ends of the message at a position.
func (c *Client) endsOf(typ string, msg jetstream.Msg, at uint64, yield func(End, error) bool) (more bool) {
	all := endings(c.names.EventSubject(typ, core.StatusRefused), msg)
	for i, s := range all {
		e := End{Status: s, Position: at - 1}
		if i == len(all)-1 {
			e.Position++
		}
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// eventsHeartbeat lets a reader recreate its consumer when it was mute for twice as
// long: a NATS cluster that elects a leader makes such ones now and then, and by itself
// the library takes ten seconds to see it.
const eventsHeartbeat = 1500 * time.Millisecond

// events reads the event stream about a type until stop, which waits for read to return. failed, of one element, takes what
// the library does not heal by itself; silent, too, that there was trouble which it does. silent may be nil.
func (c *Client) events(ctx context.Context, typ string, from jetstream.OrderedConsumerConfig, read func(jetstream.Msg), failed chan<- error, silent chan<- struct{}) (stop func(), err error) {
	from.FilterSubjects, from.InactiveThreshold = []string{c.names.EventSubject(typ, "*")}, 10*time.Second
	consumer, err := c.js.OrderedConsumer(ctx, c.names.StreamEvents(), from)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", c.names.StreamEvents(), err)
	}
	reading, err := consumer.Consume(read, jetstream.PullHeartbeat(eventsHeartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if !errors.Is(err, jetstream.ErrConnectionClosed) {
			select {
			case silent <- struct{}{}:
			default: // it is known, or no one asks
			}
			return
		}
		select {
		case failed <- err:
		default: // said already
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", c.names.StreamEvents(), err)
	}
	return func() { reading.Stop(); <-reading.Closed() }, nil
}
