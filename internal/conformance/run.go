package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/internal/pause"
)

// ErrNoAgent says that no instance of the agent listens.
var ErrNoAgent = errors.New("no instance listens")

// run is one run.
type run struct {
	o        Options
	desk     *desk
	tasks    string // what the ids begin with
	lives    []*life
	tidied   int      // lives that are looked after
	left     int      // lives whose undo did not succeed
	leftKeys []string // the first leftMost of them
	probes   bool     // the agent answers probes, and what it said of the first keys was so
	served   bool     // the agent answers probes

	findings []Finding
	breaks   map[string]bool // rules
}

// check is something that is played.
type check struct {
	name  string
	rules []string // that it judges
	undo  bool     // it needs a step with an undo
	probe bool     // it needs an agent that answers probes
	risky bool     // an agent that does not bear it could not undo afterwards
	play  func(*scene)
}

// checks are played in this order: what can end an agent is the last.
var checks = []check{
	{name: "commands are shared", rules: []string{ruleGroup}, play: (*scene).shared},
	{name: "probes", rules: []string{ruleProbe}, undo: true, play: (*scene).probed},
	{name: "probe while doing", rules: []string{ruleProbe}, undo: true, probe: true, play: (*scene).probedDoing},
	{name: "do again", rules: []string{ruleOneEffect, ruleSameResult}, undo: true, play: (*scene).again},
	{name: "undo, undo again, late do", rules: []string{ruleUndo, ruleUndoAgain, ruleLateDo}, undo: true, play: (*scene).undone},
	{name: "undo before do, late do", rules: []string{ruleUndoFirst, ruleLateDo}, undo: true, play: (*scene).undoFirst},
	{name: "the next round", rules: []string{ruleOneEffect}, undo: true, play: (*scene).nextRound},
	{name: "concurrent do", rules: []string{ruleConcurrent}, undo: true, play: (*scene).concurrent},
	{name: "undo while doing", rules: []string{ruleUndoDoing}, undo: true, play: (*scene).undoDoing},
	{name: "unknown members", rules: []string{ruleUnknown}, play: (*scene).unknown},
	{name: "no time left", rules: []string{ruleSilent}, play: (*scene).over},
	{name: "many calls at a time", rules: []string{ruleOneAnswer}, play: (*scene).many},
	{name: "too large", rules: []string{ruleSize}, risky: true, play: (*scene).large},
	{name: "garbage", rules: []string{ruleGarbage}, risky: true, play: (*scene).garbage},
}

// Run plays against an agent on a connection that stays the caller's. Errors: an [option.Error]; one that wraps [ErrNoAgent];
// ctx's. The report has everything else, also an agent that stops to answer.
func Run(ctx context.Context, nc *nats.Conn, o Options) (*Report, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	desk, err := newDesk(nc, o.ResultMax)
	if err != nil {
		return nil, fmt.Errorf("conformance of agent %s: %w", o.Agent, err)
	}
	defer desk.close()
	r := &run{o: o, desk: desk, tasks: "conformance-" + strings.ToLower(rand.Text()[:12]) + "-", breaks: map[string]bool{}}
	began := time.Now()
	err = r.meet(ctx)
	for i := range checks {
		if c := &checks[i]; err == nil && o.wants(c.rules...) {
			r.play(ctx, c)
			err = ctx.Err()
		}
	}
	if !errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) { // or nothing has reached the agent
		r.tidy(context.WithoutCancel(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("conformance of agent %s: %w", o.Agent, err)
	}
	_ = pause.For(ctx, o.Silence) // for second answers, and late ones; the report counts what has come
	r.answers()
	report := &Report{Agent: o.Agent, Step: o.Step, Tasks: r.tasks, Began: began.UTC(), TookMS: time.Since(began).Milliseconds(),
		Messages: desk.sent(), Findings: r.findings, Left: r.left, LeftKeys: r.leftKeys}
	for i := range r.findings {
		switch r.findings[i].State {
		case Held:
			report.Held++
		case Broken:
			report.Broken++
		case NotJudged:
			report.NotJudged++
		case Aside:
			report.Aside++
		}
	}
	return report, nil
}

// meet finds out whether the agent is there, takes the input and answers probes.
func (r *run) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.CheckTime)
	defer cancel()
	s := &scene{run: r, ctx: ctx}
	if r.o.Effects != nil {
		key := s.life().key()
		switch n, err := r.o.Effects(ctx, key); {
		case err != nil:
			return option.Refuse("effects", fmt.Errorf("of key %s: %w", key, err))
		case n != 0:
			return option.Refuse("effects", fmt.Errorf("of key %s, which was never done: %d, want 0", key, n))
		}
	}
	l, c, _ := s.done()
	a, answered := r.desk.answer(c)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.err != nil:
		return fmt.Errorf("the first do could not be sent: %w", c.err)
	case !answered:
		return fmt.Errorf("%w that answers: nothing came of the first do in %v, which is also so where its clock is ahead", ErrNoAgent, r.o.CallTime)
	case a.unserved:
		return fmt.Errorf("%w on %s", ErrNoAgent, c.subject)
	case a.reply.Code == core.CodeTooMany, a.reply.Code == core.CodeUnavailable:
		return fmt.Errorf("%w that takes commands: %s", ErrNoAgent, a.words())
	case a.reply.Code == core.CodeUnable:
		return option.Refuse("step", fmt.Errorf("%s: the agent answered %s: name a step that it serves", r.o.Step, a.words()))
	case a.failed:
		return option.Refuse("input", fmt.Errorf("%s: the agent answered %s: give one that it takes", shortened(r.o.Input), a.words()))
	}
	r.trust(s, l)
	return nil
}

