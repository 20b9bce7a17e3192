package scheduler_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// fanWalk is a task with children, answers that come in any order, and owners that die before a commit or after it. What must be
// true of the children is told by the fates that were drawn for them, and by the rows of the store alone.
type fanWalk struct {
	*rig
	rand    *rand.Rand
	kids    core.Step // as it is in the plan
	total   int       // children that the step wants
	fails   int       // of a hundred lives of children
	forGood bool      // a child that fails does so in each of its lives
	zFails  bool      // the step after the children fails
	seed    uint64
	nodes   int
	cuts    int // the next commit is cut before it is done (1) or after (2)
	asks    []core.Control
	undone  bool  // its undo was asked for
	rows    int64 // of the parent that were judged
	born    int   // children when they were last looked at
	closed  bool  // no child may be born any more
}

func newFanWalk(t *testing.T, seed uint64) *fanWalk {
	w := &fanWalk{rand: rand.New(rand.NewPCG(seed, 3)), seed: seed, nodes: 1, total: 1}
	w.kids = core.Step{Kind: core.TaskStep, Child: []string{"leg", "pair", "telling", "asked"}[w.rand.IntN(4)], AttemptsMax: 1 + w.rand.IntN(3)}
	if w.rand.IntN(4) > 0 {
		w.total = w.rand.IntN(9)
		w.kids.Kind, w.kids.Elements, w.kids.ElementsMax, w.kids.Parallel, w.kids.FailuresMax = core.EachStep, "input", 9, 1+w.rand.IntN(4), w.rand.IntN(4)
		w.kids.Input = []string{"", "element"}[w.rand.IntN(2)]
	}
	w.fails, w.forGood, w.zFails = []int{0, 20, 50, 90}[w.rand.IntN(4)], w.rand.IntN(2) == 0, w.rand.IntN(5) == 0
	cfg := scheduler.Config{BatchMax: []int{0, 2, 3, 6}[w.rand.IntN(4)], InFlight: []int{0, 0, 1, 2, 4}[w.rand.IntN(5)], AgentWindow: []int{0, 0, 1, 2}[w.rand.IntN(4)]}
	w.rig = newFamily(t, w.kids, cfg)
	telling := leg("telling")
	telling.Result = "all"
	w.store.AddPlan(telling)
	w.store.AddPlan(orderPlan("pair", 1, "p", "go"))
	w.store.AddPlan(asked())
	noted := w.store.AfterCommit
	w.store.BeforeCommit = func(*core.Batch) error { return w.cut(1) }
	w.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error { return errors.Join(noted(b, res), w.cut(2)) }
	return w
}

// cut reports that the connection is cut, if it is to be now.
func (w *fanWalk) cut(when int) error {
	if w.cuts != when {
		return nil
	}
	w.cuts = 0
	return errCut
}

// fate reports whether a child fails in one of its lives.
func (w *fanWalk) fate(parentRound, index, life int) bool {
	if w.forGood {
		life = 0
	}
	return int(rand.New(rand.NewPCG(w.seed, uint64(parentRound<<20+index<<8+life))).Uint32()%100) < w.fails
}

// reply answers a command as its task's fate has it.
func (w *fanWalk) reply(c core.Command) {
	code := 0
	switch t := w.store.Task(0, c.Task); {
	case c.Undo:
		if c.Task == "t1" && c.Step == "a" {
			for _, kid := range w.children() {
				if kid.State != core.StateUndone {
					w.t.Fatalf("seed %d: step a is undone while child %s is %s", w.seed, kid.ID, kid.State)
				}
			}
		}
	case c.Step == "go" && w.fate(w.store.Task(0, "t1").Round, t.ChildIndex, c.Round), c.Step == "z" && w.zFails:
		code = core.CodeRefused
	}
	w.answer(c, code)
}

