package core

import (
	"fmt"
	"time"
)

// BreakerState says what an agent gets of new work.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed BreakerState = "closed" // all of it
	BreakerOpen   BreakerState = "open"   // none: steps that would begin park their tasks
	BreakerTrial  BreakerState = "trial"  // a few do commands at a time, and more with each success
)

// Limits of breakers.
const (
	BreakersMax = 1000 // breakers, from which on no one may force that of an agent which no plan names
	// breakerStages is after how many stages of a trial the breaker closes: stage n lets 2ⁿ do commands be out at a time.
	breakerStages = 8
	openingsMax   = 20 // that are counted: the pause has long come to its most
)

// Breaker keeps do commands back from an agent whose calls fail. It is the same for all owners of partitions: one of them
// decides by what all have counted, and the others follow. Undo commands are never kept back. The zero value is closed.
type Breaker struct {
	Agent    string
	State    BreakerState
	Since    Instant // of this state
	Until    Instant // of an open one: the trial begins then; of a forced one: it decides by itself again; 0: no time is set
	Openings int     // in a row: each one lasts twice as long
	Stage    int     // of a trial
	Forced   bool    // an operator has said so
	By       string  // that operator
	Reason   string  // an operator's words, or what the calls came to
	Revision int64   // rises with each change
}

// BreakerPolicy says when a breaker opens, and for how long.
type BreakerPolicy struct {
	SharePct int           // of the calls of a window, that fail: 1 to 100; 0: it never opens by itself
	CallsMin int64         // calls that a window must have
	Window   time.Duration // in which calls count
	OpenFor  time.Duration // the first time; each further opening in a row lasts twice as long
	OpenMax  time.Duration // at most; one that was closed for so long begins again with OpenFor
}

// Calls are do commands that were answered, or silent until their complete-by. A refusal is an answer; no agent, and one
// that has no room, are neither.
type Calls struct{ Done, Failed int64 }

// Add adds others to them.
func (c *Calls) Add(o Calls) { c.Done, c.Failed = c.Done+o.Done, c.Failed+o.Failed }

// bad reports whether so many of the calls fail that the breaker opens. Of no calls at all none has failed.
func (c Calls) bad(sharePct int) bool {
	return sharePct > 0 && c.Failed > 0 && c.Failed*100 >= int64(sharePct)*(c.Done+c.Failed)
}

// At returns the state at an instant, and the stage of a trial: an open breaker whose time is over is in trial.
func (b *Breaker) At(now Instant) (state BreakerState, stage int) {
	switch {
	case b.State == "", b.State == BreakerClosed:
		return BreakerClosed, 0
	case b.State == BreakerOpen && b.Until != 0 && now >= b.Until:
		return BreakerTrial, 0
	}
	return b.State, b.Stage
}

// Limit is how many do commands may be out at an instant, at each committer; -1: as many as come.
func (b *Breaker) Limit(now Instant) int {
	switch state, stage := b.At(now); state {
	case BreakerOpen:
		return 0
	case BreakerTrial:
		return 1 << min(stage, breakerStages)
	}
	return -1
}

// Back is when an open breaker lets the first command through; 0: it is not open, or no time is set.
func (b *Breaker) Back(now Instant) Instant {
	if state, _ := b.At(now); state == BreakerOpen {
		return b.Until
	}
	return 0
}

// Holds reports whether an operator's word still counts.
func (b *Breaker) Holds(now Instant) bool { return b.Forced && (b.Until == 0 || now < b.Until) }

// Next is what the breaker becomes by what all owners counted in the window, and by what the commands of a trial came to;
// changed is false where it stays as it is.
func (b Breaker) Next(p *BreakerPolicy, now Instant, window, trial Calls) (next Breaker, changed bool) {
	if p.SharePct == 0 || b.Holds(now) {
		return b, false
	}
	switch state, stage := b.At(now); state {
	case BreakerClosed:
		if window.Done+window.Failed < p.CallsMin || !window.bad(p.SharePct) {
			return b, false
		}
		// Openings count from zero again after an operator forced the breaker, or once it was closed for OpenMax.
		if b.Forced || b.Since == 0 || now >= b.Since.Add(p.OpenMax) {
			b.Openings = 0
		}
		return b.open(p, now, window, "calls failed"), true
	case BreakerTrial:
		switch {
		case trial.bad(p.SharePct):
			return b.open(p, now, trial, "calls of a trial failed"), true
		// As many successes as commands are let out at a time, before twice as many are.
		case trial.Done < 1<<stage:
			return b, false
		case stage >= breakerStages:
			return b.become(BreakerClosed, now, fmt.Sprintf("its calls succeed: the last %d of a trial", trial.Done)), true
		}
		next = b.become(BreakerTrial, now, b.Reason)
		next.Stage = stage + 1
		return next, true
	}
	return b, false
}

func (b Breaker) open(p *BreakerPolicy, now Instant, calls Calls, why string) Breaker {
	b.Openings = min(b.Openings+1, openingsMax)
	b = b.become(BreakerOpen, now, fmt.Sprintf("%d of %d %s", calls.Failed, calls.Done+calls.Failed, why))
	long := p.OpenFor
	for range b.Openings - 1 {
		long = min(2*long, p.OpenMax)
	}
	b.Until = now.Add(min(long, p.OpenMax))
	return b
}

// become is the breaker in another state, decided by itself.
func (b Breaker) become(state BreakerState, now Instant, reason string) Breaker {
	b.State, b.Since, b.Until, b.Stage, b.Forced, b.By, b.Reason = state, now, 0, 0, false, "", reason
	b.Revision++
	return b
}

// Force is the breaker as an operator wants it, open or closed, until a time or until it is let go; 0: that.
func (b Breaker) Force(state BreakerState, now, until Instant, by, reason string) Breaker {
	b = b.become(state, now, reason)
	b.Until, b.Forced, b.By, b.Openings = until, true, by, 0
	return b
}

// LetGo is the breaker after an operator's word: it is closed, and decides by itself again.
func (b Breaker) LetGo(now Instant, by, reason string) Breaker {
	b = b.become(BreakerClosed, now, reason)
	b.By, b.Openings = by, 0
	return b
}

// backTooLate reports whether step i, which may begin but for its agent, cannot wait until that is back: the task's time
// for work ends before, or leaves the step less than it needs.
func (d *decision) backTooLate(i int) bool {
	if i >= len(d.ev.Back) || d.ev.Back[i] == 0 || !d.ev.Full.Has(i) {
		return false
	}
	return d.ev.Back[i].Add(d.p.Steps[i].Least) >= d.t.workUntil(d.p)
}

// giveUpWaiting lets the task be undone because step i cannot wait until its agent is back.
func (d *decision) giveUpWaiting(i int) {
	r := d.another(KindExpired, i)
	r.Reason = cut("the breaker of agent " + d.p.Steps[i].Agent + " is open until " + stamp(d.ev.Back[i]) + ", and the task's time for work ends before step " + d.p.Steps[i].Name + " could be done")
	d.begin(&r, StateUndoing)
}
