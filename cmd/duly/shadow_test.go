package main

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// next is an agent payment.next, a new version of the service that writes nothing: it refuses odd amounts.
func (w *canaryWorld) next(called *atomic.Int64, options ...duly.AgentOption) *duly.Agent {
	w.t.Helper()
	agent, err := duly.NewAgent(w.connect(), append(options, duly.Retries(0), duly.Log(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		w.t.Fatal(err)
	}
	err = duly.NewStep[canaryOrder, canaryPayment]("charge", "payment.next").Serve(agent,
		func(_ context.Context, call duly.Call[canaryOrder]) (canaryPayment, error) {
			called.Add(1)
			if call.Input.Cents%2 != 0 && !call.Input.Ship {
				return canaryPayment{}, duly.Refuse(errors.New("odd, and not to be shipped"))
			}
			return canaryPayment{"next"}, nil
		},
		func(context.Context, duly.Undo[canaryOrder, canaryPayment]) error {
			called.Add(1000)
			return nil
		})
	if err != nil {
		w.t.Fatal(err)
	}
	return agent
}

// shadowed runs the command while tasks run.
func (w *canaryWorld) shadowed(tasks int, args ...string) (exit int, text string) {
	w.t.Helper()
	var code int
	var said string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var out, errs string
		code, out, errs = command(w.t, "", append([]string{"shadow", "--nats-url", w.url, "--agent", "payment.charge", "--shadow", "payment.next", "--for", "1m"}, args...)...)
		said = out + errs
	}()
	until(w.t, "it listens, or has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return w.listeners("duly.do.payment.charge") > 1
		}
	})
	w.ended(w.submit(tasks, nil))
	<-ended
	return code, said
}

// TestShadow: copies of an agent's commands, in batches and one by one, go to an agent that says that it has no effects, and to
// no other; what both answer is compared, and the tasks are as they would be without.
func TestShadow(t *testing.T) {
	w := newCanaryWorld(t)
	w.run(w.charge("stable"))
	if code, said := w.shadowed(4); code != exitUnreachable {
		t.Errorf("without a shadow: %d %s", code, said)
	}
	var called atomic.Int64
	stop := w.run(w.next(&called))
	until(t, "the agent answers", func() bool {
		_, err := w.connect().Request("$SRV.PING.duly-payment_next", nil, patience)
		return err == nil
	})
	if code, said := w.shadowed(4); code != exitState || called.Load() != 0 {
		t.Errorf("a shadow that has effects was called %d times: %d %s", called.Load(), code, said)
	}
	stop()
	stop = w.run(w.next(&called, duly.DryRun()))
	until(t, "the shadow is there", func() bool { return w.listeners("duly.do.payment.next") == 1 })
	batches := w.heard("duly.batch.do.payment.charge")
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"all differ":    {[]string{"--count", "40"}, exitFailed, `(?s)order-\d+, step charge, attempt 1: done, the shadow: done\n  at +/Version\n.*order-\d+, step charge, attempt 1: done, the shadow: 422\n.*and \d+ more\n.* \d{2,} compared: 0 the same, \d{2,} different`},
		"values":        {[]string{"--count", "40", "--values"}, exitFailed, `/Version: "stable", the shadow: "next"`},
		"a few differ":  {[]string{"--count", "40", "--ignore", "/Version"}, exitFailed, ` \d{2,} compared: \d+ the same, [1-9]\d* different`},
		"allowed":       {[]string{"--count", "40", "--ignore", "/Version", "--allow", "40", "--percent", "50"}, exitDone, ` \d{2,} compared: \d+ the same`},
		"too few":       {[]string{"--count", "40", "--ignore", "/Version", "--allow", "40", "--at-least", "200"}, exitFailed, ` \d{2,} compared`},
		"as JSON":       {[]string{"--count", "40", "--json"}, exitFailed, `"compared":\d{2,}`},
		"itself":        {[]string{"--shadow", "payment.charge"}, exitUse, `shadow: is the agent itself`},
		"a bad pointer": {[]string{"--ignore", "Version"}, exitUse, `ignore: "Version" is no JSON pointer`},
		"no time":       {[]string{"--for", "1ms"}, exitUse, `for: 1ms, want 1s to 24h`},
	} {
		if code, said := w.shadowed(120, test.args...); code != test.code || !regexp.MustCompile(test.want).MatchString(said) {
			t.Errorf("%s: exit status %d, want %d, and %s in:\n%s", name, code, test.code, test.want, said)
		}
	}
	if called.Load() == 0 || called.Load() >= 1000 || batches.Load() == 0 {
		t.Errorf("the shadow was called %d times, 1000 for an undo; %d batches went to the agent", called.Load(), batches.Load())
	}
	w.takesCopiesAlone()
	stop()
}

// takesCopiesAlone: a dry run refuses what is no copy, and any other agent a copy.
func (w *canaryWorld) takesCopiesAlone() {
	w.t.Helper()
	nc := w.connect()
	for agent, header := range map[string]nats.Header{"payment.next": nil, "payment.charge": {"Duly-Dry-Run": {"1"}}} {
		data := []byte(`{"v":1,"task":"t-` + nc.NewInbox()[7:] + `","type":"canary","step":"charge","attempt":1,"key":"t-1/charge/0","complete_by":"2126-11-25T10:00:02.000000Z","left_ms":5000,"input":{"Cents":2,"Ship":true}}`)
		msg, err := nc.RequestMsg(&nats.Msg{Subject: "duly.do." + agent, Header: header, Data: data}, patience)
		if err != nil || msg.Header.Get("Nats-Service-Error-Code") != "503" {
			w.t.Errorf("%s answered a command with the header %v: %v %v", agent, header, msg, err)
		}
	}
	if _, err := nc.Request("duly.undo.payment.next", nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
		w.t.Errorf("the undo of a dry run: %v", err)
	}
}

// TestShadowEndsWithAnotherInstance: an instance that has effects and joins the shadow ends the run.
func TestShadowEndsWithAnotherInstance(t *testing.T) {
	w := newCanaryWorld(t)
	w.run(w.charge("stable"))
	var dry, wet atomic.Int64
	w.run(w.next(&dry, duly.DryRun()))
	until(t, "the shadow is there", func() bool { return w.listeners("duly.do.payment.next") == 1 })
	ended := make(chan struct{})
	var code int
	var errs string
	go func() {
		defer close(ended)
		code, _, errs = command(t, "", "shadow", "--nats-url", w.url, "--agent", "payment.charge", "--shadow", "payment.next", "--for", "1m")
	}()
	until(t, "it listens", func() bool { return w.listeners("duly.do.payment.charge") > 1 })
	w.run(w.next(&wet))
	until(t, "it has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			w.ended(w.submit(8, nil))
			return false
		}
	})
	if code != exitState || wet.Load() != 0 {
		t.Errorf("exit status %d, and %d copies came to an instance that has effects: %s", code, wet.Load(), errs)
	}
}
