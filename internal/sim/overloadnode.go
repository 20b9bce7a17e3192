package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// scheduler is that of a node, with its real times, whose ports take processor time.
func (l *overload) scheduler(n *node) *scheduler.Scheduler {
	store := loadStore{nodeStore{l.w.tables(), n}, l}
	return scheduler.New(scheduler.RunConfig{
		Config: scheduler.Config{
			Node: n.name, InFlight: scaled(scheduler.DefaultInFlight), AgentWindow: scaled(scheduler.DefaultAgentWindow), BatchMax: scaled(scheduler.DefaultBatchMax),
			Genuine: genuine, Now: n.now, Report: n.report, Hears: n.hears(), Needs: l.needs,
			TenantLabel: overloadTenant,
		},
		Partitions: l.w.cfg.Partitions, Rand: l.w.rand.Float64,
		Limits:   scheduler.LimitConfig{Store: store, Life: n.lifeWord()},
		Breakers: scheduler.BreakerConfig{Store: store, Policy: core.BreakerPolicy{SharePct: 50, CallsMin: 50, Window: 10 * time.Second, OpenFor: 5 * time.Second, OpenMax: 30 * time.Second}},
	}, store, loadBus{&nodeBus{l.w, n, n.life}, l}, nodeWires{n}, nil, l.w.cfg.Log)
}

// loadStore is the state store as a node sees it. Its processor time is the machine's, of the thread that asks.
type loadStore struct {
	nodeStore
	l *overload
}

// Commit takes what its rows cost, and waits for the disk, or until the database stands still no more.
func (s loadStore) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	l, w := s.l, s.l.w
	s.countCommit(b)
	cost := l.cost.commit
	for i := range b.Writes {
		t := &b.Writes[i]
		if t.Birth {
			cost += l.cost.read + l.cost.birth
		}
		row := l.cost.row
		if t.Task.State == core.StateUndoing {
			row = l.cost.undoing
		}
		cost += time.Duration(len(t.Records)) * row
	}
	l.machine.use(cost)
	if w.during(w.refusing) {
		w.wait(w.refusing.until.Sub(w.now))
	}
	w.wait(l.cost.sync)
	return l.commit(ctx, b)
}

// commit is a commit at the moment it is decided, with what must be true of it: see World.commit, which looks at all tasks.
func (l *overload) commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	w := l.w
	was := make([]core.PartitionState, len(b.Partitions))
	for i := range b.Partitions {
		was[i] = *w.Store.partition(b.Partitions[i].Partition)
	}
	res, err := w.Store.Commit(ctx, b)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, core.ErrForeignRow) {
		w.wrongBatch(b, err)
	}
	if err != nil {
		return res, err
	}
	for i := range b.Partitions {
		if p := &b.Partitions[i]; !slices.Contains(res.Fenced, p.Partition) {
			was[i].Told = p.Told // what it says of ends is looked at when all have ended
			w.moved(&was[i], p)
		}
	}
	l.feed.Committed(func(yield func(*core.Plan, *core.TaskWrite) bool) {
		for i := range b.Writes {
			if t := b.Writes[i].Task; !yield(planBook{w}.Plan(t.Type, t.PlanVersion), &b.Writes[i]) {
				return
			}
		}
	})
	for i := range b.Writes {
		if t := b.Writes[i].Task; b.Writes[i].Birth && !slices.Contains(res.Fenced, t.Partition) {
			if last := l.origin[t.Partition]; t.Origin < last {
				w.wrong(t.Partition, t.ID, "order: it is born from message %d of the stream, after one of message %d", t.Origin, last)
			}
			l.origin[t.Partition] = t.Origin
		}
	}
	return res, nil
}

// needs is how long tasks of a plan take, as internal/node says it.
func (l *overload) needs(plan *core.Plan) time.Duration {
	d, _, known := l.book.Needs(plan, 0.95, l.w.now)
	if !known {
		return 0
	}
	return d
}

// reads is what a reading costs, of so many tasks.
func (s loadStore) reads(saved []core.Saved, err error) ([]core.Saved, error) {
	s.l.machine.use(s.l.cost.statement + time.Duration(len(saved))*s.l.cost.load)
	return saved, err
}

func (s loadStore) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	return s.reads(s.nodeStore.LoadNumbers(ctx, as, numbers))
}

func (s loadStore) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	return s.reads(s.nodeStore.LoadIDs(ctx, as, ids))
}

func (s loadStore) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	return s.reads(s.nodeStore.LoadActive(ctx, as, after, limit))
}

func (s loadStore) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	s.l.machine.use(s.l.cost.statement)
	return s.nodeStore.Waiting(ctx, as, agent, after, limit)
}

// loadBus is the network as a node sees it; what leaves takes processor time of the committer from which it does.
type loadBus struct {
	*nodeBus
	l *overload
}

// Send takes what its commands cost.
func (b loadBus) Send(cmds []core.Command) {
	if len(cmds) > 0 {
		b.l.machine.use(time.Duration(len(cmds)) * b.l.cost.send)
	}
	b.nodeBus.Send(cmds)
}

// Publish takes what its endings cost: most those of what was not processed.
func (b loadBus) Publish(endings []core.Ending, confirmed func(error)) {
	cost := time.Duration(len(endings)) * b.l.cost.ending
	for i := range endings {
		if s := endings[i].State; s == core.StateUndone || s == core.StateError {
			cost += b.l.cost.undone
		}
	}
	b.l.machine.use(cost)
	b.nodeBus.Publish(endings, confirmed)
}

// Refuse stores one refusal after the other, and waits for each.
func (b loadBus) Refuse(ctx context.Context, refused []core.Status) error {
	for i := range refused {
		b.l.machine.use(b.l.cost.refused)
		b.l.w.wait(b.l.cost.sync)
		if o := b.l.judge.all[refused[i].ID]; o != nil {
			o.refusedAtBirth()
		}
	}
	return b.nodeBus.Refuse(ctx, refused)
}

// reply brings an agent's answer to a node, when what does that comes to it.
func (l *overload) reply(n *node, hear func()) {
	t := l.replies[n]
	if t == nil {
		t = &thread{m: l.machine, class: otherJobs}
		l.replies[n] = t
	}
	life := n.life
	if n.feeds == nil {
		return
	}
	t.do(l.cost.reply, func() {
		if n.life == life {
			hear()
		}
	})
}

// work brings a command to an agent's process, which takes one off the wire after the other.
func (l *overload) work(c core.Command) {
	if l.agents == nil {
		for range l.w.agents {
			l.agents = append(l.agents, &thread{m: l.machine, class: otherJobs})
		}
	}
	at := l.rand.IntN(len(l.agents))
	handle := func() { l.agents[at].do(l.cost.agent, func() { l.w.agents[at].handle(c) }) }
	if c.Step == overloadSlowStep && l.w.during(l.slowed) {
		l.w.after(overloadSlower, handle)
		return
	}
	handle()
}

// overloadSlowStep is the step whose agent becomes slow.
const overloadSlowStep = "s3"

// fails reports whether an agent fails a command: half of them, whatever it tries.
func (l *overload) fails(c *core.Command) bool {
	h := fnv.New32a()
	fmt.Fprint(h, c.Task, c.Seq)
	return l.w.during(l.failing) && h.Sum32()>>8&1 == 0
}
