package duly_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// guarded is a NATS server whose user "agent" may subscribe to what is allowed alone.
func guarded(t *testing.T, allowed ...string) (url string, s *server.Server) {
	t.Helper()
	s, err := server.NewServer(guardedOptions(allowed...))
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return "nats://agent:x@" + s.Addr().String(), s
}

func guardedOptions(allowed ...string) *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Users: []*server.User{
		{Username: "agent", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"duly.submit.>"}}, Subscribe: &server.SubjectPermission{Allow: allowed}}},
	}}
}

// agentAt runs the shop's agent; its end comes over the channel.
func agentAt(t *testing.T, url string, options ...duly.AgentOption) <-chan error {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(nc, append(options, duly.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&shop{}).serve(agent); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		ended <- agent.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		nc.Close()
	})
	return ended
}

// An agent that the server lets hear nothing of one of its subjects says so and ends.
//
// covers: B10
func TestAgentWithoutTheRightToSubscribe(t *testing.T) {
	all := []string{"duly.do.>", "duly.undo.>", "duly.batch.do.>", "duly.batch.undo.>", "$SRV.>", "_INBOX.>"}
	for _, missing := range []string{"duly.do.>", "duly.undo.>", "duly.batch.do.>", "duly.batch.undo.>"} {
		t.Run(missing, func(t *testing.T) {
			var allowed []string
			for _, subject := range all {
				if subject != missing {
					allowed = append(allowed, subject)
				}
			}
			url, _ := guarded(t, allowed...)
			err := <-agentAt(t, url)
			subject := strings.TrimSuffix(missing, ">")
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "may not subscribe to "+subject) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A submitter that the server does not let submit, or hear the answer, is told that and does not wait for its whole time.
//
// covers: U4
func TestSubmitterWithoutRights(t *testing.T) {
	url, _ := guarded(t, "_INBOX_agent.>")
	for _, x := range []struct{ prefix, want string }{{"_INBOX_agent", `Publish to "duly.submit.order.o-1"`}, {"_INBOX", "nats.CustomInboxPrefix"}} {
		nc, err := nats.Connect(url, nats.CustomInboxPrefix(x.prefix), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		client, err := duly.NewClient(nc)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() error {
			_, err := Buy.Submit(t.Context(), client, "o-1", Order{Cents: 1})
			return err
		}
		if x.prefix == "_INBOX" {
			ask = func() error { return client.Cancel(t.Context(), "order", "o-1", "no answer can come") }
		}
		if err := ask(); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.prefix, err)
		}
	}
}

// What an agent does not need it may lack: service discovery, and the subjects of
// batches where it takes single commands.
func TestAgentWithJustTheRightsItNeeds(t *testing.T) {
	url, s := guarded(t, "duly.do.>", "duly.undo.>")
	ended := agentAt(t, url, duly.SingleCommands())
	subscribed := func() bool {
		connections, err := s.Connz(&server.ConnzOptions{Subscriptions: true})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, c := range connections.Conns {
			for _, subject := range c.Subs {
				have[subject] = true
			}
		}
		for _, agent := range []string{Credit.Agent(), Charge.Agent(), Ship.Agent()} {
			if !have["duly.do."+agent] || !have["duly.undo."+agent] {
				return false
			}
		}
		return true
	}
	for deadline := time.After(10 * time.Second); !subscribed(); {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		case <-deadline:
			t.Fatal("it does not subscribe")
		case <-time.After(5 * time.Millisecond):
		}
	}
	// A right that is taken away while it runs ends it too.
	if err := s.ReloadOptions(guardedOptions("duly.undo.>")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "duly.do.") {
		t.Errorf("got %v", err)
	}
}
