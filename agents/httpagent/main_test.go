package httpagent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// No goroutine outlives the tests.
func TestMain(m *testing.M) {
	if os.Getenv(echoEnv) != "" {
		echo()
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// world is a service, and the agent whose steps it serves.
type world struct {
	t       *testing.T
	server  *httptest.Server
	runtime *agents.Runtime
	calls   atomic.Int64 // that came to the service
}

// file is one agent, pay, with a service that may be anywhere on this machine. SERVICE and STEP are what the test adds.
const file = `
services:
  bank:
    url: URL
    allow: [127.0.0.1]
    backoff: 1ms
SERVICE
agents:
  pay:
    service: bank
    steps:
      charge:
STEP
`

// indent puts the lines of a part of a file below its parent.
func indent(text string, by int) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.Repeat(" ", by) + lines[i]
	}
	return strings.Join(lines, "\n")
}

// plain is a step as a REST service has it.
const plain = `
do: {method: PUT, path: "/charges/{key}", body: input}
undo: {path: "/charges/{key}"}
`

// start serves a step by a handler, as the parts of a file say.
func start(t *testing.T, handler http.HandlerFunc, service, step string) *world {
	t.Helper()
	w := &world{t: t}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		handler(rw, r)
	}))
	t.Cleanup(w.server.Close)
	w.serve(w.server.URL, service, step)
	return w
}

// serve makes the runtime of the file.
func (w *world) serve(url, service, step string) {
	w.t.Helper()
	w.serveFile(text(url, service, step))
}

// serveFile makes the runtime of a whole file.
func (w *world) serveFile(file string) {
	w.t.Helper()
	all, err := Read("agents.yaml", []byte(file))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		for _, s := range all.services {
			s.close()
		}
	})
	one, err := duly.NewAgent(nil, duly.Retries(0))
	if err != nil {
		w.t.Fatal(err)
	}
	w.runtime = one.Runtime()
	if err := all.agents[0].register(w.runtime); err != nil {
		w.t.Fatal(err)
	}
}

func text(url, service, step string) string {
	return strings.NewReplacer("URL", url, "SERVICE", indent(service, 4), "STEP", indent(step, 8)).Replace(file)
}

// command is a do of the step.
func command() core.Command {
	return core.Command{Agent: "pay", Step: "charge", Task: "order-17", Type: "order", Attempt: 1, Left: patience, Input: []byte(`{"cents":1999,"id":"c-1"}`)}
}

// undo is its undo.
func undo() core.Command {
	c := command()
	c.Undo = true
	return c
}

// handle is what becomes of a command.
func (w *world) handle(cmd core.Command) (reply core.Reply, answered bool) {
	return w.runtime.Handle(context.Background(), core.InstantOf(time.Now()), &cmd)
}

// want handles a command whose answer has a code, and a text in its error or its result.
func (w *world) want(cmd core.Command, code int, has string) core.Reply {
	w.t.Helper()
	reply, answered := w.handle(cmd)
	if !answered || reply.Code != code || !strings.Contains(reply.Error+string(reply.Result), has) {
		w.t.Errorf("answered %v: %d %s%s, want %d %s", answered, reply.Code, reply.Error, reply.Result, code, has)
	}
	return reply
}

// answers is a handler that always says the same.
func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}
