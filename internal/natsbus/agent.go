package natsbus

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// serviceVersion is what an agent says of itself in NATS's service discovery.
const serviceVersion = "1.0.0"

// codeStopping answers a command that came while its agent was going away.
const codeStopping = 503

// CommandRequest is one command at an agent, with the way to answer it.
type CommandRequest struct {
	Command core.Command
	service *Service
	// reply is the subject of the answer. With batch the answer may share a message with others, and repeats
	// token.
	reply string
	batch bool
	token core.Token
}

// Fail answers with a failure. Whether the code is final, core.FinalCode says.
func (r *CommandRequest) Fail(code int, text string) error {
	return r.Reply(core.Reply{Code: code, Error: text})
}

// Reply answers with a result or a failure. Only Code, Error and Result are read, and Result must not change
// afterwards. A result too large for a message becomes a failure. The answer leaves a moment later, together
// with others. If the network loses it, that is logged, and the command comes again like any command without
// an answer.
func (r *CommandRequest) Reply(reply core.Reply) error {
	s := r.service
	if s.conn.nc.IsClosed() {
		return fmt.Errorf("answer to %s attempt %d: %w", r.Command.Key(), r.Command.Attempt, ErrClosed)
	}
	if most := s.conn.MaxPayload() - replyRoom; reply.Code == 0 && len(reply.Result) > most {
		reply = core.Reply{Code: core.CodeFailed, Error: fmt.Sprintf("bad_result: %d bytes, the limit is %d", len(reply.Result), core.ResultBytesMax)}
	}
	if reply.Code != 0 {
		s.failed.Add(1)
	}
	if r.batch {
		s.replies.add(r.reply, &r.Command, r.token, &reply)
	} else {
		header, data := wire.EncodeReply(&reply)
		s.replies.send(r.reply, nats.Header(header), data)
	}
	s.answered.Add(1)
	return nil
}

// replyRoom is how many bytes of a message are kept free for what surrounds a result.
const replyRoom = 128

// Service is an agent's subscription to its commands.
type Service struct {
	conn  *Conn
	agent string
	// dry is whether its agent has no effects; see Conn.ServeAs.
	dry     bool
	replies *replier
	service micro.Service
	handler func(*CommandRequest)
	denials chan error

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
//
// With batched it also takes several commands in one message, and says so in its
// metadata; every instance of the agent must do that before a scheduler sends any.
func (c *Conn) ServeCommands(agent string, batched bool, handler func(*CommandRequest)) (*Service, error) {
	at, err := c.listensAs(agent)
	if err != nil {
		return nil, err
	}
	s := &Service{conn: c, agent: agent, dry: c.isDry(), handler: handler, denials: make(chan error, 1)}
	if s.replies = c.replier(); s.replies == nil {
		return nil, fmt.Errorf("agent %s: %w", agent, ErrClosed)
	}
	metadata := map[string]string{wire.MetaAgent: agent, wire.MetaWire: strconv.Itoa(wire.Version)}
	batched = batched && !s.dry // a batch has no headers of its commands
	if batched {
		metadata[wire.MetaBatch] = strconv.Itoa(wire.BatchVersion)
	}
	if s.dry {
		metadata[wire.MetaDryRun] = wire.DryRun
	}
	if at != agent {
		metadata[wire.MetaVariant] = strings.TrimPrefix(at, agent+"-")
	}
	endpoints := s.endpoints(at, batched)
	c.mu.Lock()
	for _, e := range endpoints {
		c.served[e.subject] = s
	}
	c.mu.Unlock()
	hooking.Lock()
	s.service, err = micro.AddService(c.nc, micro.Config{
		Name:        c.names.ServiceName(agent),
		Version:     serviceVersion,
		Description: "Duly agent " + agent,
		Metadata:    metadata,
		// The library counts only what a handler answers before it returns.
		StatsHandler: func(*micro.Endpoint) any {
			return map[string]int64{"answered": s.answered.Load(), "failed": s.failed.Load()}
		},
	})
	hooking.Unlock()
	if err != nil {
		s.forget()
		return nil, fmt.Errorf("agent %s: %w", agent, err)
	}
	for _, e := range endpoints {
		err := s.service.AddEndpoint(e.name, e.handler,
			micro.WithEndpointSubject(e.subject),
			micro.WithEndpointQueueGroup(wire.GroupAgent),
			micro.WithEndpointPendingLimits(pendingMessagesMax, pendingBytesMax))
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("agent %s: %s: %w", agent, e.name, err)
		}
	}
	// Without a server just now the subscriptions reach the next one.
	_ = c.nc.FlushTimeout(subscribeFlush)
	return s, nil
}

// endpoint is one subject that an agent listens on.
type endpoint struct {
	name, subject string
	handler       micro.HandlerFunc
}

