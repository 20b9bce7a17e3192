package wire

import (
	"fmt"
	"strings"
	"testing"

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

func BenchmarkAppendPack(b *testing.B) {
	subs := fullPack()
	buf := AppendPack(nil, subs)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendPack(buf[:0], subs)
	}
}

func BenchmarkDecodePack(b *testing.B) {
	data := AppendPack(nil, fullPack())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodePack(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTaskDecoder(b *testing.B) {
	subs := fullPack()
	for i := range subs {
		subs[i].ID = idIn(3, 16, i)
	}
	data := AppendPack(nil, subs)
	decoder := TaskDecoder{Partitions: 16}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := decoder.Decode("duly.tasks.3.pack", nil, data, at); err != nil || len(d.Refused) > 0 {
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
	var decoder CommandDecoder
	cmd := goldenCommand
	cmd.Input = []byte(`{"from":"` + strings.Repeat("x", 240) + `"}`)
	data := AppendCommand(nil, &cmd)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decoder.Decode(data); err != nil {
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
	subject, data := ReplySubject(15, 123456789, 42), []byte(`{"ok":true,"receipt":"r-12345"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeReply(subject, nil, data, core.ResultBytesMax); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendEvents(b *testing.B) {
	endings := make([]core.Ending, 64)
	for i := range endings {
		endings[i] = core.Ending{Partition: 3, EndNumber: int64(i), ID: fmt.Sprintf("delivery-%08d", i), Type: "delivery", State: core.StateProcessed, Seq: 6, CreatedAt: at, At: at}
	}
	buf := appendEvents(nil, endings)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendEvents(buf[:0], endings)
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
