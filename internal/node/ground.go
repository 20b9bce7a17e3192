package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/supervisor"
)

// Names of the conditions of a node. They are shown to strangers, so they say nothing about addresses or accounts.
const (
	condNATS         = "nats"
	condNATSClosed   = "nats-closed"
	condDatabase     = "database"
	condCommits      = "commits"
	condStreams      = "streams"
	condInstallation = "installation"
	condPartitions   = "partitions"
	condMembers      = "members"
	condNodeLease    = "node-lease"
	condLeader       = "leader"
	condClock        = "clock"
	condClockFar     = "clock-far"
	condStoring      = "storing"
	condPlans        = "plans"
	condEvidence     = "evidence"
	condObservers    = "observers"
	condWishes       = "wishes"
	condRights       = "rights"
	condRightsOther  = "rights-other"
)

// Graces that differ from the usual one.
const (
	// databaseGrace: a failover of a few seconds should not take every node out of service at once.
	databaseGrace = 5 * time.Second
	// leaderGrace is how long after the end of a lease another supervisor may need to take it.
	leaderGrace = 10 * time.Second
)

// conditions are all that a node with these roles needs, in the order in which readiness lists them. docs/operations/health.md has
// the same table.
func (n *Node) conditions() []ground.Condition {
	natsReady := ground.DefaultReady
	if n.cfg.Has(config.RoleIngest) { // what comes in the meantime is refused
		natsReady = ground.AtOnce
	}
	all := []ground.Condition{
		{
			Name: condNATS, ReadyAfter: natsReady, Consequence: ground.NotReady, Proven: true, Probe: n.probeNATS,
		}, {
			Name: condNATSClosed, Grace: ground.AtOnce, Consequence: ground.Fatal, Probe: n.probeClosed,
		}, {
			Name: condInstallation, Shared: true, Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: func(context.Context) []ground.Found { return n.streamTrouble(true) },
		}, {
			Name: condRights, Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: n.probeRights, Every: rightsEvery,
		}, {
			Name: condRightsOther,
		}, {
			Name: condStreams, Shared: true, Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: func(context.Context) []ground.Found { return n.streamTrouble(false) },
		}, {
			Name: condDatabase, ReadyAfter: databaseGrace, Consequence: ground.NotReady, Proven: true, Probe: func(ctx context.Context) error { return n.store.Ping(ctx) },
		}, {
			Name: condPartitions, Shared: true, Consequence: ground.NotReady, Probe: n.probePartitions,
		}, {
			Name: natsbus.TroubleWatch,
		}, {
			Name: condMembers,
		}, {
			Name: condClock, Grace: ground.AtOnce,
		}, {
			Name: condPlans,
		}, {
			Name: condObservers, Grace: ground.AtOnce,
		},
	}
	all = append(all, n.heldCondition())
	if n.cfg.Has(config.RoleIngest) {
		all = append(all, n.roleCondition(config.RoleIngest, func() bool { return n.door.Load() != nil }), n.outboxCondition(), n.overloadCondition())
	}
	if n.cfg.Has(config.RoleScheduler) {
		all = append(all, n.schedulerConditions()...)
		all = append(append(all, n.roomConditions()...), n.unreadCondition())
	}
	if n.cfg.Has(config.RoleSupervisor) {
		all = append(all, n.roleCondition(config.RoleSupervisor, func() bool { return n.sup.Load() != nil }), ground.Condition{
			Name: condLeader, Shared: true, Grace: n.cfg.Lease + leaderGrace, ReadyAfter: n.cfg.Lease + leaderGrace, Consequence: ground.NotReady, Probe: n.probeLeader,
		}, ground.Condition{
			Name: string(supervisor.TroubleTick), Consequence: ground.NotReady,
		}, ground.Condition{
			Name: string(supervisor.TroubleAlerts),
		}, operationsCondition())
	}
	all = append(all, n.operatorConditions(n.cfg.Has(config.RoleScheduler), n.cfg.Has(config.RoleSupervisor))...)
	for i := range all {
		c := &all[i]
		c.Wanted, c.Begin, c.End = say.Of("wanted."+c.Name, "slack", clockSlack, "max", clockMax), say.Of("begins."+c.Name), say.Of("ends."+c.Name)
	}
	return all
}

