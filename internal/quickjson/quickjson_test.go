package quickjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// seeds are odd corners of JSON.
var seeds = []string{
	``, ` `, `null`, ` null `, `nul`, `nullx`, `0`, `-0`, `01`, `1.`, `.5`, `1e5`, `1E+5`, `1e`, `-`, `"a"`, `"a`, `"\u00e9"`, `"\ud800"`, `"\u12"`, `"\x"`,
	"\"\x01\"", "\"\xff\"", "\"a\tb\"", `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `[]`, `[1,2]`, `[1,]`, `[1 2]`, `{"a":{"b":[1,{"c":null}]}}`, `{} {}`, "\ufeff{}",
	strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), strings.Repeat("[", 4_000) + strings.Repeat("]", 4_000), `"` + strings.Repeat("x", 20_000) + `"`,
}

func FuzzValid(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := valid(data), json.Valid(data); got != want {
			t.Fatalf("%.200q: valid %v, encoding/json says %v", data, got, want)
		}
	})
}

// BenchmarkUnmarshal compares with encoding/json.
func BenchmarkUnmarshal(b *testing.B) {
	type payout struct {
		Account string `json:"account"`
		Cents   int64  `json:"cents"`
		Lines   []struct{ Text string }
	}
	data := []byte(`{"account":"DE12 3456","cents":1250,"Lines":[{"Text":"rent"},{"Text":"heat"}]}`)
	for name, f := range map[string]func([]byte, any) error{"json": json.Unmarshal, "exact": Unmarshal} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				var into payout
				if err := f(data, &into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("check", func(b *testing.B) {
		for range b.N {
			if err := Check("input", data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
