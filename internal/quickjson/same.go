package quickjson

import (
	"bytes"
	stdjson "encoding/json"
	"reflect"
)

// Same reports whether two documents say the same, whatever their spelling; numbers are compared as they are written. What is no
// JSON, or empty, is the same as no other.
func Same(a, b []byte) bool {
	var values [2]any
	for i, data := range [][]byte{a, b} {
		d := stdjson.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
