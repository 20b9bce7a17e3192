package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire"
)

// ServeAway answers other nodes' question which agents this node's tasks wait for, with what say returns. say
// is called from one goroutine.
func (c *Conn) ServeAway(say func() wire.AwayReport) (*Subscription, error) {
	return c.subscribe(c.names.SubjectAway(), "", func(msg *nats.Msg) {
		data, err := wire.EncodeAway(say())
		if err != nil {
			c.log.Debug("a question for agents that are away is not answered", "error", err)
			return
		}
		c.answer(msg.Reply, func(b []byte) []byte { return append(b, data...) })
	})
}

// Away asks these nodes which agents their tasks wait for. It returns what they answer within
// instancesWithin; more: some have not answered. Answers of anybody else are ignored. Errors: there is no
// server, or it cannot be asked.
func (c *Conn) Away(ctx context.Context, nodes []string) (all []wire.AwayReport, more bool, err error) {
	if len(nodes) == 0 {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, instancesWithin)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, fmt.Errorf("ask for agents that are away: %w", publishError(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	if err := sub.SetPendingLimits(2*instancesMax, -1); err != nil {
		return nil, false, fmt.Errorf("ask for agents that are away: %w", err)
	}
	if err := c.nc.PublishRequest(c.names.SubjectAway(), inbox, nil); err != nil {
		return nil, false, fmt.Errorf("ask for agents that are away: %w", publishError(err))
	}
	// It also stops after a bounded number of answers, because anybody who knows the inbox may answer.
	for answers := 0; len(all) < len(nodes) && answers < 2*instancesMax; answers++ {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return all, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("ask for agents that are away: %w", publishError(err))
		}
		r, err := wire.DecodeAway(msg.Data)
		if err != nil {
			c.log.Debug("an answer about agents that are away is ignored", "error", err)
			continue
		}
		if slices.Contains(nodes, r.Node) && !slices.ContainsFunc(all, func(one wire.AwayReport) bool { return one.Node == r.Node }) {
			all = append(all, r)
		}
	}
	return all, len(all) < len(nodes), nil
}
