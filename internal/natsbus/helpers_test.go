package natsbus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
)

// names are those of the default namespace.
var names wire.Names

// at is an instant that every test may use: 2026-01-02T03:04:05.000678Z.
const at = core.Instant(1767323045000678)

// sampleCommand is an undo with all that a command can have.
var sampleCommand = core.Command{
	Undo: true, Agent: "payment.charge", Partition: 3, Number: 17, Seq: 5, Task: "order-17", Type: "order", Step: "charge", Attempt: 2, Round: 12,
	CompleteBy: at, Left: 1500 * time.Millisecond, Input: []byte(`{"drone": [1, 2]}`),
	Results: []core.StepResult{{Step: "credit", Result: []byte(`{"ok":true}`)}, {Step: "stock", Result: nil}}, Result: []byte(`"r-1"`),
}

var sampleCommandJSON = string(wire.AppendCommand(nil, &sampleCommand))

const samplePlanJSON = `{"v":1,"name":"order","version":2,"steps":[{"name":"charge","agent":"payment.charge"}]}`

// batchOf is a batch of commands as the wire has it, of a sender without a key.
func batchOf(cmds ...core.Command) []byte {
	b := []byte{wire.BatchVersion}
	for i := range cmds {
		b = wire.AppendBatchCommand(b, &cmds[i], nil)
	}
	return b
}

// fullPack is a pack of submissions of some 250 bytes.
func fullPack() []core.Submission {
	subs := make([]core.Submission, wire.PackItemsMax)
	for i := range subs {
		subs[i] = core.Submission{Type: "delivery", ID: fmt.Sprintf("delivery-%08d", i), PlanVersion: 1, CompleteBy: at, ReplyTo: "_INBOX.Zq3.1",
			At: at, Input: []byte(`{"from":"` + strings.Repeat("x", 240) + `"}`)}
	}
	return subs
}

// idIn returns the n-th id that belongs to a partition.
func idIn(partition, partitions, n int) string {
	for i := 0; ; i++ {
		id := "task-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26))
		if wire.PartitionOf(id, partitions) == partition {
			if n--; n < 0 {
				return id
			}
		}
	}
}

// submitHeaders are the headers of a submission.
func submitHeaders(completeBy, replyTo, trace, version, labels string) nats.Header {
	return (&submit.Form{CompleteBy: completeBy, ReplyTo: replyTo, Trace: trace, Version: version, Labels: labels}).Header()
}

// Identity names the first task stream and its control stream as they are now:
// tasks/control, the ids of both. Errors: those of Home.
func (c *Conn) Identity(ctx context.Context) (string, error) {
	home, err := c.Home(ctx, 0)
	return home.Identity, err
}

// Held reports whether the lease is ours to use now: it was renewed within two
// thirds of its life, by the local clock. The last third is for the server's
// clock and for what is under way.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock().Before(l.until)
}

// Respond answers with success; an empty result is null.
func (r *CommandRequest) Respond(result []byte) error {
	return r.Reply(core.Reply{Result: result})
}
