package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Scenario is what happens to a fleet.
type Scenario string

// The scenarios. What is measured begins when the fleet has settled, but for FleetStart.
const (
	FleetStart   Scenario = "start"   // all nodes start within a second
	FleetRestart Scenario = "restart" // Kill nodes are restarted one after the other
	FleetDie     Scenario = "die"     // Kill nodes die at once
	FleetSplit   Scenario = "split"   // Kill nodes lose NATS for 30 s, but not the database
	FleetAway    Scenario = "away"    // NATS is away for 30 s, for all
	FleetJoin    Scenario = "join"    // one more node comes
)

// FleetScenarios are all of them.
func FleetScenarios() []Scenario {
	return []Scenario{FleetStart, FleetRestart, FleetDie, FleetSplit, FleetAway, FleetJoin}
}

// FleetConfig is the size of a fleet, and what its database and its NATS take for what they are asked.
type FleetConfig struct {
	Seed       uint64
	Scenario   Scenario
	Nodes      int
	Partitions int
	Kill       int           // nodes that die, are cut off, or are restarted
	Limit      time.Duration // by when it must have settled; 0: 30 minutes

	Lease       time.Duration // 0: 6 s
	SQLWorkers  int           // statements that the database carries out at once; 0: 16
	NATSWorkers int           // requests that NATS carries out at once; 0: 4
}

// What is asked costs so much where it is carried out, as measured on the machine of docs/performance.md; docs/scaling.md
// says how.
const (
	sqlStatement  = 200 * time.Microsecond
	sqlSync       = 2 * time.Millisecond // of a transaction that writes; the database does others meanwhile
	sqlRowNanos   = 5000                 // of a row of a partition, read and decoded
	sqlScanNanos  = 200                  // of a row that is looked at and not returned
	natsRequest   = 100 * time.Microsecond
	natsConsumer  = 400 * time.Microsecond // to make one, or to delete one
	natsNameNanos = 1400                   // of a consumer in the list of names
	natsDelivery  = 2 * time.Microsecond
	natsPatience  = 5 * time.Second // how long a request waits for its answer
	natsNames     = 1024            // names of consumers that one answer holds
	fleetStay     = 30 * time.Second
	fleetTick     = 500 * time.Millisecond // as scheduler looks whether all is as it should be
)

// FleetReport is what a scenario came to.
type FleetReport struct {
	Config  FleetConfig
	Settled time.Duration // until every partition was read by the node that it falls to
	Unread  time.Duration // the longest that a partition was read by none
	Median  time.Duration // the same of the median of those that were read by none for a moment
	Needed  int           // partitions that had to change hands: as Place has it, at each change of the live nodes
	Moved   int           // that did
	Most    int           // partitions of the node that has most
	Peak    int           // the most that one held at any moment
	Counts  []FleetCount
	Broken  []string // what must not be, and was
}

// FleetCount is how much there was of one kind of request.
type FleetCount struct {
	What  string
	Total int
	Peak  int // in one second
	Idle  int // a second, while nothing happens
}

// Fleet is many schedulers on one database and one NATS: the real placement and the real committers, without tasks. What
// lies between them is a queue with workers that take their time.
type Fleet struct {
	w     *World
	cfg   FleetConfig
	sql   *queue
	nats  *queue
	nodes []*fleetNode
	down  bool // NATS, for all

	leases   map[string]*fleetLease
	evidence map[int]core.Evidence
	former   map[int]core.Evidence
	counts   map[string]*fleetCount
	rep      FleetReport

	live    []string     // whose leases have not ended
	falls   []string     // whose the partitions are to be, of these
	placed  []string     // the same when the last part of the scenario had ended
	reads   []*fleetRead // of each partition; nil: none
	hadBy   []string     // who read it last
	since   []core.Instant
	unread  map[int]time.Duration // the longest each partition was read by none
	began   core.Instant          // of what is measured
	measure bool
}

// fleetRead is a node that reads a partition.
type fleetRead struct {
	n     *fleetNode
	life  int
	epoch int64
}

type fleetCount struct{ total, second, peak, at int }

