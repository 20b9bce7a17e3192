package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// scene is one check at work.
type scene struct {
	*run
	ctx   context.Context // ends when the time of the check is over
	check *check
}

// life is one key: a task of its own.
type life struct {
	*scene
	task   string
	round  int
	input  []byte
	tries  int
	result []byte // what the last do that succeeded answered
	acted  bool   // a do was sent: an effect may stand
	clean  bool   // an undo succeeded after the last do
}

// life begins a life.
func (s *scene) life() *life {
	l := &life{scene: s, task: s.tasks + strconv.Itoa(len(s.lives)), input: s.o.Input}
	s.lives = append(s.lives, l)
	return l
}

// with is the life with another input; nil: as it was.
func (l *life) with(input []byte) *life {
	if input != nil {
		l.input = input
	}
	return l
}

func (l *life) key() string { return core.Key(l.task, l.o.Step, l.round) }

// command is the next command for the key, with so much time.
func (l *life) command(undo bool, result []byte, left time.Duration) *core.Command {
	l.tries++
	if !undo {
		l.acted, l.clean = true, false
	}
	return &core.Command{
		Undo: undo, Agent: l.o.Agent, Task: l.task, Round: l.round, Type: l.o.Type, Step: l.o.Step, Attempt: l.tries,
		CompleteBy: core.InstantOf(time.Now().Add(left)), Left: left, Input: l.input, Results: l.o.Results, Result: result,
	}
}

// send sends a command and does not wait.
func (l *life) send(what string, cmd *core.Command) *call {
	return l.desk.send(what, l.o.Names.CommandSubject(l.o.Agent, cmd.Undo), nil, wire.AppendCommand(nil, cmd), cmd.Left)
}

// wait waits for the first answer of a call.
func (s *scene) wait(c *call) (a answer, answered bool) {
	s.desk.wait(s.ctx, c, s.o.Slack)
	return s.desk.answer(c)
}

// The pause before a command that was answered "later" comes again.
const (
	againPause = 20 * time.Millisecond
	againMost  = 500 * time.Millisecond
	againTries = 12
)

// settle sends a command until its answer is a success or final; silence ends it, too.
func (l *life) settle(what string, undo bool, result []byte) *call {
	for try := 1; ; try++ {
		c := l.send(what, l.command(undo, result, l.o.CallTime))
		a, answered := l.wait(c)
		if answered && a.ok() {
			l.took(undo, &a)
		}
		if !answered || a.unserved || a.ok() || a.final() || try == againTries {
			return c
		}
		if pause.For(l.ctx, min(againPause<<(try-1), againMost)) != nil {
			return c
		}
	}
}

// took notes a success.
func (l *life) took(undo bool, a *answer) {
	if undo {
		l.clean = true
	} else {
		l.result = a.reply.Result
	}
}

// do has the effect made; what is answered "later" comes again.
func (l *life) do(what string) *call { return l.settle(what, false, nil) }

// undo has it taken back.
func (l *life) undo(what string, result []byte) *call { return l.settle(what, true, result) }

// probe asks what became of the do.
func (l *life) probe(what string) (*call, core.Probe, error) {
	cmd := &core.Command{Agent: l.o.Agent, Task: l.task, Round: l.round, Type: l.o.Type, Step: l.o.Step, Attempt: max(1, l.tries),
		CompleteBy: core.InstantOf(time.Now().Add(l.o.CallTime)), Left: l.o.CallTime, Input: l.input, Results: l.o.Results}
	c := l.desk.send(what, l.o.Names.SubjectProbe(l.o.Agent), nil, wire.AppendCommand(nil, cmd), l.o.CallTime)
	c.untimed = true
	a, answered := l.wait(c)
	switch {
	case !answered:
		return c, core.Probe{}, fmt.Errorf("no answer in %v", l.o.CallTime)
	case a.unserved || a.failed:
		return c, core.Probe{}, fmt.Errorf("it does not say: %s", a.words())
	}
	p, err := wire.DecodeProbe(a.data, l.o.ResultMax)
	return c, p, err
}

