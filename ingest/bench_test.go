package ingest

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// nowLog stores at once.
type nowLog struct{ seq uint64 }

func (l *nowLog) Publish(_ int, _ []core.Submission, done func(uint64, error)) {
	l.seq++
	done(l.seq, nil)
}

func fnvOf(id string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % uint32(n))
}

func benchDoor(b *testing.B, taken Taken, streams int) *Door {
	b.Helper()
	door, err := NewDoor(Config{Taken: taken, StreamOf: streamName(streams), Partitions: 16, PartitionOf: fnvOf, QuietItems: 1, BusyItems: 1, ItemsMax: 1 << 20, BytesMax: 4 << 30}, plans("order"), &nowLog{})
	if err != nil {
		b.Fatal(err)
	}
	return door
}

// delivery is about what the drone application submits.
const delivery = `{"deliveryId":"d-000001","ownerId":"owner-17","pickupLocation":"12 Harbour Road","dropOffLocation":"3 Hill Street",` +
	`"pickupTime":"2024-05-01T10:00:00Z","deadline":"","expedited":true,"confirmationRequired":"None",` +
	`"packageInfo":{"packageId":"p-1","size":"Small","weight":1.5,"tag":"t"}}`

// BenchmarkDoor is the way of one submission through the door: checks, packing,
// publishing, answering. ns/op and allocs/op are per submission.
func BenchmarkDoor(b *testing.B) {
	// In a flood the store is not looked at, but what is accepted is remembered.
	for _, in := range []struct {
		name, input string
		taken       Taken
		streams     int
	}{{"tiny", `{}`, &memTaken{full: true}, 1}, {"delivery", delivery, &memTaken{full: true}, 1}, {"forgetful", delivery, nil, 1}, {"3-streams", delivery, nil, 3}} {
		b.Run(in.name, func(b *testing.B) {
			door := benchDoor(b, in.taken, in.streams)
			var answered int
			answer := func(Answer) { answered++ }
			ids := make([]string, 4096)
			for i := range ids {
				ids[i] = fmt.Sprintf("delivery-%06d", i)
			}
			req := Request{Form: submit.Form{Type: "order", Input: []byte(in.input)}, Answer: answer}
			now := epoch
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req.ID = ids[i%len(ids)]
				door.Submit(now, req)
				if i%512 == 511 { // 512 a turn: 32 to a pack
					now = now.Add(10 * time.Millisecond)
					door.Flush(now)
				}
			}
			door.Close(now)
			door.Flush(now)
			if int64(answered) != door.Stats(epoch).Accepted || !door.Idle() {
				b.Fatalf("%d answers, %+v", answered, door.Stats(epoch))
			}
			b.ReportMetric(float64(door.Stats(epoch).Packed)/float64(door.Stats(epoch).Packs), "items/pack")
		})
	}
}

// BenchmarkIngest is the same from other goroutines through the inbox and the
// loop.
func BenchmarkIngest(b *testing.B) {
	door := benchDoor(b, &memTaken{full: true}, 1)
	in := New(door, clock)
	ctx, cancel := context.WithCancel(b.Context())
	var loop sync.WaitGroup
	loop.Go(func() { _ = in.Run(ctx) })
	defer loop.Wait()
	defer cancel()
	input := []byte(delivery)
	ids := make([]string, 4096)
	for i := range ids {
		ids[i] = fmt.Sprintf("delivery-%06d", i)
	}
	var answered, refused atomic.Int64
	answer := func(a Answer) {
		answered.Add(1)
		if a.Err != nil {
			refused.Add(1)
		}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			in.Submit(Request{Form: submit.Form{Type: "order", ID: ids[i%len(ids)], Input: input}, Answer: answer})
		}
	})
	b.ReportMetric(float64(refused.Load())/float64(b.N), "refused/op")
}
