package sim

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// What operators want of the flow: pauses and places of partitions, which come and go. Nodes hear of them late, each by
// itself; a new life reads them before it takes anything over.

// pausesMax is how many pauses a world has at most.
const pausesMax = 4

// labelsOf are the labels of a task by its id: what pauses hold, its class and its tenant.
func (w *World) labelsOf(id string) (labels []core.Label) {
	switch w.hashOf("label of "+id) % 3 {
	case 0:
		labels = []core.Label{{Key: "tier", Value: "gold"}}
	case 1:
		labels = []core.Label{{Key: "tier", Value: "base"}, {Key: "of", Value: id}}
	}
	if class := core.Class(w.hashOf("class of "+id) % 4); int(class) < core.Classes {
		labels = append(labels, core.Label{Key: core.PriorityLabel, Value: class.String()})
	}
	if tenant := w.hashOf("tenant of "+id) % 4; tenant > 0 {
		labels = append(labels, core.Label{Key: "tenant", Value: string(rune('a' + tenant - 1))})
	}
	return labels
}

// pauseLater lets an operator pause something now and then in the storm, and lift it; some pauses lift themselves.
func (w *World) pauseLater() {
	if !w.fault(Paused) {
		return
	}
	for range 1 + w.rand.IntN(pausesMax) {
		w.after(w.upTo(w.cfg.Storm), func() {
			p := w.drawPause()
			w.setPauses(append(slices.Clone(w.pauses), p))
			w.after(w.upTo(2*time.Second)+1, func() {
				w.setPauses(slices.DeleteFunc(slices.Clone(w.pauses), func(o core.Pause) bool { return o == p }))
			})
		})
	}
}

func (w *World) drawPause() core.Pause {
	plan := w.plans[w.rand.IntN(len(w.plans))]
	step := plan.Steps[w.rand.IntN(len(plan.Steps))]
	// No two are the same: a pause that is lifted never comes again.
	p := core.Pause{Until: w.now.Add(5*time.Minute + w.upTo(time.Minute))}
	if w.rand.IntN(3) == 0 {
		p.Until = w.now.Add(1 + w.upTo(2*time.Second))
	}
	switch w.rand.IntN(6) {
	case 0:
	case 1:
		p.Type = plan.Name
	case 2:
		p.Type, p.Step = plan.Name, step.Name
	case 3:
		p.Agent = step.Agent
	case 4:
		p.Label = core.Label{Key: "tier", Value: "gold"}
	case 5:
		p.Type, p.Agent, p.Label = plan.Name, step.Agent, core.Label{Key: "tier", Value: "base"}
	}
	return p
}

func (w *World) setPauses(all []core.Pause) {
	w.pauses = all
	w.tell("", -1, "%d pauses", len(all))
	for _, n := range w.nodes {
		n.after(w.delay(), func() {
			n.hearPauses()
			for _, l := range n.loops {
				l.wake()
			}
		})
	}
}

// hearPauses tells the node what is paused now.
func (n *node) hearPauses() {
	n.heard = n.w.pauses
	n.sched.SetPauses(n.w.pauses)
}

// checkPaused holds a row that issues a do to what its committer knew when its step began: it had heard of a pause then,
// and not of its end since.
func (w *World) checkPaused(t *core.Task, j *core.Record) {
	heardRetry := j.Kind == core.KindStarted && j.Step == j.Next // of a retry that left before
	if j.Next < 0 || j.Undo || heardRetry || slices.ContainsFunc(w.nodes, func(n *node) bool { return n.twin }) {
		return
	}
	plan := planBook{w}.Plan(t.Type, t.PlanVersion)
	owner := w.Store.partition(t.Partition).Owner
	for _, n := range w.nodes {
		if n.name != owner || plan == nil {
			continue
		}
		for _, p := range n.loopOf(t.Partition).known {
			if plan.Steps[j.Next].Kind == core.CallStep && p.Holds(plan, j.Next, t) && slices.Contains(n.heard, p) && !p.Over(n.now().Add(2*skewMax)) { // its clock may have been set back
				w.wrong(t.Partition, t.ID, "row %d starts step %s, which %s knows to be paused", j.Seq, plan.Steps[j.Next].Name, n.name)
			}
		}
	}
}

// pinLater lets an operator pin partitions and have owners step down, a few times in the storm. Afterwards all is as the
// live nodes have it.
func (w *World) pinLater() {
	if !w.fault(Pinned) {
		return
	}
	for range 1 + w.rand.IntN(3) {
		w.after(w.upTo(w.cfg.Storm), func() {
			wish := core.Wish{Partition: w.rand.IntN(w.cfg.Partitions)}
			if node := w.nodes[w.rand.IntN(len(w.nodes))].name; w.rand.IntN(2) == 0 {
				wish.Node = node
			} else {
				wish.Avoid, wish.Until = node, w.now.Add(w.upTo(time.Second))
			}
			w.setWishes(wish)
		})
	}
	w.after(w.cfg.Storm, func() { w.setWishes() })
}

func (w *World) setWishes(all ...core.Wish) {
	w.wishes = all
	for _, n := range w.nodes {
		n.after(w.delay(), func() { n.sched.SetWishes(w.wishes) })
	}
}
