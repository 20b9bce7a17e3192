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
			Name: condNATS, Wanted: "a connection to NATS", Begin: "there is no connection to NATS", End: "there is a connection to NATS again",
			ReadyAfter: natsReady, Consequence: ground.NotReady, Proven: true, Probe: n.probeNATS,
		}, {
			Name: condNATSClosed, Wanted: "a connection to NATS that comes back by itself", Begin: "the connection to NATS is closed for good",
			End: "the connection to NATS is open", Grace: ground.AtOnce, Consequence: ground.Fatal, Probe: n.probeClosed,
		}, {
			Name: condInstallation, Shared: true, Wanted: "streams, buckets and database of one installation", Begin: "streams or database belong to another installation",
			End: "streams and database belong to this installation again", Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: func(context.Context) []ground.Found { return n.streamTrouble(true) },
		}, {
			Name: condRights, Wanted: "NATS lets this node do what its roles need", Begin: "NATS does not let this node do what a role needs",
			End: "NATS lets this node do again what a role needs", Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: n.probeRights, Every: rightsEvery,
		}, {
			Name: condRightsOther, Wanted: "NATS lets this node do what is seldom needed, and send statuses where submitters want them",
			Begin: "NATS does not let this node publish everywhere", End: "NATS lets this node publish everywhere again",
		}, {
			Name: condStreams, Shared: true, Wanted: "every stream and bucket there, with room and writable", Begin: "a stream or bucket does not work",
			End: "the stream or bucket works again", Grace: ground.AtOnce, Consequence: ground.NotReady,
			Each: func(context.Context) []ground.Found { return n.streamTrouble(false) },
		}, {
			Name: condDatabase, Wanted: "the database answers", Begin: "the database cannot be reached", End: "the database can be reached again",
			ReadyAfter: databaseGrace, Consequence: ground.NotReady, Proven: true, Probe: func(ctx context.Context) error { return n.store.Ping(ctx) },
		}, {
			Name: condPartitions, Shared: true, Wanted: "every partition has a live owner", Begin: "partitions have no live owner",
			End: "every partition has a live owner again", Consequence: ground.NotReady, Probe: n.probePartitions,
		}, {
			Name: natsbus.TroubleWatch, Wanted: "changes of the live nodes are heard", Begin: "the live nodes cannot be watched again, and none joins or leaves",
			End: "the live nodes are watched again",
		}, {
			Name: condMembers, Wanted: "the live nodes are known", Begin: "the live nodes cannot be watched", End: "the live nodes are watched again",
		}, {
			Name: condClock, Wanted: fmt.Sprintf("this machine's clock within %v of NATS's and the database's", clockSlack),
			Begin: "clocks differ", End: "clocks agree again", Grace: ground.AtOnce,
		}, {
			Name: condPlans, Wanted: "the plans can be read", Begin: "the plans cannot be read", End: "the plans can be read again",
		}, {
			Name: condObservers, Wanted: "what only watches sees every commit", Begin: "a part that only watches misses commits, or was switched off; tasks go on",
			End: "what only watches sees every commit again", Grace: ground.AtOnce,
		},
	}
	all = append(all, n.heldCondition())
	if n.cfg.Has(config.RoleIngest) {
		all = append(all, n.roleCondition(config.RoleIngest, func() bool { return n.door.Load() != nil }), n.outboxCondition())
	}
	if n.cfg.Has(config.RoleScheduler) {
		all = append(all, n.schedulerConditions()...)
		all = append(append(all, n.roomConditions()...), n.unreadCondition())
	}
	if n.cfg.Has(config.RoleSupervisor) {
		all = append(all, n.roleCondition(config.RoleSupervisor, func() bool { return n.sup.Load() != nil }), ground.Condition{
			Name: condLeader, Shared: true, Wanted: "one supervisor leads", Begin: "no supervisor leads: nothing overdue is found", End: "a supervisor leads again",
			Grace: n.cfg.Lease + leaderGrace, ReadyAfter: n.cfg.Lease + leaderGrace, Consequence: ground.NotReady, Probe: n.probeLeader,
		}, ground.Condition{
			Name: string(supervisor.TroubleTick), Wanted: "the leader finds what is overdue", Begin: "the supervisor cannot do its work",
			End: "the supervisor does its work again", Consequence: ground.NotReady,
		}, ground.Condition{
			Name: string(supervisor.TroubleAlerts), Wanted: "tasks in error are told", Begin: "tasks in error cannot be told",
			End: "tasks in error are told again",
		}, operationsCondition())
	}
	return append(all, n.operatorConditions(n.cfg.Has(config.RoleScheduler), n.cfg.Has(config.RoleSupervisor))...)
}

