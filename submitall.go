package duly

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"duly.dev/duly/internal/core"
)

// The limits of [InFlight].
const (
	inFlightDefault = 256
	inFlightMax     = 10_000
)

// Submission is one task for [Client.SubmitAll]: made by [Plan.Submission], or by hand where the plan's types are not
// at hand.
type Submission struct {
	Type    string // the plan's name
	Task    string // the task's id
	Input   []byte // JSON, as it shall reach the agents
	Options []SubmitOption

	inputMax int   // 0: what any plan takes
	err      error // it could not be made
}

// Submission is what [Plan.Submit] would submit, for [Client.SubmitAll]. What is wrong with it is told there, as what
// became of it.
func (p *Plan[In]) Submission(id string, input In, options ...SubmitOption) Submission {
	return p.submission("submit", 0, id, input, options)
}

// submission is an input with what the plan says of it, for the errors of a verb; payload is what a message may hold, 0: that
// is not known.
func (p *Plan[In]) submission(verb string, payload int, id string, input In, options []SubmitOption) Submission {
	s := Submission{Type: p.spec.Name, Task: id, Options: append([]SubmitOption{AtVersion(p.spec.Version)}, options...), inputMax: p.spec.InputMax}
	if err := p.check(payload); err != nil {
		s.err = fmt.Errorf("%s task %s: %w", verb, id, err)
	} else if s.Input, err = json.Marshal(input); err != nil {
		s.err = fmt.Errorf("%s task %s of type %s: input: %w", verb, id, p.spec.Name, err)
	}
	return s
}

// Submitted is what became of one submission of [Client.SubmitAll].
type Submitted struct {
	Index      int // of the submission in the sequence; the first is 0
	Submission Submission
	Receipt    Receipt // where there is no error
}

// SubmitAllOption changes how [Client.SubmitAll] works.
type SubmitAllOption func(*submitAll)

// InFlight is how many submissions are on their way at a time, 1 to 10,000; 256 unless said. So many are held in memory,
// and so many results wait for the loop.
func InFlight(most int) SubmitAllOption {
	return func(a *submitAll) { a.most = most }
}

// SubmitAll submits everything that all gives, several at a time, and gives what became of each as soon as it is known:
// not in the order of all, but with the Index there. An error is that of one submission, as [Plan.Submit] returns it; the
// others go on. While the system is full or out of reach each tries again until ctx ends.
//
//	for done, err := range client.SubmitAll(ctx, all) {
//
// When ctx ends, what is on its way fails with [ErrTimeout]; the first submission that was not begun is given last, with
// such an error, and of those after it nothing is known. To go on, give them all again: the same id with the same input is
// the same task.
//
// all is ranged over by a goroutine of its own, beside the loop. A loop that is left early ends it when it gives the next
// submission, and SubmitAll waits for that: a sequence that waits for something must end with ctx, or by other means.
func (c *Client) SubmitAll(ctx context.Context, all iter.Seq[Submission], options ...SubmitAllOption) iter.Seq2[Submitted, error] {
	a := submitAll{client: c, all: all, most: inFlightDefault}
	for _, option := range options {
		option(&a)
	}
	return func(yield func(Submitted, error) bool) {
		if a.most < 1 || a.most > inFlightMax {
			yield(Submitted{Index: -1}, fmt.Errorf("submit all: InFlight(%d), want 1 to %d", a.most, inFlightMax))
			return
		}
		a.run(ctx, yield)
	}
}

// submitAll is what [Client.SubmitAll] was called with.
type submitAll struct {
	client *Client
	all    iter.Seq[Submission]
	most   int
}

// became is one result on its way to the loop.
type became struct {
	Submitted
	err error
}

// run submits all and gives the results, until all are told or yield wants no more.
func (a *submitAll) run(ctx context.Context, yield func(Submitted, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan became, a.most) // there is room for everything that is in flight
	room := make(chan struct{}, a.most)
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer cancel()
	var left *became
	feeding.Go(func() {
		defer close(results)
		left = a.feed(ctx, room, results)
	})
	for r := range results {
		<-room
		if !yield(r.Submitted, r.err) {
			return
		}
	}
	if left != nil {
		yield(left.Submitted, left.err)
	}
}

// feed begins each submission when there is room, and returns when all have ended. left is the first that was not begun,
// because ctx has ended.
func (a *submitAll) feed(ctx context.Context, room chan<- struct{}, results chan<- became) (left *became) {
	var working sync.WaitGroup
	defer working.Wait()
	index := 0
	a.all(func(s Submission) bool {
		is := Submitted{Index: index, Submission: s}
		index++
		if ctx.Err() == nil {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			left = &became{is, fmt.Errorf("submit task %s of type %s: it and those after it were not begun: %w: %w", s.Task, s.Type, ErrTimeout, err)}
			return false
		}
		working.Go(func() {
			var err error
			is.Receipt, err = a.client.submitOne(ctx, &s)
			results <- became{is, err}
		})
		return true
	})
	return left
}

// submitOne submits one of many.
func (c *Client) submitOne(ctx context.Context, s *Submission) (Receipt, error) {
	if s.err != nil {
		return Receipt{}, s.err
	}
	most := s.inputMax
	if most == 0 {
		most = core.InputBytesMax
	}
	return c.submit(ctx, s.Type, s.Task, s.Input, most, s.Options)
}
