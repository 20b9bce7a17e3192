package natsbus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

func probeCommand(task string) *core.Command {
	return &core.Command{Agent: "payment.charge", Task: task, Type: "order", Step: "charge", Attempt: 2, Left: time.Minute, Input: []byte(`{"cents":5}`)}
}

// TestProbe: an agent says over NATS what became of a key; what is no answer reaches the asker in words.
func TestProbe(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	if _, err := c.AskProbe(within(t), probeCommand("done"), 100); !errors.Is(err, errNoProbe) {
		t.Errorf("before one is served: %v", err)
	}
	answers := map[string]core.Probe{
		"done": {Outcome: core.ProbeDone, Result: []byte(`{"id":"p-1"}`)}, "absent": {Outcome: core.ProbeAbsent}, "working": {Outcome: core.ProbeInProgress},
		"large": {Outcome: core.ProbeDone, Result: []byte(`"` + strings.Repeat("x", 100) + `"`)}, "strange": {Outcome: "perhaps"},
	}
	stop, err := c.ServeProbes(t.Context(), "payment.charge", func(_ context.Context, cmd *core.Command) (core.Probe, int, error) {
		if cmd.Agent != "payment.charge" || cmd.Key() != cmd.Task+"/charge/0" || cmd.Attempt != 2 || string(cmd.Input) != `{"cents":5}` {
			t.Errorf("asked about %+v", cmd)
		}
		if p, ok := answers[cmd.Task]; ok {
			return p, 0, nil
		}
		return core.Probe{}, 500, errors.New("the bank is away")
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []string{"done", "absent", "working"} {
		p, err := c.AskProbe(within(t), probeCommand(task), 100)
		if want := answers[task]; err != nil || p.Outcome != want.Outcome || string(p.Result) != string(want.Result) {
			t.Errorf("%s: %+v %v, want %+v", task, p, err, want)
		}
	}
	for task, want := range map[string]string{"large": "102 bytes, the limit is 100", "strange": `outcome "perhaps"`, "broken": "500, the bank is away"} {
		if p, err := c.AskProbe(within(t), probeCommand(task), 100); err == nil || !strings.Contains(err.Error(), want) || p.Outcome != "" {
			t.Errorf("%s: %+v %v, want %q", task, p, err, want)
		}
	}
	msg, err := c.NATS().RequestWithContext(within(t), c.Names().SubjectProbe("payment.charge"), []byte(`{"v":9}`))
	if err != nil || msg.Header.Get(wire.HeaderErrorCode) != "400" {
		t.Errorf("a question that is none: %v %v", msg, err)
	}
	stop()
	if _, err := c.AskProbe(within(t), probeCommand("done"), 100); !errors.Is(err, errNoProbe) {
		t.Errorf("after it was stopped: %v", err)
	}
}

// TestDeafProbe: a probe that ignores its context keeps its agent from ending for a bounded time.
func TestDeafProbe(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	release, begun := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	stop, err := c.ServeProbes(ctx, "payment.charge", func(context.Context, *core.Command) (core.Probe, int, error) {
		close(begun)
		<-release
		return core.Probe{Outcome: core.ProbeAbsent}, 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nc.PublishRequest(names.SubjectProbe("payment.charge"), c.nc.NewInbox(), wire.AppendCommand(nil, probeCommand("o-1"))); err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	c.EndBy(time.Now()) // in place of the seconds that it has
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Error("it waits for ever")
	}
	close(release)
	<-stopped
}

// TestProbesAreBounded: so many probes are at work at a time, one more is refused, and stop waits for the others.
func TestProbesAreBounded(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	release, begun := make(chan struct{}), make(chan struct{}, probesMax)
	stop, err := c.ServeProbes(t.Context(), "payment.charge", func(context.Context, *core.Command) (core.Probe, int, error) {
		begun <- struct{}{}
		<-release
		return core.Probe{Outcome: core.ProbeAbsent}, 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	var wg sync.WaitGroup
	for range probesMax {
		wg.Go(func() {
			if p, err := c.AskProbe(ctx, probeCommand("o-1"), 100); err != nil || p.Outcome != core.ProbeAbsent {
				t.Errorf("%+v %v", p, err)
			}
		})
	}
	for range probesMax {
		<-begun
	}
	if _, err := c.AskProbe(ctx, probeCommand("o-1"), 100); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("one more: %v", err)
	}
	close(release)
	wg.Wait()
	stop()
}
