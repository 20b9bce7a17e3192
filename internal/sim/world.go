package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"duly.dev/duly/agents"
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
	Operators  bool          // they meddle with every task again and again, and the database goes back in every storm
	Both       bool          // SQL and streams are restored from copies of different times, in every storm
	Graph      bool          // plans are graphs of steps of all kinds, drawn from the seed; else they are chains of calls
	Log        *slog.Logger  // of the roles; nil: none
	Gates      bool          // operators change limits, pauses and versions of plans, in the storm and after it
	Second     func() Second // opens an empty store that is held to the one in memory; nil: there is none
	Ledger     agents.Ledger // of the agents; nil: one in memory

	overload *OverloadConfig // nil: nothing takes processor time
}

// Draw is a world whose size, too, is drawn from the seed.
func Draw(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	return Config{
		Seed: seed, Nodes: 2 + r.IntN(2), Partitions: 1 + r.IntN(3), Tasks: 1 + r.IntN(20),
		Storm: time.Second + time.Duration(r.Int64N(int64(2*time.Second))), Calm: 11 * time.Minute, // cancels may be deferred for ten: scheduler/deferred.go
	}
}

// AsGates is the same as a world of gates: so many tasks that they wait, in three partitions, of which a committer has two.
func (c Config) AsGates() Config {
	c.Gates, c.Tasks, c.Partitions = true, 20+c.Tasks, 3
	return c
}

// World is one run: the roles, what lies between them, and what must be true.
type World struct {
	Store *MemStore

	cfg      Config
	rand     *rand.Rand
	now      core.Instant
	events   eventHeap
	seq      int
	steps    int // events that happened
	storm    bool
	calmFrom core.Instant // 0: there is no calm yet
	odds     [faultCount]float64
	happened [faultCount]int
	running  *proc
	idle     []*coroutine
	clocks   []*clock

	coroutines []*coroutine
	err        *Violation // the first
	follow     *follow    // nil: it is not kept

	plans  []*core.Plan
	roots  []*core.Plan // those that clients submit tasks of
	pauses []core.Pause // by operators, now
	wishes []core.Wish
	ingest *ingestProcess
	nodes  []*node
	agents []*agentProcess
	bosses []*boss
	books  books
	retain time.Duration // of inputs and journals

	born     map[string]string // types of the children that there have been, by id
	clients  []*client
	ids      []string
	skipped  map[string]bool // keys of steps that a task has ended without
	handled  map[string]bool // ids of tasks that a person has resolved or accepted a step of
	accepted map[string]bool // ids answered as stored
	stored   map[string]bool // submissions that a stream has held
	lost     map[string]bool // ids that a lost stream took with it

	stream     []message // of tasks; the position of a message is its index + 1
	controls   []message
	leasesLost bool // all at once
	ground
	asks       asks
	signals    signals
	eventsDown core.Instant
	published  published
	refused    map[string]bool
	dead       map[string]bool // dead letters

	evidence map[int]core.Evidence     // outside SQL, by partition
	former   map[int]core.Evidence     // the same of owners that lost theirs
	noticed  map[int][]core.Instant    // when owners of a partition noticed that SQL went back
	endedAt  map[string][]core.Instant // when a task has ended
	backs    int                       // how often SQL went back
	tops     map[int]int64             // the highest epoch that ever committed, by partition
	forgot   forgot

	era              int          // rises with a restore: what was on its way before is over
	down             core.Instant // until when no scheduler runs
	doSent, undoSent map[string]core.Instant
	sends            map[commandRef]int
	senders          map[commandRef]sender
	retries          map[commandRef][]retry
	ails             ails
	limited          limitBook
	gates            gates
	second           *second                        // nil: there is none
	spoken           map[commandRef][]int           // codes that agents answered
	looked           map[string][]core.ProbeOutcome // by key: what agents said when they were asked
	asked            int                            // how often expressions of plans were asked
	load             *overload                      // nil: nothing takes processor time
}

const began = core.Instant(1_700_000_000_000_000)

