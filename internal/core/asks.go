package core

import (
	"crypto/sha256"
	"fmt"
)

// Asks. What a signal step asks is asked of one input, in one round, of one version of the plan. Its token names that, so that
// an answer to an earlier ask, or to that of another input, is not taken for this one.

// AskPolicy says whether the answer to a signal step must say which ask it is for.
type AskPolicy string

// AskRequired refuses an answer without the token of its ask. Otherwise one is taken until the task is first resubmitted or
// moved to another version: until then there is one ask.
const AskRequired AskPolicy = "required"

// AskBytesMax bounds the token of an ask: <round>.<32 hex digits>.
const AskBytesMax = 64

// AskToken is the token of what signal step i of plan p asks now, whether or not the step has begun; empty: it is no signal
// step, or has had its answer.
func (t *Task) AskToken(p *Plan, i int) string {
	if s := &t.Steps[i]; s.kind != kindSignal || s.Own().Signal != 0 || s.Status.over() {
		return ""
	}
	return t.askToken(p, i)
}

func (t *Task) askToken(p *Plan, i int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %d %d %d %s", t.Type, t.ID, p.Steps[i].Name, p.Version, t.Round, t.TakenUp, t.Input)
	return fmt.Sprintf("%d.%x", t.Round, h.Sum(nil)[:16])
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

// AskNeeded reports whether an answer to signal step i must say which ask it is for.
func (t *Task) AskNeeded(p *Plan, i int) bool {
	return t.TakenUp != 0 || p.Steps[i].Ask == AskRequired
}

// WrongAsk says why an answer with a token, or without one, is not taken for what step i asks now; empty: it is.
func (t *Task) WrongAsk(p *Plan, i int, token string) string {
	name, is := p.Steps[i].Name, t.askToken(p, i)
	switch round := roundOf(token); {
	case token == is:
		return ""
	case token == "" && !t.AskNeeded(p, i):
		return ""
	case token == "":
		return "say which ask of step " + name + " it answers: the task shows it as ask of the step"
	case round != fmt.Sprint(t.Round):
		return fmt.Sprintf("the answer is for an ask of step %s in round %s, and the task is in round %d", name, ShortText(round, 20), t.Round)
	}
	return "the answer is for another ask of step " + name + ": its input or its plan is another now, or it was taken up again"
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
func (t *Task) voidAnswers(p *Plan) (void uint64) {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.kind != kindSignal || !s.Status.over() && !s.Own().Early {
			continue
		}
		rests := !t.Steps[i].Status.over()
		for j := i + 1; j < len(t.Steps) && !rests; j++ {
			rests = !t.Steps[j].Status.over() && p.Ancestors(j)&(1<<uint(i)) != 0
		}
		if rests {
			void |= 1 << uint(i)
		}
	}
	return void
}

// Voids are the signal steps whose answers an edit voids, in the plan's order.
func (t *Task) Voids(p *Plan) (names []string) {
	if t == nil || p == nil || t.Steps == nil || t.State == StateUndone {
		return nil
	}
	void := t.voidAnswers(p)
	for i := range t.Steps {
		if void&(1<<uint(i)) != 0 {
			names = append(names, p.Steps[i].Name)
		}
	}
	return names
}

// Voids is the same of the task of a view.
func (v *View) Voids() []string { return v.task.Voids(v.plan) }

// applyVoid forgets answers: the steps ask again, also where others that come after them are done.
func (t *Task) applyVoid(void uint64) {
	for i := range t.Steps {
		if s := &t.Steps[i]; void&(1<<uint(i)) != 0 {
			t.Reopened = t.Reopened || s.Status.over()
			*s = StepState{kind: s.kind, own: &StepOwn{}} // there are rows of it
		}
	}
}
