package natsbus

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"duly.dev/duly/internal/wire"
)

// serveMuted starts a server that does not answer what comes to some subjects, and returns its URL.
func serveMuted(t *testing.T, subjects ...string) string {
	t.Helper()
	user := &server.User{Username: "duly", Password: "duly", Permissions: &server.Permissions{Publish: &server.SubjectPermission{
		Allow: []string{">"}, Deny: subjects,
	}}}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{user}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	return "nats://duly:duly@" + s.Addr().String()
}

// TestMuteConsumer: a consumer that neither delivers nor answers is created again, as
// one whose server has died while the others of its cluster live.
//
// covers: E29, inv11
func TestMuteConsumer(t *testing.T) {
	t.Parallel()
	name := wire.ConsumerName(part, 1, 1)
	c := dial(t, serveMuted(t, "$JS.API.CONSUMER.MSG.NEXT."+names.StreamTasks()+"."+name, "$JS.API.CONSUMER.INFO."+names.StreamTasks()+"."+name))
	setUp(t, c, StreamConfig{})
	got := newSink()
	got.read(t, c, 1, 0, ReadConfig{expiry: time.Second, heartbeat: 100 * time.Millisecond})
	publishTasks(t, c, 3)
	got.await(t, upTo(3)...)
	nothing(t, "loss", got.lost)
}
