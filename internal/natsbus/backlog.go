package natsbus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// backlogSpare is how much longer than for the first task stream Backlog waits for the others: its figures grow old meanwhile.
const backlogSpare = time.Second

// Backlog returns, for each partition, how many messages of the task stream its owner was not handed yet, as
// the server counts them. A partition without a reader is missing. It costs one request for each task stream,
// so call it every second or so, not for every submission. With an error, which names the task streams that
// did not answer, it returns what the others said.
func (c *Conn) Backlog(ctx context.Context) (map[int]int64, error) {
	pending, err := eachTaskStream(ctx, c, backlogSpare, func(ctx context.Context, stream jetstream.Stream, has func(int) bool) (map[int]int64, error) {
		pending, newest := map[int]int64{}, map[int]int64{}
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			p, epoch, _, ok := wire.ParseConsumer(info.Name)
			if ok && has(p) && epoch >= newest[p] {
				newest[p] = epoch
				pending[p] = int64(info.NumPending)
			}
		}
		return pending, list.Err()
	})
	if err != nil {
		return pending, fmt.Errorf("backlog: %w", err)
	}
	return pending, nil
}
