package natsbus

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// wires is a scheduler's side of the calls of one partition.
type wires struct {
	replies  chan core.Reply
	unserved chan core.Reply
}

func serveReplies(t *testing.T, c *Conn, partition int) wires {
	t.Helper()
	w := wires{make(chan core.Reply, 1000), make(chan core.Reply, 1000)}
	sub, err := c.ServeReplies(partition, func(r core.Reply) { w.replies <- r },
		func(r core.Reply) { w.unserved <- r })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Stop)
	return w
}

// covers: S6, inv5
func TestCall(t *testing.T) {
	server := serve(t, natsserver.Options{})
	scheduler, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	w := serveReplies(t, scheduler, 3)
	got := make(chan *CommandRequest, 8)
	service, err := agent.ServeCommands("payment.charge", false, func(r *CommandRequest) { got <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()

	cmd := sampleCommand
	cmd.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, undo := range []bool{false, true} {
		cmd.Undo = undo
		if err := scheduler.SendCommand(&cmd); err != nil {
			t.Fatal(err)
		}
		r := receive(t, "the command", got)
		want := cmd
		want.Results = []core.StepResult{cmd.Results[0], {Step: "stock", Result: []byte("null")}}
		if !undo {
			want.Result = nil // only an undo says what do answered
		}
		if !reflect.DeepEqual(r.Command, want) {
			t.Errorf("got  %+v\nwant %+v", r.Command, want)
		}
		if err := r.Respond([]byte(`{"ok":1}`)); err != nil {
			t.Fatal(err)
		}
		reply := receive(t, "the reply", w.replies)
		if want := (core.Reply{Partition: 3, Number: 17, Seq: 5, Result: []byte(`{"ok":1}`)}); !reflect.DeepEqual(reply, want) {
			t.Errorf("got %+v, want %+v", reply, want)
		}
	}
	for _, x := range []struct {
		answer func(r *CommandRequest) error
		want   core.Reply
	}{
		{func(r *CommandRequest) error { return r.Respond(nil) }, core.Reply{Result: []byte("null")}},
		{func(r *CommandRequest) error { return r.Fail(422, "no\r\nmoney") }, core.Reply{Code: 422, Error: "no  money"}},
		{func(r *CommandRequest) error { return r.Fail(500, "") }, core.Reply{Code: 500, Error: "error 500"}},
		{func(r *CommandRequest) error { return r.Respond([]byte("{")) }, core.Reply{Code: 512, Error: `bad_result: not JSON: "{"`}},
		{func(r *CommandRequest) error { return r.Respond(make([]byte, core.ResultBytesMax+1)) }, core.Reply{Code: 512, Error: "bad_result: 65537 bytes, the limit is 65536"}},
		{func(r *CommandRequest) error { return r.Respond(make([]byte, 9<<20)) }, core.Reply{Code: 512, Error: "bad_result: 9437184 bytes, the limit is 65536"}},
	} {
		if err := scheduler.SendCommand(&cmd); err != nil {
			t.Fatal(err)
		}
		if err := x.answer(receive(t, "the command", got)); err != nil {
			t.Fatal(err)
		}
		x.want.Partition, x.want.Number, x.want.Seq = 3, 17, 5
		if reply := receive(t, "the reply", w.replies); !reflect.DeepEqual(reply, x.want) {
			t.Errorf("got %+v, want %+v", reply, x.want)
		}
	}
	nothing(t, "unserved", w.unserved)
}

// TestUnserved: no agent at all is known at once, and is no reply.
//
// covers: E8
func TestUnserved(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	w := serveReplies(t, c, 3)
	cmd := sampleCommand
	for _, trace := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		cmd.Trace = trace
		if err := c.SendCommand(&cmd); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "the word of the server", w.unserved); got.Partition != 3 || got.Number != 17 || got.Seq != 5 || !c.Genuine(&got, sampleCommand.Commit) {
			t.Errorf("unserved %+v", got)
		}
	}
	nothing(t, "reply", w.replies)
}

