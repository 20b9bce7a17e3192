package core

import (
	"fmt"
	"time"
)

// The sentence that tells an operator why a task is where it is. Every face shows the same one.

const (
	// sentenceTime is RFC 3339 with milliseconds, where there are any.
	sentenceTime = "2006-01-02T15:04:05.999Z07:00"
	// whyBytesMax bounds the text of a failure or a reason in a sentence; all of it is in the journal.
	whyBytesMax = 200
)

// Sentence is one sentence: why the task is where it is, what comes next, and when. Times are RFC 3339 in UTC; at is
// now. p is the task's plan, nil when that is unknown. Of a step that waits for its agent, the owner alone knows when
// it is tried next; elsewhere the sentence says within which time.
func (t *Task) Sentence(p *Plan, at Instant) string {
	w := sentence{t: t, p: p, at: at}
	switch {
	case p == nil || t.Steps == nil:
		w.planless()
	case t.State == StatePending:
		w.pending()
	case t.State == StateProcessing:
		w.processing()
	case t.State == StateUndoing:
		w.undoing()
	case t.State == StateError:
		w.failed()
	case t.State == StateUndone:
		w.undone()
	default:
		w.processed()
	}
	return string(w.b) + "."
}

// sentence is one being written.
type sentence struct {
	t  *Task
	p  *Plan
	at Instant
	b  []byte
}

func (w *sentence) say(format string, args ...any) { w.b = fmt.Appendf(w.b, format, args...) }

// when is an instant as sentences show it.
func when(i Instant) string { return i.Time().Format(sentenceTime) }

// step names a step, agent the agent of one.
func (w *sentence) step(i int) string  { return "step " + w.p.Steps[i].Name }
func (w *sentence) agent(i int) string { return "agent " + w.p.Steps[i].Agent }

// steps names several steps.
func (w *sentence) steps(list []int) string {
	if len(list) == 1 {
		return w.step(list[0])
	}
	names := ""
	for k, i := range list {
		switch {
		case k == len(list)-1:
			names += " and "
		case k > 0:
			names += ", "
		}
		names += w.p.Steps[i].Name
	}
	return "steps " + names
}

// joined puts words one after the other.
func joined(words []string, between string) string {
	text := ""
	for k, word := range words {
		if k > 0 {
			text += between
		}
		text += word
	}
	return text
}

// why quotes a text in one line.
func why(text string) string {
	quoted := fmt.Sprintf("%q", CutText(text, whyBytesMax))
	if len(text) > whyBytesMax {
		quoted += "…"
	}
	return quoted
}

// because says what brought the task where it is.
func (w *sentence) because() string {
	t := w.t
	switch {
	case t.FailedStep > 0 && t.FailedStep <= len(w.p.Steps) && t.Why != "":
		return "because " + w.step(t.FailedStep-1) + " failed: " + why(t.Why)
	case t.FailedStep > 0 && t.FailedStep <= len(w.p.Steps):
		return "because " + w.step(t.FailedStep-1) + " failed"
	case t.Why != "":
		return "because: " + why(t.Why)
	}
	return "because it was asked for"
}

// reason is because without a step to blame; empty when nothing is known.
func (w *sentence) reason() string {
	if w.t.Why == "" {
		return ""
	}
	return ", because: " + why(w.t.Why)
}

// ofTries is the number of a try, with how many there may be.
func ofTries(attempt, most int) string {
	if most == 0 {
		return fmt.Sprintf("try %d", attempt)
	}
	return fmt.Sprintf("try %d of %d", attempt, most)
}

// doTry and undoTry are the tries of a step that are out now or were last; those of an undo without a number of its
// own are limited by time alone.
func (w *sentence) doTry(i int) string {
	return ofTries(w.t.Steps[i].Attempt, w.p.Steps[i].AttemptsMax)
}

func (w *sentence) undoTry(i int) string {
	return ofTries(w.t.Steps[i].Attempt, w.p.Steps[i].UndoAttemptsMax)
}

// deadline says until when the task has time.
func (w *sentence) deadline() {
	until := w.t.workUntil(w.p)
	switch left := until.Sub(w.at); {
	case left <= 0:
		w.say("; its deadline, %s, has passed, so it is undone next", when(until))
	case w.tight(left):
		w.say("; its deadline is near: at %s it is undone", when(until))
	default:
		w.say("; it has until %s", when(until))
	}
}

