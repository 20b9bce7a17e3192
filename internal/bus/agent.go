package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/internal/core"
)

// serviceVersion is what an agent says of itself in NATS's service discovery.
const serviceVersion = "1.0.0"

// codeStopping answers a command that came while its agent was going away.
const codeStopping = 503

// CommandRequest is one command at an agent, with the way to answer it.
type CommandRequest struct {
	Command core.Command
	service *Service
	reply   string // subject of the answer
}

// Respond answers with success; an empty result is null.
func (r *CommandRequest) Respond(result []byte) error {
	return r.Reply(core.Reply{Result: result})
}

// Fail answers with a failure: code as core.FinalCode reads it.
func (r *CommandRequest) Fail(code int, text string) error {
	return r.Reply(core.Reply{Code: code, Error: text})
}

// Reply answers with either. Only Code, Error and Result are read. A result that
// no message can hold is answered as a failure. It does not use the micro
// library's own answer, which may not be given by another goroutine.
func (r *CommandRequest) Reply(reply core.Reply) error {
	nc := r.service.conn.nc
	header, data := EncodeReply(&reply)
	var err error
	if header == nil {
		err = nc.Publish(r.reply, data)
		if errors.Is(err, nats.ErrMaxPayload) {
			header, _ = EncodeReply(&core.Reply{Code: core.CodeBadResult, Error: fmt.Sprintf("bad_result: %d bytes, the limit is %d", len(data), core.ResultBytesMax)})
		}
	}
	if header != nil {
		r.service.failed.Add(1)
		err = nc.PublishMsg(&nats.Msg{Subject: r.reply, Header: header})
	}
	if err != nil {
		return fmt.Errorf("answer to %s attempt %d: %w", r.Command.Key(), r.Command.Attempt, publishError(err))
	}
	r.service.answered.Add(1)
	return nil
}

// Service is an agent that listens.
type Service struct {
	conn    *Conn
	service micro.Service
	handler func(*CommandRequest)

	answered, failed atomic.Int64 // failed ones are answered too

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

// ServeCommands listens to the do and undo commands of an agent, together with
// its other instances, as a NATS micro service that `nats micro` shows. handler
// is called one do and one undo at a time and should hand over to workers: what
// waits behind it is bounded and then lost. A command that cannot be decoded is
// answered here, as an error that is tried again: a newer instance may know it.
func (c *Conn) ServeCommands(agent string, handler func(*CommandRequest)) (*Service, error) {
	if err := core.CheckAgent(agent); err != nil {
		return nil, err
	}
	s := &Service{conn: c, handler: handler}
	var err error
	s.service, err = micro.AddService(c.nc, micro.Config{
		Name:        "duly-" + strings.ReplaceAll(agent, ".", "_"),
		Version:     serviceVersion,
		Description: "Duly agent " + agent,
		Metadata:    map[string]string{"duly_agent": agent, "duly_wire": strconv.Itoa(Version)},
		// The library counts only what a handler answers before it returns.
		StatsHandler: func(*micro.Endpoint) any {
			return map[string]int64{"answered": s.answered.Load(), "failed": s.failed.Load()}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", agent, err)
	}
	for _, verb := range [...]struct {
		name string
		undo bool
	}{{"do", false}, {"undo", true}} {
		err := s.service.AddEndpoint(verb.name, s.serve(agent, verb.undo),
			micro.WithEndpointSubject(CommandSubject(agent, verb.undo)),
			micro.WithEndpointQueueGroup(GroupAgent),
			micro.WithEndpointPendingLimits(pendingMessagesMax, pendingBytesMax))
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("agent %s: %s: %w", agent, verb.name, err)
		}
	}
	// Without a server just now the next one is told.
	_ = c.nc.FlushTimeout(subscribeFlush)
	return s, nil
}

func (s *Service) serve(agent string, undo bool) micro.HandlerFunc {
	return func(req micro.Request) {
		r := &CommandRequest{service: s, reply: req.Reply()}
		var err error
		if r.Command, err = DecodeCommand(req.Data()); err != nil {
			s.conn.log.Warn("command refused", "agent", agent, "error", err)
			s.refuse(r, core.CodeAgentError, err.Error())
			return
		}
		r.Command.Agent, r.Command.Undo = agent, undo
		r.Command.Trace = CleanTrace(req.Headers().Get(HeaderTrace))
		// A caller that is not Duly's scheduler may wait elsewhere; then there is
		// no fence to read.
		if p, number, seq, err := ParseReply(r.reply); err == nil {
			r.Command.Partition, r.Command.Number, r.Command.Seq = p, number, seq
		}
		if !s.enter() {
			s.refuse(r, codeStopping, "agent is stopping")
			return
		}
		defer s.running.Done()
		s.handler(r)
	}
}

func (s *Service) refuse(r *CommandRequest, code int, text string) {
	if err := r.Fail(code, text); err != nil {
		s.conn.log.Debug("refusal not sent", "error", err)
	}
}

func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.running.Add(1)
	return true
}

// Stop takes no more commands and returns when handler has run for the last
// time. What the server had handed to this instance already is answered with an
// error that is tried again; the requests handed out before can still be
// answered.
func (s *Service) Stop() {
	if err := s.service.Stop(); err != nil {
		s.conn.log.Debug("agent's service did not stop", "error", err)
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.running.Wait()
}
