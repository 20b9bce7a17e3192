package node

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/ground"
)

// condOverload is the condition that the door takes what it is offered.
const condOverload = "overload"

// overloadEvery is over how long refusals are told together.
const overloadEvery = 5 * time.Second

// overloadCondition is what is told of it. Each node tells of its own door.
func (n *Node) overloadCondition() ground.Condition {
	var last ingest.Stats
	var of *ingest.Ingest
	return ground.Condition{Name: condOverload, Every: overloadEvery, Probe: func(context.Context) error {
		door := n.door.Load()
		if door == nil {
			return ground.ErrUnknown // another condition tells it
		}
		is := door.Stats()
		was := last
		if last = is; door != of {
			of = door
			return ground.ErrUnknown
		}
		refused := is.Refused[ingest.CauseBacklog] - was.Refused[ingest.CauseBacklog]
		if refused == 0 {
			return nil
		}
		return fmt.Errorf("%d of %d submissions of the last %v were refused: they would have begun too late, the wait is %v", refused, is.Taken-was.Taken, overloadEvery, is.Wait.Round(100*time.Millisecond))
	}}
}
