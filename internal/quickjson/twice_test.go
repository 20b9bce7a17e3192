package quickjson

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestNamesOnce: a name stands once in an object, however it is written, at any depth and among any number of others; the
// same name in another object, in a list, or as a value, is none of it.
//
// covers: W15
func TestNamesOnce(t *testing.T) {
	long := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"n%d":%d,`, i, i)
		}
		return "{" + b.String() + more + "}"
	}
	for doc, want := range map[string]string{
		`{"cents":100,"cents":999900}`:                         `has the name "cents" twice in one object, the second time at byte 14`,
		`{"cents":100,"c\u0065nts":999900}`:                    "twice",
		`{"a":{"x":1},"b":[{"x":1,"y":[],"x":2}]}`:             `"x" twice in one object, the second time at byte 33`,
		`{"a":{"b":{},"c":1},"a":{}}`:                          "twice",
		`{"":1,"":2}`:                                          "twice",
		long(40, `"n39":1`):                                    "twice",
		long(31, `"n0":1`):                                     "twice",
		long(32, `"n31":1`):                                    "twice",
		long(33, `"n0":1`):                                     "twice",
		long(3, `"a":`+long(50, `"b":1`)+`,"n2":1`):            "twice",
		long(40, `"a":{"n39":1},"b":["n39"],"c":"n39","d":{}`): "",
		`{"a":"a","b":["a","a"],"c":{"a":{"a":"a"}},"A":"a"}`:  "",
		`[{"a":1},{"a":1},"a","a"]`:                            "",
		`{"a\\":1,"a":"\"a\":1,{\"a\"","\"a\"":{"a":[{}]}}`:    "",
		`"a"`: "", `[]`: "", `{}`: "", `[[{}],{"a":{}},{"a":[]}]`: "",
	} {
		err := Check("input", []byte(doc))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", doc, err, want)
		}
		if _, text := errors.AsType[*TextError](err); err != nil && !text {
			t.Errorf("%.80s: %v is no *TextError", doc, err)
		}
	}
}
