package natsbus

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/wire"
)

// Backlog is how many messages of each partition of the task stream its owner
// has not been handed yet, as the server counts them. A partition without a
// reader is missing. It is one request for all of them: for every second or so,
// not for every submission.
func (c *Conn) Backlog(ctx context.Context) (map[int]int64, error) {
	stream, err := c.js.Stream(ctx, c.names.StreamTasks())
	if err != nil {
		return nil, fmt.Errorf("backlog: %w", err)
	}
	pending := map[int]int64{}
	newest := map[int]int64{}
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		p, epoch, _, ok := wire.ParseConsumer(info.Name)
		if ok && epoch >= newest[p] {
			newest[p] = epoch
			pending[p] = int64(info.NumPending)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("backlog: %w", err)
	}
	return pending, nil
}
