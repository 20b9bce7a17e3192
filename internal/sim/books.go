package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// books are what the services keep: which keys have their effect, and which must
// not have it any more.
type books struct {
	w          *World
	tombstones bool // a service takes no call of a key whose undo it has seen; then the network may double commands
	live       map[string]bool
	tomb       map[string]bool
	refused    map[string]bool
	// keyLasts is what the plans say of how long services remember keys; did and undid are when the effects were made that
	// they remember. They remember them for keyMemory: an attempt ends in time by its owner's clock, and what it has called may
	// act until the grace is over.
	keyLasts, keyMemory time.Duration
	did, undid          map[string]core.Instant
	late                map[string]bool // keys of effects that began when their dos were over: see beganLate
	rand                *rand.Rand      // of what the transport repeats; of its own, so that all else is drawn as it would be without
}

// effect notes an effect of a key of all, and holds it, and what the transport below the agent makes of it, to the one that
// the service has made.
func (b *books) effect(all map[string]core.Instant, c *core.Command) {
	first, had := all[c.Key()]
	if !had {
		first, all[c.Key()] = b.w.now, b.w.now
	}
	if b.w.beganLate(c) {
		b.late[c.Key()] = true
	}
	b.remembered(first, c)
	if b.w.storm && b.rand.Float64() < kinds[TransportRepeats].p {
		b.w.note(TransportRepeats)
		left := max(0, c.CompleteBy.Sub(b.w.now)) + slow
		b.w.after(1+time.Duration(b.rand.Int64N(int64(left))), func() { b.remembered(first, c) })
	}
}

// beganLate reports whether a command is at work that is over. An agent whose clock is further behind than the grace begins
// such a one: that is not promised.
func (w *World) beganLate(c *core.Command) bool {
	return w.happened[ClockWrong] > 0 && w.now > c.CompleteBy.Add(grace+slow)
}

// remembered holds a request to the service's memory: whose key it does not remember any more has a second effect.
func (b *books) remembered(first core.Instant, c *core.Command) {
	w := b.w
	if w.now > first.Add(b.keyMemory) && w.backs == 0 && !w.beganLate(c) {
		w.wrong(c.Partition, c.Task, "doubled: the %s of %s has its effect again, %v after the first", what(c.Undo), c.Key(), w.now.Sub(first))
	}
}

func newBooks(w *World) books {
	b := books{w: w, tombstones: w.rand.IntN(2) == 0, live: map[string]bool{}, tomb: map[string]bool{}, refused: map[string]bool{}, keyLasts: core.DefaultKeyLasts,
		did: map[string]core.Instant{}, undid: map[string]core.Instant{}, late: map[string]bool{}, rand: rand.New(rand.NewPCG(w.cfg.Seed, 8))}
	if n := w.hashOf("memory of keys"); n%2 == 0 && w.cfg.overload == nil { // most services forget sooner than a task can end
		b.keyLasts = time.Duration(400+n/2%4000) * time.Millisecond
	}
	b.keyMemory = b.keyLasts + grace
	return b
}

// do lets a call take effect. loose is one that its handler has given up: no
// ledger is around it any more, only the service's own tombstone.
func (b *books) do(c *core.Command, loose bool) {
	key, w := c.Key(), b.w
	if w.backs > 0 && w.now > b.undid[key].Add(b.keyMemory) {
		delete(b.tomb, key) // the service has forgotten it, and so has the database
	}
	if b.tomb[key] {
		if (!loose || !b.tombstones) && !w.forgotten(c.Partition, key) {
			w.wrong(c.Partition, c.Task, "do of %s takes effect after its undo", key)
		}
		return
	}
	w.tell(c.Task, -1, "%s takes effect", key)
	b.effect(b.did, c)
	b.live[key] = true
	delete(b.undid, key)
	delete(w.asks.hand, key)
	r := w.Store.ids[idKey{c.Partition, c.Task}]
	if r != nil && r.task.State == core.StateUndone && r.task.Round == c.Round && !w.forgotten(c.Partition, key) {
		w.wrong(c.Partition, c.Task, "do of %s takes effect in a task that is undone", key)
	}
}

func (b *books) undo(c *core.Command) {
	// An undo that is on its way when the database fails over may come when its step was done again. That is not
	// promised: docs/operations/disaster.md.
	if b.live[c.Key()] && b.w.forgot.commits[c.Commit] {
		b.w.forgot.undone[c.Key()] = true
	}
	b.w.tell(c.Task, -1, "%s is undone", c.Key())
	b.effect(b.undid, c)
	delete(b.live, c.Key())
	delete(b.did, c.Key())
	b.tomb[c.Key()] = true
}

