package scheduler

import (
	"log/slog"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// What a shard remembers besides its tasks, each bounded: the names of who answers, what it has logged, and requests that it
// refuses when they come again.

// answerer is an instance and its agent.
type answerer struct{ instance, agent string }

// answerers are the names of answerersMax of these, so that a reply costs no memory of its own.
type answerers map[answerer]string

const answerersMax = 1024

// name is the actor that the journal names for a reply to the command of step out: the agent of the step, and before it
// the instance that answered, where the reply says so. Only what follows the last @ is certain:
// it is what the command's token proves.
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

// leftAlone are tasks of which it was logged that they are left alone.
type leftAlone map[string]bool

// leftMax bounds how many tasks are remembered for that.
const leftMax = 1024

// note leaves a stored task alone that this node cannot go on with: its partition goes on. That is logged once for a task,
// because the supervisor asks about it again and again.
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

// unstorable are requests about ended children, whose rows the database refused.
type unstorable []request

// unstorableMax is how many requests are known of whose rows the database refused.
const unstorableMax = 64

// add keeps the request by which an ended child got a row that the database refuses. Its partition is let go, and the
// request is read again: it is refused then, or the partition would be let go for ever.
func (u *unstorable) add(e *entry, seq int64) {
	if e.round.asked == nil || e.round.asked.seq != seq {
		return
	}
	if len(*u) == unstorableMax {
		*u = slices.Delete(*u, 0, 1)
	}
	*u = append(*u, *e.round.asked)
}

// alertEvery is how often the undo of one step of one plan in trouble is logged: tasks
// that share a cause share a line.
const alertEvery = time.Minute

// alertsMax bounds how many plans' steps are remembered for that.
const alertsMax = 1024

type alertKey struct{ taskType, step string }

// alerts says that undos are in trouble.
type alerts struct {
	bus    Bus
	log    *slog.Logger
	logged map[alertKey]core.Instant // when each was last
}

// undo reports that an undo is in trouble and goes on, in the log and on the live subject of the task.
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
