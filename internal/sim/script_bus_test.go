package sim_test

import (
	"context"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// stageBus is the network as one life of a node sees it. It holds whatever
// leaves to the rule: only what is committed may.
type stageBus struct {
	s    *stage
	n    *stageNode
	life int
}

// Send implements scheduler.Bus.
func (b *stageBus) Send(cmds []core.Command) {
	for _, c := range cmds {
		is, ok := b.s.store.issued[issuedKey{c.Partition, c.Number, c.Seq}]
		if !ok || is.undo != c.Undo || is.attempt != c.Attempt {
			b.s.wrong("%s sends a command that is not committed: %+v", b.n.name, c)
		}
		c.Results = slices.Clone(c.Results)
		input := ""
		if strings.Contains(string(c.Input), "edit") {
			input = ", input " + string(c.Input)
		}
		b.s.say(b.n.name, "sends", "%s, try %d, as #%d, by %s%s", callOf(&c), c.Attempt, c.Seq, b.s.at(c.CompleteBy), input)
		b.s.carry(b, c)
	}
}

// Probe implements scheduler.Bus: the script's plans do not ask.
func (b *stageBus) Probe(q scheduler.Question, _ func(core.Probe)) {
	b.s.wrong("%s asks what became of %s", b.n.name, q.Command.Key())
}

func callOf(c *core.Command) string {
	if c.Undo {
		return "undo " + c.Key()
	}
	return "do " + c.Key()
}

func (b *stageBus) unserved(c *core.Command) {
	if b.n.life == b.life && b.n.feeds[c.Partition] != nil {
		b.n.mail.Unserved = append(b.n.mail.Unserved, scheduler.ReplyMail{
			At: b.n.clock(), Reply: core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy)},
		})
		b.n.wake()
	}
}

// Record implements scheduler.Bus.
func (b *stageBus) Record(all []core.Evidence) {
	for _, e := range all {
		if e.Former {
			b.s.former[e.Partition] = e
		} else {
			b.s.evidence[e.Partition] = e
		}
	}
}

// Publish implements scheduler.Bus.
func (b *stageBus) Publish(endings []core.Ending, done func(error)) {
	s := b.s
	for i := range endings {
		e := &endings[i]
		if !s.eventsUp {
			s.say("events", "refuses", "%s %s", e.ID, e.State)
			continue
		}
		s.say("events", "stores", "%s", strings.TrimSuffix(e.ID+" "+string(e.State)+": "+e.Error, ": "))
		if s.quiet {
			s.ended[e.ID] = append(s.ended[e.ID], e.State)
			continue
		}
		if t, ok := s.saved(e.ID); !ok || t.Row.State != e.State && t.Row.EndNumber <= e.EndNumber {
			s.wrong("an ending is published that is not committed: %s %s", e.ID, e.State)
		}
		s.ended[e.ID] = append(s.ended[e.ID], e.State)
		s.alerts.take(*e)
	}
	if !s.eventsUp {
		done(errLost)
		return
	}
	done(nil)
}

// Refuse implements scheduler.Bus.
func (b *stageBus) Refuse(_ context.Context, refused []core.Status) error {
	if !b.s.eventsUp {
		return errLost
	}
	for _, r := range refused {
		b.s.refused = append(b.s.refused, r)
		b.s.say("events", "stores", "%s refused %d: %s", r.ID, r.Code, r.Error)
	}
	return nil
}

// Notify implements scheduler.Bus.
func (b *stageBus) Notify(subject string, st core.Status) {
	text := strings.TrimSuffix(st.ID+" "+st.Status+": "+st.Error, ": ")
	b.s.say(subject, "hears", "%s", text)
	if _, ok := b.s.saved(st.ID); !ok && st.Status != core.StatusRefused {
		b.s.wrong("a status leaves that is not committed: %s", text)
	}
}

// Live implements scheduler.Bus: there is no watcher.
func (b *stageBus) Live(core.Status) {}

// Dead implements scheduler.Bus.
func (b *stageBus) Dead(_ context.Context, partition int, sub core.Submission, cause string) error {
	b.s.dead++
	b.s.say("dead", "stores", "%s of partition %d, input %s: %s", sub.ID, partition, sub.Input, cause)
	return nil
}
