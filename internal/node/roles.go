package node

import (
	"context"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/bus"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/supervisor"
)

// openDoor is the ingest role while it runs.
type openDoor struct{ in *ingest.Ingest }

func (n *Node) doorConfig() ingest.Config {
	return ingest.Config{
		Stream: n.conn.Names().StreamTasks(), Partitions: n.cfg.Partitions, PartitionOf: bus.PartitionOf, SizeOf: bus.PackedSize,
		CheckReplyTo: func(subject string) error { return n.conn.Names().CheckReplyTo(subject, n.cfg.ReplyTo) },
		PayloadMax:   n.conn.MaxPayload(),
	}
}

// runIngest serves the front door. An abrupt end makes no difference to it: what
// has no answer was promised nothing, and the answers that are due are cheap.
func (n *Node) runIngest(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	behind := newBacklog(n.conn)
	door, err := ingest.NewDoor(n.doorConfig(), n.plans, doorLog{n.conn}, behind)
	if err != nil {
		return err
	}
	in := ingest.New(door, now)
	if err := n.plans.read(ctx); readFailed(err) {
		n.log.Warn("cannot read the plans yet", "error", err)
	}
	changed, err := n.conn.OnPlansChanged(func() {
		n.plans.Reload(func(err error) {
			if readFailed(err) {
				n.log.Warn("plans changed, but cannot be read; a submission that needs them reads them again", "error", err)
			}
		})
	})
	if err != nil {
		return err
	}
	defer changed.Stop()
	reads := newReads(ctx, n)
	defer reads.wait()
	taken, err := n.newAsks()
	if err != nil {
		return err
	}
	working := newAskDoor(taken)
	defer working.wg.Wait()
	asks, err := n.conn.ServeAsk(working.serve, reads.serve)
	if err != nil {
		return err
	}
	defer asks.Stop()
	submits, err := n.conn.ServeSubmit(func(r *bus.SubmitRequest) { in.Submit(submission(r)) })
	if err != nil {
		return err
	}
	n.setDoor(&openDoor{in}) // ready only now: a request before the subscription has no responder
	defer n.setDoor(nil)
	// The subscription ends first, so that what it has is still answered.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { behind.run(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		submits.Stop()
		cancel()
	})
	err = in.Run(work)
	end() // also when it ended by itself
	wg.Wait()
	return err
}

func (n *Node) setDoor(d *openDoor) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.door = d
}

// currentDoor is the front door while it is open here, else nil.
func (n *Node) currentDoor() *openDoor {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.door
}

// flooded reports whether this node has the front door, and it is flooded.
func (n *Node) flooded() bool {
	door := n.currentDoor()
	return door != nil && door.in.Flooded()
}

func (n *Node) setOwner(o owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own = o
}

// schedulerConfig is this node's scheduler, as it is when it may drain.
func (n *Node) schedulerConfig() scheduler.RunConfig {
	return scheduler.RunConfig{
		Config:     scheduler.Config{Node: n.cfg.NodeName, InFlight: n.cfg.InFlight, AgentWindow: n.cfg.AgentWindow, Genuine: n.conn.Genuine},
		Partitions: n.cfg.Partitions, Shards: n.cfg.Shards, DrainMax: n.cfg.Drain, Now: now, Rand: random,
		CommitGap: n.cfg.CommitGap, Flooded: n.flooded, Retain: scheduler.Retention{Detail: n.cfg.RetainDetail, Row: n.cfg.RetainRow},
	}
}

// runScheduler owns partitions while this node's lease lives.
func (n *Node) runScheduler(ctx context.Context, abrupt bool) error {
	cfg := n.schedulerConfig()
	if abrupt {
		cfg.DrainMax = -1
	}
	inboxes := make(replies, n.cfg.Partitions)
	sender, err := n.conn.NewSender(bus.Replies{Reply: inboxes.reply, Unserved: inboxes.unserved})
	if err != nil {
		return err
	}
	defer sender.Close()
	s := scheduler.New(cfg, n.store, ownerBus{n.conn, sender, n.log}, ownerWires{n, inboxes}, n.members(abrupt), n.log)
	applies, err := n.conn.ServePlans(n.applyPlan)
	if err != nil {
		return err
	}
	defer applies.Stop()
	changed, err := n.conn.OnPlansChanged(s.PlansChanged)
	if err != nil {
		return err
	}
	defer changed.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	roomy, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { n.keepRoom(roomy) })
	n.setOwner(s) // ready only now: plans can be applied
	defer n.setOwner(nil)
	return s.Run(ctx)
}

// members is scheduler.Members: it keeps this node's lease and watches all.
func (n *Node) members(abrupt bool) scheduler.Members { return &membership{n: n, abrupt: abrupt} }

type membership struct {
	n      *Node
	abrupt bool
}

// Watch implements scheduler.Members.
func (m *membership) Watch(ctx context.Context, live func([]string)) error {
	lease, err := m.n.conn.NewLease(bus.NodeKey(m.n.cfg.NodeName), m.n.cfg.NodeName, m.n.cfg.Lease)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.keep(ctx, lease) })
	defer wg.Wait()
	for {
		err := m.n.conn.WatchNodes(ctx, live)
		if ctx.Err() != nil {
			return nil
		}
		m.n.log.Warn("cannot watch the live nodes; trying again", "error", err)
		if !wait(ctx, time.Second) {
			return nil
		}
	}
}

// keep renews the lease. One that an earlier life of this node has not let go
// yet is asked for more often.
func (m *membership) keep(ctx context.Context, lease *bus.Lease) {
	failing := false
	for {
		held, err := lease.Renew(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			m.n.log.Warn("cannot renew this node's lease; trying again", "error", err)
			failing = true
		case err == nil && failing:
			m.n.log.Info("this node's lease is renewed again", "held", held)
			failing = false
		}
		pause := m.n.cfg.Lease / 3
		if !held {
			pause = m.n.cfg.Lease / 20
		}
		if !wait(ctx, pause) {
			break
		}
	}
	if m.abrupt {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := lease.Release(bounded); err != nil {
		m.n.log.Debug("this node's lease ends by itself", "error", err)
	}
}

// wait waits for d; false: ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// runSupervisor looks for what is overdue while it leads, and raises alerts.
func (n *Node) runSupervisor(ctx context.Context, abrupt bool) error {
	lease, err := n.conn.NewLease(bus.KeyLeader, n.cfg.NodeName, n.cfg.Lease)
	if err != nil {
		return err
	}
	sup := supervisor.New(supervisor.Config{}, n.store, controls{n.conn}, leadership{lease, abrupt})
	alerter := supervisor.NewAlerter(supervisor.AlertConfig{}, supervisor.LogSink{Log: n.log})
	cfg := supervisor.RunConfig{Interval: n.cfg.ScanInterval, Now: now}
	return supervisor.NewRunner(cfg, sup, alertReader{n.conn}, alerter, n.log).Run(ctx)
}

// leadership is supervisor.Lease; a killed leader releases nothing.
type leadership struct {
	*bus.Lease
	abrupt bool
}

// Release implements supervisor.Lease.
func (l leadership) Release(ctx context.Context) error {
	if l.abrupt {
		return nil
	}
	return l.Lease.Release(ctx)
}

// alertReader is supervisor.Alerts on the event stream.
type alertReader struct{ conn *bus.Conn }

// Errors implements supervisor.Alerts.
func (r alertReader) Errors(ctx context.Context, take func(core.Ending) error) error {
	return r.conn.ReadErrors(ctx, take)
}