// trust asks for probes, of a key that was done and of one that was not: if they are answered, and right, they show what
// stands.
func (r *run) trust(s *scene, done *life) {
	if r.o.Check {
		return
	}
	c, p, err := done.probe("probe")
	a, answered := r.desk.answer(c)
	if r.served = answered && !a.unserved; !r.served {
		return
	}
	_, never, wrong := s.life().probe("probe of a key that was never done")
	r.probes = err == nil && p.Outcome == core.ProbeDone && (wrong != nil || never.Outcome != core.ProbeDone)
}

// play plays one check, in bounded time.
func (r *run) play(ctx context.Context, c *check) {
	if c.risky {
		r.tidy(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.CheckTime)
	defer cancel()
	s := &scene{run: r, ctx: ctx, check: c}
	aside := ""
	switch {
	case c.undo && r.o.Check:
		aside = "the step has no undo"
	case c.probe && !r.served:
		aside = "the agent answers no probes"
	}
	if aside != "" {
		for _, rule := range c.rules {
			s.find(Finding{Rule: rule, State: Aside, Why: aside})
		}
		return
	}
	before := len(r.findings)
	c.play(s)
	why := "what came before it did not succeed"
	if ctx.Err() != nil {
		why = s.timeUp()
	}
	for _, rule := range c.rules {
		if r.o.wants(rule) && !judged(r.findings[before:], rule) {
			s.open(rule, why)
		}
	}
}

func judged(findings []Finding, rule string) bool {
	for i := range findings {
		if findings[i].Rule == rule {
			return true
		}
	}
	return false
}

const (
	tidyTogether = 128 // undos at a time, when what a run did is undone
	leftMost     = 20  // keys that are named whose undo did not succeed
)

// tidy undoes what may stand. It is bounded by CheckTime, and ends at the first undo that is not answered.
func (r *run) tidy(ctx context.Context) {
	if r.o.Check {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.CheckTime)
	defer cancel()
	s := &scene{run: r, ctx: ctx}
	gone := false // the agent answers no more
	var open []*life
	for _, l := range r.lives[r.tidied:] {
		if l.acted && !l.clean {
			l.scene = s
			open = append(open, l)
		}
	}
	r.tidied = len(r.lives)
	for some := range slices.Chunk(open, tidyTogether) {
		gone = gone || s.undoAll(some) == 0
		for _, l := range some {
			if !l.clean && !gone {
				_, answered := r.desk.answer(l.undo("undo at the end", l.result))
				gone = !answered
			}
			if l.clean {
				continue
			}
			if r.left++; len(r.leftKeys) < leftMost {
				r.leftKeys = append(r.leftKeys, l.key())
			}
		}
	}
}

// undoAll undoes keys at a time, and says how many undos were answered.
func (s *scene) undoAll(lives []*life) (answers int) {
	calls := make([]*call, len(lives))
	for i, l := range lives {
		calls[i] = l.send("undo at the end", l.command(true, l.result, s.o.CallTime))
	}
	for i, l := range lives {
		a, answered := s.wait(calls[i])
		if answered {
			answers++
		}
		if answered && a.ok() {
			l.took(true, &a)
		}
	}
	return answers
}

// answers judges what holds of every message: one answer, in time, with a result that can be one.
func (r *run) answers() {
	s := &scene{run: r, ctx: context.Background(), check: &check{name: "all answers"}}
	var twice, late, bad []*call
	n := 0
	for _, c := range r.desk.since(0) {
		answers, came, _ := r.desk.look(c)
		n += came
		if came > 1 {
			twice = append(twice, c)
		}
		for i := range answers {
			a := &answers[i]
			if over := a.at.Sub(c.end) - r.o.Slack; !c.untimed && !a.unserved && over > 0 && over > r.desk.onTheWay(c.end, a.at) {
				late = append(late, c)
			}
			if !c.untimed && !a.failed && a.reply.Code != 0 {
				bad = append(bad, c)
			}
		}
	}
	switch {
	case len(twice) > 0 && r.breaks[ruleGroup]:
		s.open(ruleOneAnswer, fmt.Sprintf("%d messages were answered more than once, and each instance answers: see %s", len(twice), ruleGroup))
	case len(twice) > 0:
		s.broken(ruleOneAnswer, byAnswers, fmt.Sprintf("%d of %d messages were answered more than once", len(twice), r.desk.sent()), twice...)
	default:
		s.held(ruleOneAnswer, byAnswers, fmt.Sprintf("%d messages, %d answers, none a second one", r.desk.sent(), n))
	}
	if len(late) > 0 {
		s.broken(ruleSilent, byAnswers, fmt.Sprintf("%d answers came more than %v after the complete-by", len(late), r.o.Slack), late...)
	} else {
		s.held(ruleSilent, byAnswers, fmt.Sprintf("none came more than %v after its complete-by", r.o.Slack))
	}
	if len(bad) > 0 {
		s.broken(ruleSize, byAnswers, fmt.Sprintf("%d results were over %d bytes or no JSON", len(bad), r.o.ResultMax), bad...)
	} else {
		s.held(ruleSize, byAnswers, fmt.Sprintf("every result is JSON of %d bytes at most", r.o.ResultMax))
	}
}
