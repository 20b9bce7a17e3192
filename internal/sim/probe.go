package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Questions about silent dos, and what agents say.

// Probe is a question, asked again until an agent says, by the rule that the silence is committed.
func (b *nodeBus) Probe(q scheduler.Question, said func(core.Probe)) {
	b.n.point()
	b.w.checkQuestion(&q.Command)
	b.w.tell(q.Command.Task, -1, "%s asks what became of %s, row %d, until %s", b.n.name, q.Command.Key(), q.Command.Seq, b.w.stamp(q.Command.CompleteBy))
	b.ask(q, said)
}

// ask is one question on its way, and its answer, of which either may be lost.
func (b *nodeBus) ask(q scheduler.Question, said func(core.Probe)) {
	w, era, at := b.w, b.w.era, b.n.now()
	again := func() {
		w.after(100*time.Millisecond+w.upTo(200*time.Millisecond), func() {
			if b.n.life == b.life && b.n.now() < q.Command.CompleteBy {
				b.ask(q, said)
			}
		})
	}
	if w.fault(ProbeLost) {
		again()
		return
	}
	w.after(w.delay(), func() {
		if w.era != era {
			return
		}
		p, err := w.look(&q.Command)
		if err != nil || !p.Decides(at, q.Quiet) {
			again()
			return
		}
		w.after(w.delay(), func() {
			if b.n.life != b.life || w.fault(ProbeLost) {
				return
			}
			said(p)
			for _, l := range b.n.loops {
				l.wake()
			}
		})
	})
}

// look brings a question to one of the agents that are there.
func (w *World) look(c *core.Command) (core.Probe, error) {
	if w.during(w.ails.away) {
		return core.Probe{}, errNoAgent
	}
	for _, a := range w.agents {
		if w.now < a.down {
			continue
		}
		p, _, err := a.runtime.Probe(context.Background(), a.clock.now(), c)
		if err == nil && p.Outcome != core.ProbeInProgress {
			w.looked[c.Key()] = append(w.looked[c.Key()], p.Outcome)
		}
		return p, err
	}
	return core.Probe{}, errNoAgent
}

var errNoAgent = errors.New("no agent is there")

// probe is what every service says of a key.
func (a *agentProcess) probe(_ context.Context, c *core.Command) (core.Probe, error) {
	w := a.w
	switch {
	case w.fault(AgentError):
		return core.Probe{}, agents.ErrNotKnown
	case w.fault(AgentBusy):
		return core.Probe{Outcome: core.ProbeInProgress}, nil
	case w.books.live[c.Key()]:
		return core.Probe{Outcome: core.ProbeDone, Result: []byte(`{"step":"` + c.Step + `"}`)}, nil
	}
	return core.Probe{Outcome: core.ProbeAbsent}, nil
}

// checkQuestion: an agent is asked about a do that the journal says was silent.
func (w *World) checkQuestion(c *core.Command) {
	if w.backs > 0 { // the silence may be in a time that is lost
		return
	}
	r := w.Store.rows[rowKey{c.Partition, c.Number}]
	if r != nil && r.purged {
		return
	}
	if r == nil || r.task.ID != c.Task || !slices.ContainsFunc(r.journal, func(j core.Record) bool {
		asked := j.Seq > c.Seq && j.Kind == core.KindOverdue || j.Seq == c.Seq && j.Kind == core.KindStarted && j.StepStatus == core.StepRunning && j.Next < 0
		return asked && j.Round == c.Round && planBook{w}.Plan(c.Type, 0).Steps[j.Step].Name == c.Step
	}) {
		w.wrong(c.Partition, c.Task, "an agent is asked about row %d, %s, which was neither silent nor of an old key", c.Seq, c.Key())
	}
}

// probed judges a row of what an agent said: of a silent do, and nothing has left for the step since.
func (s *refereed) probed(j *core.Record) error {
	switch {
	case byOperator(j):
		return nil
	case s.silent == 0 || s.out != 0:
		return fmt.Errorf("it says what became of a do of step %d, of which row %d is out and row %d was silent", j.Step+1, s.out, s.silent)
	case j.Code == core.CodeTimeout && j.At < s.asked:
		return fmt.Errorf("it ends the question about step %d at %d, which has time until %d", j.Step+1, j.At, s.asked)
	case j.StepStatus == core.StepDone && j.At >= s.asked:
		return fmt.Errorf("it takes step %d for done by an answer at %d to a question whose time was over at %d", j.Step+1, j.At, s.asked)
	case j.StepStatus == core.StepDone && (s.asked == 0 || j.Code != 0):
		return fmt.Errorf("it takes step %d for done, and its agent was not asked, or said %d", j.Step+1, j.Code)
	}
	s.asked = 0
	return nil
}

// byOperator reports whether a person says what a row keeps of a service.
func byOperator(j *core.Record) bool { return strings.HasPrefix(j.Actor, "olga") }

// checkProbed: an agent has said what the row keeps, and that there is no effect only where there is none.
func (w *World) checkProbed(r *row, j *core.Record) {
	t := &r.task
	key := core.Key(t.ID, planBook{w}.Plan(t.Type, t.PlanVersion).Steps[j.Step].Name, j.Round)
	outcome := core.ProbeDone
	switch j.Code {
	case core.CodeTimeout:
		return
	case core.CodeAbsent:
		outcome = core.ProbeAbsent
		if w.books.live[key] && !w.books.late[key] && !w.forgotten(t.Partition, key) {
			w.wrong(t.Partition, t.ID, "row %d takes %s to have no effect, and it has", j.Seq, key)
		}
	}
	if byOperator(j) {
		if outcome == core.ProbeDone && !w.books.live[key] && !w.forgotten(t.Partition, key) {
			w.wrong(t.Partition, t.ID, "row %d takes %s to have its effect, and it has none", j.Seq, key)
		}
		return
	}
	if !slices.Contains(w.looked[key], outcome) {
		w.wrong(t.Partition, t.ID, "row %d says that %s is %s, and no agent has said so", j.Seq, key, outcome)
	}
}
