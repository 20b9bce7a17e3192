package natsbus

import (
	"fmt"
	"strings"
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// sending is a sender with what comes back to it.
func sending(t *testing.T, c *Conn) (*Sender, wires) {
	t.Helper()
	w := serveReplies(t, c, 3)
	s, err := c.NewSender(Replies{Reply: func(r core.Reply) { w.replies <- r }, Unserved: func(r core.Reply) { w.unserved <- r }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, w
}

// commands are n different commands for one agent.
func commands(n int) []core.Command {
	cmds := make([]core.Command, n)
	for i := range cmds {
		cmds[i] = sampleCommand
		cmds[i].Number = int64(i)
		cmds[i].Undo = i%2 == 1
	}
	return cmds
}

// answering serves payment.charge and counts the commands that came in batches.
func answering(t *testing.T, c *Conn, batched bool) (service *Service, batches chan bool) {
	t.Helper()
	c.NameInstance("web-1")
	batches = make(chan bool, 10_000)
	service, err := c.ServeCommands("payment.charge", batched, func(r *CommandRequest) {
		batches <- r.batch
		_ = r.Respond(fmt.Appendf(nil, "%d", r.Command.Number))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)
	return service, batches
}

// sendAll sends n commands and wants one answer to each, and says how many went
// in batches.
func sendAll(t *testing.T, s *Sender, w wires, batches chan bool, n int) (batched int) {
	t.Helper()
	if err := s.Send(commands(n)); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for range n {
		r := receive(t, "a reply", w.replies)
		if r.From != "web-1" || string(r.Result) != fmt.Sprint(r.Number) || r.Partition != 3 || r.Seq != 5 || seen[r.Number] {
			t.Fatalf("reply %+v, or the second one", r)
		}
		seen[r.Number] = true
		if <-batches {
			batched++
		}
	}
	return batched
}

// met lets the sender learn what the agents take.
func met(t *testing.T, s *Sender, takes bool) {
	t.Helper()
	s.takesBatches("payment.charge") // asks at the first meeting
	eventually(t, "the agent's word", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.peers["payment.charge"].takes == takes
	})
}

// batching is an engine whose sender has learned that the agent of payment.charge takes batches, and the agent's connection.
func batching(t *testing.T) (c *Conn, s *Sender, w wires, agent *Conn, batches chan bool) {
	t.Helper()
	server := serve(t, natsserver.Options{})
	c, agent = dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	s, w = sending(t, c)
	_, batches = answering(t, agent, true)
	met(t, s, true)
	return c, s, w, agent, batches
}

func TestSenderBatches(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	s, w := sending(t, c)
	_, batches := answering(t, dial(t, server.ClientURL()), true)
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 2*wire.BatchItemsMax*3+2); n != 2*wire.BatchItemsMax*3+2 {
		t.Errorf("%d commands in batches, want all", n)
	}
	if n := sendAll(t, s, w, batches, 2*(batchWorth-1)); n != 0 {
		t.Errorf("%d commands in batches of fewer than %d", n, batchWorth)
	}
	large := commands(2 * 9)
	for i := range large {
		large[i].Input = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", wire.BatchBytesMax/4))
	}
	if err := s.Send(large); err != nil {
		t.Fatal(err)
	}
	for range large {
		receive(t, "the reply to a large command", w.replies)
	}
	nothing(t, "unserved", w.unserved)
}

// A server whose messages are small gets no batch, of commands or of replies, that it does not take.
func TestBatchesFitAMessage(t *testing.T) {
	const payload = 32 << 10
	server := serve(t, natsserver.Options{MaxPayload: payload})
	c, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	s, w := sending(t, c)
	_, batches := answering(t, agent, true)
	met(t, s, true)
	large := commands(2 * wire.BatchItemsMax)
	for i := range large {
		large[i].Input = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", payload/16))
	}
	if err := s.Send(large); err != nil {
		t.Error(err)
	}
	for range large {
		receive(t, "the reply to a command", w.replies)
		if !<-batches {
			t.Error("a command of many came alone")
		}
	}
	r := &replier{nc: agent.nc, wake: make(chan struct{}, 1), batches: map[string]*batchIn{}, failed: func(err error) { t.Error(err) }}
	for i := range large { // that are ready at the same time
		r.add("no.subscriber", &large[i], core.Token{}, &core.Reply{Result: large[i].Input})
	}
	r.flush()
}

// One instance that does not say that it takes batches is enough to send none:
// it would get nothing to do.
func TestSenderIsFairToOthers(t *testing.T) {
	server := serve(t, natsserver.Options{})
	s, w := sending(t, dial(t, server.ClientURL()))
	_, batches := answering(t, dial(t, server.ClientURL()), true)
	single, alone := answering(t, dial(t, server.ClientURL()), false)
	// However often the two are asked, and whichever answers first.
	if s.conn.agentTakesBatches(t.Context(), "payment.charge") {
		t.Fatal("batches, with an instance that does not take them")
	}
	met(t, s, false)
	both := make(chan bool, 100)
	if err := s.Send(commands(40)); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		receive(t, "a reply", w.replies)
		select {
		case b := <-batches:
			both <- b
		case b := <-alone:
			both <- b
		}
	}
	for range 40 {
		if <-both {
			t.Fatal("a batch was sent")
		}
	}
	single.Stop()
	eventually(t, "batches, when all that are left take them", func() bool { return s.conn.agentTakesBatches(t.Context(), "payment.charge") })
}

// The agent has gone: every command of the batch is given back, and the next ones go
// alone, because the next instance may not take batches.
func TestSenderUnserved(t *testing.T) {
	server := serve(t, natsserver.Options{})
	s, w := sending(t, dial(t, server.ClientURL()))
	agent := dial(t, server.ClientURL())
	service, batches := answering(t, agent, true)
	met(t, s, true)
	service.Stop()
	if err := agent.nc.Flush(); err != nil { // the server knows that no instance listens
		t.Fatal(err)
	}
	if err := s.Send(commands(20)); err != nil {
		t.Fatal(err)
	}
	back := map[int64]bool{}
	for range 20 {
		back[receive(t, "a command given back", w.unserved).Number] = true
	}
	if len(back) != 20 {
		t.Errorf("%d different commands came back, want 20", len(back))
	}
	if s.takesBatches("payment.charge") {
		t.Error("batches go on")
	}
	_, alone := answering(t, dial(t, server.ClientURL()), false)
	if n := sendAll(t, s, w, alone, 20); n != 0 || len(batches) != 0 {
		t.Errorf("%d commands in batches", n)
	}
}

// A batch that asks for answers on a subject of its own choosing gets none.
func TestBatchAnswersOnlyToSenders(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	_, batches := answering(t, c, true)
	for _, reply := range []string{"duly.control.3", "duly.batch.reply.x", "duly.batch.reply.x.y.z", "_INBOX.a"} {
		if err := c.nc.PublishRequest(names.BatchSubject("payment.charge", false), reply, batchOf(commands(3)...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nc.Publish(names.BatchSubject("payment.charge", false), batchOf(commands(3)...)); err != nil {
		t.Fatal(err)
	}
	nothing(t, "a command", batches)
}

// TestFloodOfBatchReplies: an agent that sends more replies in batches than it was sent commands takes no room from those of
// others: they are passed over, and all of others come.
//
// covers: E24
func TestFloodOfBatchReplies(t *testing.T) {
	c, s, w, agent, batches := batching(t)
	s.takesBatches("crook")
	flood := []byte{wire.BatchVersion}
	paid := &core.Reply{Result: []byte(`"paid"`)}
	for i := range int64(100) {
		flood = wire.AppendBatchReply(flood, &core.Command{Partition: 3, Number: 1000 + i, Seq: 5}, core.Token{}, paid)
	}
	for range 1000 {
		if err := agent.nc.Publish(s.prefix+"crook.1", flood); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.nc.Publish(s.prefix+"unheard_of.1", flood); err != nil { // to be counted
		t.Fatal(err)
	}
	var forged int
	eventually(t, "all but what the agent may send is passed over", func() bool {
		for len(w.replies) > 0 {
			if r := <-w.replies; r.Number < 1000 {
				t.Fatalf("%+v", r)
			}
			forged++
		}
		return c.Forged() >= 1000-owedFirst/100
	})
	if forged > owedFirst {
		t.Errorf("%d replies of the flood, want at most %d", forged, owedFirst)
	}
	if n := sendAll(t, s, w, batches, 200); n != 200 {
		t.Errorf("%d commands in batches, want all", n)
	}
}
