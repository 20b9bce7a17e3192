package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/taskform"
)

// TestNames pins every name of the wire: a change breaks every client and agent
// in use.
//
// covers: inv5
func TestNames(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{StreamTasks, "DULY_TASKS"}, {StreamControl, "DULY_CONTROL"}, {StreamEvents, "DULY_EVENTS"}, {StreamDead, "DULY_DEAD"},
		{BucketNodes, "DULY_NODES"}, {NodeKey("n1"), "node.n1"}, {KeyLeader, "leader"},
		{GroupIngest, "ingest"}, {GroupAgent, "q"},
		{HeaderCompleteBy, "Duly-Complete-By"}, {HeaderReplyTo, "Duly-Reply-To"}, {HeaderTrace, "traceparent"},
		{HeaderCause, "Duly-Cause"}, {HeaderSubject, "Duly-Subject"},
		{HeaderError, "Nats-Service-Error"}, {HeaderErrorCode, "Nats-Service-Error-Code"},
		{SubmitSubject("order", "o-1"), "duly.submit.order.o-1"},
		{InSubject("order", "o-1"), "duly.in.order.o-1"},
		{PackSubject(7), "duly.tasks.7.pack"}, {TasksPattern(7), "duly.tasks.7.>"},
		{CommandSubject("payment.charge", false), "duly.do.payment.charge"},
		{CommandSubject("payment.charge", true), "duly.undo.payment.charge"},
		{ReplySubject(15, 123456789, 42), "duly.reply.15.123456789.42"}, {ReplyPattern(15), "duly.reply.15.>"},
		{ControlSubject(3), "duly.control.3"},
		{EventSubject("order", "processed"), "duly.events.order.processed"},
		{EventSubject("no type", "refused"), "duly.events._.refused"},
		{Names{}.EventsAbout("", ""), Names{}.PatternEvents()}, {Names{}.EventsAbout("order", ""), "duly.events.order.*"}, {Names{}.EventsAbout("", "error"), Names{}.PatternErrors()},
		{LiveSubject("order", "o-1"), "duly.live.order.o-1"},
		{DeadSubject("DULY_TASKS"), "duly.dead.DULY_TASKS"},
		{AskSubject("cancel"), "duly.ask.cancel"},
		{AskTypeSubject("cancel", "order"), "duly.ask.cancel.order"},
		{SubjectPlansApply, "duly.plans.apply"}, {SubjectPlansChanged, "duly.plans.changed"},
		{ConsumerName(7, 12, 3), "p07-e12-3"}, {ConsumerName(115, 1, 1), "p115-e1-1"},
	} {
		if x.got != x.want {
			t.Errorf("got %s, want %s", x.got, x.want)
		}
	}
}

// TestPartitionOf pins the hash; natsbus holds it against the server's own.
func TestPartitionOf(t *testing.T) {
	for id, want := range map[string]int{"order-1": 13, "order-2": 4, "": 5, "a": 12, "delivery_00000042": 4} {
		if got := PartitionOf(id, 16); got != want {
			t.Errorf("%q: partition %d, want %d", id, got, want)
		}
	}
}

func TestNamesBuildWithoutGarbage(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, build := range map[string]func() string{
		"reply": func() string { return ReplySubject(15, 123456789, 42) },
		"pack":  func() string { return PackSubject(15) },
		"do":    func() string { return CommandSubject("payment.charge", false) },
	} {
		var s string
		if n := testing.AllocsPerRun(100, func() { s = build() }); n > 1 {
			t.Errorf("%s: %v allocations for %s, want 1: the string", name, n, s)
		}
	}
}

func TestParseSubjects(t *testing.T) {
	for subject, want := range map[string][3]int64{
		"duly.reply.0.1.2":                    {0, 1, 2},
		"duly.reply.15.123.42":                {15, 123, 42},
		"duly.reply.15.123.42.mac":            {15, 123, 42},
		"duly.reply.15.123":                   {-1},
		"duly.reply.15.123.":                  {-1},
		"duly.reply.15.-1.2":                  {-1},
		"duly.reply.15.+1.2":                  {-1},
		"duly.reply.015.1.2":                  {-1},
		"duly.reply.1.2.99999999999999999999": {-1},
		"duly.reply.1.2.9999999999999999999":  {-1},
		"duly.reply.4294967296.1.2":           {-1},
		"duly.rep.1.1.2":                      {-1},
		"":                                    {-1},
	} {
		p, number, seq, err := ParseReply(subject)
		if got := [3]int64{int64(p), number, seq}; err == nil && got != want || (err != nil) != (want[0] < 0) {
			t.Errorf("%q: got %v, %v, want %v", subject, got, err, want)
		}
	}
	for subject, ok := range map[string]bool{
		"duly.submit.order.o-1": true, "duly.submit.order.": false, "duly.submit.order.a.b": false,
		"duly.submit.or der.x": false, "duly.in.order.x": false, "duly.submit." + strings.Repeat("x", 65) + ".x": false,
	} {
		if _, _, err := ParseSubmit(subject); (err == nil) != ok {
			t.Errorf("%q: error %v, want ok %v", subject, err, ok)
		}
	}
	for name, want := range map[string][3]int64{"p07-e12-3": {7, 12, 3}, "p115-e1-1": {115, 1, 1}, "mine": {-1}, "p1-e-2-3": {-1}, "px-e1-1": {-1}, "p1-e1-1-1": {-1}} {
		p, epoch, n, ok := ParseConsumer(name)
		if got := [3]int64{int64(p), epoch, int64(n)}; ok && got != want || ok != (want[0] >= 0) {
			t.Errorf("%q: got %v, %v, want %v", name, got, ok, want)
		}
	}
}

