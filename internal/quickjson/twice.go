package quickjson

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
)

// manyNames is from how many names on those of an object are looked up in a map.
const manyNames = 32

// object is one that is open while names are compared.
type object struct {
	list  bool // it is a list
	first int  // of its names among all that are open
	many  map[string]bool
}

// CheckOnce wants each object of valid JSON to have each name once: of two members with one name some readers take the
// first and others the last, so that a condition could see another amount than the agent pays.
func CheckOnce(field string, data []byte) error {
	var namesRoom [manyNames][]byte
	var openRoom [16]object
	names, open := namesRoom[:0], openRoom[:0]
	named := false // a text is the name of a member
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			list := data[i] == '['
			open, named = append(open, object{list: list, first: len(names)}), !list
		case '}', ']':
			names, open, named = names[:open[len(open)-1].first], open[:len(open)-1], false
		case ',':
			named = !open[len(open)-1].list
		case '"':
			end := endOfText(data, i)
			if named {
				name := data[i+1 : end]
				if names, named = append(names, plainName(name)), false; open[len(open)-1].has(names) {
					return &TextError{fmt.Sprintf("%s has the name %.16q twice in one object, the second time at byte %d", field, name, i+1)}
				}
			}
			i = end
		}
	}
	return nil
}

// endOfText is where the quote stands that ends the text that begins at i.
func endOfText(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

// plainName is a name without escapes.
func plainName(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	var plain string
	if stdjson.Unmarshal(append(append([]byte{'"'}, name...), '"'), &plain) != nil {
		return name // valid JSON has none such
	}
	return []byte(plain)
}

// has reports whether the last of the names is one of the object's before.
func (o *object) has(names [][]byte) bool {
	mine, last := names[o.first:len(names)-1], names[len(names)-1]
	if len(mine) < manyNames {
		for _, name := range mine {
			if bytes.Equal(name, last) {
				return true
			}
		}
		return false
	}
	if o.many == nil {
		o.many = make(map[string]bool, 2*manyNames)
		for _, name := range mine {
			o.many[string(name)] = true
		}
	}
	if o.many[string(last)] {
		return true
	}
	o.many[string(last)] = true
	return false
}
