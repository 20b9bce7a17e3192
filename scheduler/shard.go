package scheduler

import (
	"log/slog"

	"duly.dev/duly/internal/core"
)

// Shard handles some of a node's partitions: one commit at a time.
type Shard struct {
	cfg       *Config
	store     Store
	bus       Bus
	log       *slog.Logger
	rand      func() float64
	postProbe func(ProbedMail) // where what agents say of silent dos goes; called from any goroutine

	*owned
	plans      *planBook
	gate       *gate
	queues     queues
	wakes      wakeHeap
	endings    publisher
	evidence   evidenceBook
	unstorable unstorable
	Stats      Stats
	counting   counting // of the event at hand

	answerers answerers
	unproven  bool // the store does not say whose the partitions are
	alerts    alerts
	leftAlone leftAlone

	tally tally // safe for concurrent use

	families families
	cycle    *cycle
}

// NewShard makes a shard that owns nothing yet. rand gives numbers in [0,1) for
// jitter and commit ids; posted takes confirmations of published endings, from any
// goroutine, and must bring them back as Mail.Published; so do said and Mail.Probed with what agents say of silent dos.
func NewShard(cfg Config, store Store, bus Bus, log *slog.Logger, rand func() float64, posted func(PublishedMail), said func(ProbedMail)) *Shard {
	cfg = cfg.WithDefaults()
	s := &Shard{
		cfg: &cfg, store: sortedStore{store}, bus: bus, log: log, rand: rand, postProbe: said,
		owned: &owned{partitions: map[int]*partition{}}, gate: newGate(&cfg), cycle: &cycle{most: cfg.BatchMax},
	}
	s.counting.failed = &s.Stats.Kinds.Expressions
	s.evidence = evidenceBook{cfg: s.cfg, store: s.store, bus: bus, log: log, lost: map[int]core.Evidence{}, doubted: map[int]bool{}, rewound: map[int]rewound{}}
	s.plans = &planBook{cfg: s.cfg, store: s.store, tally: &s.tally, old: true, byType: map[string]map[int64]*core.Plan{}, latest: map[string]*core.Plan{}, refs: map[refKey]*planRef{}}
	s.alerts = alerts{bus, log, map[alertKey]core.Instant{}}
	s.endings = publisher{cfg: s.cfg, store: s.store, bus: bus, posted: posted, republished: &s.Stats.Republished}
	s.queues = queues{gate: s.gate, in: s.owned, cfg: s.cfg}
	s.families = families{shard: s, in: s.owned, cycle: s.cycle, plans: s.plans, gate: s.gate, store: s.store, cfg: s.cfg, counting: &s.counting}
	s.answerers, s.leftAlone = answerers{}, leftAlone{}
	if s.cfg.IDs == nil {
		s.cfg.IDs = NewCommitIDs(rand)
	}
	return s
}

// NextWake is when the shard next wants a commit cycle without mail; 0: never.
func (s *Shard) NextWake() core.Instant {
	next := earlier(s.gate.pauses.until, earlier(s.gate.agents.leftAt(), s.deferredUntil()))
	if len(s.wakes) > 0 {
		next = earlier(next, s.wakes[0].wakes)
	}
	if len(s.queues.served) > 0 {
		next = earlier(next, s.cycle.now)
	}
	for _, w := range s.everyWaker() {
		next = earlier(next, w.lookAt)
	}
	return next
}

// Reading is how far the shard is with the task stream of a partition; zero: it is not its own.
func (s *Shard) Reading(partition int) core.Reading {
	p := s.partitions[partition]
	if p == nil {
		return core.Reading{}
	}
	r := p.reading
	r.Partition, r.Epoch, r.Cursor = p.id, p.epoch, p.cursor
	return r
}

func (s *Shard) everyWaker() [5]*waker {
	return [...]*waker{&s.gate.nextRound, &s.gate.agents.nextRateRound, &s.families.nextRound, &s.endings.nextRound, &s.evidence.nextRound}
}

// StartNoMore leaves what is parked in a partition to its next owner, from now on. What is in flight goes on.
func (s *Shard) StartNoMore(partition int) {
	if p := s.partitions[partition]; p != nil {
		p.noMore = true
		s.queues.recheckKeys()
	}
}

// Drop forgets a partition without a word to the store.
func (s *Shard) Drop(partition int) {
	if p := s.partitions[partition]; p != nil {
		s.evidence.remember(p, s.cycle.now)
		p.forget()
	}
	s.endings.accepted()
	s.remove(partition)
	if len(s.partitions) == 0 {
		s.evidence.nextRound = waker{}
	}
	s.plans.forget(partition)
	s.queues.recheckKeys()
}
