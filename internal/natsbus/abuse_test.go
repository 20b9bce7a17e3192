package natsbus

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// forbidden are subjects that Duly may publish to and a submitter may not: no
// reply subject of a request leads Duly there. ($JS.ACK the server refuses itself.)
var forbidden = []string{
	"duly.do.payment", "duly.undo.payment", "duly.batch.do.payment", "duly.control.0", "duly.tasks.0.pack", "duly.events.order.processed",
	"duly.plans.apply", "duly.ask.cancel", "duly.batch.reply.x.1", "duly.live.order.o-1", "duly.dead.DULY_TASKS", "duly",
	"$JS.API.STREAM.PURGE.DULY_TASKS", "$JS.API.STREAM.DELETE.DULY_TASKS", "$KV.DULY_NODES.leader", "$KV.DULY_KEYS.replies", "$SRV.PING",
}

// TestAnswersStayAway: requests at every endpoint, and commands at an agent, with
// reply subjects of others.
//
// covers: E23, inv12
func TestAnswersStayAway(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c, client := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	served := make(chan string, 1000)
	serveAll(t, c, served)
	heard := make(chan *nats.Msg, 1000)
	if _, err := client.nc.ChanSubscribe(">", heard); err != nil {
		t.Fatal(err)
	}
	requests := map[string][]byte{
		names.SubmitSubject("order", "o-1"): []byte(`{}`), names.SubmitSubject("order", "b%d"): []byte(`{}`), names.SubjectPlansApply(): []byte(`{}`),
		names.AskSubject("cancel"): []byte(`{"v":1,"kind":"cancel","id":"o-1"}`), names.AskSubject("undo"): []byte(`no`),
		names.CommandSubject("payment", false): []byte(sampleCommandJSON), names.CommandSubject("payment", true): []byte(`no`),
	}
	sent := map[string]bool{}
	for _, reply := range append(forbidden, "_INBOX.mine") {
		for subject, data := range requests {
			// Its own loops would hear themselves.
			if subject == reply {
				continue
			}
			sent[subject+" "+reply] = true
			if err := client.nc.PublishRequest(subject, reply, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	answers := 0
	eventually(t, "an answer to each request with a reply subject of its own", func() bool {
		for len(heard) > 0 {
			m := <-heard
			if sent[m.Subject+" "+m.Reply] {
				delete(sent, m.Subject+" "+m.Reply)
				continue
			}
			if m.Subject == "_INBOX.mine" {
				answers++
				continue
			}
			if strings.HasPrefix(m.Subject, "$JS.EVENT.") {
				continue // the server's own word of what was set up before, when it gets to it
			}
			t.Errorf("Duly published to %s: %.100s", m.Subject, m.Data)
		}
		return answers == len(requests) && len(sent) == 0
	})
}

// serveAll serves every endpoint and an agent, answering at once.
func serveAll(t *testing.T, c *Conn, served chan string) {
	t.Helper()
	submits, err1 := c.ServeSubmit(func(r *SubmitRequest) { served <- "submit"; r.Accept(names.StreamTasks(), 1, 0, "") })
	plans, err2 := c.ServePlans(func([]byte) wire.PlanAnswer { served <- "plan"; return wire.PlanAnswer{Stored: true} })
	asks, err3 := c.ServeAsk(func(r *AskRequest) { served <- "ask"; r.Accept(1, 0) }, func(r *ReadRequest) { served <- "read"; r.Reject(404, 7041, "no", 0) })
	agent, err4 := c.ServeCommands("payment", true, func(r *CommandRequest) { served <- "command"; _ = r.Respond([]byte("1")) })
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { submits.Stop(); plans.Stop(); asks.Stop(); agent.Stop() })
}

// TestDeadLetterOfAHeaderFlood: headers and data that filled a whole message
// leave no room for the cause; the letter is stored all the same, or its
// partition would wait for it for ever.
//
// covers: E25, inv12
func TestDeadLetterOfAHeaderFlood(t *testing.T) {
	t.Parallel()
	c := ready(t)
	flood := nats.Header{}
	for i := range 1000 {
		flood[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("x", 3000)}
	}
	for name, x := range map[string]struct {
		header nats.Header
		data   int
		kept   bool
	}{
		"many":       {flood, 1000, false},
		"many, data": {flood, c.MaxPayload() - 4<<20, false},
		"one large":  {nats.Header{"X": {strings.Repeat("x", c.MaxPayload()-1000)}}, 0, false},
		"at limit":   {nats.Header{"X": {strings.Repeat("x", deadHeadersMax-len("X: \r\n"))}}, c.MaxPayload(), true},
		"over limit": {nats.Header{"X": {strings.Repeat("x", deadHeadersMax-len("X: \r\n")+1)}}, c.MaxPayload(), false},
	} {
		if err := c.Dead(within(t), names.StreamControl(), "duly.control.3", make([]byte, x.data), strings.Repeat("c", 2*core.ErrorBytesMax), wire.Header(x.header)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		stream, err := c.js.Stream(within(t), names.StreamDead())
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetLastMsgForSubject(within(t), names.DeadSubject(names.StreamControl()))
		if err != nil {
			t.Fatal(err)
		}
		if kept := m.Header.Get("X") != ""; kept != x.kept || m.Header.Get(wire.HeaderCause) == "" {
			t.Errorf("%s: headers kept %v, want %v", name, kept, x.kept)
		}
	}
}
