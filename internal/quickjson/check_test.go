package quickjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCheck: what is let through is JSON and UTF-8, and no string in it, however
// it was written, holds a NUL; every error names the field.
func FuzzCheck(f *testing.F) {
	for _, s := range append(seeds, `"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `{"\u0000":1}`, "\"\x00\"", `["a\\\\\u0000b"]`, `{"a":1,"b":{"a":2},"\u0061":3}`, `[{"a":"\"a\":"},{"a":{}}]`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check("input", data)
		valid := json.Valid(data)
		sound := valid && utf8.Valid(data) && !holdsNUL(data) && !holdsTwice(data) && measure(data).depth <= DepthMax
		if (err == nil) != sound {
			t.Fatalf("%.200q: %v, want an error: %v", data, err, !sound)
		}
		if err == nil {
			return
		}
		if !strings.HasPrefix(err.Error(), "input ") || len(err.Error()) > 300 {
			t.Fatalf("%.200q: error %.300q", data, err)
		}
		var text *TextError
		if valid && !errors.As(err, &text) {
			t.Fatalf("%.200q: %v is not about its text", data, err)
		}
	})
}

// holdsNUL looks at every key and string, also at those of a key that comes
// again.
func holdsNUL(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if s, ok := token.(string); ok && strings.ContainsRune(s, 0) {
			return true
		}
	}
}

// holdsTwice looks at the names of every object.
func holdsTwice(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []map[string]bool // nil: a list
	value := false
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		inside := len(open) > 0 && open[len(open)-1] != nil
		name, text := token.(string)
		if inside && !value && text {
			names := open[len(open)-1]
			if names[name] {
				return true
			}
			names[name], value = true, true
			continue
		}
		value = false
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
	}
}
