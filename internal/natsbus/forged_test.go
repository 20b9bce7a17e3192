package natsbus

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// forgeries are what an agent that was sent a command can make of its reply
// subject to answer for another.
func forgeries(own string) []string {
	token := own[strings.LastIndexByte(own, '.'):]
	return []string{
		"duly.reply.3.18.5", "duly.reply.3.18.5" + token, "duly.reply.3.17.6" + token, "duly.reply.3.18.5." + strings.Repeat("0", 24), "duly.reply.3.17.5.00000001" + token[9:],
		own + "0", own + ".x", strings.Replace(own, "duly.reply.3.17.", "duly.reply.3.18.", 1),
	}
}

// TestForgedReplies: an agent answers for another's step, or says that no agent
// was there to do it. Neither is genuine; the answer to its own command is, also
// at the one that succeeds the owner, and to this one commit of its row only: one in
// a life that the database has forgotten is another.
//
// covers: E24, inv5
func TestForgedReplies(t *testing.T) {
	server := serve(t, natsserver.Options{})
	owner, successor := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, owner, StreamConfig{})
	setUp(t, successor, StreamConfig{})
	w, next := serveReplies(t, owner, 3), serveReplies(t, successor, 3)
	agent := dial(t, server.ClientURL())
	asked := make(chan *nats.Msg, 1)
	if _, err := agent.nc.ChanSubscribe(names.CommandSubject("payment.charge", true), asked); err != nil {
		t.Fatal(err)
	}
	if err := agent.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := owner.SendCommand(&sampleCommand); err != nil {
		t.Fatal(err)
	}
	own := receive(t, "the command", asked)
	all := forgeries(own.Reply)
	for _, subject := range all {
		for _, m := range []*nats.Msg{{Subject: subject, Data: []byte(`{"paid":true}`)}, {Subject: subject, Header: nats.Header{"Status": {"503"}}}} {
			if err := agent.nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := own.Respond([]byte(`"own"`)); err != nil {
		t.Fatal(err)
	}
	commit := sampleCommand.Commit
	for name, side := range map[string]struct {
		*Conn
		wires
	}{"owner": {owner, w}, "successor": {successor, next}} {
		for range all {
			if r := receive(t, "a forged reply", side.replies); side.Genuine(&r, commit) {
				t.Errorf("%s: a forged reply is genuine: %+v", name, r)
			}
			if r := receive(t, "a forged report that no agent listens", side.unserved); side.Genuine(&r, commit) {
				t.Errorf("%s: a forged report that no agent listens is genuine: %+v", name, r)
			}
		}
		r := receive(t, "the answer", side.replies)
		if r.Number != 17 || string(r.Result) != `"own"` || !side.Genuine(&r, commit) {
			t.Errorf("%s: %+v", name, r)
		}
		if side.Genuine(&r, commit+1) {
			t.Errorf("%s: it answers the command of another commit", name)
		}
	}
}

// TestForgedBatches: the same in batches of replies.
//
// covers: E24, inv5, inv7
func TestForgedBatches(t *testing.T) {
	c, s, w, agent, batches := batching(t)
	if n := sendAll(t, s, w, batches, 20); n != 20 {
		t.Fatalf("%d commands in batches, want all", n)
	}
	k := c.signer.Load()
	own := k.Token(3, 0, 5, 0, 0) // it was sent this one
	another := own                // copy of it
	another[3]++
	other := core.Command{Partition: 3, Number: 100, Seq: 5}
	paid := &core.Reply{Result: []byte(`"paid"`)}
	first := core.Command{Partition: 3, Seq: 5}
	for _, forged := range []struct {
		of    *core.Command
		token core.Token
	}{{&other, own}, {&other, core.Token{}}, {&first, another}} {
		if err := agent.nc.Publish(s.prefix+"payment.charge.0", wire.AppendBatchReply([]byte{wire.BatchVersion}, forged.of, forged.token, paid)); err != nil {
			t.Fatal(err)
		}
	}
	// That the batch had no listener: of another number, without its token.
	genuine := k.BatchReplySubject(s.prefix, "payment.charge", 1)
	to := s.prefix + "payment.charge."
	for _, forged := range []string{to + "1", to + "2", to + "2" + genuine[len(to)+1:], to + "1-" + strings.Repeat("0", 16)} {
		if err := agent.nc.PublishMsg(&nats.Msg{Subject: forged, Header: nats.Header{"Status": {"503"}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if r := receive(t, "a forged reply", w.replies); c.Genuine(&r, 0) {
			t.Errorf("a forged reply is genuine: %+v", r)
		}
	}
	eventually(t, "four forged batches", func() bool { return c.Forged() == 4 })
	nothing(t, "a forged report that no agent listens", w.unserved)
	// The server's own report still counts.
	if err := agent.nc.PublishMsg(&nats.Msg{Subject: genuine, Header: nats.Header{"Status": {"503"}}}); err != nil {
		t.Fatal(err)
	}
	receive(t, "a command given back", w.unserved)
}

// TestAgentOfAnotherBatchGetsSingles: an agent that announces batches of another version is sent its commands one by one.
func TestAgentOfAnotherBatchGetsSingles(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	for version, want := range map[string]bool{"1": false, "3": false, "4": true} {
		name := "payment.v" + version
		_, err := micro.AddService(agent.nc, micro.Config{Name: names.ServiceName(name), Version: "1.0.0", Metadata: map[string]string{wire.MetaAgent: name, wire.MetaBatch: version}})
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := c.agentTakesBatches(t.Context(), name); got != want {
			t.Errorf("version %s: sent batches is %v, want %v", version, got, want)
		}
	}
}

// TestTokenOfAnotherSender: senders number their batches alike, and after a restart again from 1. What an agent was sent by
// one says nothing at another, whose batch of that number is another agent's: else its commands would count as
// unserved, and what they did would not be undone.
//
// covers: E24, inv5
func TestTokenOfAnotherSender(t *testing.T) {
	server := serve(t, natsserver.Options{})
	before, c := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, before, StreamConfig{})
	setUp(t, c, StreamConfig{})
	agent := dial(t, server.ClientURL())
	forger := make(chan *nats.Msg, 10)
	if _, err := agent.nc.ChanSubscribe(names.BatchSubject("parcel.send", false), forger); err != nil {
		t.Fatal(err)
	}
	_, batches := answering(t, agent, true)
	first, _ := sending(t, before)
	first.peers["parcel.send"] = &peer{takes: true}
	own := commands(2 * batchWorth)
	for i := range own {
		own[i].Agent, own[i].Undo = "parcel.send", false
	}
	if err := first.Send(own); err != nil {
		t.Fatal(err)
	}
	sent := receive(t, "a batch for parcel.send", forger)
	token := sent.Reply[strings.LastIndexByte(sent.Reply, '.')+1:]

	s, w := sending(t, c)
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 2*batchWorth); n != 2*batchWorth {
		t.Fatalf("%d commands in batches, want all", n)
	}
	for _, subject := range []string{s.prefix + "parcel.send." + token, s.prefix + "payment.charge." + token, first.prefix + "payment.charge." + token} {
		if err := agent.nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Status": {"503"}}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three forged batches", func() bool { return c.Forged()+before.Forged() == 3 })
	nothing(t, "a command given back by another agent", w.unserved)
}

// TestInboxesCannotBeGuessed: where streams confirm and deliver is in no message, and does not follow from the inboxes that
// agents see: a request that is to be answered there would be taken for a confirmation.
//
// covers: E23
func TestInboxesCannotBeGuessed(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	_, confirmed, err := c.acks.expect(func(uint64, error) {})
	if err != nil {
		t.Fatal(err)
	}
	pull, err := newPuller(c.nc, "S", "c", ReadConfig{Prefetch: 1, expiry: 1, heartbeat: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pull.close()
	seen := nuid.Next()[:12] // which the process's others begin with
	for _, inbox := range []string{confirmed, pull.inbox} {
		if !strings.HasPrefix(inbox, c.Inbox()+".") || strings.Contains(inbox, seen) {
			t.Errorf("%s follows from other inboxes", inbox)
		}
	}
}

// TestInstancesOfAnotherAgent: an agent answers for itself alone, also where its name makes the same service as another's.
//
// covers: E24
func TestInstancesOfAnotherAgent(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	lie := func(m *nats.Msg) {
		stats := micro.Stats{ServiceIdentity: micro.ServiceIdentity{Name: names.ServiceName("bank.pay"), ID: "x", Metadata: map[string]string{wire.MetaAgent: "bank.pay"}}}
		data, err := json.Marshal(stats)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := agent.nc.Subscribe(SubjectStatsOf(names, "parcel.send"), lie); err != nil {
		t.Fatal(err)
	}
	if err := agent.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	all, _, err := c.Instances(t.Context(), []string{"parcel.send", "bank.pay"})
	if err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestBatchIsGivenBackOnce: the report that a batch had no listener counts once, however often it comes.
//
// covers: E24
func TestBatchIsGivenBackOnce(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	s, w := sending(t, c)
	sent := make(chan *nats.Msg, 10)
	if _, err := agent.nc.ChanSubscribe(names.BatchSubject("payment.charge", false), sent); err != nil {
		t.Fatal(err)
	}
	if err := agent.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s.peers["payment.charge"] = &peer{takes: true}
	cmds := commands(batchWorth)
	for i := range cmds {
		cmds[i].Undo = false
	}
	if err := s.Send(cmds); err != nil {
		t.Fatal(err)
	}
	own := receive(t, "the batch", sent)
	for range 3 {
		if err := agent.nc.PublishMsg(&nats.Msg{Subject: own.Reply, Header: nats.Header{"Status": {"503"}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range batchWorth {
		receive(t, "a command given back", w.unserved)
	}
	nothing(t, "a command given back again", w.unserved)
}
