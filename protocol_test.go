package duly_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/wire/wiretest"
)

// played is an agent with a ledger that runs, and the golden messages to play against it.
type played struct {
	t     *testing.T
	nc    *nats.Conn
	shop  *shop
	files map[string]*wiretest.Message
}

func play(t *testing.T) *played {
	t.Helper()
	f, err := newFake(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	nc, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p := &played{t: t, nc: nc, shop: &shop{}}
	if p.files, err = wiretest.Read("testdata/protocol"); err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)), duly.WithLedger(duly.NewMemoryLedger(time.Hour, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.shop.serve(agent); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := f.await(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask sends a golden command whose time is not over, and returns what is answered: a result, or the code of an error.
func (p *played) ask(name string) (result string, code int) {
	p.t.Helper()
	m := p.files[name]
	data, err := m.Live(time.Now().Add(time.Minute))
	if err != nil {
		p.t.Fatal(err)
	}
	msg := &nats.Msg{Subject: m.Subject, Data: data, Header: nats.Header{}}
	for header, value := range m.Headers {
		msg.Header.Set(header, value)
	}
	answer, err := p.nc.RequestMsg(msg, 10*time.Second)
	for errors.Is(err, nats.ErrNoResponders) && p.t.Context().Err() == nil { // the subscription for probes is the agent's last
		answer, err = p.nc.RequestMsg(msg, 10*time.Second)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	if text := answer.Header.Get("Nats-Service-Error-Code"); text != "" {
		if code, err = strconv.Atoi(text); err != nil {
			p.t.Fatalf("%s: code %q", name, text)
		}
	}
	return string(answer.Data), code
}

// TestAgentPlaysProtocol plays the golden messages against an agent in Go, by the rules of the protocol.
func TestAgentPlaysProtocol(t *testing.T) {
	t.Run("P1 P2 P4 P5 P6 P12", func(t *testing.T) {
		p := play(t)
		first, code := p.ask("do")
		if code != 0 || !json.Valid([]byte(first)) {
			t.Fatalf("do: %q, code %d", first, code)
		}
		for _, again := range []string{"do-again", "do-newer", "do-traced"} {
			if result, code := p.ask(again); result != first || code != 0 {
				t.Errorf("%s: %q, code %d, want %q", again, result, code, first)
			}
		}
		if n := p.shop.paid.Load(); n != 1 {
			t.Errorf("%d effects of one key", n)
		}
		for range 2 {
			if result, code := p.ask("undo"); result != "" || code != 0 {
				t.Errorf("undo: %q, code %d", result, code)
			}
		}
		if n := p.shop.paid.Load(); n != 0 {
			t.Errorf("after the undo %d effects stand", n)
		}
		if _, code := p.ask("do-again"); code != p.replied("reply-gone") {
			t.Errorf("a do after its undo: code %d", code)
		}
	})
	t.Run("P7 P4", func(t *testing.T) {
		p := play(t)
		if _, code := p.ask("undo-unseen"); code != 0 {
			t.Errorf("an undo before its do: code %d", code)
		}
		if _, code := p.ask("do"); code != p.replied("reply-gone") || p.shop.paid.Load() != 0 {
			t.Errorf("its do: code %d, %d effects", code, p.shop.paid.Load())
		}
		if result, code := p.ask("do-child"); code != 0 || !strings.Contains(result, "order-17~parcels~2") {
			t.Errorf("the do of a child: %q, code %d", result, code)
		}
	})
	t.Run("P15", func(t *testing.T) { play(t).probes() })
	t.Run("P10 P11", func(t *testing.T) { p := play(t); p.wrong(); p.late() })
}

// probes asks what became of a do: before it, after it, and after its undo.
func (p *played) probes() {
	if _, code := p.ask("probe"); code != p.replied("probe-not-known") {
		p.t.Errorf("a probe before the do: code %d", code)
	}
	result, _ := p.ask("do")
	done := strings.Replace(string(p.files["probe-done"].Payload), string(p.files["reply"].Payload), result, 1)
	if said, code := p.ask("probe"); said != done || code != 0 {
		p.t.Errorf("a probe after the do: %q, code %d, want %q", said, code, done)
	}
	if _, code := p.ask("undo"); code != 0 {
		p.t.Errorf("undo: code %d", code)
	}
	if said, code := p.ask("probe"); said != string(p.files["probe-absent"].Payload) || code != 0 {
		p.t.Errorf("a probe after the undo: %q, code %d", said, code)
	}
}

// replied is the code that a golden reply has.
func (p *played) replied(name string) int {
	p.t.Helper()
	code, err := strconv.Atoi(p.files[name].Headers["Nats-Service-Error-Code"])
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return code
}

// wrong plays what is no command.
func (p *played) wrong() {
	for _, name := range wiretest.Names(p.files) {
		m := p.files[name]
		if m.Refused == nil || m.From != "duly" || !strings.HasPrefix(m.Subject, "duly.do.") {
			continue
		}
		if _, code := p.ask(name); code != m.Refused.Code && code != m.Refused.Or {
			p.t.Errorf("%s: code %d, want %d or %d", name, code, m.Refused.Code, m.Refused.Or)
		}
	}
	if n := p.shop.paid.Load(); n != 0 {
		p.t.Errorf("what is no command had %d effects", n)
	}
}

// late plays commands as their files have them: their time is over, so none is answered.
func (p *played) late() {
	inbox := p.nc.NewInbox()
	answers, err := p.nc.SubscribeSync(inbox)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range []string{"do", "undo"} {
		if err := p.nc.PublishRequest(p.files[name].Subject, inbox, p.files[name].Payload); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range []string{"do", "undo"} { // come after those, and are answered
		if _, code := p.ask(name); code != 0 {
			p.t.Errorf("%s in time: code %d", name, code)
		}
	}
	if n, _, err := answers.Pending(); err != nil || n != 0 {
		p.t.Errorf("%d commands were answered after their time: %v", n, err)
	}
}