// tight reports whether the time left is less than one full try of a call that is still to be done, or than what a wait
// still takes. Signals and children have their own time, and are not late because it is long.
func (w *sentence) tight(left time.Duration) bool {
	for i := range w.t.Steps {
		s := &w.t.Steps[i]
		switch {
		case s.Status != StepWaiting && s.Status != StepRunning:
		case s.kind == kindCall && left < w.p.Steps[i].CompleteBy, s.kind == kindWait && s.Out != 0 && s.Due.Sub(w.at) > left:
			return true
		}
	}
	return false
}

func (w *sentence) pending() {
	t, i := w.t, w.t.nextStep(w.p)
	if parked := t.Parked(w.p); parked >= 0 {
		i = parked
	}
	open := w.out()
	switch {
	case t.StartAt > w.at && t.Seq > 0 && len(open) == 0 && i >= 0 && !t.begunAny():
		w.say("It begins at %s", when(t.StartAt))
		w.deadline()
		return
	case len(open) > 0 && t.WaitsFor == "":
		w.outs(open)
		w.then(open)
		w.deadline()
		return
	case len(open) > 0:
		w.outs(open)
		w.say("; ")
		w.say("%s waits for room at agent %s", w.step(i), t.WaitsFor)
		w.deadline()
		return
	}
	switch {
	case i < 0:
		w.say("All its steps are done, and its owner has yet to say so")
		return
	case t.WaitsFor != "":
		w.say("It is parked before %s, because agent %s has no room for it or its key, is paused, or its breaker is open; it goes on as soon as there is room", w.step(i), t.WaitsFor)
	case t.Steps[i].Due > w.at:
		w.say("It is paused, %s; its tries are used up, and %s begins again at %s", w.because(), w.step(i), when(t.Steps[i].Due))
	case t.Steps[i].Due > 0:
		w.say("Its pause is over since %s, and %s begins again as soon as its owner takes it up", when(t.Steps[i].Due), w.step(i))
	default:
		w.say("It waits for the owner of its partition to begin %s", w.step(i))
	}
	w.deadline()
}

func (w *sentence) processing() {
	out := w.out()
	switch i := w.t.nextStep(w.p); {
	case len(out) > 0:
		w.outs(out)
		w.then(out)
	case i < 0:
		w.say("All its steps are done, and its owner has yet to say so")
		return
	default:
		w.between(i)
	}
	w.deadline()
}

// outs tells of all that is out of a task that goes forward.
func (w *sentence) outs(out []int) {
	for k, i := range out {
		if k > 0 {
			w.say("; ")
		}
		if w.t.Steps[i].Status == StepUndoing { // it is optional
			w.undoOut(i)
			continue
		}
		w.doOut(i)
	}
}

// waitOut tells of a wait, a signal or children that are open.
func (w *sentence) waitOut(i int) {
	s, ps, lead := &w.t.Steps[i], &w.p.Steps[i], w.lead(i)
	late := ""
	if w.at >= s.Due {
		late = ", which has passed: its owner acts on it next"
	}
	switch s.kind {
	case kindWait:
		w.say("%s waits until %s%s", lead, when(s.Due), late)
	case kindSignal:
		w.say("%s waits for its signal, until %s%s", lead, when(s.Due), late)
	case kindTask:
		w.say("%s waits for its child, a task %s, until %s%s", lead, ps.Child, when(s.Due), late)
	default:
		w.say("%s waits for its %d children, tasks %s, until %s%s", lead, s.Own().Count, ps.Child, when(s.Due), late)
	}
}

// out are the steps whose commands are out, or whose agents are asked about them.
func (w *sentence) out() []int {
	var out []int
	for i := range w.t.Steps {
		if s := &w.t.Steps[i]; s.Out != 0 || s.probing() {
			out = append(out, i)
		}
	}
	return out
}

// lead begins a sentence with a step, or goes on with one.
func (w *sentence) lead(i int) string {
	if len(w.b) == 0 {
		return "Step " + w.p.Steps[i].Name
	}
	return w.step(i)
}

