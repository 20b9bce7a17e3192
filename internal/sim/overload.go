package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/forecast"
	"duly.dev/duly/supervisor"
)

// Overload. The real roles, two nodes, on one machine of two cores, without faults but for a database that stands still.
//
// Threads (machine.go): the door and what takes its requests off the wire, of each node; the streams; each committer; what brings
// a node its replies; each agent's process. What a commit cycle does is paid where it meets its ports: rows at the commit,
// commands when they leave. The wait for a disk takes no processor time. The speed of a minute is that of every other, and
// varies by 20 to 40 % within it; what is judged are whole minutes.
//
// T, the time of a whole task, is 55 times that of the measured machine, so that the machine ends less than 100 tasks a second.
// Counts that stand for seconds of work (in flight, batch, pack, what a door holds) are as much smaller; times are the real
// defaults. Shares are of what the same world ends of a queue that is always full. What doors know of backlogs is a second old.
// Deadlines count from the schedule of the client, however late a door takes the submission; what a client was not told within
// 5 s counts as refused.

// OverloadScenario is how load is offered.
type OverloadScenario string

// The scenarios.
const (
	OverloadSteady OverloadScenario = "steady" // the same all the time
	OverloadSpike  OverloadScenario = "spike"  // base load; ten times as much for ten seconds; base load again
	OverloadStill  OverloadScenario = "still"  // base load; the database stands still for half a minute; base load again
	OverloadFails  OverloadScenario = "fails"  // the same all the time; agents fail half of their commands for half a minute
	OverloadSlow   OverloadScenario = "slow"   // the same all the time; the agent of the third step answers a second later for half a minute
	OverloadFreeze OverloadScenario = "freeze" // the same all the time; a node, scheduler and door, stands still for half a minute
	overloadFull   OverloadScenario = "full"   // so many tasks are always unfinished: what the machine can do
)

// OverloadClients is what clients do whose submission is refused for now.
type OverloadClients string

// The kinds of clients.
const (
	ClientsLeave OverloadClients = "leave" // it does not come again
	ClientsObey  OverloadClients = "obey"  // it comes again when it was told to, while it has time
	ClientsRush  OverloadClients = "rush"  // it comes again at once, while it has time
)

// OverloadConfig is one run in a world of overload.
type OverloadConfig struct {
	Seed     uint64
	Scenario OverloadScenario
	Clients  OverloadClients
	Mixed    bool          // every tenth submission has 1 ms, every tenth a year, and all have priority high
	Stream   bool          // submissions go to the stream endpoint, and not to the request door, but for those of the others
	Load     float64       // offered, in shares of Capacity; of a spike and a stop: the base load
	Others   int           // tenants beside the one who offers that; 0: nobody names a tenant
	Other    float64       // what each of them offers all the time
	Blind    bool          // doors do not tell them apart
	Deadline time.Duration // of each submission
	QueueFor time.Duration // of the plan: the deadline counts from a task's turn, for which it may wait so long; 0: from its schedule
	Capacity float64       // tasks a second that the machine ends in time; 0: it is measured first
	Slows    float64       // how much more everything but the door costs when backlogSlows of work or more are unread; below 0: nothing, 0: as measured
	Door     float64       // how much more of a processor a thread of the door has than others; 0: as measured
	Take     float64       // what a submission costs the door itself, in shares of T; 0: as measured of one that comes by itself, of which no machine takes five for each task
	Length   time.Duration // the load ends then, if it has not before; 0: it lasts for what is judged
	Goals    bool          // shares and recovery are judged as well as the books
}

// Sizes of the world. What stands for seconds of work is as much smaller as the machine is slower than the measured one.
const (
	overloadCores      = 2
	overloadNominal    = 100  // tasks a second, were nothing but T to do
	overloadMeasured   = 5574 // of the machine whose costs these are
	overloadNodes      = 2
	overloadPartitions = 8
	overloadFactor     = 10 // of a spike
	overloadSpikeFor   = 10 * time.Second
	overloadStillFor   = 30 * time.Second
	overloadSlower     = time.Second      // than otherwise, an agent that has become slow
	overloadDrain      = 20 * time.Minute // by when, after the load, everything must have ended
)

// scaled is a count of the measured machine that stands for seconds of work.
func scaled(n int) int { return max(1, n*overloadNominal/overloadMeasured) }

