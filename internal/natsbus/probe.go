package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// errNoProbe says that no instance of the agent listens on the subject of its probes.
var errNoProbe = errors.New("agent serves no probes")

// probesMax bounds the probes of one agent that are at work in a process at a time.
const probesMax = 64

// AskProbe asks an agent whether the do of a command took effect; resultMax is how many bytes the result may have.
// Errors: errNoProbe, one that wraps wire.ErrUndecodable, what the agent answered instead, or ctx's.
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

// ServeProbes answers the probes of an agent until stop is called, which returns when the last one has been answered.
// probe is called for probesMax of them at a time; more are refused (429). Its error goes to the asker, with code.
func (c *Conn) ServeProbes(ctx context.Context, agent string, probe func(context.Context, *core.Command) (p core.Probe, code int, err error)) (stop func(), err error) {
	at, err := c.listens(agent)
	if err != nil {
		return nil, err
	}
	s := &probeService{conn: c, ctx: ctx, agent: agent, probe: probe, room: make(chan struct{}, probesMax)}
	sub, err := c.subscribe(c.names.SubjectProbe(at), wire.GroupAgent, s.take)
	if err != nil {
		return nil, err
	}
	return func() {
		sub.Stop()
		for range probesMax { // no place is free until its probe has ended
			s.room <- struct{}{}
		}
	}, nil
}

// probeService answers the probes of one agent.
type probeService struct {
	conn  *Conn
	ctx   context.Context
	agent string
	probe func(context.Context, *core.Command) (core.Probe, int, error)
	room  chan struct{} // has an element for each probe at work
}

// take begins one probe, or refuses it.
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
	case s.room <- struct{}{}:
	default:
		s.refuse(msg.Reply, core.CodeTooMany, fmt.Errorf("agent %s has %d probes at work, the limit", s.agent, probesMax))
		return
	}
	go func() {
		defer func() { <-s.room }()
		p, code, err := s.probe(s.ctx, &cmd)
		if err != nil {
			s.refuse(msg.Reply, code, err)
			return
		}
		s.send(&nats.Msg{Subject: msg.Reply, Data: wire.AppendProbe(nil, &p)})
	}()
}

func (s *probeService) refuse(reply string, code int, err error) {
	s.send(&nats.Msg{Subject: reply, Header: nats.Header{wire.HeaderError: {wire.CutText(err.Error())}, wire.HeaderErrorCode: {strconv.Itoa(code)}}})
}

// send answers. What is lost counts as no answer.
func (s *probeService) send(msg *nats.Msg) {
	if err := s.conn.nc.PublishMsg(msg); err != nil {
		s.conn.log.Debug("probe not answered", "agent", s.agent, "error", err)
	}
}
