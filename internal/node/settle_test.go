package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

// TestEntriesAreSettled: what a process has left without an outcome, when it ended or heard nothing, gets the one that it has:
// from the task's owner, from where the change was made, or that it cannot be known.
//
// covers: O1, O12
func TestEntriesAreSettled(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx, n := t.Context(), c.Node
	for _, id := range []string{"t-1", "t-2"} {
		if _, err := c.plan.Submit(ctx, c.client, id, 1); err != nil {
			t.Fatal(err)
		}
		soon(t, "it is done", func() bool {
			task, err := c.client.Get(ctx, "tick", id)
			return err == nil && task.State == duly.StateProcessed
		})
	}
	olga, lost := operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "http"}, errors.New("killed, or the answer is lost")
	hourAgo := operate.NewDesk(n.store, func() time.Time { return n.now().Add(-time.Hour) }, slog.New(slog.DiscardHandler))
	want := map[int64]string{}
	ask := func(task string, ifSeq int64, outcome string, stored bool) {
		t.Helper()
		act := operate.Act{By: olga, Action: "undo", Target: "task/tick/" + task, Reason: "broken " + outcome, Before: map[string]int64{"seq": ifSeq}}
		_ = hourAgo.Ask(ctx, &act, func(ctx context.Context) (string, error) {
			partition := wire.PartitionOf(task, n.cfg.Partitions)
			if !stored {
				return "", lost
			}
			position, err := controls{n.conn}.Ask(ctx, partition, core.Control{Kind: core.EventUndo, ID: task, Type: "tick", Actor: "olga@http", Reason: act.Reason, IfSeq: ifSeq})
			if err != nil {
				t.Error(err)
			}
			if task == "t-2" {
				return fmt.Sprintf("%d.%d", partition, position), nil
			}
			return "", lost // the owner has it, and the trail does not say where
		})
		want[act.Number] = outcome
	}
	view, err := n.store.Get(ctx, wire.PartitionOf("t-1", n.cfg.Partitions), "t-1")
	if err != nil {
		t.Fatal(err)
	}
	ask("t-1", view.Seq, operate.WasMade, true)
	ask("t-2", 1, operate.NotDone, true)
	ask("t-2", view.Seq, operate.NotDone, false)
	ask("t-2", view.Seq, operate.WasMade, true)
	ask("t-3", view.Seq, operate.NotKnown, false)
	change := func(action, target string, before, after any, outcome string, do func(context.Context) error) {
		t.Helper()
		act := operate.Act{By: olga, Action: action, Target: target, Before: before, After: after, Away: true}
		_ = hourAgo.Change(ctx, &act, func(ctx context.Context) error { return errors.Join(do(ctx), lost) })
		want[act.Number] = outcome
	}
	nothing := func(context.Context) error { return nil }
	pinned := json.RawMessage(`{"node":"` + n.cfg.NodeName + `"}`)
	change("partition.pin", "partition/0", json.RawMessage(`{}`), pinned, operate.WasMade, func(ctx context.Context) error {
		return n.conn.PutWish(ctx, core.Wish{Partition: 0, Node: n.cfg.NodeName})
	})
	change("partition.pin", "partition/1", json.RawMessage(`{}`), pinned, operate.NotMade, nothing)
	change("partition.pin", "partition/0", json.RawMessage(`{"node":"n8"}`), json.RawMessage(`{"node":"n9"}`), operate.NotKnown, nothing)
	change("plan.apply", "plan/tick/1", nil, nil, operate.WasMade, nothing)
	change("plan.apply", "plan/tick/2", nil, nil, operate.NotMade, nothing)
	change("schedule.run_now", "schedule/s", nil, operate.ScheduleRun{Type: "tick", Task: "t-2"}, operate.WasMade, nothing)
	change("schedule.run_now", "schedule/s", nil, operate.ScheduleRun{Type: "tick", Task: "t-9"}, operate.NotMade, nothing)
	change("alert.test", "channel/ops", nil, nil, operate.NotKnown, nothing)
	change("view.put", "view/a", nil, nil, operate.NotMade, nothing)
	change("view.put", "view/b", nil, nil, operate.WasMade, func(ctx context.Context) error { return n.store.PutSetting(ctx, "view/b", []byte(`{}`)) })
	var got map[int64]string
	soon(t, "every entry has its outcome", func() bool {
		page, err := n.store.Audit(ctx, operate.AuditFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		got = map[int64]string{}
		for _, e := range page.Entries {
			if _, mine := want[e.Number]; mine && operate.IsSettled(e.Outcome) {
				got[e.Number] = e.Outcome
			}
		}
		return len(got) == len(want)
	})
	for number, outcome := range want {
		if got[number] != outcome {
			t.Errorf("entry %d: %q, want %q", number, got[number], outcome)
		}
	}
}
