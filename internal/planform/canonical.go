package planform

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// Canonical returns the bytes that every plan of the same meaning has: the form
// with all defaults written out, each after and uses in the order of the steps, once, and schemas
// with their members in order. Errors wrap core.ErrPlan, as Encode's.
func Canonical(p *core.Plan) ([]byte, error) {
	meant := Normal(p)
	return Encode(&meant)
}

// Normal returns the plan as Canonical writes it. A schema that is none stays as it is: Canonical refuses it.
func Normal(p *core.Plan) core.Plan {
	meant := p.WithDefaults()
	meant.InputSchema = normalSchema(meant.InputSchema)
	for i := range meant.Steps {
		s := &meant.Steps[i]
		s.After, s.Uses, s.Schema = ordered(s.After), ordered(s.Uses), normalSchema(s.Schema)
	}
	return meant
}

// ordered is a copy of a set of steps in their order, each once; of none nil.
func ordered(steps []int) []int {
	if len(steps) == 0 {
		return nil
	}
	steps = slices.Clone(steps)
	slices.Sort(steps)
	return slices.Compact(steps)
}

func normalSchema(schema string) string {
	if form, err := schemaForm("", schema); err == nil {
		return string(form)
	}
	return schema
}

// Hash is the content hash of a plan: SHA-256 of its canonical bytes, in hex.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// Difference says in what two canonical forms differ first, as
// `steps[1].agent is "payment", not "card"`: have, then want. It is empty where they
// are the same.
func Difference(have, want []byte) string {
	var a, b any
	for _, x := range []struct {
		data []byte
		into *any
	}{{have, &a}, {want, &b}} {
		d := json.NewDecoder(bytes.NewReader(x.data))
		d.UseNumber()
		if err := d.Decode(x.into); err != nil {
			return "one of them is not JSON"
		}
	}
	return differ("", a, b)
}

func differ(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(a)
		maps.Copy(names, b)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if d := differ(join(at, name), a[name], b[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok {
			break
		}
		for i := range min(len(a), len(b)) {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); d != "" {
				return d
			}
		}
		if len(a) != len(b) {
			return fmt.Sprintf("%s has %d elements, not %d", at, len(a), len(b))
		}
		return ""
	}
	if left, right := text(a), text(b); left != right {
		return fmt.Sprintf("%s is %s, not %s", at, left, right)
	}
	return ""
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func text(v any) string {
	if v == nil {
		return "absent"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "unreadable"
	}
	return short(string(data))
}