// run is one cycle, with the mail of which the next owner hears again when this one dies.
func (w *fanWalk) run() {
	w.out = append(w.out, w.bus.take()...)
	parent := w.store.Task(0, "t1")
	if parent == nil && len(w.mail.Tasks) == 0 {
		w.tasks(0, core.Submission{Type: "family", ID: "t1", Input: list(w.total), CompleteBy: w.now.Add(time.Hour)})
	}
	for _, c := range w.asks {
		w.control(c)
	}
	was := w.asks
	w.asks = nil
	if _, err := w.try(false); err != nil {
		if !errors.Is(err, errCut) {
			w.t.Fatalf("seed %d: %v", w.seed, err)
		}
		w.bus.take()
		w.out, w.asks = nil, was
		w.nodes++
		w.start(fmt.Sprint("n", w.nodes))
		w.adopt(0)
	}
	w.out = append(w.out, w.bus.take()...)
	w.judge()
}

// children are those of the parent's present round, by index.
func (w *fanWalk) children() (all []*core.Task) {
	parent := w.store.Task(0, "t1")
	for i := range w.total + 2 {
		if kid := w.store.Task(0, core.ChildID("t1", "kids", i, parent.Round, w.kids.Kind == core.EachStep)); kid != nil {
			if len(all) != i {
				w.t.Fatalf("seed %d: child %s is there and the one before it is not", w.seed, kid.ID)
			}
			all = append(all, kid)
		}
		if w.kids.Kind == core.TaskStep {
			break
		}
	}
	return all
}

// judge holds the stored children to their parent.
func (w *fanWalk) judge() {
	parent := w.store.Task(0, "t1")
	if parent == nil {
		return
	}
	kids, step, running := w.children(), parent.Steps[1], parent.State == core.StateProcessing || parent.State == core.StatePending
	var done, undone, open int
	for i, kid := range kids {
		want := list(w.total)
		if w.kids.Kind == core.EachStep {
			bounds := core.Elements(want)[i]
			if want = want[bounds[0]:bounds[1]]; w.kids.Input != "" {
				want = fmt.Appendf(nil, `{"index":%d,"of":%s}`, i, want)
			}
		}
		if kid.Parent != parent.Number || kid.ParentStep != 1 || kid.ChildIndex != i || kid.Type != w.kids.Child || !bytes.Equal(kid.Input, want) || kid.Deadline > w.now.Add(time.Minute) {
			w.t.Fatalf("seed %d: child %d: %+v, want input %s", w.seed, i, kid, want)
		}
		switch kid.State {
		case core.StateProcessed:
			done++
		case core.StateUndone:
			undone++
		default:
			open++
		}
		for life := range kid.Round {
			if !w.fate(parent.Round, i, life) {
				w.t.Fatalf("seed %d: child %d begins again, and was done:\n%s", w.seed, i, w.store.History(0, kid.ID))
			}
		}
		if running && kid.State == core.StateProcessed && w.fate(parent.Round, i, kid.Round) || running && kid.State == core.StateUndone && !w.fate(parent.Round, i, kid.Round) {
			w.t.Fatalf("seed %d: child %d is %s in life %d", w.seed, i, kid.State, kid.Round)
		}
	}
	if most := max(1, w.kids.Parallel); step.Status == core.StepRunning && running && open > most {
		w.t.Fatalf("seed %d: %d children are open, the limit is %d", w.seed, open, most)
	}
	if len(kids) > w.total || len(kids) > w.born && w.closed {
		w.t.Fatalf("seed %d: %d children of %d, %d before, and no more may be born:\n%s", w.seed, len(kids), w.total, w.born, w.store.History(0, "t1"))
	}
	w.born = len(kids)
	w.closed = !running || step.Attempt == 1 && step.Status == core.StepRunning && undone > w.kids.FailuresMax
	if w.cuts == 0 && running && step.Status == core.StepRunning && open == 0 && w.shard.NextWake() == 0 && len(w.mail.Published) == 0 {
		w.t.Fatalf("seed %d: no child is open, %d of %d were born, and nothing looks at them again:\n%s", w.seed, len(kids), w.total, w.store.History(0, "t1"))
	}
	saved, err := w.store.LoadNumbers(w.t.Context(), core.AsOf{Partition: 0}, []int64{parent.Number})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, j := range saved[0].Journal[w.rows:] {
		if w.rows = j.Seq; j.Step == 1 && running {
			w.judgeEnd(&j, done, undone, open, kids)
		}
	}
}

