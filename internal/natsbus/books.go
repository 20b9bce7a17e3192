package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// AskBooks asks an agent which effects its service has, to compare them with the journal. Errors:
// wire.ErrNoBooks if nobody answers such questions; one that wraps wire.ErrUndecodable; what the agent
// answered instead; ctx's.
func (c *Conn) AskBooks(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error) {
	if err := core.CheckAgent(agent); err != nil {
		return wire.BooksAnswer{}, err
	}
	data, err := wire.EncodeBooksQuestion(q)
	if err != nil {
		return wire.BooksAnswer{}, err
	}
	msg, err := c.Request(ctx, c.names.SubjectBooks(agent), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return wire.BooksAnswer{}, fmt.Errorf("agent %s: %w", agent, wire.ErrNoBooks)
	case err != nil:
		return wire.BooksAnswer{}, fmt.Errorf("books of agent %s: %w", agent, err)
	}
	if code, text, failed := wire.Header(msg.Header).Failure(); failed {
		return wire.BooksAnswer{}, fmt.Errorf("books of agent %s: it answered %s, %s", agent, wire.CutText(code), wire.CutText(text))
	}
	answer, err := wire.DecodeBooksAnswer(msg.Data)
	if err != nil {
		return wire.BooksAnswer{}, fmt.Errorf("agent %s: %w", agent, err)
	}
	return answer, nil
}

// ServeBooks answers such questions for an agent until the subscription is stopped, one at a time. An error
// of find goes to whoever asked.
func (c *Conn) ServeBooks(ctx context.Context, agent string, find func(context.Context, wire.BooksQuestion) (wire.BooksAnswer, error)) (*Subscription, error) {
	at, err := c.listensAs(agent)
	if err != nil {
		return nil, err
	}
	return c.subscribe(c.names.SubjectBooks(at), wire.GroupAgent, func(msg *nats.Msg) {
		if !c.mayAnswer(msg.Reply) {
			return
		}
		answer := &nats.Msg{Subject: msg.Reply, Header: nats.Header{}}
		data, code, err := booksAnswer(ctx, msg.Data, find)
		if answer.Data = data; err != nil {
			answer.Header.Set(wire.HeaderError, wire.CutText(err.Error()))
			answer.Header.Set(wire.HeaderErrorCode, code)
		}
		if err := c.nc.PublishMsg(answer); err != nil {
			c.log.Debug("books not answered", "agent", agent, "error", err)
		}
	})
}

// booksAnswer returns the encoded answer to a question, or an error with the code for the asker.
func booksAnswer(ctx context.Context, question []byte, find func(context.Context, wire.BooksQuestion) (wire.BooksAnswer, error)) (data []byte, code string, err error) {
	q, err := wire.DecodeBooksQuestion(question)
	if err != nil {
		return nil, "400", err
	}
	found, err := find(ctx, q)
	if err != nil {
		return nil, "500", err
	}
	if data, err = wire.EncodeBooksAnswer(found); err != nil {
		return nil, "500", err
	}
	return data, "", nil
}
