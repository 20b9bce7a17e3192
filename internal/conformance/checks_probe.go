package conformance

import (
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// asked probes a key until its answer is not that the do is at work, for a moment.
func (l *life) asked(what string) (*call, core.Probe, error) {
	end := time.Now().Add(l.o.Silence)
	for {
		c, p, err := l.probe(what)
		if err != nil || p.Outcome != core.ProbeInProgress || time.Now().After(end) || pause.For(l.ctx, lookEvery) != nil {
			return c, p, err
		}
	}
}

// probed: P15.
func (s *scene) probed() {
	if !s.served {
		if s.o.Probes {
			s.broken(ruleProbe, byAnswers, "no instance listens on "+s.o.Names.SubjectProbe(s.o.Agent))
		} else {
			s.find(Finding{Rule: ruleProbe, State: Aside, Why: "the agent answers no probes"})
		}
		return
	}
	never := s.life()
	told, ok := s.truthful(never, "never done", []core.ProbeOutcome{core.ProbeDone, core.ProbeInProgress}, nil)
	if !ok {
		return
	}
	l, c, ok := s.done()
	if !ok {
		s.open(ruleProbe, "the do that is asked about "+s.said(c))
		return
	}
	n, ok := s.truthful(l, "done", []core.ProbeOutcome{core.ProbeAbsent, core.ProbeInProgress}, c)
	if !ok {
		return
	}
	told += n
	c = l.undo("undo", l.result)
	if a, answered := s.desk.answer(c); !answered || !a.ok() {
		s.open(ruleProbe, "the undo that is asked about "+s.said(c))
		return
	}
	if n, ok = s.truthful(l, "undone", []core.ProbeOutcome{core.ProbeDone, core.ProbeInProgress}, c); !ok {
		return
	}
	if told += n; told == 0 {
		s.open(ruleProbe, "the agent says of no key that it knows what became of it")
		return
	}
	s.held(ruleProbe, byAnswers, fmt.Sprintf("of a key never done, of one done and then undone it told %d times, and was right", told))
}

// truthful judges one answer; tells is 1 where it is more than that nothing is known.
func (s *scene) truthful(l *life, what string, lies []core.ProbeOutcome, before *call) (tells int, ok bool) {
	c, p, err := l.asked("probe of a key that was " + what)
	switch {
	case errors.Is(err, wire.ErrUndecodable):
		s.broken(ruleProbe, byAnswers, "an answer that is none: "+err.Error(), c)
		return 0, false
	case err != nil:
		return 0, true // it cannot tell
	}
	lie := false
	for _, outcome := range lies {
		lie = lie || p.Outcome == outcome
	}
	switch {
	case lie && what == "undone" && s.o.Effects == nil:
		s.open(ruleProbe, fmt.Sprintf("it says %s of a key that was undone: the probe or the undo is wrong, see %s", p.Outcome, ruleUndo))
	case lie && what == "undone" && s.stillStands(l):
		s.open(ruleProbe, "the effect stands after its undo: see "+ruleUndo)
	case lie:
		s.broken(ruleProbe, byAnswers, fmt.Sprintf("it says %s of a key that was %s", p.Outcome, what), before, c)
	case p.Outcome == core.ProbeDone && !same(p.Result, l.result):
		s.broken(ruleProbe, byAnswers, "it has another result than the do was answered with", before, c)
	case what == "never done" && s.stillStands(l):
		s.broken(ruleProbe, byEffects, "the probe of a key that was never done had an effect", c)
	default:
		return 1, true
	}
	return 0, false
}

// stillStands reports whether effects of a key are seen to stand; a probe alone does not show it.
func (s *scene) stillStands(l *life) bool {
	if s.o.Effects == nil {
		return false
	}
	n, by, err := l.stands(0)
	return err == nil && by == byEffects && n > 0
}

const (
	askedKeys  = 3                     // that are asked about while their do is at work
	askedTried = 20                    // keys that are tried for it: a do may be over too soon
	longDo     = 20 * time.Millisecond // one that takes as long is at work in its second half
	askPause   = time.Millisecond      // between questions about a do at first; each further pause is half as long again
	askMost    = 50 * time.Millisecond
)

// probedDoing: P15, while a do is at work. What is asked first may be answered before the do begins, so that absent is a
// lie only after another answer, or where it is all that is said of long dos, of two keys.
func (s *scene) probedDoing() {
	var tried, told, failed int
	suspect := false // nothing but absent was said of a long do
	why := "nothing was said of a do before it was answered: give an input that the agent works long on (slow-input)"
	for try := 0; try < askedTried && tried < askedKeys && failed < keysTried; try++ {
		k := s.ask()
		if s.ctx.Err() != nil {
			return
		}
		before, lie := k.lie()
		switch {
		case k.none != nil:
			s.broken(ruleProbe, byAnswers, "an answer that is none: "+k.none.Error(), k.do, k.asked)
			return
		case !k.done:
			failed++
			why = "the do that is asked about " + s.said(k.do)
		case lie != nil && (before != nil || suspect):
			s.absentAtWork(k, before, lie)
			return
		case lie != nil:
			suspect = true
		case k.tried():
			tried++
			told += k.told()
		}
	}
	if tried == 0 {
		s.open(ruleProbe, why)
		return
	}
	s.held(ruleProbe, byAnswers, fmt.Sprintf("%d keys were asked about while their do was at work; it said in_progress %d times, and absent of none", tried, told))
}

// absentAtWork is broken: absent was said of a do at work; before is an answer that shows that it was, nil: none.
func (s *scene) absentAtWork(k *asking, before, lie *question) {
	why := fmt.Sprintf("it says absent of a do that is at work: asked %v after the do was sent, which was answered with success after %v; want in_progress, or an error",
		lie.after.Round(time.Millisecond), k.took.Round(time.Millisecond))
	calls := []*call{k.do}
	if before != nil {
		why += fmt.Sprintf("; it had said %s", before.outcome)
		calls = append(calls, before.call)
	}
	s.broken(ruleProbe, byAnswers, why, append(calls, lie.call)...)
}

// asking is a do, with what was said of it until it was answered.
type asking struct {
	do     *call
	done   bool // with success
	took   time.Duration
	said   []question
	asked  *call // the last
	waited bool  // its answer came after the do's
	none   error // its answer is none
}

// question is a probe of a do at work.
type question struct {
	call    *call
	after   time.Duration     // the do was sent
	outcome core.ProbeOutcome // empty: it cannot tell
}

// ask asks about a do until it is answered.
func (s *scene) ask() *asking {
	l := s.life().with(s.o.SlowInput)
	k := &asking{do: l.send("do", l.command(false, nil, s.o.CallTime))}
	for wait := askPause; ; wait = min(wait*3/2, askMost) {
		c, p, err := l.probe("probe of a key whose do is at work")
		k.asked = c
		if errors.Is(err, wire.ErrUndecodable) {
			k.none = err
			break
		}
		over, answered := s.desk.answer(k.do)
		if a, said := s.desk.answer(c); said && (!answered || a.at.Before(over.at)) {
			k.said = append(k.said, question{c, c.began.Sub(k.do.began), p.Outcome})
		} else {
			k.waited = answered
		}
		if answered || time.Now().After(k.do.end) || pause.For(s.ctx, wait) != nil {
			break
		}
	}
	if a, answered := s.wait(k.do); answered && a.ok() {
		l.took(false, &a)
		k.done, k.took = true, a.at.Sub(k.do.began)
	}
	return k
}

// tried reports whether the do was asked about while it was at work. An agent that answers nothing meanwhile was asked, too.
func (k *asking) tried() bool {
	waited := k.waited && k.took >= longDo && k.asked.began.Sub(k.do.began) < k.took/2
	return k.done && (k.told() > 0 || k.saidLate() != nil || waited)
}

// saidLate is what was said last, if it was asked in the second half of a long do.
func (k *asking) saidLate() *question {
	if n := len(k.said); n > 0 && k.took >= longDo && k.said[n-1].after > k.took/2 {
		return &k.said[n-1]
	}
	return nil
}

// told is how often the do was said to be at work.
func (k *asking) told() (n int) {
	for i := range k.said {
		if k.said[i].outcome == core.ProbeInProgress {
			n++
		}
	}
	return n
}

// lie is the first absent that is said after another answer, before. Without one it is the last answer about a long do, if
// that is absent.
func (k *asking) lie() (before, lie *question) {
	for i := range k.said {
		q := &k.said[i]
		switch {
		case q.outcome == core.ProbeAbsent && before != nil:
			return before, q
		case q.outcome == core.ProbeInProgress, q.outcome == core.ProbeDone:
			before = q
		}
	}
	if late := k.saidLate(); before == nil && late != nil && late.outcome == core.ProbeAbsent {
		return nil, late
	}
	return nil, nil
}
