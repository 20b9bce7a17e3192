package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"duly.dev/duly/internal/core"
)

// NumbersMax bounds the tasks one overdue message asks about.
const NumbersMax = 1000

// controlKinds are the words of control messages.
var controlKinds = [...]struct {
	word string
	kind core.EventKind
}{
	{"overdue", core.EventOverdue},
	{"cancel", core.EventCancel},
	{"undo", core.EventUndo},
	{"resubmit", core.EventResubmit},
	{"resolve", core.EventResolve},
	{"extend", core.EventExtend},
}

// ControlWord is the word of a kind of control message, or empty.
func ControlWord(kind core.EventKind) string {
	for _, k := range controlKinds {
		if k.kind == kind {
			return k.word
		}
	}
	return ""
}

func controlKind(word string) core.EventKind {
	for _, k := range controlKinds {
		if k.word == word {
			return k.kind
		}
	}
	return 0
}

// AppendControl appends the JSON of a control message.
func AppendControl(dst []byte, c *core.Control) []byte {
	dst = append(dst, `{"v":1,"kind":`...)
	dst = appendString(dst, ControlWord(c.Kind))
	if len(c.Numbers) > 0 {
		dst = append(dst, `,"numbers":[`...)
		for i, n := range c.Numbers {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, n, 10)
		}
		dst = append(dst, ']')
	}
	for _, m := range [...]struct{ name, value string }{{"id", c.ID}, {"type", c.Type}, {"actor", c.Actor}, {"reason", c.Reason}, {"step", c.Step}, {"as", string(c.As)}} {
		if m.value != "" {
			dst = appendMember(dst, m.name, m.value)
		}
	}
	if c.Until != 0 {
		dst = appendTime(dst, "until", c.Until)
	}
	if c.EvenIfUnknown {
		dst = append(dst, `,"even_if_unknown":true`...)
	}
	return append(dst, '}')
}

// DecodeControl reads a control message. Errors wrap ErrUndecodable: not JSON,
// another version, an unknown kind, names outside their alphabet, an overdue
// without numbers, a resolve that is neither processed nor undone.
func DecodeControl(data []byte) (core.Control, error) { return decodeControl(data, false) }

// decodeControl reads a control message. strict refuses unknown fields, as in a request;
// a stored message may be of a newer node and have them.
func decodeControl(data []byte, strict bool) (core.Control, error) {
	var j struct {
		V       int     `json:"v"`
		Kind    string  `json:"kind"`
		Numbers []int64 `json:"numbers"`
		ID      string  `json:"id"`
		Type    string  `json:"type"`
		Actor   string  `json:"actor"`
		Reason  string  `json:"reason"`
		Step    string  `json:"step"`
		As      string  `json:"as"`
		Until   string  `json:"until"`

		EvenIfUnknown bool `json:"even_if_unknown"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
	}
	if strict {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&j); err != nil {
			return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
		}
	}
	if j.V != Version {
		return core.Control{}, fmt.Errorf("%w: control has version %d, want %d", ErrUndecodable, j.V, Version)
	}
	until, err := parseTime(j.Until)
	if err != nil {
		return core.Control{}, fmt.Errorf("%w: control: until: %w", ErrUndecodable, err)
	}
	c := core.Control{Kind: controlKind(j.Kind), Numbers: j.Numbers, ID: j.ID, Type: j.Type, Actor: CutText(j.Actor),
		Reason: CutText(j.Reason), Step: j.Step, Until: until, As: core.State(j.As), EvenIfUnknown: j.EvenIfUnknown}
	if err := checkControl(&c, j.Kind); err != nil {
		return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
	}
	return c, nil
}

func checkControl(c *core.Control, word string) error {
	switch c.Kind {
	case 0:
		return fmt.Errorf("kind %q is unknown", Short(word))
	case core.EventOverdue:
		if n := len(c.Numbers); n < 1 || n > NumbersMax {
			return fmt.Errorf("overdue names %d tasks, want 1 to %d", n, NumbersMax)
		}
		return nil
	case core.EventResolve:
		if c.As != core.StateProcessed && c.As != core.StateUndone {
			return fmt.Errorf("resolve as %q, want processed or undone", Short(string(c.As)))
		}
	case core.EventExtend:
		if c.Until <= 0 {
			return fmt.Errorf("extend of %s has no until", Short(c.ID))
		}
	}
	if err := core.CheckName("id", c.ID); err != nil {
		return err
	}
	for _, n := range [...]struct{ field, name string }{{"type", c.Type}, {"step", c.Step}} {
		if n.name == "" {
			continue
		}
		if err := core.CheckName(n.field, n.name); err != nil {
			return err
		}
	}
	return nil
}
