package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/supervisor"
)

// Names of the conditions that operators are told of and that no node stands on.
const (
	condAgents    = "agents"
	condBreaker   = "breaker"
	condDeadlines = "deadlines"
	condBraked    = "operations-braked"
	condDelivery  = "alert-delivery"
)

const (
	raiseQueue = 256              // alerts that wait for the stream of alerts
	raiseMax   = 5 * time.Second  // one try to store an alert
	raiseLast  = time.Second      // the same when the node ends
	raiseAgain = 10 * time.Second // the longest pause between two tries
	watchEvery = 10 * time.Second // between two looks at agents, deadlines and operations
	breakEvery = 2 * time.Second  // between two looks at breakers

	riskWithin = 10 * time.Minute // deadlines that are nearer are looked at
	riskLook   = 200              // so many of them at most
	riskPart   = 10               // a task is at risk that has one part in so many of its time left
	brakedMost = 64               // operations that are told of at a time
)

// raiser stores alerts in the stream of alerts. It is a ground.Sink.
type raiser struct {
	node    string
	queue   chan core.Alert
	raised  atomic.Int64
	dropped atomic.Int64
}

func newRaiser(node string) *raiser {
	return &raiser{node: node, queue: make(chan core.Alert, raiseQueue)}
}

// Alert implements ground.Sink. What the stream does not take for so long that the queue is full is in the log alone.
func (r *raiser) Alert(a ground.Alert) {
	select {
	case r.queue <- r.event(a, ""):
	default:
		r.dropped.Add(1)
	}
}

// event is an alert as it is stored. An empty id: that of the trouble, or a new one.
func (r *raiser) event(a ground.Alert, id string) core.Alert {
	now := core.InstantOf(time.Now())
	e := core.Alert{Name: a.Name, Key: a.Key, Node: r.node, Shared: a.Shared, Phase: core.AlertPhase(a.Phase), Severity: core.SeverityCritical,
		Text: a.Text, Error: a.Error, At: now, LastsMS: a.For.Milliseconds(), Times: max(1, a.Times)}
	if a.Phase != ground.Once {
		e.Since = core.InstantOf(a.Since)
		if a.Consequence == ground.Told {
			e.Severity = core.SeverityWarning
		}
	}
	for _, attr := range a.Attrs {
		e.Attrs = append(e.Attrs, core.AlertAttr{Name: attr.Key, Value: attr.Value.String()})
	}
	switch {
	case id != "":
		e.ID = id
	case a.Phase == ground.Once:
		e.ID = rand.Text()
	default:
		e.ID = alertID(r.node, a.Name, a.Key, string(a.Phase), e.Since.Time().Format(time.RFC3339Nano))
	}
	return e
}

// alertID is an id that another try, or another life, makes again of the same.
func alertID(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// run stores alerts until ctx ends, and then once more what is left.
func (r *raiser) run(ctx context.Context, n *Node) {
	for {
		select {
		case a := <-r.queue:
			r.store(ctx, n, a)
		case <-ctx.Done():
			for well := true; well && len(r.queue) > 0; {
				well = r.last(ctx, n, <-r.queue)
			}
			return
		}
	}
}

// store tries until the stream has the alert, or ctx ends.
func (r *raiser) store(ctx context.Context, n *Node, a core.Alert) {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(ctx, raiseMax)
		err := n.conn.PublishAlert(bounded, a)
		cancel()
		if err == nil || n.conn.Closed() != nil {
			r.count(err)
			return
		}
		if pause.For(ctx, core.Backoff(100*time.Millisecond, raiseAgain, try, 1)) != nil {
			r.last(ctx, n, a)
			return
		}
	}
}

// last tries once more when the node ends, and reports whether there is time for another.
func (r *raiser) last(ctx context.Context, n *Node, a core.Alert) bool {
	bounded, cancel := n.ending(ctx, raiseLast)
	defer cancel()
	err := n.conn.PublishAlert(bounded, a)
	r.count(err)
	return err == nil
}

func (r *raiser) count(err error) {
	if err != nil {
		r.dropped.Add(1)
		return
	}
	r.raised.Add(1)
}