var goldenCommand = core.Command{
	Undo: true, Agent: "payment.charge", Partition: 3, Number: 17, Seq: 5, Task: "order-17", Type: "order", Step: "charge", Attempt: 2, Round: 12,
	CompleteBy: at, Left: 1500 * time.Millisecond, Input: []byte(`{"drone": [1, 2]}`),
	Results: []core.StepResult{{Step: "credit", Result: []byte(`{"ok":true}`)}, {Step: "stock", Result: nil}}, Result: []byte(`"r-1"`),
}

const goldenCommandJSON = `{"v":1,"task":"order-17","type":"order","step":"charge","attempt":2,"key":"order-17/charge/12",` +
	`"complete_by":"2026-01-02T03:04:05.000678Z","left_ms":1500,"input":{"drone": [1, 2]},` +
	`"results":{"credit":{"ok":true},"stock":null},"result":"r-1"}`

// covers: S4, S5
func TestCommandGolden(t *testing.T) {
	if got := string(AppendCommand(nil, &goldenCommand)); got != goldenCommandJSON {
		t.Errorf("got  %s\nwant %s", got, goldenCommandJSON)
	}
	do := goldenCommand
	do.Undo, do.Input, do.Results = false, nil, nil
	if got := string(AppendCommand(nil, &do)); strings.Contains(got, `"result":`) || !strings.Contains(got, `"input":null,"results":{}}`) {
		t.Errorf("do without input: %s", got)
	}
	back, err := DecodeCommand([]byte(goldenCommandJSON))
	if err != nil {
		t.Fatal(err)
	}
	want := goldenCommand // less what subjects and headers carry
	want.Undo, want.Agent, want.Partition, want.Number, want.Seq = false, "", 0, 0, 0
	want.Results = []core.StepResult{want.Results[0], {Step: "stock", Result: []byte("null")}}
	if !reflect.DeepEqual(back, want) {
		t.Errorf("decoded %+v\nwant    %+v", back, want)
	}
	if back.Key() != "order-17/charge/12" {
		t.Errorf("key %s", back.Key())
	}
}

// The id of a child has what no client's has, and its agent takes it.
func TestCommandOfChild(t *testing.T) {
	sent := core.Command{Task: core.ChildID("o-1", "pay", 17, 2, true), Type: "payment", Step: "debit", Agent: "ledger", Seq: 4, Attempt: 1, Input: []byte("{}")}
	got, err := DecodeCommand(AppendCommand(nil, &sent))
	if err != nil || got.Task != sent.Task {
		t.Errorf("task %q: %v", got.Task, err)
	}
	sent.Task = "o-1~~pay"
	if _, err := DecodeCommand(AppendCommand(nil, &sent)); !isUndecodable(err) {
		t.Errorf("task %q is taken: %v", sent.Task, err)
	}
}

func TestCommandRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":   `{"v":1,`,
		"array":      `[1]`,
		"version":    strings.Replace(goldenCommandJSON, `"v":1`, `"v":2`, 1),
		"no version": strings.Replace(goldenCommandJSON, `"v":1,`, ``, 1),
		"bad task":   strings.Replace(goldenCommandJSON, `"task":"order-17"`, `"task":"order 17"`, 1),
		"bad key":    strings.Replace(goldenCommandJSON, `/12"`, `/-1"`, 1),
		"bad time":   strings.Replace(goldenCommandJSON, `2026-01-02T`, `yesterday `, 1),
		"left":       strings.Replace(goldenCommandJSON, `"left_ms":1500`, `"left_ms":1e3`, 1),
		"results":    strings.Replace(goldenCommandJSON, `"results":{"credit":{"ok":true},"stock":null}`, `"results":[]`, 1),
	} {
		if _, err := DecodeCommand([]byte(text)); !isUndecodable(err) {
			t.Errorf("%s: error %v, want one that wraps ErrUndecodable", name, err)
		}
	}
	spaced := " { \"new\" : {\"a\":[\"}\\\"\"]} , " + goldenCommandJSON[1:] + "\n"
	if c, err := DecodeCommand([]byte(spaced)); err != nil || c.Step != "charge" || string(c.Result) != `"r-1"` {
		t.Errorf("unknown member and space: %+v, %v", c, err)
	}
}

