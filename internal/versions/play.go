package versions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/replay"
)

// Fate is what a task comes to when it is played against another version of its plan.
type Fate string

// The fates.
const (
	fateSame      Fate = "same"      // every event of its journal leads to the same decisions
	fateDifferent Fate = "different" // one leads to another
	fateUnknown   Fate = "unknown"   // what the other version decides rests on what the journal does not have
)

// Verdict is what one task comes to. Where it parts, Seq is the journal row, Event what had happened, and Was and Is what was
// decided and what the other version decides.
type Verdict struct {
	Fate  Fate   `json:"fate" enum:"same,different,unknown"`
	Seq   int64  `json:"seq,omitempty"`
	Event string `json:"event,omitempty"`
	Was   string `json:"was,omitempty"`
	Is    string `json:"is,omitempty"`
	Why   string `json:"why,omitempty"` // of unknown: what is missing
}

// Evaluate makes what answers the expressions of a plan for a task, where the journal does not have the answer.
type Evaluate func(p *core.Plan, t *core.Task) core.Asker

// play feeds what the journal of a task says has happened (answers, failures, silences, requests, times) to another version
// of its plan, and compares what is decided, event by event: which commands leave, which steps and which task come to which
// state. Steps are known by their names. Times are not compared: a longer backoff is no difference, but an answer that
// comes after the complete-by of the other version is. old is the task's own version; evaluate may be nil.
func play(old, other *core.Plan, saved *core.Saved, evaluate Evaluate) Verdict {
	if len(saved.Journal) == 0 {
		return Verdict{Fate: fateUnknown, Why: "its journal is forgotten"}
	}
	is := newReading(old, other, saved, evaluate)
	is.read()
	if is.parted == 0 {
		return Verdict{Fate: fateSame}
	}
	v := Verdict{Fate: fateDifferent, Seq: is.parted, Was: is.was, Is: is.decided, Why: is.unknown}
	if frames, err := replay.Frames(old, saved, is.parted, is.parted); err == nil {
		v.Event = frames[0].Happened
	}
	if v.Why != "" {
		v.Fate = fateUnknown
		return v
	}
	// What its own version would not decide again either tells nothing about the other.
	if own := newReading(old, old, saved, nil); own.read() && own.parted != 0 && own.parted <= is.parted {
		v.Fate, v.Why = fateUnknown, "the journal does not say enough to decide this row again by its own version"
	}
	return v
}

// reading plays one journal.
type reading struct {
	old, p   *core.Plan
	saved    *core.Saved
	evaluate Evaluate

	t      *core.Task   // as the other version has it
	player *core.Player // as the journal has it
	was0   *core.Task   // that, before the row at hand
	ahead  *core.Player // as the journal has it at the end of the instant
	played int          // rows that it has played
	at     int          // index of the row at hand
	end    int          // index after the last row of the same instant
	out    core.Outcome
	found  core.ProbeOutcome // what a person has said of a service, by the row before

	parted       int64 // row; 0: it has not
	was, decided string
	unknown      string // what is missing
}

func newReading(old, p *core.Plan, saved *core.Saved, evaluate Evaluate) *reading {
	r := &reading{old: old, p: p, saved: saved, evaluate: evaluate, player: core.Play(old, saved), ahead: core.Play(old, saved)}
	t := saved.Row
	t.Seq, t.Failures, t.Round, t.FailedStep, t.Why, t.Earlier, t.Result, t.Steps = 0, 0, 0, 0, "", nil, nil, nil
	t.State, t.WaitsFor, t.LockedBy, t.UpdatedAt, t.EndedAt, t.EndNumber, t.WentBackAt, t.BornAgain, t.LostUntil, t.Deadline, t.Bound = "", "", "", 0, 0, 0, 0, false, 0, 0, 0
	t.PlanVersion = p.Version
	r.t = &t
	return r
}

