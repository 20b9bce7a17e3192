package planfile

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// YAML is JSON as YAML, members in their order, numbers with all their digits.
func YAML(data []byte) ([]byte, error) {
	v, err := ordered(data)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(v)
}

// Plain is a part of a YAML file, whose name stands in errors, as encoding/json has it: numbers are a json.Number where an
// int64 would not hold them.
func Plain(name string, part ast.Node) (any, error) {
	f := &file{name: name}
	var v any
	if n := f.yaml(part, 0); n != nil {
		v = f.plain(n)
	}
	return v, f.err()
}

// verbatim is a scalar that is written as it is.
type verbatim string

// MarshalYAML implements yaml.BytesMarshaler.
func (v verbatim) MarshalYAML() ([]byte, error) { return []byte(v), nil }

// isNumber reports whether text is a number as JSON writes it.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// ordered is JSON as goccy writes it.
func ordered(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return nextOf(d)
}

func nextOf(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return verbatim(t), nil
	case string:
		if isNumber(t) { // text, which a reader would take for a number
			return verbatim(strconv.Quote(t)), nil
		}
	case json.Delim:
		list, object := []any{}, yaml.MapSlice{}
		for d.More() {
			var name any
			if t == '{' {
				if name, err = d.Token(); err != nil {
					return nil, err
				}
			}
			v, err := nextOf(d)
			if err != nil {
				return nil, err
			}
			list, object = append(list, v), append(object, yaml.MapItem{Key: name, Value: v})
		}
		if _, err := d.Token(); err != nil || t == '[' {
			return list, err
		}
		return object, nil
	}
	return t, nil
}
