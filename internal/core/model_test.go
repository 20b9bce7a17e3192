package core

import (
	"cmp"
	"fmt"
	"slices"
)

// The model: agents, the services behind them and the net between, as invariants
// 6 and 7 allow them to behave. It knows nothing of the core's StepEffect; it sees commands leave and replies arrive.

// model holds what happened outside the task.
type model struct {
	grace   Instant
	lasts   []Instant // by step: how long its service remembers a key
	tries   []*try
	copies  []*hand
	replies []answer
	zombies []*hand // copies that an owner committed but had not sent when it lost the task
	timers  []Instant
	effects map[effectKey]*effectAt
	settled map[int]bool         // rounds that a person settled by hand
	inputs  map[effectKey]string // of the do that left last
	hand    map[effectKey]bool   // accepted: done by hand
	asks    []ask                // what agents are asked about silent dos
	said    []ask                // and what they have answered
}

// ask is one question about a silent do. It may be asked again, and the answer come late, or twice.
type ask struct {
	seq  int64
	key  effectKey
	code int     // of the answer
	at   Instant // when it saw no effect
}

// early reports whether an answer does not count, and the agent is asked again: it was given while a do could take effect.
func (a ask) early(p *Plan, t *Task) bool {
	i := t.AskedOf(p, a.seq)
	return a.code == CodeAbsent && i >= 0 && a.at < t.ProbeQuiet(i)
}

// askAgent lets the agent say what it sees.
func (m *model) askAgent(a ask, now Instant) {
	if !m.effect(a.key).live {
		a.code, a.at = CodeAbsent, now
	}
	m.said = append(m.said, a)
}

// checkProbed judges the rows that such an answer led to.
func (m *model) checkProbed(a ask, rows []Record) string {
	at := slices.IndexFunc(rows, func(r Record) bool { return r.Kind == KindProbed }) // what retries came to is noted first
	if at < 0 || rows[at].Step != a.key.step || rows[at].Code != a.code {
		return fmt.Sprintf("what the agent of step %d says, code %d, is noted as %+v", a.key.step, a.code, rows)
	}
	if a.code == 0 && m.effect(a.key).applied == 0 && !m.settled[a.key.round] {
		return fmt.Sprintf("step %d counts as done, and has no effect", a.key.step)
	}
	return ""
}

// try is one command, known by the number of the journal row that issued it.
type try struct {
	seq    int64
	key    effectKey
	undo   bool
	due    Instant
	copies int     // that left or may leave, and have neither been answered nor given back
	retry  bool    // of a step that waits for its agent: copies leave one after the other
	out    Instant // complete-by of the copy that left last
}

// hand is one copy of a command with an agent at work on it.
type hand struct {
	try  *try
	copy uint32
	done bool // it will do nothing more
	over bool // the owner has taken its answer, or that it was given back
}

// end notes that the owner knows what became of the copy.
func (h *hand) end() {
	if !h.over {
		h.over = true
		h.try.copies--
	}
}

type answer struct {
	*hand
	code int
	at   Instant // when it reached the owner's socket
}

type effectKey struct{ round, step int }

// effectAt is one key in the service that step calls: the effect and its
// tombstone change together, do and undo one after the other.
type effectAt struct {
	live, tombstone bool
	applied         int
	did, undid      Instant // when the effects were made that the service remembers for a while
}

func newModel(p *Plan) *model {
	lasts := make([]Instant, len(p.Steps))
	for i := range lasts {
		lasts[i] = Instant(0).Add(p.Steps[i].KeyLasts)
	}
	return &model{grace: Instant(0).Add(p.Grace), lasts: lasts, effects: map[effectKey]*effectAt{}, settled: map[int]bool{}, inputs: map[effectKey]string{}, hand: map[effectKey]bool{}}
}

func (m *model) effect(k effectKey) *effectAt {
	if m.effects[k] == nil {
		m.effects[k] = &effectAt{}
	}
	return m.effects[k]
}

// lateRetry is a retry of step i by an owner that has lost the task: one whose retries an agent has heard, or that resumed the
// wait, knows how old the key is.
func (m *model) lateRetry(p *Plan, t *Task, i int, now Instant) {
	s, ps := &t.Steps[i], &p.Steps[i]
	e, used := Effect{Kind: EffectDo, Step: i, Seq: s.Awaits, At: min(now.Add(OwnedFor+min(ps.CompleteBy, ps.KeyLasts)), t.Deadline), Again: true}, s.Used
	if s.Status == StepUndoing {
		e.Kind, e.At, used = EffectUndo, now.Add(OwnedFor+min(ps.UndoCompleteBy, ps.KeyLasts)), cmp.Or(s.UndoUsed, s.Since)
	}
	if did := m.effect(effectKey{t.Round, i}); did.did != 0 || did.undid != 0 {
		e.At = min(e.At, used.Add(ps.KeyLasts))
	}
	if e.At > now {
		m.send(e, t.Round, true)
	}
}

