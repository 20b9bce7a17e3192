package conformance

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// again: P1, P2.
func (s *scene) again() {
	l, c, ok := s.done()
	if !ok {
		s.open(ruleSameResult, "the do "+s.said(c))
		s.open(ruleOneEffect, "the do "+s.said(c))
		return
	}
	calls, first, problem := []*call{c}, l.result, ""
	for _, what := range []string{"do again", "do once more"} {
		c := l.do(what)
		calls = append(calls, c)
		if a, answered := s.desk.answer(c); !answered || !a.ok() {
			problem = "a do that came again " + s.said(c)
		} else if !same(first, a.reply.Result) {
			problem = "a do that came again was answered with another result"
		}
		if problem != "" {
			break
		}
	}
	if problem != "" {
		s.broken(ruleSameResult, byAnswers, problem, calls...)
	} else {
		s.held(ruleSameResult, byAnswers, fmt.Sprintf("%d dos of a key were answered with the same result", len(calls)))
	}
	s.oneEffect(l, calls, problem)
}

// oneEffect judges P1 by what dos of one key have left.
func (s *scene) oneEffect(l *life, calls []*call, problem string) {
	switch n, by, err := l.stands(1); {
	case err != nil:
		s.open(ruleOneEffect, err.Error())
	case by == byEffects && n != 1:
		s.broken(ruleOneEffect, by, fmt.Sprintf("%d effects stand for a key whose do came %d times, want 1", n, len(calls)), calls...)
	case by == byEffects:
		s.held(ruleOneEffect, by, fmt.Sprintf("1 effect stands for a key whose do came %d times", len(calls)))
	case problem != "":
		s.open(ruleOneEffect, "effects cannot be seen, and the answers do not tell: see "+ruleSameResult)
	default: // a probe says that there is one, not how many
		s.held(ruleOneEffect, byAnswers, "effects cannot be seen; the answers are those of one")
	}
}

// undone: P5, P6, P4.
func (s *scene) undone() {
	l, d, ok := s.done()
	if !ok {
		return
	}
	result := l.result
	u := l.undo("undo", result)
	if a, answered := s.desk.answer(u); !answered || !a.ok() {
		s.broken(ruleUndo, byAnswers, "the undo "+s.said(u), d, u)
		return
	}
	n, by, err := l.stands(0)
	switch {
	case err != nil:
		s.open(ruleUndo, err.Error())
	case n > 0:
		s.broken(ruleUndo, by, "an effect stands after the undo was answered with success", d, u)
	default:
		s.held(ruleUndo, by, "the undo was answered with success"+seen(by, ", and no effect stands"))
	}
	again := l.undo("undo again", result)
	if a, answered := s.desk.answer(again); !answered || !a.ok() {
		s.broken(ruleUndoAgain, byAnswers, "the undo that came again "+s.said(again), d, u, again)
	} else {
		s.held(ruleUndoAgain, byAnswers, "the undo that came again was answered with success")
	}
	s.lateDo(l, n, d, u)
}

// undoFirst: P7, P4.
func (s *scene) undoFirst() {
	l := s.life()
	u := l.undo("undo before do", nil)
	if a, answered := s.desk.answer(u); !answered || !a.ok() {
		s.broken(ruleUndoFirst, byAnswers, "the undo of a key that was never done "+s.said(u), u)
		return
	}
	s.held(ruleUndoFirst, byAnswers, "the undo of a key that was never done was answered with success")
	s.lateDo(l, 0, u)
}

