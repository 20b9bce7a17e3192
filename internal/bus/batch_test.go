package bus

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

// batchOf is a batch of commands as the wire has it.
func batchOf(cmds ...core.Command) []byte {
	b := []byte{Version}
	for i := range cmds {
		b = appendBatchCommand(b, &cmds[i], nil)
	}
	return b
}

func decodeBatch(data []byte) ([]core.Command, error) {
	var all []core.Command
	err := decodeBatchCommands(data, func(c core.Command, _ *mark) { all = append(all, c) })
	return all, err
}

// A command reads the same whether it came alone or among others.
func TestBatchCommandIsTheCommand(t *testing.T) {
	undo := goldenCommand
	undo.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	do := undo
	do.Undo, do.Result, do.Input, do.Results = false, nil, nil, nil
	huge := do
	huge.Input = bytes.Repeat([]byte("1"), 3<<20) // its length needs a fourth byte
	for name, cmd := range map[string]core.Command{"undo": undo, "do": do, "huge": huge} {
		alone, err := DecodeCommand(AppendCommand(nil, &cmd))
		if err != nil {
			t.Fatal(err)
		}
		alone.Partition, alone.Number, alone.Seq, alone.Trace = cmd.Partition, cmd.Number, cmd.Seq, cmd.Trace // of subject and header
		got, err := decodeBatch(batchOf(cmd, cmd))
		if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], alone) || !reflect.DeepEqual(got[1], alone) {
			t.Errorf("%s: %v\ngot  %.300s\nwant %.300s", name, err, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", alone))
		}
	}
}

// What cannot be decoded is refused, and takes nothing else with it.
func TestBatchRefused(t *testing.T) {
	good := batchOf(goldenCommand)
	bad := goldenCommand
	bad.Task = "not a name"
	for name, c := range map[string]struct {
		data []byte
		left int // commands that are taken all the same
	}{
		"empty":       {nil, 0},
		"version":     {append([]byte{3}, good[1:]...), 0},
		"cut":         {good[:len(good)-1], 0},
		"cut later":   {append(batchOf(goldenCommand), 0xff, 0xff, 0xff, 0x7f), 1},
		"one bad one": {batchOf(goldenCommand, bad, goldenCommand), 2},
		"too many":    {batchOf(make([]core.Command, 4097)...), 0},
		"many results": {func() []byte {
			c := goldenCommand
			c.Results = make([]core.StepResult, core.StepsMax+1)
			return batchOf(c)
		}(), 0},
	} {
		got, err := decodeBatch(c.data)
		if !isUndecodable(err) || len(got) != c.left {
			t.Errorf("%s: %d commands, error %v", name, len(got), err)
		}
	}
}

func TestBatchReplies(t *testing.T) {
	cmd := goldenCommand
	replies := []core.Reply{{Result: []byte(`{"ok":1}`)}, {}, {Code: 422, Error: "no"}, {Code: 7, Error: "odd"}, {Result: []byte("{")}, {Result: make([]byte, 100)}}
	want := []core.Reply{{Result: []byte(`{"ok":1}`)}, {Result: []byte("null")}, {Code: 422, Error: "no"}, {Code: core.CodeAgentError, Error: "odd"},
		{Code: 502, Error: `bad_result: not JSON: "{"`}, {Code: 502, Error: "bad_result: 100 bytes, the limit is 99"}}
	b := []byte{Version}
	for i := range replies {
		b = appendBatchReply(b, &cmd, nil, &replies[i])
		want[i].Partition, want[i].Number, want[i].Seq, want[i].From = 3, 17, 5, "web-1"
	}
	var got []core.Reply
	if err := decodeBatchReplies(b, "web-1", 99, func(r core.Reply) { got = append(got, r) }); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func FuzzBatchCommands(f *testing.F) {
	f.Add(batchOf(goldenCommand, goldenCommand))
	f.Add(batchOf(core.Command{}))
	f.Add([]byte{1, 0x80, 0x80, 0x80, 0x80, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		cmds, err := decodeBatch(data)
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
		for _, c := range cmds {
			c.Undo = len(c.Result) > 0 // in the subject
			again, err := decodeBatch(batchOf(c))
			if c.Undo = false; err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], c) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
	})
}

func FuzzBatchReplies(f *testing.F) {
	cmd := goldenCommand
	f.Add(appendBatchReply(appendBatchReply([]byte{Version}, &cmd, nil, &core.Reply{Result: []byte("1")}), &cmd, nil, &core.Reply{Code: 500, Error: "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := decodeBatchReplies(data, "", core.ResultBytesMax, func(r core.Reply) {
			if r.Partition < 0 || r.Number < 0 || r.Seq < 0 || (r.Code == 0) == (r.Result == nil) || r.Code != 0 && (r.Code < 400 || r.Code > 599) {
				t.Fatalf("let through: %+v", r)
			}
		})
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
	})
}

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
		cmds[i] = goldenCommand
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
		return s.peers["payment.charge"] == takes
	})
}

func TestSenderBatches(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	s, w := sending(t, c)
	_, batches := answering(t, dial(t, server.ClientURL()), true)
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 2*BatchItemsMax*3+2); n != 2*BatchItemsMax*3+2 {
		t.Errorf("%d commands in batches, want all", n)
	}
	if n := sendAll(t, s, w, batches, 2*(batchWorth-1)); n != 0 {
		t.Errorf("%d commands in batches of fewer than %d", n, batchWorth)
	}
	large := commands(2 * 9)
	for i := range large {
		large[i].Input = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", BatchBytesMax/4))
	}
	if err := s.Send(large); err != nil {
		t.Fatal(err)
	}
	for range large {
		receive(t, "the reply to a large command", w.replies)
	}
	nothing(t, "unserved", w.unserved)
}

// One instance that does not say that it takes batches is enough to send none:
// it would get nothing to do.
func TestSenderIsFairToOthers(t *testing.T) {
	server := serve(t, natsserver.Options{})
	s, w := sending(t, dial(t, server.ClientURL()))
	_, batches := answering(t, dial(t, server.ClientURL()), true)
	single, alone := answering(t, dial(t, server.ClientURL()), false)
	// However often the two are asked, and whoever answers first.
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

// Nobody there any more: every command of the batch is given back, and the next
// ones go alone, because whoever comes may not take batches.
func TestSenderUnserved(t *testing.T) {
	server := serve(t, natsserver.Options{})
	s, w := sending(t, dial(t, server.ClientURL()))
	agent := dial(t, server.ClientURL())
	service, batches := answering(t, agent, true)
	met(t, s, true)
	service.Stop()
	if err := agent.nc.Flush(); err != nil { // the server knows that nobody listens
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
		if err := c.nc.PublishRequest(BatchSubject("payment.charge", false), reply, batchOf(commands(3)...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nc.Publish(BatchSubject("payment.charge", false), batchOf(commands(3)...)); err != nil {
		t.Fatal(err)
	}
	nothing(t, "a command", batches)
}