// doOut tells of a do that is out.
func (w *sentence) doOut(i int) {
	s := &w.t.Steps[i]
	if s.kind != kindCall {
		w.waitOut(i)
		return
	}
	lead := w.lead(i)
	switch {
	case s.probing():
		w.say("%s, %s, was not answered in time%s: until %s %s is asked what became of it", lead, w.doTry(i), w.known(i), when(s.Due), w.agent(i))
	case s.again():
		w.say("%s waits for %s and is being tried, %s: an answer has to come by %s", lead, w.agent(i), w.doTry(i), when(s.Due))
	case w.at >= s.Due:
		w.say("%s, %s, was to be answered by %s by %s, and was not%s: %s", lead, w.doTry(i), w.agent(i), when(s.Due), w.known(i), w.afterSilence(i))
	default:
		w.say("%s is at work, %s, at %s, which has to answer by %s", lead, w.doTry(i), w.agent(i), when(s.Due))
	}
}

// afterSilence is what comes next when a do is not answered in time.
func (w *sentence) afterSilence(i int) string {
	ps := &w.p.Steps[i]
	switch {
	case w.t.Steps[i].Attempt < ps.AttemptsMax:
		return "it is tried again next"
	case ps.OnExhausted == PolicyWait:
		return "it is paused next for " + ps.Pause.String()
	case ps.OnExhausted == PolicyError:
		return "the task goes to error next"
	case ps.OnExhausted == PolicySkip:
		return "its possible effect is undone next, and the task goes on without it"
	}
	return "the task is undone next"
}

// then says what follows when the steps that are out are done.
func (w *sentence) then(out []int) {
	var next []int
	left := false
	for i := range w.t.Steps {
		if w.t.Steps[i].Status != StepWaiting || w.t.Steps[i].Out != 0 {
			continue
		}
		left = true
		if w.readyAfter(i, out) {
			next = append(next, i)
		}
	}
	switch {
	case len(next) == 1:
		w.say("; then %s follows", w.step(next[0]))
	case len(next) > 1:
		w.say("; then %s follow", w.steps(next))
	case !left:
		w.say("; then the task is processed")
	}
}

// readyAfter reports whether a step may run once those in out are done.
func (w *sentence) readyAfter(i int, out []int) bool {
	for _, a := range w.p.Steps[i].After {
		if w.t.Steps[a].Status.over() {
			continue
		}
		among := false
		for _, o := range out {
			among = among || o == a
		}
		if !among {
			return false
		}
	}
	return true
}

// between tells of steps that may run while none is out.
func (w *sentence) between(i int) {
	s := &w.t.Steps[i]
	switch {
	case s.Awaits != 0:
		w.awaits(i, "")
	case s.Due > w.at:
		w.say("%s is between two tries, %s; %s leaves at %s", w.lead(i), w.because(), ofTries(s.Attempt+1, w.p.Steps[i].AttemptsMax), when(s.Due))
	case s.Due > 0:
		w.say("%s is between two tries; %s was to leave at %s, and leaves as soon as its owner takes it up", w.lead(i), ofTries(s.Attempt+1, w.p.Steps[i].AttemptsMax), when(s.Due))
	default:
		w.say("%s begins next", w.lead(i))
	}
	var others []int
	for k := range w.t.Steps {
		if k != i && w.t.Steps[k].Status == StepWaiting && w.t.ready(w.p, k) {
			others = append(others, k)
		}
	}
	switch {
	case len(others) == 1:
		w.say("; %s is ready too", w.step(others[0]))
	case len(others) > 1:
		w.say("; %s are ready too", w.steps(others))
	}
}

// awaits tells of a do or an undo that waits for its agent; of says which.
func (w *sentence) awaits(i int, of string) {
	s := &w.t.Steps[i]
	lead := w.lead(i)
	if of != "" {
		lead = of + w.step(i)
	}
	what := "which is not there"
	switch s.Said {
	case 0:
	case CodeTooEarly:
		what = "where a try is still at work"
	default:
		what = "which cannot take it now"
	}
	w.say("%s waits for %s, %s; it is tried again ", lead, w.agent(i), what)
	if s.Due > w.at {
		w.say("at %s", when(s.Due))
		return
	}
	most := w.p.Steps[i].BackoffCap
	w.say("within %s", most)
}

