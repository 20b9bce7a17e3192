package core

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// White space between values makes no other input; anything else does.
//
// covers: W9
func TestHashInput(t *testing.T) {
	hash := func(text string) string { return string(HashInput("order", []byte(text))) }
	same := []string{`{"n":0,"s":"a b\t\" c","l":[1,2]}`, " {\r\n\t\"n\" : 0, \"s\": \"a b\\t\\\" c\" ,\"l\":[ 1,\n2 ] } "}
	if hash(same[0]) != hash(same[1]) {
		t.Errorf("%s and %s are told apart", same[0], same[1])
	}
	for _, other := range []string{`{"n":0,"s":"ab\t\" c","l":[1,2]}`, `{"n":0.0,"s":"a b\t\" c","l":[1,2]}`, `{"n":0,"s":"a b\t\"c","l":[1,2]}`} {
		if hash(other) == hash(same[0]) {
			t.Errorf("%s is the same as %s", other, same[0])
		}
	}
	if string(HashInput("orde", []byte("r{}"))) == string(HashInput("order", []byte("{}"))) {
		t.Error("a type runs into its input")
	}
}

// Compact says what encoding/json says.
func TestCompact(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var value func(deep int) any
		value = func(deep int) any {
			switch n := draw.IntN(6); {
			case n == 0 && deep < 4:
				all := map[string]any{}
				for range draw.IntN(4) {
					all[string(rune(draw.IntN(0x80)))] = value(deep + 1)
				}
				return all
			case n == 1 && deep < 4:
				all := make([]any, draw.IntN(4))
				for i := range all {
					all[i] = value(deep + 1)
				}
				return all
			case n == 2:
				return draw.IntN(1000)
			}
			text := make([]byte, draw.IntN(8))
			for i := range text {
				text[i] = " \"\\\n\tab{"[draw.IntN(8)]
			}
			return string(text)
		}
		spaced, err := json.MarshalIndent(value(0), " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		var want, got bytes.Buffer
		if err := json.Compact(&want, spaced); err != nil {
			t.Fatal(err)
		}
		Compact(spaced, func(part []byte) { got.Write(part) })
		if got.String() != want.String() {
			t.Fatalf("%s: %s, want %s", spaced, got.Bytes(), want.Bytes())
		}
	}
}