// read plays all rows; true: it came to an end, the task's or where it parts.
func (r *reading) read() bool {
	rows := r.saved.Journal
	advanced := 0 // rows that the player has played
	for r.at = 0; r.at < len(rows) && r.parted == 0; {
		row := &rows[r.at]
		if row.Kind == core.KindAsked {
			r.at++
			continue
		}
		for ; advanced < r.at; advanced++ {
			if _, err := r.player.Next(); err != nil {
				return r.stop("its journal cannot be replayed")
			}
		}
		r.was0 = nil
		if r.at > 0 {
			r.was0 = r.player.Task()
		}
		for r.end = r.at + 1; r.end < len(rows) && rows[r.end].At == row.At; {
			r.end++
		}
		if why := strange(row, r.at); why != "" {
			return r.stop(why)
		}
		r.feed(row)
		if r.parted == 0 {
			r.compare()
		}
	}
	return true
}

// strange says what of a row cannot be played.
func strange(row *core.Record, at int) string {
	switch row.Kind {
	case core.KindSubmitted, core.KindStarted, core.KindDone, core.KindRefused, core.KindFailed, core.KindOverdue, core.KindUnserved, core.KindUndone,
		core.KindUndoRefused, core.KindUndoFailed, core.KindUndoOverdue, core.KindUndoUnserved, core.KindUndoGaveUp, core.KindExpired, core.KindCancelled,
		core.KindUndoAsked, core.KindResubmitted, core.KindAccepted, core.KindResolved, core.KindExtended, core.KindSkipped, core.KindSignalled, core.KindResult,
		core.KindLate, core.KindUndoLate, core.KindProbed:
		if at == 0 && row.Kind != core.KindSubmitted {
			return "it did not begin with a submission: its plan was not known, or the database had gone back"
		}
		return ""
	case core.KindPoisoned:
		if at > 0 {
			return ""
		}
		return "its plan was not known when it came"
	}
	return "a row of kind " + core.QuoteShort(string(row.Kind)) + " does not say all that had happened"
}

func (r *reading) stop(why string) bool {
	r.part("", "", why)
	return false
}

func (r *reading) part(was, is, unknown string) {
	r.parted = r.saved.Journal[min(r.at, len(r.saved.Journal)-1)].Seq
	r.was, r.decided = was, is
	if r.unknown == "" {
		r.unknown = unknown
	}
}

// name is the name of a step of the task's own version; empty: none.
func (r *reading) name(i int) string {
	if i < 0 || i >= len(r.old.Steps) {
		return ""
	}
	return r.old.Steps[i].Name
}

// step is the index in the other version; -1: it has none of that name.
func (r *reading) step(i int) int {
	if name := r.name(i); name != "" {
		return r.p.StepIndex(name)
	}
	return -1
}

// feed raises the event of which a row tells.
func (r *reading) feed(row *core.Record) {
	ev := core.Event{At: row.At, Actor: row.Actor, Reason: row.Reason, Rand: r.rand(row), Code: row.Code, Error: row.Error, ByParent: r.t.Parent != 0, Full: r.full(), Ask: &answers{r}}
	if row.Kind == core.KindSubmitted {
		if row.Deadline != r.old.DeadlineOf(r.t, row.At) {
			r.t.Deadline = row.Deadline // the submission named it
		}
		core.Birth(r.p, r.t, &ev, &r.out)
		return
	}
	r.hold(row.At)
	i := r.step(row.Step)
	if row.Step >= 0 && i < 0 {
		r.part(words(r.old, row), "there is no step "+r.name(row.Step), "")
		return
	}
	switch row.Kind {
	case core.KindDone, core.KindRefused, core.KindFailed, core.KindUnserved, core.KindUndone, core.KindUndoRefused, core.KindUndoFailed, core.KindUndoUnserved:
		r.ended(row, &ev, i)
	case core.KindOverdue, core.KindUndoOverdue, core.KindExpired:
		r.late(row, &ev, i)
	case core.KindUndoGaveUp:
		if ev.Kind = core.EventOverdue; r.t.Steps[i].Out != 0 && row.Code != 0 {
			ev.Kind, ev.Seq, ev.Copy = core.EventReply, r.t.Steps[i].Out, r.t.Steps[i].Copy
		}
		r.raise(&ev)
	case core.KindLate, core.KindUndoLate:
		r.lateAnswer(row, &ev, i)
	case core.KindProbed:
		r.probed(row, &ev, i)
	case core.KindStarted:
		r.woken(row, &ev, i)
	case core.KindSignalled:
		ev.Kind, ev.Step, ev.Result = core.EventSignal, r.name(row.Step), row.Result
		r.raise(&ev)
	case core.KindSkipped, core.KindResult:
		r.out.Reset() // the other version had nothing to ask
	default:
		r.asked(row, &ev)
	}
}

