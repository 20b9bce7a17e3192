package natsbus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
)

// TestInboxOfTheUser: a user that `duly nats-permissions` limits to its own inboxes needs to be told no prefix, and what is told
// wins. Where it cannot hear answers, that is said, and not waited for.
//
// covers: U1
func TestInboxOfTheUser(t *testing.T) {
	s := limited(t, lists([]string{"$JS.API.INFO"}, []string{"_INBOX_some.>"}))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	folder := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string]string{"user": "", "prefixed": `, "inbox_prefix": "_INBOX_ctx"`} {
		text := fmt.Sprintf(`{"url": "nats://%s", "user": "some", "password": "x"%s}`, s.Addr(), more)
		if err := os.WriteFile(filepath.Join(folder, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name  string
		o     Options
		inbox string // empty: it cannot hear answers
	}{
		{"user of the address", Options{URL: as(s, "some")}, "_INBOX_some"},
		{"of the first of several", Options{URL: as(s, "some") + ",nats://127.0.0.1:1"}, "_INBOX_some"},
		{"user of the context", Options{Context: "user"}, "_INBOX_some"},
		{"a prefix of the context", Options{Context: "prefixed"}, ""},
		{"a prefix", Options{URL: as(s, "some"), InboxPrefix: "_INBOX_guest"}, ""},
		{"a prefix beside the context's", Options{Context: "prefixed", InboxPrefix: "_INBOX_some"}, "_INBOX_some"},
		{"a user without limits", Options{URL: as(s, "all")}, "_INBOX"}, // others may have the right to answer there alone
		{"a user of everybody's inboxes", Options{URL: as(limited(t, lists([]string{"$JS.API.INFO"}, []string{"_INBOX.>"})), "some")}, "_INBOX"},
	} {
		for door, dialler := range map[string]func(context.Context, Options) (*Conn, error){"Dial": Dial, "DialToAsk": DialToAsk} {
			x.o.Logger = quiet()
			ctx := within(t)
			c, err := dialler(ctx, x.o)
			switch {
			case x.inbox == "" && (!errors.Is(err, ErrInbox) || !strings.Contains(err.Error(), "NATS_INBOX_PREFIX") || ctx.Err() != nil):
				t.Errorf("%s, %s: %v", x.name, door, err)
			case x.inbox != "" && err != nil:
				t.Errorf("%s, %s: %v", x.name, door, err)
			case x.inbox != "" && c.Inbox() != x.inbox:
				t.Errorf("%s, %s: inbox %s", x.name, door, c.Inbox())
			}
			if c != nil {
				c.Close()
			}
		}
	}
}

// TestDeniedNeighbour: what is denied to another request of the connection, on a subject that begins alike, ends none that waits.
func TestDeniedNeighbour(t *testing.T) {
	s := limited(t, lists([]string{"duly.ask.cancel.order", "_INBOX.>"}, []string{"_INBOX.>"}))
	owner, err := nats.Connect(as(s, "all"))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	came := make(chan *nats.Msg, 1)
	if _, err := owner.ChanSubscribe("duly.ask.cancel.order", came); err != nil {
		t.Fatal(err)
	}
	if err := owner.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(as(s, "some"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := Request(within(t), nc, &nats.Msg{Subject: "duly.ask.cancel.order"})
		answered <- err
	}()
	request := <-came
	if _, err := Request(within(t), nc, &nats.Msg{Subject: "duly.ask.cancel.order-eu"}); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("another type: %v", err)
	}
	select { // both looks for denials are over
	case err := <-answered:
		t.Fatalf("it ended before its answer: %v", err)
	case <-time.After(deniedLater + deniedSoon):
	}
	if err := request.Respond([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// TestDeniedAtOnce: no request waits for an answer that NATS keeps from it, and each names the missing right.
//
// covers: U4
func TestDeniedAtOnce(t *testing.T) {
	s := limited(t, lists([]string{"other"}, []string{"_INBOX_some.>"}))
	c, err := DialToAsk(within(t), Options{URL: as(s, "some"), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mute, err := nats.Connect(as(s, "some")) // with an inbox that it may not hear
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for name, ask := range map[string]func(context.Context) error{
		"duly.plans.apply": func(ctx context.Context) error {
			_, err := c.Request(ctx, c.names.SubjectPlansApply(), nil)
			return err
		},
		"duly.submit.order.o-1": func(ctx context.Context) error {
			_, err := c.Hand(ctx, submit.Form{Type: "order", ID: "o-1", Input: []byte("{}")})
			return err
		},
		"duly.books.till": func(ctx context.Context) error {
			_, err := c.AskBooks(ctx, "till", wire.BooksQuestion{Keys: []string{"o-1/pay/0"}})
			return err
		},
		"duly.probe.till": func(ctx context.Context) error {
			_, err := c.AskProbe(ctx, &core.Command{Agent: "till", Task: "o-1", Step: "pay"}, 1)
			return err
		},
		"$JS.API.STREAM.INFO.KV_DULY_NODES": func(ctx context.Context) error {
			_, _, err := c.Beat(ctx)
			return err
		},
		"$JS.API.STREAM.": func(ctx context.Context) error {
			_, err := c.Setup(ctx, StreamConfig{})
			return err
		},
		"$JS.API.STREAM.INFO.DULY_TASKS": func(ctx context.Context) error {
			all, err := c.Examine(ctx, StreamConfig{})
			if err != nil {
				return err
			}
			for _, e := range all {
				if e.Name == "DULY_TASKS" {
					return e.Err
				}
			}
			return nil
		},
		"$JS.API.INFO": func(ctx context.Context) error {
			_, err := Dial(ctx, Options{URL: as(s, "some"), Logger: quiet()})
			return err
		},
		"NATS_INBOX_PREFIX": func(ctx context.Context) error {
			_, err := Request(ctx, mute, &nats.Msg{Subject: "other"})
			return err
		},
	} {
		ctx := within(t)
		if err := ask(ctx); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), name) || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
