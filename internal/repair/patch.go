package repair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

// Bounds of edits by patch.
const (
	patchDepthMax  = 64       // how deep a patch nests: each level reads the rest of an input once more
	patchedMax     = 250      // members whose inputs are made, and in memory, at a time
	changesMax     = 5        // inputs that a preview shows
	changeBytesMax = 16 << 10 // of an input that it shows
)

// patch is a JSON Merge Patch (RFC 7386). nil: there is none. We apply it by ourselves: libraries put new members in an
// order that changes from call to call, and a task that is asked again after a crash must be asked the same. Numbers and
// the order of members stay as they are.
type patch struct{ members []member }

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// readPatch reads the patch of a request; nil of one that has none. Error: *operate.Refusal.
func readPatch(raw json.RawMessage) (*patch, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if n := quickjson.Depth(raw); n > patchDepthMax {
		return nil, bad("patch", "patch nests %d deep, want at most %d", n, patchDepthMax)
	}
	members, is, err := object(raw)
	switch {
	case err != nil:
		return nil, bad("patch", "patch is not JSON: %v", err)
	case !is:
		return nil, bad("patch", "patch is %s, want an object (RFC 7386): a member replaces that of the input, null removes it", core.QuoteShort(string(raw)))
	case len(members) == 0:
		return nil, bad("patch", "%s", say.Of("refuse.patch-empty"))
	}
	return &patch{members}, nil
}

// object reads the members of a JSON object in their order; is: it is one.
func object(raw []byte) (members []member, is bool, err error) {
	err = submit.Object(raw, func(name string, value json.RawMessage) error {
		members = append(members, member{name, value})
		return nil
	})
	if errors.Is(err, submit.ErrNoObject) {
		return nil, false, nil
	}
	return members, true, err
}

// apply is the input that a task gets for its own. The text of an error is the same for tasks to which the patch does not
// apply in the same way.
func (p *patch) apply(input []byte) ([]byte, error) {
	had, is, err := object(input)
	switch {
	case len(input) == 0:
		return nil, errors.New("the patch does not apply: the input is not kept any more")
	case err != nil:
		return nil, errors.New("the patch does not apply: the input is not JSON")
	case !is:
		return nil, errors.New("the patch does not apply: the input is not an object")
	}
	out := merge(had, p.members)
	if n := len(out); n > core.InputBytesMax {
		return nil, fmt.Errorf("the patch does not apply: the new input would have more than %d bytes", core.InputBytesMax)
	}
	return out, nil
}

// merge is MergePatch of RFC 7386 for two objects.
func merge(had, changes []member) []byte {
	last := make(map[string]json.RawMessage, len(changes)) // of a name that comes twice, the last counts
	for _, c := range changes {
		last[c.name] = c.value
	}
	done := make(map[string]bool, len(changes))
	var b bytes.Buffer
	b.WriteByte('{')
	put := func(name string, value []byte) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(name)      // into memory
		b.Truncate(b.Len() - 1) // the encoder ends a line
		b.WriteByte(':')
		b.Write(value)
	}
	for _, m := range had {
		change, changed := last[m.name]
		switch {
		case !changed:
			put(m.name, m.value)
		case done[m.name]: // the input has the name twice
		default:
			done[m.name] = true
			if value := merged(m.value, change); value != nil {
				put(m.name, value)
			}
		}
	}
	for _, c := range changes {
		if done[c.name] {
			continue
		}
		done[c.name] = true
		if value := merged([]byte("{}"), last[c.name]); value != nil {
			put(c.name, value)
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

// merged is what a value becomes by a change of it; nil: it goes.
func merged(value, change json.RawMessage) []byte {
	if string(change) == "null" {
		return nil
	}
	changes, is, _ := object(change) // both are JSON
	if !is {
		return change
	}
	had, is, _ := object(value)
	if !is {
		had = nil
	}
	return merge(had, changes)
}

// inputs are those of members as they are now, for as many as are still at the row that they were frozen at; why says of
// each of the others what became of it.
func inputs(ctx context.Context, store Store, members []operate.Member) (inputs map[int64][]byte, why map[int64]string, err error) {
	inputs, why = make(map[int64][]byte, len(members)), map[int64]string{}
	there, err := loadSaved(ctx, store, members, func(m *operate.Member, s *core.Saved) {
		input, seq, state := s.Row.Input, s.Row.Seq, s.Row.State
		for i := range s.Journal {
			r := &s.Journal[i]
			if seq, state = r.Seq, r.State; r.Input != nil {
				input = r.Input
			}
		}
		if seq != m.Seq {
			why[m.Ordinal] = say.Of("repair.changed", "state", state)
			return
		}
		inputs[m.Ordinal] = input
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range members {
		if !there[members[i].Ordinal] {
			why[members[i].Ordinal] = say.Of("repair.forgotten")
		}
	}
	return inputs, why, nil
}

// change are the inputs that members get. Others have moved on since they were frozen, or are forgotten (gone), or are such
// that the patch does not apply to their input (refused), each with what a person reads. Without a patch there are none.
func (p *patch) change(ctx context.Context, store Store, members []operate.Member) (after map[int64][]byte, gone, refused map[int64]string, err error) {
	if p == nil || len(members) == 0 {
		return nil, nil, nil, nil
	}
	after, gone, err = inputs(ctx, store, members)
	if err != nil {
		return nil, nil, nil, err
	}
	refused = map[int64]string{}
	for ordinal, input := range after {
		made, err := p.apply(input)
		if err != nil {
			refused[ordinal] = err.Error()
			delete(after, ordinal)
			continue
		}
		after[ordinal] = made
	}
	return after, gone, refused, nil
}

// changes show what the patch makes of the inputs of members.
func (p *patch) changes(ctx context.Context, store Store, members []operate.Member) ([]operate.InputChange, error) {
	if p == nil || len(members) == 0 {
		return nil, nil
	}
	before, why, err := inputs(ctx, store, members)
	if err != nil {
		return nil, err
	}
	all := make([]operate.InputChange, len(members))
	for i := range members {
		m := &members[i]
		c := operate.InputChange{TaskRef: operate.TaskRef{Type: m.Type, ID: m.ID}, Why: why[m.Ordinal]}
		if was, is := before[m.Ordinal]; is {
			made, err := p.apply(was)
			switch {
			case err != nil:
				c.Why = err.Error()
			case len(was) > changeBytesMax || len(made) > changeBytesMax:
				c.Why = say.Of("repair.too-large", "n", len(was), "then", len(made), "most", changeBytesMax)
			default:
				c.Before, c.After = was, made
			}
		}
		all[i] = c
	}
	return all, nil
}
