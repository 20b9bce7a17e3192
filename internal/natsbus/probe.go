package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// errNoProbe says that no instance of the agent listens for probes.
var errNoProbe = errors.New("agent serves no probes")

// probesMax bounds how many probes of one agent a process answers at a time.
const probesMax = 64

// AskProbe asks an agent whether a do took effect. resultMax bounds the result, in bytes. Errors: errNoProbe,
// one that wraps wire.ErrUndecodable, what the agent answered instead, or ctx's.
func (c *Conn) AskProbe(ctx context.Context, cmd *core.Command, resultMax int) (core.Probe, error) {
	msg, err := c.Request(ctx, c.names.SubjectProbe(cmd.Agent), wire.AppendCommand(nil, cmd))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return core.Probe{}, fmt.Errorf("probe of %s: agent %s: %w", cmd.Key(), cmd.Agent, errNoProbe)
	case err != nil:
		return core.Probe{}, fmt.Errorf("probe of %s: agent %s: %w", cmd.Key(), cmd.Agent, err)
	}
	if code, text, failed := wire.Header(msg.Header).Failure(); failed {
		return core.Probe{}, fmt.Errorf("probe of %s: agent %s answered %s, %s", cmd.Key(), cmd.Agent, wire.CutText(code), wire.CutText(text))
	}
	probe, err := wire.DecodeProbe(msg.Data, resultMax)
	if err != nil {
		return core.Probe{}, fmt.Errorf("probe of %s: agent %s: %w", cmd.Key(), cmd.Agent, err)
	}
	return probe, nil
}

// ServeProbes answers an agent's probes until stop is called, which returns when the last answer is out, or when those that are
// at work have outlived their context by too much.
// probe is called for up to probesMax at a time; further ones are refused (429). Its error goes to the asker
// with the code.
func (c *Conn) ServeProbes(ctx context.Context, agent string, probe func(context.Context, *core.Command) (p core.Probe, code int, err error)) (stop func(), err error) {
	at, err := c.listensAs(agent)
	if err != nil {
		return nil, err
	}
	s := &probeService{conn: c, ctx: ctx, agent: agent, probe: probe, atWork: make(chan struct{}, probesMax)}
	sub, err := c.subscribe(c.names.SubjectProbe(at), wire.GroupAgent, s.take)
	if err != nil {
		return nil, err
	}
	return func() {
		sub.Stop()
		timer := time.NewTimer(c.patience(stopTimeout))
		defer timer.Stop()
		for range probesMax { // no place is free until its probe has ended
			select {
			case s.atWork <- struct{}{}:
			case <-timer.C:
				c.log.Warn("probes that ignore their context are not waited for", "agent", agent)
				return
			}
		}
	}, nil
}

// probeService answers the probes of one agent.
type probeService struct {
	conn  *Conn
	ctx   context.Context
	agent string
	probe func(context.Context, *core.Command) (core.Probe, int, error)
	// atWork has an element for each probe that is being answered.
	atWork chan struct{}
}

// take begins to answer one probe, or refuses it.
func (s *probeService) take(msg *nats.Msg) {
	if !s.conn.mayAnswer(msg.Reply) {
		return
	}
	cmd, err := wire.DecodeCommand(msg.Data)
	if err != nil {
		s.refuse(msg.Reply, wire.CodeBadRequest, err)
		return
	}
	cmd.Agent, cmd.Trace = s.agent, core.CleanTrace(msg.Header.Get(wire.HeaderTrace))
	select {
	case s.atWork <- struct{}{}:
	default:
		s.refuse(msg.Reply, core.CodeTooMany, fmt.Errorf("agent %s has %d probes at work, the limit", s.agent, probesMax))
		return
	}
	go func() {
		defer func() { <-s.atWork }()
		p, code, err := s.probe(s.ctx, &cmd)
		if err != nil {
			s.refuse(msg.Reply, code, err)
			return
		}
		s.send(&nats.Msg{Subject: msg.Reply, Data: wire.AppendProbe(nil, &p)})
	}()
}

// refuse answers a probe with an error.
func (s *probeService) refuse(reply string, code int, err error) {
	s.send(&nats.Msg{Subject: reply, Header: nats.Header{wire.HeaderError: {wire.CutText(err.Error())}, wire.HeaderErrorCode: {strconv.Itoa(code)}}})
}

// send publishes an answer. One that is lost counts as none: the asker repeats the question.
func (s *probeService) send(msg *nats.Msg) {
	if err := s.conn.nc.PublishMsg(msg); err != nil {
		s.conn.log.Debug("probe not answered", "agent", s.agent, "error", err)
	}
}
