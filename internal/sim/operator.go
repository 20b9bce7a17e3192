package sim

import (
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// What operators ask of tasks, and what must be true of it: a request about a journal row changes the task at that row
// or not at all, however often it is read; one about many tasks is acknowledged when it has come to each; a step that
// is accepted was done by hand, and is undone with its task.

// asks are the requests about journal rows, each by an actor of its own.
type asks struct {
	n    int
	rows map[askKey]asked
	hand map[string]bool // keys whose effect is there by hand alone
	// settled are keys of which a person has said by hand what they came to: a resolve is a claim, and what a service
	// does later is theirs to see to.
	settled map[string]bool
	refused map[string]bool // ids of tasks of which the database has refused a row: a request about one may change nothing
}

type askKey struct {
	actor     string
	partition int
	number    int64
}

// asked is what a request is about.
type asked struct {
	id    string
	seq   int64
	ahead bool // the task is not there yet: it may come there when the request has been refused
}

func newAsks() asks {
	return asks{rows: map[askKey]asked{}, hand: map[string]bool{}, settled: map[string]bool{}, refused: map[string]bool{}}
}

// askWords are what operators call the requests that may be about many tasks.
var askWords = map[core.EventKind]string{
	core.EventUndo: "undo", core.EventResubmit: "resubmit", core.EventEdit: "edit", core.EventAccept: "accept",
	core.EventResolve: "resolve",
}

// fill gives a request what its kind needs.
func (w *World) fill(c *core.Control) {
	w.asks.n++
	c.Asked = w.now
	switch c.Kind {
	case core.EventExtend:
		c.Until = w.now.Add(30 * time.Second)
	case core.EventEdit:
		c.Input = fmt.Appendf(nil, `{"edit":%d}`, w.asks.n)
	case core.EventResolve:
		c.As = []core.State{core.StateProcessed, core.StateUndone}[w.asks.n%2]
	case core.EventAccept:
		c.Result = fmt.Appendf(nil, `"by hand %d"`, w.asks.n)
	}
}

// lookAtService lets an operator say what is there of a step whose key may be too old.
func (w *World) lookAtService(c *core.Control, r *row) {
	plan, t, err := w.Store.replay(r)
	if err != nil || plan == nil || t.State != core.StateError || c.IfSeq != t.Seq {
		return
	}
	live := func(i int) bool { return w.books.live[core.Key(t.ID, plan.Steps[i].Name, t.Round)] }
	switch i := t.FailedStep - 1; c.Kind {
	case core.EventResubmit, core.EventEdit:
		if i >= 0 && t.Steps[i].Status == core.StepFailed && !live(i) {
			c.Step, c.Found = plan.Steps[i].Name, core.ProbeAbsent
		}
	case core.EventUndo:
		for i := range t.Steps {
			if t.Steps[i].Left != "" && !live(i) {
				c.Found = ""
				return
			}
			if t.Steps[i].Left != "" {
				c.Found = core.ProbeDone
			}
		}
	}
}

// more is n where operators do more than they would, else 0.
func (w *World) more(n int) int {
	if w.cfg.Operators {
		return n
	}
	return 0
}

// guard makes a request one about the row that the task is at, or now and then about another.
func (w *World) guard(c *core.Control, r *row) int64 {
	at := int64(len(r.journal))
	seq := at
	if w.fault(AskedAtAnotherRow) {
		seq = max(1, at+int64(w.rand.IntN(2)*2-1))
	}
	w.asks.rows[askKey{c.Actor, r.task.Partition, r.task.Number}] = asked{r.task.ID, seq, seq > at}
	return seq
}

// ask puts a request on the control stream, some twice.
func (w *World) ask(m message) {
	if w.during(w.others) || w.during(w.full) {
		return
	}
	w.append(&w.controls, m)
	if w.fault(AskedTwice) {
		w.after(w.upTo(time.Second), func() {
			if !w.during(w.others) && !w.during(w.full) {
				w.append(&w.controls, m)
			}
		})
	}
}

// troubleMany is an operator who asks something of many tasks of a partition at once.
func (w *World) troubleMany() {
	p := w.rand.IntN(w.cfg.Partitions)
	c := core.Control{
		Reason: "all of them",
		Kind:   []core.EventKind{core.EventUndo, core.EventResubmit, core.EventEdit, core.EventAccept, core.EventResolve}[w.rand.IntN(5)],
	}
	w.fill(&c)
	c.Actor = fmt.Sprintf("olga-%d", w.asks.n)
	var ids []string
	for _, r := range w.Store.byNumber[p] {
		if r.purged || w.rand.IntN(4) == 0 {
			continue
		}
		c.Numbers, c.Seqs = append(c.Numbers, r.task.Number), append(c.Seqs, w.guard(&c, r))
		ids = append(ids, r.task.ID)
	}
	if len(ids) == 0 {
		return
	}
	w.note(AskedOfMany)
	w.ask(message{partition: p, control: c, ids: ids})
}

// checkAsk holds a row by a request about a row to that.
func (w *World) checkAsk(r *row, j *core.Record) {
	t := &r.task
	is, ok := w.asks.rows[askKey{j.Actor, t.Partition, t.Number}]
	noted := j.Seq > 1 && r.journal[j.Seq-2].Kind == core.KindWentBack && j.Seq == is.seq+2 // because of the request
	switch {
	case !ok:
	case is.id != t.ID && w.unnoticed(t.Partition, r.journal[0].At): // the number was given out again, and its owner did not know it
	case is.id != t.ID && w.backs > 1: // nor what it knew when the database went back for the first time
	case is.id != t.ID:
		w.wrong(t.Partition, t.ID, "row %d is by a request about task %s", j.Seq, is.id)
	case j.Seq != is.seq+1 && !noted && (j.Seq < 2 || r.journal[j.Seq-2].Actor != j.Actor):
		w.wrong(t.Partition, t.ID, "row %d is by a request about row %d", j.Seq, is.seq)
	}
}

// unnoticed reports whether the database went back without an owner of the partition noticing before a task was born.
func (w *World) unnoticed(p int, born core.Instant) bool {
	return slices.ContainsFunc(w.forgot.times, func(lost lostTime) bool {
		noticed := w.noticedAfter(p, lost.to)
		return noticed == 0 || born <= noticed.Add(w.aheadMost())
	})
}

// ackedControl checks that a request about many tasks is acknowledged when each has moved on, or may not be asked that.
func (w *World) ackedControl(m message) {
	c := &m.control
	if m.garbage || w.backs > 0 { // what the database has forgotten is read again
		return
	}
	if c.Kind == core.EventSignal {
		w.ackedSignal(m)
	}
	for i := range c.Seqs {
		r := w.Store.rows[rowKey{m.partition, c.Numbers[i]}]
		ahead := w.asks.rows[askKey{c.Actor, m.partition, c.Numbers[i]}].ahead
		if r == nil || r.purged || ahead || w.asks.refused[r.task.ID] || r.task.PlanVersion == 0 || int64(len(r.journal)) != c.Seqs[i] {
			continue
		}
		plan, t, err := w.Store.replay(r)
		if err == nil && slices.Contains(t.Possible(plan, t.UpdatedAt), askWords[c.Kind]) && !w.oldKeys(t) {
			w.wrong(m.partition, t.ID, "a request to %s is acknowledged, but the task is still at row %d", askWords[c.Kind], t.Seq)
		}
	}
}

// oldKeys reports whether a request about a task may be refused because the operator does not say what is there of a key that is too old.
func (w *World) oldKeys(t *core.Task) bool {
	return slices.ContainsFunc(t.Steps, func(s core.StepState) bool {
		return s.Used != 0 && w.now >= s.Used.Add(w.books.keyLasts) || s.UndoUsed != 0 && w.now >= s.UndoUsed.Add(w.books.keyLasts)
	})
}

// byHand books what a person has done in place of a step that is accepted.
func (w *World) byHand(t *core.Task, j *core.Record) {
	key := w.keyOf(t, j)
	if key == "" {
		return
	}
	if w.books.tomb[key] && !w.forgotten(t.Partition, key) {
		w.wrong(t.Partition, t.ID, "row %d accepts a step that is undone", j.Seq)
	}
	w.asks.hand[key] = w.asks.hand[key] || !w.books.live[key]
	w.books.live[key] = true
	w.tell(t.ID, -1, "%s is done by hand", key)
}

// settle books that a person has seen to all steps of a task by hand.
func (w *World) settle(t *core.Task, round int) {
	plan := planBook{w}.Plan(t.Type, 0)
	if plan == nil {
		return
	}
	for i := range plan.Steps {
		w.asks.settled[core.Key(t.ID, plan.Steps[i].Name, round)] = true
	}
}

// takeBack books that a person has taken back what a row says that the database has lost.
func (w *World) takeBack(t *core.Task, j *core.Record) {
	if key := w.keyOf(t, j); w.asks.hand[key] {
		delete(w.asks.hand, key)
		delete(w.books.live, key)
	}
}

// keyOf is the key of a row's step; empty: it leaves no effect.
func (w *World) keyOf(t *core.Task, j *core.Record) string {
	plan := planBook{w}.Plan(t.Type, 0)
	if plan == nil || !plan.Steps[j.Step].Undoable || plan.Steps[j.Step].Kind != core.CallStep {
		return ""
	}
	return core.Key(t.ID, plan.Steps[j.Step].Name, j.Round)
}

// checkInput: a command carries the input of the row that issued it, an undo that of the last do before it. What was
// done before the database went back is done again by the input that it was done by.
func (w *World) checkInput(r *row, c *core.Command) {
	input, want, known := string(r.task.Input), "", false
	done, repeats := false, false
	for i := range r.journal[:c.Seq] {
		j := &r.journal[i]
		if j.Input != nil && j.Kind == core.KindResubmitted {
			input = string(j.Input)
		}
		if j.Round != c.Round {
			continue
		}
		if j.Step >= 0 && w.stepName(c, j.Step) == c.Step {
			switch {
			case j.Kind == core.KindDone, j.Kind == core.KindProbed && j.StepStatus == core.StepDone:
				done, repeats = true, false
			case j.Kind == core.KindAccepted: // done by hand, by whatever input
				done, repeats, known = false, false, false
			case j.Kind == core.KindResubmitted && j.Input != nil:
				repeats = false
			}
		}
		repeats = repeats || done && j.Kind == core.KindWentBack
		if j.Next >= 0 && !j.Undo && w.stepName(c, j.Next) == c.Step {
			done, known = false, true
			if !repeats {
				want = input
			}
		}
	}
	if plan := w.plan(c.Type); plan.Steps[plan.StepIndex(c.Step)].Input != "" {
		want = string(w.givenInput(c.Task, c.Step))
	}
	if known && want != string(c.Input) {
		w.wrong(c.Partition, c.Task, "%s of %s leaves with the input %s, want %s", what(c.Undo), c.Key(), c.Input, want)
	}
}

// stepName is the name of a step of the plan of a command's task.
func (w *World) stepName(c *core.Command, step int) string {
	return planBook{w}.Plan(c.Type, 0).Steps[step].Name
}
