package jsonschema

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// enum is the keyword of that name, by one look at what it has: the library compares with one value after the other, and makes
// fractions of numbers for it.
type enum struct {
	values []any
	texts  map[string]bool // of the values
	inner  bool            // some of them are lists or objects
}

// index has the enum of a schema checked by one look.
func index(s *jsonschema.Schema) {
	if s.Enum == nil {
		return
	}
	e := &enum{values: s.Enum.Values, texts: map[string]bool{}}
	for _, v := range e.values {
		e.texts[textOf(v)] = true
		e.inner = e.inner || holdsOthers(v)
	}
	s.Enum, s.Extensions = nil, append(s.Extensions, e)
}

// enumOf are the values of a schema's enum; none: it has no enum.
func enumOf(s *jsonschema.Schema) []any {
	for _, extension := range s.Extensions {
		if e, is := extension.(*enum); is {
			return e.values
		}
	}
	return nil
}

// Validate implements jsonschema.SchemaExt.
func (e *enum) Validate(at *jsonschema.ValidatorContext, v any) {
	if holdsOthers(v) && !e.inner || !e.texts[textOf(v)] {
		at.AddError(&kind.Enum{Got: v, Want: e.values})
	}
}

// textOf is the one text of a value whose numbers small has spelled.
func textOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // of no JSON: there is none in a payload
	}
	return string(data)
}

func holdsOthers(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}
