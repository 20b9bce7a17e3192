package bus

import (
	"context"
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
)

// wires is a scheduler's side of the calls of one partition.
type wires struct {
	replies  chan core.Reply
	unserved chan [3]int64
}

func serveReplies(t *testing.T, c *Conn, partition int) wires {
	t.Helper()
	w := wires{make(chan core.Reply, 1000), make(chan [3]int64, 1000)}
	sub, err := c.ServeReplies(partition, func(r core.Reply) { w.replies <- r },
		func(p int, number, seq int64) { w.unserved <- [3]int64{int64(p), number, seq} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Stop)
	return w
}

func TestCall(t *testing.T) {
	server := serve(t, natsserver.Options{})
	scheduler, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	w := serveReplies(t, scheduler, 3)
	got := make(chan *CommandRequest, 8)
	service, err := agent.ServeCommands("payment.charge", func(r *CommandRequest) { got <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()

	cmd := goldenCommand
	cmd.Trace = "00-ab-cd-01"
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
		{func(r *CommandRequest) error { return r.Respond([]byte("{")) }, core.Reply{Code: 502, Error: `bad_result: not JSON: "{"`}},
		{func(r *CommandRequest) error { return r.Respond(make([]byte, core.ResultBytesMax+1)) }, core.Reply{Code: 502, Error: "bad_result: 65537 bytes, the limit is 65536"}},
		{func(r *CommandRequest) error { return r.Respond(make([]byte, 9<<20)) }, core.Reply{Code: 502, Error: "bad_result: 9437184 bytes, the limit is 65536"}},
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
func TestUnserved(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	w := serveReplies(t, c, 3)
	cmd := goldenCommand
	for _, trace := range []string{"", "00-ab-cd-01"} {
		cmd.Trace = trace
		if err := c.SendCommand(&cmd); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "the word of the server", w.unserved); got != [3]int64{3, 17, 5} {
			t.Errorf("unserved %v", got)
		}
	}
	nothing(t, "reply", w.replies)
}

// TestForeignAgent: any client that answers a request is an agent.
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
	if err := c.SendCommand(&goldenCommand); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, "the reply", w.replies); string(r.Result) != `"order-17/charge/12r-1"` {
		t.Errorf("%s", r.Result)
	}
	// A caller that is not Duly reaches an agent of ours too.
	service, err := c.ServeCommands("other", func(r *CommandRequest) { _ = r.Respond([]byte("1")) })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()
	if m, err := c.nc.RequestWithContext(within(t), "duly.do.other", []byte(goldenCommandJSON)); err != nil || string(m.Data) != "1" {
		t.Errorf("%v, %v", m, err)
	}
	m, err := c.nc.RequestWithContext(within(t), "duly.do.other", []byte(`{"v":2}`))
	if err != nil || m.Header.Get(HeaderErrorCode) != "500" || !strings.Contains(m.Header.Get(HeaderError), "version 2") {
		t.Errorf("a newer command: %v, %v", m, err)
	}
}

// TestDiscovery: `nats micro` shows the agent.
func TestDiscovery(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	service, err := c.ServeCommands("payment.charge", func(r *CommandRequest) { _ = r.Respond(nil) })
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
		if _, err := c.nc.RequestWithContext(within(t), "duly.do.payment.charge", []byte(goldenCommandJSON)); err != nil {
			t.Fatal(err)
		}
	}
	if m, err = c.nc.RequestWithContext(within(t), "$SRV.STATS.duly-payment_charge", nil); err != nil || !strings.Contains(string(m.Data), `"answered":3`) {
		t.Errorf("%s, %v", m.Data, err)
	}
	service.Stop()
	if _, err := c.nc.RequestWithContext(within(t), "$SRV.PING.duly-payment_charge", nil); err != nats.ErrNoResponders {
		t.Errorf("after Stop: %v", err)
	}
	if _, err := c.ServeCommands("pay ment", nil); err == nil {
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
	service, err := agent.ServeCommands("payment.charge", func(r *CommandRequest) {
		calls.Add(1)
		entered <- r
		<-gate
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20
	cmd := goldenCommand
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
	stopping := 0
	for range n {
		if r := receive(t, "an answer to every command", w.replies); r.Code == codeStopping {
			stopping++
		}
	}
	if calls.Load() != after || int(after)+stopping != n {
		t.Errorf("%d calls, %d after Stop, %d refused, want %d together", after, calls.Load()-after, stopping, n)
	}
}

func TestTell(t *testing.T) {
	c := ready(t)
	endings := make([]core.Ending, 0, 1300)
	for i := range 1300 {
		endings = append(endings, core.Ending{Partition: 3, EndNumber: int64(i), ID: fmt.Sprint("o-", i), Type: []string{"order", "trip"}[i%2],
			State: core.StateProcessed, Seq: 6, CreatedAt: at, At: at})
	}
	endings[10].State, endings[11].State = core.StateUndone, core.StateError
	want := fmt.Sprint(endings)
	done := make(chan error, 2)
	c.TellEnded(endings, func(err error) { done <- err })
	clear(endings) // ours again
	if err := receive(t, "the stream's word", done); err != nil {
		t.Fatal(err)
	}
	c.TellEnded(nil, func(err error) { done <- err })
	if err := receive(t, "nothing to tell", done); err != nil {
		t.Fatal(err)
	}
	if err := c.TellRefused(within(t), []core.Status{{ID: "x y", Type: "no type", Status: core.StatusRefused, Code: 400, At: at}}); err != nil {
		t.Fatal(err)
	}
	got := make([]core.Ending, 1300)
	subjects := map[string]int{}
	stream, err := c.js.Stream(within(t), StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		subjects[m.Subject]++
		if strings.HasSuffix(m.Subject, core.StatusRefused) {
			continue
		}
		list, err := DecodeEndings(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got[e.EndNumber] = e
		}
	}
	if fmt.Sprint(got) != want {
		t.Error("not what was told")
	}
	if w := map[string]int{"duly.events.order.processed": 2, "duly.events.trip.processed": 2, "duly.events.order.undone": 1, "duly.events.trip.error": 1, "duly.events._.refused": 1}; !reflect.DeepEqual(subjects, w) {
		t.Errorf("subjects %v, want %v", subjects, w)
	}
}

func TestTellFails(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL()) // without streams
	done := make(chan error, 1)
	c.TellEnded([]core.Ending{{ID: "a", Type: "b", State: core.StateProcessed}, {ID: "a", Type: "b", State: core.StateUndone}}, func(err error) { done <- err })
	if err := receive(t, "the outcome", done); !isBusy(err) {
		t.Errorf("%v", err)
	}
}

func TestStatuses(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	live, mine := make(chan core.Status, 8), make(chan core.Status, 8)
	own, err := c.OnStatus("status.me", func(s core.Status) { mine <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer own.Stop()
	sub, err := c.OnLive("order", "o-1", func(s core.Status) { live <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	want := core.Status{ID: "o-1", Type: "order", Status: "undone", Error: "card", At: at}
	other := want
	other.ID = "o-2"
	c.Live(other)
	c.Live(core.Status{ID: "a b", Type: "order"}) // no subject for it
	c.Live(want)
	c.Notify("", want)
	c.Notify("duly.live.order.o-1", want) // never on Duly's own subjects
	c.Notify("status.me", want)
	if got := receive(t, "live", live); got != want {
		t.Errorf("%+v", got)
	}
	if got := receive(t, "notice", mine); got != want {
		t.Errorf("%+v", got)
	}
	nothing(t, "live", live)
}

func TestDead(t *testing.T) {
	c := ready(t)
	h := nats.Header{"Duly-Reply-To": {"x"}, "Nats-Expected-Last-Sequence": {"99"}}
	if err := c.Dead(within(t), StreamTasks, "duly.tasks.3.pack", []byte("junk"), "pack has version 9", h); err != nil {
		t.Fatal(err)
	}
	if err := c.Dead(within(t), StreamTasks, "duly.tasks.3.pack", make([]byte, c.MaxPayload()), "too long", nil); err != nil {
		t.Fatal(err)
	}
	stream, err := c.js.Stream(within(t), StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "duly.dead.DULY_TASKS" || string(m.Data) != "junk" || m.Header.Get(HeaderCause) != "pack has version 9" ||
		m.Header.Get(HeaderSubject) != "duly.tasks.3.pack" || m.Header.Get(HeaderReplyTo) != "x" {
		t.Errorf("%+v", m)
	}
	if m, err = stream.GetMsg(within(t), 2); err != nil || !strings.Contains(m.Header.Get(HeaderCause), "cut from 8388608 bytes") {
		t.Errorf("%v, %v", m.Header, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Dead(ctx, StreamTasks, "x", nil, "", nil); err == nil {
		t.Error("no error after the end of the context")
	}
}

func TestPlansAndAsk(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	plans, err := c.ServePlans(func(spec []byte) PlanAnswer {
		p, err := DecodePlan(spec)
		if err != nil {
			return PlanAnswer{Error: &WireError{Code: 400, Description: err.Error()}}
		}
		return PlanAnswer{Name: p.Name, Version: p.Version, Stored: true}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer plans.Stop()
	m, err := c.nc.RequestWithContext(within(t), SubjectPlansApply, []byte(goldenPlanJSON))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := DecodePlanAnswer(m.Data); err != nil || a.Name != "order" || a.Version != 2 || !a.Stored {
		t.Errorf("%+v, %v", a, err)
	}
	if m, err = c.nc.RequestWithContext(within(t), SubjectPlansApply, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePlanAnswer(m.Data); err == nil || !strings.Contains(err.Error(), "plan cannot work") {
		t.Errorf("%v", err)
	}
	changed := make(chan struct{}, 1)
	news, err := c.OnPlansChanged(func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer news.Stop()
	if err := c.AnnouncePlans(); err != nil {
		t.Fatal(err)
	}
	receive(t, "announcement", changed)

	ask, err := c.ServeAsk(func(r *AskRequest) {
		if r.Control.ID == "gone" {
			r.Reject(404, "no such task")
			return
		}
		r.Accept(7, 3)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ask.Stop()
	for _, x := range []struct {
		kind, id, want string
	}{{"cancel", "o-1", ""}, {"cancel", "gone", "no such task"}, {"undo", "o-1", "carries a request to cancel"}, {"overdue", "o-1", "is not duly.ask."}} {
		data := AppendControl(nil, &core.Control{Kind: core.EventCancel, ID: x.id, Type: "order"})
		m, err := c.nc.RequestWithContext(within(t), AskSubject(x.kind), data)
		if err != nil {
			t.Fatal(err)
		}
		a, err := DecodeSubmitAnswer(m.Data)
		if x.want == "" && (err != nil || a != SubmitAnswer{StreamControl, 7, "o-1", 3}) || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s %s: %+v, %v", x.kind, x.id, a, err)
		}
	}
}

// TestSubscriptionStop: nothing is lost that had arrived, nothing runs after.
func TestSubscriptionStop(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	var calls atomic.Int64
	gate := make(chan struct{})
	sub, err := c.ServeReplies(3, func(core.Reply) { <-gate; calls.Add(1) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		if err := c.nc.Publish(ReplySubject(3, 1, int64(i)), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nc.Publish("duly.reply.3.nonsense", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	sub.Stop()
	sub.Stop() // again is fine
	if got := calls.Load(); got != n {
		t.Errorf("%d calls, want %d", got, n)
	}
	if d := c.Dropped(); d != 0 {
		t.Errorf("%d dropped", d)
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
		if conns[user], err = Wrap(nc, quiet()); err != nil {
			t.Fatal(err)
		}
	}
	w := serveReplies(t, conns["scheduler"], 3)
	service, err := conns["agent"].ServeCommands("payment", func(r *CommandRequest) { _ = r.Respond([]byte("1")) })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()
	// What an agent makes up is not let through; what it was asked for is.
	if err := conns["agent"].nc.Publish(ReplySubject(3, 17, 6), []byte("2")); err != nil {
		t.Fatal(err)
	}
	cmd := goldenCommand
	cmd.Agent = "payment"
	if err := conns["scheduler"].SendCommand(&cmd); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, "the reply", w.replies); r.Seq != 5 || string(r.Result) != "1" {
		t.Errorf("%+v", r)
	}
	nothing(t, "another reply", w.replies)
}