// nextRound: P1. A task that was undone and is resubmitted has other keys, of which nothing is known.
func (s *scene) nextRound() {
	for range keysTried {
		before, d, ok := s.done()
		if !ok {
			s.open(ruleOneEffect, "the do "+s.said(d))
			return
		}
		u := before.undo("undo", before.result)
		if a, answered := s.desk.answer(u); !answered || !a.ok() {
			s.open(ruleOneEffect, "the undo "+s.said(u)+": see "+ruleUndo)
			return
		}
		l := s.life()
		l.task, l.round = before.task, 1
		c := l.do("do of the next round")
		switch a, answered := s.desk.answer(c); {
		case answered && a.reply.Code == core.CodeGone:
			s.broken(ruleOneEffect, byAnswers, "a do of the next round, which has another key, "+s.said(c)+", as if its own key had been undone", d, u, c)
			return
		case answered && a.final(): // the agent refuses the key
			continue
		case !answered || !a.ok():
			s.open(ruleOneEffect, "the do of the next round "+s.said(c))
			return
		}
		switch n, by, err := l.stands(1); {
		case err != nil:
			s.open(ruleOneEffect, err.Error())
		case by != byAnswers && n != 1:
			s.broken(ruleOneEffect, by, fmt.Sprintf("%d effects stand for a key of the next round, want 1", n), d, u, c)
		default:
			s.held(ruleOneEffect, by, "a do of the next round, after the undo of the first, was answered with success"+seen(by, ", and its effect stands"))
		}
		return
	}
	s.open(ruleOneEffect, "the agent refuses each key of a next round")
}

// lateDo plays a do after its undo; before is how many effects stood, and calls are what came before.
func (s *scene) lateDo(l *life, before int, calls ...*call) {
	c := l.do("late do")
	calls = append(calls, c)
	a, answered := s.desk.answer(c)
	if !answered || a.reply.Code != core.CodeGone {
		s.broken(ruleLateDo, byAnswers, "a do after its undo "+s.said(c)+", want an error 410", calls...)
		return
	}
	switch n, by, err := l.stands(before); {
	case err != nil:
		s.open(ruleLateDo, err.Error())
	case n > before:
		s.broken(ruleLateDo, by, "a do after its undo was refused, and has an effect", calls...)
	default:
		l.clean = true
		s.held(ruleLateDo, by, "a do after its undo was refused with 410"+seen(by, ", and has no effect"))
	}
}

// seen is a text where effects can be seen.
func seen(by By, text string) string {
	if by == byAnswers {
		return ""
	}
	return text
}

// concurrentKeys is how many keys P3 is played with.
const concurrentKeys = 3

// concurrent: P3.
func (s *scene) concurrent() {
	done, judged, shown := 0, 0, byAnswers
	for try := 0; try < keysTried && judged < concurrentKeys; try++ {
		n, by, broken := s.concurrentKey(s.life().with(s.o.SlowInput))
		if broken {
			return
		}
		if n > 0 {
			done, shown = done+n, by
			judged++
		}
	}
	if judged == 0 {
		s.open(ruleConcurrent, "the agent refuses each key, also without haste")
		return
	}
	s.held(ruleConcurrent, shown, fmt.Sprintf("%d keys with %d dos at a time: %d were answered with their key's one result, none was refused for good", judged, s.o.Together, done)+
		seen(shown, ", and 1 effect stands"))
}

// concurrentKey plays dos of one key at a time; done is how many succeeded, 0 of a key that the agent refuses. broken says
// that there is a finding.
func (s *scene) concurrentKey(l *life) (done int, by By, broken bool) {
	calls := s.desk.sendMany("do at the same time", s.o.Names.CommandSubject(s.o.Agent, false), s.o.Together,
		func() []byte { return wire.AppendCommand(nil, l.command(false, nil, s.o.CallTime)) }, s.o.CallTime, false)
	var refused []*call
	differ := false
	for _, c := range calls {
		a, answered := s.wait(c)
		switch {
		case answered && a.ok():
			differ = differ || done > 0 && !same(l.result, a.reply.Result)
			l.result = a.reply.Result
			done++
		case answered && a.final():
			refused = append(refused, c)
		}
	}
	if len(refused) == len(calls) {
		c := l.do("do afterwards")
		if a, answered := s.desk.answer(c); answered && a.final() {
			return 0, by, false
		}
	}
	if len(refused) > 0 {
		s.broken(ruleConcurrent, byAnswers, fmt.Sprintf("%d of %d dos of a key at a time were refused for good", len(refused), len(calls)), refused...)
		return done, by, true
	}
	if done == 0 {
		c := l.do("do afterwards")
		if a, answered := s.desk.answer(c); !answered || !a.ok() {
			s.broken(ruleConcurrent, byAnswers, fmt.Sprintf("none of %d dos of a key at a time succeeded, and the one afterwards %s", len(calls), s.said(c)), append([]*call{c}, calls...)...)
			return done, by, true
		}
		done++
	}
	by, broken = s.concurrentEffects(l, calls, differ)
	return done, by, broken
}

