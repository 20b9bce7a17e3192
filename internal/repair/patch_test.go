package repair

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// euros is an edit by patch.
var euros = operate.Request{Action: operate.ActionEdit, Patch: json.RawMessage(`{"card":{"no":null,"currency":"EUR"},"by":"bank"}`)}

// euroInputs are inputs of which some are no objects.
func euroInputs(i int) string {
	if i%7 == 5 {
		return fmt.Sprintf(`[%d]`, i)
	}
	return fmt.Sprintf(`{"z":1%d0000000000000001,"card":{"no":"4711","of":"<A&B>"},"a":1.50}`, i)
}

// inputAfter is what the i-th task's input must be once an operation with a patch has changed it n times.
func inputAfter(w *world, i, n int, patch json.RawMessage) string {
	before := `{}`
	if w.input != nil {
		before = w.input(i)
	}
	if n == 0 || len(patch) == 0 {
		return before
	}
	return fmt.Sprintf(`{"z":1%d0000000000000001,"card":{"of":"<A&B>","currency":"EUR"},"a":1.50,"by":"bank"}`, i)
}

// TestMergePatch: the examples of RFC 7386 that are about objects; the order of members, numbers and texts stay as they
// are written.
//
// covers: OP18
func TestMergePatch(t *testing.T) {
	for _, x := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":"foo"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{` { "z" : 1.50 , "y" : 12345678901234567890 , "x" : "<é>" } `, `{"y":null,"w":0.10,"v":{"b":2,"a":1}}`, `{"z":1.50,"x":"<é>","w":0.10,"v":{"b":2,"a":1}}`},
		{`{"a":1,"a":2,"b":3}`, `{"a":4,"c":5,"c":6}`, `{"a":4,"b":3,"c":6}`},
	} {
		p, err := readPatch([]byte(x[1]))
		if err != nil {
			t.Fatalf("%s: %v", x[1], err)
		}
		if got, err := p.apply([]byte(x[0])); err != nil || string(got) != x[2] {
			t.Errorf("%s by %s: %s, %v; want %s", x[0], x[1], got, err, x[2])
		}
	}
	p, _ := readPatch([]byte(`{"a":"` + strings.Repeat("x", 100) + `"}`))
	for input, says := range map[string]string{
		`[]`: "not an object", `"a"`: "not an object", `null`: "not an object", ``: "not kept", `{`: "not JSON",
		`{"b":"` + strings.Repeat("x", core.InputBytesMax-100) + `"}`: "more than 262144 bytes",
	} {
		if _, err := p.apply([]byte(input)); err == nil || !strings.HasPrefix(err.Error(), "the patch does not apply: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20s: %v, want %q", input, err, says)
		}
	}
}

// TestMergePatchAsItIsDefined: a patch comes to what the RFC's own few lines come to, and to the same bytes each time.
//
// covers: OP11
func TestMergePatchAsItIsDefined(t *testing.T) {
	var value *rapid.Generator[any]
	object := rapid.Custom(func(t *rapid.T) any {
		return any(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "é\"<"}), rapid.Deferred(func() *rapid.Generator[any] { return value }), 0, 3).Draw(t, "object"))
	})
	value = rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.String().Draw(t, "text")
		case 2:
			return []any{1.0, nil, map[string]any{"a": nil}}
		case 3:
			return float64(rapid.IntRange(0, 9).Draw(t, "number"))
		}
		return object.Draw(t, "value")
	})
	var merge func(target, patch any) any
	merge = func(target, patch any) any {
		changes, is := patch.(map[string]any)
		if !is {
			return patch
		}
		had, _ := target.(map[string]any)
		made := map[string]any{}
		for k, v := range had {
			made[k] = v
		}
		for k, v := range changes {
			if v == nil {
				delete(made, k)
			} else {
				made[k] = merge(made[k], v)
			}
		}
		return made
	}
	rapid.Check(t, func(t *rapid.T) {
		before, change := object.Draw(t, "before"), object.Draw(t, "patch")
		input, _ := json.Marshal(before)
		raw, _ := json.Marshal(change)
		p, err := readPatch(raw)
		if err != nil {
			if string(raw) != "{}" {
				t.Fatalf("%s: %v", raw, err)
			}
			return
		}
		got, err := p.apply(input)
		if err != nil {
			t.Fatalf("%s by %s: %v", input, raw, err)
		}
		var made any
		if err := json.Unmarshal(got, &made); err != nil || !reflect.DeepEqual(made, merge(before, change)) {
			t.Fatalf("%s by %s: %s, %v; want %v", input, raw, got, err, merge(before, change))
		}
		if again, _ := p.apply(input); !bytes.Equal(again, got) {
			t.Fatalf("%s by %s: %s, and then %s", input, raw, got, again)
		}
	})
}

