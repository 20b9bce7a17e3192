package core

// What is known of the effect of a step. There are two axes: whether one may be there, and until when a copy of a do that was
// not answered can still make one. Neither says the other: a step may be done while a second copy of its do is at work, and
// what became of a do may be unknown when nothing is to be waited for any more. Who undoes asks both.
//
// An effect is known from a row, so the rows alone change it, live and when they are replayed; see applyToStep, applyNext and
// applyWentBack. How many copies there are is known to the owner that sent them, and not journalled.

// known says whether an effect of a step may be there.
type known uint8

// What may be known.
const (
	effectNone       known = iota // none is: no do has left, or none took effect, or it is undone
	effectPossible                // a do may have left one
	effectByHand                  // an operator made it who accepted the step: its service may not know of it
	effectLost                    // one was there when the database went back, and may have been undone since
	effectLostByHand              // the same of one that was made by hand
)

// copies says how often the newest command of a step was sent, and what its copies came to.
type copies uint8

// What its copies may be.
const (
	copiesOne   copies = iota // this owner sent it, one copy after the other
	copiesMany                // another owner may have sent it, too
	copyOnly                  // a do that was not answered, of which this owner sent one copy, and no other do that may have had an effect
	copyRefused               // a do that is out: its only copy was refused late, which the journal knows
)

// lateTold stands for the number of a do in StepEffect.late.
const lateTold = -1

// StepEffect is what is known of the effect of a step in a round of its task.
type StepEffect struct {
	is     known
	copies copies
	Open   Instant // no do of the step can take effect after this; 0: none can
	// late is the row of the newest do that was not answered by its complete-by, as far as a late answer may say something;
	// 0: there is none; lateTold: an answer has said that the effect is there, and no other counts in this round.
	late int64
	// Asks is the row of the newest command that was not answered by its complete-by: of the do, as long as its agent may be
	// asked what became of it; once the step is being undone, of the undo, whose late answer counts. 0: there is none.
	Asks int64
}

// Possible reports whether an effect may be there: a do may have left one that no undo has removed.
func (e *StepEffect) Possible() bool { return e.is != effectNone }

// byHand reports whether it was an operator, and no agent, who said that the effect is there: who accepted the step may have made
// it without its service.
func (e *StepEffect) byHand() bool { return e.is == effectByHand || e.is == effectLostByHand }

// lost reports whether the step was done before the database went back. If it is done again, it is by the input that it had.
func (e *StepEffect) lost() bool { return e.is == effectLost || e.is == effectLostByHand }

// known reports whether a late answer, or its agent when it was asked, has said that the effect is there.
func (e *StepEffect) known() bool { return e.late == lateTold }

// resent reports whether another owner may have sent the newest command, too.
func (e *StepEffect) resent() bool { return e.copies == copiesMany }

// answered is until when a do can take effect once the newest command is answered, or given back: one that another owner may have
// sent, too, as long as one without an answer.
func (e *StepEffect) answered(unanswered Instant) Instant {
	if e.resent() {
		return unanswered
	}
	return e.Open
}

// refusedLate reports whether a late answer has said that the do which is out had no effect.
func (e *StepEffect) refusedLate() bool { return e.copies == copyRefused }

// unused reports whether no do of the step has left, or none that may have taken effect or can.
func (e *StepEffect) unused() bool { return e.is == effectNone && e.Open == 0 }

// may notes that a do may have left an effect. That one was made by hand, or is lost, says more and stays.
func (e *StepEffect) may() {
	if e.is == effectNone {
		e.is = effectPossible
	}
}

// done notes that the step is, by a row of that kind.
func (e *StepEffect) done(step stepKind, by Kind) {
	switch {
	case step.passive():
		e.is = effectNone
	case by == KindAccepted:
		e.is = effectByHand
	default:
		e.is = effectPossible
	}
}

// undone notes that the effect is gone.
func (e *StepEffect) undone() { e.is, e.Asks = effectNone, 0 }

// refused notes that the only do of the step had no effect, by its late answer. One that is out has still to come to its end.
func (e *StepEffect) refused(out bool) {
	e.late, e.copies = 0, copyRefused
	if !out {
		e.is, e.Open, e.copies = effectNone, 0, copiesOne
	}
}

// told notes that the effect is there: by a late answer to a do or, if asked, by what the agent said when it was asked about
// it. Whatever the agent says later of the same do changes nothing.
func (e *StepEffect) told(asked bool) {
	e.late = lateTold
	if !e.resent() {
		e.copies = copiesOne
	}
	if asked {
		e.Asks = 0
	}
}

// settled notes that it is known what became of the newest do.
func (e *StepEffect) settled() {
	if e.Asks = 0; !e.known() {
		e.late = 0
	}
	if e.copies == copyOnly {
		e.copies = copiesOne
	}
}

// silent notes that the command which left under a number was not answered by its complete-by, and reports whether it is known
// all the same that it had no effect.
func (e *StepEffect) silent(number int64, undo bool) (none bool) {
	switch {
	case undo:
		e.Asks = number
	case e.refusedLate():
		e.copies = copiesOne
		return true
	default:
		if e.Asks = number; !e.known() {
			e.late = number
		}
	}
	return false
}

// SentOnce supposes that one owner alone sent what is out, which the journal does not say.
func (e *StepEffect) SentOnce() {
	if e.resent() {
		e.copies = copiesOne
	}
}

// ended notes that an attempt has come to its end, and until when a do can still take effect. With it the doubt is
// over who else sent the command: the next one has one sender again. What copyOnly and copyRefused say of the do
// stays until another leaves.
func (e *StepEffect) ended(open Instant) {
	if e.Open = open; e.resent() {
		e.copies = copiesOne
	}
}

// leaves notes that a command does, and that what is known of the one before it alone counts no more. first: it is
// a do, or the first undo. Before a further undo Asks stays: as long as none is out, a late answer to the one
// before may undo the step.
func (e *StepEffect) leaves(first bool) {
	if e.copies = copiesOne; first {
		e.Asks = 0
	}
}

// wentBack notes that the database did, of a step that was done or not: commands of the time that is lost can take effect
// until then.
func (e *StepEffect) wentBack(done bool, until Instant) {
	e.Open = max(e.Open, until)
	switch {
	case !done:
		e.may()
	case e.byHand():
		e.is = effectLostByHand
	default:
		e.is = effectLost
	}
}

// anew notes that the step is done by another input than before.
func (e *StepEffect) anew() {
	if e.lost() {
		e.is = effectPossible
	}
}

// doubt notes that another owner may have sent what is out, or what waits for its agent, or that there may have
// been one. A late refusal of the only copy is in the journal, and no owner sends the command again: it stays true.
func (e *StepEffect) doubt(sent bool) {
	switch {
	case e.refusedLate():
	case sent:
		e.copies = copiesMany
	case e.copies == copyOnly:
		e.copies = copiesOne
	}
}

// journalled is what a replay knows of it.
func (e StepEffect) journalled() StepEffect {
	if !e.refusedLate() {
		e.copies = copiesOne
	}
	return e
}
