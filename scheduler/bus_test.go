package scheduler_test

import (
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// bus writes down what leaves the shard.
type bus struct {
	list      []string
	sent      []core.Command // since the last take
	refused   []core.Status
	notices   []core.Status
	dead      []core.Submission
	evidence  []core.Evidence
	asked     []scheduler.Question
	said      []func(core.Probe) // by which each is answered
	sends     int                // calls of Send
	publishes int                // calls of Publish
	most      int                // endings of one publication

	publishErr, refuseErr, deadErr error
	hold                           bool // no confirmation of endings
}

func (b *bus) note(format string, args ...any) { b.list = append(b.list, fmt.Sprintf(format, args...)) }

// take returns the commands since the last call.
func (b *bus) take() []core.Command {
	cmds := b.sent
	b.sent = nil
	return cmds
}

func (b *bus) Send(cmds []core.Command) {
	b.sends++
	for _, c := range cmds {
		verb := "do"
		if c.Undo {
			verb = "undo"
		}
		b.note("%s %s try %d", verb, c.Key(), c.Attempt)
		c.Results = slices.Clone(c.Results)
		b.sent = append(b.sent, c)
	}
}

// Probe keeps what an agent is asked; tests answer by the function.
func (b *bus) Probe(q scheduler.Question, said func(core.Probe)) {
	b.note("probe %s try %d", q.Command.Key(), q.Command.Attempt)
	b.asked, b.said = append(b.asked, q), append(b.said, said)
}

func (b *bus) Publish(endings []core.Ending, done func(error)) {
	b.publishes++
	b.most = max(b.most, len(endings))
	for _, e := range endings {
		b.note("publish %s %s %d", e.ID, e.State, e.EndNumber)
	}
	if !b.hold {
		done(b.publishErr)
	}
}

func (b *bus) Refuse(_ context.Context, refused []core.Status) error {
	for _, s := range refused {
		b.note("refuse %s %d", s.ID, s.Code)
	}
	b.refused = append(b.refused, refused...)
	return b.refuseErr
}

func (b *bus) Notify(subject string, s core.Status) {
	b.note("notify %s %s", subject, s.Status)
	b.notices = append(b.notices, s)
}

// Record keeps evidence, and does not note it: it leaves beside everything else.
func (b *bus) Record(all []core.Evidence) { b.evidence = append(b.evidence, all...) }

func (b *bus) Live(s core.Status) { b.note("live %s %s", s.ID, s.Status) }

func (b *bus) Dead(_ context.Context, _ int, sub core.Submission, cause string) error {
	b.note("dead %s: %s", sub.ID, cause)
	b.dead = append(b.dead, sub)
	return b.deadErr
}