// RunFleet runs one scenario. Its error is the first of the report's Broken.
func RunFleet(cfg FleetConfig) (FleetReport, error) {
	f := newFleet(cfg)
	defer f.w.end()
	f.run()
	f.rep.Config = f.cfg
	if len(f.rep.Broken) > 0 {
		return f.rep, fmt.Errorf("fleet of %d nodes, %s, seed %d: %s", cfg.Nodes, cfg.Scenario, cfg.Seed, f.rep.Broken[0])
	}
	return f.rep, nil
}

func newFleet(cfg FleetConfig) *Fleet {
	def := func(of *int, is int) {
		if *of == 0 {
			*of = is
		}
	}
	def(&cfg.SQLWorkers, 16)
	def(&cfg.NATSWorkers, 4)
	if cfg.Lease == 0 {
		cfg.Lease = 6 * time.Second
	}
	if cfg.Limit == 0 {
		cfg.Limit = 30 * time.Minute
	}
	w := &World{Store: NewMemStore(), rand: rand.New(rand.NewPCG(cfg.Seed, 7)), now: began}
	w.cfg.Log = slog.New(slog.DiscardHandler)
	f := &Fleet{
		w: w, cfg: cfg, sql: newQueue(w, cfg.SQLWorkers), nats: newQueue(w, cfg.NATSWorkers),
		leases: map[string]*fleetLease{}, evidence: map[int]core.Evidence{}, former: map[int]core.Evidence{}, counts: map[string]*fleetCount{},
		reads: make([]*fleetRead, cfg.Partitions), hadBy: make([]string, cfg.Partitions), since: make([]core.Instant, cfg.Partitions),
		unread: map[int]time.Duration{}, falls: make([]string, cfg.Partitions),
	}
	for p := range cfg.Partitions {
		w.Store.SetStream(p, fleetStream, 0, 0)
	}
	for i := range cfg.Nodes {
		f.nodes = append(f.nodes, newFleetNode(f, i))
	}
	return f
}

const fleetStream = "tasks/control/"

// run settles the fleet, lets the scenario happen and measures until it has settled again.
func (f *Fleet) run() {
	if f.cfg.Scenario == FleetStart {
		f.begin()
	}
	f.startAll()
	if !f.settle() || f.cfg.Scenario == FleetStart {
		f.end()
		return
	}
	f.w.until(f.w.now.Add(fleetStay), func() bool { return false }) // handovers and their looks are over
	f.begin()
	var over func() bool
	switch f.cfg.Scenario {
	case FleetRestart:
		over = f.restart()
	case FleetDie:
		for _, n := range f.some() {
			n.die()
		}
	case FleetSplit:
		for _, n := range f.some() {
			n.cutOff(fleetStay)
		}
		f.w.after(fleetStay-time.Millisecond, f.stage)
		over = f.after(fleetStay)
	case FleetAway:
		f.away()
		over = f.after(fleetStay)
	case FleetJoin:
		n := newFleetNode(f, len(f.nodes))
		f.nodes = append(f.nodes, n)
		n.start()
	}
	if over != nil {
		f.until(over)
	}
	// What has just happened is not known to any yet: leases end, watches begin again.
	f.w.until(f.w.now.Add(f.w.upTo(time.Second)+f.cfg.Lease+time.Second), func() bool { return false })
	f.settle()
	f.end()
}

func (f *Fleet) startAll() {
	for _, n := range f.nodes {
		f.w.after(f.w.upTo(time.Second), n.start)
	}
	f.until(f.after(time.Second))
}

func (f *Fleet) after(d time.Duration) func() bool {
	until := f.w.now.Add(d)
	return func() bool { return f.w.now >= until }
}

// some are the nodes that something happens to, drawn.
func (f *Fleet) some() []*fleetNode {
	drawn := slices.Clone(f.nodes)
	f.w.rand.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn[:f.cfg.Kill]
}

// restart stops nodes in order and starts them again, one at a time; the next goes when the one before has all its
// partitions.
func (f *Fleet) restart() (over func() bool) {
	left := f.some()
	var next func()
	next = func() {
		if len(left) == 0 {
			left = nil
			return
		}
		n := left[0]
		n.stop(func() {
			f.stage()
			f.w.after(3*time.Second, func() {
				n.start()
				f.whenSettled(func() {
					f.stage()
					left = left[1:]
					next()
				})
			})
		})
	}
	next()
	return func() bool { return len(left) == 0 }
}