// lookEvery is how often effects are looked at until they are as they should be.
const lookEvery = 20 * time.Millisecond

// stands is how many effects of the key stand, and what shows it: by is byAnswers where nothing does. It waits a moment for
// there to be want of them.
func (l *life) stands(want int) (n int, by By, err error) {
	if l.o.Effects == nil && !l.probes {
		return 0, byAnswers, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.o.Silence)
	defer cancel()
	for {
		n, by, err = l.count()
		if err != nil || by == byAnswers || n == want || pause.For(ctx, lookEvery) != nil {
			return n, by, err
		}
	}
}

func (l *life) count() (int, By, error) {
	if l.o.Effects != nil {
		ctx, cancel := context.WithTimeout(l.ctx, l.o.CallTime)
		defer cancel()
		n, err := l.o.Effects(ctx, l.key())
		if err != nil {
			return 0, byEffects, fmt.Errorf("effects of key %s: %w", l.key(), err)
		}
		return n, byEffects, nil
	}
	switch _, p, err := l.probe("probe"); {
	case err != nil:
		return 0, byAnswers, nil
	case p.Outcome == core.ProbeDone, p.Outcome == core.ProbeInProgress:
		return 1, byProbe, nil
	}
	return 0, byProbe, nil
}

// timeUp says why a check that has ended early is not judged.
func (s *scene) timeUp() string { return fmt.Sprintf("the check did not end within %v", s.o.CheckTime) }

// find adds a finding, if its rule is asked for.
func (s *scene) find(f Finding) {
	if !s.o.wants(f.Rule) {
		return
	}
	if f.State == Broken && s.ctx.Err() != nil {
		f = Finding{Rule: f.Rule, State: NotJudged, Why: s.timeUp()}
	}
	f.Check = s.check.name
	s.breaks[f.Rule] = s.breaks[f.Rule] || f.State == Broken
	s.findings = append(s.findings, f)
}

func (s *scene) held(rule string, by By, why string) {
	s.find(Finding{Rule: rule, State: Held, By: by, Why: why})
}

func (s *scene) broken(rule string, by By, why string, calls ...*call) {
	s.find(Finding{Rule: rule, State: Broken, By: by, Why: why, Evidence: s.desk.exchanges(calls)})
}

func (s *scene) open(rule, why string) {
	s.find(Finding{Rule: rule, State: NotJudged, Why: why})
}

// hiddenBy is one of the rules that is broken, so that another cannot be judged.
func (s *scene) hiddenBy(rules ...string) (string, bool) {
	for _, rule := range rules {
		if s.breaks[rule] {
			return rule, true
		}
	}
	return "", false
}

// said is what came of a call, for people.
func (s *scene) said(c *call) string {
	a, answered := s.desk.answer(c)
	switch {
	case c.err != nil:
		return "could not be sent: " + c.err.Error()
	case !answered:
		return "was not answered"
	}
	return "was answered with " + a.words()
}

// quiet waits until nothing can be under way any more for as long as silence takes.
func (s *scene) quiet() { _ = pause.For(s.ctx, s.o.Silence) } // the check's end ends it, too

// alive reports whether the agent works on a new key: it does it, or refuses it.
func (s *scene) alive() (*call, bool) {
	c := s.life().do("do of another key afterwards")
	a, answered := s.desk.answer(c)
	return c, answered && (a.ok() || a.final())
}

// keysTried is how many keys are tried where one must be done: an agent may refuse some, as it does with customers.
const keysTried = 5

// done begins lives until a do succeeds; ok is false where none does, or the agent does not answer.
func (s *scene) done() (l *life, c *call, ok bool) {
	for range keysTried {
		l = s.life()
		c = l.do("do")
		a, answered := s.desk.answer(c)
		if answered && a.ok() {
			return l, c, true
		}
		if !answered || !a.final() {
			break
		}
	}
	return l, c, false
}

// same reports whether two results are the same JSON, however it is written.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err1 := value(a)
	y, err2 := value(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}

func value(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
