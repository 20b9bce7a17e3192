package scheduler

import (
	"log/slog"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// What a shard remembers beside its tasks, all of it bounded: the names of those who answer, what it has logged already, and
// requests that it must refuse when they are read again.

// answerer is an agent's instance.
type answerer struct{ instance, agent string }

// answerers caches the actors' names of up to answerersMax instances, so that a reply allocates no string.
type answerers map[answerer]string

const answerersMax = 1024

// name returns the actor that the journal names for a reply to the command of step out: instance@agent, or
// the agent alone if the reply names no instance. Only what follows the last @ is certain, because the
// command's token proves it.
func (a answerers) name(e *entry, out int, from string) string {
	agent := "agent"
	if out >= 0 && e.plan != nil && e.plan.slots[out] != nil {
		agent = e.plan.plan.Steps[out].Agent
	}
	if from == "" {
		return agent
	}
	key := answerer{from, agent}
	name, ok := a[key]
	if !ok {
		if len(a) >= answerersMax {
			clear(a)
		}
		name = from + "@" + agent
		a[key] = name
	}
	return name
}

// leftAlone names tasks for which the log already says that this node cannot go on with them.
type leftAlone map[string]bool

// leftMax bounds leftAlone.
const leftMax = 1024

// note leaves a stored task alone that this node cannot read; its partition goes on without it. It is logged
// once for each task, because the supervisor asks about the task again and again.
func (l leftAlone) note(log *slog.Logger, p *partition, saved *core.Saved, why error) {
	p.leaveUncounted(saved)
	if l[saved.Row.ID] {
		return
	}
	if len(l) >= leftMax {
		clear(l)
	}
	l[saved.Row.ID] = true
	log.Error("ALERT: a stored task is left alone: this node cannot read it, or its plan", "event", "task-unreadable", "task", saved.Row.ID, "partition", saved.Row.Partition, "number", saved.Row.Number, "error", why)
}

// unstorable are the latest requests about ended children whose rows the database refused.
type unstorable []request

// unstorableMax bounds unstorable.
const unstorableMax = 64

// add keeps the request that gave an ended child a row which the database refuses. The partition is let go
// because of it and reads the request again. It must be refused then, or the partition would be let go for
// ever.
func (u *unstorable) add(e *entry, seq int64) {
	if e.round.asked == nil || e.round.asked.seq != seq {
		return
	}
	if len(*u) == unstorableMax {
		*u = slices.Delete(*u, 0, 1)
	}
	*u = append(*u, *e.round.asked)
}

// alertEvery is how often trouble with the undo of one step is logged: tasks that share a cause share a line.
const alertEvery = time.Minute

// alertsMax bounds how many steps have the time of their last line kept.
const alertsMax = 1024

type alertKey struct{ taskType, step string }

// alerts reports undos that are in trouble.
type alerts struct {
	bus    Bus
	log    *slog.Logger
	logged map[alertKey]core.Instant // when each was last
}

// undo reports that an undo is in trouble and goes on: in the log, and to whoever watches the task.
func (a *alerts) undo(x *pending, now core.Instant) {
	task, step := x.e.task, x.e.plan.plan.Steps[x.effect.Step].Name
	why := "the undo of step " + step + " is in trouble and goes on"
	a.bus.Live(core.Status{ID: task.ID, Type: task.Type, Status: string(task.State), Error: why, At: task.UpdatedAt})
	key := alertKey{task.Type, step}
	if last, ok := a.logged[key]; ok && !last.Elapsed(now, alertEvery) {
		return
	}
	if len(a.logged) >= alertsMax {
		clear(a.logged)
	}
	a.logged[key] = now
	a.log.Error("ALERT: the undo of a step is in trouble and goes on; perhaps of other tasks as well", "event", "undo-trouble", slog.String("task", task.ID), slog.String("type", task.Type),
		slog.String("step", step), slog.Int("attempt", x.effect.Attempt), slog.Int("partition", task.Partition), slog.Int64("number", task.Number))
}