// roleCondition is that a role runs. It is told late: a role that begins, or ends with the process, is no trouble.
func (n *Node) roleCondition(role string, runs func() bool) ground.Condition {
	return ground.Condition{
		Name: role, Wanted: "the role " + role + " runs", Begin: "the role " + role + " does not run", End: "the role " + role + " runs",
		ReadyAfter: ground.AtOnce, Consequence: ground.NotReady, Proven: true, Every: roleEvery,
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
			Name: condCommits, Wanted: "commits succeed", Begin: "no commit succeeds", End: "commits succeed again",
			Consequence: ground.NotReady, Each: n.probeCommits,
		}, {
			Name: natsbus.TroubleReaders, Wanted: "partitions are read", Begin: "partitions cannot be read: consumers cannot be made",
			End: "partitions are read again", Consequence: ground.NotReady,
		}, {
			Name: condNodeLease, Wanted: "this node's lease is renewed", Begin: "this node's lease cannot be renewed",
			End: "this node's lease is renewed again", Consequence: ground.NotReady, Proven: true, // till then its name may be another's
		}, {
			Name: condClockFar, Wanted: fmt.Sprintf("this machine's clock within %v of NATS's and the database's", clockMax),
			Begin: "this node's clock is too wrong for deadlines", End: "this node's clock is right enough for deadlines again",
			Grace: ground.AtOnce, Consequence: ground.NotReady,
		}, {
			Name: condEvidence, Wanted: "evidence of other nodes' commits is heard", Begin: "evidence of other nodes' commits cannot be heard",
			End: "evidence of other nodes' commits is heard again",
		}, {
			Name: condStoring, Wanted: "refusals and dead letters are stored", Begin: "the event stream does not take a message, and its partitions wait",
			End: "the event stream takes messages again", Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleOwners), Wanted: "the owners of the partitions can be read", Begin: "the owners of the partitions cannot be read",
			End: "the owners of the partitions can be read again", Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleTakeover), Wanted: "partitions are taken over", Begin: "partitions cannot be taken over",
			End: "partitions are taken over again", Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleRelease), Wanted: "partitions of others are released", Begin: "partitions that are not held cannot be released, and their successors wait",
			End: "partitions are released again",
		}, {
			Name: string(scheduler.TroubleCycle), Wanted: "commit cycles succeed", Begin: "commit cycles fail, and their partitions are taken over again",
			End: "commit cycles succeed again", Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleEvents), Wanted: "endings are published", Begin: "the event stream does not take endings, and they are published again",
			End: "the event stream takes endings again", Consequence: ground.NotReady,
		}, {
			Name: string(scheduler.TroubleForget), Wanted: "old tasks are forgotten", Begin: "old tasks cannot be forgotten", End: "old tasks are forgotten again",
		}, {
			Name: string(scheduler.TroublePauses), Wanted: "pauses are read", Begin: "pauses cannot be read: those that were read last count", End: "pauses are read again",
		}, {
			Name: string(scheduler.TroubleLimits), Wanted: "limits of agents are read and shared out", Begin: "limits of agents cannot be read or claimed: what is granted ends by itself, and their agents get nothing then", End: "limits of agents are read and shared out again",
		}, {
			Name: string(scheduler.TroubleBreakers), Wanted: "breakers of agents are read and changed", Begin: "breakers of agents cannot be read or changed: those that were read last count", End: "breakers of agents are read and changed again",
		}, {
			Name: condWishes, Wanted: "where operators want partitions to be is heard", Begin: "where operators want partitions to be cannot be heard",
			End: "where operators want partitions to be is heard again",
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
		return nil // another condition says so
	}
	states, err := n.store.Unowned(ctx, live)
	if err != nil {
		return nil //nolint:nilerr // the database is another condition
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
			free = append(free, fmt.Sprintf("%d has none", s.Partition))
		} else {
			free = append(free, fmt.Sprintf("%d has %s, which is not live", s.Partition, s.Owner))
		}
	}
	text := strings.Join(free[:min(most, len(free))], "; ")
	if len(free) > most {
		text += "; …"
	}
	return fmt.Errorf("%d of %d partitions: %s", len(free), partitions, text)
}

// leading is the leader's lease as it was last seen. Only the probe uses it.
type leading struct {
	revision uint64
	since    time.Time // when it was first seen so
}

// probeLeader looks for a leader: this supervisor or, by the lease, another that renews it.
func (n *Node) probeLeader(ctx context.Context) error {
	if sup := n.sup.Load(); sup != nil && sup.Last().Held {
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