// overload is the load of a world and the machine that bears it.
type overload struct {
	w       *World
	cfg     *OverloadConfig
	rand    *rand.Rand
	machine *machine
	cost    overloadCosts
	phases  []phase
	over    core.Instant // when the load ends

	streams *thread
	agents  []*thread
	replies map[*node]*thread // what brings a node its replies
	doors   []*loadDoor
	places  map[int][]int  // of the messages of a partition in the stream
	held    map[int][]int  // tasks in each of them and all before
	origin  map[int]uint64 // of the newest task of a partition
	nth     int            // submissions that were offered
	book    *forecast.Book // what the nodes know of how long tasks take
	feed    *forecast.Feed
	failing span // in which agents fail half of their commands
	slowed  span // in which one agent is slow
	judge   judge
}

// phase is load from one time to the next.
type phase struct {
	from, until time.Duration // since the beginning
	load        float64       // of Capacity
}

func newOverload(w *World, cfg *OverloadConfig) *overload {
	l := &overload{
		w: w, cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 9)), cost: newCosts(overloadCores * time.Second / overloadNominal),
		replies: map[*node]*thread{}, places: map[int][]int{}, held: map[int][]int{}, origin: map[int]uint64{},
	}
	l.cost.door = cmp.Or(cfg.Door, l.cost.door)
	l.cost.take = cmp.Or(time.Duration(cfg.Take*float64(l.cost.whole)), l.cost.take)
	l.book = forecast.NewBook(0)
	l.feed = forecast.NewFeed(l.book)
	l.machine = newMachine(w, overloadCores, l.cost.door, &weather{rand: rand.New(rand.NewPCG(cfg.Seed, 10))})
	l.streams = &thread{m: l.machine, class: otherJobs}
	l.plan()
	l.schedule()
	l.judge = newJudge(l)
	return l
}

// plan stores the plan: five steps that can be undone, and what a plan has that says nothing.
func (l *overload) plan() {
	p := core.Plan{Name: "order", Version: 1, Grace: core.DefaultGrace}
	if l.cfg.Scenario == overloadFull { // what the machine can do, and not what is let in
		p.Admission = core.AdmissionOff
	}
	if l.cfg.QueueFor > 0 {
		p.CompleteBy, p.QueueFor = l.cfg.Deadline, l.cfg.QueueFor
	}
	for i := range 5 {
		s := core.Step{Name: "s" + strconv.Itoa(i+1), Agent: "agent.s" + strconv.Itoa(i+1), Undoable: true}
		if i > 0 {
			s.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, s)
	}
	l.w.addPlan(p)
}

// schedule sets when how much is offered. Windows that are judged are whole minutes, the first at least three deadlines after
// the load began.
func (l *overload) schedule() {
	d := l.cfg.Deadline
	settled := (3*d + time.Minute - 1).Truncate(time.Minute)
	switch l.cfg.Scenario {
	case OverloadSpike:
		end := settled + overloadSpikeFor
		l.phases = []phase{{0, settled, l.cfg.Load}, {settled, end, overloadFactor * l.cfg.Load}, {end, end + 3*d + 3*time.Minute, l.cfg.Load}}
	case OverloadStill, OverloadFails, OverloadSlow, OverloadFreeze:
		end := settled + overloadStillFor
		switch trouble := (span{began.Add(settled), began.Add(end)}); l.cfg.Scenario {
		case OverloadStill:
			l.w.refusing = trouble
		case OverloadFails:
			l.failing = trouble
		case OverloadSlow:
			l.slowed = trouble
		case OverloadFreeze:
			l.w.after(settled, func() { l.w.nodes[0].freeze(overloadStillFor) })
		}
		l.phases = []phase{{0, settled, l.cfg.Load}, {settled, end, l.cfg.Load}, {end, end + 3*d + 3*time.Minute, l.cfg.Load}}
	default:
		l.phases = []phase{{0, settled + time.Minute, l.cfg.Load}}
	}
	l.over = began.Add(l.phases[len(l.phases)-1].until)
	if l.cfg.Length > 0 {
		l.over = min(l.over, began.Add(l.cfg.Length))
	}
}

// RunOverload offers the load and judges what became of it. The error is a *[Violation]: of the books, and with Goals also of
// the goals.
func RunOverload(cfg OverloadConfig) (OverloadReport, error) {
	if cfg.Capacity == 0 && cfg.Scenario != overloadFull {
		var err error
		if cfg.Capacity, err = OverloadCapacity(cfg); err != nil {
			return OverloadReport{Config: cfg}, err
		}
	}
	w := newOverloadWorld(&cfg)
	v := w.runOverload()
	rep := w.load.judge.report()
	if v == nil {
		return rep, nil
	}
	if v.Task != "" { // the books do not close: for how short a load do they not?
		short := cfg
		for short.Length = 5 * time.Second; began.Add(short.Length) < w.load.over; short.Length *= 2 {
			if smaller := newOverloadWorld(&short).runOverload(); smaller != nil && smaller.Task != "" {
				cfg, v = short, smaller
				break
			}
		}
		again := newOverloadWorld(&cfg)
		again.follow = &follow{partition: v.Partition, task: v.Task}
		again.runOverload()
		v.History = again.follow.String()
	}
	return rep, v
}

