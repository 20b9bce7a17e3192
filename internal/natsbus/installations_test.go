package natsbus

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// TestDialRefusesANamespace: before it looks for a server.
func TestDialRefusesANamespace(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Dial(ended, Options{URL: "nats://127.0.0.1:1", Namespace: "a.b"}); err == nil || !strings.Contains(err.Error(), "character 2 is '.'") {
		t.Errorf("%v", err)
	}
}

// TestNamespacesShareAServer: two installations in one account make streams and
// buckets of their own, sign with keys of their own, and an agent of the same name
// is asked what it takes in its own namespace only.
func TestNamespacesShareAServer(t *testing.T) {
	server := serve(t, natsserver.Options{})
	conns := map[string]*Conn{}
	for _, namespace := range []string{"duly", "prod"} {
		conns[namespace] = dialWith(t, Options{URL: server.ClientURL(), Namespace: namespace})
		setUp(t, conns[namespace], StreamConfig{Lease: time.Second})
	}
	var streams []string
	list := conns["duly"].js.StreamNames(within(t))
	for name := range list.Name() {
		streams = append(streams, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	var duly, prod []string
	for _, name := range streams {
		if strings.Contains(name, "PROD_") {
			prod = append(prod, strings.ReplaceAll(name, "PROD_", "DULY_"))
		} else {
			duly = append(duly, name)
		}
	}
	slices.Sort(duly)
	slices.Sort(prod)
	if !slices.Contains(duly, "DULY_TASKS") || !slices.Contains(duly, "KV_DULY_NODES") || !slices.Equal(duly, prod) {
		t.Errorf("streams %v", streams)
	}
	if *conns["duly"].signer.Load() == *conns["prod"].signer.Load() {
		t.Error("both sign with the same key")
	}
	for _, c := range conns {
		renew(t, newLease(t, c, wire.NodeKey("n1"), c.names.Namespace()), true) // also where the other has it
	}

	s, w := sending(t, conns["prod"])
	_, batches := answering(t, dialWith(t, Options{URL: server.ClientURL(), Namespace: "prod"}), true)
	_, alone := answering(t, dial(t, server.ClientURL()), false) // of the other installation
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 40); n != 40 || len(alone) > 0 {
		t.Errorf("%d commands in batches, want 40; %d came to the other namespace", n, len(alone))
	}
	if conns["duly"].agentTakesBatches(t.Context(), "payment.charge") {
		t.Error("the agent of the other namespace was asked")
	}
}
