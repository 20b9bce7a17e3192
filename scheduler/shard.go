package scheduler

import (
	"log/slog"

	"duly.dev/duly/internal/core"
)

// Shard handles some of a node's partitions, with one commit for all of them at a time. It is not safe for
// concurrent use: only the committer that drives it may call it.
type Shard struct {
	cfg   *Config
	store Store
	bus   Bus
	log   *slog.Logger
	// rand returns numbers in [0,1).
	rand func() float64
	// postProbe takes agents' answers about silent dos, from any goroutine, and brings them back as mail.
	postProbe func(ProbedMail)

	*owned
	plans      *planBook
	gate       *gate
	queues     queues
	wakes      wakeHeap
	endings    publisher
	evidence   evidenceBook
	unstorable unstorable
	Stats      Stats
	// counting evaluates expressions for the event at hand.
	counting counting

	answerers answerers
	// unproven is whether the store, when last asked, did not say whose the partitions are; see prove.
	unproven  bool
	alerts    alerts
	leftAlone leftAlone

	// tally is safe for concurrent use.
	tally tally

	families families
	cycle    *cycle
}

// NewShard makes a shard without partitions. rand returns numbers in [0,1), for jitter and commit ids. posted
// takes confirmations of published endings and said takes agents' answers about silent dos; both are called
// from any goroutine and must bring what they take back as Mail.Published and Mail.Probed.
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

// NextWake returns when the shard next wants a commit cycle although there is no mail; 0: never.
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

// Reading returns how far the shard is with the task stream of a partition; zero if it does not hold the
// partition.
func (s *Shard) Reading(partition int) core.Reading {
	p := s.partitions[partition]
	if p == nil {
		return core.Reading{}
	}
	r := p.reading
	r.Partition, r.Epoch, r.Cursor = p.id, p.epoch, p.cursor
	return r
}

// everyWaker returns all wakers of the shard but those of single keys.
func (s *Shard) everyWaker() [6]*waker {
	return [...]*waker{&s.gate.nextRound, &s.gate.agents.nextRateRound, &s.families.nextRound, &s.families.nextLook, &s.endings.nextRound, &s.evidence.nextRound}
}

// StartNoMore stops claiming parked tasks of a partition, which is about to be let go. What is in flight goes
// on.
func (s *Shard) StartNoMore(partition int) {
	if p := s.partitions[partition]; p != nil {
		p.noMore = true
		s.queues.recheckKeys()
	}
}

// Drop forgets a partition. It does not tell the store: see Store.Release.
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
