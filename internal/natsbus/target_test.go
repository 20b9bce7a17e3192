package natsbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// TestAnswersStayInInboxes: two installations and another program share an account, and submitters of one reach it over an
// import. Whatever reply subject a request names, at whatever door, nothing is published outside inboxes and the prefixes
// that are configured; a request over the import is answered in its own account.
//
// covers: P3
func TestAnswersStayInInboxes(t *testing.T) {
	url := configuredIn(t, t.TempDir(), `jetstream { store_dir: "$DIR" }
accounts {
  SHARED { jetstream: enabled, users: [ {user: node, password: x} ], exports: [ {service: "duly.submit.order.*"}, {service: "duly.ask.get.order"} ] }
  SHOP { users: [ {user: shop, password: x} ], imports: [ {service: {account: SHARED, subject: "duly.submit.order.*"}}, {service: {account: SHARED, subject: "duly.ask.get.order"}} ] }
}
`, -1).ClientURL()
	at := func(user string) string { return strings.Replace(url, "://", "://"+user+":x@", 1) }
	c := dialWith(t, Options{URL: at("node"), ReplyTo: []string{"_INBOX.", "told."}})
	served := make(chan string, 1000)
	serveAll(t, c, served)
	answerAll(t, c)
	client, err := nats.Connect(at("node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	heard := make(chan *nats.Msg, 10_000)
	if _, err := client.ChanSubscribe(">", heard); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.nc.Flush(), client.Flush()); err != nil { // the server knows both
		t.Fatal(err)
	}
	doors := []string{names.SubmitSubject("order", "o-1"), names.AskTypeSubject("get", "order"), names.AskSubject("undo"), names.SubjectPlansApply(),
		names.CommandSubject("payment", false), names.BatchSubject("payment", false), names.SubjectProbe("payment"), names.SubjectBooks("payment"), names.SubjectAway()}
	foreign := []string{"prod.submit.order.o-1", "prod.do.payment", "prod.control.0", "orders.created", "_INBOXES", "status.a", "$SRV.PING", "$JS.API.STREAM.PURGE.PROD_TASKS"}
	mine := []string{"_INBOX.a.1", "_INBOX_shop.a", "told.a"} // a server lets no client name _R_.
	want := map[string]int{}
	for _, door := range doors {
		for _, reply := range append(slices.Clone(foreign), mine...) {
			if err := client.PublishRequest(door, reply, []byte(sampleCommandJSON)); err != nil {
				t.Fatal(err)
			}
		}
		// What is asked in batches is answered to schedulers alone.
		for _, reply := range mine {
			want[reply] = len(doors) - 1
		}
	}
	for _, reply := range mine {
		c.Notify(reply, core.Status{ID: "o-1", Type: "order"})
		want[reply]++
	}
	want["_INBOX_shop.a"]-- // not configured here
	for _, reply := range foreign {
		c.Notify(reply, core.Status{ID: "o-1", Type: "order"})
	}
	got, left := map[string]int{}, len(doors)*(len(foreign)+len(mine))
	eventually(t, "every request and its answer", func() bool {
		for len(heard) > 0 {
			switch m := <-heard; {
			case slices.Contains(doors, m.Subject) && m.Reply != "":
				left--
			case slices.Contains(mine, m.Subject):
				got[m.Subject]++
			case !strings.HasPrefix(m.Subject, "$JS.EVENT."):
				t.Errorf("published to %s: %.80s", m.Subject, m.Data)
			}
		}
		return left == 0 && !slices.ContainsFunc(mine, func(reply string) bool { return got[reply] < want[reply] })
	})
	if err := errors.Join(c.nc.Flush(), client.Flush()); err != nil {
		t.Fatal(err)
	}
	for len(heard) > 0 {
		if m := <-heard; !strings.HasPrefix(m.Subject, "$JS.EVENT.") {
			t.Errorf("also published to %s: %.80s", m.Subject, m.Data)
		}
	}
	shop, err := nats.Connect(at("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shop.Close)
	for _, door := range doors[:2] {
		m, err := shop.RequestWithContext(within(t), door, []byte(`{"v":1,"id":"o-1"}`))
		var answer struct{ Task string }
		if err = cmp.Or(err, json.Unmarshal(m.Data, &answer)); err != nil || answer.Task != "o-1" {
			t.Errorf("%s over the import: %v, %v", door, m, err)
		}
	}
}

// answerAll serves what is asked besides serveAll.
func answerAll(t *testing.T, c *Conn) {
	t.Helper()
	away, err1 := c.ServeAway(func() wire.AwayReport { return wire.AwayReport{Node: "n1"} })
	books, err2 := c.ServeBooks(t.Context(), "payment", func(context.Context, wire.BooksQuestion) (wire.BooksAnswer, error) { return wire.BooksAnswer{}, nil })
	probes, err3 := c.ServeProbes(t.Context(), "payment", func(context.Context, *core.Command) (core.Probe, int, error) { return core.Probe{}, 0, nil })
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { away.Stop(); books.Stop(); probes() })
}

// TestInboxPrefixThatIsNotAnswered: a node whose own requests would not be answered says so instead of waiting.
//
// covers: P3
func TestInboxPrefixThatIsNotAnswered(t *testing.T) {
	url := configuredIn(t, t.TempDir(), "jetstream { store_dir: \"$DIR\" }\n", -1).ClientURL()
	if _, err := Dial(within(t), Options{URL: url, InboxPrefix: "mine", Logger: quiet()}); err == nil || !strings.Contains(err.Error(), `"mine" is no prefix`) {
		t.Errorf("%v", err)
	}
	dialWith(t, Options{URL: url, InboxPrefix: "mine", ReplyTo: []string{"mine."}})
	dialWith(t, Options{URL: url, InboxPrefix: "_INBOX_door"})
}
