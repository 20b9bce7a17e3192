package core

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// Asks. What a signal step asks is asked of one input and of the results of the steps that it comes after, in one round, of
// one version of the plan. Its token names that, so that an answer to an earlier ask, or to that of another input or result,
// is not taken for this one.

// AskPolicy says whether the answer to a signal step must say which ask it is for.
type AskPolicy string

// AskRequired refuses an answer without the token of its ask, and one that comes before all that the step comes after is
// over: whoever answers has seen what is asked. Otherwise one is taken until the task is first taken up again, which is when
// it is resubmitted, a step of it is accepted or it is moved to another version.
const AskRequired AskPolicy = "required"

// AskBytesMax bounds the token of an ask: <round>.<32 hex digits>.
const AskBytesMax = 64

// AskToken is the token that an answer to signal step i of plan p names, so that it answers this ask and no other. An earlier
// step may hand it out: it is the same before the step begins. Empty: it is no signal step, has its answer, or the results
// that it asks about are not there yet.
func (t *Task) AskToken(p *Plan, i int) string {
	if s := &t.Steps[i]; s.kind != kindSignal || s.Own().Signal != 0 || s.Status.over() || t.asksLater(p, i) {
		return ""
	}
	return t.askToken(p, i)
}

func (t *Task) askToken(p *Plan, i int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %d %d %d %s", t.Type, t.ID, p.Steps[i].Name, p.Version, t.Round, t.TakenUp, t.Input)
	before := p.Ancestors(i)
	for j := range i {
		if result := t.Steps[j].Result; len(result) > 0 && before.Has(j) {
			fmt.Fprintf(h, " %d %d %s", j, len(result), result)
		}
	}
	return fmt.Sprintf("%d.%x", t.Round, h.Sum(nil)[:16])
}

// asksLater reports whether a step that requires its ask has yet to see what it asks about.
func (t *Task) asksLater(p *Plan, i int) bool {
	for _, before := range p.Steps[i].After {
		if p.Steps[i].Ask == AskRequired && !t.Steps[before].Status.over() {
			return true
		}
	}
	return false
}

// CheckAsk refuses the token of an ask that cannot be one.
func CheckAsk(token string) error {
	if len(token) > AskBytesMax {
		return fmt.Errorf("ask: %d bytes, the most is %d", len(token), AskBytesMax)
	}
	for _, c := range token {
		if c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("ask: %s is no token: it has the round, a dot, and hex digits", QuoteShort(token))
		}
	}
	return nil
}

// CheckAnswer refuses what is an answer to some and a refusal to others: a payload of null beside a reason, as clients write
// that have a member for each.
func CheckAnswer(payload []byte, reason string) error {
	if string(payload) == "null" && reason != "" {
		return fmt.Errorf("result is null beside the reason %s: leave result out to refuse, or reason to answer null", QuoteShort(reason))
	}
	return nil
}

// AskNeeded reports whether an answer to signal step i must say which ask it is for.
func (t *Task) AskNeeded(p *Plan, i int) bool {
	return t.TakenUp != 0 || p.Steps[i].Ask == AskRequired
}

// WrongAsk says why an answer with a token, or without one, is not taken for what step i asks now; empty: it is.
func (t *Task) WrongAsk(p *Plan, i int, token string) string {
	name, is := p.Steps[i].Name, t.askToken(p, i)
	switch round := roundOf(token); {
	case t.asksLater(p, i):
		return "step " + name + " asks nothing yet: it takes an answer once the steps that it comes after are over"
	case token == is:
		return ""
	case token == "" && !t.AskNeeded(p, i):
		return ""
	case token == "":
		return "say which ask of step " + name + " it answers: the task shows it as ask of the step"
	case round != fmt.Sprint(t.Round):
		return fmt.Sprintf("the answer is for an ask of step %s in round %s, and the task is in round %d", name, ShortText(round, 20), t.Round)
	}
	return "the answer is for another ask of step " + name + ": its input, a result before it or its plan is another now, or it was taken up again"
}

// roundOf is the round that a token has, as text.
func roundOf(token string) string {
	for i := range token {
		if token[i] == '.' {
			return token[:i]
		}
	}
	return token
}

// voidAnswers are the signal steps that an edit opens again, as places in the list: those that are over and on which a step
// rests that is not, and those whose answer came early. One that its condition, a refusal or time skipped is among them: with
// another input it may have to be asked.
func (t *Task) voidAnswers(p *Plan) StepSet {
	var void StepBuilder
	for i := range t.Steps {
		if s := &t.Steps[i]; s.kind != kindSignal || !s.Status.over() && !s.Own().Early {
			continue
		}
		if !t.Steps[i].Status.over() || t.anyAfter(p, i, func(s *StepState) bool { return !s.Status.over() }) {
			void.Add(i)
		}
	}
	return void.Set()
}

// opensAgain are the steps that an edit opens again: those whose answers it voids, and those of which nothing ran by the input of
// that time, because a condition was false, a list empty, or the end of a wait over.
func (t *Task) opensAgain(p *Plan) StepSet {
	void := t.voidAnswers(p)
	var again StepBuilder
	for i := range t.Steps {
		s := &t.Steps[i]
		over := s.Status == StepSkipped || s.Status == StepDone && (s.kind == kindEach && !s.Effect.byHand() || s.kind == kindWait)
		if void.Has(i) || over && !s.begun {
			again.Add(i)
		}
	}
	return again.Set()
}

// anyAfter reports whether one of the steps that come after step i, directly or through others, is such.
func (t *Task) anyAfter(p *Plan, i int, such func(*StepState) bool) bool {
	var after StepBuilder
	after.Add(i)
	for j := i + 1; j < len(t.Steps); j++ {
		if !slices.ContainsFunc(p.Steps[j].After, func(a int) bool { return after.Has(a) }) {
			continue
		}
		if such(&t.Steps[j]) {
			return true
		}
		after.Add(j)
	}
	return false
}

// Voids are the signal steps whose answers an edit voids, in the plan's order.
func (t *Task) Voids(p *Plan) (names []string) {
	if t == nil || p == nil || t.Steps == nil || t.State == StateUndone {
		return nil
	}
	void := t.voidAnswers(p)
	for i := range t.Steps {
		if void.Has(i) {
			names = append(names, p.Steps[i].Name)
		}
	}
	return names
}

// Voids is the same of the task of a view.
func (v *View) Voids() []string { return v.task.Voids(v.plan) }

// applyVoid opens steps again, also where others that come after them are done. Answers are forgotten.
func (t *Task) applyVoid(void StepSet) {
	for i := range t.Steps {
		if s := &t.Steps[i]; void.Has(i) {
			t.Reopened = t.Reopened || s.Status.over()
			if s.kind == kindCall { // its key is as old as it was
				s.Status, s.Attempt, s.Due = StepWaiting, 0, 0
			} else {
				*s = StepState{kind: s.kind, own: &StepOwn{}} // there are rows of it
			}
		}
	}
}
