package core

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/say"
)

// The sentences that tell an operator why a task is where it is. Every face shows the same ones.

const (
	// sentenceTime is RFC 3339 with milliseconds, where there are any.
	sentenceTime = "2006-01-02T15:04:05.999Z07:00"
	// whyBytesMax bounds the text of a failure or a reason in a sentence; all of it is in the journal.
	whyBytesMax = 200
	// sentenceStepsMax bounds the steps that a sentence names.
	sentenceStepsMax = 16
)

// Sentence says in a line of short sentences why the task is where it is, what comes next, and when. Times are RFC 3339 in UTC; at is
// now. p is the task's plan, nil when that is unknown. Of a step that waits for its agent, the owner alone knows when
// it is tried next; elsewhere the sentence says within which time. rows are the journal that led to the task, and name who
// asked for what; they may be nil.
func (t *Task) Sentence(p *Plan, rows []Record, at Instant) string {
	w := sentence{t: t, p: p, rows: rows, at: at}
	switch {
	case p == nil || t.Steps == nil:
		w.planless()
	case t.State == StatePending:
		w.pending()
		w.stillPending()
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
	return string(w.b)
}

// sentence is one being written.
type sentence struct {
	t    *Task
	p    *Plan
	rows []Record
	at   Instant
	b    []byte
}

func (w *sentence) say(id string, values ...any) {
	if len(w.b) > 0 {
		w.b = append(w.b, ' ')
	}
	w.b = append(w.b, say.Of(id, values...)...)
}

// ofStep says something of a step and its agent.
func (w *sentence) ofStep(id string, i int, values ...any) {
	w.say(id, append(values, "step", w.p.Steps[i].Name, "agent", w.p.Steps[i].Agent)...)
}

// when is an instant as sentences show it.
func when(i Instant) string { return i.Time().Format(sentenceTime) }

// steps names several steps.
func (w *sentence) steps(list []int) string {
	names := ""
	for k, i := range list {
		if more := len(list) - k; k == sentenceStepsMax && more > 1 {
			names += fmt.Sprintf(" and %d more", more)
			break
		}
		switch {
		case k > 0 && k == len(list)-1:
			names += " and "
		case k > 0:
			names += ", "
		}
		names += w.p.Steps[i].Name
	}
	return say.Of("why.steps", "n", len(list), "names", names)
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

// because says what brought the task where it is. A person's request goes before the failure of a step: of a task
// that both concern, the request is why it is undone.
func (w *sentence) because() string {
	t := w.t
	switch asked := w.asked(); {
	case asked != nil:
		id := "why.because.asked"
		if asked.Kind == KindResolved {
			id = "why.because.resolved"
		}
		by, reason := w.asker()
		return say.Of(id, "by", by, "reason", reason)
	case t.FailedStep > 0 && t.FailedStep <= len(w.p.Steps) && t.Why != "":
		return say.Of("why.because.failed", "step", w.p.Steps[t.FailedStep-1].Name, "error", why(t.Why))
	case t.FailedStep > 0 && t.FailedStep <= len(w.p.Steps):
		return say.Of("why.because.step", "step", w.p.Steps[t.FailedStep-1].Name)
	case t.Why != "":
		return say.Of("why.because.text", "text", why(t.Why))
	}
	return say.Of("why.because.unnamed")
}

// asked is the row of who asked for the task's undo, or said how it ended; nil: no one did, or the row is gone. It
// is the newest such row: earlier ones are of an undo, or a round, that is over.
func (w *sentence) asked() *Record {
	for i := len(w.rows) - 1; i >= 0 && w.t.Asked; i-- {
		if r := &w.rows[i]; r.Kind == KindCancelled || r.Kind == KindUndoAsked || r.Kind == KindResolved {
			return r
		}
	}
	return nil
}

// asker is who that was, and why.
func (w *sentence) asker() (by, reason string) {
	asked := w.asked()
	if asked == nil {
		return AskedBy(""), ""
	}
	if asked.Reason != "" {
		reason = ": " + why(asked.Reason)
	}
	return AskedBy(asked.Actor), reason
}

// Unnamed is the actor who gave no name.
const Unnamed = "unnamed"

// AskedBy is who asked something of a task, by the actor of its journal row, without the door by which it came.
func AskedBy(actor string) string {
	for i := len(actor) - 1; i >= 0; i-- {
		if actor[i] == '@' {
			actor = actor[:i]
			break
		}
	}
	switch actor {
	case "":
		return say.Of("by.operator")
	case Unnamed:
		return say.Of("by.unnamed")
	}
	return actor
}

// reason is because without a step to blame; empty when nothing is known.
func (w *sentence) reason() string {
	if w.t.Why == "" {
		return ""
	}
	return say.Of("why.reason", "text", why(w.t.Why))
}

// ofTries is the number of an attempt, with how many there may be.
func ofTries(attempt, most int) string {
	if most == 0 {
		return say.Of("why.try", "n", attempt)
	}
	return say.Of("why.try.of", "n", attempt, "most", most)
}

// doTry and undoTry are the attempts of a step that are out now or were last; those of an undo without a number of its
// own are limited by time alone.
func (w *sentence) doTry(i int) string {
	return ofTries(w.t.Steps[i].Attempt, w.p.Steps[i].AttemptsMax)
}

func (w *sentence) undoTry(i int) string {
	return ofTries(w.t.Steps[i].Attempt, w.p.Steps[i].UndoAttemptsMax)
}

// deadline says until when the task has time.
func (w *sentence) deadline() {
	id, until := "why.deadline", w.t.workUntil(w.p)
	switch left := until.Sub(w.at); {
	case left <= 0:
		id = "why.deadline.passed"
	case w.tight(left):
		id = "why.deadline.near"
	}
	w.say(id, "at", when(until))
}

// tight reports whether the time left is less than one full attempt of a call that is still to be done, or than what a wait
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

// pending tells of a task that nobody holds. A step for whose room it is parked goes before the one that the plan
// has next.
func (w *sentence) pending() {
	t, i := w.t, w.t.nextStep(w.p)
	if parked := t.Parked(w.p); parked >= 0 {
		i = parked
	}
	switch open := w.out(); {
	case t.StartAt > w.at && t.Seq > 0 && len(open) == 0 && i >= 0 && !t.begunAny():
		w.say("why.starts", "at", when(t.StartAt))
	case len(open) > 0 && (t.WaitsFor == "" || i < 0):
		w.outs(open)
		w.then(open)
	case i < 0 && len(open) == 0:
		w.say("why.done")
		return
	case t.WaitsFor != "":
		w.outs(open)
		w.say("why.room", "step", w.p.Steps[i].Name, "agent", t.WaitsFor)
	case t.Steps[i].Due > w.at:
		w.ofStep("why.pause", i, "because", w.because(), "at", when(t.Steps[i].Due))
	case t.Steps[i].Due > 0:
		w.ofStep("why.pause.over", i, "at", when(t.Steps[i].Due))
	default:
		w.ofStep("why.owner", i)
	}
	w.deadline()
}

// stillPending says why a task that has begun is pending: who reads the state alone takes it for one that has yet
// to begin.
func (w *sentence) stillPending() {
	done := 0
	for i := range w.t.Steps {
		if w.t.Steps[i].Status == StepDone {
			done++
		}
	}
	if done > 0 {
		w.say("why.pending", "done", done, "n", len(w.t.Steps))
	}
}

func (w *sentence) processing() {
	out := w.out()
	switch i := w.t.nextStep(w.p); {
	case len(out) > 0:
		w.outs(out)
		w.then(out)
	case i < 0:
		w.say("why.done")
		return
	default:
		w.between(i)
	}
	w.deadline()
}

// outs tells of all that is out of a task that goes forward.
func (w *sentence) outs(out []int) {
	w.few(out, func(i int) {
		if w.t.Steps[i].Status == StepUndoing { // it is optional
			w.undoOut(i)
			return
		}
		w.doOut(i)
	})
}

// waitOut tells of a wait, a signal or children that are open.
func (w *sentence) waitOut(i int) {
	s, id := &w.t.Steps[i], "why.children"
	switch s.kind {
	case kindWait:
		id = "why.wait"
	case kindSignal:
		id = "why.signal"
	case kindTask:
		id = "why.child"
	}
	w.ofStep(id, i, "n", s.Count(), "type", w.p.Steps[i].Child, "at", when(s.Due))
	if w.at >= s.Due {
		w.say("why.late")
	}
}

// out are the steps whose commands are out, or whose agents are asked about them.
func (w *sentence) out() []int {
	return w.such(func(s *StepState) bool { return s.Out != 0 || s.probing() })
}

// such are the steps that are such.
func (w *sentence) such(is func(*StepState) bool) (all []int) {
	for i := range w.t.Steps {
		if is(&w.t.Steps[i]) {
			all = append(all, i)
		}
	}
	return all
}

// few tells of the first of some steps, and counts the others.
func (w *sentence) few(list []int, tell func(i int)) {
	for _, i := range list[:min(len(list), sentenceStepsMax)] {
		tell(i)
	}
	if more := len(list) - sentenceStepsMax; more > 0 {
		w.say("why.more", "n", more)
	}
}

// doOut tells of a do that is out.
func (w *sentence) doOut(i int) {
	s := &w.t.Steps[i]
	if s.kind != kindCall {
		w.waitOut(i)
		return
	}
	id, late := "why.running", false
	switch {
	case s.probing():
		id = "why.probing"
	case s.again():
		id = "why.again"
	case w.at >= s.Due:
		id, late = "why.silent", true
	}
	w.ofStep(id, i, "try", w.doTry(i), "at", when(s.Due), "known", w.known(i))
	if late {
		w.afterSilence(i)
	}
}

// afterSilence is what comes next when a do is not answered in time.
func (w *sentence) afterSilence(i int) {
	id, ps := "why.next.undo", &w.p.Steps[i]
	switch {
	case w.t.Steps[i].Attempt < ps.AttemptsMax:
		id = "why.next.try"
	case ps.OnExhausted == PolicyWait:
		id = "why.next.pause"
	case ps.OnExhausted == PolicyError:
		id = "why.next.error"
	case ps.OnExhausted == PolicySkip:
		id = "why.next.skip"
	}
	w.say(id, "pause", ps.Pause)
}

// then says what follows when the steps that are out are done.
func (w *sentence) then(out []int) {
	var next []int
	left, now := false, StepSetOf(out...)
	for i := range w.t.Steps {
		if w.t.Steps[i].Status != StepWaiting || w.t.Steps[i].Out != 0 {
			continue
		}
		left = true
		if w.readyAfter(i, now) {
			next = append(next, i)
		}
	}
	switch {
	case len(next) > 0:
		w.say("why.then", "steps", w.steps(next), "n", len(next))
	case !left:
		w.say("why.then.processed")
	}
}

// readyAfter reports whether a step may run once those in out are done.
func (w *sentence) readyAfter(i int, out StepSet) bool {
	for _, a := range w.p.Steps[i].After {
		if !w.t.Steps[a].Status.over() && !out.Has(a) {
			return false
		}
	}
	return true
}

// between tells of steps that may run while none is out.
func (w *sentence) between(i int) {
	s := &w.t.Steps[i]
	try := ofTries(s.Attempt+1, w.p.Steps[i].AttemptsMax)
	switch {
	case s.Awaits != 0:
		w.awaits("why.awaits", i)
	case s.Due > w.at:
		w.ofStep("why.backoff", i, "because", w.because(), "try", try, "at", when(s.Due))
	case s.Due > 0:
		w.ofStep("why.backoff.over", i, "try", try, "at", when(s.Due))
	default:
		w.ofStep("why.begins", i)
	}
	var others []int
	for k := range w.t.Steps {
		if k != i && w.t.Steps[k].Status == StepWaiting && w.t.ready(w.p, k) {
			others = append(others, k)
		}
	}
	if len(others) > 0 {
		w.say("why.ready", "steps", w.steps(others))
	}
}

// awaits tells of a do or an undo that waits for its agent.
func (w *sentence) awaits(id string, i int) {
	s := &w.t.Steps[i]
	cause, next := "why.awaits.busy", say.Of("why.within", "time", w.p.Steps[i].BackoffCap)
	switch s.Said {
	case 0:
		cause = "why.awaits.absent"
	case CodeTooEarly:
		cause = "why.awaits.early"
	case CodeUnable:
		cause = "why.awaits.unable"
	}
	if s.Due > w.at {
		next = say.Of("why.at", "at", when(s.Due))
	}
	w.ofStep(id, i, "cause", say.Of(cause), "when", next)
}

func (w *sentence) undoing() {
	w.say("why.undoing", "because", w.because())
	out := w.out()
	i, next := w.t.nextUndo(w.p, w.at)
	switch {
	case len(out) > 0:
		i = -1 // what is out comes first
		w.few(out, w.undoOut)
	case i < 0:
		w.say("why.undoing.done")
	default:
		w.undoNext(i, next)
	}
	w.troubles(out, i)
	w.undoThen(out, i)
}

// undoOut tells of a command that is out while the task is undone: an undo, or a do that comes first.
func (w *sentence) undoOut(i int) {
	s, id, try := &w.t.Steps[i], "why.undo.running", w.undoTry(i)
	switch {
	case s.kind.parent() && s.Status == StepUndoing:
		id = "why.undo.children"
	case s.kind.parent():
		id = "why.undo.children.next"
	case s.Status != StepUndoing && w.at >= s.Due:
		id = "why.undo.silent"
	case s.Status != StepUndoing:
		id, try = "why.undo.waits", w.doTry(i)
	case s.again():
		id = "why.undo.again"
	case w.at >= s.Due:
		id = "why.undo.late"
	}
	w.ofStep(id, i, "try", try, "at", when(s.Due), "known", w.known(i), "until", when(max(s.Effect.Open, s.Due.Add(w.p.Grace))))
}

// undoNext tells of the undo that leaves next, while nothing is out.
func (w *sentence) undoNext(i int, next Instant) {
	s := &w.t.Steps[i]
	switch {
	case s.undoAwaits():
		w.awaits("why.awaits.undo", i)
		w.say("why.undo.ends", "at", when(w.t.undoEnd(w.p, i)))
	case s.Status == StepUndoing && s.Since == 0:
		w.ofStep("why.undo.restart", i)
	case s.Status == StepUndoing:
		w.ofStep("why.undo.backoff", i, "try", ofTries(s.Attempt+1, w.p.Steps[i].UndoAttemptsMax), "at", when(next))
		w.say("why.undo.ends", "at", when(w.t.undoEnd(w.p, i)))
	case next > w.at:
		w.ofStep("why.undo.may", i, "at", when(next), "known", w.known(i))
	default:
		w.ofStep("why.undo.next", i)
	}
}

// troubles names the undos that are in trouble, and those that gave up.
func (w *sentence) troubles(out []int, next int) {
	w.few(w.such(func(s *StepState) bool { return s.Left != "" || s.Alerted }), func(i int) {
		switch s := &w.t.Steps[i]; {
		case s.Left != "":
			w.ofStep("why.undo.left", i, "error", why(s.Left))
		case i == next || len(out) > 0 && out[0] == i:
			w.say("why.undo.failing", "at", when(s.Since))
		default:
			w.ofStep("why.undo.failing.other", i, "at", when(s.Since))
		}
	})
}

// undoThen says what is undone after what is under way. Undos in trouble are left out: troubles has named them.
func (w *sentence) undoThen(out []int, next int) {
	var then []int
	left, now := false, StepSetOf(out...)
	for i := len(w.t.Steps) - 1; i >= 0; i-- {
		left = left || w.t.Steps[i].Left != ""
		if i != next && !now.Has(i) && w.t.openUndo(w.p, i) && !w.t.Steps[i].Alerted {
			then = append(then, i)
		}
	}
	switch {
	case len(then) == 1:
		w.ofStep("why.undo.then", then[0])
	case len(then) > 1:
		w.say("why.undo.then.order", "steps", w.steps(then))
	case left:
		w.say("why.undo.operator")
	case next >= 0 || len(out) > 0:
		w.say("why.undo.end")
	}
}

func (w *sentence) failed() {
	t := w.t
	w.say("why.error")
	left := w.such(func(s *StepState) bool { return s.Left != "" })
	w.few(left, func(i int) { w.ofStep("why.undo.left", i, "error", why(t.Steps[i].Left)) })
	at, _ := t.stoppedAt(w.p, "")
	switch {
	case len(left) > 0:
	case at >= 0 && t.Steps[at].Status == StepFailed && t.FailedStep == at+1:
		w.say("why.error.failed", "because", w.because())
	case at >= 0:
		w.ofStep("why.error.before", at, "reason", w.reason())
	default:
		w.say("why.error.stopped", "reason", w.reason())
		w.notUndone()
	}
	w.mayAct()
	w.say("why.error.possible", "actions", joined(t.Possible(w.p, w.at), ", "))
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
		w.say("why.error.stands", "steps", w.steps(open))
	}
}

// mayAct names the steps of a task in error whose do may still act.
func (w *sentence) mayAct() {
	w.few(w.such(func(s *StepState) bool { return s.Effect.Open > w.at }), func(i int) {
		w.ofStep("why.error.may", i, "at", when(w.t.Steps[i].Effect.Open))
	})
}

func (w *sentence) undone() {
	t := w.t
	w.say("why.undone", "at", when(t.EndedAt), "because", w.because())
	var left []int
	for i := range t.Steps {
		if t.Steps[i].Effect.Possible() && w.p.Steps[i].Undoable {
			left = append(left, i)
		}
	}
	if len(left) > 0 { // an operator settled it
		by, _ := w.asker()
		w.say("why.undone.word", "by", by, "steps", w.steps(left))
	}
}

func (w *sentence) processed() {
	t, id := w.t, "why.processed"
	for i := range t.Steps {
		switch t.Steps[i].Status {
		case StepDone:
		case StepSkipped:
			id = "why.processed.skipped"
		default:
			by, reason := w.asker()
			w.ofStep("why.processed.word", i, "at", when(t.EndedAt), "status", t.Steps[i].Status, "by", by, "reason", reason)
			return
		}
	}
	w.say(id, "at", when(t.EndedAt))
}

// planless tells of a task whose steps are not known.
func (w *sentence) planless() {
	t, id := w.t, "why.unplanned"
	switch {
	case t.unread():
		name, version, _ := AwaitedPlan(t.WaitsFor)
		w.say("why.unread", "version", version, "plan", name, "at", when(t.Deadline))
		return
	case t.State == StateError && t.PlanVersion == 0:
		id = "why.error.planless"
	case t.State == StateError:
		id = "why.error.unplanned"
	case t.State == StateUndone && t.PlanVersion == 0:
		id = "why.undone.unbegun"
	case t.State.Ended():
		id = "why.ended"
	}
	w.say(id, "state", t.State, "version", t.PlanVersion, "at", when(t.EndedAt), "reason", w.reason())
}