// taskAlerts is supervisor.Sink: an alert about tasks is stored before the ending is done with, so that none is lost. The
// supervisor bounds their rate.
type taskAlerts struct {
	n   *Node
	log ground.Sink
}

// Alert implements supervisor.Sink. Error: the alert is not stored, and has to come again.
func (s taskAlerts) Alert(a supervisor.Alert) error {
	name, id := "task-error", "alert.error"
	if a.Tasks > 1 {
		id = "alert.errors"
	}
	if core.UndoGaveUp(a.Error) {
		name, id = "undo-exhausted", "alert.undo"
	}
	text := say.Of(id, "n", a.Tasks)
	clean := s.n.ground.Clean(ground.Alert{Phase: ground.Once, Name: name, Text: text, Error: a.Error, Times: a.Tasks, Attrs: []slog.Attr{
		slog.String("task", a.Task), slog.String("type", a.Type), slog.String("step", a.Step), slog.Time("at", core.Instant(a.At).Time()),
	}})
	id = ""
	if a.Tasks == 1 { // a summary is never the same again
		id = alertID(name, a.Type, a.Task, core.Instant(a.At).Time().Format(time.RFC3339Nano))
	}
	bounded, cancel := s.n.ending(context.Background(), raiseMax) // a stop waits no longer than it may
	defer cancel()
	if err := s.n.conn.PublishAlert(bounded, s.n.raiser.event(clean, id)); err != nil {
		s.n.raiser.dropped.Add(1)
		return err
	}
	s.n.raiser.raised.Add(1)
	s.log.Alert(clean)
	return nil
}

// operatorConditions are what an operator is told of besides what the node stands on.
func (n *Node) operatorConditions(scheduler, supervisor bool) []ground.Condition {
	all := []ground.Condition{{
		Name: condTraces,
	}}
	if scheduler {
		all = append(all, ground.Condition{
			Name: condAgents, Shared: true, Every: watchEvery, Each: n.probeAgents,
		})
	}
	if supervisor {
		all = append(all, ground.Condition{
			Name: condBreaker, Shared: true, Grace: ground.AtOnce, Every: breakEvery, Each: n.probeBreakers,
		}, ground.Condition{
			Name: condDeadlines, Shared: true, Every: watchEvery, Each: n.probeDeadlines,
		}, ground.Condition{
			Name: condBraked, Shared: true, Grace: ground.AtOnce, Every: watchEvery, Each: n.probeOperations,
		}, ground.Condition{
			Name: condDelivery, Shared: true,
		})
		all = append(all, n.booksConditions()...)
		all = append(all, n.schedulesConditions()...)
	}
	return all
}

// probeAgents are the agents that tasks of this node wait for.
func (n *Node) probeAgents(context.Context) []ground.Found {
	own := n.owning()
	if own == nil {
		return nil
	}
	var all []ground.Found
	for _, a := range own.Snapshot().Away {
		text := say.Of("alert.waiting", "agent", a.Agent, "n", a.Tasks)
		var unable []string
		for _, step := range a.Steps {
			if step.Unable {
				unable = append(unable, step.Type+"/"+step.Step)
			}
		}
		if len(unable) > 0 {
			text += say.Of("alert.not-served", "steps", strings.Join(unable[:min(len(unable), wire.AwayStepsMax)], ", "))
		}
		all = append(all, ground.Found{Key: a.Agent, Since: a.Since.Time(), Err: errors.New(text)})
	}
	return all
}

// asLeader looks for what the leader watches. Where another node leads there is nothing to see here; where none does now, or
// the database does not answer, which are conditions of their own, what stood stands.
func (n *Node) asLeader(ctx context.Context, look func() ([]ground.Found, error)) []ground.Found {
	if !n.leads() {
		holder, err := n.conn.Holder(ctx, wire.KeyLeader)
		if err != nil || holder == nil || holder.Value == n.cfg.NodeName {
			return ground.Unknown
		}
		return nil
	}
	found, err := look()
	if err != nil {
		return ground.Unknown
	}
	return found
}

