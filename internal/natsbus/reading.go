package natsbus

import (
	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// PublishReadings tells the doors how far this node is with its partitions, once and without storing it.
func (c *Conn) PublishReadings(node string, all []core.Reading) error {
	data, err := wire.EncodeReadings(node, all)
	return c.tell(c.names.SubjectReading(), "how far the partitions are read", data, err)
}

// OnReadings calls f with what each scheduler says of its partitions, from one goroutine.
func (c *Conn) OnReadings(f func(node string, all []core.Reading)) (*Subscription, error) {
	return c.subscribe(c.names.SubjectReading(), "", func(msg *nats.Msg) {
		node, all, err := wire.DecodeReadings(msg.Data)
		if err != nil {
			c.log.Debug("what a scheduler says of its partitions is ignored", "error", err)
			return
		}
		f(node, all)
	})
}