// hold supposes of retries that wait for their agents, whose times are not journalled, that they have just left.
func (r *reading) hold(at core.Instant) {
	for i := range r.t.Steps {
		if s := &r.t.Steps[i]; s.Out != 0 && s.Out == s.Awaits {
			s.Due, s.Heard = max(s.Due, at.Add(r.within(r.p, i, s))), at+1
		}
	}
}

// within is how long the present attempt of a step may take by a version.
func (r *reading) within(p *core.Plan, i int, s *core.StepState) time.Duration {
	if s.Status == core.StepUndoing {
		return p.Steps[i].UndoCompleteBy
	}
	return p.Steps[i].CompleteBy
}

// ended raises the end of an attempt.
func (r *reading) ended(row *core.Record, ev *core.Event, i int) {
	s, undo := &r.t.Steps[i], row.Kind == core.KindUndone || row.Kind == core.KindUndoRefused || row.Kind == core.KindUndoFailed || row.Kind == core.KindUndoUnserved
	ev.Kind, ev.Result = core.EventReply, row.Result
	switch kind := r.p.Steps[i].Kind; {
	case kind == core.WaitStep && r.t.State == core.StatePending:
		ev.Kind = core.EventOverdue // its owner does not hold it
	case kind == core.WaitStep:
		ev.Kind = core.EventWake
	case kind == core.SignalStep:
		ev.Kind, ev.Step = core.EventSignal, r.p.Steps[i].Name
	case kind.Parent():
		ev.Kind = core.EventChild
	case row.Kind == core.KindUndoUnserved && r.was0 != nil && r.was0.Steps[row.Step].Awaits != 0:
		ev.Kind = core.EventWake // it has waited too long
		r.raise(ev)
		return
	case (row.Kind == core.KindUnserved || row.Kind == core.KindUndoUnserved) && row.Code == 0:
		ev.Kind = core.EventUnserved
	}
	if s.Out == 0 && s.Awaits != 0 { // a retry of its wait had left before
		r.leave(ev, row.At, i)
	}
	if ev.Seq, ev.Copy = s.Out, s.Copy; s.Out == 0 || undo != (s.Status == core.StepUndoing) {
		r.out.Reset()
		return
	}
	if ev.Kind == core.EventReply && row.At >= s.Due {
		r.part(words(r.old, row), fmt.Sprintf("the answer comes after its complete-by, %s", s.Due.Time().Format(core.TimeLayout)), "")
		return
	}
	r.raise(ev)
}

// leave lets the retry of a step that waits for its agent leave.
func (r *reading) leave(ev *core.Event, at core.Instant, i int) {
	again := core.Event{Kind: core.EventServed, At: max(at, r.t.Steps[i].Due), Actor: ev.Actor, Full: ev.Full, Ask: ev.Ask}
	if r.t.Steps[i].Said != 0 {
		again.Kind = core.EventWake
	}
	r.raise(&again)
}

// lateAnswer raises an answer that came after its complete-by, if it does by the other version.
func (r *reading) lateAnswer(row *core.Record, ev *core.Event, i int) {
	s := &r.t.Steps[i]
	do, undo := s.Silent()
	ev.Kind, ev.Result, ev.Seq = core.EventReply, row.Result, do
	if row.Kind == core.KindUndoLate {
		ev.Seq = undo
	}
	if ev.Seq == 0 {
		ev.Seq = s.Out
	}
	if ev.Seq != 0 && s.Out == ev.Seq && row.At < s.Due {
		r.part(words(r.old, row), fmt.Sprintf("the answer comes before its complete-by, %s", s.Due.Time().Format(core.TimeLayout)), "")
		return
	}
	r.raise(ev)
}

