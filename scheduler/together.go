package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Part is a shard's part of a turn: what it is given, and what it came to.
type Part struct {
	Shard *Shard
	Mail  *Mail // in which everything is handled
	Flush bool  // commit also what only moves cursors

	Turned Turned
	// Err means that the outcome of a commit is a bug or unknown, that a message which
	// must not be lost could not be stored, or that the context ended: every partition
	// of the shard is dropped then.
	Err error

	more bool // there is mail left for another round
}

// Crew runs turns of shards of one node, one turn at a time: of one shard, or of
// several together. Each shard decides for itself; what they write is one commit, the
// endings they tell are handed over together and so are the commands to their agents. A
// commit, a message and a sync cost much the same however much is in them, so shards
// that turn together can do so as many times more often as they are.
type Crew struct {
	deciding []*Part // of a round
	writing  []*Part // those that have something to commit
	leaving  []*Shard
	batch    core.Batch
}

// Turn handles everything in the parts' mail and every wake that is due, in as many
// commits as the batch limit asks for, and returns when all effects are out.
//
// A shard that cannot decide or publish is left out of what follows. A row that the
// database refuses makes each shard commit on its own, which finds the row. Of another
// failed commit nobody knows whose fault it is: all that had a part in it have failed.
func (c *Crew) Turn(ctx context.Context, now core.Instant, parts ...*Part) {
	for _, p := range parts {
		p.Shard.turn.begin(now, p.Mail, p.Flush)
		p.Shard.turn.parts = len(parts)
		p.Err, p.more = nil, true
	}
	for c.round(ctx, parts) {
	}
	for _, p := range parts {
		if p.Err != nil {
			p.Shard.abandon()
			p.Err = fmt.Errorf("turn of %d partitions: %w", len(p.Shard.turn.turned.Lost), p.Err)
		} else {
			p.Mail.reset()
		}
		p.Turned = p.Shard.turn.turned
	}
}

// round is one commit and what follows from it; false: no mail was left for one.
func (c *Crew) round(ctx context.Context, parts []*Part) bool {
	c.deciding = c.deciding[:0]
	for _, p := range parts {
		if !p.more || p.Err != nil {
			continue
		}
		if p.more, p.Err = p.Shard.apply(ctx); p.Err == nil {
			c.deciding = append(c.deciding, p)
		}
	}
	if len(c.deciding) == 0 {
		return false
	}
	c.commit(ctx)
	c.leaving = c.leaving[:0]
	for _, p := range c.deciding {
		if p.Err == nil {
			p.Err = p.Shard.prepare(ctx)
		}
		if p.Err == nil {
			c.leaving = append(c.leaving, p.Shard)
		}
	}
	depart(c.leaving)
	for _, s := range c.leaving {
		s.acknowledge()
		s.endRound()
	}
	return true
}

// commit writes the round: as one batch, or shard by shard.
func (c *Crew) commit(ctx context.Context) {
	c.writing = c.writing[:0]
	for _, p := range c.deciding {
		if p.Shard.fill() {
			c.writing = append(c.writing, p)
		}
	}
	if len(c.writing) > 1 {
		if err := c.commitAll(ctx); !errors.Is(err, core.ErrRowRefused) && !errors.Is(err, core.ErrBatchRefused) {
			for _, p := range c.writing {
				p.Err = err
			}
			return
		}
	}
	for _, p := range c.writing {
		if len(c.writing) > 1 {
			p.Shard.turn.batch.ID = p.Shard.cfg.IDs.next() // they were one batch, and are several now
		}
		p.Err = p.Shard.commit(ctx)
	}
}

// commitAll writes the batches of all as one.
func (c *Crew) commitAll(ctx context.Context) error {
	b, first := &c.batch, c.writing[0].Shard
	for _, p := range c.writing {
		b.ID = max(b.ID, p.Shard.turn.batch.ID) // above all of them: within an epoch ids rise
	}
	b.Node = first.cfg.Node
	for _, p := range c.writing {
		p.Shard.turn.batch.ID = b.ID
		p.Shard.follow(p.Shard.turn.batch.Partitions)
		b.Partitions = append(b.Partitions, p.Shard.turn.batch.Partitions...)
		b.Writes = append(b.Writes, p.Shard.turn.batch.Writes...)
	}
	res, err := first.store.Commit(ctx, b)
	if err != nil {
		err = commitFailed(b, err)
	} else {
		for _, p := range c.writing {
			p.Shard.passed(&p.Shard.turn.batch, &res)
			p.Shard.committed(&res, false)
		}
	}
	clear(b.Writes)
	b.ID, b.Partitions, b.Writes = 0, b.Partitions[:0], b.Writes[:0]
	return err
}