// refuses draws whether a service refuses a key. Where the network doubles
// commands, both copies get the same answer, because only the service
// knows that there are two. Elsewhere it may refuse a key that has its effect,
// unless SQL was restored and does not know of it: then only the service does.
func (b *books) refuses(key string) bool {
	if b.w.era > 0 && b.live[key] {
		return false
	}
	was, asked := b.refused[key]
	if b.tombstones && asked {
		return was
	}
	refused := b.w.fault(AgentRefuses)
	b.refused[key] = refused
	return refused
}

// stopped reports whether a task that a child is a part of is in error since the database went back: whether the child was undone
// with it in the time that is lost is not known, and an operator can only undo that task, or resolve it.
func (w *World) stopped(t *core.Task) bool {
	for w.backs > 0 && t.Parent != 0 {
		up := w.Store.rows[rowKey{t.Partition, t.Parent}]
		if up == nil {
			return false
		}
		if t = &up.task; t.State == core.StateError {
			return true
		}
	}
	return false
}

// checkBooks holds the services to a task that has come to its end: every step
// of a processed one has its effect, none of an undone one has. What a task in
// error has left, an operator must see to.
func (w *World) checkBooks(t *core.Task, round int, state core.State) {
	plan := planBook{w}.Plan(t.Type, 0)
	if plan == nil || t.PlanVersion == 0 {
		return
	}
	var steps []core.StepState
	if w.cfg.Graph {
		steps = w.stepsOf(t)
	}
	for i := range plan.Steps {
		key := core.Key(t.ID, plan.Steps[i].Name, round)
		live := w.books.live[key]
		if plan.Steps[i].Kind != core.CallStep || !plan.Steps[i].Undoable || w.forgotten(t.Partition, key) {
			continue
		}
		if i < len(steps) {
			w.skipped[key] = steps[i].Status == core.StepSkipped
		}
		if state == core.StateProcessed && w.skipped[key] {
			if live {
				w.wrong(t.Partition, t.ID, "it is processed without step %s, which has an effect", plan.Steps[i].Name)
			}
			continue
		}
		if state == core.StateProcessed && !live && !w.forgot.undone[key] && !w.stopped(t) {
			w.wrong(t.Partition, t.ID, "it is processed, but step %s has no effect", plan.Steps[i].Name)
		}
		if state == core.StateUndone && live {
			w.wrong(t.Partition, t.ID, "it is undone, but step %s has an effect", plan.Steps[i].Name)
		}
	}
}

// stepsOf are the steps of a stored task, nil where its journal is gone.
func (w *World) stepsOf(t *core.Task) []core.StepState {
	r := w.Store.rows[rowKey{t.Partition, t.Number}]
	if r == nil || r.purged {
		return nil
	}
	_, live, err := w.Store.replay(r)
	if err != nil {
		return nil
	}
	return live.Steps
}

// roundsMax is more rounds than operators let a task begin.
const roundsMax = 32

// checkOrphans holds every effect to a step that may have it.
func (w *World) checkOrphans() {
	known := map[string]bool{}
	for _, id := range w.family() {
		stored := w.Store.ids[idKey{w.partitionOf(id), id}]
		// With the stream, and then SQL went back; or SQL has forgotten that a person had
		// it submitted again, and what that was for is over now.
		lost := w.lost[core.RootID(id)] || w.backs > 0 && id != core.RootID(id) || // its parent may not bear it again
			w.backs > 0 && stored != nil && stored.task.PlanVersion == 0
		rounds := roundsMax
		if !lost && len(w.forgot.times) == 0 && len(w.asks.settled) == 0 { // then nothing is forgotten
			rounds = 0
		}
		for _, s := range w.planOf(id).Steps {
			for round := range rounds {
				if key := core.Key(id, s.Name, round); lost || w.backs > 0 && stored != nil && round > stored.task.Round || w.forgotten(w.partitionOf(id), key) {
					known[key] = true
				}
			}
		}
		r := w.Store.ids[idKey{w.partitionOf(id), id}]
		if r == nil || r.task.State != core.StateProcessed && r.task.State != core.StateError {
			continue
		}
		for _, s := range w.planOf(id).Steps {
			known[core.Key(id, s.Name, r.task.Round)] = true
		}
	}
	for key := range w.books.live {
		if !known[key] {
			id, _, _ := strings.Cut(key, "/")
			w.wrong(w.partitionOf(id), id, "an effect under key %s belongs to no step that should have one", key)
			return
		}
	}
}