// find returns the try of that number, or nil.
func (m *model) find(seq int64) *try {
	for _, t := range m.tries {
		if t.seq == seq {
			return t
		}
	}
	return nil
}

// resumed: another owner sends again what a task has out, of which this life's owner does not hear.
func (m *model) resumed(p *Plan, other *Task, now Instant) {
	var out Outcome
	Resume(p, other, now, &out)
	for _, e := range out.Effects {
		if e.Kind == EffectDo || e.Kind == EffectUndo {
			m.send(e, other.Round, false)
		}
	}
}

// send takes a command that left (or will: lost says that its owner lost the
// task first, and may still send it at any time).
func (m *model) send(e Effect, round int, lost bool) {
	t := m.find(e.Seq)
	if t == nil {
		t = &try{seq: e.Seq, key: effectKey{round, e.Step}, undo: e.Kind == EffectUndo, due: e.At}
		m.tries = append(m.tries, t)
	}
	t.copies++
	t.retry = t.retry || e.Again
	t.due, t.out = max(t.due, e.At), e.At
	if lost {
		m.zombies = append(m.zombies, &hand{try: t, copy: e.Copy})
		return
	}
	m.copies = append(m.copies, &hand{try: t, copy: e.Copy})
}

// work lets one copy be worked on at now. code is what it would like to answer,
// effect whether the service is reached, silent that no answer arrives. It
// returns what must never be: a do on a key that was undone.
func (m *model) work(h *hand, now Instant, code int, effect, silent bool) string {
	t := h.try
	h.done = true
	if now >= t.due+m.grace {
		return "" // the agent's context is long over
	}
	e := m.effect(t.key)
	switch {
	case !effect:
	case t.undo && !e.live && m.forgotten(e.undid, t.key, now):
		return fmt.Sprintf("undo %d of step %d has its effect a second time", t.seq, t.key.step)
	case t.undo:
		if e.live || e.undid == 0 {
			e.undid = now
		}
		e.live, e.tombstone = false, true
	case e.tombstone && !m.settled[t.key.round]:
		return fmt.Sprintf("do %d of step %d reached the service after its undo", t.seq, t.key.step)
	case e.tombstone:
		code = CodeGone
	case !e.live, m.forgotten(e.did, t.key, now):
		e.live, e.did = true, now
		e.applied++
	}
	if now < t.due && !silent { // after complete-by an agent is silent
		m.replies = append(m.replies, answer{h, code, now})
	}
	return ""
}

// forgotten reports whether a service that saw a key for the first time then does not know it any more: an agent may have
// called it until the grace after the complete-by was over, at the word of an owner who had just lost the task.
func (m *model) forgotten(first Instant, k effectKey, now Instant) bool {
	return first != 0 && now > (first+m.lasts[k.step]+m.grace).Add(OwnedFor)
}

// found is what a person says of the services of a task in error; empty: nothing.
func (m *model) found(p *Plan, t *Task, kind EventKind) ProbeOutcome {
	if t.State != StateError {
		return ""
	}
	if at, _ := t.stoppedAt(p, ""); kind != EventUndo {
		if at >= 0 && p.Steps[at].Kind == CallStep && !m.effect(effectKey{t.Round, at}).live {
			return ProbeAbsent
		}
		return ""
	}
	for i := range t.Steps {
		if t.Steps[i].UndoUsed != 0 && t.Steps[i].Effect.Possible() && !m.effect(effectKey{t.Round, i}).live {
			return ""
		}
	}
	return ProbeDone
}

// quiet says whether a do of k may still take effect at the time an undo leaves.
// This is the rule of invariant 7 as the owner can know it: each copy was answered or
// given back, or its time and the grace are over.
func (m *model) quiet(k effectKey, now Instant) (*try, bool) {
	for _, t := range m.tries {
		over := now >= t.due+m.grace || t.copies == 0
		if t.key == k && !t.undo && !over {
			return t, false
		}
	}
	return nil, true
}

