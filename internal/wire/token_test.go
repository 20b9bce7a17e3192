package wire

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

func signing(t testing.TB) *Signer {
	t.Helper()
	k, err := NewSigner([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTokenGolden pins the token, as openssl makes it (mac, SIPHASH, size 8): a node with another one would take no reply to the commands of
// this one, and one without the commit in it would take a reply to the same numbers of a database that was restored.
//
// covers: A2
func TestTokenGolden(t *testing.T) {
	k := signing(t)
	later := command(3, 17, 5, 9)
	later.Copy = 258
	if got, want := k.ReplySubject(Names{}, later), "duly.reply.3.17.5.000001025a27e3a1aae98d70"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := k.BatchReplySubject("duly.batch.reply.s.", "pay", 77), "duly.batch.reply.s.pay.25-af02290a800e681f"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for subject, want := range map[string]bool{"duly.batch.reply.s.pay.25-af02290a800e681f": true, "duly.batch.reply.s.pay.25-af02290a800e6810": false,
		"duly.batch.reply.s.ship.25-af02290a800e681f": false, "duly.batch.reply.r.pay.25-af02290a800e681f": false,
		"duly.batch.reply.s.pay.25": false, "duly.batch.reply.s.pay.26-af02290a800e681f": false, "": false} {
		if n, got := k.BatchNumber(subject); got != want || want && n != 77 {
			t.Errorf("%s: batch %d, %v, want %v", subject, n, got, want)
		}
	}
	for own, want := range map[core.Token]bool{k.sign(kindReply, 3, 17, 5, 9, 0): true, k.sign(kindReply, 3, 17, 5, 9, 258): true, k.sign(kindBatch, 3, 17, 5, 9, 0): false, {}: false} {
		if got := k.Genuine(&core.Reply{Partition: 3, Number: 17, Seq: 5, Token: own}, 9); got != want {
			t.Errorf("%x is genuine: %v, want %v", own, got, want)
		}
	}
	for _, n := range []int{0, 15, 32} {
		if _, err := NewSigner(make([]byte, n)); err == nil || !strings.Contains(err.Error(), "want 16") {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
}

func command(partition int, number, seq, commit int64) *core.Command {
	return &core.Command{Partition: partition, Number: number, Seq: seq, Commit: commit}
}

// FuzzTokens: one subject and one token is taken for each command and batch, and
// no other.
func FuzzTokens(f *testing.F) {
	k := signing(f)
	f.Add("duly.reply.3.17.5")
	own := k.ReplySubject(Names{}, command(3, 17, 5, 9))
	f.Add(own)
	f.Add(own + ".x")
	f.Add(own[:18] + strings.ToUpper(own[18:]))
	f.Add(k.BatchReplySubject("duly.batch.reply.s.", "pay", 77))
	f.Add("-")
	f.Fuzz(func(t *testing.T, s string) {
		var names Names
		var none *Signer
		if r, err := (Names{}).DecodeReply(s, nil, nil, 10); err == nil {
			c := command(r.Partition, r.Number, r.Seq, 9)
			c.Copy = r.Token.Copy()
			if want := strings.EqualFold(s, k.ReplySubject(names, c)); k.Genuine(&r, 9) != want || want && k.Genuine(&r, 10) {
				t.Fatalf("%q: taken is %v", s, !want)
			}
			if !none.Genuine(&r, 9) {
				t.Fatal("without a key everything is taken")
			}
		}
		at := strings.LastIndexByte(s, '.') + 1
		if n, ok := k.BatchNumber(s); ok && k.batchToken(s[:at], n) != s[at:] {
			t.Fatalf("%q read as batch %d", s, n)
		}
		if n, ok := none.BatchNumber(s); ok && none.batchToken(s[:at], n) != s[at:] {
			t.Fatalf("%q read as batch %d without tokens", s, n)
		}
	})
}

// TestSignedBatchIsTheBatch: the token changes nothing else, and a record that is
// cut inside it is refused.
func TestSignedBatchIsTheBatch(t *testing.T) {
	k := signing(t)
	data := AppendBatchCommand([]byte{BatchVersion}, &goldenCommand, k)
	var tokens []core.Token
	var got []core.Command
	if err := DecodeBatchCommands(data, func(c core.Command, token core.Token) { got, tokens = append(got, c), append(tokens, token) }); err != nil || len(got) != 1 {
		t.Fatalf("%v, %+v", err, got)
	}
	if want, err := decodeBatch(batchOf(goldenCommand)); err != nil || !reflect.DeepEqual(got, want) || tokens[0] != k.Token(3, 17, 5, goldenCommand.Commit, goldenCommand.Copy) {
		t.Errorf("%+v, %v, %s", got, err, hex.EncodeToString(tokens[0][:]))
	}
	if err := DecodeBatchCommands([]byte{BatchVersion, 4, 3, 17, 5, 1}, func(core.Command, core.Token) { t.Error("taken") }); !isUndecodable(err) || !strings.Contains(err.Error(), "token") {
		t.Errorf("cut in its token: %v", err)
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
		if got := (Names{}).IsBatchReply(subject, "pay.card"); got != want {
			t.Errorf("%s: %v, want %v", subject, got, want)
		}
	}
}
