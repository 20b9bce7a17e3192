package dulytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
)

// T is what RunTwice needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Option changes one [RunTwice].
type Option func(*config)

type config struct {
	effects  func(key string) int
	results  []core.StepResult
	callTime time.Duration
	err      error
}

// Effects lets RunTwice look at the world: count gives how many effects stand
// for a key, which is one after do and none after undo, however often each was
// called.
func Effects(count func(key string) int) Option { return func(c *config) { c.effects = count } }

// Earlier gives the handlers the result of an earlier step, for those that read
// it with its Result method.
func Earlier(step duly.Named, result any) Option {
	return func(c *config) {
		data, err := json.Marshal(result)
		if err != nil {
			c.err = fmt.Errorf("result of step %s: %w", step.Name(), err)
		}
		c.results = append(c.results, core.StepResult{Step: step.Name(), Result: data})
	}
}

// CallTime is how long each call may take; 10 s unless said.
func CallTime(d time.Duration) Option { return func(c *config) { c.callTime = d } }

// RunTwice plays four short lives of a step against the agent that serves it,
// each under a key of its own, and reports every answer that would lose or
// double an effect:
//
//	all is well       do, do, undo, undo, late do
//	the answer lost   do, undo without a result, undo, late do
//	the undo first    undo without a result, undo, late do
//	the next round    do, undo, do and undo of the task that was resubmitted
//
// A repeated do must answer what the first did, a repeated undo must succeed,
// and a late do must be refused with code 410: an agent with a ledger does that
// by itself (duly.WithLedger), others return duly.ErrGone.
//
// Make the agent with duly.NewAgent(nil, …), serve the step on it and leave it
// at that: it need not run.
func RunTwice[In, Out any](t T, agent *duly.Agent, step *duly.Step[In, Out], input In, options ...Option) {
	t.Helper()
	c := config{callTime: 10 * time.Second}
	for _, option := range options {
		option(&c)
	}
	data, err := json.Marshal(input)
	if err == nil {
		err = c.err
	}
	if err != nil {
		t.Errorf("step %s: %v", step.Name(), err)
		return
	}
	for _, life := range lives {
		s := scene{
			t: t, agent: agent, config: &c,
			name: fmt.Sprintf("step %s, %s", step.Name(), life.name),
			cmd: core.Command{
				Agent: step.Agent(), Step: step.Name(), Type: "dulytest",
				// A service that keeps its keys must not know them from the last run.
				Task:  fmt.Sprintf("dulytest-%016x", rand.Uint64()),
				Input: data, Results: c.results,
			},
		}
		if err := s.encode(); err != nil {
			t.Errorf("%s: %v", s.name, err)
			return
		}
		life.play(&s)
	}
}

// encode has the payloads as the agent's codec makes them, if it has one.
func (s *scene) encode() error {
	codec := s.agent.Codec()
	if codec == nil {
		return nil
	}
	var err error
	if s.cmd.Input, err = codec.Encode(duly.Place{Type: s.cmd.Type, Task: s.cmd.Task}, s.cmd.Input); err != nil {
		return err
	}
	s.cmd.Results = slices.Clone(s.cmd.Results)
	for i := range s.cmd.Results {
		r := &s.cmd.Results[i]
		if r.Result, err = codec.Encode(duly.Place{Type: s.cmd.Type, Task: s.cmd.Task, Step: r.Step}, r.Result); err != nil {
			return err
		}
	}
	return nil
}

var lives = []struct {
	name string
	play func(*scene)
}{
	{"all is well", func(s *scene) {
		s.t.Helper()
		first := s.do("do", 1)
		second := s.do("do again", 2)
		if first != nil && second != nil && !bytes.Equal(first, second) {
			s.t.Errorf("%s: do again: answered %s, the first time %s", s.name, second, first)
		}
		s.undo("undo", 1, first)
		s.undo("undo again", 2, first)
		s.late()
	}},
	{"the answer lost", func(s *scene) {
		s.t.Helper()
		s.do("do", 1)
		s.undo("undo without a result", 1, nil)
		s.undo("undo again", 2, nil)
		s.late()
	}},
	{"the undo first", func(s *scene) {
		s.t.Helper()
		s.undo("undo before do", 1, nil)
		s.undo("undo again", 2, nil)
		s.late()
	}},
	{"the next round", func(s *scene) { // which has another key
		s.t.Helper()
		s.undo("undo", 1, s.do("do", 1))
		s.cmd.Round++
		s.undo("undo of the next round", 1, s.do("do of the next round", 1))
	}},
}

// scene is one life of one key.
type scene struct {
	t      T
	agent  *duly.Agent
	config *config
	name   string
	cmd    core.Command
}

// do expects success and gives the result.
func (s *scene) do(what string, attempt int) []byte {
	s.t.Helper()
	reply, answered := s.call(false, attempt, nil)
	s.expect(what, reply, answered, 0)
	s.stands(what, 1)
	if reply.Code != 0 {
		return nil
	}
	return reply.Result
}

func (s *scene) undo(what string, attempt int, result []byte) {
	s.t.Helper()
	reply, answered := s.call(true, attempt, result)
	s.expect(what, reply, answered, 0)
	s.stands(what, 0)
}

// late is a do that was under way for long.
func (s *scene) late() {
	s.t.Helper()
	reply, answered := s.call(false, 1, nil)
	s.expect("late do", reply, answered, core.CodeGone)
	s.stands("late do", 0)
}

func (s *scene) call(undo bool, attempt int, result []byte) (core.Reply, bool) {
	cmd := s.cmd
	now := core.InstantOf(time.Now())
	cmd.Undo, cmd.Attempt, cmd.Result = undo, attempt, result
	cmd.CompleteBy, cmd.Left = now.Add(s.config.callTime), s.config.callTime
	return s.agent.Runtime().Handle(context.Background(), now, &cmd)
}

func (s *scene) expect(what string, reply core.Reply, answered bool, code int) {
	s.t.Helper()
	switch {
	case !answered:
		s.t.Errorf("%s: %s: no answer within %v", s.name, what, s.config.callTime)
	case reply.Code == code:
	case code == 0:
		s.t.Errorf("%s: %s: failed with code %d: %s", s.name, what, reply.Code, reply.Error)
	case reply.Code == 0:
		s.t.Errorf("%s: %s: succeeded, want code %d", s.name, what, code)
	default:
		s.t.Errorf("%s: %s: code %d (%s), want %d", s.name, what, reply.Code, reply.Error, code)
	}
}

func (s *scene) stands(what string, want int) {
	s.t.Helper()
	if s.config.effects == nil {
		return
	}
	if got := s.config.effects(s.cmd.Key()); got != want {
		s.t.Errorf("%s: %s: %d effects stand, want %d", s.name, what, got, want)
	}
}
