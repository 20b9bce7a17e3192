package dev_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// installation is one of two that share a NATS server: each has a database of its
// own, a node and agents of the same names, and plans, tasks and ids alike.
type installation struct {
	*world
	namespace string
	log       *addrLog

	mu   sync.Mutex
	seen []*nats.Msg // commands of the agent "till"
}

// serve runs a node until the test ends and waits until it is ready.
func (in *installation) serve(run func(context.Context) error, end func() error) {
	in.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	in.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			in.t.Errorf("run %s: %v", in.namespace, err)
		}
		if err := end(); err != nil {
			in.t.Errorf("close %s: %v", in.namespace, err)
		}
	})
	in.until(in.namespace+" serves HTTP", func() bool {
		select {
		case addr := <-in.log.addr:
			in.url = "http://" + addr
		default:
		}
		return in.url != ""
	})
	in.until(in.namespace+" is ready", func() bool { code, _ := in.http("GET", "/readyz", "", nil); return code == 200 })
}

func newInstallation(t *testing.T, namespace string) *installation {
	log := &addrLog{addr: make(chan string, 1)}
	t.Cleanup(func() { log.tell(t) })
	return &installation{world: &world{t: t}, namespace: namespace, log: log}
}

func (in *installation) settings() config.Config {
	cfg := settings()
	cfg.Namespace = in.namespace
	return cfg
}

func (in *installation) logger() *slog.Logger { return slog.New(slog.NewTextHandler(in.log, nil)) }

// logged reports whether a line of the log holds all the words.
func (in *installation) logged(words ...string) bool {
	in.log.mu.Lock()
	defer in.log.mu.Unlock()
	for line := range bytes.Lines(in.log.all.Bytes()) {
		all := true
		for _, w := range words {
			all = all && bytes.Contains(line, []byte(w))
		}
		if all {
			return true
		}
	}
	return false
}

// request asks something on a subject of the installation.
func (in *installation) request(subject, data string) string {
	in.t.Helper()
	msg, err := in.nc.Request(in.namespace+"."+subject, []byte(data), patience)
	if err != nil {
		in.t.Fatalf("%s.%s: %v", in.namespace, subject, err)
	}
	return string(msg.Data)
}

// plant stores plans, which are not the same in both, and serves the agent "till"
// as a program of any language would.
func (in *installation) plant() {
	in.t.Helper()
	for _, spec := range []string{
		fmt.Sprintf(`{"name":"sale","version":1,"complete_by_ms":%d,"steps":[{"name":"pay","agent":"till","undoable":true,"backoff_ms":20}]}`, 60_000+len(in.namespace)*1000),
		`{"name":"wait","version":1,"steps":[{"name":"only","agent":"absent","undoable":false,"complete_by_ms":2000,"backoff_ms":20,"backoff_cap_ms":50}]}`,
		`{"name":"fail","version":1,"steps":[{"name":"only","agent":"broken","undoable":false,"attempts_max":1,"on_exhausted":"error"}]}`,
	} {
		if answer := in.request("plans.apply", spec); !strings.Contains(answer, `"stored":true`) {
			in.t.Fatalf("plan not stored in %s: %s", in.namespace, answer)
		}
	}
	broken := func(m *nats.Msg) {
		failure := nats.NewMsg(m.Reply)
		failure.Header.Set("Nats-Service-Error", "broken in "+in.namespace)
		failure.Header.Set("Nats-Service-Error-Code", "500")
		if err := m.RespondMsg(failure); err != nil {
			panic(err)
		}
	}
	till := func(m *nats.Msg) {
		in.mu.Lock()
		in.seen = append(in.seen, m)
		in.mu.Unlock()
		answers(`"` + in.namespace + `"`)(m)
	}
	for subject, h := range map[string]nats.MsgHandler{"do.till": till, "undo.till": answers(""), "do.broken": broken} {
		if _, err := in.nc.QueueSubscribe(in.namespace+"."+subject, "q", h); err != nil {
			in.t.Fatal(err)
		}
	}
	if err := in.nc.Flush(); err != nil {
		in.t.Fatal(err)
	}
}