// probeBreakers are the agents whose breakers are not closed.
func (n *Node) probeBreakers(ctx context.Context) []ground.Found {
	return n.asLeader(ctx, func() (all []ground.Found, _ error) {
		breakers, err := n.store.Breakers(ctx)
		now := n.now()
		for i := range breakers {
			if text := breakerSentence(breakers[i].Agent, operate.BreakerOf(&breakers[i], now)); text != "" {
				all = append(all, ground.Found{Key: breakers[i].Agent, Since: breakers[i].Since.Time(), Err: errors.New(text)})
			}
		}
		return all, err
	})
}

// leads reports whether this node's supervisor is the one that leads.
func (n *Node) leads() bool {
	sup := n.sup.Load()
	return sup != nil && sup.Last().Held
}

// probeDeadlines looks for unfinished tasks that have little of their time left.
func (n *Node) probeDeadlines(ctx context.Context) []ground.Found {
	return n.asLeader(ctx, func() ([]ground.Found, error) {
		now := n.clock.instant()
		tasks, more, err := n.store.AtRisk(ctx, now.Add(riskWithin), riskLook)
		return []ground.Found{{Err: deadlinesNear(now, tasks, more, n.plans.Plan)}}, err
	})
}

// deadlinesNear is the trouble of tasks whose time is nearly over; more: there are others that were not looked at.
func deadlinesNear(now core.Instant, tasks []core.View, more bool, planOf func(string, int64) *core.Plan) error {
	near, first := 0, (*core.View)(nil)
	for i := range tasks {
		t := &tasks[i]
		whole := t.CompleteBy.Sub(max(t.CreatedAt, t.StartAt))
		if p := planOf(t.Type, t.PlanVersion); p != nil && p.QueueFor > 0 {
			whole = min(whole, p.CompleteBy) // its wait for its turn was none of its time
		}
		if left := t.CompleteBy.Sub(now); t.CompleteBy != 0 && left <= whole/riskPart {
			near++
			if first == nil {
				first = t
			}
		}
	}
	if near == 0 {
		return nil
	}
	n := say.Number(int64(near))
	if more {
		n = "≥ " + n
	}
	return errors.New(say.Of("alert.near", "n", n, "first", first.ID, "type", first.Type, "at", first.CompleteBy.Time().Format(time.RFC3339)))
}

// probeOperations are the operations that have stopped themselves.
func (n *Node) probeOperations(ctx context.Context) []ground.Found {
	return n.asLeader(ctx, func() (all []ground.Found, _ error) {
		ops, _, err := n.store.Operations(ctx, []operate.OperationState{operate.OperationBraked}, brakedMost, "")
		for i := range ops {
			all = append(all, ground.Found{Key: ops[i].ID, Err: errors.New(cmp.Or(ops[i].Why, say.Of("alert.braked", "operation", ops[i].ID)))})
		}
		return all, err
	})
}

// alertSource is alerts.Source on the stream of alerts.
type alertSource struct{ conn *natsbus.Conn }

// Read implements alerts.Source.
func (s alertSource) Read(ctx context.Context, take func(alerts.Message)) error {
	return s.conn.ReadAlerts(ctx, alerts.InFlightMost, func(m *natsbus.AlertMessage) { take(alerts.Message{Alert: m.Alert, Done: m.Done, Working: m.Working}) })
}

// newSender makes what delivers alerts while this node's supervisor leads.
func (n *Node) newSender() (*alerts.Sender, error) {
	return alerts.New(alerts.Config{
		Store: n.store, Source: alertSource{n.conn}, Leads: n.leads, Live: n.members.get, Namespace: n.conn.Names().Namespace(),
		Report: func(err error) { n.report(condDelivery, err) }, Log: n.log, AllowLocal: n.cfg.AlertsAllowLocal, SecretsDir: n.cfg.AlertsSecretsDir,
	})
}

// deliver delivers alerts until ctx ends.
func (n *Node) deliver(ctx context.Context, wg *sync.WaitGroup) error {
	sender, err := n.newSender()
	if err != nil {
		return err
	}
	n.sender.Store(sender)
	wg.Go(func() {
		if err := sender.Run(ctx); err != nil && ctx.Err() == nil {
			n.report(condDelivery, err)
		}
	})
	return nil
}

// Alerts delivers alerts, and tests channels; nil where the node does not have the role supervisor.
func (n *Node) Alerts() *alerts.Sender { return n.sender.Load() }