// judgeEnd holds the row that ends the step's attempt to its children.
func (w *fanWalk) judgeEnd(j *core.Record, done, undone, open int, kids []*core.Task) {
	each := w.kids.Kind == core.EachStep
	bad := false
	switch {
	case j.Kind == core.KindDone && each:
		bad = string(j.Result) != fmt.Sprintf(`{"done":%d,"failed":%d}`, done, undone) || done+undone != w.total || open > 0 || undone > w.kids.FailuresMax
	case j.Kind == core.KindDone:
		bad = done != 1 || !bytes.Equal(j.Result, kids[0].Result) || (len(j.Result) > 0) != (w.kids.Child == "telling")
	case j.Kind == core.KindFailed && each:
		var failed, of, most int
		_, err := fmt.Sscanf(j.Error, "%d of %d children were undone, the limit is %d", &failed, &of, &most)
		bad = err != nil || open > 0 || failed > undone || failed <= w.kids.FailuresMax || of != w.total || most != w.kids.FailuresMax || w.nodes == 1 && !strings.Contains(j.Error, "; child t1~kids~")
	case j.Kind == core.KindFailed:
		bad = undone != 1 || !strings.HasPrefix(j.Error, "child "+kids[0].ID+" was undone: ")
	case j.Kind == core.KindRefused:
		bad = true
	}
	if bad {
		w.t.Fatalf("seed %d: row %d is %s with %s %q: %d children are done, %d undone, %d open, of %d:\n%s", w.seed, j.Seq, j.Kind, j.Result, j.Error, done, undone, open, w.total, w.store.History(0, "t1"))
	}
}

// signal lets the children go on that wait for a person: all, or one of them.
func (w *fanWalk) signal(all bool) {
	if w.kids.Child != "asked" || w.store.Task(0, "t1") == nil {
		return
	}
	plan, waits := asked(), []core.Control(nil)
	for _, kid := range w.children() {
		if kid.Steps != nil && kid.Steps[0].Out != 0 {
			waits = append(waits, core.Control{Kind: core.EventSignal, ID: kid.ID, Step: "yes", Ask: kid.AskToken(&plan, 0), Result: []byte(`{}`), Actor: "olga"})
		}
	}
	if len(waits) > 0 && !all {
		waits = waits[w.rand.IntN(len(waits)):][:1]
	}
	w.asks = append(w.asks, waits...)
}

// step is the next thing that happens.
func (w *fanWalk) step() {
	switch k := w.rand.IntN(20); {
	case k < 3:
		w.now = w.now.Add(time.Duration(w.rand.IntN(200)) * time.Millisecond)
	case k == 3:
		w.cuts = 1 + w.rand.IntN(2)
	case k == 4 && w.rand.IntN(12) == 0 && !w.undone && w.store.Task(0, "t1") != nil:
		w.undone, w.asks = true, append(w.asks, core.Control{Kind: core.EventCancel, ID: "t1", Type: "family", Actor: "olga"})
	case k == 5:
		w.signal(false)
	case k < 14 && len(w.out) > 0:
		i := w.rand.IntN(len(w.out))
		w.reply(w.out[i])
		w.out = slices.Delete(w.out, i, i+1)
	default:
		w.run()
	}
}