// TestForeignAgent: any client that answers a request is an agent.
//
// covers: S6, I20
func TestForeignAgent(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	w := serveReplies(t, c, 3)
	sub, err := c.nc.QueueSubscribe("duly.undo.payment.charge", "q", func(m *nats.Msg) {
		var in struct{ Key, Result string }
		if err := json.Unmarshal(m.Data, &in); err != nil {
			t.Error(err)
		}
		_ = m.Respond([]byte(fmt.Sprintf("%q", in.Key+in.Result)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.SendCommand(&sampleCommand); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, "the reply", w.replies); string(r.Result) != `"order-17/charge/12r-1"` {
		t.Errorf("%s", r.Result)
	}
	// A caller that is not Duly reaches an agent of ours too.
	service, err := c.ServeCommands("other", false, func(r *CommandRequest) { _ = r.Respond([]byte("1")) })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()
	if m, err := c.nc.RequestWithContext(within(t), "duly.do.other", []byte(sampleCommandJSON)); err != nil || string(m.Data) != "1" {
		t.Errorf("%v, %v", m, err)
	}
	m, err := c.nc.RequestWithContext(within(t), "duly.do.other", []byte(`{"v":2}`))
	if err != nil || m.Header.Get(wire.HeaderErrorCode) != "501" || !strings.Contains(m.Header.Get(wire.HeaderError), "version 2") {
		t.Errorf("a newer command: %v, %v", m, err)
	}
}

// TestDiscovery: `nats micro` shows the agent.
func TestDiscovery(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	service, err := c.ServeCommands("payment.charge", false, func(r *CommandRequest) { _ = r.Respond(nil) })
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.nc.RequestWithContext(within(t), "$SRV.INFO.duly-payment_charge", nil)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(m.Data, &info); err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, e := range info.Endpoints {
		subjects = append(subjects, e.Subject+" "+e.QueueGroup)
	}
	if want := []string{"duly.do.payment.charge q", "duly.undo.payment.charge q"}; !reflect.DeepEqual(subjects, want) || info.Metadata["duly_agent"] != "payment.charge" {
		t.Errorf("%+v", info)
	}
	for range 3 {
		if _, err := c.nc.RequestWithContext(within(t), "duly.do.payment.charge", []byte(sampleCommandJSON)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three answers in the statistics", func() bool {
		m, err := c.nc.RequestWithContext(within(t), "$SRV.STATS.duly-payment_charge", nil)
		return err == nil && strings.Contains(string(m.Data), `"answered":3`)
	})
	service.Stop()
	if _, err := c.nc.RequestWithContext(within(t), "$SRV.PING.duly-payment_charge", nil); err != nats.ErrNoResponders {
		t.Errorf("after Stop: %v", err)
	}
	if _, err := c.ServeCommands("pay ment", false, nil); err == nil {
		t.Error("a name outside the alphabet was taken")
	}
}

// TestServiceStop: what is queued behind a busy handler is answered, not lost,
// and the handler does not run after Stop.
func TestServiceStop(t *testing.T) {
	server := serve(t, natsserver.Options{})
	scheduler, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	w := serveReplies(t, scheduler, 3)
	entered, gate := make(chan *CommandRequest, 100), make(chan struct{})
	var calls atomic.Int64
	service, err := agent.ServeCommands("payment.charge", false, func(r *CommandRequest) {
		calls.Add(1)
		entered <- r
		<-gate
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20
	cmd := sampleCommand
	cmd.Undo = false
	for i := range n {
		cmd.Seq = int64(i + 1)
		if err := scheduler.SendCommand(&cmd); err != nil {
			t.Fatal(err)
		}
	}
	first := receive(t, "the first command", entered)
	stopped := make(chan struct{})
	go func() { defer close(stopped); service.Stop() }()
	eventually(t, "stopping", func() bool { service.mu.Lock(); defer service.mu.Unlock(); return service.stopped })
	nothing(t, "stop while the handler is busy", stopped)
	close(gate)
	receive(t, "stop", stopped)
	after := calls.Load()
	if err := first.Respond(nil); err != nil { // handed out before: still answered
		t.Fatal(err)
	}
	for len(entered) > 0 {
		_ = (<-entered).Respond(nil)
	}
	var answered, stopping, unserved int
	eventually(t, "an answer to every command", func() bool {
		select {
		case r := <-w.replies:
			if r.Code == codeStopping {
				stopping++
			} else {
				answered++
			}
		case <-w.unserved: // came to the server when the agent was gone
			unserved++
		default:
		}
		return answered+stopping+unserved == n
	})
	if calls.Load() != after || int(after) != answered {
		t.Errorf("%d calls, %d after Stop, %d answered", after, calls.Load()-after, answered)
	}
}

// TestLeastPrivilege: an agent needs its two subjects, discovery and the right to
// answer what it was asked; nothing else.
func TestLeastPrivilege(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Users: []*server.User{
		{Username: "scheduler", Password: "x"},
		{Username: "agent", Password: "x", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{"duly.do.payment", "duly.undo.payment", "$SRV.>"}},
			Publish:   &server.SubjectPermission{Deny: []string{">"}},
			Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	conns := map[string]*Conn{}
	for _, user := range []string{"scheduler", "agent"} {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if conns[user], err = Wrap(nc, quiet(), wire.Names{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[user].Close)
	}
	w := serveReplies(t, conns["scheduler"], 3)
	service, err := conns["agent"].ServeCommands("payment", false, func(r *CommandRequest) { _ = r.Respond([]byte("1")) })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()
	// What an agent makes up is not let through; what it was asked for is.
	if err := conns["agent"].nc.Publish(names.ReplySubject(3, 17, 6), []byte("2")); err != nil {
		t.Fatal(err)
	}
	cmd := sampleCommand
	cmd.Agent = "payment"
	if err := conns["scheduler"].SendCommand(&cmd); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, "the reply", w.replies); r.Seq != 5 || string(r.Result) != "1" {
		t.Errorf("%+v", r)
	}
	nothing(t, "another reply", w.replies)
}
