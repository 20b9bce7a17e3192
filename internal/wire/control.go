package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/taskform"
)

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
	{"accept", core.EventAccept},
	{"edit", core.EventEdit},
	{"migrate", core.EventMigrate},
	{"signal", core.EventSignal},
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
	dst = append(strconv.AppendInt(append(dst, `{"v":`...), Version, 10), `,"kind":`...)
	dst = appendString(dst, ControlWord(c.Kind))
	dst = appendInts(dst, "numbers", c.Numbers)
	dst = appendInts(dst, "seqs", c.Seqs)
	if len(c.Steps) > 0 {
		dst = append(dst, `,"steps":["`...)
		dst = append(append(dst, strings.Join(c.Steps, `","`)...), `"]`...) // names
	}
	for _, m := range [...]struct{ name, value string }{{"id", c.ID}, {"type", c.Type}, {"actor", c.Actor}, {"reason", c.Reason}, {"step", c.Step}, {"as", string(c.As)}, {"found", string(c.Found)}, {"ask", c.Ask}} {
		if m.value != "" {
			dst = appendMember(dst, m.name, m.value)
		}
	}
	if c.Until != 0 {
		dst = appendTime(dst, "until", c.Until)
	}
	if c.Asked != 0 {
		dst = appendTime(dst, "asked", c.Asked)
	}
	if c.EvenIfUnknown {
		dst = append(dst, `,"even_if_unknown":true`...)
	}
	if c.Version != 0 {
		dst = strconv.AppendInt(append(dst, `,"version":`...), c.Version, 10)
	}
	if c.IfSeq != 0 {
		dst = strconv.AppendInt(append(dst, `,"if_seq":`...), c.IfSeq, 10)
	}
	if len(c.Input) > 0 {
		dst = append(append(dst, `,"input":`...), c.Input...)
	}
	if len(c.Result) > 0 {
		dst = append(append(dst, `,"result":`...), c.Result...)
	}
	return append(dst, '}')
}

// appendInts appends a member that is a list of numbers, if there are any.
func appendInts(dst []byte, name string, list []int64) []byte {
	if len(list) == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":[`...)
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return append(dst, ']')
}

// DecodeControl reads a control message. Errors wrap ErrUndecodable: not JSON,
// another version, an unknown kind, names outside their alphabet, an overdue
// without numbers or with another number of steps, a resolve that is neither processed nor undone, an edit
// without an input, an accept without a result, a signal without a step, or
// without one of result and reason, more than core.ControlNumbersMax numbers, or others than
// there are seqs. A signal without a result refuses, with the reason.
func DecodeControl(data []byte) (core.Control, error) { return decodeControl(data, false) }

