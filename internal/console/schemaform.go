package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Limits of a form that is made from a JSON Schema. What is beyond them is written as JSON.
const (
	formDepthMax  = 4  // objects inside objects
	formFieldsMax = 60 // of the whole form
	optionsMax    = 50 // of one list to choose from
)

// formField is one value of a form, or a group of them.
type formField struct {
	Name     string // of the control: the members that lead to the value, each after a slash
	Member   string // of the object around it
	Label    string
	Hint     string
	Kind     string // text, number, choice, json or group
	Required bool
	Value    string   // as it was typed; of a choice and json: JSON
	Options  []option // of a choice
	Length   int      // of a text: at most so many characters; 0: any
	Null     bool     // of a text: null is none
	Fields   []formField
}

// option is a value to choose.
type option struct{ Value, Label string }

// formSchema is what a form takes of a JSON Schema.
type formSchema struct {
	Ref         string            `json:"$ref"`
	Type        json.RawMessage   `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Properties  json.RawMessage   `json:"properties"`
	Required    []string          `json:"required"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Default     json.RawMessage   `json:"default"`
	MaxLength   int               `json:"maxLength"`
}

// schemaForm makes the fields of a schema. What a form cannot ask for is a field of JSON.
type schemaForm struct {
	root   json.RawMessage
	fields int
}

// formOf is the form of a schema; get is what was typed into its controls.
func formOf(schema string, get func(string) string) formField {
	if schema == "" {
		schema = "true"
	}
	f := &schemaForm{root: json.RawMessage(schema)}
	field := f.field("value", "", json.RawMessage(schema), true, 0)
	if field.Kind != "group" && field.Label == "" {
		field.Label = "Answer"
	}
	field.fill(get)
	return field
}

func (f *schemaForm) field(name, label string, raw json.RawMessage, required bool, depth int) formField {
	var s formSchema
	field := formField{Name: name, Label: label, Required: required, Kind: "json"}
	if f.fields++; json.Unmarshal(raw, &s) != nil || f.fields > formFieldsMax {
		return field
	}
	if target, ok := strings.CutPrefix(s.Ref, "#/"); ok && depth < formDepthMax {
		if to := f.find(target); to != nil {
			return f.field(name, label, to, required, depth+1)
		}
		return field
	}
	if s.Title != "" {
		field.Label = s.Title
	}
	field.Hint = s.Description
	kind, null := kindOf(s.Type)
	switch {
	case len(s.Const) > 0:
		field.choose([]json.RawMessage{s.Const})
	case len(s.Enum) > 0 && len(s.Enum) <= optionsMax:
		field.choose(s.Enum)
	case kind == "boolean":
		field.choose([]json.RawMessage{json.RawMessage("true"), json.RawMessage("false")})
		if null {
			field.choose([]json.RawMessage{json.RawMessage("null")})
		}
	case kind == "string":
		field.Kind, field.Length, field.Null = "text", s.MaxLength, null
	case kind == "integer" || kind == "number":
		field.Kind = "number" // typed as text: a browser's own field of numbers counts steps in doubles
	case kind == "object" && len(s.Properties) > 0 && depth < formDepthMax:
		field.Kind = "group"
		_ = submit.Object(s.Properties, func(member string, schema json.RawMessage) error { // what cannot be read has no field
			part := f.field(name+"/"+member, member, schema, slices.Contains(s.Required, member), depth+1)
			part.Member = member
			field.Fields = append(field.Fields, part)
			return nil
		})
	}
	field.preset(s.Default)
	return field
}

// kindOf is the type of what a schema takes, and whether it takes null as well, as that of a pointer of Go does; empty: of several
// types it is JSON.
func kindOf(said json.RawMessage) (kind string, null bool) {
	var all []string
	if json.Unmarshal(said, &kind) == nil || json.Unmarshal(said, &all) != nil {
		return kind, false
	}
	null = slices.Contains(all, "null")
	if all = slices.DeleteFunc(all, func(t string) bool { return t == "null" }); len(all) != 1 {
		return "", null
	}
	return all[0], null
}

// find follows a pointer inside the schema.
func (f *schemaForm) find(pointer string) json.RawMessage {
	at := f.root
	for _, part := range strings.Split(pointer, "/") {
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil {
			return nil
		}
		at = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// choose makes the field a list of values.
func (f *formField) choose(values []json.RawMessage) {
	f.Kind = "choice"
	for _, v := range values {
		label := string(v)
		var text string
		if json.Unmarshal(v, &text) == nil && !bytes.Equal(v, []byte("null")) {
			label = text
		}
		switch label {
		case "true":
			label = "yes"
		case "false":
			label = "no"
		}
		f.Options = append(f.Options, option{string(v), label})
	}
}

// preset is the value before anything was typed.
func (f *formField) preset(value json.RawMessage) {
	if len(value) == 0 {
		return
	}
	f.Value = string(value)
	var text string
	if f.Kind == "text" && json.Unmarshal(value, &text) == nil {
		f.Value = text
	}
}

// fill puts in what was typed; nil: nothing was.
func (f *formField) fill(get func(string) string) {
	if get == nil {
		return
	}
	f.Value = get(f.Name)
	for i := range f.Fields {
		f.Fields[i].fill(get)
	}
}

// json is the value of the field; nil: it was left empty, and need not be there. The error names the field.
func (f *formField) json() (json.RawMessage, error) {
	value := f.Value
	if f.Kind != "text" {
		value = strings.TrimSpace(value)
	}
	switch {
	case f.Kind == "group":
		return f.object()
	case f.Null && value == "null":
		return json.RawMessage(value), nil
	case value == "" && !f.Required:
		return nil, nil
	case value == "":
		return nil, fmt.Errorf("%s is missing", f.Label)
	case f.Kind == "text":
		return json.Marshal(value)
	}
	if !json.Valid([]byte(value)) {
		want := "JSON"
		if f.Kind == "number" {
			want = "a number such as 12.5"
		}
		return nil, fmt.Errorf("%s is %s, want %s", f.Label, core.QuoteShort(value), want)
	}
	return json.RawMessage(value), nil
}

// object is the value of a group. One that need not be there and is empty is left out.
func (f *formField) object() (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range f.Fields {
		m := &f.Fields[i]
		value, err := m.json()
		if err != nil {
			if !f.Required && f.empty() {
				return nil, nil
			}
			return nil, err
		}
		if value == nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.Member)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	if !f.Required && f.empty() {
		return nil, nil
	}
	return b.Bytes(), nil
}

// empty reports whether nothing was typed into the field or a part of it.
func (f *formField) empty() bool {
	for i := range f.Fields {
		if !f.Fields[i].empty() {
			return false
		}
	}
	return strings.TrimSpace(f.Value) == ""
}
