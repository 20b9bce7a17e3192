package scheduler

import (
	"errors"
	"log/slog"
	"slices"

	"duly.dev/duly/internal/core"
)

// Shard handles some of a node's partitions: one commit at a time.
type Shard struct {
	cfg   Config
	store Store
	bus   Bus
	log   *slog.Logger
	rand  func() float64
	said  func(ProbedMail) // where what agents say of silent dos goes; called from any goroutine

	owned
	plans      planBook
	gate       gate
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
	cycle    cycle
}

// NewShard makes a shard that owns nothing yet. rand gives numbers in [0,1) for
// jitter and commit ids; posted takes confirmations of published endings, from any
// goroutine, and must bring them back as Mail.Published; so do said and Mail.Probed with what agents say of silent dos.
func NewShard(cfg Config, store Store, bus Bus, log *slog.Logger, rand func() float64, posted func(PublishedMail), said func(ProbedMail)) *Shard {
	s := &Shard{
		cfg: cfg.WithDefaults(), store: sortedStore{store}, bus: bus, log: log, rand: rand, said: said,
		owned: owned{partitions: map[int]*partition{}},
	}
	s.counting.failed = &s.Stats.Kinds.Expressions
	s.cycle.most = s.cfg.BatchMax
	s.evidence = evidenceBook{cfg: &s.cfg, store: s.store, bus: bus, log: log, lost: map[int]core.Evidence{}, doubted: map[int]bool{}, rewound: map[int]rewound{}}
	s.plans = planBook{cfg: &s.cfg, store: s.store, tally: &s.tally, old: true, byType: map[string]map[int64]*core.Plan{}, latest: map[string]*core.Plan{}, refs: map[refKey]*planRef{}}
	s.gate.init(&s.cfg)
	s.alerts = alerts{bus, log, map[alertKey]core.Instant{}}
	s.endings = publisher{cfg: &s.cfg, store: s.store, bus: bus, posted: posted, republished: &s.Stats.Republished}
	s.queues = queues{gate: &s.gate, in: &s.owned, cfg: &s.cfg}
	s.families = families{shard: s, in: &s.owned, cycle: &s.cycle, plans: &s.plans, gate: &s.gate, store: s.store, cfg: &s.cfg, counting: &s.counting}
	s.answerers, s.leftAlone = answerers{}, leftAlone{}
	if s.cfg.IDs == nil {
		s.cfg.IDs = NewCommitIDs(rand)
	}
	return s
}

// NextWake is when the shard next wants a commit cycle without mail; 0: never.
func (s *Shard) NextWake() core.Instant {
	next := earlier(s.gate.pauses.until, earlier(s.gate.agents.leftAt(), s.heldUntil()))
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
	return [...]*waker{&s.gate.looks, &s.gate.agents.rates, &s.families.looks, &s.endings.looks, &s.evidence.looks}
}

// StartNoMore leaves what is parked in a partition to its next owner, from now on. What is in flight goes on.
func (s *Shard) StartNoMore(partition int) {
	if p := s.partitions[partition]; p != nil {
		p.noMore = true
		s.queues.lookKeys()
	}
}

// Drop forgets a partition without a word to the store.
func (s *Shard) Drop(partition int) {
	if p := s.partitions[partition]; p != nil {
		s.evidence.remember(p, s.cycle.now)
		p.forget()
	}
	s.endings.taken()
	s.remove(partition)
	if len(s.partitions) == 0 {
		s.evidence.looks = waker{}
	}
	s.plans.forget(partition)
	s.queues.lookKeys()
}

// event applies one event to one task in flight and keeps what it led to. The
// caller has made sure that the task was not created in this round.
func (s *Shard) event(p *partition, e *entry, ev *core.Event) error {
	switch back := p.taken.WentBackAt; {
	case !p.taken.MayHaveRun(e.task):
	case e.task.State.Ended(): // a request that takes it up again notes it
		ev.WentBack, ev.At = back, max(ev.At, back)
	default:
		seq := e.task.Seq
		// Its journal notes that steps of it may have run which it does not know.
		_ = s.decide(p, e, &core.Event{Kind: core.EventWentBack, At: max(s.cycle.now, back), Actor: s.cfg.Node, Until: back})
		if ev.IfSeq == seq { // what is noted now is nothing that the requester could have seen
			ev.IfSeq = e.task.Seq
		}
	}
	return s.decide(p, e, ev)
}

