package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// rig is one shard with the reference store and a bus that writes down, in one
// list with the commits and the acks, what happened in which order.
type rig struct {
	t     *testing.T
	store *sim.MemStore
	bus   *bus
	shard *scheduler.Shard
	mail  *scheduler.Mail
	now   core.Instant
	pos   uint64
	cfg   scheduler.Config
	reads scheduler.Store // what the shard sees of the store; nil: all
	logs  strings.Builder
	seen  int            // of the bus's list, by news
	out   []core.Command // that left has taken

	noJitter bool           // what is tried again is tried at once
	jitter   func() float64 // draws instead; nil: nothing does
}

// began is when every rig's clock starts.
const began = core.Instant(1_000_000_000)

var errCut = errors.New("connection cut")

// newRig is a shard that owns partition 0, with a plan "order" of steps a and b.
func newRig(t *testing.T, cfg scheduler.Config) *rig {
	t.Helper()
	r := &rig{t: t, store: sim.NewMemStore(), now: began, cfg: cfg}
	if r.cfg.Node == "" {
		r.cfg.Node = "n1"
	}
	if r.cfg.Now == nil {
		r.cfg.Now = r.clock
	}
	r.bus = &bus{}
	r.store.AfterCommit = func(b *core.Batch, res core.CommitResult) error {
		line := fmt.Sprintf("commit %d", len(b.Writes))
		if len(res.Fenced) > 0 {
			line += fmt.Sprintf(" fenced %v", res.Fenced)
		}
		r.bus.note("%s", line)
		return nil
	}
	r.store.AddPlan(orderPlan("order", 1, "a", "b"))
	r.start(r.cfg.Node)
	r.adopt(0)
	return r
}

// clock is the rig's.
func (r *rig) clock() core.Instant { return r.now }

// orderPlan is a plan of undoable steps, each with an agent of its own name.
func orderPlan(name string, version int64, steps ...string) core.Plan {
	p := core.Plan{Name: name, Version: version}
	for i, s := range steps {
		step := core.Step{Name: s, Agent: "agent." + s, Undoable: true, Backoff: time.Second}
		if i > 0 {
			step.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, step)
	}
	return p
}

// steal lets a successor take a partition over behind the shard's back.
func (r *rig) steal(partition int) {
	r.t.Helper()
	if _, err := r.store.TakeOver(r.t.Context(), partition, core.Claim{Owner: "thief"}); err != nil {
		r.t.Fatal(err)
	}
}

// start makes a new shard, as after a crash: nothing of the old one is left.
func (r *rig) start(node string) {
	r.cfg.Node = node
	r.mail = &scheduler.Mail{}
	r.shard = r.newShard(node)
}

// newShard makes a shard that shares the rig's mail.
func (r *rig) newShard(seed string) *scheduler.Shard {
	mail := r.mail
	log := slog.New(slog.NewTextHandler(&r.logs, nil))
	draw := chance(seed)
	switch {
	case r.jitter != nil:
		draw = r.jitter
	case r.noJitter:
		draw = func() float64 { return 0 }
	}
	var store scheduler.Store = r.store
	if r.reads != nil {
		store = r.reads
	}
	return scheduler.NewShard(r.cfg, store, r.bus, log, draw, func(m scheduler.PublishedMail) { mail.Published = append(mail.Published, m) }, func(m scheduler.ProbedMail) {
		m.At = r.now
		mail.Probed = append(mail.Probed, m)
	})
}

// chance is a sequence of numbers in [0,1) that differs from node to node.
func chance(seed string) func() float64 {
	n := len(seed)
	for _, c := range seed {
		n = n*31 + int(c)
	}
	return func() float64 {
		n = (n*1103515245 + 12345) & 0x7fffffff
		return float64(n) / (1 << 31)
	}
}

func (r *rig) adopt(partition int) scheduler.Adopted {
	r.t.Helper()
	from, err := r.shard.Adopt(r.t.Context(), r.now, partition, scheduler.Ground{Stream: "stream-1"})
	if err != nil {
		r.t.Fatalf("adopt: %v", err)
	}
	return from
}

