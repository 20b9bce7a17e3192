package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBacklogOfSomeStreams: what some task streams say of their partitions counts, though another did not answer; what
// is no longer said does not.
func TestBacklogOfSomeStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		said := []map[int]int64{{0: 7, 1: 5}, {0: 8}, nil, nil}
		b := newBacklog(func(context.Context) (pending map[int]int64, err error) {
			if pending, said = said[0], said[1:]; len(pending) < 2 {
				err = errors.New("stream DULY_TASKS_1: no answer")
			}
			return pending, err
		})
		var wg sync.WaitGroup
		wg.Go(func() { b.run(ctx) })
		for _, want := range [][2]int64{{0, 0}, {7, 5}, {8, 0}, {0, 0}} {
			if got := [2]int64{b.Pending(0), b.Pending(1)}; got != want {
				t.Errorf("%v, want %v", got, want)
			}
			<-time.After(backlogEvery)
			synctest.Wait()
		}
		cancel()
		wg.Wait()
	})
}
