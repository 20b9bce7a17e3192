package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/seal"
)

// keyFile writes keys that are the same wherever they are asked for.
func keyFile(t *testing.T, ids ...string) (file string, codec duly.Codec) {
	t.Helper()
	var text strings.Builder
	var keys []duly.Key
	for _, id := range ids {
		secret := bytes.Repeat([]byte(id[:1]), duly.KeyBytes)
		keys = append(keys, duly.Key{ID: id, Secret: secret})
		fmt.Fprintf(&text, "%s %s\n", id, base64.StdEncoding.EncodeToString(secret))
	}
	file = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	codec, err := duly.NewAES256GCM(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return file, codec
}

func sealedAt(t *testing.T, codec duly.Codec, step, text string) []byte {
	t.Helper()
	data, err := codec.Encode(duly.Place{Type: "order", Task: "o-1", Step: step}, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEncryptedTask: who has the keys reads, edits and settles an encrypted task as any other; without them nothing is
// asked, and what is shown says with which key it is encrypted.
//
// covers: OP11, OP23
func TestEncryptedTask(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	file, codec := keyFile(t, "a-new", "b-old")
	_, old := keyFile(t, "b-old")
	_, strange := keyFile(t, "z")
	e.view.Input = sealedAt(t, old, "", `{"cents":18446744073709551615,"item":"lamp"}`)
	e.view.Steps = []core.StepView{{Name: "reserve", Agent: "stock", Status: "done", Result: sealedAt(t, old, "reserve", `{"shelf":4}`)},
		{Name: "charge", Agent: "bank", Status: "failed", Result: sealedAt(t, strange, "charge", `1`)}}
	e.run(exitDone, "get order o-1", "encrypted with key b-old", "encrypted with key z")
	text := e.run(exitDone, "get order o-1 --payload-keys "+file, `{"shelf":4}`, `result of step charge of task o-1: key "z": encrypted with a key that is not known here`)
	if strings.Contains(text, "b-old") {
		t.Errorf("what can be opened is not: %s", text)
	}
	t.Setenv("DULY_PAYLOAD_KEYS", file)
	e.run(exitDone, "why o-1 -o json", `"input":{"cents":18446744073709551615,"item":"lamp"}`, `"result":{"shelf":4}`, `"seq":9`)
	t.Setenv("DULY_PAYLOAD_KEYS", "")

	// A result that was moved to another step does not open there, and the right one still does.
	e.view.Steps[1].Result = e.view.Steps[0].Result
	e.run(exitDone, "get order o-1 -o json --payload-keys "+file, `"result":{"shelf":4}`, "result of step charge of task o-1: key b-old: it does not open")

	e.run(exitUse, "task edit order o-1 --reason why --input {}", "input: it is encrypted with key b-old: give --payload-keys FILE")
	e.run(exitUse, "task edit order o-1 --reason why --input {} --payload-keys "+file+"x", "payload-keys: ")
	others, _ := keyFile(t, "z")
	e.run(exitUse, "task edit order o-1 --reason why --input {} --payload-keys "+others, "input: it is encrypted with key b-old, and does not open with the keys of "+others)
	if len(e.done) > 0 {
		t.Fatalf("asked %v", e.done)
	}
	e.run(exitDone, `task edit order o-1 --reason why --input {"cents":2,"item":"lamp"} --payload-keys `+file, `-  "cents": 18446744073709551615,`, `+  "cents": 2,`)
	e.run(exitDone, "task accept order o-1 --reason why --result 5 --payload-keys "+file)
	big := filepath.Join(t.TempDir(), "big.json")
	if err := os.WriteFile(big, []byte(`"`+strings.Repeat("5", core.ResultBytesMax-2)+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	e.run(exitUse, "task accept order o-1 --reason why --result @"+big+" --payload-keys "+file, fmt.Sprintf("(%d before), the limit is %d", core.ResultBytesMax, core.ResultBytesMax))
	for i, want := range []struct{ step, payload string }{{"", `{"cents":2,"item":"lamp"}`}, {"charge", "5"}} {
		asked, payload := e.done[i], e.done[i].Input
		if want.step != "" {
			payload = asked.Result
		}
		sent, encrypted := seal.Of(payload)
		plain, err := codec.Decode(duly.Place{Type: "order", Task: "o-1", Step: want.step}, payload)
		if !encrypted || err != nil || sent.Key != "a-new" || string(plain) != want.payload || asked.IfSeq != 9 || asked.Step != want.step {
			t.Errorf("asked %+v: %s, %v", asked, plain, err)
		}
	}

	e.view.Steps = append(e.view.Steps, core.StepView{Name: "approve", Kind: core.SignalStep, Status: "running", Ask: "0.12ab"})
	e.run(exitUse, "signal order/o-1 approve true", "input: it is encrypted with key b-old: give --payload-keys FILE")
	e.run(exitDone, "signal order/o-1 approve true --payload-keys "+file, `Step approve asks, in round 0 of the task, about this input: {"cents":18446744073709551615,"item":"lamp"}`)
	answer := e.done[len(e.done)-1]
	if plain, err := codec.Decode(duly.Place{Type: "order", Task: "o-1", Step: "approve"}, answer.Result); err != nil || string(plain) != "true" || answer.Ask != "0.12ab" {
		t.Errorf("answered %+v: %s, %v", answer, plain, err)
	}
}

// TestEncryptedSubmission: what is submitted leaves encrypted; the same task under a key of before is the same.
func TestEncryptedSubmission(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	file, _ := keyFile(t, "a-new", "b-old")
	_, old := keyFile(t, "b-old")
	e.view.Input = sealedAt(t, old, "", `{"cents":1}`)
	e.view.InputHash = core.HashInput("order", e.view.Input)
	e.run(exitDone, `submit order o-2 {"cents":77} --payload-keys `+file, "o-2 is stored at")
	if got, encrypted := seal.Of(e.submitted); !encrypted || got.Key != "a-new" {
		t.Errorf("sent %s", e.submitted)
	}
	e.run(exitDone, `submit order o-1 {"cents":1} --payload-keys `+file, "o-1 is a task already: error")
	e.run(exitState, `submit order o-1 {"cents":2} --payload-keys `+file, "409")
	e.run(exitUse, `submit order o-2 {"cents": --payload-keys `+file, "not JSON")
}
