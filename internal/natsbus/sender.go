package natsbus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Times of the discovery of agents that take several commands in one message.
const (
	lookEvery  = 5 * time.Second
	lookAnswer = 250 * time.Millisecond // how long instances have to answer
)

// batchWorth is how many commands for one agent make a batch. Fewer are sent one by one, so that at low load every subscriber
// gets its share.
const batchWorth = 4

// sentKept is how many batches are remembered, to know the commands in one that nobody subscribes to: the server reports that
// within a round trip.
const sentKept = 512

// owedFirst is how many more replies in batches an agent may send than it was sent commands in batches, since some come twice.
// What is beyond is ignored unread, so that a flooding agent takes no room from the replies of others.
const owedFirst = 1024

// batchesBytesMax bounds the batches of replies that wait here, since an agent may send as many as it likes.
const batchesBytesMax = 64 << 20

// Replies are the callbacks for what becomes of commands.
type Replies struct {
	Reply func(core.Reply)
	// Unserved gets commands that nobody subscribes to, as replies without content.
	Unserved func(core.Reply)
}

// Sender sends commands: one in each message, which any NATS client understands, or several, if every
// instance of the agent in NATS's service discovery says that it takes batches. It is safe for concurrent
// use.
type Sender struct {
	conn    *Conn
	replies Replies
	// prefix begins the reply subjects of batches; it ends with a dot.
	prefix string
	sub    *Subscription
	stop   context.CancelFunc
	done   chan struct{}
	// news is signalled at the first command for an agent.
	news chan struct{}
	// number is of the newest batch.
	number atomic.Uint64
	// scratch holds *outgoing.
	scratch sync.Pool

	mu    sync.RWMutex
	peers map[string]*peer // by agent
	sent  [sentKept]sentBatch
}

// peer is an agent that was sent commands.
type peer struct {
	// takes is whether it takes batches, as far as is known.
	takes bool
	// owed is how many more replies it may send in batches.
	owed atomic.Int64
}

// sentBatch remembers what a batch held.
type sentBatch struct {
	number   uint64
	agent    string
	commands []commandRef
}

// commandRef identifies one command; nth is its copy.
type commandRef struct {
	partition           int
	number, seq, commit int64
	nth                 uint32 // copy
}

// NewSender makes a sender of commands to agents, which hands their replies to replies. Close it when no more is sent.
func (c *Conn) NewSender(replies Replies) (*Sender, error) {
	s := &Sender{conn: c, replies: replies, prefix: c.names.BatchReplyPrefix(nuid.Next()), done: make(chan struct{}), news: make(chan struct{}, 1), peers: map[string]*peer{}}
	s.scratch.New = func() any { return &outgoing{count: map[destination]int{}, open: map[destination]*batchOut{}} }
	var err error
	if s.sub, err = c.listen(&Subscription{}, s.prefix+">", "", s.receive, pendingMessagesMax, batchesBytesMax); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.discover(ctx)
	return s, nil
}

// Close ends the discovery of agents and the subscription.
func (s *Sender) Close() {
	s.stop()
	<-s.done
	s.sub.Stop()
}

// destination is the agent, and do or undo, that a batch is for.
type destination struct {
	agent string
	undo  bool
}

// batchOut is a batch that is being filled.
type batchOut struct {
	buf      []byte
	commands []commandRef
}

// outgoing is the scratch memory of one Send.
type outgoing struct {
	count map[destination]int
	open  map[destination]*batchOut
}

// Send sends commands and returns the first error. A command that was not sent is recovered by its
// complete-by.
func (s *Sender) Send(cmds []core.Command) error {
	out := s.scratch.Get().(*outgoing)
	defer s.scratch.Put(out)
	clear(out.count)
	for i := range cmds {
		out.count[destination{cmds[i].Agent, cmds[i].Undo}]++
	}
	// A batch is worth its own message only for several commands, and only an agent that announced it takes one.
	for l, n := range out.count {
		if !s.takesBatches(l.agent) || n < batchWorth {
			delete(out.count, l)
		}
	}
	signer, most := s.conn.signer.Load(), min(wire.BatchBytesMax, s.conn.MaxPayload())
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for i := range cmds {
		c := &cmds[i]
		l := destination{c.Agent, c.Undo}
		if out.count[l] == 0 {
			keep(s.conn.SendCommand(c))
			continue
		}
		b := out.open[l]
		if b == nil {
			b = &batchOut{}
			out.open[l] = b
		}
		if len(b.commands) == 0 {
			b.buf = append(b.buf[:0], wire.BatchVersion)
		}
		was := len(b.buf)
		b.buf = wire.AppendBatchCommand(b.buf, c, signer)
		// The command made the batch too large: send what was there before, and begin the next batch with it.
		if len(b.commands) > 0 && len(b.buf) > most {
			record := b.buf[was:]
			b.buf = b.buf[:was]
			next := append([]byte{wire.BatchVersion}, record...)
			keep(s.publish(l, b))
			b.buf = append(b.buf[:0], next...)
		}
		b.commands = append(b.commands, commandRef{c.Partition, c.Number, c.Seq, c.Commit, c.Copy})
		if len(b.commands) == wire.BatchItemsMax {
			keep(s.publish(l, b))
		}
	}
	for l, b := range out.open {
		if len(b.commands) > 0 {
			keep(s.publish(l, b))
		}
		if cap(b.buf) > bufferMax {
			delete(out.open, l)
		}
	}
	return first
}

