package duly_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/seal"
	"duly.dev/duly/internal/wire"
)

// keyOf is a key that is the same whenever it is asked for.
func keyOf(id string, fill byte) duly.Key {
	return duly.Key{ID: id, Secret: bytes.Repeat([]byte{fill}, duly.KeyBytes)}
}

func codecOf(t *testing.T, keys ...duly.Key) *duly.AES256GCM {
	t.Helper()
	c, err := duly.NewAES256GCM(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCodecOpensAtItsPlace: a payload comes back at the place that it was made for, by the key that it was made with, and
// nowhere else; not a bit of it can be changed.
func TestCodecOpensAtItsPlace(t *testing.T) {
	k1, k2 := keyOf("2026-10", 1), keyOf("2026-11", 2)
	c := codecOf(t, k1)
	at, payload := duly.Place{Type: "order", Task: "o-1", Step: "charge"}, []byte(`{"card":"4111 1111"}`)
	stored, err := c.Encode(at, payload)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(stored) || bytes.Contains(stored, []byte("4111")) {
		t.Errorf("stored %s", stored)
	}
	if again, err := c.Encode(at, payload); err != nil || !bytes.Equal(again, stored) {
		t.Errorf("the same once more is %s, %v: a submission that is made again would be refused", again, err)
	}
	if is, err := c.Decode(at, stored); err != nil || !bytes.Equal(is, payload) {
		t.Errorf("back: %s, %v", is, err)
	}
	if _, err := c.Encode(at, stored); err == nil {
		t.Error("what is encrypted is encrypted once more")
	}
	for _, other := range []duly.Place{{"order", "o-1", ""}, {"order", "o-1", "ship"}, {"order", "o-2", "charge"}, {"gift", "o-1", "charge"}, {"order", "o-1charge", ""}} {
		if _, err := c.Decode(other, stored); !errors.Is(err, duly.ErrNotAuthentic) {
			t.Errorf("at %s it opens: %v", other, err)
		}
		if there, err := c.Encode(other, payload); err != nil || bytes.Equal(there, stored) {
			t.Errorf("at %s it looks the same, %v", other, err)
		}
	}
	if _, err := codecOf(t, k2).Decode(at, stored); !errors.Is(err, duly.ErrKeyUnknown) || !strings.Contains(err.Error(), "2026-10") {
		t.Errorf("without the key: %v", err)
	}
	if _, err := codecOf(t, keyOf("2026-10", 9)).Decode(at, stored); !errors.Is(err, duly.ErrNotAuthentic) {
		t.Errorf("with another key of the same id: %v", err)
	}
	e, _ := seal.Of(stored)
	for i := range e.Data {
		changed := e
		changed.Data = bytes.Clone(e.Data)
		changed.Data[i] ^= 1
		text, err := changed.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Decode(at, text); !errors.Is(err, duly.ErrNotAuthentic) {
			t.Fatalf("byte %d of %d changed: %v", i, len(e.Data), err)
		}
	}
	e.Data = e.Data[:4]
	if text, err := e.Append(nil); err != nil {
		t.Error(err)
	} else if _, err := c.Decode(at, text); !errors.Is(err, duly.ErrNotAuthentic) {
		t.Errorf("cut: %v", err)
	}
	e.Form = "A512XYZ"
	if text, err := e.Append(nil); err != nil {
		t.Error(err)
	} else if _, err := c.Decode(at, text); !errors.Is(err, duly.ErrKeyUnknown) {
		t.Errorf("another form: %v", err)
	}
	if _, err := c.Decode(at, payload); !errors.Is(err, duly.ErrNotEncrypted) {
		t.Errorf("plain: %v", err)
	}
	if is, err := c.AcceptPlain().Decode(at, payload); err != nil || !bytes.Equal(is, payload) {
		t.Errorf("plain, where that is accepted: %s, %v", is, err)
	}
	both := codecOf(t, k2, k1)
	if is, err := both.Decode(at, stored); err != nil || !bytes.Equal(is, payload) {
		t.Errorf("by the second key: %s, %v", is, err)
	}
	if newer, err := both.Encode(at, payload); err != nil || !bytes.Contains(newer, []byte(`"2026-11"`)) {
		t.Errorf("the first key writes: %s, %v", newer, err)
	}
}

// TestKeys: keys come from a file; one that cannot be is refused, and its secret is in no error.
func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const k1, k2 = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
	write("# the new one first\nnew " + k1 + "\n\nold  " + k2 + "\n")
	keys, err := duly.LoadKeys(file)
	if err != nil || len(keys) != 2 || keys[0].ID != "new" || keys[1].ID != "old" || keys[1].Secret[0] != 2 {
		t.Errorf("%v, %v", keys, err)
	}
	for text, says := range map[string]string{"": "has none", "k " + k1 + "\nx AAAA\n": "line 2", "k\n": "line 1", "a b " + k1: "line 1", "a/b " + k1: "line 1"} {
		write(text)
		if _, err := duly.LoadKeys(file); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "AQEB") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := duly.LoadKeys(file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for says, bad := range map[string][]duly.Key{"0 keys": nil, "twice": {keyOf("a", 1), keyOf("a", 2)}, "key id": {keyOf("a b", 1)}, "31 bytes": {{ID: "a", Secret: make([]byte, 31)}}} {
		if _, err := duly.NewAES256GCM(bad...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestCodecFromEndToEnd: what a client with a codec submits and what agents with it answer is nowhere to be read between
// them; the handlers, and who reads the task with the key, see it as it was.
func TestCodecFromEndToEnd(t *testing.T) {
	old, now := keyOf("old", 1), keyOf("now", 2)
	r := newRigIn(t, wire.DefaultNamespace, duly.WithCodec(codecOf(t, old)))
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	r.work(t, s, duly.WithCodec(codecOf(t, now, old)), duly.WithLedger(duly.NewMemoryLedger(0, 0)))
	receipt, err := Buy.Submit(t.Context(), r.Client, "sealed", Order{Cents: 4242})
	if err != nil {
		t.Fatal(err)
	}
	if last := r.last(t, "sealed", duly.Of(receipt)); last.State != duly.StateProcessed || s.paid.Load() != 1 {
		t.Fatalf("ended %+v", last)
	}
	if e, is := seal.Of(r.request(0).Input); !is || e.Key != "old" || bytes.Contains(r.request(0).Input, []byte("4242")) {
		t.Errorf("on the wire %s", r.request(0).Input)
	}
	// An undo opens what do answered.
	if _, err := Buy.Submit(t.Context(), r.Client, "odd", Order{Cents: 13}); err != nil {
		t.Fatal(err)
	}
	if last := r.last(t, "odd"); last.State != duly.StateUndone || s.paid.Load() != 1 {
		t.Errorf("ended %+v with %d payments", last, s.paid.Load())
	}
	task, err := r.Get(t.Context(), "order", "sealed")
	if err != nil || string(task.Input) != `{"Cents":4242}` {
		t.Errorf("read back %s, %v", task.Input, err)
	}
	// With another key for writing it is the same task still, and its watch knows it.
	newer, err := duly.NewClient(r.nc, duly.WithCodec(codecOf(t, now, old)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Buy.Submit(t.Context(), newer, "sealed", Order{Cents: 4242})
	if err != nil {
		t.Fatalf("the same task after a change of keys: %v", err)
	}
	for status, err := range newer.Watch(t.Context(), "order", "sealed", duly.Of(again)) {
		if err != nil || status.State != duly.StateProcessed {
			t.Errorf("%+v, %v", status, err)
		}
	}
	if _, err := Buy.Submit(t.Context(), newer, "sealed", Order{Cents: 4243}); !errors.Is(err, duly.ErrTaken) {
		t.Errorf("another input under the id: %v", err)
	}
	// Two submissions under way at once, by two keys: the one that was first is the task of both, and no one else's.
	late, err := Buy.Submit(t.Context(), newer, "late", Order{Cents: 7})
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
	for cents, taken := range map[int]bool{7: false, 8: true} {
		input, err := codecOf(t, old).Encode(duly.Place{Type: "order", Task: "late"}, fmt.Appendf(nil, `{"Cents":%d}`, cents))
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		view := r.views["late"]
		view.Input, view.InputHash = input, core.HashInput("order", input)
		r.views["late"] = view
		r.mu.Unlock()
		for status, err := range newer.Watch(t.Context(), "order", "late", duly.Of(late)) {
			if errors.Is(err, duly.ErrTaken) != taken || !taken && (err != nil || status.State != duly.StateProcessed) {
				t.Errorf("%d cents: %+v, %v", cents, status, err)
			}
		}
	}
	// Without the key, what is stored is shown as it is, with what is wrong.
	blind, err := duly.NewClient(r.nc, duly.WithCodec(codecOf(t, now)))
	if err != nil {
		t.Fatal(err)
	}
	if task, err := blind.Get(t.Context(), "order", "sealed"); !errors.Is(err, duly.ErrKeyUnknown) || !strings.Contains(err.Error(), "old") || task.State != duly.StateProcessed {
		t.Errorf("without the key: %+v, %v", task, err)
	}
}

// TestCodecLimits: the limit is of what is stored, and says so.
func TestCodecLimits(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithCodec(codecOf(t, keyOf("k", 1))))
	big := []byte(`"` + strings.Repeat("x", core.InputBytesMax-2) + `"`)
	_, err := r.SubmitRaw(t.Context(), "order", "big", big)
	var refused *duly.SubmitError
	if !errors.As(err, &refused) || refused.Code != 413 || !strings.Contains(err.Error(), fmt.Sprintf("(%d before)", core.InputBytesMax)) {
		t.Error(err)
	}
	if _, err := r.SubmitRaw(t.Context(), "order", "twice", []byte(`{"duly.enc":"x","key":"k","data":"ZGF0YQ=="}`)); !errors.As(err, &refused) || refused.Code != 400 {
		t.Error(err)
	}
}

// charging is an agent of the step charge, and what its handlers have seen.
func charging(t *testing.T, options ...duly.AgentOption) (agent *duly.Agent, got *[]string) {
	t.Helper()
	agent, err := duly.NewAgent(nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	got = new([]string)
	do := func(_ context.Context, call duly.Call[Order]) (Payment, error) {
		score, err := Credit.Result(call)
		if err != nil {
			return Payment{}, err
		}
		*got = append(*got, fmt.Sprint(call.Input.Cents, score.Points))
		return Payment{ID: "p-1"}, nil
	}
	undo := func(_ context.Context, undo duly.Undo[Order, Payment]) error {
		*got = append(*got, "undo "+undo.Result.ID)
		return nil
	}
	if err := Charge.Serve(agent, do, undo); err != nil {
		t.Fatal(err)
	}
	return agent, got
}

// TestAgentWithACodec: what does not open ends a do for good, unless another instance may have its key: for that it waits,
// and no attempt is spent; an undo is tried again.
func TestAgentWithACodec(t *testing.T) {
	k := keyOf("k", 1)
	c := codecOf(t, k)
	agent, got := charging(t, duly.WithCodec(c), duly.Retries(0))
	sealed := func(c duly.Codec, step, text string) []byte {
		t.Helper()
		data, err := c.Encode(duly.Place{Type: "order", Task: "o-1", Step: step}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	input, score := sealed(c, "", `{"Cents":5}`), sealed(c, "credit", `{"Points":7}`)
	stranger := codecOf(t, keyOf("other", 3))
	for _, test := range []struct {
		name           string
		input, earlier []byte
		undo           []byte
		code           int
	}{
		{"all is well", input, score, nil, 0},
		{"an undo", input, score, sealed(c, "charge", `{"ID":"p-1"}`), 0},
		{"an unknown key", sealed(stranger, "", `{"Cents":5}`), score, nil, core.CodeUnable},
		{"an unknown key of an earlier step", input, sealed(stranger, "credit", `{"Points":7}`), nil, core.CodeUnable},
		{"an undo by an unknown key", input, score, sealed(stranger, "charge", `{"ID":"p-1"}`), core.CodeUnable},
		{"a plain input", []byte(`{"Cents":5}`), score, nil, 400},
		{"a result as the input", score, score, nil, 400},
		{"a plain result of an earlier step", input, []byte(`{"Points":7}`), nil, core.CodeAgentError},
		{"an undo whose result is another step's", input, score, score, core.CodeAgentError},
	} {
		now := core.InstantOf(time.Now())
		reply, answered := agent.Runtime().Handle(t.Context(), now, &core.Command{Undo: test.undo != nil, Agent: "payment.charge", Step: "charge", Task: "o-1", Type: "order", Attempt: 1,
			CompleteBy: now.Add(time.Minute), Left: time.Minute, Input: test.input, Results: []core.StepResult{{Step: "credit", Result: test.earlier}}, Result: test.undo})
		if !answered || reply.Code != test.code {
			t.Errorf("%s: %+v", test.name, reply)
		}
		if _, is := seal.Of(reply.Result); test.code == 0 && test.undo == nil && !is {
			t.Errorf("%s: answered %s", test.name, reply.Result)
		}
	}
	if want := "[5 7 undo p-1]"; fmt.Sprint(*got) != want {
		t.Errorf("the handlers saw %v, want %s", *got, want)
	}
	keeping, _ := charging(t, duly.WithCodec(c), duly.WithLedger(duly.NewMemoryLedger(0, 0)))
	dulytest.RunTwice(t, keeping, Charge, Order{Cents: 1}, dulytest.Earlier(Credit, Score{1}))
}

// TestAgentWithoutACodec: an agent that opens nothing does nothing with what is encrypted, or made to look so by who would have
// an input pass its schema: no handler sees an order of nothing.
func TestAgentWithoutACodec(t *testing.T) {
	agent, got := charging(t, duly.Retries(0))
	const plain, sealed = `{"Cents":5}`, `{"duly.enc":"A256GCM-1","key":"k","data":"AAAA"}`
	for _, test := range []struct {
		name, input, earlier, undo string
		code                       int
	}{
		{"all is well", plain, `{"Points":7}`, "", 0},
		{"the input", sealed, `{"Points":7}`, "", core.CodeUnable},
		{"the result of an earlier step", plain, sealed, "", core.CodeUnable},
		{"the result that is undone", plain, `{"Points":7}`, sealed, core.CodeUnable},
	} {
		now := core.InstantOf(time.Now())
		reply, answered := agent.Runtime().Handle(t.Context(), now, &core.Command{Undo: test.undo != "", Agent: "payment.charge", Step: "charge", Task: "o-1", Type: "order", Attempt: 1,
			CompleteBy: now.Add(time.Minute), Left: time.Minute, Input: []byte(test.input), Results: []core.StepResult{{Step: "credit", Result: []byte(test.earlier)}}, Result: []byte(test.undo)})
		if !answered || reply.Code != test.code {
			t.Errorf("%s: %+v", test.name, reply)
		}
	}
	if want := "[5 7]"; fmt.Sprint(*got) != want {
		t.Errorf("the handlers saw %v, want %s", *got, want)
	}
}

// TestCodecForm: what is stored is what docs/reference/protocol.md says, byte by byte: another language, and a later
// version, has to read it.
func TestCodecForm(t *testing.T) {
	k := keyOf("k-1", 9)
	payload := []byte(`{"cents":1999}`)
	info := "A256GCM-1 3:k-1 5:order 3:o-1 6:charge"
	derived, err := hkdf.Key(sha256.New, k.Secret, nil, info, 64)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, derived[32:])
	_, _ = mac.Write(payload)
	nonce := mac.Sum(nil)[:12]
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	data := append(bytes.Clone(nonce), aead.Seal(nil, nonce, payload, []byte(info))...)
	want := `{"duly.enc":"A256GCM-1","key":"k-1","data":"` + base64.StdEncoding.EncodeToString(data) + `"}`
	if got, err := codecOf(t, k).Encode(duly.Place{Type: "order", Task: "o-1", Step: "charge"}, payload); err != nil || string(got) != want {
		t.Errorf("stored %s, %v, want %s", got, err, want)
	}
}

// A plan whose expressions read payloads is refused where these are encrypted: its tasks would end in error, when all is done at
// the latest.
func TestCodecRefusesExpressions(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithCodec(codecOf(t, keyOf("k", 1))))
	for what, plan := range map[string]*duly.Plan[Order]{
		"its result":                duly.NewPlan("family", 1, Charge).With(duly.Result("results.charge.id")),
		"step late: its expression": duly.NewPlan("family", 1, duly.NewStep[Order, Payment]("late", "payment.charge", duly.When("input.cents > 1"))),
	} {
		if err := plan.Apply(t.Context(), r.Client); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), "plan family: "+what) || !strings.Contains(err.Error(), "encrypts") {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if err := duly.NewPlan("constant", 1, Charge).With(duly.Result("'done'")).Apply(t.Context(), r.Client); err != nil {
		t.Error(err)
	}
}

// A plan with children is refused where its payloads are bound to their place, for a child could not open its input.
func TestCodecRefusesChildren(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithCodec(codecOf(t, keyOf("k", 1))))
	child := duly.NewChild("sub", Buy)
	each := duly.NewEach[Order]("all", Buy, duly.Elements("[input]", 1))
	for step, plan := range map[string]*duly.Plan[Order]{"sub": duly.NewPlan("family", 1, child), "all": duly.NewPlan[Order]("family", 1, each)} {
		want := "plan family: step " + step + ": it has children of type order, which cannot open their input"
		if err := plan.Apply(t.Context(), r.Client); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	codec := codecOf(t, keyOf("k", 1))
	input, err := codec.Encode(duly.Place{Type: "family", Task: "t"}, []byte(`{"Cents":1}`))
	if err != nil {
		t.Fatal(err)
	}
	// What an agent would meet.
	if _, err := codec.Decode(duly.Place{Type: "order", Task: "t~sub"}, input); !errors.Is(err, duly.ErrNotAuthentic) {
		t.Errorf("a child opens the input of its parent: %v", err)
	}
}
