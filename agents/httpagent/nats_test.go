package httpagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// startNATS runs a NATS server in the test and connects to it.
func startNATS(t testing.TB) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS server does not come up")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// run serves a file's agents until stop is called, which gives their error.
func run(t testing.TB, nc *nats.Conn, file string) (stop func() error) {
	t.Helper()
	all, err := Read("agents.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx, nc, duly.Drain(patience)) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// message is a command as the wire has it.
const message = `{"v":1,"task":"order-17","type":"order","step":"charge","attempt":1,"key":"order-17/charge/0","left_ms":5000,"input":{"cents":5}}`

// ask sends a command as a scheduler does, again while no agent is there yet.
func ask(t testing.TB, nc *nats.Conn, subject string, n int) *nats.Msg {
	t.Helper()
	inbox := fmt.Sprintf("duly.reply.0.1.%d", n)
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	deadline := time.Now().Add(patience)
	for {
		if err := nc.PublishRequest(subject, inbox, []byte(message)); err != nil {
			t.Fatal(err)
		}
		msg, err := sub.NextMsg(patience)
		if err == nil {
			return msg
		}
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// answered sends a message to an agent whose subscriptions come one after the other, and returns the answer.
func answered(t testing.TB, nc *nats.Conn, msg *nats.Msg) *nats.Msg {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		answer, err := nc.RequestMsg(msg, patience)
		if err == nil {
			return answer
		}
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			t.Fatalf("%s: %v", msg.Subject, err)
		}
	}
}

// TestOverNATS: the agents of a file answer commands, undos and probes; at the end the commands that run are finished.
//
// covers: S7
func TestOverNATS(t *testing.T) {
	nc := startNATS(t)
	in, out := make(chan bool, 10), make(chan bool)
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			in <- true
			<-out
		}
		_, _ = fmt.Fprintf(w, `{"did":%q}`, r.Method)
	}, "", plain)
	stop := run(t, nc, strings.Replace(text(w.server.URL, "", plain+`probe: {path: "/charges/{ref}"}`), "agents:\n", `agents:
  slow:
    service: bank
    running: 1
    waiting: 1
    steps:
      charge: {do: {path: /slow}}
`, 1))
	if msg := ask(t, nc, "duly.do.pay", 1); string(msg.Data) != `{"did":"PUT"}` {
		t.Errorf("do: %s %v", msg.Data, msg.Header)
	}
	if msg := ask(t, nc, "duly.undo.pay", 2); msg.Header.Get("Nats-Service-Error-Code") != "" {
		t.Errorf("undo: %v", msg.Header)
	}
	if msg := answered(t, nc, &nats.Msg{Subject: "duly.probe.pay", Data: []byte(message)}); !strings.Contains(string(msg.Data), `"outcome":"done","result":{"did":"GET"}`) {
		t.Errorf("probe: %s %v", msg.Data, msg.Header)
	}
	// One runs, one waits, one is too many.
	type said struct{ code, text string }
	all := make(chan said, 3)
	for i := range 3 {
		go func() {
			msg := ask(t, nc, "duly.do.slow", 10+i)
			all <- said{msg.Header.Get("Nats-Service-Error-Code"), string(msg.Data)}
		}()
	}
	<-in
	if s := <-all; s.code != "429" {
		t.Errorf("one too many: %+v", s)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(out)
	for range 2 {
		if s := <-all; s.code != "" || s.text != `{"did":"POST"}` {
			t.Errorf("running or waiting at the end: %+v", s)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
