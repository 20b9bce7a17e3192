package natsbus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// limited is a server with JetStream whose user "some" has these permissions, and "all" has all.
func limited(t *testing.T, may *server.Permissions) *server.Server {
	t.Helper()
	s, err := server.NewServer(limitedOptions(t.TempDir(), may))
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

func limitedOptions(dir string, may *server.Permissions) *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		Users: []*server.User{{Username: "some", Password: "x", Permissions: may}, {Username: "all", Password: "x"}}}
}

func as(s *server.Server, user string) string { return "nats://" + user + ":x@" + s.Addr().String() }

func lists(publish, subscribe []string) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe}}
}

// TestGuestChangesNothing: a guest makes no stream and no key, does not wait, and asks for
// nothing that would change a stream; it uses what another node makes.
//
// covers: C11
func TestGuestChangesNothing(t *testing.T) {
	infos := []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*"}
	s := limited(t, lists(append(infos, names.PackSubject(3)), []string{"_INBOX_guest.>"}))
	guest := dialWith(t, Options{URL: as(s, "some"), InboxPrefix: "_INBOX_guest", AckTimeout: 100 * time.Millisecond})
	host := dial(t, as(s, "all"))
	if got := guest.Inbox(); got != "_INBOX_guest" {
		t.Errorf("inbox %q", got)
	}
	if _, err := guest.Setup(within(t), StreamConfig{Guest: true}); !errors.Is(err, ErrNoStream) || !strings.Contains(err.Error(), names.StreamTasks()) || !strings.Contains(err.Error(), "scheduler") {
		t.Fatalf("without streams: %v", err)
	}
	setUp(t, host, StreamConfig{})
	setUp(t, guest, StreamConfig{Guest: true, Lease: 9 * time.Second}) // which would change some
	if guest.signer.Load() != nil {
		t.Error("it has the key of replies")
	}
	// One that is lost is not its to make again.
	if err := host.js.DeleteStream(within(t), names.StreamControl()); err != nil {
		t.Fatal(err)
	}
	guest.guardOnce(within(t))
	if all := guest.Trouble(); len(all) != 1 || all[0].Err.Error() != ErrNoStream.Error() || all[0].Name != names.StreamControl() {
		t.Errorf("troubles %+v", all)
	}
	if _, err := host.js.Stream(within(t), names.StreamControl()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream: %v", err)
	}
	// A publish without an answer, here for want of the stream: a host would ask for a purge.
	guest.outcomes[kindTasks].note(nats.ErrTimeout)
	guest.guardOnce(within(t))
	if denied := guest.Denials(); len(denied) != 0 {
		t.Errorf("it was denied %+v", denied)
	}
}

