package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"duly.dev/duly/internal/core"
)

// batchOf is a batch of commands as the wire has it.
func batchOf(cmds ...core.Command) []byte {
	b := []byte{BatchVersion}
	for i := range cmds {
		b = AppendBatchCommand(b, &cmds[i], nil)
	}
	return b
}

func decodeBatch(data []byte) ([]core.Command, error) {
	var all []core.Command
	err := DecodeBatchCommands(data, func(c core.Command, _ core.Token) { all = append(all, c) })
	return all, err
}

// A command reads the same whether it came alone or among others.
func TestBatchCommandIsTheCommand(t *testing.T) {
	undo := goldenCommand
	undo.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	do := undo
	do.Undo, do.Result, do.Input, do.Results = false, nil, nil, nil
	huge := do
	huge.Input = bytes.Repeat([]byte("1"), 3<<20) // its length needs a fourth byte
	for name, cmd := range map[string]core.Command{"undo": undo, "do": do, "huge": huge} {
		alone, err := DecodeCommand(AppendCommand(nil, &cmd))
		if err != nil {
			t.Fatal(err)
		}
		alone.Partition, alone.Number, alone.Seq, alone.Trace = cmd.Partition, cmd.Number, cmd.Seq, cmd.Trace // of subject and header
		got, err := decodeBatch(batchOf(cmd, cmd))
		if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], alone) || !reflect.DeepEqual(got[1], alone) {
			t.Errorf("%s: %v\ngot  %.300s\nwant %.300s", name, err, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", alone))
		}
	}
}

// What cannot be decoded is refused, and takes nothing else with it.
func TestBatchRefused(t *testing.T) {
	good := batchOf(goldenCommand)
	bad := goldenCommand
	bad.Task = "not a name"
	for name, c := range map[string]struct {
		data []byte
		left int // commands that are taken all the same
	}{
		"empty":       {nil, 0},
		"version":     {append([]byte{3}, good[1:]...), 0},
		"cut":         {good[:len(good)-1], 0},
		"cut later":   {append(batchOf(goldenCommand), 0xff, 0xff, 0xff, 0x7f), 1},
		"one bad one": {batchOf(goldenCommand, bad, goldenCommand), 2},
		"too many":    {batchOf(make([]core.Command, 4097)...), 0},
		"many results": {func() []byte {
			c := goldenCommand
			c.Results = make([]core.StepResult, core.StepsMax+1)
			return batchOf(c)
		}(), 0},
	} {
		got, err := decodeBatch(c.data)
		if !isUndecodable(err) || len(got) != c.left {
			t.Errorf("%s: %d commands, error %v", name, len(got), err)
		}
	}
}

func TestBatchReplies(t *testing.T) {
	cmd := goldenCommand
	replies := []core.Reply{{Result: []byte(`{"ok":1}`)}, {}, {Code: 422, Error: "no"}, {Code: 7, Error: "odd"}, {Result: []byte("{")}, {Result: make([]byte, 100)}}
	want := []core.Reply{{Result: []byte(`{"ok":1}`)}, {Result: []byte("null")}, {Code: 422, Error: "no"}, {Code: core.CodeAgentError, Error: "odd"},
		{Code: 512, Error: `bad_result: not JSON: "{"`}, {Code: 512, Error: "bad_result: 100 bytes, the limit is 99"}}
	b := []byte{BatchVersion}
	for i := range replies {
		b = AppendBatchReply(b, &cmd, core.TokenOf(7), &replies[i])
		want[i].Partition, want[i].Number, want[i].Seq, want[i].Token, want[i].From = 3, 17, 5, core.TokenOf(7), "web-1"
	}
	var got []core.Reply
	if err := DecodeBatchReplies(b, "web-1", 99, func(r core.Reply) { got = append(got, r) }); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func FuzzBatchCommands(f *testing.F) {
	f.Add(batchOf(goldenCommand, goldenCommand))
	f.Add(batchOf(core.Command{}))
	f.Add([]byte{BatchVersion, 0x80, 0x80, 0x80, 0x80, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		cmds, err := decodeBatch(data)
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
		for _, c := range cmds {
			c.Undo = len(c.Result) > 0 // in the subject
			again, err := decodeBatch(batchOf(c))
			if c.Undo = false; err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], c) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
	})
}

func FuzzBatchReplies(f *testing.F) {
	cmd := goldenCommand
	f.Add(AppendBatchReply(AppendBatchReply([]byte{BatchVersion}, &cmd, core.Token{}, &core.Reply{Result: []byte("1")}), &cmd, core.TokenOf(1), &core.Reply{Code: 500, Error: "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := DecodeBatchReplies(data, "", core.ResultBytesMax, func(r core.Reply) {
			if r.Partition < 0 || r.Number < 0 || r.Seq < 0 || (r.Code == 0) == (r.Result == nil) || r.Code != 0 && (r.Code < 400 || r.Code > 599) {
				t.Fatalf("let through: %+v", r)
			}
		})
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
	})
}
