package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"duly.dev/duly/internal/core"
)

// TestWireLimits holds each decoder to its limit: that many are taken, one more
// is not, nor none where one is needed, nor an absurd number.
func TestWireLimits(t *testing.T) {
	const absurd = 1 << 20
	packed := func(n int) error {
		_, err := decodePack(AppendPack(nil, make([]core.Submission, n)))
		return err
	}
	batch := func(n int) error {
		c := core.Command{Task: "t", Type: "t", Step: "s"}
		data := []byte{BatchVersion}
		for range n {
			data = AppendBatchCommand(data, &c, nil)
		}
		return DecodeBatchCommands(data, func(core.Command, core.Token) {})
	}
	numbers := func(n int) error {
		_, err := DecodeControl(AppendControl(nil, &core.Control{Kind: core.EventOverdue, Numbers: make([]int64, n)}))
		return err
	}
	many := func(n int) error {
		c := core.Control{Kind: core.EventUndo}
		for i := range n {
			c.Numbers, c.Seqs = append(c.Numbers, int64(i+1)), append(c.Seqs, 1)
		}
		_, err := DecodeControl(AppendControl(nil, &c))
		return err
	}
	newInput := func(n int) error {
		_, err := DecodeControl(AppendControl(nil, &core.Control{Kind: core.EventEdit, ID: "o", Input: []byte(`"` + strings.Repeat("x", max(0, n-2)) + `"`)}))
		return err
	}
	results := func(n int) error {
		c := goldenCommand
		c.Results = make([]core.StepResult, n)
		for i := range c.Results {
			c.Results[i].Step = "s"
		}
		_, err := DecodeCommand(AppendCommand(nil, &c))
		return err
	}
	result := func(n int) error {
		r, err := DecodeReply("duly.reply.1.2.3", nil, []byte(`"`+strings.Repeat("x", max(0, n-2))+`"`), core.ResultBytesMax)
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("%s", r.Error)
		}
		return err
	}
	input := func(n int) error {
		d, err := TaskDecoder{}.Decode("duly.tasks.3.order.o-1", nil, []byte(`"`+strings.Repeat("x", max(0, n-2))+`"`), at)
		if err == nil && len(d.Refused) > 0 {
			err = fmt.Errorf("%s", d.Refused[0].Error)
		}
		return err
	}
	replyTo := func(n int) error { return CheckReplyTo(strings.Repeat("x", n), []string{"x"}) }
	for name, l := range map[string]struct {
		decode func(n int) error
		most   int
		none   bool // zero is taken too
	}{
		"pack items": {packed, PackItemsMax, false}, "batch items": {batch, batchItemsLimit, true}, "overdue numbers": {numbers, core.ControlNumbersMax, false},
		"undo numbers": {many, core.ControlNumbersMax, false}, "new input": {newInput, core.InputBytesMax, true},
		"results of a command": {results, core.StepsMax, true}, "bytes of a result": {result, core.ResultBytesMax, true},
		"bytes of an input": {input, core.InputBytesMax, true}, "bytes of a reply-to": {replyTo, replyToBytesMax, false},
	} {
		for n, taken := range map[int]bool{0: l.none, 2: true, l.most: true, l.most + 1: false, absurd: false} {
			err := l.decode(n)
			if (err == nil) != taken || err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: %d: %v", name, n, err)
			}
			if n > l.most && err != nil && !strings.Contains(err.Error(), fmt.Sprint(l.most)) {
				t.Errorf("%s: %d: %v does not name the limit %d", name, n, err, l.most)
			}
		}
	}
}

// TestTextLimits: texts are cut to their limit, at a character.
func TestTextLimits(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, core.ErrorBytesMax: core.ErrorBytesMax, core.ErrorBytesMax + 1: core.ErrorBytesMax, 10 << 20: core.ErrorBytesMax} {
		if got := CutText(strings.Repeat("x", n)); len(got) != want {
			t.Errorf("a text of %d bytes became %d, want %d", n, len(got), want)
		}
	}
	if got := CutText(strings.Repeat("é", core.ErrorBytesMax)); len(got) > core.ErrorBytesMax || !strings.HasSuffix(got, "é") {
		t.Errorf("cut to %d bytes, the last %q", len(got), got[len(got)-2:])
	}
}

// TestDecodersAllocateWhatTheyRead: a length that lies about what follows costs
// nothing.
func TestDecodersAllocateWhatTheyRead(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	for name, decode := range map[string]func() error{
		"pack": func() error { _, err := decodePack(append([]byte{Version}, huge...)); return err },
		"compressed pack": func() error {
			_, err := decodePack(append(binary.AppendUvarint([]byte{packCompressed}, compressMost), make([]byte, 20)...))
			return err
		},
		"commands": func() error { return DecodeBatchCommands(append([]byte{BatchVersion}, huge...), nil) },
		"replies":  func() error { return DecodeBatchReplies(append([]byte{BatchVersion}, huge...), "", 10, nil) },
	} {
		var err error
		bytesPer := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err = decode()
			}
		}).AllocedBytesPerOp()
		if err == nil || bytesPer > 16<<10 {
			t.Errorf("%s: %v, %d bytes allocated", name, err, bytesPer)
		}
	}
}

// TestNoControlCharacters: what a stranger says has none, also not those beyond ASCII, by which a terminal acts too.
//
// covers: E23
func TestNoControlCharacters(t *testing.T) {
	const said = "a\x1b[2J\u009b2J\u009d52;c;eA==\u009c\u0085\x7fb\tc"
	for what, text := range map[string]string{"error": CutText(said), "actor": core.CleanActor(said)} {
		if strings.ContainsFunc(text, unicode.IsControl) || !strings.Contains(text, "52;c;eA==") {
			t.Errorf("%s: %q", what, text)
		}
	}
	if core.PlainText("a\u009b2J") || core.PlainLines("a\u009b2J") || !core.PlainLines("a\n\tü") {
		t.Error("a reason may have control characters beyond ASCII")
	}
}