// concurrentEffects judges P3 by what the dos of a key have left; differ says that their results do.
func (s *scene) concurrentEffects(l *life, calls []*call, differ bool) (by By, broken bool) {
	n, by, err := l.stands(1)
	problem := ""
	switch {
	case err != nil:
		s.open(ruleConcurrent, err.Error())
		return by, true
	case by == byEffects && n != 1:
		problem = fmt.Sprintf("%d effects stand for a key with %d dos at a time, want 1", n, len(calls))
	case by == byEffects:
		return by, false
	case differ:
		problem = "dos of a key at a time were answered with different results"
	default: // a probe says that there is an effect, not how many
		return byAnswers, false
	}
	s.unlessHidden(ruleConcurrent, by, problem, []string{ruleOneEffect, ruleSameResult}, calls...)
	return by, true
}

// undoGaps are the times from a do to its undo.
var undoGaps = []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// undoDoing: P8.
func (s *scene) undoDoing() {
	overlaps := 0
	shown := byAnswers
	for _, gap := range undoGaps {
		l := s.life().with(s.o.SlowInput)
		d := l.send("do", l.command(false, nil, s.o.CallTime))
		if pause.For(s.ctx, gap) != nil {
			return
		}
		if _, answered := s.desk.answer(d); !answered {
			overlaps++
		}
		u := l.undo("undo while doing", nil)
		if a, answered := s.desk.answer(u); !answered || !a.ok() {
			s.unlessHidden(ruleUndoDoing, byAnswers, "the undo "+s.said(u), []string{ruleUndo, ruleUndoFirst}, d, u)
			return
		}
		s.wait(d) // until it can have no effect any more
		ok, by := s.nothingStays(l, d, u)
		if !ok {
			return
		}
		shown = by
	}
	if overlaps == 0 {
		s.open(ruleUndoDoing, "each do was answered before its undo came: give an input that the agent works long on (slow-input)")
		return
	}
	s.held(ruleUndoDoing, shown, fmt.Sprintf("%d of %d undos came before their do was answered; each succeeded", overlaps, len(undoGaps))+seen(shown, ", and no effect stays"))
}

// nothingStays judges one round of P8.
func (s *scene) nothingStays(l *life, d, u *call) (ok bool, by By) {
	n, by, err := l.stands(0)
	switch {
	case err != nil:
		s.open(ruleUndoDoing, err.Error())
		return false, by
	case n > 0:
		s.unlessHidden(ruleUndoDoing, by, "an effect stays after an undo that came while its do was at work", []string{ruleUndo, ruleLateDo}, d, u)
		l.clean = false
		return false, by
	case by != byAnswers:
		return true, by
	}
	c := l.do("do afterwards")
	if a, answered := s.desk.answer(c); !answered || a.reply.Code != core.CodeGone {
		s.unlessHidden(ruleUndoDoing, by, "a do after an undo that came while its do was at work "+s.said(c), []string{ruleLateDo}, d, u, c)
		return false, by
	}
	l.clean = true
	return true, by
}

// unlessHidden is broken, but not where another rule that is broken leads to it.
func (s *scene) unlessHidden(rule string, by By, why string, others []string, calls ...*call) {
	if hidden, is := s.hiddenBy(others...); is {
		s.open(rule, why+": see "+hidden)
		return
	}
	s.broken(rule, by, why, calls...)
}