// TestNamespacesShareNATS: two installations with different namespaces share a
// server. Each runs its own tasks by its own plans with its own agents, and sees
// nothing of the other's: not their tasks, events, requests or alerts.
//
// covers: A8
func TestNamespacesShareNATS(t *testing.T) {
	prod, plain := newInstallation(t, "prod"), newInstallation(t, "duly")
	sys, err := dev.Start(t.Context(), dev.Options{Dir: t.TempDir(), Config: prod.settings(), Log: prod.logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	prod.serve(sys.Run, sys.Close)

	cfg := plain.settings()
	cfg.NATSURL, cfg.DatabaseURL = sys.NATSURL, "sqlite:"+filepath.Join(t.TempDir(), "plain.db")
	if err := node.Migrate(t.Context(), cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), cfg, plain.logger())
	if err != nil {
		t.Fatal(err)
	}
	plain.serve(n.Run, n.Close)

	both := []*installation{prod, plain}
	for _, in := range both {
		if in.nc, err = nats.Connect(sys.NATSURL); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.nc.Close)
		if in.js, err = in.nc.JetStream(); err != nil {
			t.Fatal(err)
		}
		in.plant()
	}

	// The same ids at both, by the fast door; one at each alone, by the plain door.
	for _, in := range both {
		if answer := in.request("submit.sale.s-1", `{}`); !strings.Contains(answer, `"stream":"`+strings.ToUpper(in.namespace)+`_TASKS"`) {
			t.Errorf("%s answers %s", in.namespace, answer)
		}
		if _, err := in.js.Publish(in.namespace+".in.sale.only-"+in.namespace, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		in.request("submit.wait.w-1", `{}`)
		in.request("submit.fail.f-"+in.namespace, `{}`)
	}
	for _, in := range both {
		for _, id := range []string{"s-1", "only-" + in.namespace} {
			if v := in.ends("sale", id, "processed"); string(v.Steps[0].Result) != `"`+in.namespace+`"` {
				t.Errorf("%s was done by the agent of %s", id, v.Steps[0].Result)
			}
		}
		in.ends("fail", "f-"+in.namespace, "error")
		in.until("the alert of "+in.namespace, func() bool { return in.logged("operator action required", "f-"+in.namespace) })
	}
	for _, in := range both {
		in.mu.Lock()
		for _, m := range in.seen {
			if !strings.HasPrefix(m.Subject, in.namespace+".do.") || !strings.HasPrefix(m.Reply, in.namespace+".reply.") {
				t.Errorf("the agent of %s was called at %s, to answer at %s", in.namespace, m.Subject, m.Reply)
			}
		}
		if len(in.seen) != 2 {
			t.Errorf("the agent of %s was called %d times, want 2", in.namespace, len(in.seen))
		}
		in.mu.Unlock()
	}

	// What one is asked the other does not do.
	if answer := prod.request("ask.cancel", `{"v":1,"kind":"cancel","id":"w-1","type":"wait"}`); !strings.Contains(answer, "PROD_CONTROL") {
		t.Errorf("cancel: %s", answer)
	}
	prod.ends("wait", "w-1", "undone")
	if v, found := plain.task("wait", "w-1"); found && v.State != "processing" && v.State != "pending" {
		t.Errorf("cancelled in the other installation, too: %+v", v)
	}

	for i, in := range both {
		other := both[1-i].namespace
		if _, found := in.task("sale", "only-"+other); found {
			t.Errorf("%s has a task of %s", in.namespace, other)
		}
		if in.logged("only-"+other) || in.logged("f-"+other) {
			t.Errorf("%s speaks of a task of %s", in.namespace, other)
		}
		in.streams(other)
	}
}

// streams checks that the streams hold what is the installation's, and no other.
func (in *installation) streams(other string) {
	in.t.Helper()
	for _, name := range []string{"TASKS", "CONTROL", "EVENTS", "DEAD"} {
		name = strings.ToUpper(in.namespace) + "_" + name
		info, err := in.js.StreamInfo(name, &nats.StreamInfoRequest{SubjectsFilter: ">"})
		if err != nil {
			in.t.Fatalf("stream %s: %v", name, err)
		}
		for subject := range info.State.Subjects {
			if !strings.HasPrefix(subject, in.namespace+".") || strings.Contains(subject, other+".") {
				in.t.Errorf("stream %s holds %s", name, subject)
			}
		}
		if strings.HasSuffix(name, "_DEAD") == (info.State.Msgs > 0) && !strings.HasSuffix(name, "_CONTROL") {
			in.t.Errorf("stream %s holds %d messages", name, info.State.Msgs)
		}
	}
}
