package natsbus

import (
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// mapped sends what comes to an agent's subjects to those of its variant, as a mapping of NATS does.
func mapped(t *testing.T, c *Conn, agent, variant string) {
	t.Helper()
	at := wire.VariantOf(agent, variant)
	for _, undo := range []bool{false, true} {
		for from, to := range map[string]string{c.names.CommandSubject(agent, undo): c.names.CommandSubject(at, undo), c.names.BatchSubject(agent, undo): c.names.BatchSubject(at, undo)} {
			_, err := c.nc.Subscribe(from, func(m *nats.Msg) {
				if err := c.nc.PublishMsg(&nats.Msg{Subject: to, Reply: m.Reply, Header: m.Header, Data: m.Data}); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// A variant is an instance of its agent: the sender learns that it takes batches, and it answers those of the agent.
func TestVariantAnswersAsItsAgent(t *testing.T) {
	server := serve(t, natsserver.Options{})
	s, w := sending(t, dial(t, server.ClientURL()))
	c := dial(t, server.ClientURL())
	c.ServeAs("canary", false)
	_, batches := answering(t, c, true)
	mapped(t, dial(t, server.ClientURL()), "payment.charge", "canary")
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 40); n != 40 {
		t.Errorf("%d commands in batches, want 40", n)
	}
	if n := sendAll(t, s, w, batches, 2); n != 0 {
		t.Errorf("%d commands in batches, want none", n)
	}
	all, _, err := c.Instances(t.Context(), []string{"payment.charge"})
	if err != nil || len(all) != 1 {
		t.Errorf("instances: %+v, %v", all, err)
	}
	if _, err := c.ServeCommands("a.b.c."+string(make([]byte, 64)), true, func(*CommandRequest) {}); err == nil {
		t.Error("an agent whose variant has no name is served")
	}
}

// A dry run takes copies alone, one a message; any other agent takes none.
func TestDryRunTakesCopiesAlone(t *testing.T) {
	server := serve(t, natsserver.Options{})
	for dry, header := range map[bool]nats.Header{true: {wire.HeaderDryRun: {wire.DryRun}}, false: nil} {
		c := dial(t, server.ClientURL())
		c.ServeAs("", dry)
		service, batches := answering(t, c, true)
		asker := dial(t, server.ClientURL())
		if asker.agentTakesBatches(t.Context(), "payment.charge") == dry {
			t.Errorf("dry %v: takes batches", dry)
		}
		for _, h := range []nats.Header{header, {wire.HeaderDryRun: {"2"}}, {wire.HeaderDryRun: {wire.DryRun}}, nil} {
			copied := h.Get(wire.HeaderDryRun) == wire.DryRun
			msg, err := asker.nc.RequestMsg(&nats.Msg{Subject: "duly.do.payment.charge", Header: h, Data: wire.AppendCommand(nil, &sampleCommand)}, patience)
			if err != nil {
				t.Fatal(err)
			}
			if refused := msg.Header.Get(wire.HeaderErrorCode) == "503"; refused != (copied != dry) {
				t.Errorf("dry %v, header %v: %v", dry, h, msg.Header)
			}
		}
		service.Stop()
		close(batches)
	}
}