// roleCondition is that a role runs. It is told late: a role that begins, or ends with the process, is no trouble.
func (n *Node) roleCondition(role string, runs func() bool) ground.Condition {
	return ground.Condition{
		Name: role, ReadyAfter: ground.AtOnce, Consequence: ground.NotReady, Proven: true, Every: roleEvery,
		Probe: func(context.Context) error {
			if !runs() {
				return errors.New("not running")
			}
			return nil
		},
	}
}

// roleEvery is how often a node looks whether its roles run: it costs nothing, and makes readiness prompt at a start.
const roleEvery = 100 * time.Millisecond

func (n *Node) schedulerConditions() []ground.Condition {
	return []ground.Condition{
		n.roleCondition(config.RoleScheduler, func() bool { return n.owning() != nil }), {
			Name: condCommits, Consequence: ground.NotReady, Each: n.probeCommits,
		}, {
			Name: natsbus.TroubleReaders, Consequence: ground.NotReady,
		}, {
			Name: condNodeLease, Consequence: ground.NotReady, Proven: true, // till then its name may be another's
		}, {
			Name: condClockFar, Grace: ground.AtOnce, Consequence: ground.NotReady,
		}, {
			Name: condEvidence,
		}, {
			Name: condStoring, Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleOwners), Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleTakeover), Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleRelease),
		}, {
			Name: string(scheduler.TroubleCycle), Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleEvents), Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleForget),
		}, {
			Name: string(scheduler.TroublePauses),
		}, {
			Name: string(scheduler.TroubleLimits),
		}, {
			Name: string(scheduler.TroubleBreakers),
		}, {
			Name: condWishes,
		},
	}
}

// stand makes the ground of the node, and the reporters of what is not probed.
func (n *Node) stand(sink ground.Sink) {
	n.ground = ground.New(sink)
	n.reporters = map[string]ground.Reporter{}
	for _, c := range n.conditions() {
		n.reporters[c.Name] = n.ground.Add(c)
	}
}

// report reports a condition that is not probed; one that this node does not have is ignored.
func (n *Node) report(name string, err error) {
	if r, ok := n.reporters[name]; ok {
		r.Report(err)
	}
}

// reportObserver reports how one observer is.
func (n *Node) reportObserver(name string, err error) {
	if r, ok := n.reporters[condObservers]; ok {
		r.Found(ground.Found{Key: name, Err: err})
	}
}

// runGround supervises what the node stands on until ctx ends.
func (n *Node) runGround(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.ground.Run(ctx) })
	wg.Go(func() { n.watchMembers(ctx) })
	wg.Go(func() { n.watchClocks(ctx) })
	wg.Go(func() { n.raiser.run(ctx, n) })
	wg.Go(func() { n.observers.Guard("survey", func() { n.survey.run(ctx, n) }) })
	wg.Wait()
	return nil
}

func (n *Node) probeNATS(context.Context) error {
	if !n.conn.Connected() {
		return errors.New("no connection")
	}
	return nil
}

func (n *Node) probeClosed(context.Context) error {
	if err := n.conn.Closed(); err != nil {
		return fmt.Errorf("restart the node: %w", err)
	}
	return nil
}

// WriteError is the stream or bucket that met a write error, and takes nothing until the
// NATS server is started again; nil: none.
func (n *Node) WriteError() error {
	for _, t := range n.conn.Trouble() {
		if errors.Is(t.Err, natsbus.ErrWrite) {
			return fmt.Errorf("%s: %w", t.Name, t.Err)
		}
	}
	return nil
}