// cycle is one commit cycle without a flush; its error fails the test. It returns the partitions that were lost.
func (r *rig) cycle() []int {
	r.t.Helper()
	lost, err := r.try(false)
	if err != nil {
		r.t.Fatalf("commit cycle: %v", err)
	}
	return lost
}

func (r *rig) flush() {
	r.t.Helper()
	if _, err := r.try(true); err != nil {
		r.t.Fatalf("commit cycle: %v", err)
	}
}

// try is one commit cycle. Mail that the bus posts meanwhile is for the next one.
func (r *rig) try(flush bool) (lost []int, err error) {
	mail := *r.mail
	*r.mail = scheduler.Mail{}
	return r.shard.RunCycle(context.Background(), r.now, &mail, flush)
}

// tasks is one message of the task stream with those submissions.
func (r *rig) tasks(partition int, subs ...core.Submission) uint64 {
	r.pos++
	pos := r.pos
	r.mail.Tasks = append(r.mail.Tasks, scheduler.TaskMail{
		Partition: partition, Pos: pos, At: r.now, Submissions: subs, Ack: func() { r.bus.note("ack %d", pos) },
	})
	return pos
}

// control is one message of the control stream.
func (r *rig) control(c core.Control) uint64 {
	r.pos++
	pos := r.pos
	r.mail.Controls = append(r.mail.Controls, scheduler.ControlMail{
		Pos: pos, At: r.now, Control: c, Ack: func() { r.bus.note("ack control %d", pos) },
	})
	return pos
}

// answer replies to a command.
func (r *rig) answer(c core.Command, code int) {
	reply := core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy), Code: code}
	if code == 0 {
		reply.Result = []byte(`"` + c.Step + `"`)
	} else {
		reply.Error = fmt.Sprintf("code %d", code)
	}
	r.mail.Replies = append(r.mail.Replies, scheduler.ReplyMail{At: r.now, Reply: reply})
}

func (r *rig) unserved(c core.Command) {
	r.mail.Unserved = append(r.mail.Unserved, scheduler.ReplyMail{
		At: r.now, Reply: core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: core.TokenOf(c.Copy)},
	})
}

// finish answers whatever is out until nothing more leaves.
func (r *rig) finish() {
	r.t.Helper()
	for range 100 {
		cmds := r.bus.take()
		if len(cmds) == 0 && len(r.mail.Published) == 0 {
			return
		}
		for _, c := range cmds {
			r.answer(c, 0)
		}
		r.cycle()
	}
	r.t.Fatal("commands without end")
}

// one takes the one command that was sent since the last look.
func (r *rig) one() core.Command {
	r.t.Helper()
	cmds := r.bus.take()
	if len(cmds) != 1 {
		r.t.Fatalf("%d commands left, want 1\n%s", len(cmds), strings.Join(r.bus.list, "\n"))
	}
	return cmds[0]
}

// state checks the state of a stored task.
func (r *rig) state(id string, want core.State) *core.Task {
	r.t.Helper()
	task := r.store.Task(0, id)
	if task == nil || task.State != want {
		r.t.Fatalf("task %s is not %s:\n%s", id, want, r.store.History(0, id))
	}
	return task
}

// news returns what happened since the last call.
func (r *rig) news() []string {
	list := r.bus.list[r.seen:]
	r.seen = len(r.bus.list)
	return list
}

// expect compares what happened since the last call.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := r.news(); !slices.Equal(got, want) {
		r.t.Fatalf("happened:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// logged checks that the log says something.
func (r *rig) logged(text string) {
	r.t.Helper()
	if !strings.Contains(r.logs.String(), text) {
		r.t.Errorf("the log does not say %q:\n%s", text, r.logs.String())
	}
}

func order(id string) core.Submission {
	return core.Submission{Type: "order", ID: id, Input: []byte(`{"of":"` + id + `"}`), ReplyTo: "private." + id}
}

func orders(n int) []core.Submission {
	subs := make([]core.Submission, n)
	for i := range subs {
		subs[i] = order(fmt.Sprintf("t%d", i+1))
	}
	return subs
}
