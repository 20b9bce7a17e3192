package httpagent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire/wiretest"
)

// goldenBank makes one charge a key, and none whose key was taken back. Where a status is set it answers that alone.
type goldenBank struct {
	rows   map[string]string // by path: made or gone
	made   int
	status atomic.Int64
}

func (b *goldenBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	is := b.rows[r.URL.Path]
	switch status := int(b.status.Load()); {
	case status != 0:
		w.WriteHeader(status)
	case r.Method == http.MethodDelete:
		b.rows[r.URL.Path] = "gone"
	case is == "gone":
		w.WriteHeader(http.StatusGone)
	case r.Method == http.MethodGet && is == "":
		w.WriteHeader(http.StatusNotFound)
	default:
		if is == "" {
			b.rows[r.URL.Path] = "made"
			b.made++
		}
		_, _ = io.WriteString(w, `{"Number":"r-1"}`)
	}
}

// golden sends a golden command that has time left, and returns the answer.
func golden(t *testing.T, nc *nats.Conn, m *wiretest.Message) *nats.Msg {
	t.Helper()
	data, err := m.Live(time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	msg := &nats.Msg{Subject: m.Subject, Data: data, Header: nats.Header{}}
	for name, value := range m.Headers {
		msg.Header.Set(name, value)
	}
	return answered(t, nc, msg)
}

// TestGoldenMessages: a service by a file answers the golden commands as the golden replies do, and what a service answers by
// a status is the golden reply of that code.
func TestGoldenMessages(t *testing.T) {
	files, err := wiretest.Read("../../testdata/protocol")
	if err != nil {
		t.Fatal(err)
	}
	nc, bank := startNATS(t), &goldenBank{rows: map[string]string{}}
	server := httptest.NewServer(bank)
	defer server.Close()
	stop := run(t, nc, goldenFile(server.URL))
	ask(t, nc, "duly.undo.payment.charge", 1) // it is there
	delete(bank.rows, "/charges/order-17.charge.0")
	for _, x := range []struct{ command, reply string }{
		{"probe", "probe-absent"}, {"do", "reply"}, {"do-again", "reply"}, {"do-newer", "reply"}, {"do-traced", "reply"}, {"probe", "probe-done"},
		{"undo", "reply-undone"}, {"undo", "reply-undone"}, {"do-again", "reply-gone"}, {"probe", "probe-absent"}, {"undo-unseen", "reply-undone"}, {"do-child", "reply"},
	} {
		answer, want := golden(t, nc, files[x.command]), files[x.reply]
		if code := answer.Header.Get("Nats-Service-Error-Code"); string(answer.Data) != string(want.Payload) || code != want.Headers["Nats-Service-Error-Code"] {
			t.Errorf("%s: %s with code %q, want %s as %s has it", x.command, answer.Data, code, want.Payload, x.reply)
		}
	}
	for name, m := range files {
		if m.Refused == nil || m.Subject != files["do"].Subject {
			continue
		}
		code, _ := strconv.Atoi(golden(t, nc, m).Header.Get("Nats-Service-Error-Code"))
		if code != m.Refused.Code && code != m.Refused.Or {
			t.Errorf("%s: code %d, want %d or %d", name, code, m.Refused.Code, m.Refused.Or)
		}
	}
	if bank.made != 2 {
		t.Errorf("%d charges were made, want those of two keys", bank.made)
	}
	for _, name := range []string{"reply-refused", "reply-code-alone", "reply-in-progress", "reply-full", "reply-failed", "reply-stopping"} {
		want := files[name].Headers["Nats-Service-Error-Code"]
		status, _ := strconv.Atoi(want)
		bank.status.Store(int64(status))
		if code := golden(t, nc, files["do"]).Header.Get("Nats-Service-Error-Code"); code != want {
			t.Errorf("a service that answers %s is code %s, want %s", want, code, name)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// goldenFile is the agent of the golden messages.
func goldenFile(url string) string {
	return `
services:
  bank: {url: "` + url + `", allow: [127.0.0.1], tries: 1}
agents:
  payment.charge:
    service: bank
    steps:
      charge:
        do: {method: PUT, path: "/charges/{ref}", body: input}
        undo: {path: "/charges/{ref}"}
        probe: {path: "/charges/{ref}"}
`
}