// checkLate judges the rows that an answer led to which came after its complete-by: they only say what is so.
func (m *model) checkLate(a answer, rows []Record) string {
	if len(rows) == 0 {
		return "an answer that came too late changed something without a row"
	}
	k, r := a.try.key, &rows[0]
	for i := range rows { // what came to its end before is noted first
		if rows[i].Kind == KindLate || rows[i].Kind == KindUndoLate {
			r = &rows[i]
		}
	}
	switch e := m.effect(k); {
	case r.Step != k.step || r.Code != a.code:
		return fmt.Sprintf("a late answer of step %d, code %d, is noted as of step %d, code %d", k.step, a.code, r.Step, r.Code)
	case r.Kind == KindUndoLate && a.try.undo && a.code == 0:
		if e.live {
			return fmt.Sprintf("step %d counts as undone by a late answer, and its effect is live", k.step)
		}
	case r.Kind == KindLate && !a.try.undo && a.code == 0:
		if r.StepStatus == StepDone || e.applied == 0 && !m.settled[k.round] {
			return fmt.Sprintf("a late answer leaves step %d %s, with %d effects", k.step, r.StepStatus, e.applied)
		}
	case r.Kind == KindLate && !a.try.undo && FinalCode(a.code):
		for _, t := range m.tries {
			if t.key == k && !t.undo && (t != a.try && t.copies > 0 || t.copies > 1) {
				return fmt.Sprintf("step %d counts as without effect, and do %d left %d times", k.step, t.seq, t.copies)
			}
		}
	default:
		return fmt.Sprintf("a late answer, code %d, undo %v, led to a row %s", a.code, a.try.undo, r.Kind)
	}
	return ""
}

// checkSend judges a command at the moment it leaves.
func (m *model) checkSend(p *Plan, task *Task, e Effect, now Instant) string {
	round := task.Round
	k := effectKey{round, e.Step}
	if e.Kind == EffectDo {
		if m.hand[k] {
			return fmt.Sprintf("a do of step %d leaves, which was done by hand", e.Step)
		}
		if m.effect(k).tombstone && !m.settled[round] {
			return fmt.Sprintf("a do of step %d leaves after its undo", e.Step)
		}
		return ""
	}
	if t, ok := m.quiet(k, now); !ok {
		return fmt.Sprintf("the undo of step %d leaves at %d, but do %d (complete-by %d, grace %d, %d copies) may still be at work",
			e.Step, now, t.seq, t.due, m.grace, t.copies)
	}
	for j := e.Step + 1; j < len(p.Steps); j++ {
		if p.Steps[j].Undoable && m.effect(effectKey{round, j}).live && !m.settled[round] && !passes(p, task, e.Step, j) {
			return fmt.Sprintf("step %d is undone before step %d, whose effect is live", e.Step, j)
		}
	}
	return ""
}

// checkInput wants an undo to carry the input of the do that it undoes.
func (m *model) checkInput(t *Task, e Effect) string {
	k := effectKey{t.Round, e.Step}
	input := string(t.InputOf(e.Step))
	if e.Kind == EffectDo {
		want := string(t.Input)
		if did, ok := m.inputs[k]; ok && t.Steps[e.Step].Effect.lost() {
			want = did
		}
		if m.inputs[k] = input; input != want {
			return fmt.Sprintf("a do of step %d leaves with the input %s, want %s", e.Step, input, want)
		}
		return ""
	}
	if did, ok := m.inputs[k]; ok && did != input {
		return fmt.Sprintf("the undo of step %d leaves with the input %s, its do left with %s", e.Step, input, did)
	}
	return ""
}

// passes reports whether the undo of a step may leave before that of a later one: that
// one has given up, or it did not come after the step and is in trouble, or waits for one
// that is in trouble.
func passes(p *Plan, t *Task, step, later int) bool {
	if t.Steps[later].Left != "" {
		return true
	}
	if comesAfter(p, later, step) {
		return false
	}
	for i := later; i < len(t.Steps); i++ { // it, or one that it waits for
		if t.Steps[i].Alerted && t.Steps[i].Left == "" && (i == later || comesAfter(p, i, later)) {
			return true
		}
	}
	return false
}

func comesAfter(p *Plan, later, step int) bool {
	for _, a := range p.Steps[later].After {
		if a == step || comesAfter(p, a, step) {
			return true
		}
	}
	return false
}

// checkEnd judges the services of a task in its present state: nothing is live
// after undone, one effect of every step is after processed.
func (m *model) checkEnd(p *Plan, t *Task) string {
	for k, e := range m.effects {
		if m.settled[k.round] || !p.Steps[k.step].Undoable {
			continue
		}
		if e.live && (k.round < t.Round || t.State == StateUndone) {
			return fmt.Sprintf("the effect of step %d in round %d is live after undone", k.step, k.round)
		}
		if e.applied > 1 {
			return fmt.Sprintf("step %d took effect %d times in round %d", k.step, e.applied, k.round)
		}
	}
	if t.State != StateProcessed || m.settled[t.Round] {
		return ""
	}
	for i := range p.Steps {
		if p.Steps[i].Undoable && !m.effect(effectKey{t.Round, i}).live {
			return fmt.Sprintf("processed without the effect of step %d", i)
		}
	}
	return ""
}

// open lists the copies that an agent may still work on.
func (m *model) open() []*hand {
	return slices.DeleteFunc(slices.Clone(m.copies), func(h *hand) bool { return h.done })
}

// hasTimer reports whether a wake is pending at or before due.
func (m *model) hasTimer(due Instant) bool {
	return slices.ContainsFunc(m.timers, func(at Instant) bool { return at <= due })
}
