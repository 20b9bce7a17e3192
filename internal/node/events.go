package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// What bounds one who follows steps.
const (
	stepsAhead  = 64              // messages with steps that wait for their reader; at more it is let go
	wantedAgain = 5 * time.Second // between two times that owners are told what is watched
)

// eventSource is operate.Events: what the event stream of NATS keeps, how tasks ended and what was refused, and the steps
// that owners tell while someone listens. The id of a kept event is <position>.<index>; steps have none.
type eventSource struct{ conn *natsbus.Conn }

// steps are some that an owner told at once.
type steps struct {
	taskType string
	events   []wire.StepEvent
	lost     int
}

// kept is an event of the stream.
type kept struct {
	at natsbus.EventPlace
	e  core.Ending
}

// Follow implements operate.Events.
func (s eventSource) Follow(ctx context.Context, after string, f operate.EventFilter, send func(operate.Event) error) error {
	place, bad := eventPlace(after)
	if bad != nil {
		return bad
	}
	ctx, cancel := context.WithCancel(ctx)
	ahead, overrun := make(chan steps, stepsAhead), make(chan struct{}, 1)
	if !f.What.Kept() {
		sub, err := s.conn.FollowSteps(f.Type, func(taskType string, events []wire.StepEvent, lost int) {
			select {
			case ahead <- steps{taskType, events, lost}:
			default:
				select {
				case overrun <- struct{}{}:
				default:
				}
			}
		})
		if err != nil {
			cancel()
			return err
		}
		defer sub.Stop()
	}
	again := time.NewTicker(wantedAgain)
	defer again.Stop()
	if err := s.want(&f); err != nil {
		cancel()
		return err
	}
	events, ended := make(chan kept), make(chan error, 1)
	go func() {
		ended <- s.conn.FollowEvents(ctx, f.Type, f.Status, place, func(at natsbus.EventPlace, e core.Ending) error {
			select {
			case events <- kept{at, e}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	err := s.merge(ctx, &f, send, ahead, overrun, events, ended, again.C)
	cancel()
	if !errors.Is(err, errStreamEnded) {
		<-ended
		return err
	}
	if err = errors.Unwrap(err); errors.Is(err, natsbus.ErrGone) {
		return &operate.Refusal{Code: 400, Field: "Last-Event-ID", Detail: say.Of("refuse.event-gone", "event", core.QuoteShort(after))}
	}
	return err
}

// streamEnded is what reading the event stream ended with.
type streamEnded struct{ err error }

// errStreamEnded is what every streamEnded is.
var errStreamEnded = errors.New("the event stream ended")

// Error implements error.
func (e streamEnded) Error() string { return fmt.Sprint(errStreamEnded, ": ", e.err) }

// Unwrap returns the cause.
func (e streamEnded) Unwrap() error { return e.err }

// Is reports whether it is errStreamEnded.
func (streamEnded) Is(target error) bool { return target == errStreamEnded }

// want tells owners which steps are wanted, if some are.
func (s eventSource) want(f *operate.EventFilter) error {
	if f.What.Kept() {
		return nil
	}
	return s.conn.Watch(wire.Wanted{Type: f.Type, ID: f.Task, Label: f.Label})
}

// merge sends both kinds of events as they come. Error: what send returned, a *operate.Refusal for a reader of steps that
// is too slow, or a streamEnded.
func (s eventSource) merge(ctx context.Context, f *operate.EventFilter, send func(operate.Event) error, ahead <-chan steps, overrun <-chan struct{},
	events <-chan kept, ended <-chan error, again <-chan time.Time,
) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return streamEnded{err}
		case <-again:
			if err := s.want(f); err != nil {
				return err
			}
		case <-overrun:
			return &operate.Refusal{Code: 429, Detail: say.Of("refuse.slow-reader", "n", stepsAhead), RetryMS: 2000}
		case k := <-events:
			for waiting := true; waiting; { // the steps of a task are told before its end
				select {
				case some := <-ahead:
					if err := sendSteps(f, &some, send); err != nil {
						return err
					}
				default:
					waiting = false
				}
			}
			what := operate.EventEnded
			if k.e.State == core.StatusRefused {
				what = operate.EventRefused
			}
			e := operate.Event{ID: fmt.Sprintf("%d.%d", k.at.Seq, k.at.Index), What: what, Type: k.e.Type, Task: k.e.ID, Status: k.e.State, Partition: k.e.Partition,
				Seq: k.e.Seq, End: k.e.EndNumber, Step: k.e.Step, Labels: k.e.Labels, Error: k.e.Error, At: k.e.At.Time()}
			if f.Selects(&e) {
				if err := send(e); err != nil {
					return err
				}
			}
		case some := <-ahead:
			if err := sendSteps(f, &some, send); err != nil {
				return err
			}
		}
	}
}

// sendSteps sends those that the filter selects, and how many are missing before them.
func sendSteps(f *operate.EventFilter, some *steps, send func(operate.Event) error) error {
	if some.lost > 0 && (f.What == "" || f.What == operate.EventLost) {
		if err := send(operate.Event{What: operate.EventLost, Type: some.taskType, Lost: some.lost, At: time.Now().UTC()}); err != nil {
			return err
		}
	}
	for i := range some.events {
		from := &some.events[i]
		e := operate.Event{What: operate.EventWhat(from.What), Type: some.taskType, Task: from.ID, Status: from.State, Partition: from.Partition, Seq: from.Seq, Step: from.Step,
			Attempt: from.Attempt, Labels: from.Labels, Error: from.Error, At: from.At.Time()}
		if f.Selects(&e) {
			if err := send(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// eventPlace reads the id of an event; empty is now.
func eventPlace(id string) (natsbus.EventPlace, *operate.Refusal) {
	if id == "" {
		return natsbus.EventPlace{}, nil
	}
	seq, index, ok := strings.Cut(id, ".")
	at, err1 := strconv.ParseUint(seq, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 31)
	if !ok || err1 != nil || err2 != nil || at == 0 {
		return natsbus.EventPlace{}, &operate.Refusal{Code: 400, Field: "Last-Event-ID", Detail: say.Of("refuse.event-id", "id", core.QuoteShort(id))}
	}
	return natsbus.EventPlace{Seq: at, Index: int(i)}, nil
}
