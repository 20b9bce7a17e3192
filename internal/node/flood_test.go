package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// slowStream answers after five seconds.
type slowStream struct{}

func (slowStream) Publish(_ int, _ []core.Submission, done func(uint64, error)) {
	time.AfterFunc(5*time.Second, func() { done(1, nil) })
}

// orders are the plans there are.
type orders struct{}

func (orders) Plan(name string, _ int64) *core.Plan {
	return &core.Plan{Name: name, Version: 1, InputMax: 100}
}

func (orders) Reload(done func(error)) { done(nil) }

// A flood at this node's own door is what its scheduler is told of; without a door
// there is none.
func TestSchedulerIsToldOfTheDoorsFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door, err := ingest.NewDoor(ingest.Config{
			Partitions: 1, PartitionOf: func(string, int) int { return 0 }, FloodItems: 3, PublishMax: time.Minute,
		}, orders{}, slowStream{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := ingest.New(door, newClock(nil).instant)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx) }()

		n := &Node{clock: newClock(nil)}
		flooded := n.schedulerConfig().Flooded
		if flooded() {
			t.Error("flooded without a door")
		}
		n.setDoor(&openDoor{in})
		if flooded() {
			t.Error("flooded before anything came")
		}
		for i := range 30 {
			in.Submit(ingest.Request{Type: "order", ID: fmt.Sprintf("o%d", i), Input: []byte(`{}`), Answer: func(ingest.Answer) {}})
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		if !flooded() {
			t.Error("more than three unanswered for a while are a flood here, and the scheduler does not hear of it")
		}
		n.setDoor(nil)
		if flooded() {
			t.Error("flooded after the door is gone")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
