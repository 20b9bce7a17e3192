package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestServeAgents: a process with the role agents alone needs no database. It serves its file and its health, and ends
// well; a file that is wrong is refused at the start with line and column, and shows no secret.
//
// covers: S7
func TestServeAgents(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%q", r.Header.Get("Authorization"))
	}))
	defer bank.Close()
	dir := t.TempDir()
	file, token := filepath.Join(dir, "agents.yaml"), filepath.Join(dir, "token")
	text := "services:\n  bank: {url: \"" + bank.URL + "\", allow: [127.0.0.1], auth: {bearer: {file: " + token + "}}}\n" +
		"agents:\n  pay: {service: bank, steps: {charge: {do: {method: PUT, path: \"/{ref}\"}}}}\n"
	for path, data := range map[string]string{file: text, token: "s3cr3t-t0ken"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := natsServer(t, natsd.Options{})
	c := start(t, "serve", "--roles", "agents", "--agents", file, "--nats-url", server.ClientURL(), "--http-addr", "127.0.0.1:0")
	at := c.ready()
	if code, body := ask(t, "GET", at+"/readyz", ""); code != 200 {
		t.Errorf("not ready: %d %s", code, body)
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	inbox, err := nc.SubscribeSync("duly.reply.0.1.1")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the agent answers", func() bool {
		command := `{"v":1,"task":"t-1","type":"order","step":"charge","attempt":1,"key":"t-1/charge/0","left_ms":5000,"input":{}}`
		if err := nc.PublishRequest("duly.do.pay", inbox.Subject, []byte(command)); err != nil {
			t.Fatal(err)
		}
		msg, err := inbox.NextMsg(patience)
		return err == nil && string(msg.Data) == `"Bearer s3cr3t-t0ken"`
	})
	if code := c.term(); code != 0 || strings.Contains(c.log(), "s3cr3t") {
		t.Errorf("exit %d", code)
	}
	c = start(t, "serve", "--roles", "agents", "--agents", file, "--agents-variant", "canary", "--nats-url", server.ClientURL(), "--http-addr", "127.0.0.1:0")
	c.ready()
	until(t, "the variant listens, and the agent itself does not", func() bool {
		_, err := nc.Request("duly.do.pay-canary", nil, patience)
		_, plain := nc.Request("duly.do.pay", nil, patience)
		return err == nil && errors.Is(plain, nats.ErrNoResponders)
	})
	if code := c.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, "bearer: {file: "+token+"}", "bearer: s3cr3t", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command(t, "", "serve", "--roles", "agents", "--agents", file)
	if code == 0 || !strings.Contains(errs, "agents.yaml:2:") || !strings.Contains(errs, "bearer: want a mapping") || strings.Contains(out+errs, "s3cr3t") {
		t.Errorf("a wrong file: %d %s%s", code, out, errs)
	}
	if code, _, errs := command(t, "", "serve", "--roles", "agents"); code == 0 || !strings.Contains(errs, "agents: not given") {
		t.Errorf("no file: %d %s", code, errs)
	}
}

