package natsbus

import (
	"strings"
	"sync"
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// The figures of packs are per pack of 64 items.

// BenchmarkCall is a command and its reply through an embedded server: two
// connections, one message each way.
func BenchmarkCall(b *testing.B) {
	server := serve(b, natsserver.Options{})
	scheduler, agent := dial(b, server.ClientURL()), dial(b, server.ClientURL())
	window := make(chan struct{}, 1024)
	sub, err := scheduler.ServeReplies(3, func(core.Reply) { <-window }, func(core.Reply) { b.Error("unserved") })
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Stop()
	result := []byte(`{"ok":true}`)
	service, err := agent.ServeCommands("payment.charge", false, func(r *CommandRequest) { _ = r.Respond(result) })
	if err != nil {
		b.Fatal(err)
	}
	defer service.Stop()
	cmd := sampleCommand
	cmd.Undo, cmd.Input = false, []byte(`{"from":"`+strings.Repeat("x", 240)+`"}`)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		window <- struct{}{}
		cmd.Number = int64(i)
		if err := scheduler.SendCommand(&cmd); err != nil {
			b.Fatal(err)
		}
	}
	for range cap(window) { // the last replies
		window <- struct{}{}
	}
}

// BenchmarkPack is a pack of 64 stored and read, synced to disk each time; the
// figure is per submission.
func BenchmarkPack(b *testing.B) {
	c := ready(b)
	subs := fullPack()
	for i := range subs {
		subs[i].ID = idIn(part, 16, i)
	}
	var read sync.WaitGroup
	packs := (b.N + wire.PackItemsMax - 1) / wire.PackItemsMax
	read.Add(packs)
	decoder := wire.TaskDecoder{Partitions: 16}
	r, err := c.ReadTasks(within(b), part, 1, 0, ReadConfig{}, func(m *TaskMessage) {
		if d, err := decoder.Decode(m.Subject, m.Header, m.Data, m.Time); err != nil || len(d.Submissions) != wire.PackItemsMax {
			b.Error(len(d.Submissions), err)
		}
		_ = m.Ack()
		read.Done()
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Stop()
	window := make(chan struct{}, 64)
	b.ReportAllocs()
	b.ResetTimer()
	for range packs {
		window <- struct{}{}
		c.PublishPack(part, subs, func(_ uint64, err error) {
			if err != nil {
				b.Error(err)
			}
			<-window
		})
	}
	read.Wait()
}
