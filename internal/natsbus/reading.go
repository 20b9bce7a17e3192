package natsbus

import (
	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// PublishReadings tells ingest how far this node is with its partitions, without storing it.
func (c *Conn) PublishReadings(node string, all []core.Reading) error {
	data, err := wire.EncodeReadings(node, all)
	return c.tell(c.names.SubjectReading(), "how far the partitions are read", data, err)
}

// OnReadings calls f, from one goroutine, with what each scheduler tells.
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