// New makes a world; nothing has happened in it yet.
func New(cfg Config) *World {
	w := &World{
		Store: NewMemStore(), cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 0)), now: began, storm: cfg.overload == nil,
		born: map[string]string{}, handled: map[string]bool{}, skipped: map[string]bool{}, accepted: map[string]bool{}, stored: map[string]bool{}, lost: map[string]bool{}, refused: map[string]bool{}, dead: map[string]bool{},
		published: published{map[string]core.Ending{}, map[endKey]bool{}},
		doSent:    map[string]core.Instant{}, undoSent: map[string]core.Instant{}, sends: map[commandRef]int{}, senders: map[commandRef]sender{}, retries: map[commandRef][]retry{}, spoken: map[commandRef][]int{}, looked: map[string][]core.ProbeOutcome{}, ground: newGround(),
		evidence: map[int]core.Evidence{}, former: map[int]core.Evidence{}, tops: map[int]int64{}, noticed: map[int][]core.Instant{}, endedAt: map[string][]core.Instant{}, forgot: newForgot(), asks: newAsks(), signals: newSignals(cfg.Seed),
	}
	if w.cfg.Log == nil {
		w.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Second != nil {
		w.second = &second{store: cfg.Second(), open: cfg.Second}
	}
	w.drawOdds()
	w.retain = 200*time.Millisecond + w.upTo(2*time.Second)
	w.books = newBooks(w)
	switch {
	case cfg.overload != nil:
		w.load = newOverload(w, cfg.overload)
		w.roots = w.plans
	case cfg.Graph:
		w.drawPlans()
	default:
		w.addPlans()
		w.roots = w.plans
	}
	w.drawLimits()
	w.drawGates()
	if w.load == nil {
		w.startIngest()
		w.every(readingEvery, w.tellReadings)
	}
	w.hireAgents()
	w.Store.onRecord = w.recorded
	if w.Store.atEnd = w.load != nil; w.load == nil {
		w.Store.RefuseRow = w.refuseRow
	}
	if cfg.Graph {
		w.Store.when = w.condition
	}
	for i := range cfg.Tasks {
		w.ids = append(w.ids, fmt.Sprintf("t%d", i+1))
	}
	for i := range cfg.Nodes {
		n := &node{w: w, name: fmt.Sprintf("n%d", i+1), clock: w.newClock()}
		if i == 1 && w.fault(NameTaken) {
			n.name, n.twin = w.nodes[0].name, true
		}
		w.nodes = append(w.nodes, n)
		n.restart()
	}
	return w
}

// Run is the storm and the calm. An error is a *[Violation] with the history of
// the task that it is about, for which the seed is run a second time.
func (w *World) Run() error {
	v := w.run()
	if v == nil {
		return nil
	}
	again := New(w.cfg)
	again.follow = &follow{partition: v.Partition, task: v.Task}
	again.run()
	v.History = again.follow.String()
	return v
}

// Events is how many things have happened.
func (w *World) Events() int { return w.steps }

func (w *World) run() *Violation {
	defer w.end()
	w.every(25*time.Millisecond, w.keep)
	w.addSupervisors(100*time.Millisecond, supervisor.Config{Slack: 10 * time.Millisecond, AskAgain: time.Second})
	w.submitAll()
	w.restoreLater()
	w.wentBackLater()
	w.bothLater()
	w.moveGround()
	w.stopEvents()
	w.troubleAgents()
	w.pauseLater()
	if w.cfg.Graph {
		w.signalLater()
	}
	w.pinLater()
	w.moveGates()
	w.watchParked()
	for range w.rand.IntN(4) + w.more(6) {
		w.after(w.upTo(w.cfg.Storm), w.troubleMany)
	}
	w.after(w.upTo(w.cfg.Storm), w.loseStream)
	w.after(w.upTo(w.cfg.Storm), func() { w.leasesLost = w.fault(LeasesLost) })
	w.until(w.now.Add(w.cfg.Storm), func() bool { return false })
	w.tell("", -1, "the storm is over")
	w.storm, w.calmFrom = false, w.now
	w.until(w.now.Add(w.cfg.Calm), w.ended)
	if w.err == nil {
		w.check()
	}
	return w.err
}

func (w *World) until(limit core.Instant, done func() bool) {
	for n := 0; w.err == nil && len(w.events) > 0 && w.events[0].at <= limit; n++ {
		w.step()
		if n%64 == 0 && done() {
			return
		}
	}
}

var (
	_ scheduler.Store  = (*MemStore)(nil)
	_ supervisor.Store = (*MemStore)(nil)
	_ context.Context  = agentContext{}
)