// probed raises what an agent said of a do that was silent, if the other version asks it.
func (r *reading) probed(row *core.Record, ev *core.Event, i int) {
	if r.was0 != nil && r.was0.State.Ended() { // a person has looked, and asks for something by the next row
		r.found = core.ProbeDone
		if row.Code == core.CodeAbsent {
			r.found = core.ProbeAbsent
		}
		return
	}
	if row.Code == core.CodeTimeout {
		ev.Kind = core.EventWake
		r.raise(ev)
		return
	}
	ev.Kind, ev.Result, ev.Seq = core.EventProbed, row.Result, r.t.Steps[i].Effect.Asks
	if !r.p.Steps[i].Probe {
		r.part(words(r.old, row), "the agent is not asked", "")
		return
	}
	r.raise(ev)
}

// late raises that the time is over for what the row names, if it is by the other version.
func (r *reading) late(row *core.Record, ev *core.Event, i int) {
	ev.Kind = core.EventOverdue
	for k := range r.t.Steps { // nothing was out where the task expired
		if s := &r.t.Steps[k]; row.Kind == core.KindExpired && s.Out != 0 && s.Out == s.Awaits {
			s.Out, s.Attempt = 0, s.Attempt-1
		}
	}
	if i >= 0 && row.Kind != core.KindExpired {
		s := &r.t.Steps[i]
		if s.Out == 0 && s.Awaits != 0 {
			r.leave(ev, row.At, i)
		}
		if s.Out != 0 && s.Out == s.Awaits {
			s.Due = row.At
		}
		if s.Out != 0 && s.Due > row.At {
			r.part(words(r.old, row), "it waits for the answer until "+s.Due.Time().Format(core.TimeLayout), "what would have come after this row is not in the journal")
			return
		}
	}
	r.raise(ev)
}

// woken raises that a wait is over, or that there is room.
func (r *reading) woken(row *core.Record, ev *core.Event, i int) {
	if i >= 0 && r.t.Steps[i].Awaits != 0 && row.Next == row.Step { // its retry has been heard
		s := &r.t.Steps[i]
		if s.Out == 0 {
			r.leave(ev, row.At, i)
		}
		left := row.Due.Add(-r.within(r.old, row.Step, s))
		s.Due, s.Heard = max(row.At+1, left.Add(r.within(r.p, i, s))), row.At
	}
	for _, kind := range []core.EventKind{core.EventWake, core.EventClaim, core.EventOverdue} {
		if ev.Kind = kind; r.raise(ev) {
			return
		}
	}
	if next := r.step(row.Next); next >= 0 { // its time comes later by the other version
		for _, due := range []core.Instant{r.t.Steps[next].Due, r.t.Steps[next].Effect.Open} {
			if ev.Kind, ev.At = core.EventWake, due; due > row.At && r.raise(ev) {
				return
			}
		}
	}
}

// asked raises a request.
func (r *reading) asked(row *core.Record, ev *core.Event) {
	switch row.Kind {
	case core.KindCancelled:
		ev.Kind = core.EventCancel
	case core.KindUndoAsked:
		ev.Kind = core.EventUndo
		if r.was0.State == core.StateUndone {
			ev.Step = r.name(row.Step)
		}
	case core.KindResubmitted:
		ev.Kind, ev.Until, ev.Input = core.EventResubmit, row.Deadline, row.Input
		if row.Input != nil {
			ev.Kind = core.EventEdit
		}
	case core.KindAccepted:
		ev.Kind, ev.Until, ev.Result = core.EventAccept, row.Deadline, row.Result
	case core.KindResolved:
		ev.Kind, ev.As = core.EventResolve, row.State
	case core.KindExtended:
		ev.Kind, ev.Until = core.EventExtend, row.Deadline
	case core.KindPoisoned:
		ev.Kind = core.EventPoison
	}
	ev.Found, r.found = r.found, ""
	r.raise(ev)
}