// TestServeAgentsBesideANode: both in one process, which ends as one.
func TestServeAgentsBesideANode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte("services: {bank: {url: \"https://bank.example.org\"}}\nagents: {pay: {service: bank, steps: {charge: {do: {path: /x}}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, "serve", "--roles", "ingest,scheduler,supervisor,agents", "--agents", file, "--nats-url", c.nats, "--database-url", c.db, "--http-addr", "127.0.0.1:0", "--partitions", "8")
	n.ready()
	until(t, "the agent is there", func() bool {
		msg, err := c.nc.Request("$SRV.PING.duly-pay", nil, patience)
		return err == nil && len(msg.Data) > 0
	})
	if code := n.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// restBank is a service that bears what any must: a PUT again, a DELETE of what was never made, a PUT after its DELETE.
type restBank struct {
	tells bool // what was made

	mu   sync.Mutex
	rows map[string]string // by path: busy, done or gone
}

// tell answers with what was made, and whether it is new.
func (b *restBank) tell(w http.ResponseWriter, path, state string) {
	if b.tells {
		_, _ = fmt.Fprintf(w, `{"id":%q,"state":%q}`, path, state)
	}
}

// enter gives what is known of a path, and takes it up unless another request is at work with it or it has ended.
func (b *restBank) enter(path string, undo bool) (was string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was = b.rows[path]; was == "" || was == "done" && undo {
		b.rows[path] = "busy"
	}
	return was
}

func (b *restBank) leave(path, is string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows[path] = is
}

// ServeHTTP implements http.Handler.
func (b *restBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct{ Slow, Large bool }
	data, err := io.ReadAll(r.Body)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &order)
	}
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	path := r.URL.Path
	if r.Method == http.MethodGet {
		b.mu.Lock()
		defer b.mu.Unlock()
		w.WriteHeader(map[string]int{"": 404, "gone": 404, "busy": 202, "done": 200}[b.rows[path]])
		b.tell(w, path, "paid")
		return
	}
	undo := r.Method == http.MethodDelete
	switch was := b.enter(path, undo); {
	case was == "busy":
		w.WriteHeader(http.StatusTooEarly)
	case was == "gone" && undo:
		w.WriteHeader(http.StatusNoContent)
	case was == "gone":
		w.WriteHeader(http.StatusGone)
	case undo:
		b.leave(path, "gone")
		w.WriteHeader(http.StatusNoContent)
	default:
		if order.Slow {
			<-time.After(100 * time.Millisecond)
		}
		b.leave(path, "done")
		if order.Large {
			_, _ = fmt.Fprintf(w, "%q", strings.Repeat("x", 70_000))
			return
		}
		w.WriteHeader(http.StatusCreated)
		b.tell(w, path, "new")
	}
}

// TestHTTPAgentConforms: an agent that a file makes of a service holds every rule of the protocol.
func TestHTTPAgentConforms(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(&restBank{rows: map[string]string{}})
	defer bank.Close()
	dir := t.TempDir()
	file := writeFile(t, dir, "agents.yaml", "services:\n  bank: {url: \""+bank.URL+`", allow: [127.0.0.1]}
agents:
  pay:
    service: bank
    steps:
      charge:
        do: {method: PUT, path: "/{ref}", body: input}
        undo: {path: "/{ref}"}
        probe: {path: "/{ref}", in_progress: 202}
`)
	conforms(t, file, "pay", "--probes", "--strict", "--slow-input", writeFile(t, dir, "slow.json", `{"slow":true}`), "--large-input", writeFile(t, dir, "large.json", `{"large":true}`))
}

// TestGuideOfHTTPAgentConforms: so does the one of the guide's first file.
//
// covers: W8
func TestGuideOfHTTPAgentConforms(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(http.StripPrefix("/v1", &restBank{tells: true, rows: map[string]string{}}))
	defer bank.Close()
	page, err := os.ReadFile("../../docs/guide/http-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	dir := t.TempDir()
	served := strings.NewReplacer("https://payments.example.org/v1", bank.URL+"/v1\n    allow: [127.0.0.1]", "/run/secrets/payments", writeFile(t, dir, "secret", "s3cr3t\n")).Replace(text)
	if !found || served == text {
		t.Fatal("nothing was put in place of what the guide has")
	}
	conforms(t, writeFile(t, dir, "agents.yaml", served), "payment.charge", "--probes",
		"--input", writeFile(t, dir, "order.json", `{"cents":1999}`), "--results", writeFile(t, dir, "results.json", `{"credit":{"customer":"c-1"}}`))
}

// writeFile writes a file of a folder, and returns its name.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// conforms serves a file of agents, of which one holds the rules at its step charge.
func conforms(t *testing.T, file, agent string, args ...string) {
	t.Helper()
	server := natsServer(t, natsd.Options{})
	c := start(t, "serve", "--roles", "agents", "--agents", file, "--nats-url", server.ClientURL(), "--http-addr", "127.0.0.1:0")
	c.ready()
	play := []string{"conformance", "--nats-url", server.ClientURL(), "--agent", agent, "--step", "charge"}
	until(t, "the agent is there", func() bool {
		code, out, errs := command(t, "", append(play, "--only", "P1", "--silence", "100ms")...)
		return code == exitDone || !strings.Contains(out+errs, "no instance listens")
	})
	code, out, errs := command(t, "", append(append(play, "--silence", "200ms", "--call-time", "4s"), args...)...)
	if code != exitDone {
		t.Errorf("exit status %d:\n%s%s", code, out, errs)
	}
	t.Log(out)
	if code := c.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