var goldenPack = []core.Submission{
	{Type: "order", ID: "o-1", PlanVersion: 300, Input: []byte(`{"a":1}`), CompleteBy: at + 1, ReplyTo: "_INBOX.x", Trace: "00-ab-cd-01", At: at},
	{Type: "order", ID: "o-2", At: at},
}

const goldenPackHex = "01" + // version
	"39" + "056f72646572" + "036f2d31" + "ac02" + "ced7e7e4ded7a306" + "085f494e424f582e78" + "0b30302d61622d63642d3031" + "ccd7e7e4ded7a306" + "077b2261223a317d" +
	"17" + "056f72646572" + "036f2d32" + "00" + "00" + "00" + "00" + "ccd7e7e4ded7a306" + "00"

func TestPackGolden(t *testing.T) {
	packed := AppendPack(nil, goldenPack)
	if got := hex.EncodeToString(packed); got != goldenPackHex {
		t.Errorf("got  %s\nwant %s", got, goldenPackHex)
	}
	if want := 1 + PackedSize(&goldenPack[0]) + PackedSize(&goldenPack[1]); len(packed) != want {
		t.Errorf("pack has %d bytes, PackedSize says %d", len(packed), want)
	}
	back, err := decodePack(packed)
	if err != nil || !reflect.DeepEqual(back, goldenPack) {
		t.Errorf("decoded %+v, %v", back, err)
	}
}

// manyOrders is a pack whose inputs repeat their members' names, as those of one type do.
func manyOrders(n int) []core.Submission {
	subs := make([]core.Submission, n)
	for i := range subs {
		subs[i] = core.Submission{Type: "order", ID: fmt.Sprintf("o-%d", i), PlanVersion: 3, At: at,
			Input: fmt.Appendf(nil, `{"customerNumber":%d,"confirmationRequired":true,"deliverTo":"%d Mill Lane"}`, i*7919, i*31)}
	}
	return subs
}

func TestCompressedPack(t *testing.T) {
	subs := manyOrders(100)
	plain := AppendPack(nil, subs)
	before := []byte("before")
	packed, ok := AppendCompressedPack(before, plain)
	if !ok || !bytes.HasPrefix(packed, before) {
		t.Fatalf("not compressed: %v, %q", ok, packed[:min(len(packed), 10)])
	}
	packed = packed[len(before):]
	if packed[0] != packCompressed || len(packed) > len(plain)/2 {
		t.Errorf("%d bytes became %d of version %d", len(plain), len(packed), packed[0])
	}
	back, err := decodePack(packed)
	if err != nil || !reflect.DeepEqual(back, subs) {
		t.Errorf("decoded %d, %v", len(back), err)
	}
}

// What a decoder would refuse is not compressed, nor what would not be smaller.
func TestPackThatStaysPlain(t *testing.T) {
	random := make([]byte, 4<<10)
	rand.NewChaCha8([32]byte{1}).Read(random)
	for name, sub := range map[string]core.Submission{
		"small":          {Type: "order", ID: "o", Input: []byte(`{}`)},
		"random":         {Type: "order", ID: "o", Input: random},
		"too large":      {Type: "order", ID: "o", Input: bytes.Repeat([]byte("0123456789abcdef~"), compressMost/16)},
		"too repetitive": {Type: "order", ID: "o", Input: bytes.Repeat([]byte("x"), compressMost/2)},
	} {
		if packed, ok := AppendCompressedPack(nil, AppendPack(nil, []core.Submission{sub})); ok || len(packed) > 0 {
			t.Errorf("%s: compressed to %d bytes", name, len(packed))
		}
	}
}

// covers: I15
func TestCompressedPackRefused(t *testing.T) {
	whole, _ := AppendCompressedPack(nil, AppendPack(nil, manyOrders(100)))
	bomb := s2.Encode(nil, make([]byte, compressMost))
	large := make([]byte, compressMost+1)
	rand.NewChaCha8([32]byte{2}).Read(large)
	for name, data := range map[string][]byte{
		"nothing": {packCompressed}, "no length": {packCompressed, 255}, "garbage": {packCompressed, 100, 1, 2, 3},
		"bomb": append([]byte{packCompressed}, bomb...), "too large": append([]byte{packCompressed}, s2.Encode(nil, large)...),
		"tail": append(slices.Clone(whole), 0), "nothing in it": append([]byte{packCompressed}, s2.Encode(nil, nil)...),
		"twice": append([]byte{packCompressed}, s2.Encode(nil, whole)...),
	} {
		if _, err := decodePack(data); !isUndecodable(err) {
			t.Errorf("%s: error %v, want one that wraps ErrUndecodable", name, err)
		}
	}
	for n := range len(whole) {
		if subs, err := decodePack(whole[:n]); !isUndecodable(err) {
			t.Fatalf("%d of %d bytes: %d items, error %v", n, len(whole), len(subs), err)
		}
	}
}

