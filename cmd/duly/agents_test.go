package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// TestServeAgents: a process with the role agents alone needs no database. It serves its file and its health, and ends
// well; a file that is wrong is refused at the start with line and column, and shows no secret.
//
// covers: S7
func TestServeAgents(t *testing.T) {
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
	c := spawn(t, "serve", "--roles", "agents", "--agents", file, "--nats-url", server.ClientURL(), "--http-addr", "127.0.0.1:0")
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
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte("services: {bank: {url: \"https://bank.example.org\"}}\nagents: {pay: {service: bank, steps: {charge: {do: {path: /x}}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := spawn(t, "serve", "--roles", "ingest,scheduler,supervisor,agents", "--agents", file, "--nats-url", c.nats, "--database-url", c.db, "--http-addr", "127.0.0.1:0", "--partitions", "8")
	n.ready()
	until(t, "the agent is there", func() bool {
		msg, err := c.nc.Request("$SRV.PING.duly-pay", nil, patience)
		return err == nil && len(msg.Data) > 0
	})
	if code := n.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