// finish lets everything come to its end. It gives up when that takes too long: something stands still.
func (w *fanWalk) finish() *core.Task {
	w.cuts = 0
	still := 0
	for range 3000 {
		for _, c := range w.out {
			w.reply(c)
		}
		w.out = nil
		w.signal(true)
		w.run()
		parent := w.store.Task(0, "t1")
		switch next := w.shard.NextWake(); {
		case len(w.out)+len(w.mail.Published)+len(w.mail.Replies) > 0:
		case parent != nil && parent.State.Ended() && (next == 0 || next > w.now):
			return parent
		case next != 0:
			w.now = max(w.now, min(next, w.now.Add(time.Second)))
		default: // an answer is lost with its owner, perhaps: the supervisor says what is overdue
			w.now = w.now.Add(5 * time.Second)
			due, err := w.store.Overdue(w.t.Context(), 0, w.now, core.Due{}, 100)
			if still++; err != nil || still > 10 {
				w.t.Fatalf("seed %d: %v, it stands still:\n%s", w.seed, err, w.histories())
			}
			for _, d := range due {
				w.asks = append(w.asks, core.Control{Kind: core.EventOverdue, Numbers: []int64{d.Number}, Actor: "supervisor"})
			}
		}
	}
	w.t.Fatalf("seed %d: it does not come to its end:\n%s", w.seed, w.histories())
	return nil
}

// histories are those of the task and its children.
func (w *fanWalk) histories() string {
	text := w.store.History(0, "t1")
	for _, kid := range w.children() {
		text += w.store.History(0, kid.ID)
	}
	return text
}

// judgeTask holds how the task ended to the fates of its children.
func (w *fanWalk) judgeTask(parent *core.Task) {
	kids, lost := w.children(), 0
	for i := range w.total {
		if w.fate(parent.Round, i, 0) {
			lost++
		}
	}
	most := w.kids.FailuresMax
	switch {
	case parent.State != core.StateProcessed && parent.State != core.StateUndone:
		w.t.Fatalf("seed %d: it is %s:\n%s", w.seed, parent.State, w.store.History(0, "t1"))
	case parent.State == core.StateProcessed && (w.zFails || len(kids) != w.total || w.forGood && lost > most),
		parent.State == core.StateUndone && !w.undone && !w.zFails && lost <= most:
		w.t.Fatalf("seed %d: it is %s, %d children of %d, %d were to fail, the limit is %d:\n%s", w.seed, parent.State, len(kids), w.total, lost, most, w.store.History(0, "t1"))
	}
	for _, kid := range kids {
		if parent.State == core.StateUndone && kid.State != core.StateUndone || !kid.State.Ended() {
			w.t.Fatalf("seed %d: it is %s, and child %s %s:\n%s", w.seed, parent.State, kid.ID, kid.State, w.store.History(0, kid.ID))
		}
	}
	if n := w.shard.Load(0); n != 0 {
		w.t.Fatalf("seed %d: %d tasks are left in memory", w.seed, n)
	}
}

// However answers, ends and deaths of owners fall together, a step has the children that its list says, no more at a time than it
// may, counts what became of them, and nothing of it stands still.
func TestFansThroughAnything(t *testing.T) {
	ends := map[core.State]int{}
	for seed := range uint64(300) {
		w := newFanWalk(t, seed)
		for range 20 + w.rand.IntN(150) {
			w.step()
		}
		parent := w.finish()
		w.judgeTask(parent)
		ends[parent.State]++
		if parent.State != core.StateUndone || w.rand.IntN(2) == 0 {
			continue
		}
		w.undone, w.zFails, w.closed, w.born = false, false, false, 0
		w.asks = append(w.asks, core.Control{Kind: core.EventResubmit, ID: "t1", Type: "family", Actor: "olga", Until: w.now.Add(time.Hour)})
		w.run()
		for range 50 {
			w.step()
		}
		w.judgeTask(w.finish())
	}
	if ends[core.StateProcessed] < 50 || ends[core.StateUndone] < 50 {
		t.Errorf("ends %v: that says little", ends)
	}
}