// lock is a lock that is held over commits and rests: who waits for it waits idly, also
// in the sense of testing/synctest, which a sync.Mutex does not.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) lock() { l <- struct{}{} }

func (l lock) unlock() { <-l }

// lead is who turns for several committers at a time, and what it goes by.
type lead struct {
	free  lock // held by who leads a turn, or rests after it
	crew  []*runner
	parts []*Part
	turns Crew
	apart core.Instant // until when one common commit after the other would not keep up

	mu sync.Mutex // guards when the next turns of all runners alone begin
}

// A common turn keeps up if it leaves less than three quarters behind of the answers and
// submissions that it found, or few. After one that does not committers turn apart for a
// while: that one commit after the other is too slow is not over soon.
const (
	fewLeft  = 400
	apartFor = time.Second
)

// together reports whether the committers may turn together now: not if their commits
// need not be few, and not in a flood, in which they are long.
func (s *Scheduler) together() bool {
	return len(s.runners) > 1 && s.cfg.CommitGap > 0 && !s.flooded()
}

// begins takes note of a turn of r alone.
func (l *lead) begins(r *runner, at core.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.next = at
}

// slot is when r, which turns alone, begins its next turn: at the instant given or less
// than a gap later, and as far behind the turns of the others as fits so many of them into
// a gap. Turns that are as long and rest as long as each other stay side by side if they
// once were, and then all want the processors at once that nobody wants in between.
func (l *lead) slot(r *runner, at core.Instant, gap time.Duration) core.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	gap = gap.Truncate(time.Microsecond)
	between := (gap / time.Duration(len(r.s.runners))).Truncate(time.Microsecond)
	idle := at.Add(-2 * gap)
	for moved := between > 0; moved; {
		moved = false
		for _, o := range r.s.runners {
			if o == r || o.next < idle {
				continue
			}
			behind := at.Sub(o.next) % gap
			if behind < 0 {
				behind += gap
			}
			if behind < between {
				at, moved = at.Add(between-behind), true
			}
		}
	}
	r.next = at
	return at
}

// serve runs a turn, of this runner or of all that are free, and rests. Only a bug is an
// error.
func (r *runner) serve(ctx, work context.Context, timer *time.Timer) error {
	if !r.s.together() {
		r.turning.lock()
		return r.turnAlone(ctx, work, timer)
	}
	l := &r.s.lead
	l.free.lock()
	if l.join(r); len(l.crew) == 1 {
		l.free.unlock()
		return r.turnAlone(ctx, work, timer)
	}
	defer l.free.unlock()
	began := r.s.cfg.Now()
	wrote, err := l.turn(work, began)
	gap, early := r.gap(wrote)
	for _, o := range l.crew {
		o.leave(early)
	}
	if err == nil {
		gap /= time.Duration(len(r.s.runners)) // as many commits as if each turned alone
		r.gather(ctx, timer, gap-r.s.cfg.Now().Sub(began), l.crew...)
	}
	return err
}

// join locks a runner and those that turn together with it, the crew. The runner is
// alone if it has mail that is taken alone, or if commits side by side are better: there
// is enough for a full one, or one after the other would not keep up.
func (l *lead) join(r *runner) {
	r.turning.lock()
	l.crew = append(l.crew[:0], r)
	waits, revives := r.in.pending()
	if revives {
		r.engaged.Store(true)
		return
	}
	for _, o := range r.s.runners {
		if o != r && !o.engaged.Load() {
			more, _ := o.in.pending()
			waits += more
			l.crew = append(l.crew, o)
		}
	}
	if r.s.cfg.Now() < l.apart || waits >= fullWrites {
		l.crew = l.crew[:1]
	}
	for _, o := range l.crew[1:] {
		o.turning.lock() // soon: it is in the middle of a turn at most
	}
}

// turn runs a turn of the crew, all of which is locked, and says how much it wrote.
func (l *lead) turn(ctx context.Context, began core.Instant) (wrote int64, err error) {
	l.parts = l.parts[:0]
	found, left := 0, 0
	for _, o := range l.crew {
		wrote -= o.shard.Stats.Writes
		o.part = Part{Shard: o.shard, Mail: o.in.takeTogether(), Flush: o.flushDue(began)}
		found += o.part.Mail.writes()
		l.parts = append(l.parts, &o.part)
	}
	l.turns.Turn(ctx, began, l.parts...)
	for _, o := range l.crew {
		err = errors.Join(err, o.turned(ctx, began))
		wrote += o.shard.Stats.Writes
		more, _ := o.in.pending()
		left += more
	}
	if left >= max(found-found/4, fewLeft) {
		l.apart = l.crew[0].s.cfg.Now().Add(apartFor)
	}
	return wrote, err
}
