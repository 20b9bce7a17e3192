package node

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/operate"
)

// TestChangesOverNATSAreNoted: what only operators may ask over NATS, plans too, is in the audit trail with the door it came
// through; a plan that is applied again, and what a submitter may ask, is not.
//
// covers: P21
func TestChangesOverNATSAreNoted(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	nc, err := nats.Connect(c.Node.cfg.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := c.plan.Submit(ctx, c.client, "t-1", 1); err != nil {
		t.Fatal(err)
	}
	soon(t, "it is done", func() bool {
		task, err := c.client.Get(ctx, "tick", "t-1")
		return err == nil && task.State == duly.StateProcessed
	})
	if err := c.plan.Apply(ctx, c.client); err != nil {
		t.Fatal(err)
	}
	for kind, body := range map[string]string{
		"undo":   `{"v":1,"kind":"undo","id":"t-1","actor":"olga","reason":"broken"}`,
		"cancel": `{"v":1,"kind":"cancel","id":"t-1","actor":"shop"}`,
	} {
		answer, err := nc.Request("duly.ask."+kind+".tick", []byte(body), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", kind, answer.Data)
	}
	var got []string
	soon(t, "its owner has answered", func() bool {
		page, err := c.Node.store.Audit(ctx, operate.AuditFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range page.Entries {
			got = append(got, e.Action+" of "+e.Target+" by "+e.Actor+" via "+e.Via+": "+e.Reason+" "+e.Outcome)
		}
		return !strings.Contains(got[0], " asked")
	})
	if len(got) != 2 || got[1] != "plan.apply of plan/tick/1 by unnamed@nats via nats:  done" || got[0] != "undo of task/tick/t-1 by olga@nats via nats: broken done" {
		t.Errorf("%q", got)
	}
}
