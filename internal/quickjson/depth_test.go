package quickjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestLayoutIsBounded: laid out, no document is many times as long as it came, and it is the same document; what people
// write is indented.
//
// covers: P2
func TestLayoutIsBounded(t *testing.T) {
	deep := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	ones := strings.TrimSuffix(strings.Repeat("1,", 128<<10), ",")
	for what, doc := range map[string]string{
		"deep": deep(9_999, ""), "deep objects": strings.Repeat(`{"a":`, 9_999) + "1" + strings.Repeat("}", 9_999),
		"long": deep(1, ones), "long and deep": deep(DepthMax, ones), "brackets in text": `{"[[[\"{":"` + strings.Repeat("[{,", 10_000) + `"}`,
	} {
		text, err := Indent([]byte(doc))
		if most := layoutFree + layoutTimes*len(doc); err != nil || len(text) > most {
			t.Errorf("%s: %d bytes of %d, want %d at most, %v", what, len(text), len(doc), most, err)
		}
		var same bytes.Buffer
		if json.Compact(&same, []byte(text)) != nil || same.String() != doc {
			t.Errorf("%s: laid out it is another document", what)
		}
	}
	if text, err := Indent([]byte(`{"a":[1,{}],"b":{"c":"d"}}`)); err != nil || text != "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}" {
		t.Errorf("laid out: %s, %v", text, err)
	}
	if _, err := Indent([]byte(`{"a":`)); err == nil {
		t.Error("half a document is laid out")
	}
}

// FuzzMeasure: no layout is longer than it is measured.
func FuzzMeasure(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b bytes.Buffer
		if json.Indent(&b, data, "", "  ") == nil && b.Len() > measure(data).bytes {
			t.Fatalf("%.200q has %d bytes laid out, measured %+v", data, b.Len(), measure(data))
		}
	})
}

// TestDepth: lists and objects count, in whatever order, and brackets in texts do not.
//
// covers: P2
func TestDepth(t *testing.T) {
	for doc, want := range map[string]int{`1`: 0, `[]`: 1, `[{},[[1]],{"a":[{}]}]`: 4, `{"[{":"]\"[["}`: 1, `["\\",[1]]`: 2} {
		if got := measure([]byte(doc)).depth; got != want {
			t.Errorf("%s: %d, want %d", doc, got, want)
		}
	}
	err := Check("input", fmt.Appendf(nil, `{"a":%s1%s}`, strings.Repeat("[", DepthMax), strings.Repeat("]", DepthMax)))
	if err == nil || err.Error() != "input nests 201 deep, the limit is 200" {
		t.Errorf("too deep: %v", err)
	}
	if err := Check("input", []byte(`{"a":"`+strings.Repeat("[", 1000)+`"}`)); err != nil {
		t.Errorf("brackets in text: %v", err)
	}
}