func (w *sentence) undoing() {
	w.say("It is being undone, %s; ", w.because())
	out := w.out()
	i, next := w.t.nextUndo(w.p, w.at)
	switch {
	case len(out) > 0:
		i = -1 // what is out comes first
		for k, o := range out {
			if k > 0 {
				w.say("; ")
			}
			w.undoOut(o)
		}
	case i < 0:
		w.say("nothing is left to undo, and its owner has yet to say so")
	default:
		w.undoNext(i, next)
	}
	w.troubles(out, i)
	w.undoThen(out, i)
}

// undoOut tells of a command that is out while the task is undone: an undo, or a do that comes first.
func (w *sentence) undoOut(i int) {
	s := &w.t.Steps[i]
	switch {
	case s.kind.parent() && s.Status == StepUndoing:
		w.say("the children of %s are being undone", w.step(i))
	case s.kind.parent():
		w.say("the children of %s are undone next", w.step(i))
	case s.Status != StepUndoing && w.at >= s.Due:
		w.say("the do of %s was to be answered by %s and was not%s, so it may still act until %s, and its undo waits for that", w.step(i), when(s.Due), w.known(i), when(max(s.EffectsPossibleUntil, s.Due.Add(w.p.Grace))))
	case s.Status != StepUndoing:
		w.say("the do of %s is still at work, %s, at %s, and its undo waits for the answer, until %s", w.step(i), w.doTry(i), w.agent(i), when(s.Due))
	case s.again():
		w.say("the undo of %s waits for %s and is being tried, %s: an answer has to come by %s", w.step(i), w.agent(i), w.undoTry(i), when(s.Due))
	case w.at >= s.Due:
		w.say("the undo of %s, %s, was to be answered by %s by %s, and was not: it is tried again, or gives up", w.step(i), w.undoTry(i), w.agent(i), when(s.Due))
	default:
		w.say("the undo of %s is at work, %s, at %s, which has to answer by %s", w.step(i), w.undoTry(i), w.agent(i), when(s.Due))
	}
}

// undoNext tells of the undo that leaves next, while nothing is out.
func (w *sentence) undoNext(i int, next Instant) {
	s := &w.t.Steps[i]
	switch {
	case s.undoAwaits():
		w.awaits(i, "the undo of ")
		w.say("; it gives up at %s", when(w.t.undoEnd(w.p, i)))
	case s.Status == StepUndoing && s.Since == 0:
		w.say("the undo of %s begins again next", w.step(i))
	case s.Status == StepUndoing:
		w.say("the undo of %s is between two tries; %s leaves at %s, and it gives up at %s", w.step(i), w.nextUndoTry(i), when(next), when(w.t.undoEnd(w.p, i)))
	case next > w.at:
		w.say("the do of %s may still act until %s%s, and its undo leaves then", w.step(i), when(next), w.known(i))
	default:
		w.say("the undo of %s leaves next", w.step(i))
	}
}

func (w *sentence) nextUndoTry(i int) string {
	return ofTries(w.t.Steps[i].Attempt+1, w.p.Steps[i].UndoAttemptsMax)
}

// troubles names the undos that are in trouble, and those that gave up.
func (w *sentence) troubles(out []int, next int) {
	for i := range w.t.Steps {
		s := &w.t.Steps[i]
		switch {
		case s.Left != "":
			w.say("; the undo of %s gave up: %s", w.step(i), why(s.Left))
		case !s.Alerted:
		case i == next || len(out) > 0 && out[0] == i:
			w.say("; it is in trouble since %s", when(s.Since))
		default:
			w.say("; the undo of %s is in trouble since %s and goes on", w.step(i), when(s.Since))
		}
	}
}