// OverloadCapacity is how many tasks a second the machine of a run ends, of a queue that is always full.
func OverloadCapacity(of OverloadConfig) (float64, error) {
	rep, err := RunOverload(OverloadConfig{Seed: of.Seed, Scenario: overloadFull, Stream: of.Stream, Door: of.Door, Slows: of.Slows, Take: of.Take, Deadline: 20 * time.Second})
	return rep.Capacity, err
}

func newOverloadWorld(cfg *OverloadConfig) *World {
	return New(Config{Seed: cfg.Seed, Nodes: overloadNodes, Partitions: overloadPartitions, overload: cfg})
}

// runOverload lets the load come, lets what was accepted end, and judges.
func (w *World) runOverload() *Violation {
	defer w.end()
	l := w.load
	w.addSupervisors(time.Second, supervisor.Config{})
	w.every(500*time.Millisecond, l.place)
	l.place()
	l.openDoors()
	w.every(readingEvery, l.tellReadings)
	w.every(slowEvery, l.slowDown)
	l.offer()
	w.until(l.over, func() bool { return false })
	w.until(l.over.Add(overloadDrain), func() bool { return l.judge.unended == 0 && l.idle() && w.ended() })
	if w.err == nil {
		w.check()
	}
	if w.err == nil && l.cfg.Goals {
		l.judge.goals()
	}
	return w.err
}

// place tells every node which nodes are live.
func (l *overload) place() {
	for _, n := range l.w.nodes {
		n.reassign(l.w.liveFor(n))
	}
}

// offer submits by the schedule, whatever becomes of it: the times between two are drawn.
func (l *overload) offer() {
	if l.cfg.Scenario == overloadFull {
		for range 4 * overloadNominal { // twice what is in flight then
			l.submit()
		}
		return
	}
	var next func()
	next = func() {
		load := l.loadNow()
		if load < 0 {
			return
		}
		gap := time.Duration(l.rand.ExpFloat64() / ((load + l.others()) * l.cfg.Capacity) * float64(time.Second))
		l.w.after(gap, func() {
			if l.loadNow() > 0 {
				l.submit()
			}
			next()
		})
	}
	next()
}

// backlogSlows is how many seconds of work, at the nominal speed, were unread when tasks a second had fallen to a third: from
// 4,570 to 1,550 within 40 s at an offered 10,000. The cause is not known, so that all but the door is slower here.
const (
	backlogSlows = 50
	slowEvery    = 500 * time.Millisecond
	backlogCosts = 2
)

// slowDown makes everything but the door cost more while much is unread.
func (l *overload) slowDown() {
	unread := 0
	for p := range l.w.cfg.Partitions {
		_, tasks := l.unread(p)
		unread += tasks
	}
	l.machine.advance()
	l.machine.slow = 1 + max(0, cmp.Or(l.cfg.Slows, backlogCosts))*min(1, float64(unread)/(backlogSlows*overloadNominal))
}

// loadNow is what is offered now, in shares of the capacity; below 0: nothing any more.
func (l *overload) loadNow() float64 {
	at := l.w.now.Sub(began)
	for _, p := range l.phases {
		if at >= p.from && at < p.until && l.w.now < l.over {
			return p.load
		}
	}
	return -1
}

// others is what all tenants but one offer.
func (l *overload) others() float64 { return float64(l.cfg.Others) * l.cfg.Other }

// tenant is whose task is offered now; 0: of the one whose load varies.
func (l *overload) tenant() int {
	if l.cfg.Others == 0 {
		return 0
	}
	if of := l.rand.Float64() * (l.loadNow() + l.others()); of < l.others() {
		return 1 + int(of/l.cfg.Other)
	}
	return 0
}

// submit lets a client have one more task.
func (l *overload) submit() {
	l.nth++
	o := &offer{l: l, id: fmt.Sprintf("t%d", l.nth), at: l.w.now, has: l.deadline(), tenant: l.tenant()}
	if l.cfg.Mixed {
		switch l.nth % 10 {
		case 0:
			o.has = time.Millisecond
		case 5:
			o.has = 365 * 24 * time.Hour
		}
	}
	l.judge.offered(o)
	o.submit()
}
