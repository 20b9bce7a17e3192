package bus

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

func marking(t testing.TB) *marker {
	t.Helper()
	k, err := newMarker([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestMarkGolden pins the mark, as openssl makes it (mac, SIPHASH, size 8): a node with another one would take no reply to what this one asked,
// and one without the commit in it a reply to the same numbers of another life.
//
// covers: A2
func TestMarkGolden(t *testing.T) {
	k := marking(t)
	if got, want := k.replySubject(Names{}, command(3, 17, 5, 9)), "duly.reply.3.17.5.8f6af3d5c7fca7bc"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := k.batchToken(77), "25-a702699f75047063"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, n := range []int{0, 15, 32} {
		if _, err := newMarker(make([]byte, n)); err == nil || !strings.Contains(err.Error(), "want 16") {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
}

func command(partition int, number, seq, commit int64) *core.Command {
	return &core.Command{Partition: partition, Number: number, Seq: seq, Commit: commit}
}

// FuzzMarks: one subject and one token is taken for each command and batch, and
// no other.
func FuzzMarks(f *testing.F) {
	k := marking(f)
	f.Add("duly.reply.3.17.5")
	own := k.replySubject(Names{}, command(3, 17, 5, 9))
	f.Add(own)
	f.Add(own + ".x")
	f.Add(own[:18] + strings.ToUpper(own[18:]))
	f.Add(k.batchToken(77))
	f.Add("-")
	f.Fuzz(func(t *testing.T, s string) {
		var names Names
		c := &Conn{}
		c.marker.Store(k)
		if r, err := (Names{}).DecodeReply(&nats.Msg{Subject: s}, 10); err == nil {
			if want := strings.EqualFold(s, k.replySubject(names, command(r.Partition, r.Number, r.Seq, 9))); c.Genuine(&r, 9) != want || want && c.Genuine(&r, 10) {
				t.Fatalf("%q: taken is %v", s, !want)
			}
			c.marker.Store(nil)
			if !c.Genuine(&r, 9) {
				t.Fatal("without a key everything is taken")
			}
		}
		if n, ok := k.batchNumber(s); ok && k.batchToken(n) != s {
			t.Fatalf("%q read as batch %d", s, n)
		}
		var none *marker
		if n, ok := none.batchNumber(s); ok && none.batchToken(n) != s {
			t.Fatalf("%q read as batch %d without marks", s, n)
		}
	})
}

// forgeries are what an agent that was sent a command can make of its reply
// subject to answer for another.
func forgeries(own string) []string {
	mark := own[strings.LastIndexByte(own, '.'):]
	return []string{
		"duly.reply.3.18.5", "duly.reply.3.18.5" + mark, "duly.reply.3.17.6" + mark, "duly.reply.3.18.5." + strings.Repeat("0", 16),
		own + "0", own + ".x", strings.Replace(own, "duly.reply.3.17.", "duly.reply.3.18.", 1),
	}
}

// TestForgedReplies: an agent answers for another's step, or says that no agent
// was there to do it. Neither is genuine; the answer to its own command is, also
// at the one that succeeds the owner, and to this one commit of its row only: one in
// a life that the database has forgotten is another.
//
// covers: E24, inv5
func TestForgedReplies(t *testing.T) {
	server := serve(t, natsserver.Options{})
	owner, successor := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, owner, StreamConfig{})
	setUp(t, successor, StreamConfig{})
	w, next := serveReplies(t, owner, 3), serveReplies(t, successor, 3)
	agent := dial(t, server.ClientURL())
	asked := make(chan *nats.Msg, 1)
	if _, err := agent.nc.ChanSubscribe(CommandSubject("payment.charge", true), asked); err != nil {
		t.Fatal(err)
	}
	if err := agent.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := owner.SendCommand(&goldenCommand); err != nil {
		t.Fatal(err)
	}
	own := receive(t, "the command", asked)
	all := forgeries(own.Reply)
	for _, subject := range all {
		for _, m := range []*nats.Msg{{Subject: subject, Data: []byte(`{"paid":true}`)}, {Subject: subject, Header: nats.Header{"Status": {"503"}}}} {
			if err := agent.nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := own.Respond([]byte(`"own"`)); err != nil {
		t.Fatal(err)
	}
	commit := goldenCommand.Commit
	for name, side := range map[string]struct {
		*Conn
		wires
	}{"owner": {owner, w}, "successor": {successor, next}} {
		for range all {
			if r := receive(t, "a forged reply", side.replies); side.Genuine(&r, commit) {
				t.Errorf("%s: a forged reply is genuine: %+v", name, r)
			}
			if r := receive(t, "a forged word that no agent listens", side.unserved); side.Genuine(&r, commit) {
				t.Errorf("%s: a forged word that no agent listens is genuine: %+v", name, r)
			}
		}
		r := receive(t, "the answer", side.replies)
		if r.Number != 17 || string(r.Result) != `"own"` || !side.Genuine(&r, commit) {
			t.Errorf("%s: %+v", name, r)
		}
		if side.Genuine(&r, commit+1) {
			t.Errorf("%s: it answers the command of another commit", name)
		}
	}
}

// TestForgedBatches: the same in batches of replies.
//
// covers: E24, inv5, inv7
func TestForgedBatches(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c := dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	s, w := sending(t, c)
	agent := dial(t, server.ClientURL())
	_, batches := answering(t, agent, true)
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 20); n != 20 {
		t.Fatalf("%d commands in batches, want all", n)
	}
	k := c.marker.Load()
	own := mark(k.token(3, 0, 5, 0)) // it was sent this one
	other := core.Command{Partition: 3, Number: 100, Seq: 5}
	paid := &core.Reply{Result: []byte(`"paid"`)}
	marked, plain := []byte{batchMarked}, []byte{batchPlain}
	batchKind := k.make(markBatch, 3, 100, 5, 0)
	for _, forged := range [][]byte{
		appendBatchReply(marked, &other, &own, paid), appendBatchReply(marked, &other, &mark{}, paid), appendBatchReply(plain, &other, nil, paid),
		appendBatchReply(marked, &other, &batchKind, paid),
	} {
		if err := agent.nc.Publish(s.prefix+"0", forged); err != nil {
			t.Fatal(err)
		}
	}
	// That nobody listened to the batch: of another number, without its mark.
	token := k.batchToken(1)
	for _, forged := range []string{"1", "2", "2" + token[1:], "1-" + strings.Repeat("0", 16)} {
		if err := agent.nc.PublishMsg(&nats.Msg{Subject: s.prefix + forged, Header: nats.Header{"Status": {"503"}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if r := receive(t, "a forged reply", w.replies); c.Genuine(&r, 0) {
			t.Errorf("a forged reply is genuine: %+v", r)
		}
	}
	eventually(t, "four forged batches", func() bool { return c.Forged() == 4 })
	nothing(t, "a forged word that nobody listens", w.unserved)
	// The word itself still counts.
	if err := agent.nc.PublishMsg(&nats.Msg{Subject: s.prefix + token, Header: nats.Header{"Status": {"503"}}}); err != nil {
		t.Fatal(err)
	}
	receive(t, "a command given back", w.unserved)
}

// TestMarkedBatchIsTheBatch: the mark changes nothing else, and what is cut
// inside it is refused.
func TestMarkedBatchIsTheBatch(t *testing.T) {
	k := marking(t)
	data := appendBatchCommand([]byte{batchMarked}, &goldenCommand, k)
	var marks []mark
	var got []core.Command
	if err := decodeBatchCommands(data, func(c core.Command, m *mark) { got, marks = append(got, c), append(marks, *m) }); err != nil || len(got) != 1 {
		t.Fatalf("%v, %+v", err, got)
	}
	if want, err := decodeBatch(batchOf(goldenCommand)); err != nil || !reflect.DeepEqual(got, want) || marks[0] != mark(k.token(3, 17, 5, goldenCommand.Commit)) {
		t.Errorf("%+v, %v, %s", got, err, hex.EncodeToString(marks[0][:]))
	}
	if err := decodeBatchCommands([]byte{batchMarked, 4, 3, 17, 5, 1}, func(core.Command, *mark) { t.Error("taken") }); !isUndecodable(err) || !strings.Contains(err.Error(), "mark") {
		t.Errorf("cut in its mark: %v", err)
	}
}

// TestOldAgentGetsSingles: an agent of before the marks, or one that would not answer
// where its own name is in the subject, is sent its commands one by one.
func TestOldAgentGetsSingles(t *testing.T) {
	server := serve(t, natsserver.Options{})
	c, agent := dial(t, server.ClientURL()), dial(t, server.ClientURL())
	setUp(t, c, StreamConfig{})
	for version, want := range map[string]bool{"1": false, "2": false, "3": true} {
		name := "payment.v" + version
		_, err := micro.AddService(agent.nc, micro.Config{Name: serviceName(name), Version: "1.0.0", Metadata: map[string]string{metaAgent: name, metaBatch: version}})
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := c.agentTakesBatches(t.Context(), name); got != want {
			t.Errorf("version %s: sent batches is %v, want %v", version, got, want)
		}
	}
}

// TestAnswersOfBatchesNameTheAgent: an agent answers batches where its own name is in
// the subject, or where older senders wait, and nowhere else.
func TestAnswersOfBatchesNameTheAgent(t *testing.T) {
	for subject, want := range map[string]bool{
		"duly.batch.reply.s.pay.card.1-ab": true, "duly.batch.reply.s.1-ab": true,
		"duly.batch.reply.s.ship.1-ab": false, "duly.batch.reply.s.pay.1-ab": false, "duly.batch.reply.s.pay.card.": false,
		"duly.batch.reply.s.pay.card.*": false, "duly.batch.reply.*.pay.card.1": false, "duly.batch.reply..pay.card.1": false,
		"duly.reply.s.pay.card.1": false, "duly.batch.reply.s": false,
	} {
		if got := (Names{}).isBatchReply(subject, "pay.card"); got != want {
			t.Errorf("%s: %v, want %v", subject, got, want)
		}
	}
}
