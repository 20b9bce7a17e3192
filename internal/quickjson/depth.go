package quickjson

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
)

// DepthMax is how deep the lists and objects of a payload may nest: what lays one out, compares or decodes it takes time and
// memory by its depth.
const DepthMax = 200

// Depth is how deep valid JSON nests.
func Depth(data []byte) int { return measure(data).depth }

// checkDepth wants valid JSON to nest no deeper than DepthMax.
func checkDepth(field string, data []byte) error {
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= DepthMax {
		return nil // as nearly every payload, which is found out quickly
	}
	if depth := Depth(data); depth > DepthMax {
		return &TextError{fmt.Sprintf("%s nests %d deep, the limit is %d", field, depth, DepthMax)}
	}
	return nil
}

// measured is how deep JSON nests, and how many bytes it has with a line for each value, indented by two blanks.
type measured struct{ depth, bytes int }

// measure measures valid JSON.
func measure(data []byte) (m measured) {
	depth, text := 0, false
	m.bytes = len(data)
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			m.depth = max(m.depth, depth)
			m.bytes += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			m.bytes += 1 + 2*depth
		case c == ',':
			m.bytes += 1 + 2*depth
		case c == ':':
			m.bytes++
		}
	}
	return m
}

// What laying out may make of a document: of one that nests deep each line is as long as the document.
const (
	layoutTimes = 8
	layoutFree  = 4 << 10
)

// Wide reports whether indentation would make valid JSON many times as long.
func Wide(data []byte) bool { return measure(data).bytes > layoutFree+layoutTimes*len(data) }

// Indent lays JSON out with a line for each value, as it came in all else. Lines are indented, unless that made it many
// times as long. Error: data is no JSON.
func Indent(data []byte) (string, error) {
	var b bytes.Buffer
	if !stdjson.Valid(data) {
		return "", stdjson.Indent(&b, data, "", "")
	}
	by := "  "
	if Wide(data) {
		by = ""
	}
	err := stdjson.Indent(&b, data, "", by)
	return b.String(), err
}
