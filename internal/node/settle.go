package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// settleEvery is how often entries of the audit trail without an outcome are looked for.
const settleEvery = 10 * time.Second

// keepSettled gives entries of the audit trail the outcome that they were left without, until ctx ends. Every scheduler does
// it: the first outcome counts.
func (n *Node) keepSettled(ctx context.Context) {
	desk := n.desk()
	for pause.For(ctx, settleEvery) == nil {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		if err := desk.Settle(bounded, n.store, n.becameOf); err != nil && ctx.Err() == nil {
			n.log.Debug("entries of the audit trail have no outcome yet; looking again", "error", err)
		}
		cancel()
	}
}

// becameOf says what became of a change or of a request whose entry has no outcome; nothing: that is not known yet.
func (n *Node) becameOf(ctx context.Context, e *operate.AuditEntry) (string, error) {
	kind, name, _ := strings.Cut(e.Target, "/")
	switch {
	case kind == "task" && api.IsAction(e.Action):
		return n.answered(ctx, e, name)
	case kind == "partition":
		var partition int
		if _, err := fmt.Sscanf(name, "%d", &partition); err != nil {
			return operate.NotKnown, nil
		}
		wish, err := n.conn.Wish(ctx, partition)
		return operate.WishBecame(e, wish), err
	case e.Action == operate.ScheduleRunNow:
		return n.ran(ctx, e)
	case e.Action == planApply:
		plan, version, _ := strings.Cut(name, "/")
		var number int64
		_, _ = fmt.Sscanf(version, "%d", &number)
		if known, err := n.planOf(ctx, plan, number); err != nil || known != nil {
			return operate.WasMade, err
		}
		return operate.NotMade, nil
	case e.Action == "alert.test", e.Action == "log.level", e.Action == "stream.accept_loss": // which leave nothing to look at
		return operate.NotKnown, nil
	}
	return operate.NotMade, nil // the state store would have stored the outcome with it
}

// answered says what the owner of a task has made of a request: what it decides is a journal row by its actor.
func (n *Node) answered(ctx context.Context, e *operate.AuditEntry, name string) (string, error) {
	_, id, _ := strings.Cut(name, "/")
	partition := wire.PartitionOf(id, n.cfg.Partitions)
	if unread, err := n.unasked(ctx, e, partition); err != nil || unread {
		return "", err
	}
	saved, err := n.store.SavedIDs(ctx, partition, []string{id})
	if err != nil {
		return "", err
	}
	if len(saved) == 0 || saved[0].Err != nil || len(saved[0].Journal) == 0 {
		return operate.NotKnown, nil // it is forgotten
	}
	var before struct{ Seq int64 }
	_ = json.Unmarshal(e.Before, &before) // of what was not seen there is none
	for i := range saved[0].Journal {
		row := &saved[0].Journal[i]
		if row.Seq > before.Seq && row.Reason == e.Reason && (row.Actor == e.Actor || row.Actor == api.ActorAt(e.Actor, e.Via)) {
			return operate.WasMade, nil
		}
	}
	return operate.NotDone, nil
}

// unasked reports whether a request may be in the stream of its partition still, or come there.
func (n *Node) unasked(ctx context.Context, e *operate.AuditEntry, partition int) (bool, error) {
	at, position, known := e.Place()
	if !known {
		return n.unreadIn(ctx, partition, true, core.InstantOf(e.At.Add(e.Worked())))
	}
	states, err := n.store.CursorsOf(ctx, []int{at}, "")
	return err == nil && len(states) == 1 && states[0].ControlCursor < position, err
}

// ran says whether the task of a schedule that was asked for by hand has come.
func (n *Node) ran(ctx context.Context, e *operate.AuditEntry) (string, error) {
	var run operate.ScheduleRun
	if json.Unmarshal(e.After, &run) != nil {
		return operate.NotKnown, nil
	}
	unread, err := n.unread(ctx, wire.PartitionOf(run.Task, n.cfg.Partitions), core.InstantOf(e.At.Add(e.Worked())))
	if err != nil || unread {
		return "", err
	}
	if known, err := (scheduleTasks{n}).known(ctx, run.Task); err != nil || known {
		return operate.WasMade, err
	}
	return operate.NotMade, nil
}