// whenSettled does something when a node that has begun is live and all is as it should be.
func (f *Fleet) whenSettled(do func()) {
	f.w.after(time.Second, func() {
		if f.settled() {
			do()
		} else {
			f.whenSettled(do)
		}
	})
}

func (f *Fleet) until(over func() bool) { f.w.untilEach(f.w.now.Add(f.cfg.Limit), over) }

// settle lets the fleet go on until all is as it should be, and looks every second that nothing is as it must not be.
func (f *Fleet) settle() bool {
	limit, look := f.w.now.Add(f.cfg.Limit), f.w.now
	ok := false
	f.w.untilEach(limit, func() bool {
		if f.w.now >= look {
			look = f.w.now.Add(time.Second)
			f.check()
		}
		ok = f.settled()
		return ok
	})
	f.check()
	if !ok {
		f.broken("not settled within %s: %d of %d partitions are read by the node they fall to", f.cfg.Limit, f.cfg.Partitions-f.unsettled(), f.cfg.Partitions)
	}
	return ok
}

// begin begins to measure, and end ends it.
func (f *Fleet) begin() {
	idle := f.idle()
	f.began, f.measure = f.w.now, true
	f.counts = map[string]*fleetCount{}
	for what, n := range idle {
		f.counts[what] = &fleetCount{}
		f.rep.Counts = append(f.rep.Counts, FleetCount{What: what, Idle: n})
	}
	f.unread, f.placed = map[int]time.Duration{}, slices.Clone(f.falls)
}

// idle is how much there was of each kind in the last second before.
func (f *Fleet) idle() map[string]int {
	idle := map[string]int{}
	if f.w.now == began {
		return idle
	}
	f.counts = map[string]*fleetCount{}
	const seconds = 10
	f.w.until(f.w.now.Add(seconds*time.Second), func() bool { return false })
	for what, c := range f.counts {
		idle[what] = c.total / seconds
	}
	return idle
}

func (f *Fleet) end() {
	f.stage()
	for p, r := range f.reads {
		if r == nil {
			f.gap(p)
		}
	}
	var gaps []time.Duration
	for _, d := range f.unread {
		gaps = append(gaps, d)
	}
	slices.Sort(gaps)
	if len(gaps) > 0 {
		f.rep.Unread, f.rep.Median = gaps[len(gaps)-1], gaps[len(gaps)/2]
	}
	idle := map[string]int{}
	for _, c := range f.rep.Counts {
		idle[c.What] = c.Idle
	}
	f.rep.Counts = nil
	for what, c := range f.counts {
		f.rep.Counts = append(f.rep.Counts, FleetCount{What: what, Total: c.total, Peak: max(c.peak, c.second), Idle: idle[what]})
	}
	slices.SortFunc(f.rep.Counts, func(a, b FleetCount) int {
		if a.What < b.What {
			return -1
		}
		return 1
	})
	share := map[string]int{}
	for _, r := range f.reads {
		if r != nil {
			share[r.n.name]++
			f.rep.Most = max(f.rep.Most, share[r.n.name])
		}
	}
}

// count notes that something was asked n times.
func (f *Fleet) count(what string, n int) {
	c := f.counts[what]
	if c == nil {
		c = &fleetCount{}
		f.counts[what] = c
	}
	if at := int(f.w.now.Sub(began) / time.Second); at != c.at {
		c.peak, c.second, c.at = max(c.peak, c.second), 0, at
	}
	c.total += n
	c.second += n
}

// lives takes whose leases have not ended.
func (f *Fleet) lives() {
	live := make([]string, 0, len(f.leases))
	for name := range f.leases {
		live = append(live, name)
	}
	slices.Sort(live)
	if slices.Equal(live, f.live) {
		return
	}
	f.live, f.falls = live, scheduler.Place(live, f.cfg.Partitions)
}

// stage ends a part of the scenario: what had to move is what Place has otherwise than at the end of the part before.
func (f *Fleet) stage() {
	for p := range f.falls {
		if f.falls[p] != f.placed[p] {
			f.rep.Needed++
		}
	}
	f.placed = slices.Clone(f.falls)
}