// decodeControl reads a control message. strict refuses unknown fields and words that are no reason, as in a request; a
// stored message may be of a newer node and have them.
func decodeControl(data []byte, strict bool) (core.Control, error) {
	var j struct {
		V       int     `json:"v"`
		Kind    string  `json:"kind"`
		Numbers []int64 `json:"numbers"`
		ID      string  `json:"id"`
		Type    string  `json:"type"`
		Actor   string  `json:"actor"`
		Reason  string  `json:"reason"`
		Step    string  `json:"step,omitempty"`
		As      string  `json:"as,omitempty"`
		Found   string  `json:"found,omitempty"`
		Ask     string  `json:"ask,omitempty"`
		Until   string  `json:"until,omitempty"`
		Asked   string  `json:"asked,omitempty"`

		EvenIfUnknown bool            `json:"even_if_unknown,omitempty"`
		Seqs          []int64         `json:"seqs"`
		Steps         []string        `json:"steps"`
		IfSeq         int64           `json:"if_seq,omitempty"`
		PlanVersion   int64           `json:"version,omitempty"`
		Input         json.RawMessage `json:"input"`
		Result        json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
	}
	if strict {
		err := quickjson.CheckText("request", data) // encoding/json replaces what is not UTF-8
		if err == nil {
			err = quickjson.CheckMembers(data, reflect.TypeOf(j))
		}
		if err != nil {
			return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&j); err != nil {
			return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
		}
	}
	if strict && len(j.Numbers)+len(j.Seqs)+len(j.Steps) > 0 { // a permission is for tasks of one type, each looked at by its id
		return core.Control{}, fmt.Errorf("%w: control: numbers, seqs and steps are not for requests; ask about each task by its id", ErrUndecodable)
	}
	if j.V != Version {
		return core.Control{}, fmt.Errorf("%w: control: v is %d, want %d", ErrUndecodable, j.V, Version)
	}
	if len(j.Seqs) == 0 {
		j.Seqs = nil
	}
	if len(j.Steps) == 0 {
		j.Steps = nil
	}
	until, err := taskform.Instant(j.Until)
	if err != nil {
		return core.Control{}, fmt.Errorf("%w: control: until: %w", ErrUndecodable, err)
	}
	asked, err := taskform.Instant(j.Asked)
	if err != nil {
		return core.Control{}, fmt.Errorf("%w: control: asked: %w", ErrUndecodable, err)
	}
	c := core.Control{Kind: controlKind(j.Kind), Numbers: j.Numbers, ID: j.ID, Type: j.Type, Actor: cutLines(j.Actor),
		Reason: cutLines(j.Reason), Step: j.Step, Until: until, Asked: asked, As: core.State(j.As), Found: core.ProbeOutcome(j.Found), EvenIfUnknown: j.EvenIfUnknown,
		Seqs: j.Seqs, Steps: j.Steps, IfSeq: j.IfSeq, Input: j.Input, Result: j.Result, Version: j.PlanVersion, Ask: j.Ask}
	err = checkControl(&c, j.Kind)
	if strict && err == nil {
		if err = core.CheckWords("reason", j.Reason); err == nil && c.Kind == core.EventSignal {
			err = core.CheckAnswer(c.Result, c.Reason)
		}
	}
	if err != nil {
		return core.Control{}, fmt.Errorf("%w: control: %w", ErrUndecodable, err)
	}
	return c, nil
}

