package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"duly.dev/duly/internal/rendezvous"
)

const (
	lookEvery = time.Second           // how often a member looks at the rows without a reason
	lookAgain = 50 * time.Millisecond // after an error, or where not all could be taken
	lookMost  = 2 * time.Second       // for one look
)

// place takes and gives partitions as members come and go, until ctx ends.
func (m *member) place(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var live []string
	var looked time.Time
	for ctx.Err() == nil {
		now := m.crowd.live(time.Now())
		// A member that is not heard takes nothing, and lets nothing go.
		if now != nil && (m.news.Swap(false) || !slices.Equal(now, live) || time.Since(looked) >= lookEvery) {
			live, looked = now, time.Now()
			if !m.reconcile(ctx, live) {
				m.news.Store(true)
				time.AfterFunc(lookAgain, func() { signal(m.poke) })
			}
		}
		select {
		case <-ctx.Done():
		case <-m.poke:
		case <-tick.C:
		}
	}
}

// reconcile compares what this member has with what it should have. done is false where it must be called again soon.
func (m *member) reconcile(ctx context.Context, live []string) (done bool) {
	m.clear()
	committed := map[int]uint64{} // before the rows are read
	for p, l := range m.lanes {
		committed[p] = l.committed.Load()
	}
	rows, err := m.look(ctx)
	if err != nil {
		return false
	}
	owners := make([]string, m.cfg.by.partitions)
	rendezvous.Place(live, owners)
	known := map[int]bool{}
	var wanted []row
	for _, r := range rows {
		known[r.partition] = true
		mine := r.partition < len(owners) && owners[r.partition] == m.id
		l := m.lanes[r.partition]
		if l != nil && (!mine || r.epoch != l.epoch) {
			l.quit()
		}
		if l != nil && r.epoch == l.epoch && r.cursor < committed[r.partition] { // an idle lane would not find out
			l.wentBack(r.cursor, committed[r.partition])
		}
		if l == nil && mine && r.stopped == "" && m.free(r, live) {
			wanted = append(wanted, r)
		}
		if !mine || l != nil {
			delete(m.waiting, r.partition)
		}
	}
	for p, l := range m.lanes { // the group was forgotten
		if !known[p] {
			l.quit()
		}
	}
	return m.take(ctx, wanted)
}

// clear removes the lanes that have ended, and lets the others know.
func (m *member) clear() {
	for p, l := range m.lanes {
		select {
		case <-l.ended:
			delete(m.lanes, p)
			if m.shared != nil {
				m.shared.remove(p)
			}
			m.version.Add(1)
			signal(m.told)
		default:
		}
	}
}

// look reads the rows, and notes whether the database can be reached. A pool that is all at work is no trouble.
func (m *member) look(ctx context.Context) ([]row, error) {
	bounded, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	rows, err := m.store.rows(bounded)
	stat := m.store.pool.Stat()
	busy := errors.Is(err, context.DeadlineExceeded) && stat.AcquiredConns() >= stat.MaxConns()
	switch {
	case err == nil || busy:
		if m.trouble.Swap(nil) != nil {
			m.log.Info("the database can be reached again")
		}
	case fatal(err):
		m.fail(err)
	case ctx.Err() == nil && m.trouble.Load() == nil:
		now := time.Now()
		m.trouble.Store(&now)
		m.log.Warn("the database cannot be reached", "error", err)
	}
	return rows, err
}

// free reports whether a partition's former owner need not be waited for: it has released it, or does not live, or has had
// its time.
func (m *member) free(r row, live []string) bool {
	if r.owner == "" || r.owner == m.id || !slices.Contains(live, r.owner) {
		return true
	}
	since, ok := m.waiting[r.partition]
	if !ok {
		m.waiting[r.partition] = time.Now()
		return false
	}
	return time.Since(since) > m.cfg.drain+releaseMost
}

// take becomes the owner of partitions and begins with them.
func (m *member) take(ctx context.Context, wanted []row) (all bool) {
	if len(wanted) == 0 {
		return true
	}
	bounded, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	taken, err := m.store.adopt(bounded, wanted, m.id)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("partitions cannot be taken over", "error", err)
		}
		return false
	}
	var lanes []*lane
	for _, r := range taken {
		l := m.newLane(r)
		m.lanes[r.partition] = l
		delete(m.waiting, r.partition)
		lanes = append(lanes, l)
	}
	m.log.Debug("partitions are taken over", "wanted", len(wanted), "taken", len(taken))
	if m.shared != nil {
		m.shared.add(lanes...)
	}
	return len(taken) == len(wanted)
}

// newLane begins with a partition that was taken over.
func (m *member) newLane(r row) *lane {
	at := position{r.cursor, r.stored}
	l := &lane{m: m, partition: r.partition, epoch: r.epoch, at: at, queue: newQueue(at, 2*m.cfg.batch, 2*m.cfg.bytes),
		leave: make(chan struct{}), ended: make(chan struct{})}
	l.committed.Store(at.seq)
	feed := m.shared
	ctx, cancel := context.WithCancel(m.ground)
	l.cancel = cancel
	if feed == nil {
		feed = m.newFeed(m.cfg.by.filters(m.filter, r.partition), false)
		feed.add(l)
		m.work.Go(func() { feed.run(ctx) })
	}
	l.rewind = feed.restart
	m.work.Go(func() {
		defer cancel()
		l.run(ctx)
	})
	return l
}

// wentBack gives the partition up and has it taken over again, from where the database is: it has lost what this lane had
// committed, as a standby may that took over, or one that was restored.
func (l *lane) wentBack(to, from uint64) {
	if !l.left {
		l.m.log.Error("the database went back; its messages are handled again", "partition", l.partition, "from", from, "to", to)
		l.quit()
	}
}

// quit tells a lane to end after the batch at work, which has Drain for that. Of the goroutine that places.
func (l *lane) quit() {
	if !l.left {
		l.left = true
		close(l.leave)
		time.AfterFunc(l.m.cfg.drain, l.cancel)
	}
}
