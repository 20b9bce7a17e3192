package natsbus

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// SendCommand sends one command to its agent. The answer arrives at ServeReplies of its partition, on this
// connection; so does the server's report that no instance of the agent subscribes.
func (c *Conn) SendCommand(cmd *core.Command) error {
	b := buffer()
	defer release(b)
	*b = wire.AppendCommand(*b, cmd)
	subject, reply := c.names.CommandSubject(cmd.Agent, cmd.Undo), c.signer.Load().ReplySubject(c.names, cmd)
	var err error
	if cmd.Trace == "" {
		err = c.nc.PublishRequest(subject, reply, *b)
	} else {
		err = c.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: *b, Header: nats.Header{wire.HeaderTrace: {cmd.Trace}}})
	}
	if err != nil {
		return fmt.Errorf("command %s attempt %d to %s: %w", cmd.Key(), cmd.Attempt, cmd.Agent, publishError(err))
	}
	return nil
}

// ServeReplies listens to the answers to a partition's commands. unservedBy gets commands that nobody
// subscribes to, as replies without content. Here only core.ResultBytesMax is checked: the partition's owner
// must check with Conn.Genuine that a reply is genuine, and that its result is within the step's own limit.
func (c *Conn) ServeReplies(partition int, reply, unservedBy func(core.Reply)) (*Subscription, error) {
	return c.subscribe(c.names.ReplyPattern(partition), "", func(msg *nats.Msg) {
		if unserved(msg) {
			if r, ok := c.names.EmptyReply(msg.Subject); ok {
				unservedBy(r)
			}
			return
		}
		r, err := c.names.DecodeReply(msg.Subject, wire.Header(msg.Header), msg.Data, core.ResultBytesMax)
		if err != nil {
			c.log.Warn("reply ignored", "error", err)
			return
		}
		reply(r)
	})
}

// unserved reports whether a message on a reply subject is the server's report that no
// subscription took the request.
func unserved(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && len(msg.Header) > 0 && msg.Header.Get("Status") == "503"
}
