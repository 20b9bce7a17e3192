package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// addPlans stores the plans of the world: short times, every policy, checks
// among the steps.
func (w *World) addPlans() {
	step := func(name string, change func(*core.Step)) core.Step {
		s := core.Step{
			Name: name, Agent: "agent." + name, Undoable: true, CompleteBy: 300 * time.Millisecond,
			Backoff: 20 * time.Millisecond, BackoffCap: 100 * time.Millisecond, Pause: 400 * time.Millisecond,
			UndoAttemptsMax: 30,
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	check := func(s *core.Step) { s.Undoable = false }
	wait := func(s *core.Step) { s.OnExhausted, s.AttemptsMax = core.PolicyWait, 2 }
	fail := func(s *core.Step) { s.OnExhausted = core.PolicyError }
	short := func(s *core.Step) { s.UndoAttemptsMax = 1 } // its undo may give up
	for _, p := range []core.Plan{
		{Name: "order", Version: 1, CompleteBy: 20 * time.Second, Steps: []core.Step{
			step("credit", check), step("reserve", nil), step("charge", nil), step("ship", wait), step("mail", check)}},
		{Name: "quick", Version: 1, CompleteBy: time.Second, Steps: []core.Step{step("reserve", nil), step("charge", short)}},
		{Name: "strict", Version: 1, CompleteBy: 20 * time.Second, Steps: []core.Step{step("charge", fail), step("ship", fail)}},
	} {
		p.Grace = slow
		w.Store.AddPlan(p)
		full := p.WithDefaults()
		w.plans = append(w.plans, &full)
	}
}

// openDoor makes the front door.
func (w *World) openDoor() {
	door, err := ingest.NewDoor(ingest.Config{
		Stream: "tasks", Partitions: w.cfg.Partitions, PackItems: 8,
		PartitionOf: func(id string, _ int) int { return w.partitionOf(id) },
	}, planBook{w}, streamLog{w}, nil)
	if err != nil {
		panic(err) // the world is built wrong
	}
	w.door = door
}

func (w *World) partitionOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32()) % w.cfg.Partitions
}

// planBook is what the door knows of the plans.
type planBook struct{ w *World }

func (b planBook) Plan(taskType string) *core.Plan {
	for _, p := range b.w.plans {
		if p.Name == taskType {
			return p
		}
	}
	return nil
}

func (b planBook) Reload(done func(error)) { done(nil) }

// streamLog is the task stream as the door sees it.
type streamLog struct{ w *World }

func (l streamLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	w := l.w
	m := message{partition: partition, subs: append([]core.Submission(nil), subs...)}
	switch {
	case w.fault(0.05):
		done(0, ingest.ErrLogDown)
	case w.fault(0.05):
		done(0, errFault) // and nothing was stored
	case w.fault(0.05):
		w.append(&w.stream, m)
		done(0, errFault)
	default:
		w.after(w.delay(), func() { done(w.append(&w.stream, m), nil) })
	}
}

// submitAll lets clients submit their tasks, some of them twice, over the storm.
func (w *World) submitAll() {
	for i := range w.cfg.Tasks {
		id := fmt.Sprintf("t%d", i+1)
		at := w.upTo(w.cfg.Storm)
		w.after(at, func() { w.submit(id) })
		if w.rand.IntN(5) == 0 {
			w.after(at+w.delay(), func() { w.submit(id) })
		}
		if w.rand.IntN(5) == 0 {
			w.after(w.upTo(w.cfg.Storm), func() { w.trouble(id) })
		}
	}
}

// submit is one client: it submits until it has a definite answer.
func (w *World) submit(id string) {
	plan := w.plans[int(fnvOf(id))%len(w.plans)]
	req := ingest.Request{Type: plan.Name, ID: id, Input: []byte(`{"id":"` + id + `"}`)}
	req.Answer = func(a ingest.Answer) {
		if a.Err == nil {
			w.accepted[id] = a.Partition
			return
		}
		if a.Err.Retryable() {
			w.after(50*time.Millisecond, func() { w.submit(id) })
		} else if w.err == nil {
			w.err = errors.New("the door refused a good submission: " + a.Err.Description)
		}
	}
	w.door.Submit(w.now, req)
	w.flush()
}

func fnvOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("type of " + s))
	return h.Sum32()
}

func (w *World) flush() {
	w.door.Flush(w.now)
	if due := w.door.Due(w.now); due != 0 {
		w.after(max(time.Millisecond, due.Sub(w.now)), func() { w.flush() })
	}
}

// trouble is a person who meddles with a task in every way there is.
func (w *World) trouble(id string) {
	c := core.Control{
		ID: id, Type: w.plans[int(fnvOf(id))%len(w.plans)].Name, Actor: "olga", Reason: "because",
		Kind: []core.EventKind{core.EventCancel, core.EventUndo, core.EventResubmit, core.EventExtend, core.EventResolve}[w.rand.IntN(5)],
	}
	switch c.Kind {
	case core.EventExtend:
		c.Until = w.now.Add(30 * time.Second)
	case core.EventResolve:
		return // by hand means that the books are settled by hand too
	}
	w.append(&w.controls, message{partition: w.partitionOf(id), control: c})
	if w.rand.IntN(2) == 0 {
		w.after(w.upTo(time.Second), func() { w.trouble(id) })
	}
}
