package jsonschema

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"duly.dev/duly/internal/decimal"
)

// The types that a schema may prove; the empty one is not known.
const (
	Integer = "integer" // whole, however it is written
	Number  = "number"  // whole or not
	String  = "string"
	Boolean = "boolean"
	Array   = "array"
	Object  = "object"
	Null    = "null"
)

// Step leads into a value: to the member of a name, or where Element is set to an element of a list, of which Name is empty.
type Step struct {
	Name    string
	Element bool
	Index   int // of the element; -1: any
}

// Type is the one type that the value at a path has in every payload that fits and has it; empty: none is proven. A list or an
// object may be null instead, of which there is no part.
func (s *Schema) Type(path ...Step) string {
	if s == nil {
		return ""
	}
	return typeAt(s.is, path)
}

// typeAt is the first that one of the schemas proves that all hold for the value.
func typeAt(s *jsonschema.Schema, path []Step) (is string) {
	if s == nil {
		return ""
	}
	prove := func(t string) {
		if is == "" || is == Number && t == Integer {
			is = t
		}
	}
	if len(path) == 0 {
		prove(said(s))
	} else {
		for _, sub := range below(s, path[0]) {
			prove(typeAt(sub, path[1:]))
		}
	}
	prove(typeAt(s.Ref, path))
	for _, sub := range s.AllOf {
		prove(typeAt(sub, path))
	}
	prove(common(s.AnyOf, path))
	prove(common(s.OneOf, path))
	return is
}

// common is the type that each of the schemas proves.
func common(all []*jsonschema.Schema, path []Step) (is string) {
	for i, s := range all {
		t := typeAt(s, path)
		if t == "" || i > 0 && t != is {
			return ""
		}
		is = t
	}
	return is
}

// said is the type that a schema itself says.
func said(s *jsonschema.Schema) string {
	if s.Types != nil {
		types := s.Types.ToStrings()
		if slices.Contains(types, Array) || slices.Contains(types, Object) {
			types = slices.DeleteFunc(types, func(t string) bool { return t == Null })
		}
		if len(types) == 1 {
			return types[0]
		}
	}
	values := enumOf(s)
	if s.Const != nil {
		values = []any{*s.Const}
	}
	is := ""
	for i, v := range values {
		t := typeOf(v)
		if i > 0 && t != is {
			return ""
		}
		is = t
	}
	return is
}

func typeOf(v any) string {
	switch v := v.(type) {
	case json.Number:
		if canon, err := decimal.Canon(v.String()); err != nil || strings.ContainsAny(canon, ".e") {
			return Number
		}
		return Integer
	case string:
		return String
	case bool:
		return Boolean
	case []any:
		return Array
	case map[string]any:
		return Object
	}
	return Null
}

// below are the schemas that hold for what a step leads to.
func below(s *jsonschema.Schema, to Step) (all []*jsonschema.Schema) {
	if to.Element {
		items := s.Items2020
		for i, sub := range s.PrefixItems {
			if to.Index == i {
				return []*jsonschema.Schema{sub}
			}
		}
		if items == nil || to.Index < 0 && len(s.PrefixItems) > 0 {
			return nil
		}
		return []*jsonschema.Schema{items}
	}
	if sub := s.Properties[to.Name]; sub != nil {
		all = append(all, sub)
	}
	for pattern, sub := range s.PatternProperties {
		if pattern.MatchString(to.Name) {
			all = append(all, sub)
		}
	}
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && len(all) == 0 {
		all = append(all, sub)
	}
	return all
}
