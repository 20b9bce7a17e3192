package natsbus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Backlog is how many messages of each partition of the task stream its owner
// has not been handed yet, as the server counts them. A partition without a
// reader is missing. It is one request a task stream: for every second or so,
// not for every submission.
func (c *Conn) Backlog(ctx context.Context) (map[int]int64, error) {
	pending := map[int]int64{}
	newest := map[int]int64{}
	err := c.eachTaskStream(ctx, func(stream jetstream.Stream, has func(int) bool) error {
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			p, epoch, _, ok := wire.ParseConsumer(info.Name)
			if ok && has(p) && epoch >= newest[p] {
				newest[p] = epoch
				pending[p] = int64(info.NumPending)
			}
		}
		return list.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("backlog: %w", err)
	}
	return pending, nil
}