// raise applies an event; false: it wrote no row.
func (r *reading) raise(ev *core.Event) bool {
	if err := core.Apply(r.p, r.t, ev, &r.out); err != nil {
		r.out.Reset()
	}
	return len(r.out.Records) > 0
}

// rand is a draw by which the task's own version came to the row's backoff.
func (r *reading) rand(row *core.Record) float64 {
	if row.Step < 0 || row.Due <= row.At || row.Next >= 0 || r.was0 == nil {
		return 0
	}
	s := &r.old.Steps[row.Step]
	most := core.Backoff(s.Backoff, s.BackoffCap, r.was0.Steps[row.Step].Attempt, 1)
	if most <= 0 {
		return 0
	}
	return min(float64(row.Due.Sub(row.At))/float64(most), 0.999999)
}

// full has the bits of the steps that did not begin though nothing else was in their way: their agents had no room, or a
// pause held them.
func (r *reading) full() core.StepSet {
	var full core.StepBuilder
	rows := r.saved.Journal
	last := &rows[r.end-1]
	if last.State != core.StateProcessing && last.State != core.StatePending {
		return full.Set()
	}
	for ; r.played < r.end; r.played++ {
		if _, err := r.ahead.Next(); err != nil {
			return full.Set()
		}
	}
	after := r.ahead.Task()
	for o := range after.Steps {
		s := &after.Steps[o]
		if s.Status != core.StepWaiting || s.Out != 0 || s.Awaits != 0 || s.Due > last.At || r.old.Steps[o].Kind != core.CallStep {
			continue
		}
		ready := !slices.ContainsFunc(r.old.Steps[o].After, func(a int) bool {
			return after.Steps[a].Status != core.StepDone && after.Steps[a].Status != core.StepSkipped
		})
		if i := r.step(o); ready && i >= 0 {
			full.Add(i)
		}
	}
	return full.Set()
}

// compare takes as many rows as the event has written, and finds what differs.
func (r *reading) compare() {
	rows := r.saved.Journal
	first := r.at
	var wrote, had []string
	state, stateWas := r.t.State, core.State("")
	for k := range r.out.Records {
		wrote = append(wrote, facts(r.p, &r.out.Records[k])...)
	}
	for n := len(r.out.Records); n > 0 && r.at < len(rows); r.at++ {
		if rows[r.at].Kind == core.KindAsked {
			continue
		}
		had, stateWas = append(had, facts(r.old, &rows[r.at])...), rows[r.at].State
		n--
	}
	slices.Sort(wrote)
	slices.Sort(had)
	if len(r.out.Records) > 0 && slices.Equal(wrote, had) && state == stateWas {
		return
	}
	if r.at == first {
		r.at++
		had, stateWas = facts(r.old, &rows[first]), rows[first].State
	}
	was := said(had, wrote, stateWas)
	is := said(wrote, had, state)
	if len(r.out.Records) == 0 {
		is = "nothing"
	}
	r.at = first
	r.part(was, is, "")
}

// facts are what a row decides, without times and texts.
func facts(p *core.Plan, row *core.Record) (all []string) {
	if row.Step >= 0 && row.Step < len(p.Steps) && row.Kind != core.KindStarted {
		all = append(all, fmt.Sprintf("step %s is %s", p.Steps[row.Step].Name, row.StepStatus))
	}
	if row.Next >= 0 && row.Next < len(p.Steps) {
		s, what := &p.Steps[row.Next], "do"
		if row.Undo {
			what = "undo"
		}
		text := fmt.Sprintf("%s of %s, attempt %d", what, s.Name, row.NextAttempt)
		switch {
		case s.Kind == core.CallStep:
			text += ", at " + s.Agent
		case s.Kind.Parent():
			text += ", by " + s.Child
		default:
			text += ", a " + string(s.Kind)
		}
		all = append(all, text)
	}
	return all
}