// undoThen says what is undone after what is under way.
func (w *sentence) undoThen(out []int, next int) {
	var then []int
	left := false
	for i := len(w.t.Steps) - 1; i >= 0; i-- {
		now := i == next
		for _, o := range out {
			now = now || o == i
		}
		left = left || w.t.Steps[i].Left != ""
		if !now && w.t.openUndo(w.p, i) && !w.t.Steps[i].Alerted {
			then = append(then, i)
		}
	}
	switch {
	case len(then) > 0:
		w.say("; then %s", w.undoneThen(then))
	case left:
		w.say("; then an operator has to act")
	case next >= 0 || len(out) > 0:
		w.say("; then the task is undone")
	}
}

func (w *sentence) undoneThen(then []int) string {
	if len(then) == 1 {
		return w.step(then[0]) + " is undone"
	}
	return w.steps(then) + " are undone, in this order"
}

func (w *sentence) failed() {
	t := w.t
	var left []string
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Left != "" {
			left = append(left, "the undo of "+w.step(i)+" gave up ("+why(s.Left)+"), so its effect may be there")
		}
	}
	at, _ := t.stoppedAt(w.p, "")
	w.say("Operator action required: ")
	switch {
	case len(left) > 0:
		w.say("%s", joined(left, "; "))
	case at >= 0 && t.Steps[at].Status == StepFailed && t.FailedStep == at+1:
		w.say("it was stopped, %s", w.because())
	case at >= 0:
		w.say("it was stopped before %s was done%s", w.step(at), w.reason())
	default:
		w.say("it was stopped%s", w.reason())
		w.notUndone()
	}
	w.mayAct()
	w.say("; possible now: %s", joined(t.Possible(w.p, w.at), ", "))
}

// notUndone names the steps whose effects may be there.
func (w *sentence) notUndone() {
	var open []int
	for i := range w.t.Steps {
		if w.t.openUndo(w.p, i) {
			open = append(open, i)
		}
	}
	if len(open) > 0 {
		w.say("; what %s did is not undone", w.steps(open))
	}
}

// mayAct names the steps of a task in error whose do may still act.
func (w *sentence) mayAct() {
	for i := range w.t.Steps {
		if s := &w.t.Steps[i]; s.EffectsPossibleUntil > w.at {
			w.say("; the do of %s may still act until %s", w.step(i), when(s.EffectsPossibleUntil))
		}
	}
}

func (w *sentence) undone() {
	t := w.t
	w.say("It was undone at %s, %s", when(t.EndedAt), w.because())
	var left []int
	for i := range t.Steps {
		if t.Steps[i].MayHaveEffect && w.p.Steps[i].Undoable {
			left = append(left, i)
		}
	}
	if len(left) > 0 { // an operator settled it
		w.say("; that no effect of %s is left is an operator's word", w.steps(left))
	}
}

func (w *sentence) processed() {
	t := w.t
	skipped := ""
	for i := range t.Steps {
		if t.Steps[i].Status == StepSkipped {
			skipped = " or skipped"
			continue
		}
		if t.Steps[i].Status != StepDone {
			w.say("It counts as processed since %s, by an operator's word, though %s is %s", when(t.EndedAt), w.step(i), t.Steps[i].Status)
			return
		}
	}
	w.say("It was processed at %s: every step is done%s", when(t.EndedAt), skipped)
}

// planless tells of a task whose steps are not known.
func (w *sentence) planless() {
	t, reason := w.t, w.reason()
	switch {
	case t.unread():
		name, version, _ := AwaitedPlan(t.WaitsFor)
		w.say("It waits for a node that can read version %d of plan %s, which a newer version of Duly stored; at %s it is undone", version, name, when(t.Deadline))
	case t.State == StateError && t.PlanVersion == 0:
		w.say("Operator action required: none of its steps has begun%s; store its plan and resubmit it, or undo or resolve it", reason)
	case t.State == StateError:
		w.say("Operator action required: version %d of its plan is not stored, so its steps are not known%s; see what they left, then resolve it", t.PlanVersion, reason)
	case t.State == StateUndone && t.PlanVersion == 0:
		w.say("It was undone at %s before any step of it began%s", when(t.EndedAt), reason)
	case t.State.Ended():
		w.say("It was %s at %s%s; its steps are not known any more", t.State, when(t.EndedAt), reason)
	default:
		w.say("It is %s, and version %d of its plan is not stored, so no owner goes on with it, and it goes to error unless the plan is stored again", t.State, t.PlanVersion)
	}
}
