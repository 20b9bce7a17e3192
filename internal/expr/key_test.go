package expr

import (
	"strings"
	"sync"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestKey: a key is text, a number or a truth value of the task's input, type and labels, as text; all else is an error.
func TestKey(t *testing.T) {
	task := &core.Task{
		Type: "order", Labels: []core.Label{{Key: "tier", Value: "gold"}},
		Input: []byte(`{"customer":"acme","n":7,"whole":7.0,"half":0.5,"big":12345678901234,"vip":true,"none":null,"l":[1],"o":{"a":1},"zero":"a\u0000b","long":"` + strings.Repeat("x", core.KeyBytesMax+1) + `"}`),
	}
	for source, want := range map[string]string{
		"input.customer": "acme", "input.n": "7", "input.whole": "7", "input.half": "0.5", "input.big": "12345678901234", "double(input.n)": "7", "input.vip": "true",
		"type": "order", "type(input.n) == int": "true", "labels.tier": "gold", "labels['tier'] + '/' + type": "gold/order", "''": "", "input.zero": "a\uFFFDb",
		"has(input.region) ? input.region : 'none'": "none", "input.long": core.KeyOf(strings.Repeat("x", core.KeyBytesMax+1)),
	} {
		k, err := NewKey(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := k.Of(task); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
	for source, want := range map[string]string{
		"input.custmer": `key: at column 6 of input.custmer: there is no "custmer"`, "input.none": "key: it gives null, want text, a number, or true or false", "input.l": "gives a list",
		"input.o": "gives a map", "labels.region": `there is no "region"`, "input.l[9]": "no element 9",
		"string([1,2,3,4,5,6,7,8].map(a, [1,2,3,4,5,6,7,8].map(b, [1,2,3,4,5,6,7,8].map(c, [1,2,3,4,5,6,7,8].map(d, [1,2,3,4,5,6,7,8].map(e, [1,2,3,4,5,6,7,8].map(f, f)))))).size())": "costs more than",
	} {
		k, err := NewKey(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := k.Of(task); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, %v, want %s", source, got, err, want)
		}
	}
	for input, want := range map[string]string{"": `there is no "customer"`, `{"duly.enc":"1","key":"k","data":"YWJj"}`: "the input is encrypted", `{`: "the input: "} {
		k, err := NewKey("input.customer")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Of(&core.Task{Input: []byte(input)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of the input %s: %q, %v, want %s", input, got, err, want)
		}
	}
}

// TestKeyRefused: an expression that cannot be is refused with the place.
func TestKeyRefused(t *testing.T) {
	for source, want := range map[string]string{
		"input.": "line 1, column 7: . cannot stand here", "\n costumer": `line 2, column 2: there is no "costumer": an expression sees input, type, labels`,
		"results.pay": `line 1, column 1: there is no "results"`, "[1]": "line 1, column 1: it gives a list, want text, a number, or true or false", "null": "it gives null", "labels": "it gives a map",
		"type + 1": "+ does not go with", "": "line 1, column", "label.a": "is labels meant?", strings.Repeat("a", core.LimitKeyMax+1): "1025 bytes, want at most 1024",
	} {
		if _, err := NewKey(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// TestKeyAtOnce: one compiled expression answers for many tasks at a time.
func TestKeyAtOnce(t *testing.T) {
	k, err := NewKey("input.c + labels.a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			task := &core.Task{Input: []byte(`{"c":"` + name + `"}`), Labels: []core.Label{{Key: "a", Value: name}}}
			for range 100 {
				if got, err := k.Of(task); err != nil || got != name+name {
					t.Errorf("%q, %v, want %s", got, err, name+name)
				}
			}
		})
	}
	wg.Wait()
}
