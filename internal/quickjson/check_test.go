package quickjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
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

// TestMemberTwice: what one reader takes for another value than the next is refused, also where it is written otherwise, or
// is one of many.
//
// covers: E23
func TestMemberTwice(t *testing.T) {
	many := `{"m0":0`
	for i := range 1000 {
		many += fmt.Sprintf(`,"m%d":0`, i+1)
	}
	for data, fine := range map[string]bool{
		`{"cents":9900000,"cents":1}`: false, `{"cents":1,"\u0063ents":2}`: false, `[0,{"a":{"b":1, "b" :2}}]`: false, many + `,"m7":1}`: false, many + `,"m1000" :1}`: false,
		`{"cents":1,"Cents":1}`: true, `[{"a":1},{"a":2}]`: true, `{"a":{"a":1},"b":{"a":"a"}}`: true, `{"a":["a","b:","a"],"b":"a"}`: true, many + `}`: true, `{"\"a":1,"a":2}`: true,
	} {
		err := Check("input", []byte(data))
		if text, is := errors.AsType[*TextError](err); (err == nil) != fine || !fine && (!is || !strings.Contains(text.Error(), "twice")) {
			t.Errorf("%.60s: %v, want it taken: %v", data, err, fine)
		}
	}
}

type (
	base   struct{ Shop string }
	line   struct{ Cents int64 }
	bought struct {
		base
		Cents  int64           `json:"cents"`
		Lines  []line          `json:"lines"`
		By     map[string]line `json:"by"`
		At     time.Time       `json:"at"`
		Rest   any             `json:"rest"`
		Next   *bought         `json:"next"`
		Hidden string          `json:"-"`
	}
)

// TestUnmarshalExactly: a member is taken for a field by its exact name alone, wherever it stands; of what is free to have
// any members none is refused.
//
// covers: E23
func TestUnmarshalExactly(t *testing.T) {
	for data, wrong := range map[string]string{
		`{"cents":1,"Cents":9900000}`: `"Cents"`, `{"CENTS":1}`: `"cents"`, `{"cent\u017F":1}`: `"cents"`, `{"lines":[{"Cents":1},{"cents":2}]}`: `"cents"`,
		`{"by":{"x":{"CENTS":1}}}`: `"CENTS"`, `{"next":{"next":{"Cents":1}}}`: `"Cents"`, `{"shop":"s"}`: `"shop"`,
		`{"cents":1,"other":2,"Shop":"s","lines":[{"Cents":1}],"at":"2026-01-02T03:04:05Z"}`: "", `{"by":{"Cents":{"Cents":1},"cents":{"Cents":2}}}`: "",
		`{"rest":{"Cents":1,"Lines":2}}`: "", `{"hidden":"x"}`: "", `null`: "", `{"lines":null,"next":null}`: "",
	} {
		var into bought
		if err := Unmarshal([]byte(data), &into); (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", data, err, wrong)
		}
	}
	var free map[string]any
	if err := Unmarshal([]byte(`{"a":1,"A":2}`), &free); err != nil || len(free) != 2 {
		t.Errorf("%v, %v", free, err)
	}
	var text string
	if err := Unmarshal([]byte(`{}`), &text); err == nil {
		t.Error("an object is a text")
	}
}

// TestSame: spelling and order do not count, numbers as they are written do, and what is no document equals none.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":"x"}`, `{ "b":"\u0078", "a":1 }`, true}, {`12345678901234567890`, `12345678901234567891`, false}, {`[1,2]`, `[2,1]`, false},
		{`null`, `null`, true}, {``, ``, false}, {`{`, `{`, false},
	} {
		if got := Same([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}
