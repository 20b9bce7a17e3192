package planfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/sheet"
)

// YAML is JSON as YAML, members in their order, numbers with all their digits. What would be many times as long by its
// indentation stays JSON, which is YAML as well.
func YAML(data []byte) ([]byte, error) {
	if json.Valid(data) && quickjson.Wide(data) {
		return sheet.JSON(data), nil
	}
	v, err := ordered(data)
	if errors.Is(err, errName) {
		return sheet.JSON(data), nil
	}
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

// errName says that a member's name has characters that a terminal acts by: goccy quotes no name.
var errName = errors.New("a name has control characters")

// quoted is a text as goccy writes it, or quoted: one that a reader would take for a number, one whose white space goccy would
// lose, and one with characters that a terminal acts by, which goccy writes as they are.
func quoted(t string) any {
	switch {
	case strings.ContainsFunc(t, acts):
		return verbatim(strconv.QuoteToASCII(t))
	case isNumber(t), blankAround(t):
		return verbatim(strconv.Quote(t))
	}
	return t
}

// blankAround reports whether a text begins or ends with white space, but for one end of its last line.
func blankAround(t string) bool {
	t = strings.TrimSuffix(t, "\n")
	return strings.TrimSpace(t) != t
}

// acts reports whether a terminal acts by a character, ends of lines and tabs aside.
func acts(r rune) bool { return r != '\n' && r != '\t' && sheet.Moves(r) }

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
		return quoted(t), nil
	case json.Delim:
		list, object := []any{}, yaml.MapSlice{}
		for d.More() {
			var name any // a text
			if t == '{' {
				if name, err = d.Token(); err != nil {
					return nil, err
				}
				if t, ok := name.(string); ok && strings.ContainsFunc(t, acts) {
					return nil, errName
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