// publish sends a batch and empties it.
func (s *Sender) publish(l destination, b *batchOut) error {
	n := s.number.Add(1)
	s.mu.Lock()
	slot := &s.sent[n%sentKept]
	slot.number, slot.agent = n, l.agent
	slot.commands = append(slot.commands[:0], b.commands...)
	s.peers[l.agent].owed.Add(int64(len(b.commands))) // it was met before it was sent a batch
	s.mu.Unlock()
	err := s.conn.nc.PublishRequest(s.conn.names.BatchSubject(l.agent, l.undo), s.conn.signer.Load().BatchReplySubject(s.prefix, l.agent, n), b.buf)
	count := len(b.commands)
	b.commands = b.commands[:0]
	if err != nil {
		return fmt.Errorf("%d commands to %s: %w", count, l.agent, publishError(err))
	}
	return nil
}

// receive handles a batch of replies, or the server's report that nobody subscribes to a batch.
func (s *Sender) receive(msg *nats.Msg) {
	if unserved(msg) {
		s.unserved(msg.Subject)
		return
	}
	of := s.peerOf(msg.Subject)
	if of == nil || of.owed.Load() <= 0 {
		s.conn.forged(msg.Subject)
		return
	}
	err := wire.DecodeBatchReplies(msg.Data, core.CleanActor(msg.Header.Get(wire.HeaderInstance)), core.ResultBytesMax, func(r core.Reply) {
		if of.owed.Add(-1) < 0 {
			of.owed.Add(1)
			s.conn.forged(msg.Subject)
			return
		}
		r.Result = bytes.Clone(r.Result) // a small one must not hold a large message
		s.replies.Reply(r)
	})
	if err != nil {
		s.conn.log.Warn("replies ignored", "error", err)
	}
}

// unserved reports the commands of a batch that nobody subscribes to. From now on the agent gets one command
// in each message, because an instance that is left may not take batches.
func (s *Sender) unserved(subject string) {
	signer := s.conn.signer.Load()
	n, ok := signer.BatchNumber(subject)
	if !ok {
		s.conn.forged(subject)
		return
	}
	s.mu.Lock()
	var commands []commandRef
	if slot := &s.sent[n%sentKept]; slot.number == n {
		commands, slot.commands = slot.commands, nil // once: the report can be copied
		s.peers[slot.agent].takes = false
	}
	s.mu.Unlock()
	for _, f := range commands {
		s.replies.Unserved(core.Reply{Partition: f.partition, Number: f.number, Seq: f.seq, Token: signer.Token(f.partition, f.number, f.seq, f.commit, f.nth)})
	}
}

// peerOf returns the agent named in the subject of a batch of replies; NATS lets only that agent publish
// there. nil: it was sent nothing.
func (s *Sender) peerOf(subject string) *peer {
	rest, ours := strings.CutPrefix(subject, s.prefix)
	end := strings.LastIndexByte(rest, '.')
	if !ours || end < 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.peers[rest[:end]]
}

// takesBatches reports whether an agent takes batches, as far as is known. It has a new agent discovered.
func (s *Sender) takesBatches(agent string) bool {
	s.mu.RLock()
	p := s.peers[agent]
	takes := p != nil && p.takes
	s.mu.RUnlock()
	if p != nil {
		return takes
	}
	s.mu.Lock()
	if s.peers[agent] == nil { // or another Send was first
		p = &peer{}
		p.owed.Store(owedFirst)
		s.peers[agent] = p
	}
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default: // a look is due already
	}
	return false
}

// discover asks agents whether they take batches: new ones at once, and all of them every lookEvery, because
// instances come and go.
func (s *Sender) discover(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.news:
		}
		s.mu.RLock()
		agents := make([]string, 0, len(s.peers))
		for agent := range s.peers {
			agents = append(agents, agent)
		}
		s.mu.RUnlock()
		var wg sync.WaitGroup
		for _, agent := range agents {
			wg.Go(func() {
				takes := s.conn.agentTakesBatches(ctx, agent)
				s.mu.Lock()
				s.peers[agent].takes = takes
				s.mu.Unlock()
			})
		}
		wg.Wait()
	}
}

// agentTakesBatches asks an agent's instances by NATS's service discovery. It is true if at least one answers
// and all say so.
func (c *Conn) agentTakesBatches(ctx context.Context, agent string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAnswer)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	subject, err := micro.ControlSubject(micro.InfoVerb, c.names.ServiceName(agent), "")
	if err != nil || c.nc.PublishRequest(subject, inbox, nil) != nil {
		return false
	}
	takes := false
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil || unserved(msg) {
			return takes
		}
		var info micro.Info
		if json.Unmarshal(msg.Data, &info) != nil || info.Name != c.names.ServiceName(agent) || info.Metadata[wire.MetaAgent] != agent {
			continue
		}
		if v, err := strconv.Atoi(info.Metadata[wire.MetaBatch]); err != nil || v != wire.BatchVersion {
			return false
		}
		takes = true
	}
}