// decide lets the core decide about an event and keeps the outcome.
func (s *Shard) decide(p *partition, e *entry, ev *core.Event) error {
	was, plan, had := e.plan, e.plan.known(), marks{}
	if is := s.cfg.leased(); is != e.leased {
		e.leased = is
		e.task.Doubt(plan, s.cycle.now)
	}
	if to := s.plans.refs[refKey{p.id, ev.Plan}]; to != nil { // the task goes on by another version
		had = e.unmark()
		e.plan = to
	}
	ev.Rand, ev.Node, ev.Ask = s.rand(), s.cfg.Node, s.counting.bind(s.cfg.Expressions, e)
	s.gate.says(p, e, ev)
	begins, from := e.task.StartAt > e.task.UpdatedAt, e.task.WaitsFor
	if err := core.Apply(plan, e.task, ev, &s.cycle.out); err != nil {
		if e.plan != was {
			e.plan = was
			e.remark(had)
		}
		if errors.Is(err, core.ErrStale) {
			s.Stats.Stale++
		}
		return err
	}
	if begins {
		s.Stats.Kinds.countStart(s.cycle.out.Records)
	}
	s.keep(p, e, false)
	s.cycle.takeUp(p, e, from)
	e.round.took &^= had.out // these have left before
	return nil
}

// takeUp notes a task that was parked at an agent, and is not any more.
func (c *cycle) takeUp(p *partition, e *entry, from string) {
	if slot := p.slots[from]; slot != nil && e.task.WaitsFor != from {
		c.takenUp = append(c.takenUp, parked{p, slot, e})
	}
}

// born takes a new task in flight.
func (s *Shard) born(p *partition, e *entry) {
	e.leased = s.cfg.leased()
	p.add(e)
	s.cycle.use(p, e)
	s.keep(p, e, true)
}

// keep adds the outcome of an event to the batch.
func (s *Shard) keep(p *partition, e *entry, created bool) {
	c := &s.cycle
	// In which commit a step began that has a child the parent's row is to say: see resumeFresh.
	c.out.Row = c.out.Row || slices.ContainsFunc(c.out.Effects, func(eff core.Effect) bool {
		return eff.Kind == core.EffectChildren && e.plan.plan.Steps[eff.Step].Kind == core.TaskStep
	})
	p.dirty = p.dirty || len(c.out.Records) > 0 || c.out.Row
	if len(c.out.Records) > 0 || c.out.Row {
		c.write(e, created)
	}
	for i := range c.out.Effects {
		eff := c.out.Effects[i]
		if eff.Kind == core.EffectChildren || eff.Kind == core.EffectUndoChildren {
			s.families.fanOut(p, e, &eff)
			continue
		}
		x := pending{p: p, e: e, effect: eff, refused: e.round.refused}
		if eff.Kind == core.EffectEnded { // each ending its own number, also when a person resolves a task in error
			x.end = p.nextEnd
			e.task.EndNumber = x.end
			p.nextEnd++
			if e.parent != nil {
				s.families.ended(p, e)
			}
		}
		c.effects = append(c.effects, x)
	}
	if p.tasks[e.task.Number] == e { // a result, or the input, may have come
		p.weigh(e)
	}
	if e.plan != nil {
		c.calls.note(p, e, c.out.Records)
		s.gate.leaveFor(e, &c.out, c.resumed != nil)
	}
	each(e.held, func(i int) {
		if e.task.Steps[i].Awaits == 0 {
			e.held &^= 1 << uint(i)
		}
	})
	at, awaits, unable := e.present()
	p.occupy(e, at)
	if awaits != 0 {
		p.wait(e, awaits)
	}
	if unable != 0 {
		p.lack(e, unable)
	}
	s.gate.block(p, e)
	if e.task.WaitsFor != "" {
		c.parked = append(c.parked, parked{p, p.slot(e.task.WaitsFor), e})
	}
	s.families.relay()
}
