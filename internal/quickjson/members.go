package quickjson

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"strings"
)

// members calls take with the name of each member of valid JSON, as it reads without escapes, how deep its object is, and
// whether it is the first one of that. It ends when take reports false.
func members(data []byte, take func(depth int, first bool, name []byte) bool) {
	var open []bool // objects and lists around: nothing was named there
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			open = append(open, true)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			end := textEnd(data, i)
			text := data[i+1 : end]
			for i = end; i+1 < len(data) && data[i+1] <= ' '; {
				i++
			}
			if i+1 == len(data) || data[i+1] != ':' {
				continue // a value
			}
			if bytes.IndexByte(text, '\\') >= 0 {
				text = unescaped(data[end-len(text)-1 : end+1])
			}
			in := len(open) - 1
			if !take(in, open[in], text) {
				return
			}
			open[in] = false
		}
	}
}

// textEnd is where the text ends that begins at a quote.
func textEnd(data []byte, at int) int {
	for at++; data[at] != '"'; at++ {
		if data[at] == '\\' {
			at++
		}
	}
	return at
}

func unescaped(quoted []byte) []byte {
	var text string
	_ = stdjson.Unmarshal(quoted, &text) // it is valid
	return []byte(text)
}

// fewMembers are compared with each other; of more there is a set.
const fewMembers = 16

// object is what is known of an object's members.
type object struct {
	names [][]byte
	set   map[string]struct{} // of more than fewMembers
}

// has notes a name and reports whether it was there.
func (o *object) has(name []byte) bool {
	if o.set == nil {
		for _, n := range o.names {
			if bytes.Equal(n, name) {
				return true
			}
		}
		if o.names = append(o.names, name); len(o.names) <= fewMembers {
			return false
		}
		o.set = make(map[string]struct{}, 4*fewMembers)
		for _, n := range o.names {
			o.set[string(n)] = struct{}{}
		}
		return false
	}
	_, twice := o.set[string(name)]
	o.set[string(name)] = struct{}{}
	return twice
}

// checkMembers wants no object of valid JSON to have a member twice: of two, one reader takes the first and another the last.
func checkMembers(field string, data []byte) error {
	if bytes.Count(data, []byte{':'}) < 2 {
		return nil
	}
	var err error
	var objects []object // by depth
	members(data, func(in int, first bool, name []byte) bool {
		for len(objects) <= in {
			objects = append(objects, object{})
		}
		if first {
			objects[in] = object{names: objects[in].names[:0]}
		}
		if objects[in].has(name) {
			err = &TextError{fmt.Sprintf("%s has the member %.40q twice in an object", field, strings.ToValidUTF8(string(name), "\uFFFD"))}
		}
		return err == nil
	})
	return err
}
