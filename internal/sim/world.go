package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/supervisor"
)

// Config is the size of a world. Everything else is drawn from the seed.
type Config struct {
	Seed       uint64
	Nodes      int // schedulers that compete for the partitions
	Partitions int
	Tasks      int
	Storm      time.Duration // how long faults are drawn, and tasks submitted
	Calm       time.Duration // by when, after the storm, everything must have ended
	Log        *slog.Logger  // of the roles; nil: none
}

// World is one run: the roles, what lies between them, and what must be true.
type World struct {
	Store *MemStore

	cfg    Config
	rand   *rand.Rand
	now    core.Instant
	events eventHeap
	seq    int
	storm  bool
	err    error // the first thing that must not be

	plans    []*core.Plan
	door     *ingest.Door
	accepted map[string]int // ids answered as stored → partition
	stream   []message      // of tasks; the position of a message is its index + 1
	controls []message
	nodes    []*node
	runtime  *agents.Runtime
	lag      time.Duration // how far the handler at work is ahead of now
	books    books
	told     map[string]core.Ending // by id: the newest ending the event stream has stored
	dead     int                    // dead letters
}

// message is one message of a stream.
type message struct {
	partition int
	subs      []core.Submission
	control   core.Control
}

const began = core.Instant(1_700_000_000_000_000)

// New makes a world; nothing has happened in it yet.
func New(cfg Config) *World {
	w := &World{
		Store: NewMemStore(), cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 0)), now: began,
		accepted: map[string]int{}, told: map[string]core.Ending{},
	}
	if w.cfg.Log == nil {
		w.cfg.Log = slog.New(slog.DiscardHandler)
	}
	w.books = newBooks(w)
	w.addPlans()
	w.openDoor()
	w.hireAgents()
	w.Store.BeforeCommit = w.beforeCommit
	w.Store.AfterCommit = w.afterCommit
	w.Store.RefuseRow = refuseRow
	w.Store.Twice = func() bool { return w.fault(0.05) }
	for i := range cfg.Nodes {
		w.nodes = append(w.nodes, &node{w: w, name: fmt.Sprintf("n%d", i+1)})
		w.nodes[i].restart()
	}
	return w
}

// Run is the storm and the calm. Its error names the seed and tells the story of
// the task that it is about.
func (w *World) Run() error {
	w.storm = true
	w.every(25*time.Millisecond, w.keep)
	w.addSupervisors()
	w.after(0, w.submitAll)
	w.until(w.now.Add(w.cfg.Storm), func() bool { return false })
	w.storm = false
	limit := w.now.Add(w.cfg.Calm)
	w.until(limit, w.ended)
	if w.err == nil {
		w.err = w.check()
	}
	if w.err != nil {
		return fmt.Errorf("seed %d, at %v: %w", w.cfg.Seed, w.now.Sub(began), w.err)
	}
	return nil
}

func (w *World) until(limit core.Instant, done func() bool) {
	for n := 0; w.err == nil && len(w.events) > 0 && w.events[0].at <= limit; n++ {
		w.step()
		if n%64 == 0 && done() {
			return
		}
	}
}

// wrong notes what must not be; the first counts.
func (w *World) wrong(partition int, id, format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%s\n%s", fmt.Sprintf(format, args...), w.Store.History(partition, id))
	}
}

// The faults of the store.
var errFault = errors.New("fault")

func (w *World) beforeCommit(*core.Batch) error {
	if w.fault(0.01) {
		return errFault
	}
	return nil
}

// refuseRow is the database that cannot hold what a few tasks bring: the birth of
// some, the second result of others, storm or calm.
func refuseRow(w *core.TaskWrite) bool {
	last := &w.Records[len(w.Records)-1]
	switch fnvOf(w.Task.ID) % 16 {
	case 1:
		return w.Birth && last.Kind == core.KindSubmitted
	case 2:
		return last.Kind == core.KindDone && last.Step == 1
	}
	return false
}

// afterCommit crashes an owner between commit and publish, or lets a successor
// take a partition at that very moment and leaves the owner a zombie.
func (w *World) afterCommit(b *core.Batch, _ core.CommitResult) error {
	if w.fault(0.02) {
		return errFault
	}
	if w.fault(0.02) {
		p := b.Partitions[w.rand.IntN(len(b.Partitions))].Partition
		if n := w.nodes[w.rand.IntN(len(w.nodes))]; n.name != b.Node {
			n.adopt(p)
		}
	}
	return nil
}

// keep sees to it that every partition has an owner, and in the storm moves
// partitions, crashes nodes and makes zombies.
func (w *World) keep() {
	for p := range w.cfg.Partitions {
		owned := false
		for _, n := range w.nodes {
			if f := n.feeds[p]; f != nil && f.epoch == w.Store.Partition(p).Epoch {
				owned = true
			}
		}
		if !owned || w.fault(0.01) {
			w.nodes[w.rand.IntN(len(w.nodes))].adopt(p)
		}
	}
	for _, n := range w.nodes {
		if w.fault(0.01) {
			n.restart()
		}
	}
}

var (
	_ scheduler.Store  = (*MemStore)(nil)
	_ supervisor.Store = (*MemStore)(nil)
	_ ingest.Reader    = (*MemStore)(nil)
)
