package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// BenchmarkCycle takes five-step tasks from their creation to their end, 500 at a time, with a
// store and a bus that do nothing: what is left is the owner's own work.
func BenchmarkCycle(b *testing.B) {
	const batch = 500
	store := nopStore{sim.NewMemStore()}
	store.AddPlan(orderPlan("order", 1, "a", "b", "c", "d", "e"))
	out := &nopBus{}
	mail := &scheduler.Mail{}
	now := began
	s := scheduler.NewShard(scheduler.Config{Node: "n1", Now: func() core.Instant { return now }}, store, out, slog.New(slog.DiscardHandler), chance("n1"),
		func(m scheduler.PublishedMail) { mail.Published = append(mail.Published, m) }, func(scheduler.ProbedMail) {})
	if _, err := s.Adopt(b.Context(), now, 0, scheduler.Ground{Stream: "stream-1"}); err != nil {
		b.Fatal(err)
	}
	subs := make([]core.Submission, batch)
	input := []byte(`{"from":"a","to":"b","weight_g":1200,"express":true}`)
	result := []byte(`{"ok":true}`)
	ids := make([]string, b.N+batch)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%d", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n, pos := 0, uint64(1); n < b.N; n, pos = n+batch, pos+1 {
		for i := range subs {
			subs[i] = core.Submission{Type: "order", ID: ids[n+i], PlanVersion: 1, Input: input, At: now}
		}
		mail.Tasks = append(mail.Tasks, scheduler.TaskMail{Pos: pos, At: now, Submissions: subs})
		for range 6 {
			if _, err := s.RunCycle(b.Context(), now, mail, false); err != nil {
				b.Fatal(err)
			}
			now++
			for _, r := range out.replies {
				r.Result = result
				mail.Replies = append(mail.Replies, scheduler.ReplyMail{At: now, Reply: r})
			}
			out.replies = out.replies[:0]
		}
		for _, m := range out.published {
			m(nil)
		}
		out.published = out.published[:0]
	}
	b.StopTimer()
	if s.Stats.Records < 6*int64(b.N) {
		b.Fatalf("%d journal rows of %d tasks", s.Stats.Records, b.N)
	}
}

type nopStore struct{ *sim.MemStore }

func (nopStore) Commit(context.Context, *core.Batch) (core.CommitResult, error) {
	return core.CommitResult{}, nil
}

// nopBus keeps what a reply needs.
type nopBus struct {
	bus
	replies   []core.Reply
	published []func(error)
}

func (n *nopBus) Send(cmds []core.Command) {
	for i := range cmds {
		c := &cmds[i]
		n.replies = append(n.replies, core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq})
	}
}

func (n *nopBus) Publish(_ []core.Ending, done func(error)) { n.published = append(n.published, done) }
func (n *nopBus) Live(core.Status)                          {}
