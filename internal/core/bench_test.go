package core

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// fiveSteps is the shape of the reference load.
func fiveSteps() *Plan {
	p := stepsPlan(5).WithDefaults()
	return &p
}

// BenchmarkTaskLife is what the core costs one task of five steps: its birth and
// five replies, six journal rows, into one outcome that is used again.
func BenchmarkTaskLife(b *testing.B) {
	p := fiveSteps()
	var out Outcome
	result := []byte(`{"ok":true}`)
	b.ReportAllocs()
	for b.Loop() {
		t := Task{ID: "t1", CreatedAt: birthTime}
		Birth(p, &t, &Event{At: birthTime, Actor: node}, &out)
		for i := range p.Steps {
			ev := Event{Kind: EventReply, At: birthTime + Instant(i), Actor: "agent", Seq: int64(i + 1), Result: result}
			if err := Apply(p, &t, &ev, &out); err != nil {
				b.Fatal(err)
			}
		}
		if t.State != StateProcessed {
			b.Fatal(t.State)
		}
	}
}

// BenchmarkStale is a reply that comes twice.
func BenchmarkStale(b *testing.B) {
	p := fiveSteps()
	var out Outcome
	t := Task{ID: "t1", CreatedAt: birthTime}
	Birth(p, &t, &Event{At: birthTime, Actor: node}, &out)
	b.ReportAllocs()
	for b.Loop() {
		_ = Apply(p, &t, &Event{Kind: EventReply, At: birthTime, Seq: 7}, &out)
	}
}

// BenchmarkReplay rebuilds a task that is at its last step.
func BenchmarkReplay(b *testing.B) {
	r := newRig(b, stepsPlan(5))
	r.birth(0)
	for range 4 {
		r.answer(0)
	}
	saved := Saved{Row: r.row, Journal: r.journal}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Replay(r.plan, &saved); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckName is one look at an id; each is looked at several times on its way.
func BenchmarkCheckName(b *testing.B) {
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))[:36]
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if err := CheckName("id", ids[n%len(ids)]); err != nil {
			b.Fatal(err)
		}
	}
}
