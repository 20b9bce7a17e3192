package readme

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/wire/wiretest"
)

// TestPlainAgent plays the golden messages of the protocol against the agent of the README: what it answers to a do and to an
// undo is what the golden replies have.
func TestPlainAgent(t *testing.T) {
	files, err := wiretest.Read("../../testdata/protocol")
	if err != nil {
		t.Fatal(err)
	}
	server := natstest.Start(t, natsserver.Options{SyncOff: true})
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	plainAgent(nc)
	for _, x := range []struct{ command, reply string }{
		{"do", "reply"}, {"do-again", "reply"}, {"do-newer", "reply"}, {"undo", "reply-undone"}, {"undo-unseen", "reply-undone"},
	} {
		command, reply := files[x.command], files[x.reply]
		data, err := command.Live(time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := nc.Request(command.Subject, data, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", x.command, err)
		}
		if string(answer.Data) != string(reply.Payload) || len(answer.Header) != len(reply.Headers) {
			t.Errorf("%s is answered %q with %v, want %q as %s has it", x.command, answer.Data, answer.Header, reply.Payload, x.reply)
		}
	}
}