// said are the facts that the other side does not have, and the task's state.
func said(facts, other []string, state core.State) string {
	var own []string
	for _, f := range facts {
		if !slices.Contains(other, f) {
			own = append(own, f)
		}
	}
	return strings.Join(append(own, "the task is "+string(state)), "; ")
}

// words are a row's facts as one text.
func words(p *core.Plan, row *core.Record) string { return said(facts(p, row), nil, row.State) }

// answers are what the journal has of the answers to expressions, and else what an evaluation says.
type answers struct{ r *reading }

var errUnknown = errors.New("the answer is not in the journal")

// ask finds the answer for a step in the rows from the one at hand on. same says that the expression is that of the task's own
// version.
func ask[T any](a *answers, step int, text func(*core.Step) string, from func(*core.Record) (T, bool), evaluated func(core.Asker) (T, error)) (answer T, err error) {
	r := a.r
	s := &r.p.Steps[step]
	o := r.old.StepIndex(s.Name)
	if o >= 0 && text(&r.old.Steps[o]) == text(s) {
		for k := r.at; k < len(r.saved.Journal); k++ { // it may have waited for room meanwhile
			row := &r.saved.Journal[k]
			if row.Kind == core.KindRefused && row.Step == o && (r.was0 == nil || r.was0.Steps[o].Out == 0) {
				return answer, errors.New(row.Error)
			}
			if row.Step == o || row.Next == o {
				if answer, found := from(row); found {
					return answer, nil
				}
			}
		}
	}
	if r.evaluate != nil {
		return evaluated(r.evaluate(r.p, r.t))
	}
	r.unknown = "an expression of step " + s.Name + " has no answer in the journal"
	return answer, errUnknown
}

// When implements core.Asker.
func (a *answers) When(step int) (bool, error) {
	if a.r.full().Has(step) { // it waits for room: a step that is not wanted would not
		return true, nil
	}
	o := a.r.old.StepIndex(a.r.p.Steps[step].Name)
	return ask(a, step, func(s *core.Step) string { return s.When },
		func(row *core.Record) (bool, bool) { return row.Kind != core.KindSkipped || row.Step != o, true },
		func(by core.Asker) (bool, error) { return by.When(step) })
}

// Input implements core.Asker.
func (a *answers) Input(step int) ([]byte, error) {
	return ask(a, step, func(s *core.Step) string { return s.Input },
		func(row *core.Record) ([]byte, bool) { return row.Input, row.Input != nil },
		func(by core.Asker) ([]byte, error) { return by.Input(step) })
}

// Until implements core.Asker.
func (a *answers) Until(step int) (core.Instant, error) {
	o := a.r.old.StepIndex(a.r.p.Steps[step].Name)
	return ask(a, step, func(s *core.Step) string { return s.Until },
		func(row *core.Record) (core.Instant, bool) {
			if row.Next == o {
				return row.Due, true
			}
			return row.At, row.Kind == core.KindDone
		},
		func(by core.Asker) (core.Instant, error) { return by.Until(step) })
}

// Elements implements core.Asker.
func (a *answers) Elements(step int) ([]byte, int, error) {
	list, err := ask(a, step, func(s *core.Step) string { return s.Elements },
		func(row *core.Record) ([]byte, bool) {
			if row.Input == nil && row.Kind == core.KindDone {
				return []byte("[]"), true
			}
			return row.Input, row.Input != nil
		},
		func(by core.Asker) ([]byte, error) {
			list, _, err := by.Elements(step)
			return list, err
		})
	return list, len(core.Elements(list)), err
}

// Result implements core.Asker.
func (a *answers) Result() ([]byte, error) {
	r := a.r
	if r.old.Result == r.p.Result {
		for k := r.at; k < r.end; k++ {
			if row := &r.saved.Journal[k]; row.Kind == core.KindResult && row.Error != "" {
				return nil, errors.New(row.Error)
			} else if row.Kind == core.KindResult {
				return row.Result, nil
			}
		}
	}
	if r.evaluate != nil {
		return r.evaluate(r.p, r.t).Result()
	}
	r.unknown = "the expression of the plan's result has no answer in the journal"
	return nil, errUnknown
}