// TestPatchedOperation: each member starts again with its own input, changed; those that the patch does not apply to are
// skipped and say so. The preview shows inputs before and after, and its rehearsal counts the same.
//
// covers: OP2, OP9, OP11
func TestPatchedOperation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.input = euroInputs
		tasks := w.failing(core.PolicyError, 210, "card declined")
		sel := operate.Selection{Group: groupOf(tasks[0])}
		p, err := w.service().Preview(t.Context(), anna, sel, euros)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Rehearsal; r.Repairable != 180 || r.Refused != 30 || len(r.Reasons) != 1 || r.Reasons[0].Reason != "the patch does not apply: the input is not an object" {
			t.Errorf("rehearsal %+v", r)
		}
		if len(p.Changes) != changesMax {
			t.Fatalf("%d inputs are shown", len(p.Changes))
		}
		for i, c := range p.Changes {
			if c.ID != tasks[i].live.ID || string(c.Before) != euroInputs(i) || string(c.After) != inputAfter(w, i, 1, euros.Patch) || c.Why != "" {
				t.Errorf("shown %d: %+v", i, c)
			}
		}
		op, err := w.service().Start(t.Context(), anna, p.Token, 0, 0, "the bank wants euros", p.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		w.by(tasks[100], core.EventUndo) // it changes before its turn comes
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 179, Skipped: 31}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		for i, m := range members {
			n := 1
			switch {
			case i == 100:
				if n = 0; m.Outcome != operate.OutcomeSkipped || !strings.Contains(m.Text, "changed since the preview") {
					t.Errorf("the one that changed: %+v", m)
				}
			case i%7 == 5:
				if n = 0; m.Outcome != operate.OutcomeSkipped || !strings.HasPrefix(m.Text, "the patch does not apply") {
					t.Errorf("one that it does not apply to: %+v", m)
				}
			}
			if input, asked := string(tasks[i].live.Input), tasks[i].asked(op.ID); asked != n || input != inputAfter(w, i, n, euros.Patch) {
				t.Errorf("task %d was asked for %d times and has the input %s", i, asked, input)
			}
		}
	})
}

// TestChangesAreBounded: what is too large to show says its size.
func TestChangesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.input = func(i int) string {
			if i == 0 {
				return `{"a":"` + strings.Repeat("x", changeBytesMax) + `"}`
			}
			return `[]`
		}
		tasks := w.failing(core.PolicyError, 2, "card declined")
		p, err := w.service().Preview(t.Context(), anna, operate.Selection{Group: groupOf(tasks[0])}, euros)
		if err != nil || len(p.Changes) != 2 {
			t.Fatalf("%+v, %v", p.Changes, err)
		}
		if c := p.Changes[0]; c.Before != nil || c.After != nil || !strings.Contains(c.Why, "16,392 bytes") {
			t.Errorf("a large one: %.200s", fmt.Sprintf("%+v", c))
		}
		if c := p.Changes[1]; c.Before != nil || !strings.Contains(c.Why, "not an object") {
			t.Errorf("one that it does not apply to: %+v", c)
		}
	})
}

// TestPatchIsAppliedOnce: killed before or after any statement or message, an operation that edits changes each input
// once, and comes to the same outcomes.
//
// covers: OP4, OP2
func TestPatchIsAppliedOnce(t *testing.T) { killAtEveryPoint(t, euros, euroInputs) }

// TestForgottenInputIsSkipped: an input that is forgotten between the asking and the sending again is a skipped member.
//
// covers: OP2
func TestForgottenInputIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.input = euroInputs
		tasks := w.failing(core.PolicyError, 1, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, euros)
		deaf := &forgetting{w}
		defer start(t.Context(), NewRunner(config(), w.db, deaf, w.desk(), leads(true), nil, func(error) {}, quiet))()
		got, members := w.until(op.ID, operate.OperationDone)
		if got.Tally.Skipped != 1 || !strings.Contains(members[0].Text, "the input is not kept any more") {
			t.Errorf("%+v %+v", got.Tally, members)
		}
	})
}

// forgetting loses messages, and with the first one the input of each task.
type forgetting struct{ w *world }

// Ask implements Controls.
func (f *forgetting) Ask(context.Context, int, core.Control) (uint64, error) {
	f.w.set(func() {
		for _, t := range f.w.tasks {
			t.Row.Input, t.Journal, t.Commits = nil, nil, nil
		}
	})
	return 1 << 40, nil // and the message is lost with the stream
}
