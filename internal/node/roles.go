package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/supervisor"
)

func (n *Node) doorConfig(taken ingest.Taken) ingest.Config {
	shares, _ := n.cfg.Shares() // the settings have been checked
	return ingest.Config{
		TenantLabel: n.cfg.TenantLabel, Weights: shares.Tenants,
		StreamOf: n.conn.StreamTasks, Partitions: n.cfg.Partitions, PartitionOf: wire.PartitionOf, SizeOf: wire.PackedSize,
		CheckReplyTo: func(subject string) error { return n.conn.Names().CheckReplyTo(subject, n.cfg.ReplyTo) },
		BytesMax:     doorBytes(n.budget(), n.cfg.TaskStreams),
		Taken:        taken, RecentBytes: n.cfg.RecentBytes, CheckInput: n.schemas.input, Admit: n.forecasts.admit, Needs: n.forecasts.needs,
	}
}

// doorBytes bounds the bytes of unanswered submissions. Low ones have half of their stream's share: the largest must fit
// into it, or it would be refused each time.
func doorBytes(budget int64, streams int) int64 {
	const largest = core.InputBytesMax + 16<<10 // with all that is not its input
	return max(min(ingest.DefaultBytesMax, budget/8), 2*largest*int64(streams))
}

// runIngest serves the front door. An abrupt end makes no difference to it: what
// has no answer was promised nothing, and the answers that are due are cheap.
func (n *Node) runIngest(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ids := newTaken(ctx, n.store)
	defer ids.wait()
	cfg := n.doorConfig(ids)
	cfg.PayloadMax = n.conn.MaxPayload()
	door, err := ingest.NewDoor(cfg, n.plans, doorLog{n.conn})
	if err != nil {
		return err
	}
	in := ingest.New(door, n.clock.instant)
	changed, err := n.conn.OnPlansChanged(func() { n.plans.Reload(func(error) {}) })
	if err != nil {
		return err
	}
	defer changed.Stop()
	readings, err := n.conn.OnReadings(door.Report)
	if err != nil {
		return err
	}
	defer readings.Stop()
	reads := newReads(ctx, n)
	defer reads.wait()
	requests, err := n.newRequests()
	if err != nil {
		return err
	}
	working := newAskDoor(requests)
	defer working.wait()
	asks, err := n.conn.ServeAsk(working.serve, reads.serve)
	if err != nil {
		return err
	}
	defer asks.Stop()
	submits, err := n.conn.ServeSubmit(func(r *natsbus.SubmitRequest) { in.Submit(submission(r)) })
	if err != nil {
		return err
	}
	outboxes, closeOutboxes, err := n.openOutboxes(ctx, in)
	if err != nil {
		return err
	}
	defer closeOutboxes()
	n.door.Store(in) // ready only now: a request before the subscription has no responder
	defer n.door.Store(nil)
	// The subscription ends first, so that what it has is still answered.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { n.plans.keepRead(ctx, func() {}) })
	wg.Go(func() { n.relayOutboxes(ctx, outboxes) })
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

// overloaded reports whether this node has the scheduler role, and its scheduler is overloaded.
func (n *Node) overloaded() bool {
	own := n.owning()
	return own != nil && own.Overloaded()
}

// owning is the scheduler role while it runs, else nil.
func (n *Node) owning() owner {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.own
}

func (n *Node) setOwner(o owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own = o
}

// schedulerConfig is this node's scheduler, as it is when it may drain.
func (n *Node) schedulerConfig() scheduler.RunConfig {
	shares, _ := n.cfg.Shares() // the settings have been checked
	return scheduler.RunConfig{
		Config: scheduler.Config{Node: n.cfg.NodeName, Expressions: &expressions{}, InFlight: n.cfg.InFlight, AgentWindow: n.cfg.AgentWindow, Genuine: n.conn.Genuine, Hears: n.conn.Hears, CheckInput: n.schemas.input, CheckSignal: n.schemas.signal, Observers: n.observers, Now: n.clock.instant, Memory: scheduler.NewMemory(n.budget() / 2),
			TenantLabel: n.cfg.TenantLabel, Weights: scheduler.Weights(shares),
			Report: func(what scheduler.Trouble, err error) { n.report(string(what), err) }},
		Partitions: n.cfg.Partitions, Shards: n.cfg.Shards, DrainMax: n.cfg.Drain, Rand: random,
		CommitGap: n.cfg.CommitGap, Retain: scheduler.Retention{Detail: n.cfg.RetainDetail, Row: n.cfg.RetainRow, Audit: n.cfg.RetainAudit}, Begins: n.conn.Begins,
	}
}

// runScheduler owns partitions while this node's lease lives.
func (n *Node) runScheduler(ctx context.Context, abrupt bool) error {
	lease, err := n.nodeLease()
	if err != nil {
		return err
	}
	cfg := n.schedulerConfig()
	cfg.Leased = lease.Term
	if abrupt {
		cfg.DrainMax = -1
	}
	n.obey(&cfg)
	stopLearning := n.forecasts.learn(&cfg)
	defer stopLearning()
	stopTelling := n.tellSteps(&cfg)
	defer stopTelling()
	inboxes := make(replies, n.cfg.Partitions)
	sender, err := n.conn.NewSender(natsbus.Replies{Reply: inboxes.reply, Unserved: inboxes.unserved})
	if err != nil {
		return err
	}
	defer sender.Close()
	asks := newProbes(n.clock.instant, n.conn.AskProbe, n.log)
	defer asks.close()
	s := scheduler.New(cfg, n.store, ownerBus{n, sender, asks}, newOwnerWires(n, inboxes), n.membership(abrupt), n.log)
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
	paused, err := n.hearPauses(s)
	if err != nil {
		return err
	}
	defer paused.Stop()
	away, err := n.conn.ServeAway(func() wire.AwayReport { return n.awayReport(s) })
	if err != nil {
		return err
	}
	defer away.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	roomy, stop := context.WithCancel(ctx)
	defer stop()
	stopTraces := n.followTraces()
	defer stopTraces()
	wg.Go(func() { n.keepRoom(roomy) })
	wg.Go(func() { n.keepSettled(roomy) })
	wg.Go(func() { n.plans.keepRead(roomy, s.PlansChanged) })
	wg.Go(func() { n.tellReadings(roomy, s) })
	if n.cfg.TaskStreams > 1 {
		wg.Go(func() { n.conn.ForwardIn(roomy) })
	}
	n.setOwner(s) // ready only now: plans can be applied
	defer n.setOwner(nil)
	return s.Run(ctx)
}

// membership is scheduler.Members: it keeps this node's lease and watches all.
func (n *Node) membership(abrupt bool) scheduler.Members { return &membership{n: n, abrupt: abrupt} }

type membership struct {
	n      *Node
	abrupt bool
}

// Watch implements scheduler.Members.
func (m *membership) Watch(ctx context.Context, live func([]string)) error {
	lease, err := m.n.nodeLease()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	claimed := make(chan struct{})
	wg.Go(func() {
		if err := m.keep(ctx, lease, sync.OnceFunc(func() { close(claimed) })); err != nil {
			cancel(err)
		}
	})
	defer wg.Wait()
	// A name that is another's is live, and must not be taken for this node's.
	select {
	case <-claimed:
	case <-ctx.Done():
	}
	m.n.watchNodes(ctx, live)
	if cause := context.Cause(ctx); errors.Is(cause, errNameTaken) {
		return cause
	}
	return nil
}

// errNameTaken says that another live process has this node's name.
var errNameTaken = errors.New("node-name: another live process has it")

// nameMargin is how much longer than a lease an earlier life of this node may seem to live: the server looks for
// leases that have run out from time to time.
const nameMargin = 4 * time.Second

// claim is the first taking of this node's lease. An earlier life's lease runs out; another process renews its own.
type claim struct {
	since time.Time // when the lease was first found to be another's
	found uint64    // its revision then
}

// check returns errNameTaken once it is certain that a live process has the lease.
func (c *claim) check(ctx context.Context, n *Node) error {
	holder, err := n.conn.Holder(ctx, wire.NodeKey(n.cfg.NodeName))
	if err != nil || holder == nil {
		c.since = time.Time{} // nothing is known
		return nil            //nolint:nilerr // what is wrong is reported by the renewals
	}
	if c.since.IsZero() {
		c.since, c.found = time.Now(), holder.Revision
		return nil
	}
	if holder.Revision == c.found && time.Since(c.since) < n.cfg.Lease+nameMargin {
		return nil
	}
	began := "an unknown time"
	if !holder.Since.IsZero() {
		began = holder.Since.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: %q, since %s; two of one name would take each other's partitions: give each --node-name of its own, or none",
		errNameTaken, n.cfg.NodeName, began)
}

// nodeLease is this node's lease. A role that begins again in the same process has the one it had.
func (n *Node) nodeLease() (lease *natsbus.Lease, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lease == nil {
		n.lease, err = n.conn.NewLease(wire.NodeKey(n.cfg.NodeName), n.cfg.NodeName, n.cfg.Lease)
	}
	return n.lease, err
}

// keep renews the lease, and calls claimed when it has it. One that an earlier life of this node has not let go
// yet is asked for more often. Error: errNameTaken, of a node that has just begun;
// one that has had the lease goes on without it, because its partitions are fenced.
func (m *membership) keep(ctx context.Context, lease *natsbus.Lease, claimed func()) error {
	had := false
	var first claim
	for {
		held, err := lease.Renew(ctx)
		if had = had || held; had {
			claimed()
		}
		if ctx.Err() == nil && (had || err != nil) {
			if err == nil && !held {
				err = errNameTaken
			}
			m.n.report(condNodeLease, err)
		}
		if ctx.Err() == nil && !had && err == nil {
			if err := first.check(ctx, m.n); err != nil {
				return err
			}
		}
		between := m.n.cfg.Lease / 3
		if !held {
			between = m.n.cfg.Lease / 20
		}
		if pause.For(ctx, between) != nil {
			break
		}
	}
	if m.abrupt {
		return nil
	}
	bounded, cancel := m.n.ending(ctx, readTimeout)
	defer cancel()
	if err := lease.Release(bounded); err != nil {
		m.n.log.Debug("this node's lease ends by itself", "error", err)
	}
	return nil
}

// runSupervisor looks for what is overdue while it leads, and raises alerts.
func (n *Node) runSupervisor(ctx context.Context, abrupt bool) error {
	lease, err := n.conn.NewLease(wire.KeyLeader, n.cfg.NodeName, n.cfg.Lease)
	if err != nil {
		return err
	}
	sup := supervisor.New(supervisor.Config{}, n.store, controls{n.conn}, leadership{lease, abrupt})
	alerter := supervisor.NewAlerter(supervisor.AlertConfig{}, taskAlerts{n, n.told})
	cfg := supervisor.RunConfig{Interval: n.cfg.ScanInterval, Now: n.clock.instant,
		Report: func(what supervisor.Trouble, err error) { n.report(string(what), err) }}
	runner := supervisor.NewRunner(cfg, sup, alertReader{n.conn}, alerter, n.log)
	n.sup.Store(runner)
	defer n.sup.Store(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { n.plans.keepRead(ctx, func() {}) }) // for what is told of tasks that are at risk, or expected
	if err := n.deliver(ctx, &wg); err != nil {
		return err
	}
	endRepairs := n.runRepairs(ctx, runner)
	defer endRepairs()
	endBooks, err := n.runBooks(ctx, runner)
	if err != nil {
		return err
	}
	defer endBooks()
	endSchedules := n.runSchedules(ctx, runner)
	defer endSchedules()
	return runner.Run(ctx)
}

// leadership is supervisor.Lease; a killed leader releases nothing.
type leadership struct {
	*natsbus.Lease
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
type alertReader struct{ conn *natsbus.Conn }

// Errors implements supervisor.Alerts.
func (r alertReader) Errors(ctx context.Context, take func(e core.Ending, done func(error))) error {
	return r.conn.ReadErrors(ctx, take)
}
