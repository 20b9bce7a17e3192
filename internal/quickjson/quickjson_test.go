package quickjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// seeds are odd corners of JSON.
var seeds = []string{
	``, ` `, `null`, ` null `, `nul`, `nullx`, `0`, `-0`, `01`, `1.`, `.5`, `1e5`, `1E+5`, `1e`, `-`, `"a"`, `"a`, `"\u00e9"`, `"\ud800"`, `"\u12"`, `"\x"`,
	"\"\x01\"", "\"\xff\"", "\"a\tb\"", `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `[]`, `[1,2]`, `[1,]`, `[1 2]`, `{"a":{"b":[1,{"c":null}]}}`, `{} {}`, "\ufeff{}",
	strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), strings.Repeat("[", 4_000) + strings.Repeat("]", 4_000), `"` + strings.Repeat("x", 20_000) + `"`,
}

// value has what payloads have.
type value struct {
	A string         `json:"a"`
	B int            `json:"b,omitempty"`
	C []value        `json:"c"`
	D map[string]any `json:"d"`
	E *float64       `json:"e"`
	F json.RawMessage
	G bool `json:"-"`
}

func FuzzValid(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := Valid(data), json.Valid(data); got != want {
			t.Fatalf("%.200q: valid %v, encoding/json says %v", data, got, want)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range append(seeds, `{"a":"x","b":2,"c":[{"a":"y"}],"d":{"z":1.5},"e":1e3,"F":{"raw": 1},"g":true}`, `{"A":"case"}`, `{"b":"2"}`, `{"b":1.5}`, `{"a":null,"e":null}`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want value
		err, wantErr := Unmarshal(data, &got), json.Unmarshal(data, &want)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%.200q: error %v, encoding/json says %v", data, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%.200q: %+v, encoding/json says %+v", data, got, want)
		}
	})
}
