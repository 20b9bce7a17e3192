package decimal

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanon(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0.0": "0", "0e999": "0", "5": "5", "5.0": "5", "50e-1": "5", "+.5": "0.5", "5.": "5", "-00.50": "-0.5",
		"9223372036854775809": "9223372036854775809", "9007199254740993.0": "9007199254740993", "1E+2": "100", "1e400": "1e400", "12e-400": "1.2e-399", "12e-401": "",
		"1e39": "1" + strings.Repeat("0", 39), "1e40": "1e40", "123e-40": "0." + strings.Repeat("0", 37) + "123", "12e-40": "0." + strings.Repeat("0", 38) + "12", "1e-41": "1e-41",
		"0.1000000000000000055511151231257827": "0.1000000000000000055511151231257827",
		"1e401":                                "", "10e400": "", "1e-401": "", "1e99999999999999999999": "", strings.Repeat("1", 1001): "", "1" + strings.Repeat("0", 400): "1e400",
		"": "", "-": "", ".": "", "e5": "", "1e": "", "1e+": "", "1x": "", "0x10": "", "1_0": "", "--1": "", "1.2.3": "", "NaN": "", "1e5e5": "",
	} {
		got, err := Canon(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	if !Same("1.50", "15e-1") || Same("9223372036854775808", "9223372036854775809") || Same("1e999", "10e998") || !Same("1e999", "1e999") {
		t.Error("the same number")
	}
}

// Drawn numbers: the value stays, the spelling is JSON and the same for each spelling of a value, and the order is that of
// the values.
//
// covers: W3
func TestCanonKeepsTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?`)
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		x, err := Canon(a)
		y, err2 := Canon(b)
		if err != nil || err2 != nil || !json.Valid([]byte(x)) {
			t.Fatalf("%s: %s, %v, %v", a, x, err, err2)
		}
		value := func(text string) *big.Rat { r, _ := new(big.Rat).SetString(text); return r }
		again, err := Canon(x)
		if value(a).Cmp(value(x)) != 0 || again != x || err != nil || Compare(x, y) != value(a).Cmp(value(b)) || (x == y) != (value(a).Cmp(value(b)) == 0) {
			t.Fatalf("%s is %s, and %s %s; again %s, %v", a, x, b, y, again, err)
		}
	})
}