func TestPackRefused(t *testing.T) {
	whole := AppendPack(nil, goldenPack)
	other := append([]byte{5}, whole[1:]...)
	for name, data := range map[string][]byte{
		"empty": nil, "no item": {1}, "version": other, "length beyond": {1, 200, 1}, "endless length": {1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		"field beyond record": {1, 2, 9, 'x'}, "tail in record": append(append([]byte{1, 24}, whole[len(whole)-23:]...), 0),
		"too many": AppendPack(nil, make([]core.Submission, PackItemsMax+1)),
	} {
		if _, err := decodePack(data); !isUndecodable(err) {
			t.Errorf("%s: error %v, want one that wraps ErrUndecodable", name, err)
		}
	}
	for n := 1; n < len(whole); n++ {
		subs, err := decodePack(whole[:n])
		if err == nil && n != len(whole)-24 { // the first item alone is a pack
			t.Errorf("%d of %d bytes: %d items and no error", n, len(whole), len(subs))
		}
	}
}

func TestStatusGolden(t *testing.T) {
	refused := core.Status{ID: "a\"\n\x01\xff é\\", Type: "order", Status: "refused", Error: "no", Code: 400, At: at}
	ended := core.Ending{Partition: 3, EndNumber: 9, ID: "o-1", Type: "order", State: core.StateUndone, Seq: 12, Step: "charge", Error: "card", CreatedAt: at - 1, At: at}
	done := []core.Ending{
		{Partition: 3, EndNumber: 7, ID: "o-1", Type: "order", State: core.StateProcessed, Seq: 6, CreatedAt: at - 2, At: at},
		{Partition: 3, EndNumber: 8, ID: "o-2", Type: "order", State: core.StateProcessed, Seq: 6, CreatedAt: at - 1, At: at},
	}
	for _, x := range []struct{ got, want string }{
		{string(AppendStatus(nil, &refused)), `{"v":1,"id":"a\"\n\u0001\ufffd é\\","type":"order","status":"refused","error":"no","code":400,"at":"2026-01-02T03:04:05.000678Z"}`},
		{string(AppendEnding(nil, &ended)), `{"v":1,"id":"o-1","type":"order","status":"undone","partition":3,"end":9,"seq":12,"step":"charge","error":"card",` +
			`"created_at":"2026-01-02T03:04:05.000677Z","at":"2026-01-02T03:04:05.000678Z"}`},
		{string(appendEvents(nil, done)), `{"v":1,"type":"order","status":"processed","events":[` +
			`{"id":"o-1","partition":3,"end":7,"seq":6,"created_at":"2026-01-02T03:04:05.000676Z","at":"2026-01-02T03:04:05.000678Z"},` +
			`{"id":"o-2","partition":3,"end":8,"seq":6,"created_at":"2026-01-02T03:04:05.000677Z","at":"2026-01-02T03:04:05.000678Z"}]}`},
	} {
		if x.got != x.want {
			t.Errorf("got  %s\nwant %s", x.got, x.want)
		}
	}
	if got, err := DecodeEndings(appendEvents(nil, done)); err != nil || !reflect.DeepEqual(got, done) {
		t.Errorf("pack: %+v, %v", got, err)
	}
	if got, err := DecodeEndings(AppendEnding(nil, &ended)); err != nil || !reflect.DeepEqual(got, []core.Ending{ended}) {
		t.Errorf("single: %+v, %v", got, err)
	}
	if got, err := DecodeStatus(AppendEnding(nil, &ended)); err != nil || got.Status != "undone" || got.Error != "card" || got.At != at {
		t.Errorf("ending as status: %+v, %v", got, err)
	}
	refused.ID = strings.ToValidUTF8(refused.ID, "\uFFFD")
	if got, err := DecodeStatus(AppendStatus(nil, &refused)); err != nil || got != refused {
		t.Errorf("status: %+v, %v", got, err)
	}
	if _, err := DecodeEndings(AppendStatus(nil, &refused)); !isUndecodable(err) {
		t.Errorf("a refusal is no ending: %v", err)
	}
}

func TestControlGolden(t *testing.T) {
	for _, x := range []struct {
		c    core.Control
		want string
	}{
		{core.Control{Kind: core.EventOverdue, Numbers: []int64{4, 5}, Actor: "n1"}, `{"v":1,"kind":"overdue","numbers":[4,5],"actor":"n1"}`},
		{core.Control{Kind: core.EventOverdue, Numbers: []int64{4, 5}, Steps: []string{"charge", ""}, Actor: "n1"}, `{"v":1,"kind":"overdue","numbers":[4,5],"steps":["charge",""],"actor":"n1"}`},
		{core.Control{Kind: core.EventCancel, ID: "o-1", Type: "order", Actor: "ann", Reason: "late"}, `{"v":1,"kind":"cancel","id":"o-1","type":"order","actor":"ann","reason":"late"}`},
		{core.Control{Kind: core.EventCancel, ID: "o-1", Type: "order", EvenIfUnknown: true}, `{"v":1,"kind":"cancel","id":"o-1","type":"order","even_if_unknown":true}`},
		{core.Control{Kind: core.EventUndo, ID: "o-1"}, `{"v":1,"kind":"undo","id":"o-1"}`},
		{core.Control{Kind: core.EventResubmit, ID: "o-1", Step: "charge", Until: at}, `{"v":1,"kind":"resubmit","id":"o-1","step":"charge","until":"2026-01-02T03:04:05.000678Z"}`},
		{core.Control{Kind: core.EventUndo, ID: "o-1", Found: core.ProbeDone, Asked: at}, `{"v":1,"kind":"undo","id":"o-1","found":"done","asked":"2026-01-02T03:04:05.000678Z"}`},
		{core.Control{Kind: core.EventResolve, ID: "o-1", As: core.StateUndone}, `{"v":1,"kind":"resolve","id":"o-1","as":"undone"}`},
		{core.Control{Kind: core.EventExtend, ID: "o-1", Until: at}, `{"v":1,"kind":"extend","id":"o-1","until":"2026-01-02T03:04:05.000678Z"}`},
		{core.Control{Kind: core.EventMigrate, ID: "o-1", Type: "order", Actor: "ann", Reason: "wrong agent", Version: 4, IfSeq: 7},
			`{"v":1,"kind":"migrate","id":"o-1","type":"order","actor":"ann","reason":"wrong agent","version":4,"if_seq":7}`},
		{core.Control{Kind: core.EventCancel, ID: "o-1", IfSeq: 7}, `{"v":1,"kind":"cancel","id":"o-1","if_seq":7}`},
		{core.Control{Kind: core.EventAccept, ID: "o-1", Type: "order", Actor: "ann", Reason: "paid by hand", Step: "charge", IfSeq: 7, Result: []byte(`{"id": 1}`)},
			`{"v":1,"kind":"accept","id":"o-1","type":"order","actor":"ann","reason":"paid by hand","step":"charge","if_seq":7,"result":{"id": 1}}`},
		{core.Control{Kind: core.EventEdit, ID: "o-1", Until: at, Input: []byte(`{"n":9007199254740993}`)},
			`{"v":1,"kind":"edit","id":"o-1","until":"2026-01-02T03:04:05.000678Z","input":{"n":9007199254740993}}`},
		{core.Control{Kind: core.EventSignal, ID: "o-1", Type: "order", Actor: "ann", Step: "approve", Result: []byte(`{"by":"ann"}`)},
			`{"v":1,"kind":"signal","id":"o-1","type":"order","actor":"ann","step":"approve","result":{"by":"ann"}}`},
		{core.Control{Kind: core.EventSignal, ID: "o-1", Step: "approve", Ask: "0.ab", Result: []byte("1")}, `{"v":1,"kind":"signal","id":"o-1","step":"approve","ask":"0.ab","result":1}`},
		{core.Control{Kind: core.EventSignal, ID: "o-1", Step: "approve", Reason: "too dear"}, `{"v":1,"kind":"signal","id":"o-1","reason":"too dear","step":"approve"}`},
		{core.Control{Kind: core.EventUndo, Numbers: []int64{4, 9}, Seqs: []int64{3, 12}, Type: "order", Actor: "ann", Reason: "all"},
			`{"v":1,"kind":"undo","numbers":[4,9],"seqs":[3,12],"type":"order","actor":"ann","reason":"all"}`},
		{core.Control{Kind: core.EventMigrate, Numbers: []int64{4, 9}, Actor: "operation/x", Version: 4}, `{"v":1,"kind":"migrate","numbers":[4,9],"actor":"operation/x","version":4}`},
		{core.Control{Kind: core.EventResolve, Numbers: []int64{4}, Seqs: []int64{3}, As: core.StateProcessed}, `{"v":1,"kind":"resolve","numbers":[4],"seqs":[3],"as":"processed"}`},
	} {
		got := AppendControl(nil, &x.c)
		if string(got) != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
		if back, err := DecodeControl(got); err != nil || !reflect.DeepEqual(back, x.c) {
			t.Errorf("%s: decoded %+v, %v", x.want, back, err)
		}
	}
	for _, bad := range []string{``, `{}`, `{"v":3,"kind":"undo","id":"o"}`, `{"v":1,"kind":"wake","id":"o"}`, `{"v":1,"kind":"overdue"}`, `{"v":1,"kind":"overdue","numbers":[1,2],"steps":["a"]}`, `{"v":1,"kind":"overdue","numbers":[1],"steps":["a b"]}`, `{"v":1,"kind":"undo","id":"o","steps":["a"]}`, `{"v":1,"kind":"migrate","id":"o"}`, `{"v":1,"kind":"undo","id":"o","version":3}`, `{"v":1,"kind":"undo"}`,
		`{"v":1,"kind":"undo","id":"a b"}`, `{"v":1,"kind":"resolve","id":"o","as":"error"}`, `{"v":1,"kind":"extend","id":"o"}`, `{"v":1,"kind":"cancel","id":"o","type":"."}`,
		`{"v":1,"kind":"resubmit","id":"o","until":"soon"}`, `{"v":1,"kind":"resubmit","id":"o","found":"in_progress"}`, `{"v":1,"kind":"cancel","id":"o","found":"done"}`,
		`{"v":1,"kind":"undo","id":"o","if_seq":-1}`, `{"v":1,"kind":"edit","id":"o"}`, `{"v":1,"kind":"accept","id":"o"}`, `{"v":1,"kind":"undo","id":"o","input":{}}`,
		`{"v":1,"kind":"edit","id":"o","input":{},"result":{}}`, `{"v":1,"kind":"edit","id":"o","input":"\u0000"}`, `{"v":1,"kind":"cancel","numbers":[1],"seqs":[1]}`,
		`{"v":1,"kind":"migrate","numbers":[1],"seqs":[1],"version":2}`, `{"v":1,"kind":"migrate","numbers":[1,1],"version":2}`, `{"v":1,"kind":"migrate","numbers":[1]}`,
		`{"v":1,"kind":"extend","numbers":[1],"seqs":[1],"until":"2026-01-02T03:04:05.000678Z"}`, `{"v":1,"kind":"undo","numbers":[1]}`, `{"v":1,"kind":"undo","seqs":[1]}`,
		`{"v":1,"kind":"undo","numbers":[1],"seqs":[1,2]}`, `{"v":1,"kind":"undo","numbers":[1],"seqs":[0]}`, `{"v":1,"kind":"undo","numbers":[0],"seqs":[1]}`,
		`{"v":1,"kind":"undo","numbers":[1,1],"seqs":[1,2]}`, `{"v":1,"kind":"undo","numbers":[1],"seqs":[1],"id":"o"}`, `{"v":1,"kind":"undo","numbers":[1],"seqs":[1],"if_seq":1}`,
		`{"v":1,"kind":"resolve","numbers":[1],"seqs":[1],"as":"error"}`, `{"v":1,"kind":"signal","id":"o","step":"a"}`, `{"v":1,"kind":"signal","id":"o","result":1}`,
		`{"v":1,"kind":"signal","id":"o","step":"a","ask":"yes","result":1}`, `{"v":1,"kind":"cancel","id":"o","ask":"0.ab"}`,
		`{"v":1,"kind":"signal","id":"o","step":"a","result":"\u0000"}`, `{"v":1,"kind":"signal","id":"o","step":"a","result":1,"input":1}`,
		`{"v":1,"kind":"signal","numbers":[1],"seqs":[1],"step":"a","result":1}`} {
		if _, err := DecodeControl([]byte(bad)); !isUndecodable(err) {
			t.Errorf("%s: error %v, want one that wraps ErrUndecodable", bad, err)
		}
	}
}

// TestAskSaysOneThing: a request in which a member stands twice, in another case, or as null or empty where it may be left out
// is refused: it could mean that an answer is for any ask, or is none.
//
// covers: W2, W15
func TestAskSaysOneThing(t *testing.T) {
	for text, want := range map[string]string{
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":{"by":"desk"},"reason":"by phone"}`: "",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":null}`:                              "",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","reason":"too dear"}`:                        "",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":null,"reason":"too dear"}`:          "result is null beside the reason",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":1,"result":2}`:                      `the name "result" twice`,
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":{"by":1,"by":2}}`:                   `the name "by" twice`,
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":1,"ask":null}`:                      "ask is null",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":1,"ask":""}`:                        "ask is empty",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","result":1,"Ask":"0.ab"}`:                    "Ask is written ask",
		`{"v":1,"kind":"signal","id":"o-1","step":"approve","Result":1}`:                                 "Result is written result",
	} {
		_, err := (Names{}).DecodeAsk(AskSubject("signal"), []byte(text))
		if want == "" && err != nil || want != "" && (!isUndecodable(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a client may ask is about one task, by its id: permissions are for types.
func TestAskNamesOneTask(t *testing.T) {
	many := `{"v":1,"kind":"undo","numbers":[1],"seqs":[1]}`
	if _, err := DecodeControl([]byte(many)); err != nil {
		t.Fatalf("as a stored message: %v", err)
	}
	if _, err := (Names{}).DecodeAsk(AskSubject("undo"), []byte(many)); !isUndecodable(err) {
		t.Errorf("as a request: %v", err)
	}
	one := `{"v":1,"kind":"accept","id":"o-1","result":true,"if_seq":3}`
	if c, err := (Names{}).DecodeAsk(AskSubject("accept"), []byte(one)); err != nil || c.IfSeq != 3 || string(c.Result) != "true" {
		t.Errorf("accept: %+v, %v", c, err)
	}
}

const goldenPlanJSON = `{"v":1,"name":"order","version":2,"complete_by_ms":60000,"grace_ms":2000,"steps":[` +
	`{"name":"credit","agent":"credit.check","after":[],"undoable":false,"complete_by_ms":1500},` +
	`{"name":"charge","agent":"payment.charge","after":["credit"],"undoable":true,"undo_complete_by_ms":3000,"attempts_max":5,"undo_attempts_max":7,"backoff_ms":200,"backoff_cap_ms":10000,"on_exhausted":"wait","pause_ms":300000,"result_max":1024}]}`

// covers: S2
func TestPlanGolden(t *testing.T) {
	p := core.Plan{Name: "order", Version: 2, CompleteBy: time.Minute, Grace: 2 * time.Second, Steps: []core.Step{
		{Name: "credit", Agent: "credit.check", CompleteBy: 1500 * time.Millisecond},
		{Name: "charge", Agent: "payment.charge", After: []int{0}, Undoable: true, UndoCompleteBy: 3 * time.Second, AttemptsMax: 5, UndoAttemptsMax: 7,
			Backoff: 200 * time.Millisecond, BackoffCap: 10 * time.Second, OnExhausted: core.PolicyWait, Pause: 5 * time.Minute, ResultMax: 1024},
	}}
	got, err := EncodePlan(&p)
	if err != nil || string(got) != goldenPlanJSON {
		t.Errorf("got  %s, %v\nwant %s", got, err, goldenPlanJSON)
	}
	back, err := DecodePlan([]byte(goldenPlanJSON))
	if err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("decoded %+v, %v", back, err)
	}
	full := back.WithDefaults()
	if err := full.Validate(8 << 20); err != nil {
		t.Error(err)
	}
	if err := planError(core.Plan{Name: "x", CompleteBy: time.Nanosecond}); err == nil || !strings.Contains(err.Error(), "whole milliseconds") {
		t.Errorf("a nanosecond: %v", err)
	}
	for want, text := range map[string]string{
		`has no "undo"`:     `{"name":"x","version":1,"steps":[{"name":"a","agent":"b","undoable":true,"undo":true}]}`,
		"attempts_max is 0": `{"name":"x","version":1,"steps":[{"name":"a","agent":"b","attempts_max":0}]}`,
		"backoff_ms is 0":   `{"name":"x","version":1,"steps":[{"name":"a","agent":"b","backoff_ms":0}]}`,
		"grace_ms is 0":     `{"name":"x","version":1,"grace_ms":0,"steps":[]}`,
		"input_max is 0":    `{"name":"x","version":1,"input_max":0,"steps":[]}`,
		"the step itself":   `{"name":"x","version":1,"steps":[{"name":"a","agent":"b","undoable":true,"after":["a"]}]}`,
		"form version":      `{"v":2,"name":"x"}`,
		"more than one":     `{"name":"x"} {}`,
		"ends too early":    `{"name":"x"`,
		"want text":         `{"name":1}`,
	} {
		if _, err := DecodePlan([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// A plan in JSON says what differs from the defaults, and no more: a step is undoable
// unless it says that it is not.
//
// covers: C15
func TestPlanInJSONNeedNotSayUndoable(t *testing.T) {
	p, err := DecodePlan([]byte(`{"name":"x","version":1,"steps":[{"name":"a","agent":"b"},{"name":"c","agent":"d","undoable":false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	full := p.WithDefaults()
	if err := full.Validate(0); err != nil {
		t.Fatal(err)
	}
	if !full.Steps[0].Undoable || full.Steps[1].Undoable || full.Steps[0].AttemptsMax != core.DefaultAttemptsMax {
		t.Errorf("%+v", full.Steps)
	}
}

func planError(p core.Plan) error {
	_, err := EncodePlan(&p)
	return err
}

func TestSubmitAnswerGolden(t *testing.T) {
	ok := SubmitAnswer{Stream: StreamTasks, Seq: 77, Task: "o-1", Partition: 3}
	no := RefusedError{APIError: APIError{Code: 429, ErrCode: 10077, Description: "full"}, Task: "o-1", Retry: time.Second}
	for _, x := range []struct{ got, want string }{
		{string(AppendAccepted(nil, &ok)), `{"stream":"DULY_TASKS","seq":77,"task":"o-1","partition":3}`},
		{string(AppendRefused(nil, &no)), `{"error":{"code":429,"err_code":10077,"description":"full"},"task":"o-1","retry_ms":1000}`},
	} {
		if x.got != x.want {
			t.Errorf("got  %s\nwant %s", x.got, x.want)
		}
	}
	if got, err := DecodeSubmitAnswer(AppendAccepted(nil, &ok)); err != nil || got != ok {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := DecodeSubmitAnswer(AppendRefused(nil, &no))
	if refused, is := err.(*RefusedError); !is || *refused != no || !refused.Retryable() {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"stream":"X"}`} {
		if _, err := DecodeSubmitAnswer([]byte(bad)); !isUndecodable(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	want := Header{HeaderCompleteBy: {"5s"}, HeaderTrace: {"00-a"}}
	if got := submitHeaders("5s", "", "00-a", "", ""); !reflect.DeepEqual(got, want) || submitHeaders("", "", "", "", "") != nil {
		t.Errorf("headers %v", got)
	}
}

func TestReplyGolden(t *testing.T) {
	const subject = "duly.reply.3.17.5"
	header := func(text, code string) Header {
		h := Header{}
		if text != "" {
			h[HeaderError] = []string{text}
		}
		if code != "" {
			h[HeaderErrorCode] = []string{code}
		}
		return h
	}
	for name, x := range map[string]struct {
		header Header
		data   string
		code   int
		result string
		text   string
	}{
		"success":        {data: `{"a":1}`, result: `{"a":1}`},
		"other header":   {header: Header{"X": {"y"}}, data: `1`, result: `1`},
		"empty":          {result: `null`},
		"not JSON":       {data: `hello`, code: 512, text: `bad_result: not JSON: "hello"`},
		"NUL":            {data: `"\u0000"`, code: 512, text: `bad_result: result holds a NUL (\u0000) at byte 2`},
		"no UTF-8":       {data: "\"\xff\"", code: 512, text: "bad_result: result is not UTF-8: byte 2"},
		"two lines":      {header: header("no\r\ncard\x00", "422"), code: 422, text: "no  card "},
		"too long":       {data: `"` + strings.Repeat("x", 20) + `"`, code: 512, text: "bad_result: 22 bytes, the limit is 16"},
		"final":          {header: header("no card", "422"), code: 422, text: "no card"},
		"code alone":     {header: header("", "503"), code: 503},
		"text alone":     {header: header("boom", ""), code: 500, text: "boom"},
		"another case":   {header: Header{"nats-service-error": {"no card"}, "NATS-SERVICE-ERROR-CODE": {"422"}}, code: 422, text: "no card"},
		"a name twice":   {data: `{"a":1,"a":2}`, code: 512, text: `bad_result: result has the name "a" twice in one object, the second time at byte 8`},
		"nonsense code":  {header: header("boom", "twelve"), code: 500, text: "boom"},
		"code of no use": {header: header("boom", "200"), code: 500, text: "boom"},
	} {
		got, err := DecodeReply(subject, x.header, []byte(x.data), 16)
		want := core.Reply{Partition: 3, Number: 17, Seq: 5, Code: x.code, Error: x.text}
		if x.result != "" {
			want.Result = []byte(x.result)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	for claim, want := range map[string]string{
		"web-1": "web-1", "é@web": "é@web", "a\nb\x00c\x7f": "abc", "\xff\u0085": "", strings.Repeat("ß", 40): strings.Repeat("ß", 32), strings.Repeat("x", 70): strings.Repeat("x", 64),
	} {
		got, err := DecodeReply(subject, Header{HeaderInstance: {claim}}, []byte("1"), 16)
		if err != nil || got.From != want || string(got.Result) != "1" {
			t.Errorf("%q: got %+v, %v, want %q", claim, got, err, want)
		}
	}
	h, data := EncodeReply(&core.Reply{Code: 422, Error: strings.Repeat("é", core.ErrorBytesMax) + "\xff"})
	if text := h.Get(HeaderError); len(text) > core.ErrorBytesMax || len(text) < core.ErrorBytesMax-1 || data != nil || h.Get(HeaderErrorCode) != "422" {
		t.Errorf("%d bytes of error, %q", len(text), data)
	}
	if h, data := EncodeReply(&core.Reply{Result: []byte("1")}); h != nil || string(data) != "1" {
		t.Errorf("success: %v %q", h, data)
	}
}

func TestAppendStringIsJSON(t *testing.T) {
	for r := rune(0); r < 0x300; r++ {
		s := "a" + string(r) + "b"
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil || back != s {
			t.Fatalf("%q: %q, %v", s, back, err)
		}
	}
}

// The quick reading of a time is that of package time, and leaves to it what it
// does not know.
func TestWireTime(t *testing.T) {
	for _, s := range []string{
		"2026-01-02T03:04:05.000678Z", "1999-12-31T23:59:59.999999Z", "2024-02-29T00:00:00.000000Z", "2023-02-29T00:00:00.000000Z", "2026-13-01T00:00:00.000000Z",
		"2026-00-01T00:00:00.000000Z", "2026-01-32T00:00:00.000000Z", "2026-01-01T24:00:00.000000Z", "2026-01-01T00:60:00.000000Z", "2026-01-01T00:00:60.000000Z",
		"0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000678+02:00", "2026-01-02 03:04:05.000678Z", "",
	} {
		want, err := taskform.Instant(s)
		got, ok := wireTime([]byte(`"` + s + `"`))
		if ok && (err != nil || got != want) {
			t.Errorf("%s: %d, package time says %d, %v", s, got, want, err)
		}
		if !ok && err == nil && len(s) == 27 && s[26] == 'Z' {
			t.Errorf("%s: not read", s)
		}
	}
}

// appendEvents appends a pack of endings, all of the type and state of the
// first: what the events of many endings at once carry.
func appendEvents(dst []byte, endings []core.Ending) []byte {
	dst = BeginEvents(dst, endings[0].Type, endings[0].State)
	for i := range endings {
		dst = AppendEvent(dst, i, &endings[i])
	}
	return EndEvents(dst)
}