// streamTrouble is what the connection knows of the streams and buckets: of those that are
// another installation's, or of all others.
func (n *Node) streamTrouble(foreign bool) []ground.Found {
	var all []ground.Found
	for _, t := range n.conn.Trouble() {
		if t.Name == natsbus.TroubleConnection || errors.Is(t.Err, natsbus.ErrInstallation) != foreign {
			continue
		}
		all = append(all, ground.Found{Key: t.Name, Err: fmt.Errorf("%s: %w", t.Name, t.Err), Since: t.Since})
	}
	return all
}

func (n *Node) probeCommits(context.Context) []ground.Found {
	since, reason := n.store.Trouble()
	if reason == nil {
		return nil
	}
	return []ground.Found{{Err: reason, Since: since}}
}

// members is what the ground knows of the live nodes.
type members struct {
	mu    sync.Mutex
	live  []string
	known bool
}

func (m *members) set(nodes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live, m.known = nodes, true
}

func (m *members) get() (nodes []string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live, m.known
}

// watchMembers keeps the live nodes up to date, whatever the node's roles.
func (n *Node) watchMembers(ctx context.Context) {
	n.watchNodes(ctx, n.members.set)
}

// watchNodes calls live with the live nodes, whenever they change, until ctx ends. A watch
// that breaks is begun again.
func (n *Node) watchNodes(ctx context.Context, live func(nodes []string)) {
	for {
		err := n.conn.WatchNodes(ctx, func(nodes []string) {
			n.report(condMembers, nil)
			live(nodes)
		})
		if ctx.Err() != nil {
			return
		}
		n.report(condMembers, err)
		if pause.For(ctx, time.Second) != nil {
			return
		}
	}
}

// probePartitions names the partitions whose owner does not live, of all that there are.
func (n *Node) probePartitions(ctx context.Context) error {
	live, known := n.members.get()
	if !known {
		return ground.ErrUnknown // another condition says so
	}
	states, err := n.store.Unowned(ctx, live)
	if err != nil {
		return ground.ErrUnknown // the database is another condition
	}
	return unowned(states, n.cfg.Partitions)
}

// unowned is the error about these partitions without a live owner, of so many that there are.
func unowned(states []core.PartitionState, partitions int) error {
	if len(states) == 0 {
		return nil
	}
	const most = 8
	var free []string
	for i := range states {
		if s := &states[i]; s.Owner == "" {
			free = append(free, say.Of("alert.no-owner", "partition", s.Partition))
		} else {
			free = append(free, say.Of("alert.owner-gone", "partition", s.Partition, "owner", s.Owner))
		}
	}
	text := strings.Join(free[:min(most, len(free))], "; ")
	if len(free) > most {
		text += "; …"
	}
	return errors.New(say.Of("alert.unowned", "n", len(free), "of", partitions, "which", text))
}

// leading is the leader's lease as it was last seen. Only the probe uses it.
type leading struct {
	revision uint64
	since    time.Time // when it was first seen so
}

// probeLeader looks for a leader: this supervisor or, by the lease, another that renews it.
func (n *Node) probeLeader(ctx context.Context) error {
	if n.leads() {
		return nil
	}
	holder, err := n.conn.Holder(ctx, wire.KeyLeader)
	if err != nil {
		return err
	}
	if holder == nil {
		return errors.New("no one holds the leader's lease")
	}
	if l := &n.leading; l.revision != holder.Revision {
		l.revision, l.since = holder.Revision, time.Now()
	} else if time.Since(l.since) > n.cfg.Lease {
		return fmt.Errorf("%s has the leader's lease and does not renew it", holder.Value)
	}
	return nil
}

// watchClocks compares clocks until ctx ends: again and again, and at once when the machine's has been set.
func (n *Node) watchClocks(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		n.lookAtClocks(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.clock.stepped:
		}
	}
}

// lookAtClocks compares clocks and reports what it found.
func (n *Node) lookAtClocks(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	wrong := n.compareClocks(bounded)
	cancel()
	if ctx.Err() != nil {
		return
	}
	var far []wrongClock
	for _, w := range wrong {
		if w.ahead.Abs() > clockMax {
			far = append(far, w)
		}
	}
	n.report(condClock, clocksDiffer(wrong))
	n.report(condClockFar, clocksDiffer(far))
}