func checkOverdue(c *core.Control) error {
	n := len(c.Numbers)
	if n < 1 || n > core.ControlNumbersMax {
		return fmt.Errorf("overdue names %d tasks, want 1 to %d", n, core.ControlNumbersMax)
	}
	if steps := len(c.Steps); steps != 0 && steps != n {
		return fmt.Errorf("overdue has %d numbers and %d steps, want as many, or no step", n, steps)
	}
	for _, name := range c.Steps {
		if name != "" {
			if err := core.CheckName("step", name); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkControl(c *core.Control, word string) error {
	if c.Kind != core.EventOverdue && len(c.Steps) > 0 {
		return fmt.Errorf("%s has steps, which go with overdue only", word)
	}
	switch c.Kind {
	case 0:
		return fmt.Errorf("kind %q is unknown", Short(word))
	case core.EventOverdue:
		return checkOverdue(c)
	case core.EventResolve:
		if c.As != core.StateProcessed && c.As != core.StateUndone {
			return fmt.Errorf("resolve as %q, want processed or undone", Short(string(c.As)))
		}
	case core.EventExtend:
		if c.Until <= 0 {
			return fmt.Errorf("extend of %s has no until", Short(c.ID))
		}
	case core.EventSignal:
		if c.Step == "" {
			return fmt.Errorf("signal of %s names no step", Short(c.ID))
		}
		if len(c.Result) == 0 && c.Reason == "" {
			return fmt.Errorf("signal of %s has neither a result nor, as a refusal, a reason", Short(c.ID))
		}
	}
	switch {
	case c.Kind == core.EventMigrate && c.Version < 1:
		return fmt.Errorf("migrate names version %d, want 1 or more", c.Version)
	case c.Kind != core.EventMigrate && c.Version != 0:
		return fmt.Errorf("%s has a version, which goes with migrate only", word)
	}
	if c.Kind != core.EventSignal && c.Ask != "" {
		return fmt.Errorf("%s has an ask, which goes with signal only", word)
	}
	if err := core.CheckAsk(c.Ask); err != nil {
		return err
	}
	if err := checkPayloads(c, word); err != nil {
		return err
	}
	if err := checkFound(c, word); err != nil {
		return err
	}
	if c.IfSeq < 0 {
		return fmt.Errorf("if_seq is %d, want 0 or more", c.IfSeq)
	}
	if len(c.Numbers)+len(c.Seqs) > 0 {
		if err := checkNumbers(c, word); err != nil {
			return err
		}
	} else if err := core.CheckTaskID(c.ID); err != nil {
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

// checkFound refuses what a person cannot have found, and the word of a request that uses no key.
func checkFound(c *core.Control, word string) error {
	switch {
	case c.Found == "":
	case c.Kind != core.EventUndo && c.Kind != core.EventResubmit && c.Kind != core.EventEdit:
		return fmt.Errorf("%s has found, which goes with undo, resubmit and edit only", word)
	case c.Found != core.ProbeDone && c.Found != core.ProbeAbsent:
		return fmt.Errorf("found is %q, want done or absent", Short(string(c.Found)))
	}
	return nil
}

// checkPayloads holds an edit to its input, an accept to its result and a signal to its own, if it has one.
func checkPayloads(c *core.Control, word string) error {
	for _, x := range [...]struct {
		field string
		data  []byte
		kind  core.EventKind
		most  int
	}{{"input", c.Input, core.EventEdit, core.InputBytesMax}, {"result", c.Result, core.EventAccept, core.ResultBytesMax}} {
		kind := x.kind
		if c.Kind == core.EventSignal && x.kind == core.EventAccept && len(x.data) > 0 {
			kind = core.EventSignal
		}
		switch n := len(x.data); {
		case c.Kind != kind && n > 0:
			return fmt.Errorf("%s has %s, which goes with %s only", word, x.field, ControlWord(x.kind))
		case c.Kind != kind:
		case n > x.most:
			return fmt.Errorf("%s has %d bytes, the limit is %d", x.field, n, x.most)
		default:
			if err := quickjson.Check(x.field, x.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNumbers wants a request about many tasks to name each once, with the journal row that it is about: a message
// that is read again must find what it has changed to be at another row. A migration finds it at its version.
func checkNumbers(c *core.Control, word string) error {
	switch c.Kind {
	case core.EventUndo, core.EventResubmit, core.EventEdit, core.EventAccept, core.EventResolve, core.EventMigrate:
	default:
		return fmt.Errorf("%s names tasks by number, which it cannot", word)
	}
	at := c.Kind != core.EventMigrate
	switch n := len(c.Numbers); {
	case n > core.ControlNumbersMax:
		return fmt.Errorf("%s names %d tasks, the limit is %d", word, n, core.ControlNumbersMax)
	case !at && len(c.Seqs) > 0:
		return fmt.Errorf("%s has %d seqs, want none: it is about a task wherever it is", word, len(c.Seqs))
	case at && n != len(c.Seqs):
		return fmt.Errorf("%s has %d numbers and %d seqs, want as many", word, n, len(c.Seqs))
	case c.ID != "" || c.IfSeq != 0:
		return fmt.Errorf("%s names tasks by number, and id %s or if_seq %d besides", word, Short(c.ID), c.IfSeq)
	}
	seen := make(map[int64]bool, len(c.Numbers))
	for i, n := range c.Numbers {
		if n < 1 || seen[n] {
			return fmt.Errorf("number %d of %s is %d, want each number once, and 1 or more", i+1, word, n)
		}
		if at && c.Seqs[i] < 1 {
			return fmt.Errorf("number %d of %s is %d at row %d, want row 1 or more", i+1, word, n, c.Seqs[i])
		}
		seen[n] = true
	}
	return nil
}
