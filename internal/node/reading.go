package node

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/scheduler"
)

const (
	readingEvery = 250 * time.Millisecond // while partitions are read on
	readingIdle  = time.Second            // while they are not
)

// tellReadings tells the doors how far a scheduler is with its partitions, until ctx ends. One that is not told is told a
// quarter of a second later.
func (n *Node) tellReadings(ctx context.Context, s *scheduler.Scheduler) {
	var last []core.Reading
	var at time.Time
	for pause.For(ctx, readingEvery) == nil {
		all, now := s.Readings(), time.Now()
		if slices.Equal(all, last) && now.Sub(at) < readingIdle {
			continue
		}
		if err := n.conn.PublishReadings(n.cfg.NodeName, all); err != nil {
			n.log.Debug("the doors do not hear how far the partitions are read", "error", err)
			continue
		}
		last, at = all, now
	}
}
