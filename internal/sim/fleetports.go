package sim

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// queue is a server with workers: what it is asked waits for the first that is free.
type queue struct {
	w    *World
	free []core.Instant
}

func newQueue(w *World, workers int) *queue { return &queue{w, make([]core.Instant, workers)} }

// load gives the server work that is not waited for, and says when it is done.
func (q *queue) load(cost time.Duration) core.Instant {
	least := 0
	for i, at := range q.free {
		if at < q.free[least] {
			least = i
		}
	}
	q.free[least] = max(q.w.now, q.free[least]).Add(cost)
	return q.free[least]
}

// ask waits until the server has done something, and for the way there and back.
func (q *queue) ask(cost time.Duration) {
	done := q.load(cost)
	q.w.wait(done.Sub(q.w.now) + 200*time.Microsecond + q.w.upTo(300*time.Microsecond))
}

// deliver counts messages to watchers, and what they cost NATS.
func (f *Fleet) deliver(what string, n int) {
	f.count(what, n)
	f.nats.load(time.Duration(n) * natsDelivery)
}

// fleetStore is the database as a node asks it.
type fleetStore struct {
	*MemStore
	n *fleetNode
}

// statements are asked one after the other; rows of partitions are returned, or only looked at.
func (s fleetStore) statements(n, rows, looked int) {
	f := s.n.f
	f.count("SQL statements", n)
	f.count("SQL rows of partitions", rows)
	for i := range n {
		cost := sqlStatement
		if i == 0 {
			cost += time.Duration(rows)*sqlRowNanos + time.Duration(looked)*sqlScanNanos
		}
		f.sql.ask(cost)
	}
}

func (s fleetStore) sync() { s.n.f.w.wait(sqlSync) }

// TakeOver is begin, select, update, commit.
func (s fleetStore) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	s.statements(4, 1, 0)
	s.sync()
	return s.MemStore.TakeOver(ctx, p, c)
}

// Release is one statement.
func (s fleetStore) Release(ctx context.Context, p int, epoch int64) error {
	s.statements(1, 0, 0)
	s.sync()
	return s.MemStore.Release(ctx, p, epoch)
}

// LoadActive finds nothing: there are no tasks.
func (s fleetStore) LoadActive(context.Context, core.AsOf, int64, int) ([]core.Saved, error) {
	s.statements(1, 0, 0)
	return nil, nil
}

// WaitingAgents finds none.
func (s fleetStore) WaitingAgents(context.Context, core.AsOf) ([]string, error) {
	s.statements(1, 0, 0)
	return nil, nil
}

// Untold finds none.
func (s fleetStore) Untold(context.Context, core.AsOf, int64, int) ([]core.Ending, error) {
	s.statements(1, 0, 0)
	return nil, nil
}

// Fresh finds none.
func (s fleetStore) Fresh(context.Context, core.AsOf, int64, int64, int64) ([]core.Fresh, error) {
	s.statements(1, 0, 0)
	return nil, nil
}

// CursorsOf finds rows by their key; for those of an owner all are looked at.
func (s fleetStore) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	all, err := s.MemStore.CursorsOf(ctx, partitions, owner)
	looked := 0
	if owner != "" {
		looked = s.n.f.cfg.Partitions
	}
	s.statements(1, len(all), looked)
	return all, err
}

// fleetBus has no commands to carry: only evidence leaves.
type fleetBus struct {
	scheduler.Bus
	n *fleetNode
}

// Record brings evidence to the nodes that watch it.
func (b fleetBus) Record(all []core.Evidence) {
	f := b.n.f
	for _, e := range all {
		f.count("NATS requests", 1)
		f.count("of these: evidence", 1)
		f.nats.load(natsRequest)
		to := f.evidence
		if e.Former {
			to = f.former
		}
		if e.Newer(to[e.Partition]) {
			to[e.Partition] = e
		}
		heard := 0
		for _, o := range f.nodes {
			if !o.claimed || !o.connected() || !o.watches(e.Partition) {
				continue
			}
			heard++
			o.after(f.w.upTo(2*time.Millisecond), func() {
				o.sched.Heard(e)
				for _, l := range o.loops {
					l.wake()
				}
			})
		}
		f.deliver("evidence deliveries", heard)
	}
}

// evidenceApart is that of natsbus: a node with more partitions watches all.
const evidenceApart = 128

// watches reports whether a node watches the evidence of a partition.
func (n *fleetNode) watches(p int) bool { return n.hears[p] || len(n.hears) > evidenceApart }

// fleetWires are the requests that internal/node makes of NATS for one partition.
type fleetWires struct {
	n    *fleetNode
	life int
}

// Ground is two keys, the stream and its last message, and both streams again.
func (v fleetWires) Ground(_ context.Context, p int) (scheduler.Ground, error) {
	for range 6 {
		if err := v.n.request("look at the ground", natsRequest); err != nil {
			return scheduler.Ground{}, err
		}
	}
	f := v.n.f
	return scheduler.Ground{Stream: fleetStream, Evidence: f.evidence[p], Former: f.former[p]}, nil
}

// Listen is a subscription.
func (v fleetWires) Listen(p int, _ *scheduler.Inbox) (func(), error) {
	v.n.hears[p] = true
	return func() { delete(v.n.hears, p) }, nil
}

// Read makes the consumers of two streams: it looks at the stream, lists the consumers, makes one and deletes those of owners before.
func (v fleetWires) Read(_ context.Context, p int, from scheduler.Adopted, _ *scheduler.Inbox, _ func(error)) (func(), error) {
	n, f := v.n, v.n.f
	for range 2 {
		cost := []time.Duration{natsRequest, natsConsumer}
		for range (f.cfg.Partitions + natsNames - 1) / natsNames {
			cost = append(cost, time.Duration(min(f.cfg.Partitions, natsNames))*natsNameNanos)
		}
		if from.Epoch > 1 {
			cost = append(cost, natsConsumer)
		}
		for _, c := range cost {
			if err := n.request("consumers", c); err != nil {
				return nil, err
			}
		}
	}
	if before := f.reads[p]; before != nil && before.epoch > from.Epoch {
		return nil, core.ErrOvertaken
	}
	f.readBy(p, &fleetRead{n, v.life, from.Epoch})
	return func() {
		if r := f.reads[p]; r != nil && r.n == n && r.life == v.life && r.epoch == from.Epoch {
			f.unreads(p)
		}
	}, nil
}

// Evidence is handed over by the fleet itself.
func (v fleetWires) Evidence(context.Context, func(core.Evidence)) error { return nil }