// endpoints returns the subjects that the service listens on; at is the agent or its variant.
func (s *Service) endpoints(at string, batched bool) []endpoint {
	agent := s.agent
	if s.dry { // an undo would not be one
		return []endpoint{{"do", s.conn.names.CommandSubject(at, false), s.serve(agent, false)}}
	}
	all := []endpoint{
		{"do", s.conn.names.CommandSubject(at, false), s.serve(agent, false)},
		{"undo", s.conn.names.CommandSubject(at, true), s.serve(agent, true)},
	}
	if batched {
		all = append(all,
			endpoint{"do-batch", s.conn.names.BatchSubject(at, false), s.serveBatch(agent, false)},
			endpoint{"undo-batch", s.conn.names.BatchSubject(at, true), s.serveBatch(agent, true)})
	}
	return all
}

// serve returns the handler of single commands. Messages of one endpoint come one after the other.
func (s *Service) serve(agent string, undo bool) micro.HandlerFunc {
	var decoder wire.CommandDecoder // the endpoint's messages come one after the other
	return func(req micro.Request) {
		r := &CommandRequest{service: s, reply: req.Reply()}
		if !s.conn.names.MayAnswer(r.reply, s.conn.replyTo) {
			s.conn.log.Warn("command refused", "agent", agent, "reply", wire.Short(r.reply), "error", "not a subject of replies")
			return
		}
		if copied := req.Headers().Get(wire.HeaderDryRun) == wire.DryRun; copied != s.dry {
			why := "agent " + agent + " is a dry run: it takes copies of commands alone"
			if copied {
				why = "agent " + agent + " is no dry run: it takes no copy of a command"
			}
			s.conn.log.Warn("command refused", "agent", agent, "error", why)
			s.refuse(r, core.CodeUnavailable, why)
			return
		}
		var err error
		if r.Command, err = decoder.Decode(req.Data()); err != nil {
			s.conn.log.Warn("command refused", "agent", agent, "error", err)
			s.refuse(r, core.CodeUnable, err.Error())
			return
		}
		r.Command.Agent, r.Command.Undo = agent, undo
		r.Command.Trace = core.CleanTrace(req.Headers().Get(wire.HeaderTrace))
		// A caller that is not Duly's scheduler may wait elsewhere; then there is
		// no fence to read.
		if p, number, seq, err := s.conn.names.ParseReply(r.reply); err == nil {
			r.Command.Partition, r.Command.Number, r.Command.Seq = p, number, seq
		}
		s.dispatch(r)
	}
}

// serveBatch returns the handler of batches of commands. A command in it that cannot be decoded is lost; its
// complete-by recovers it.
func (s *Service) serveBatch(agent string, undo bool) micro.HandlerFunc {
	return func(req micro.Request) {
		reply := req.Reply()
		if !s.conn.names.IsBatchReply(reply, agent) {
			s.conn.log.Warn("commands refused", "agent", agent, "reply", wire.Short(reply), "error", "not a subject of a sender of batches")
			return
		}
		err := wire.DecodeBatchCommands(req.Data(), func(c core.Command, token core.Token) {
			c.Agent, c.Undo = agent, undo
			s.dispatch(&CommandRequest{Command: c, service: s, reply: reply, batch: true, token: token})
		})
		if err != nil {
			s.conn.log.Warn("commands refused", "agent", agent, "error", err)
		}
	}
}

// dispatch gives one command to the handler, or refuses it if the service is stopping.
func (s *Service) dispatch(r *CommandRequest) {
	if !s.enter() {
		s.refuse(r, codeStopping, "agent is stopping")
		return
	}
	defer s.running.Done()
	s.handler(r)
}

// refuse answers a command that the handler does not get.
func (s *Service) refuse(r *CommandRequest, code int, text string) {
	if err := r.Fail(code, text); err != nil {
		s.conn.log.Debug("refusal not sent", "error", err)
	}
}

// enter counts a call of the handler, so that Stop can wait for it. It reports false once Stop was called.
func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.running.Add(1)
	return true
}

// Denied receives an error when the server says that the agent's user may not subscribe to one of its
// subjects, at the start or after its permissions changed: commands do not reach this instance then.
func (s *Service) Denied() <-chan error { return s.denials }

// forget stops watching for denials of the service's subjects.
func (s *Service) forget() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for subject, served := range s.conn.served {
		if served == s {
			delete(s.conn.served, subject)
		}
	}
}

// Stop takes no more commands and returns when the handler has run for the last time. Commands that the
// server had delivered already are answered with an error that is retried. Requests that the handler has kept
// can still be answered.
func (s *Service) Stop() {
	s.forget()
	if err := s.service.Stop(); err != nil {
		s.conn.log.Debug("agent's service did not stop", "error", err)
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.running.Wait()
}
