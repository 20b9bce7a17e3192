package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly"
)

type letter struct {
	Text string
	Bad  bool
}

var (
	read    = duly.NewStep[letter, string]("read", "codec.read")
	answer  = duly.NewStep[letter, string]("answer", "codec.answer", duly.Attempts(1))
	letters = duly.NewPlan("letter", 1, read, answer)
)

// found are the files below a folder that hold a text.
func found(t *testing.T, dir, text string) (in []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // it was removed meanwhile
			}
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			in = append(in, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestCodecAtRest: with a codec, neither the database nor any stream has a word of what tasks carry, whatever becomes of
// them; the same search finds what was sent without one. A task that failed is edited and resubmitted, encrypted.
//
// covers: OP11
func TestCodecAtRest(t *testing.T) {
	w := start(t)
	codec, err := duly.NewAES256GCM(duly.Key{ID: "k1", Secret: bytes.Repeat([]byte{7}, duly.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := duly.NewClient(w.nc, duly.WithCodec(codec))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := duly.NewClient(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(w.nc, duly.Retries(0), duly.WithCodec(codec.AcceptPlain()), duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	undo := func(context.Context, duly.Undo[letter, string]) error { return nil }
	err = errors.Join(
		read.Serve(agent, func(_ context.Context, call duly.Call[letter]) (string, error) { return "read:" + call.Input.Text, nil }, undo),
		answer.Serve(agent, func(_ context.Context, call duly.Call[letter]) (string, error) {
			if call.Input.Bad {
				return "", duly.Refuse(errors.New("bad letter"))
			}
			return read.Result(call)
		}, undo),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	bounded, stop := context.WithTimeout(t.Context(), 2*patience)
	defer stop()
	if err := letters.Apply(bounded, c); err != nil {
		t.Fatal(err)
	}
	ends := func(with *duly.Client, id string, l letter, want duly.State) {
		t.Helper()
		receipt, err := letters.Submit(bounded, with, id, l, duly.Label("seen", "label-"+id))
		if err != nil {
			t.Fatal(err)
		}
		var last duly.Status
		for status, err := range with.Watch(bounded, "letter", id, duly.Of(receipt)) {
			if err != nil {
				t.Fatal(err)
			}
			last = status
		}
		if last.State != want {
			t.Fatalf("%s: %+v, want %s", id, last, want)
		}
	}
	ends(c, "good", letter{Text: "CANARY-ONE"}, duly.StateProcessed)
	ends(c, "bad", letter{Text: "CANARY-TWO", Bad: true}, duly.StateUndone)
	ends(plain, "open", letter{Text: "CANARY-OPEN"}, duly.StateProcessed)

	if task, err := c.Get(bounded, "letter", "good"); err != nil || string(task.Steps[1].Result) != `"read:CANARY-ONE"` {
		t.Errorf("%+v, %v", task.Steps, err)
	}
	edit := func(input []byte) (int, string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"reason": "better words", "input": json.RawMessage(input)})
		if err != nil {
			t.Fatal(err)
		}
		return w.http("POST", "/v1/tasks/letter/bad/edit", string(body), nil)
	}
	if code, said := edit([]byte(`{"Text":"CANARY-THREE"}`)); code != 422 || !strings.Contains(said, `k1`) {
		t.Errorf("a plain input in place of an encrypted one: %d %s", code, said)
	}
	sealed, err := codec.Encode(duly.Place{Type: "letter", Task: "bad"}, []byte(`{"Text":"CANARY-FOUR"}`))
	if err != nil {
		t.Fatal(err)
	}
	if code, said := edit(sealed); code/100 != 2 {
		t.Fatalf("edit: %d %s", code, said)
	}
	w.until("the edited task is done", func() bool {
		task, err := c.Get(bounded, "letter", "bad")
		return err == nil && task.State == duly.StateProcessed && string(task.Steps[1].Result) == `"read:CANARY-FOUR"`
	})
	// What stands in the database's log and the streams' files counts as well: nothing is stopped before the search.
	for _, secret := range []string{"CANARY-ONE", "CANARY-TWO", "CANARY-THREE", "CANARY-FOUR"} {
		if in := found(t, w.dir, secret); len(in) > 0 {
			t.Errorf("%s is to be read in %v", secret, in)
		}
	}
	for _, open := range []string{"CANARY-OPEN", "label-good", "bad letter"} {
		if len(found(t, w.dir, open)) == 0 {
			t.Errorf("the search does not find %s, which is there", open)
		}
	}
	if in := strings.Join(found(t, w.dir, "CANARY-OPEN"), " "); !strings.Contains(in, "jetstream") || !strings.Contains(in, ".db") {
		t.Errorf("the search does not see both the streams and the database: %s", in)
	}
}
