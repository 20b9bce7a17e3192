package bus

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

func fullPack() []core.Submission {
	subs := make([]core.Submission, PackItemsMax)
	for i := range subs {
		subs[i] = core.Submission{Type: "delivery", ID: fmt.Sprintf("delivery-%08d", i), PlanVersion: 1, CompleteBy: at, ReplyTo: "_INBOX.Zq3.1",
			At: at, Input: []byte(`{"from":"` + strings.Repeat("x", 240) + `"}`)}
	}
	return subs
}

// The figures of packs are per pack of 64 items.

func BenchmarkEncodePack(b *testing.B) {
	subs := fullPack()
	buf := EncodePack(nil, subs)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = EncodePack(buf[:0], subs)
	}
}

func BenchmarkDecodePack(b *testing.B) {
	data := EncodePack(nil, fullPack())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodePack(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDoorsDecode(b *testing.B) {
	subs := fullPack()
	for i := range subs {
		subs[i].ID = idIn(part, 16, i)
	}
	data := EncodePack(nil, subs)
	doors := Doors{Partitions: 16}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := doors.Decode("duly.tasks.3.pack", nil, data, at); err != nil || len(d.Refused) > 0 {
			b.Fatal(d.Refused, err)
		}
	}
}

func BenchmarkAppendCommand(b *testing.B) {
	cmd := goldenCommand
	cmd.Input = []byte(`{"from":"` + strings.Repeat("x", 240) + `"}`)
	buf := AppendCommand(nil, &cmd)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendCommand(buf[:0], &cmd)
	}
}

func BenchmarkDecodeCommand(b *testing.B) {
	var decoder commandDecoder
	cmd := goldenCommand
	cmd.Input = []byte(`{"from":"` + strings.Repeat("x", 240) + `"}`)
	data := AppendCommand(nil, &cmd)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decoder.decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplySubject(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = ReplySubject(15, 123456789, 42)
	}
}

func BenchmarkDecodeReply(b *testing.B) {
	m := &nats.Msg{Subject: ReplySubject(15, 123456789, 42), Data: []byte(`{"ok":true,"receipt":"r-12345"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeReply(m, core.ResultBytesMax); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeEvents(b *testing.B) {
	endings := make([]core.Ending, 64)
	for i := range endings {
		endings[i] = core.Ending{Partition: 3, EndNumber: int64(i), ID: fmt.Sprintf("delivery-%08d", i), Type: "delivery", State: core.StateProcessed, Seq: 6, CreatedAt: at, At: at}
	}
	buf := EncodeEvents(nil, endings)
	b.ReportAllocs()
	for b.Loop() {
		buf = EncodeEvents(buf[:0], endings)
	}
}

func BenchmarkAppendStatus(b *testing.B) {
	s := core.Status{ID: "delivery-00000001", Type: "delivery", Status: "processed", At: at}
	buf := AppendStatus(nil, &s)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendStatus(buf[:0], &s)
	}
}

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
	cmd := goldenCommand
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
	packs := (b.N + PackItemsMax - 1) / PackItemsMax
	read.Add(packs)
	doors := Doors{Partitions: 16}
	r, err := c.ReadTasks(within(b), part, 1, 0, ReadConfig{}, func(m *TaskMessage) {
		if d, err := doors.Decode(m.Subject, m.Header, m.Data, m.Time); err != nil || len(d.Submissions) != PackItemsMax {
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