// TestDenials: what is denied is known, once a subject, and until when.
func TestDenials(t *testing.T) {
	s := limited(t, lists([]string{"$JS.API.INFO"}, []string{"_INBOX_some.>"}))
	c := dial(t, as(s, "some"))
	for range 3 {
		if err := c.nc.Publish("forbidden.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.nc.QueueSubscribeSync("forbidden.b", "q"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two denials", func() bool { return len(c.Denials()) == 2 })
	all := c.Denials()
	if a := all[0]; a.Subscribe || a.Subject != "forbidden.a" || a.Since.IsZero() || !errors.Is(a.Err, nats.ErrPermissionViolation) {
		t.Errorf("%+v", a)
	}
	if b := all[1]; !b.Subscribe || b.Subject != "forbidden.b" || b.Queue != "q" {
		t.Errorf("%+v", b)
	}
	for i := range denialsMax + 10 {
		if err := c.nc.Publish(fmt.Sprintf("forbidden.many.%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "as many as are kept", func() bool { return len(c.Denials()) == denialsMax })
	// A publish that was denied long ago counts no longer; a subscription is still not there.
	eventually(t, "one denial, when the last word of the server is old", func() bool {
		c.mu.Lock()
		for i := range c.denials {
			c.denials[i].seen = time.Now().Add(-denialKept - time.Second)
		}
		c.mu.Unlock()
		all := c.Denials()
		return len(all) == 1 && all[0].Subject == "forbidden.b"
	})
	for range 2 {
		if _, err := c.Permissions(within(t)); !errors.Is(err, errUnasked) {
			t.Errorf("permissions: %v", err)
		}
	}
}

// TestPermissions: the server says what the user may do, and a connection that is made
// again has the subscriptions that were denied.
func TestPermissions(t *testing.T) {
	dir := t.TempDir()
	few := lists([]string{"$JS.API.INFO", SubjectUserInfo, "a.>"}, []string{"_INBOX_some.>", "b q"})
	few.Publish.Deny = []string{"a.b"}
	s, err := server.NewServer(limitedOptions(dir, few))
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	c := dial(t, as(s, "some"))
	p, err := c.Permissions(within(t))
	slices.Sort(p.Publish.Allow)
	slices.Sort(p.Subscribe.Allow)
	if err != nil || p.User != "some" || !slices.Equal(p.Publish.Allow, []string{"$JS.API.INFO", SubjectUserInfo, "a.>"}) || !slices.Equal(p.Publish.Deny, []string{"a.b"}) ||
		!slices.Equal(p.Subscribe.Allow, []string{"_INBOX_some.>", "b q"}) || len(p.Subscribe.Deny) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	all := dial(t, as(s, "all"))
	if p, err := all.Permissions(within(t)); err != nil || len(p.Publish.Allow)+len(p.Publish.Deny)+len(p.Subscribe.Allow)+len(p.Subscribe.Deny) != 0 {
		t.Errorf("of a user without limits: %+v, %v", p, err)
	}
	// More than one is on its way when the machine is slow, and their handler may not wait for the test.
	var got atomic.Bool
	sub, err := c.subscribe("b", "", func(*nats.Msg) { got.Store(true) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	eventually(t, "the denial", func() bool { return len(c.Denials()) == 1 })
	few.Subscribe.Allow = []string{"_INBOX_some.>", "b"}
	if err := s.ReloadOptions(limitedOptions(dir, few)); err != nil {
		t.Fatal(err)
	}
	if err := c.Resubscribe(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the denial", func() bool { return c.Connected() && len(c.Denials()) == 0 })
	eventually(t, "a message", func() bool {
		if err := all.nc.Publish("b", nil); err != nil {
			t.Fatal(err)
		}
		return got.Load()
	})
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) lines(with string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), with)
}

// TestAgentThatMayNotAnswer: an agent whose answers NATS refuses says so, now and then.
//
// covers: B10
func TestAgentThatMayNotAnswer(t *testing.T) {
	s := limited(t, &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{">"}}})
	nc, err := nats.Connect(as(s, "some"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log := &logText{}
	agent, err := Wrap(nc, slog.New(slog.NewTextHandler(log, nil)), wire.Names{})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	service, err := agent.ServeCommands("payment.charge", false, func(r *CommandRequest) {
		if err := r.Respond([]byte(`"paid"`)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop()
	c := dial(t, as(s, "all"))
	for n := range int64(5) {
		if err := c.SendCommand(&core.Command{Agent: "payment.charge", Task: "o-1", Type: "order", Step: "charge", Partition: 3, Number: 17, Seq: n, Attempt: 1, Input: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "five refused answers", func() bool { return agent.unanswered.Load() == 5 })
	if n := log.lines("does not let this agent answer"); n != 3 {
		t.Errorf("told %d times, want 3: the first, the second and the fourth", n)
	}
	if log.lines("duly.reply.3.17.") == 0 || log.lines("allow_responses") == 0 {
		t.Error("the log does not name the subject and the right")
	}
}

// TestDeniedAnswers: a denied answer is told from a denied status, for which the user needs another right; and
// whether the user may answer at all is known.
//
// covers: C11
func TestDeniedAnswers(t *testing.T) {
	may := lists([]string{"$JS.API.INFO", SubjectUserInfo}, []string{"_INBOX_guest.>", names.PatternSubmit()})
	may.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
	s := limited(t, may)
	c := dialWith(t, Options{URL: as(s, "some"), InboxPrefix: "_INBOX_guest"})
	if has, err := c.Permissions(within(t)); err != nil || !has.Answers {
		t.Fatalf("%+v %v", has, err)
	}
	// Two requests of one asker, with one subject for both answers, come before the first is answered.
	asked := make(chan *SubmitRequest, 2)
	if _, err := c.ServeSubmit(func(r *SubmitRequest) { asked <- r }); err != nil {
		t.Fatal(err)
	}
	asker := dial(t, as(s, "all")).nc
	for range 2 {
		if err := asker.PublishRequest(names.SubmitSubject("order", "o-1"), "_INBOX_shop.one", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*SubmitRequest{<-asked, <-asked} {
		r.Reject(500, 0, "no", 0)
	}
	c.Notify("_INBOX_shop.status", core.Status{ID: "o-1", Type: "order", Status: "processed"})
	want := map[string]bool{"_INBOX_shop.one": true, "_INBOX_shop.status": false}
	eventually(t, "both are denied", func() bool { return len(c.Denials()) == 2 })
	for _, d := range c.Denials() {
		if answer, is := want[d.Subject]; !is || d.Answer != answer {
			t.Errorf("%+v, want an answer: %v", d, answer)
		}
	}
}
