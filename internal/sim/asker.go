package sim

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/supervisor"
)

// boss is one supervisor process. In the storm none may lead, or both, and one
// that stands still asks with what it read long ago.
type boss struct {
	w     *World
	i     int
	cfg   supervisor.Config
	clock *clock
	s     *supervisor.Supervisor
	call  *proc
	held  bool // it thought that it led when it last looked
}

// addSupervisors makes two of them, which look so often.
func (w *World) addSupervisors(every time.Duration, cfg supervisor.Config) {
	for i := range 2 {
		b := &boss{w: w, i: i, cfg: cfg, clock: w.newClock()}
		b.restart()
		w.bosses = append(w.bosses, b)
		w.every(every, b.tick)
	}
}

func (b *boss) restart() {
	b.s = supervisor.New(b.cfg, bossStore{b.w.tables(), b}, askBus{b}, lease{b})
}

func (b *boss) tick() {
	if b.call != nil && !b.call.dead {
		return // it is still at the last one
	}
	b.call = b.w.start(func() {
		_, _ = b.s.Tick(context.Background(), b.clock.now()) // what a fault left undone, the next tick does
	})
}

// point is a moment between two things a supervisor does.
func (b *boss) point() {
	w := b.w
	switch {
	case w.fault(SupervisorCrash):
		b.restart()
		panic(errKilled)
	case w.fault(SupervisorFreeze):
		w.wait(w.upTo(3 * time.Second))
	}
}

// bossStore is the state store as a supervisor sees it.
type bossStore struct {
	tables
	b *boss
}

func (s bossStore) Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	s.b.point()
	if s.b.w.unreachable() || s.b.w.fault(ReadFails) {
		return nil, errFault
	}
	return s.tables.Overdue(ctx, since, now, after, limit)
}

// lease is the leadership as one supervisor sees it.
type lease struct{ b *boss }

func (l lease) Renew(context.Context) (bool, error) {
	w := l.b.w
	if w.fault(LeaseFails) {
		return false, errFault
	}
	l.b.held = l.b.i == 0 != w.fault(LeaseWrong)
	for _, o := range w.bosses {
		if o != l.b && o.held && l.b.held && w.storm {
			w.note(TwoLeaders)
		}
	}
	return l.b.held, nil
}

func (lease) Release(context.Context) error { return nil }

// askBus is the control stream as a supervisor sees it.
type askBus struct{ b *boss }

func (a askBus) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	w := a.b.w
	a.b.point()
	if w.during(w.others) || w.during(w.full) || w.fault(AskFails) {
		return 0, errFault
	}
	seq := w.append(&w.controls, message{partition: partition, control: c})
	if w.fault(AskAnswerLost) {
		return 0, errFault
	}
	return seq, nil
}
