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
	for _, s := range append(seeds, `"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `{"\u0000":1}`, "\"\x00\"", `["a\\\\\u0000b"]`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check("input", data)
		valid := json.Valid(data)
		sound := valid && utf8.Valid(data) && !holdsNUL(data) && measure(data).depth <= DepthMax
		if (err == nil) != sound {
			t.Fatalf("%.200q: %v, want an error: %v", data, err, !sound)
		}
		if err == nil {
			return
		}
		if !strings.HasPrefix(err.Error(), "input ") || len(err.Error()) > 200 {
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
